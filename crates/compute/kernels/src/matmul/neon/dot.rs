//! Dot products of bytes, exact whatever the bytes are.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{Chain, DWORDS, Scaling, Unpack};
use crate::BLOCK;
use crate::matmul::{Results, unroll};

/// The largest magnitude of a quantised activation.
const LARGEST_X: i32 = 127;

/// Bytes of four vectors' worth of dwords: a vector of activations.
const VECTOR: usize = 16;

/// An instruction set's dot products.
pub(super) trait Dot {
    /// Input rows whose products advance side by side, as many as the registers allow.
    const ROWS: usize;

    /// [`Chain::run`] compiled for this instruction set.
    ///
    /// # Safety
    /// The CPU has it, the tile has `M` rows from the chain's on, and `Q` divides the quarters of a panel.
    unsafe fn run<U: Unpack, S: Scaling, const M: usize, const Q: usize>(
        chain: Chain<'_>,
        results: &mut Results,
    ) -> usize;

    /// `starts + Σ w · x` of four output rows and `R` input rows: a vector of weights for every four k.
    ///
    /// # Safety
    /// The CPU has the instruction set, the weights are eight or four vectors, and from `x` on, a block apart,
    /// there are as many dwords of every row.
    unsafe fn dots<U: Unpack, const R: usize>(
        starts: [int32x4_t; R],
        weights: &[int8x16_t],
        x: *const i8,
    ) -> [int32x4_t; R];
}

/// `sdot`, whose sums have 32 bits.
pub(super) struct Sdot;

impl Dot for Sdot {
    const ROWS: usize = 4;

    #[inline(never)]
    #[target_feature(enable = "neon,dotprod")]
    unsafe fn run<U: Unpack, S: Scaling, const M: usize, const Q: usize>(
        chain: Chain<'_>,
        results: &mut Results,
    ) -> usize {
        // SAFETY: forwarded from the caller.
        unsafe { chain.run::<Self, U, S, M, Q>(results) }
    }

    #[inline(always)]
    unsafe fn dots<U: Unpack, const R: usize>(
        starts: [int32x4_t; R],
        weights: &[int8x16_t],
        x: *const i8,
    ) -> [int32x4_t; R] {
        let mut dots = starts;
        // SAFETY: forwarded from the caller.
        unsafe {
            for part in 0..weights.len() / 4 {
                let x: [int8x16_t; R] = std::array::from_fn(|r| vld1q_s8(x.add(r * BLOCK + part * VECTOR)));
                let weights = &weights[part * 4..][..4];
                dots = std::array::from_fn(|r| sdot::<0>(dots[r], weights[0], x[r]));
                dots = std::array::from_fn(|r| sdot::<1>(dots[r], weights[1], x[r]));
                dots = std::array::from_fn(|r| sdot::<2>(dots[r], weights[2], x[r]));
                dots = std::array::from_fn(|r| sdot::<3>(dots[r], weights[3], x[r]));
            }
        }
        dots
    }
}

/// `sum + Σ w · x` of four bytes in each lane of the weights and those in lane `LANE` of the activations. Written
/// out, since `vdotq_laneq_s32` is not stable (rust-lang/rust#117224).
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot<const LANE: u8>(mut sum: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: registers only, of an instruction that the function's features have.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {weights:v}.16b, {x:v}.4b[{lane}]",
            sum = inout(vreg) sum,
            weights = in(vreg) weights,
            x = in(vreg) x,
            lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

/// Products of 16 bits, added up in 16 bits while they fit, and then in 32.
pub(super) struct Multiply;

impl Multiply {
    /// How many products of such weights 16 bits hold the sum of: 17 nibbles, 4 bytes below 64, 2 of others.
    const fn fitting<U: Unpack>() -> usize {
        (i16::MAX as i32 / (U::LARGEST * LARGEST_X)) as usize
    }
}

impl Dot for Multiply {
    const ROWS: usize = 2;

    #[inline(never)]
    #[target_feature(enable = "neon")]
    unsafe fn run<U: Unpack, S: Scaling, const M: usize, const Q: usize>(
        chain: Chain<'_>,
        results: &mut Results,
    ) -> usize {
        // SAFETY: forwarded from the caller.
        unsafe { chain.run::<Self, U, S, M, Q>(results) }
    }

    #[inline(always)]
    unsafe fn dots<U: Unpack, const R: usize>(
        starts: [int32x4_t; R],
        weights: &[int8x16_t],
        x: *const i8,
    ) -> [int32x4_t; R] {
        // SAFETY: forwarded from the caller.
        unsafe {
            if Self::fitting::<U>() >= 2 * DWORDS {
                // A lane gets a product of each of up to eight dwords, and pairs of lanes still fit.
                let (low, high) = products::<R>(weights, x);
                return std::array::from_fn(|r| vpadalq_s16(starts[r], vpaddq_s16(low[r], high[r])));
            }
            let group = if Self::fitting::<U>() >= 4 { 4 } else { 2 };
            // Pairs of k of output rows 0 and 1, and of rows 2 and 3.
            let mut pairs = [[vdupq_n_s32(0); 2]; R];
            let groups = weights.len() / group;
            unroll!(i < groups, {
                let (low, high) = products::<R>(&weights[i * group..][..group], x.add(i * group * 4));
                for r in 0..R {
                    pairs[r][0] = vpadalq_s16(pairs[r][0], low[r]);
                    pairs[r][1] = vpadalq_s16(pairs[r][1], high[r]);
                }
            });
            std::array::from_fn(|r| vaddq_s32(starts[r], vpaddq_s32(pairs[r][0], pairs[r][1])))
        }
    }
}

/// Sums over dwords, of each of their four k: of output rows 0 and 1, and of rows 2 and 3.
#[inline(always)]
unsafe fn products<const R: usize>(weights: &[int8x16_t], x: *const i8) -> ([int16x8_t; R], [int16x8_t; R]) {
    // SAFETY: forwarded from the caller.
    unsafe {
        let (mut low, mut high) = ([vdupq_n_s16(0); R], [vdupq_n_s16(0); R]);
        for (dword, weights) in weights.iter().enumerate() {
            for r in 0..R {
                let dword = x.add(r * BLOCK + dword * 4).cast::<i32>().read_unaligned();
                let x = vreinterpretq_s8_s32(vdupq_n_s32(dword));
                low[r] = vmlal_s8(low[r], vget_low_s8(*weights), vget_low_s8(x));
                high[r] = vmlal_high_s8(high[r], *weights, x);
            }
        }
        (low, high)
    }
}
