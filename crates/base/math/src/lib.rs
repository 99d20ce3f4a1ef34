//! Transcendental functions with the same bits on every machine (contract 1).
//!
//! The C library's `expf` differs in the last bit between versions and instruction sets, and one
//! bit in a logit can change a token. These are fixed sequences of IEEE additions, multiplications
//! and divisions. They avoid fused multiply-add on purpose: without the FMA target feature it is a
//! library call, and the compiler never fuses the separate operations by itself, so one source
//! gives the same bits scalar and vectorised.

/// Below this `exp` returns the value here: a little above the smallest normal number.
pub const EXP_MIN: f32 = -87.0;
/// Above this `exp` would overflow; it returns the value here instead.
pub const EXP_MAX: f32 = 88.0;
/// 1.5 × 2²³: adding it rounds a float below 2²² to an integer, ties to even, which is then in the low
/// mantissa bits.
pub const ROUND_TO_INT: f32 = 12_582_912.0;
/// ln 2 in two parts; the first has few enough bits that `n * LN2_HI` is exact.
pub const LN2_HI: f32 = 0.693_359_4;
/// The rest of it.
pub const LN2_LO: f32 = -2.121_944_4e-4;
/// Of eʳ = 1 + r + r² · p(r), the highest power first.
pub const EXP_POLYNOMIAL: [f32; 6] =
    [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5.000_000_3e-1];

/// eˣ to 2.5e-7 relative; clamped to e⁻⁸⁷ … e⁸⁸, NaN stays NaN.
///
/// Range reduction by ln 2 and the degree-6 minimax polynomial of Cephes' `expf`.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(EXP_MIN, EXP_MAX);
    let shifted = x * std::f32::consts::LOG2_E + ROUND_TO_INT;
    let n = shifted - ROUND_TO_INT;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    let mut p = EXP_POLYNOMIAL[0];
    for term in &EXP_POLYNOMIAL[1..] {
        p = p * r + term;
    }
    let mantissa = (p * (r * r) + r) + 1.0;
    // The low bits of `shifted` hold n: moved to the exponent field they scale by 2ⁿ.
    let scale = f32::from_bits((shifted.to_bits() << 23).wrapping_add(0x3f80_0000));
    mantissa * scale
}

/// The logistic-weighted unit x / (1 + e⁻ˣ), as llama's feed-forward uses it.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// √(2/π), the slope in [`gelu_tanh`].
const SQRT_2_OVER_PI: f32 = 0.797_884_6;
/// The cubic term's factor in [`gelu_tanh`].
const GELU_CUBIC: f32 = 0.044_715;

/// The Gaussian-weighted unit in its tanh form, as Gemma's feed-forward uses it:
/// x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³))) (Hendrycks & Gimpel 2016).
///
/// Written with the logistic function, since (1 + tanh u) / 2 = 1 / (1 + e⁻²ᵘ): one `exp`, and no
/// cancellation where tanh nears −1.
#[inline(always)]
pub fn gelu_tanh(x: f32) -> f32 {
    let u = SQRT_2_OVER_PI * (x + GELU_CUBIC * (x * x * x));
    x / (1.0 + exp(-2.0 * u))
}

/// Slope of t = 1 / (1 + s · |x|) in [`gelu`].
const ERFC_SLOPE: f32 = 0.24;
/// Of erfc(|x|/√2) · e^{x²/2} = t · p(t), the highest power first: a least-squares fit, re-weighted until the
/// largest error times e^{−x²/2} over |x| ≤ 13 is 6.3e-10 (the form is Hastings', "Approximations for digital
/// computers", 1955).
const ERFC_POLYNOMIAL: [f32; 7] =
    [-0.250_173_5, 1.109_158_2, -1.292_162_9, 1.251_204_4, -0.308_112_47, 0.311_032_05, 0.179_054_2];

/// The Gaussian-weighted unit x · Φ(x) = x/2 · (1 + erf(x/√2)), as BERT's feed-forward uses it.
///
/// Through the complement of erf, so that nothing cancels where x is negative.
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    let t = 1.0 / (1.0 + ERFC_SLOPE * x.abs());
    let mut p = ERFC_POLYNOMIAL[0];
    for term in &ERFC_POLYNOMIAL[1..] {
        p = p * t + term;
    }
    let complement = p * t * exp(-0.5 * (x * x));
    0.5 * x * if x > 0.0 { 2.0 - complement } else { complement }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn exp_at_known_points() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), exp(EXP_MIN));
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(1000.0).is_finite());
    }

    proptest! {
        #[test]
        fn exp_is_close_to_the_double_precision_value(x in -87.0f32..88.0) {
            let exact = f64::from(x).exp();
            let relative = (f64::from(exp(x)) - exact).abs() / exact;
            prop_assert!(relative < 2.5e-7, "exp({x}) is off by {relative:e}");
        }

        #[test]
        fn silu_is_close_to_the_double_precision_value(x in -30.0f32..30.0) {
            let exact = f64::from(x) / (1.0 + (-f64::from(x)).exp());
            prop_assert!((f64::from(silu(x)) - exact).abs() <= 3e-7 * exact.abs().max(1e-3));
        }

        #[test]
        fn gelu_is_close_to_the_double_precision_value(x in -12.0f32..12.0) {
            let wide = f64::from(x);
            let u = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide.powi(3));
            let exact = wide / (1.0 + (-2.0 * u).exp());
            // Relative error grows with the exponent's size; absolute error stays within an ulp of x.
            let error = (f64::from(gelu_tanh(x)) - exact).abs();
            prop_assert!(error <= 4e-7 * wide.abs().max(1e-3), "gelu({x}) is off by {error:e}");
        }

        #[test]
        fn gelu_by_erf_is_close_to_the_double_precision_value(x in -12.0f32..12.0) {
            let wide = f64::from(x);
            let exact = wide / 2.0 * libm::erfc(-wide / std::f64::consts::SQRT_2);
            let error = (f64::from(gelu(x)) - exact).abs();
            prop_assert!(error <= 4e-7 * wide.abs().max(1e-3), "gelu({x}) is off by {error:e}");
            // The tail of small numbers is right in itself.
            prop_assert!(x < -3.0 || error <= 2e-6 * exact.abs(), "gelu({x}) is off by {error:e} of {exact:e}");
        }
    }

    #[test]
    fn gelu_by_erf_at_the_ends() {
        assert_eq!((gelu(0.0), gelu(-0.0)), (0.0, 0.0));
        assert_eq!(gelu(100.0), 100.0);
        assert!(gelu(-100.0).abs() < 1e-30);
        assert!(gelu(f32::NAN).is_nan());
    }

    #[test]
    fn gelu_at_the_ends() {
        assert_eq!(gelu_tanh(0.0), 0.0);
        assert_eq!(gelu_tanh(100.0), 100.0);
        assert!(gelu_tanh(-100.0).abs() < 1e-30);
        assert!(gelu_tanh(f32::NAN).is_nan());
    }
}
