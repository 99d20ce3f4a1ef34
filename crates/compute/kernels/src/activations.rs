use motet_math::ROUND_TO_INT;

use crate::isa::{Kernel, on_isa};
use crate::pool::{SendPtr, ThreadPool};
use crate::{BLOCK, Isa};

/// Input rows of a matmul: f32, and quantised to 8 bits in blocks of 32 where weights are quantised.
///
/// A block's scale is its largest magnitude ÷ 127, its quants are rounded to nearest, ties to even.
#[derive(Default)]
pub struct Activations {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) values: Vec<f32>,
    /// Whether what follows belongs to `values`.
    pub(crate) is_quantized: bool,
    pub(crate) quants: Vec<i8>,
    /// One per block: the scale.
    pub(crate) scales: Vec<f32>,
    /// One per block: sum of the quants.
    pub(crate) sums: Vec<i32>,
    /// One per block: scale × sum, what a weight's minimum is multiplied with.
    pub(crate) scaled_sums: Vec<f32>,
}

impl Activations {
    /// Resizes for `rows × cols` and lends the f32 rows to be filled; then call [`quantize`](Self::quantize).
    ///
    /// # Panics
    /// Where `rows × cols` overflows.
    pub fn fill(&mut self, rows: usize, cols: usize) -> &mut [f32] {
        let len = rows.checked_mul(cols);
        assert!(len.is_some(), "{rows} × {cols} activations");
        (self.rows, self.cols, self.is_quantized) = (rows, cols, false);
        self.values.resize(len.unwrap_or(0), 0.0);
        &mut self.values
    }

    /// Computes the 8-bit form of every whole block of every row.
    pub fn quantize(&mut self, pool: &ThreadPool, isa: Isa) {
        let blocks = self.cols / BLOCK;
        if !self.cols.is_multiple_of(BLOCK) {
            return; // float weights only
        }
        self.quants.resize(self.rows * self.cols, 0);
        self.scales.resize(self.rows * blocks, 0.0);
        self.sums.resize(self.rows * blocks, 0);
        self.scaled_sums.resize(self.rows * blocks, 0.0);
        let (values, quants) = (&self.values, SendPtr(self.quants.as_mut_ptr()));
        let (scales, sums) = (SendPtr(self.scales.as_mut_ptr()), SendPtr(self.sums.as_mut_ptr()));
        let scaled_sums = SendPtr(self.scaled_sums.as_mut_ptr());
        let cols = self.cols;
        pool.run(self.rows, &|row| {
            // SAFETY: each task touches the ranges of its own row only, inside the lengths set above.
            let row = unsafe {
                QuantizeRow {
                    source: &values[row * cols..][..cols],
                    quants: std::slice::from_raw_parts_mut(quants.get().add(row * cols), cols),
                    scales: std::slice::from_raw_parts_mut(scales.get().add(row * blocks), blocks),
                    sums: std::slice::from_raw_parts_mut(sums.get().add(row * blocks), blocks),
                    scaled_sums: std::slice::from_raw_parts_mut(scaled_sums.get().add(row * blocks), blocks),
                }
            };
            on_isa(isa, row);
        });
        self.is_quantized = true;
    }

    pub(crate) fn quantized_row(&self, row: usize) -> (&[i8], &[f32], &[i32], &[f32]) {
        let blocks = self.cols / BLOCK;
        (
            &self.quants[row * self.cols..][..self.cols],
            &self.scales[row * blocks..][..blocks],
            &self.sums[row * blocks..][..blocks],
            &self.scaled_sums[row * blocks..][..blocks],
        )
    }
}

struct QuantizeRow<'a> {
    source: &'a [f32],
    quants: &'a mut [i8],
    scales: &'a mut [f32],
    sums: &'a mut [i32],
    scaled_sums: &'a mut [f32],
}

impl Kernel for QuantizeRow<'_> {
    #[inline(always)]
    fn run(self) {
        let (blocks, _) = self.source.as_chunks::<BLOCK>();
        let (quants, _) = self.quants.as_chunks_mut::<BLOCK>();
        for (index, (block, quants)) in blocks.iter().zip(quants).enumerate() {
            let largest = block.iter().fold(0f32, |m, v| if v.abs() > m { v.abs() } else { m });
            // A subnormal scale has no finite inverse; such a block counts as zero.
            let scale = if largest / 127.0 >= f32::MIN_POSITIVE { largest / 127.0 } else { 0.0 };
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let mut sum = 0i32;
            for (quant, value) in quants.iter_mut().zip(block) {
                // The low mantissa bits of the shifted value are the rounded integer.
                let bits = (value * inverse + ROUND_TO_INT).to_bits() as i32 - ROUND_TO_INT.to_bits() as i32;
                let rounded = bits.clamp(-127, 127);
                *quant = rounded as i8;
                sum += rounded;
            }
            // A row with NaN or infinity must not pass for a finite one: its scale says so.
            let is_finite = block.iter().fold(true, |all, v| all & v.is_finite());
            let scale = if is_finite { scale } else { f32::NAN };
            self.scales[index] = scale;
            self.sums[index] = sum;
            self.scaled_sums[index] = scale * sum as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn same_bits_on_every_isa(
            mut values in proptest::collection::vec(-1e3f32..1e3, 64),
            scale in prop_oneof![Just(1f32), Just(1e-36), Just(1e-40), Just(0.0)],
        ) {
            values.iter_mut().for_each(|v| *v *= scale);
            let pool = ThreadPool::new(1);
            let quantized = |isa| {
                let mut x = Activations::default();
                x.fill(1, 64).copy_from_slice(&values);
                x.quantize(&pool, isa);
                (x.quants, x.scales, x.sums, x.scaled_sums)
            };
            for isa in Isa::available() {
                prop_assert_eq!(quantized(isa), quantized(Isa::Scalar));
            }
            let (quants, scales, ..) = quantized(Isa::Scalar);
            for (i, value) in values.iter().enumerate() {
                prop_assert!((f32::from(quants[i]) * scales[i / BLOCK] - value).abs() <= scales[i / BLOCK] * 0.501 + 2e-36);
            }
        }
    }

    #[test]
    #[should_panic(expected = "not quantised")]
    fn filled_and_not_quantised_is_not_multiplied() {
        let pool = ThreadPool::new(1);
        let source = crate::Source { format: crate::BlockFormat::Q8_0, raw: &[0; 34], rows: 1, cols: 32 };
        let weights = crate::PackedMatrix::pack(&pool, source, crate::Precision::Fast);
        let mut x = Activations::default();
        x.fill(1, 32);
        x.quantize(&pool, Isa::Scalar);
        x.fill(1, 32);
        crate::matmul(&pool, Isa::Scalar, &x, &mut [crate::Product { weights: &weights, out: &mut [0.0] }]);
    }

    #[test]
    fn what_is_not_finite_stays_visible() {
        let mut x = Activations::default();
        x.fill(1, 32)[7] = f32::INFINITY;
        x.quantize(&ThreadPool::new(1), Isa::detect());
        assert!(x.scales[0].is_nan());
    }
}
