//! `out = x · Wᵀ` for one or thousands of rows of x.

mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::pool::SendPtr;
use crate::{Activations, Isa, PANEL_ROWS, PackedMatrix, ThreadPool};

/// One product: `out[row][i] = Σₖ x[row][k] · weights[i][k]`.
pub struct Product<'a> {
    /// The weights, `x.cols` columns.
    pub weights: &'a PackedMatrix,
    /// `x.rows × weights.rows()` results, row by row.
    pub out: &'a mut [f32],
}

/// Computes several products of the same rows in one parallel loop.
///
/// Quantised weights read the 8-bit form of `x`, float weights the f32 form.
///
/// # Panics
/// Where the sizes do not fit together, or `x` was filled and not quantised.
pub fn matmul(pool: &ThreadPool, isa: Isa, x: &Activations, products: &mut [Product<'_>]) {
    let mut tasks: Vec<PanelTask<'_>> = Vec::with_capacity(products.len());
    let mut total = 0;
    for product in products.iter_mut() {
        let weights = product.weights;
        assert_eq!(weights.cols(), x.cols, "columns of weights and activations");
        assert_eq!(Some(product.out.len()), x.rows.checked_mul(weights.rows()), "size of the output");
        assert!(weights.format().is_float() || x.is_quantized, "activations not quantised");
        tasks.push(PanelTask { weights, out: SendPtr(product.out.as_mut_ptr()), first: total });
        total += weights.panels();
    }
    pool.run(total, &|index| {
        let task = &tasks[tasks.partition_point(|t| t.first <= index) - 1];
        let panel = Panel { weights: task.weights, index: index - task.first, out: task.out.get() };
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `Isa::Avx2` exists only after the CPU reported these features; sizes were asserted above.
            Isa::Avx2 => unsafe { x86::panel_product(x, &panel) },
            _ => scalar::panel_product(x, &panel),
        }
    });
}

struct PanelTask<'a> {
    weights: &'a PackedMatrix,
    out: SendPtr<f32>,
    first: usize,
}

/// The part of a product that one task computes: 16 output columns of every row.
struct Panel<'a> {
    weights: &'a PackedMatrix,
    index: usize,
    out: *mut f32,
}

impl Panel<'_> {
    /// Stores lanes `from…from + values.len()` of output row `row`, less those past the last weight row.
    #[inline(always)]
    fn store(&self, row: usize, from: usize, values: &[f32]) {
        let first = self.index * PANEL_ROWS + from;
        let count = values.len().min(self.weights.rows().saturating_sub(first));
        if count == 0 {
            return; // the padding rows of the last panel
        }
        // SAFETY: `first + count <= rows` and the output holds x.rows × rows values; this task alone
        // writes these columns.
        unsafe {
            let target = self.out.add(row * self.weights.rows() + first);
            std::ptr::copy_nonoverlapping(values.as_ptr(), target, count);
        }
    }
}
