//! Float weights.

use std::arch::aarch64::*;

use super::{LANES, QUARTERS};
use crate::PANEL_ROWS;
use crate::blocks::BlockFormat;
use crate::matmul::{AHEAD, FloatTile, Results, unroll};
use crate::simd::aarch64::load_halves;
use crate::simd::prefetch;

/// # Safety
/// The CPU has NEON.
pub(in crate::matmul) unsafe fn float(tile: &FloatTile<'_>, results: &mut Results) {
    // SAFETY: forwarded from the caller.
    unsafe {
        match tile.format {
            BlockFormat::F16 => rows::<2>(tile, results),
            BlockFormat::BF16 => rows::<1>(tile, results),
            _ => rows::<4>(tile, results),
        }
    }
}

/// `KIND` is 4 for f32, 2 for f16, 1 for bf16 weights.
unsafe fn rows<const KIND: usize>(tile: &FloatTile<'_>, results: &mut Results) {
    let mut row = 0;
    while row < tile.rows {
        // SAFETY: forwarded from the caller; `row + M <= tile.rows`, and `Q` divides the quarters.
        row += unsafe {
            match tile.rows - row {
                8.. => chains::<KIND, 8, 2>(tile, row, results),
                4.. => chains::<KIND, 4, 4>(tile, row, results),
                2.. => chains::<KIND, 2, 4>(tile, row, results),
                _ => chains::<KIND, 1, 4>(tile, row, results),
            }
        };
    }
}

/// The sums of `M` rows from `row` on, of `Q` quarters at a time.
#[target_feature(enable = "neon")]
unsafe fn chains<const KIND: usize, const M: usize, const Q: usize>(
    tile: &FloatTile<'_>,
    row: usize,
    results: &mut Results,
) -> usize {
    let inputs = &tile.values[row * tile.cols..][..M * tile.cols];
    for first in (0..QUARTERS).step_by(Q) {
        let quarters = Quarters { tile, first, is_new: tile.is_first && row == 0 && first == 0 };
        let mut sums = [[vdupq_n_f32(0.0); M]; Q];
        // SAFETY: m < M and k < cols index the inputs, and a vector of them ends before the row does.
        unsafe {
            let x = |m: usize, k: usize| inputs.as_ptr().add(m * tile.cols + k);
            let whole = tile.cols - tile.cols % 4;
            for k in (0..whole).step_by(4) {
                let x: [float32x4_t; M] = std::array::from_fn(|m| vld1q_f32(x(m, k)));
                quarters.add::<KIND, M, Q>(k, x.map(|x| vdupq_laneq_f32::<0>(x)), &mut sums);
                quarters.add::<KIND, M, Q>(k + 1, x.map(|x| vdupq_laneq_f32::<1>(x)), &mut sums);
                quarters.add::<KIND, M, Q>(k + 2, x.map(|x| vdupq_laneq_f32::<2>(x)), &mut sums);
                quarters.add::<KIND, M, Q>(k + 3, x.map(|x| vdupq_laneq_f32::<3>(x)), &mut sums);
            }
            for k in whole..tile.cols {
                let x: [float32x4_t; M] = std::array::from_fn(|m| vld1q_dup_f32(x(m, k)));
                quarters.add::<KIND, M, Q>(k, x, &mut sums);
            }
        }
        for (q, sums) in sums.iter().enumerate() {
            for (m, sum) in sums.iter().enumerate() {
                // SAFETY: `row + m` is a row of the tile, and its results are four vectors.
                unsafe {
                    let target = results.0.get_unchecked_mut(row + m).as_mut_ptr();
                    vst1q_f32(target.add((first + q) * LANES), *sum);
                }
            }
        }
    }
    M
}

/// The columns of a panel from quarter `first` on.
struct Quarters<'a> {
    tile: &'a FloatTile<'a>,
    first: usize,
    /// Whether they were not read before.
    is_new: bool,
}

impl Quarters<'_> {
    /// The chains' next links: the products of weights `k` and each row's activation.
    ///
    /// # Safety
    /// The CPU has NEON, `k` is one of the panel's, and it has `Q` quarters from the first on.
    #[inline(always)]
    unsafe fn add<const KIND: usize, const M: usize, const Q: usize>(
        &self,
        k: usize,
        x: [float32x4_t; M],
        sums: &mut [[float32x4_t; M]; Q],
    ) {
        let size = if KIND == 4 { 4 } else { 2 };
        // SAFETY: a float panel holds cols × 16 values; the rest is the caller's promise.
        unsafe {
            let at = self.tile.weights.as_ptr().add((k * PANEL_ROWS + self.first * LANES) * size);
            if self.is_new {
                prefetch(at.wrapping_add(AHEAD));
            }
            unroll!(q < Q, {
                let at = at.add(q * LANES * size);
                let weight = match KIND {
                    4 => vld1q_f32(at.cast()),
                    2 => load_halves(at.cast()),
                    _ => vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(at.cast()))),
                };
                unroll!(m < M, {
                    sums[q][m] = vfmaq_f32(sums[q][m], weight, x[m]);
                });
            });
        }
    }
}
