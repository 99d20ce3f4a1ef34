use proptest::prelude::*;

use super::*;
use crate::blocks::samples::random_blocks;
use crate::panels::Source;
use crate::{BlockFormat, Precision};

type Function = fn(f32) -> f32;

fn inputs(rows: usize, cols: usize, seed: u64) -> Activations {
    let mut x = Activations::default();
    for (i, v) in x.fill(rows, cols).iter_mut().enumerate() {
        *v = ((i as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(2_654_435_761) % 2003) as f32 / 500.0 - 2.0;
    }
    x.quantize(&ThreadPool::new(1), Isa::Scalar);
    x
}

fn product(threads: usize, isa: Isa, x: &Activations, weights: &PackedMatrix) -> Vec<u32> {
    let mut out = vec![f32::NAN; x.rows() * weights.rows()];
    matmul(&ThreadPool::new(threads), isa, x, &mut [Product { weights, out: &mut out, sum: Sum::Replace }]);
    out.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Contract 1: the instruction set, the number of threads and the other rows change no bit.
    #[test]
    fn same_bits(rows in 1usize..40, blocks in 1usize..5, m in 1usize..40, seed in any::<u64>()) {
        for format in BlockFormat::ALL {
            let cols = (blocks * crate::BLOCK).next_multiple_of(format.block_len());
            let x = inputs(m, cols, seed);
            let raw = random_blocks(format, rows * cols, seed);
            let source = || Source { format, raw: &raw, rows, cols };
            let weights = PackedMatrix::pack(&ThreadPool::new(2), source(), Precision::Fast);
            let reference = product(1, Isa::Scalar, &x, &weights);
            for isa in Isa::available() {
                for threads in [1, 2, 3] {
                    prop_assert_eq!(&product(threads, isa, &x, &weights), &reference, "{} {:?}", format.name(), isa);
                }
                for row in 0..m {
                    let mut alone = Activations::default();
                    alone.fill(1, cols).copy_from_slice(&x.values()[row * cols..][..cols]);
                    alone.quantize(&ThreadPool::new(1), isa);
                    let expected = &reference[row * rows..][..rows];
                    prop_assert_eq!(&product(1, isa, &alone, &weights), expected, "row {} alone", row);
                }
            }
        }
    }

    /// The fast product is the exact one up to the rounding of activations to 8 bits.
    #[test]
    fn close_to_the_exact_product(rows in 1usize..20, m in 1usize..4, seed in any::<u64>()) {
        for format in BlockFormat::ALL {
            let cols = 96usize.next_multiple_of(format.block_len());
            let x = inputs(m, cols, seed);
            let raw = random_blocks(format, rows * cols, seed);
            let source = || Source { format, raw: &raw, rows, cols };
            let pool = ThreadPool::new(1);
            let exact = PackedMatrix::pack(&pool, source(), Precision::Exact);
            let fast = PackedMatrix::pack(&pool, source(), Precision::Fast);
            let mut values = vec![0f32; rows * cols];
            format.dequantize(&raw, &mut values);
            let (exact, fast) = (product(1, Isa::detect(), &x, &exact), product(1, Isa::detect(), &x, &fast));
            for (i, (e, f)) in exact.iter().zip(&fast).enumerate() {
                let (row, column) = (i / rows, i % rows);
                let weights = &values[column * cols..][..cols];
                let inputs = &x.values()[row * cols..][..cols];
                let truth: f64 = weights.iter().zip(inputs).map(|(w, v)| f64::from(*w) * f64::from(*v)).sum();
                let magnitude: f64 = weights.iter().map(|w| f64::from(w.abs())).sum::<f64>() * 2.0 + 1e-3;
                prop_assert!((f64::from(f32::from_bits(*e)) - truth).abs() <= magnitude * 1e-5);
                prop_assert!((f64::from(f32::from_bits(*f)) - truth).abs() <= magnitude / 127.0, "{}", format.name());
            }
        }
    }

    /// An embedding row read back from the panels equals the file's values.
    #[test]
    fn rows_come_back(rows in 1usize..40, seed in any::<u64>()) {
        for format in BlockFormat::ALL {
            let cols = 64usize.next_multiple_of(format.block_len());
            let raw = random_blocks(format, rows * cols, seed);
            let mut values = vec![0f32; rows * cols];
            format.dequantize(&raw, &mut values);
            for precision in [Precision::Exact, Precision::Fast] {
                let source = Source { format, raw: &raw, rows, cols };
                let weights = PackedMatrix::pack(&ThreadPool::new(1), source, precision);
                let mut row = vec![0f32; cols];
                for (r, expected) in values.chunks_exact(cols).enumerate() {
                    weights.row(r, &mut row);
                    prop_assert_eq!(&row[..], expected, "{} row {}", format.name(), r);
                }
            }
        }
    }

    /// Gate, up, activation and quantisation in one loop leave the records of the steps one by one.
    #[test]
    fn gated_is_its_parts(panels in 1usize..4, m in 1usize..40, seed in any::<u64>()) {
        let (cols, width) = (64, panels * crate::BLOCK);
        let x = inputs(m, cols, seed);
        let pool = ThreadPool::new(2);
        let pack = |format: BlockFormat, seed| {
            let raw = random_blocks(format, width * cols, seed);
            PackedMatrix::pack(&pool, Source { format, raw: &raw, rows: width, cols }, Precision::Fast)
        };
        let (gate, up) = (pack(BlockFormat::Q4_1, seed), pack(BlockFormat::Q8_0, seed ^ 1));
        let next = |format: BlockFormat| {
            let raw = random_blocks(format, width, seed);
            PackedMatrix::pack(&pool, Source { format, raw: &raw, rows: 1, cols: width }, Precision::Fast)
        };
        let (quantized, float) = (next(BlockFormat::Q4_0), next(BlockFormat::F16));
        let kinds: [(Gate, Function); 2] =
            [(Gate::Silu, motet_math::silu), (Gate::GeluTanh, motet_math::gelu_tanh)];
        for (isa, (kind, activation)) in Isa::available().into_iter().flat_map(|isa| kinds.map(|k| (isa, k))) {
            let (gates, ups) = (product(2, isa, &x, &gate), product(2, isa, &x, &up));
            let mut parts = Activations::default();
            for ((value, gate), up) in parts.fill(m, width).iter_mut().zip(gates).zip(ups) {
                *value = activation(f32::from_bits(gate)) * f32::from_bits(up);
            }
            parts.quantize(&pool, isa);
            let mut fused = Activations::default();
            gated(&pool, isa, &x, (kind, &gate, &up, &quantized), &mut fused);
            prop_assert!(crate::activations::is_same(&parts, &fused));
            gated(&pool, isa, &x, (kind, &gate, &up, &float), &mut fused);
            prop_assert_eq!(parts.values(), fused.values());
        }
    }

    #[test]
    fn sums_are_added(m in 1usize..20, seed in any::<u64>()) {
        let (rows, cols) = (24, 64);
        let x = inputs(m, cols, seed);
        let raw = random_blocks(BlockFormat::Q4_0, rows * cols, seed);
        let source = Source { format: BlockFormat::Q4_0, raw: &raw, rows, cols };
        let weights = PackedMatrix::pack(&ThreadPool::new(1), source, Precision::Fast);
        let mut sums = vec![0.3f32; m * rows];
        let plain = product(1, Isa::Scalar, &x, &weights);
        let both = Product { weights: &weights, out: &mut sums, sum: Sum::Add };
        matmul(&ThreadPool::new(2), Isa::detect(), &x, &mut [both]);
        for (sum, plain) in sums.iter().zip(plain) {
            prop_assert_eq!(sum.to_bits(), (0.3 + f32::from_bits(plain)).to_bits());
        }
    }
}

/// Weights and activations of the largest magnitudes overflow nothing on the way to 32 bits. Bytes that are all the
/// same are a block's scales too; these are finite.
#[test]
fn extremes_do_not_overflow() {
    let (rows, cols, m) = (20, 512, 15);
    let pool = ThreadPool::new(1);
    let check = |format: BlockFormat, byte: u8, value: f32| {
        let mut x = Activations::default();
        x.fill(m, cols).fill(value);
        x.quantize(&pool, Isa::Scalar);
        let raw = vec![byte; format.bytes(rows * cols)];
        let weights = PackedMatrix::pack(&pool, Source { format, raw: &raw, rows, cols }, Precision::Fast);
        let reference = product(1, Isa::Scalar, &x, &weights);
        assert!(reference.iter().all(|bits| f32::from_bits(*bits).is_finite()), "{} {byte:x}", format.name());
        for isa in Isa::available() {
            assert_eq!(
                product(1, isa, &x, &weights),
                reference,
                "{} {byte:x} {value} {isa:?}",
                format.name()
            );
        }
    };
    for format in BlockFormat::ALL {
        for byte in [0x80, 0x77, 0xef, 0x08] {
            check(format, byte, 1.0);
            check(format, byte, -1.0);
        }
    }
}
