use half::f16;
use proptest::prelude::*;

use super::*;

/// Runs one generic operation and gives its lanes.
struct Lanes<'a, O> {
    x: &'a [f32; LANES],
    y: &'a [f32; LANES],
    op: O,
    out: &'a mut [u32; LANES],
}

trait Op {
    fn apply<F: F32x16>(self, x: F, y: F) -> F;
}

impl<O: Op> SimdKernel for Lanes<'_, O> {
    #[inline(always)]
    fn run<F: F32x16>(self) {
        // SAFETY: the arrays hold 16 floats.
        let (x, y) = unsafe { (F::load(self.x.as_ptr()), F::load(self.y.as_ptr())) };
        let mut out = [0f32; LANES];
        // SAFETY: as above.
        unsafe { self.op.apply(x, y).store(out.as_mut_ptr()) };
        *self.out = out.map(|v| canonical(v).to_bits());
    }
}

fn lanes(isa: Isa, x: &[f32; LANES], y: &[f32; LANES], op: impl Op) -> [u32; LANES] {
    let mut out = [0; LANES];
    on_simd(isa, Lanes { x, y, op, out: &mut out });
    out
}

macro_rules! ops {
    ($($name:ident: |$x:ident, $y:ident| $body:expr;)*) => {
        $(#[derive(Clone, Copy)]
        struct $name;
        impl Op for $name {
            #[inline(always)]
            fn apply<F: F32x16>(self, $x: F, $y: F) -> F {
                $body
            }
        })*
    };
}

ops! {
    Exp: |x, _y| exp(x);
    Tanh: |x, _y| tanh_of_doubled(x);
    Fma: |x, y| x.fma(y, y);
    Arithmetic: |x, y| x.add(y).mul(x.sub(y)).div(y);
    Extremes: |x, y| x.max(y).add(x.min(y));
    Select: |x, y| x.select(3, 11, y).add(x.select(0, 16, y)).add(y.select(0, 0, x));
    Reduce: |x, y| F::splat(x.reduce_max()).add(F::splat(y.reduce_max()));
    Narrow: |x, _y| {
        let mut half = [0u16; LANES];
        // SAFETY: the array holds 16 elements.
        unsafe {
            x.store_f16(half.as_mut_ptr());
            F::load_f16(half.as_ptr())
        }
    };
}

/// Floats of all sizes, the edges among them.
fn float() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -100f32..100.0,
        2 => any::<u32>().prop_map(f32::from_bits),
        1 => prop_oneof![
            Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(0.0), Just(-0.0), Just(65519.9),
            Just(65520.0), Just(6e-8), Just(2.9e-8),
        ],
    ]
}

fn row() -> impl Strategy<Value = [f32; LANES]> {
    proptest::array::uniform16(float())
}

proptest! {
    #[test]
    fn same_bits_on_every_isa(x in row(), y in row()) {
        macro_rules! compare {
            ($($op:ident)*) => {
                for isa in Isa::available() {
                    $(prop_assert_eq!(
                        lanes(isa, &x, &y, $op), lanes(Isa::Scalar, &x, &y, $op), "{} {:?}", stringify!($op), isa
                    );)*
                }
            };
        }
        compare!(Exp Tanh Fma Arithmetic Extremes Select Reduce Narrow);
    }

    #[test]
    fn exp_is_that_of_the_math_crate(x in row()) {
        for isa in Isa::available() {
            let expected = x.map(|x| canonical(motet_math::exp(x)).to_bits());
            prop_assert_eq!(lanes(isa, &x, &x, Exp), expected);
        }
    }

    #[test]
    fn tanh_is_close_to_the_double_precision_value(x in proptest::array::uniform16(-50f32..50.0)) {
        let doubled = x.map(|x| 2.0 * x);
        for (out, x) in lanes(Isa::detect(), &doubled, &x, Tanh).iter().zip(x) {
            prop_assert!((f64::from(f32::from_bits(*out)) - f64::from(x).tanh()).abs() < 3e-7);
        }
    }
}

/// All halves come back, and what a NaN carries is kept alike.
#[test]
fn halves_are_rounded_alike() {
    struct Convert<'a>(&'a [u32; LANES], &'a mut [u16; LANES]);
    impl SimdKernel for Convert<'_> {
        #[inline(always)]
        fn run<F: F32x16>(self) {
            // SAFETY: the arrays hold 16 elements; the words are taken as floats.
            unsafe { F::load(self.0.as_ptr().cast()).store_f16(self.1.as_mut_ptr()) };
        }
    }
    for first in (0..=u32::MAX - 0x10_000).step_by(0x1357) {
        let words: [u32; LANES] = std::array::from_fn(|i| first.wrapping_add(i as u32 * 0x7f1));
        let expected = words.map(|word| f16::from_f32_const(f32::from_bits(word)).to_bits());
        for isa in Isa::available() {
            let mut halves = [0; LANES];
            on_simd(isa, Convert(&words, &mut halves));
            assert_eq!(halves, expected, "{isa:?} {words:x?}");
        }
    }
}

#[test]
fn integers_become_floats() {
    struct Widen<'a>(&'a [i8; LANES], &'a mut [f32; LANES]);
    impl SimdKernel for Widen<'_> {
        #[inline(always)]
        fn run<F: F32x16>(self) {
            // SAFETY: the arrays hold 16 elements.
            unsafe { F::load_i8(self.0.as_ptr()).store(self.1.as_mut_ptr()) };
        }
    }
    let bytes: [i8; LANES] = std::array::from_fn(|i| (i as i8 - 8).wrapping_mul(16));
    for isa in Isa::available() {
        let mut out = [0f32; LANES];
        on_simd(isa, Widen(&bytes, &mut out));
        assert_eq!(out, bytes.map(f32::from));
    }
}
