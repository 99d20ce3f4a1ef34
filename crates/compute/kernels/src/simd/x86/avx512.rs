use std::arch::x86_64::*;

use super::avx2::quarters_max;
use crate::simd::F32x16;

/// One register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

/// An operation on the register.
macro_rules! whole {
    ($op:ident, $($operand:expr),+) => {
        // SAFETY: a value exists only on a CPU with these instructions.
        unsafe { Self($op($($operand.0),+)) }
    };
}

impl F32x16 for Avx512 {
    const IS_WIDE: bool = true;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: called on a CPU with these instructions only, here and below.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller's pointer is valid for 16 floats.
        Self(unsafe { _mm512_loadu_ps(at) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller's pointer is valid for 16 floats.
        unsafe { _mm512_storeu_ps(at, self.0) };
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the caller's pointer is valid for 16 elements of two bytes.
        Self(unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) })
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        // SAFETY: the caller's pointer is valid for 16 elements of two bytes.
        unsafe { _mm256_storeu_si256(at.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0)) };
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self {
        // SAFETY: the caller's pointer is valid for 16 bytes.
        Self(unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))) })
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        whole!(_mm512_fmadd_ps, self, factor, addend)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        whole!(_mm512_mul_ps, self, other)
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        whole!(_mm512_add_ps, self, other)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        whole!(_mm512_sub_ps, self, other)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        whole!(_mm512_div_ps, self, other)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        whole!(_mm512_max_ps, self, other)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        whole!(_mm512_min_ps, self, other)
    }

    #[inline(always)]
    fn select(self, first: usize, end: usize, other: Self) -> Self {
        let below = |lane: usize| (1u32 << lane.min(16)) - 1;
        let mask = (below(end) & !below(first)) as u16;
        // SAFETY: a value exists only on a CPU with these instructions.
        Self(unsafe { _mm512_mask_blend_ps(mask, other.0, self.0) })
    }

    #[inline(always)]
    fn exp2_of_shifted(self) -> Self {
        // SAFETY: a value exists only on a CPU with these instructions.
        Self(unsafe {
            let bits = _mm512_slli_epi32::<23>(_mm512_castps_si512(self.0));
            _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3f80_0000)))
        })
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        // SAFETY: a value exists only on a CPU with these instructions.
        unsafe {
            let (low, high) = (_mm512_castps512_ps256(self.0), _mm512_extractf32x8_ps::<1>(self.0));
            quarters_max(_mm256_max_ps(low, high))
        }
    }
}
