//! Scales and minima of four output rows.

use std::arch::aarch64::*;

use super::LANES;
use crate::PANEL_ROWS;
use crate::activations::Factors;
use crate::matmul::QuantPanel;
use crate::simd::aarch64::load_halves;

/// How a panel stores scales, known to the compiler: a choice per block would be a jump.
pub(super) trait Scaling {
    /// Whether each half of a block has its own.
    const HALVES: bool;
    const MIN: bool;

    /// # Safety
    /// The CPU has NEON, and the panel has this block and stores its scales like this.
    unsafe fn read(panel: &QuantPanel<'_>, block: usize, quarter: usize) -> BlockScales;
}

/// [`Scales::Half`](crate::panels::Scales::Half).
pub(super) struct Half;
/// [`Scales::HalfMin`](crate::panels::Scales::HalfMin).
pub(super) struct HalfMin;
/// [`Scales::Float`](crate::panels::Scales::Float).
pub(super) struct Float;
/// [`Scales::Super`](crate::panels::Scales::Super), or with `MIN` [`Scales::SuperMin`](crate::panels::Scales::SuperMin).
pub(super) struct Super<const HALVES: bool, const MIN: bool>;

impl Scaling for Half {
    const HALVES: bool = false;
    const MIN: bool = false;

    #[inline(always)]
    unsafe fn read(panel: &QuantPanel<'_>, block: usize, quarter: usize) -> BlockScales {
        // SAFETY: the caller's promise.
        unsafe { BlockScales::plain(halves(scales_at::<32>(panel, block), quarter)) }
    }
}

impl Scaling for HalfMin {
    const HALVES: bool = false;
    const MIN: bool = true;

    #[inline(always)]
    unsafe fn read(panel: &QuantPanel<'_>, block: usize, quarter: usize) -> BlockScales {
        // SAFETY: the caller's promise.
        unsafe {
            let at = scales_at::<64>(panel, block);
            let mins = [halves(at.add(PANEL_ROWS * 2), quarter); 2];
            BlockScales { mins, ..BlockScales::plain(halves(at, quarter)) }
        }
    }
}

impl Scaling for Float {
    const HALVES: bool = false;
    const MIN: bool = false;

    #[inline(always)]
    unsafe fn read(panel: &QuantPanel<'_>, block: usize, quarter: usize) -> BlockScales {
        // SAFETY: the caller's promise.
        unsafe {
            BlockScales::plain(vld1q_f32(scales_at::<64>(panel, block).cast::<f32>().add(quarter * LANES)))
        }
    }
}

impl<const HALVES: bool, const MIN: bool> Scaling for Super<HALVES, MIN> {
    const HALVES: bool = HALVES;
    const MIN: bool = MIN;

    #[inline(always)]
    unsafe fn read(panel: &QuantPanel<'_>, block: usize, quarter: usize) -> BlockScales {
        // SAFETY: the caller's promise.
        unsafe {
            let at = panel.bytes.as_ptr().add(panel.layout.scales_at(block));
            let factors = panel.bytes.as_ptr().add(panel.layout.super_at(block));
            let four = |part: usize| {
                let at = at.add(part * PANEL_ROWS + quarter * LANES);
                u64::from(at.cast::<u32>().read_unaligned())
            };
            let scale = halves(factors, quarter);
            let mut out = BlockScales::plain(vdupq_n_f32(0.0));
            for part in 0..1 + usize::from(HALVES) {
                let sub = vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four(part)))));
                out.scales[part] = vmulq_f32(scale, vcvtq_f32_s32(sub));
                if MIN {
                    let sub = vcreate_u8(four(1 + usize::from(HALVES) + part));
                    let sub = vmovl_u16(vget_low_u16(vmovl_u8(sub)));
                    let min = halves(factors.add(PANEL_ROWS * 2), quarter);
                    out.mins[part] = vmulq_f32(min, vcvtq_f32_u32(sub));
                }
            }
            out
        }
    }
}

/// A block's scales, `BYTES` a block.
#[inline(always)]
unsafe fn scales_at<const BYTES: usize>(panel: &QuantPanel<'_>, block: usize) -> *const u8 {
    debug_assert_eq!(BYTES, panel.layout.scales.bytes());
    // SAFETY: the layout says where scales begin; the rest is the caller's promise.
    unsafe { panel.bytes.as_ptr().add(panel.layout.scales_at(0) + block * BYTES) }
}

/// A quarter of 16 values in f16.
#[inline(always)]
unsafe fn halves(at: *const u8, quarter: usize) -> float32x4_t {
    // SAFETY: the caller's promise.
    unsafe { load_halves(at.cast::<u16>().add(quarter * LANES)) }
}

/// Scales and minima of a block, or of each half of it.
pub(super) struct BlockScales {
    scales: [float32x4_t; 2],
    mins: [float32x4_t; 2],
}

impl BlockScales {
    #[inline(always)]
    unsafe fn plain(scales: float32x4_t) -> Self {
        // SAFETY: the CPU has NEON.
        Self { scales: [scales; 2], mins: [unsafe { vdupq_n_f32(0.0) }; 2] }
    }

    /// The chain's next links.
    ///
    /// # Safety
    /// The CPU has NEON.
    #[inline(always)]
    pub(super) unsafe fn add<S: Scaling>(
        &self,
        half: usize,
        dot: int32x4_t,
        x: &Factors,
        sum: float32x4_t,
    ) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe {
            let scale = vmulq_n_f32(self.scales[half], x.scale);
            let sum = vfmaq_f32(sum, vcvtq_f32_s32(dot), scale);
            if !S::MIN {
                return sum;
            }
            let x_sum = if S::HALVES { x.half_scaled_sums[half] } else { x.scaled_sum };
            vfmaq_n_f32(sum, self.mins[half], x_sum)
        }
    }
}
