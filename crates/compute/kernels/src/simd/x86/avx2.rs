use std::arch::x86_64::*;

use crate::simd::F32x16;

/// Lanes 0–7 and 8–15.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256, __m256);

/// An operation on both halves.
macro_rules! halves {
    ($op:ident, $($operand:expr),+) => {
        // SAFETY: a value exists only on a CPU with these instructions.
        unsafe { Self($op($($operand.0),+), $op($($operand.1),+)) }
    };
}

impl F32x16 for Avx2 {
    const IS_WIDE: bool = false;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: called on a CPU with these instructions only, here and below.
        let half = unsafe { _mm256_set1_ps(value) };
        Self(half, half)
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller's pointer is valid for 16 floats.
        unsafe { Self(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))) }
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller's pointer is valid for 16 floats.
        unsafe {
            _mm256_storeu_ps(at, self.0);
            _mm256_storeu_ps(at.add(8), self.1);
        }
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the caller's pointer is valid for 16 elements of two bytes.
        unsafe {
            let (low, high) = (_mm_loadu_si128(at.cast()), _mm_loadu_si128(at.add(8).cast()));
            Self(_mm256_cvtph_ps(low), _mm256_cvtph_ps(high))
        }
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        // SAFETY: the caller's pointer is valid for 16 elements of two bytes.
        unsafe {
            _mm_storeu_si128(at.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.0));
            _mm_storeu_si128(at.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(self.1));
        }
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self {
        // SAFETY: the caller's pointer is valid for 16 bytes, and each half reads eight.
        unsafe {
            let (low, high) = (_mm_loadl_epi64(at.cast()), _mm_loadl_epi64(at.add(8).cast()));
            let float = |bytes| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
            Self(float(low), float(high))
        }
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        halves!(_mm256_fmadd_ps, self, factor, addend)
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        halves!(_mm256_mul_ps, self, other)
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        halves!(_mm256_add_ps, self, other)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        halves!(_mm256_sub_ps, self, other)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        halves!(_mm256_div_ps, self, other)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        halves!(_mm256_max_ps, self, other)
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        halves!(_mm256_min_ps, self, other)
    }

    #[inline(always)]
    fn select(self, first: usize, end: usize, other: Self) -> Self {
        // SAFETY: a value exists only on a CPU with these instructions.
        unsafe {
            let (low, high) = (_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(8));
            let (before, end) = (_mm256_set1_epi32(first as i32 - 1), _mm256_set1_epi32(end as i32));
            let high = _mm256_add_epi32(low, high);
            let low = _mm256_and_si256(_mm256_cmpgt_epi32(low, before), _mm256_cmpgt_epi32(end, low));
            let high = _mm256_and_si256(_mm256_cmpgt_epi32(high, before), _mm256_cmpgt_epi32(end, high));
            Self(
                _mm256_blendv_ps(other.0, self.0, _mm256_castsi256_ps(low)),
                _mm256_blendv_ps(other.1, self.1, _mm256_castsi256_ps(high)),
            )
        }
    }

    #[inline(always)]
    fn exp2_of_shifted(self) -> Self {
        // SAFETY: a value exists only on a CPU with these instructions.
        unsafe {
            let one = _mm256_set1_epi32(0x3f80_0000);
            let scale = |half| {
                let bits = _mm256_slli_epi32::<23>(_mm256_castps_si256(half));
                _mm256_castsi256_ps(_mm256_add_epi32(bits, one))
            };
            Self(scale(self.0), scale(self.1))
        }
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        // SAFETY: a value exists only on a CPU with these instructions.
        unsafe { quarters_max(_mm256_max_ps(self.0, self.1)) }
    }
}

/// Folds eight lanes: + 4, + 2, + 1.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
pub(super) unsafe fn quarters_max(half: __m256) -> f32 {
    // SAFETY: as the caller says.
    unsafe {
        let four = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
    }
}
