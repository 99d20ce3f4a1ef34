use half::f16;

use super::{F32x16, LANES, fold_halves};

/// Plain Rust; the reference.
#[derive(Clone, Copy)]
pub(crate) struct Scalar([f32; LANES]);

impl Scalar {
    #[inline(always)]
    fn zip(self, other: Self, op: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|lane| op(self.0[lane], other.0[lane])))
    }
}

impl F32x16 for Scalar {
    const IS_WIDE: bool = false;

    #[inline(always)]
    fn splat(value: f32) -> Self {
        Self([value; LANES])
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller's pointer is valid for 16 floats.
        Self(unsafe { at.cast::<[f32; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller's pointer is valid for 16 floats.
        unsafe { at.cast::<[f32; LANES]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the caller's pointer is valid for 16 elements.
        let bits = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        Self(from_halves(&bits))
    }

    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        let bits = to_halves(&self.0);
        // SAFETY: the caller's pointer is valid for 16 elements.
        unsafe { at.cast::<[u16; LANES]>().write_unaligned(bits) };
    }

    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self {
        // SAFETY: the caller's pointer is valid for 16 elements.
        Self(unsafe { at.cast::<[i8; LANES]>().read_unaligned() }.map(f32::from))
    }

    #[inline(always)]
    fn fma(self, factor: Self, addend: Self) -> Self {
        Self(mul_add(&self.0, &factor.0, &addend.0))
    }

    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }

    #[inline(always)]
    fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn select(self, first: usize, end: usize, other: Self) -> Self {
        let inside = |lane| first <= lane && lane < end;
        Self(std::array::from_fn(|lane| if inside(lane) { self.0[lane] } else { other.0[lane] }))
    }

    #[inline(always)]
    fn exp2_of_shifted(self) -> Self {
        // The low bits hold n: moved to the exponent field, on top of that of 1.0, they scale by 2ⁿ.
        Self(self.0.map(|x| f32::from_bits((x.to_bits() << 23).wrapping_add(0x3f80_0000))))
    }

    #[inline(always)]
    fn reduce_max(self) -> f32 {
        let Self(mut lanes) = self;
        fold_halves(&mut lanes, |a, b| if a > b { a } else { b })
    }
}

// What is a library call or long per lane stays out of line: unrolled in every kernel, it would be most of
// the crate's code.

#[inline(never)]
fn mul_add(a: &[f32; LANES], b: &[f32; LANES], c: &[f32; LANES]) -> [f32; LANES] {
    std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
}

/// The constant-time software form, here and below; the hardware rounds alike.
#[inline(never)]
fn from_halves(bits: &[u16; LANES]) -> [f32; LANES] {
    bits.map(|bits| f16::from_bits(bits).to_f32_const())
}

#[inline(never)]
fn to_halves(values: &[f32; LANES]) -> [u16; LANES] {
    values.map(|value| f16::from_f32_const(value).to_bits())
}
