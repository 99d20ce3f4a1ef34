use proptest::prelude::*;

use super::*;
use crate::panels::Source;
use crate::{BlockFormat, Precision};

/// Random file bytes with finite, moderate scales.
fn raw_matrix(format: BlockFormat, values: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let scale = |v: u64| half::f16::from_f32((v % 2001) as f32 / 1000.0 - 1.0).to_le_bytes();
    let mut raw = Vec::new();
    for _ in 0..values / format.block_len() {
        let float = (next() % 4001) as f32 / 1000.0 - 2.0;
        match format {
            BlockFormat::F32 => raw.extend(float.to_le_bytes()),
            BlockFormat::F16 => raw.extend(half::f16::from_f32(float).to_le_bytes()),
            BlockFormat::BF16 => raw.extend(half::bf16::from_f32(float).to_le_bytes()),
            _ => {
                raw.extend(scale(next()));
                if format.has_min() {
                    raw.extend(scale(next()));
                }
                let rest = format.block_bytes() - if format.has_min() { 4 } else { 2 };
                raw.extend((0..rest).map(|_| next() as u8));
            }
        }
    }
    raw
}

fn inputs(rows: usize, cols: usize, seed: u64) -> Activations {
    let mut x = Activations::default();
    for (i, v) in x.fill(rows, cols).iter_mut().enumerate() {
        *v = ((i as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(2_654_435_761) % 2003) as f32 / 500.0 - 2.0;
    }
    x.quantize(&ThreadPool::new(1), Isa::Scalar);
    x
}

fn product(threads: usize, isa: Isa, x: &Activations, weights: &PackedMatrix) -> Vec<u32> {
    let mut out = vec![f32::NAN; x.rows * weights.rows()];
    matmul(&ThreadPool::new(threads), isa, x, &mut [Product { weights, out: &mut out }]);
    out.iter().map(|v| v.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Contract 1: the instruction set, the number of threads and the other rows change no bit.
    #[test]
    fn same_bits(rows in 1usize..40, blocks in 1usize..5, m in 1usize..9, seed in any::<u64>()) {
        let cols = blocks * crate::BLOCK;
        let x = inputs(m, cols, seed);
        for format in BlockFormat::ALL {
            let raw = raw_matrix(format, rows * cols, seed);
            let source = || Source { format, raw: &raw, rows, cols };
            let weights = PackedMatrix::pack(&ThreadPool::new(2), source(), Precision::Fast);
            let reference = product(1, Isa::Scalar, &x, &weights);
            for isa in Isa::available() {
                for threads in [1, 2, 3] {
                    prop_assert_eq!(&product(threads, isa, &x, &weights), &reference, "{} {:?}", format.name(), isa);
                }
                for row in 0..m {
                    let mut alone = Activations::default();
                    alone.fill(1, cols).copy_from_slice(&x.values[row * cols..][..cols]);
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
        let cols = 96;
        let x = inputs(m, cols, seed);
        for format in BlockFormat::ALL {
            let raw = raw_matrix(format, rows * cols, seed);
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
                let inputs = &x.values[row * cols..][..cols];
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
        let cols = 64;
        for format in BlockFormat::ALL {
            let raw = raw_matrix(format, rows * cols, seed);
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
}
