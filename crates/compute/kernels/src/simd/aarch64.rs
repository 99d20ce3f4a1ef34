//! NEON, which belongs to what every aarch64 program is compiled for.

use std::arch::aarch64::*;

use super::{F32x16, fold_halves};

/// Lanes 0–3, 4–7, 8–11 and 12–15.
#[derive(Clone, Copy)]
pub(crate) struct Neon([float32x4_t; 4]);

/// An operation on each quarter, of which `i` is the index.
macro_rules! quarters {
    (|$i:ident| $op:expr) => {{
        let quarter = |$i: usize| {
            // SAFETY: every aarch64 CPU this is built for has NEON.
            unsafe { $op }
        };
        Self([quarter(0), quarter(1), quarter(2), quarter(3)])
    }};
}

/// Four numbers from half precision.
///
/// # Safety
/// `at` is valid for reads of four elements; no alignment is needed.
#[inline(always)]
pub(crate) unsafe fn load_halves(at: *const u16) -> float32x4_t {
    // SAFETY: the caller's promise.
    unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at))) }
}

impl F32x16 for Neon {
    const IS_WIDE: bool = false;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        quarters!(|_i| vdupq_n_f32(value))
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        quarters!(|i| vld1q_f32(at.add(4 * i)))
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        for (i, quarter) in self.0.into_iter().enumerate() {
            // SAFETY: the caller's pointer is valid for 16 floats.
            unsafe { vst1q_f32(at.add(4 * i), quarter) };
        }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        quarters!(|i| load_halves(at.add(4 * i)))
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        for (i, floats) in self.0.into_iter().enumerate() {
            // SAFETY: the caller's pointer is valid for 16 elements; the instruction rounds to nearest, ties
            // to even, as threads are started.
            unsafe { vst1_u16(at.add(4 * i), vreinterpret_u16_f16(vcvt_f16_f32(floats))) };
        }
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self {
        // SAFETY: the caller's pointer is valid for 16 bytes.
        unsafe {
            let bytes = vld1q_s8(at);
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            Self([
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                vcvtq_f32_s32(vmovl_high_s16(high)),
            ])
        }
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        quarters!(|i| vfmaq_f32(addend.0[i], self.0[i], factor.0[i]))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        quarters!(|i| vmulq_f32(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        quarters!(|i| vaddq_f32(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        quarters!(|i| vsubq_f32(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        quarters!(|i| vdivq_f32(self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        quarters!(|i| vbslq_f32(vcgtq_f32(self.0[i], other.0[i]), self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        quarters!(|i| vbslq_f32(vcltq_f32(self.0[i], other.0[i]), self.0[i], other.0[i]))
    }

    #[inline(always)]
    fn select(self, first: usize, end: usize, other: Self) -> Self {
        let word = |lane: usize| if first <= lane && lane < end { u32::MAX } else { 0 };
        quarters!(|i| {
            let mask = [word(4 * i), word(4 * i + 1), word(4 * i + 2), word(4 * i + 3)];
            vbslq_f32(vld1q_u32(mask.as_ptr()), self.0[i], other.0[i])
        })
    }

    #[inline(always)]
    fn exp2_of_shifted(self) -> Self {
        quarters!(|i| {
            let bits = vshlq_n_u32::<23>(vreinterpretq_u32_f32(self.0[i]));
            vreinterpretq_f32_u32(vaddq_u32(bits, vdupq_n_u32(0x3f80_0000)))
        })
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        let mut lanes = [0f32; 16];
        // SAFETY: the array holds 16 floats.
        unsafe { self.store(lanes.as_mut_ptr()) };
        fold_halves(&mut lanes, |a, b| if a > b { a } else { b })
    }
}
