//! Sixteen f32 lanes, written once and compiled for each instruction set.
//!
//! # Same bits
//! Every operation is one IEEE operation per lane, and reductions add in a fixed tree, so a kernel that
//! is generic over [`F32x16`] gives equal bits on all of them. What a NaN carries besides being one is
//! not kept; see [`canonical`].

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use motet_math::{EXP_MAX, EXP_MIN, EXP_POLYNOMIAL, LN2_HI, LN2_LO, ROUND_TO_INT};

use crate::Isa;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Sixteen f32 lanes.
///
/// Values of a wide implementation exist only inside [`on_simd`], on a CPU that has its instructions:
/// that is what the safe methods rely on.
pub(crate) trait F32x16: Copy {
    /// Whether one register holds all lanes and there are 32 of them.
    const IS_WIDE: bool;

    fn splat(value: f32) -> Self;

    /// # Safety
    /// `at` is valid for reads of 16 floats; no alignment is needed, here and below.
    unsafe fn load(at: *const f32) -> Self;

    /// # Safety
    /// `at` is valid for writes of 16 floats.
    unsafe fn store(self, at: *mut f32);

    /// 16 half-precision numbers, given as their bits.
    ///
    /// # Safety
    /// `at` is valid for reads of 16 elements.
    unsafe fn load_f16(at: *const u16) -> Self;

    /// Rounds to half precision, ties to even; a NaN keeps its sign and the upper bits of its payload.
    ///
    /// # Safety
    /// `at` is valid for writes of 16 elements.
    unsafe fn store_f16(self, at: *mut u16);

    /// 16 integers.
    ///
    /// # Safety
    /// `at` is valid for reads of 16 elements.
    unsafe fn load_i8(at: *const i8) -> Self;

    /// `self · factor + addend`, rounded once.
    fn fma(self, factor: Self, addend: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;

    /// `self > other ? self : other` per lane: `other` where either is NaN.
    fn max(self, other: Self) -> Self;

    /// `self < other ? self : other` per lane: `other` where either is NaN.
    fn min(self, other: Self) -> Self;

    /// The lanes `first..end` of `self` and the others of `other`.
    fn select(self, first: usize, end: usize, other: Self) -> Self;

    /// 2ⁿ for lanes that hold n + [`motet_math::ROUND_TO_INT`].
    fn exp2_of_shifted(self) -> Self;

    /// [`F32x16::max`] over the lanes, halves against halves.
    fn reduce_max(self) -> f32;
}

/// Folds lane i with lane i + 8, then + 4, + 2, + 1.
#[inline(always)]
pub(crate) fn fold_halves(lanes: &mut [f32; LANES], fold: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = fold(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// [`motet_math::exp`] of every lane, with the same bits: the same operations in the same order.
#[inline(always)]
pub(crate) fn exp<F: F32x16>(x: F) -> F {
    // The bounds come first, so that a NaN in `x` is what both selections return.
    let x = F::splat(EXP_MAX).min(F::splat(EXP_MIN).max(x));
    let shifted = x.mul(F::splat(std::f32::consts::LOG2_E)).add(F::splat(ROUND_TO_INT));
    let n = shifted.sub(F::splat(ROUND_TO_INT));
    let r = x.sub(n.mul(F::splat(LN2_HI))).sub(n.mul(F::splat(LN2_LO)));
    let mut p = F::splat(EXP_POLYNOMIAL[0]);
    let mut term = 1;
    while term < EXP_POLYNOMIAL.len() {
        p = p.mul(r).add(F::splat(EXP_POLYNOMIAL[term]));
        term += 1;
    }
    let mantissa = p.mul(r.mul(r)).add(r).add(F::splat(1.0));
    mantissa.mul(shifted.exp2_of_shifted())
}

/// tanh x = 1 − 2 ÷ (e²ˣ + 1) of every lane, given 2x, to 2e-7 absolute.
#[inline(always)]
pub(crate) fn tanh_of_doubled<F: F32x16>(twice: F) -> F {
    let one = F::splat(1.0);
    one.sub(F::splat(2.0).div(exp(twice).add(one)))
}

/// Asks for the cache line of `at`, which may be anything, and does not wait for it.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; the address is not accessed in any way that can fail.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at.addr(), options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// The value, or the one NaN that all instruction sets agree on.
#[inline(always)]
pub(crate) fn canonical(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

/// Code that is compiled once for each implementation of [`F32x16`].
///
/// `run` is marked `#[inline(always)]`, and so is what it calls, closures apart: only what is inlined
/// into the copy below has its instructions.
pub(crate) trait SimdKernel {
    fn run<F: F32x16>(self);
}

/// Runs the copy of `kernel` for `isa`.
#[inline(always)]
pub(crate) fn on_simd(isa: Isa, kernel: impl SimdKernel) {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn avx2(kernel: impl SimdKernel) {
        kernel.run::<x86::Avx2>();
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
    fn avx512(kernel: impl SimdKernel) {
        kernel.run::<x86::Avx512>();
    }
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: these exist only after the CPU reported the features.
        Isa::Avx2 | Isa::AvxVnni => unsafe { avx2(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 | Isa::Amx => unsafe { avx512(kernel) },
        // NEON belongs to what aarch64 is compiled for, so this copy needs no features of its own.
        #[cfg(target_arch = "aarch64")]
        Isa::Neon | Isa::NeonDot => kernel.run::<aarch64::Neon>(),
        _ => kernel.run::<scalar::Scalar>(),
    }
}

#[cfg(test)]
mod tests;
