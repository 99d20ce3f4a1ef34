//! Norms, activations and rotary embedding, element by element.

use crate::Isa;
use crate::isa::{Kernel, on_isa};
use crate::simd::{LANES, fold_halves};

/// `out = x / √(mean(x²) + eps) · weight` for one row (RMSNorm, Zhang & Sennrich 2019).
///
/// # Panics
/// Where the lengths differ.
pub fn rms_norm(isa: Isa, x: &[f32], (weight, eps): (&[f32], f32), out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len());
    on_isa(isa, RmsNorm { x, weight, eps, out });
}

struct RmsNorm<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    #[inline(always)]
    fn run(self) {
        let inverse = inverse_rms(self.x, self.eps);
        for ((out, value), weight) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = value * inverse * weight;
        }
    }
}

/// The same over `x` itself.
///
/// # Panics
/// Where the lengths differ.
pub fn rms_norm_in_place(isa: Isa, x: &mut [f32], (weight, eps): (&[f32], f32)) {
    assert_eq!(x.len(), weight.len());
    on_isa(isa, RmsNormInPlace { x, weight, eps });
}

struct RmsNormInPlace<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    eps: f32,
}

impl Kernel for RmsNormInPlace<'_> {
    #[inline(always)]
    fn run(self) {
        let inverse = inverse_rms(self.x, self.eps);
        for (value, weight) in self.x.iter_mut().zip(self.weight) {
            *value = *value * inverse * weight;
        }
    }
}

/// 1 / √(mean(x²) + eps).
#[inline(always)]
fn inverse_rms(x: &[f32], eps: f32) -> f32 {
    1.0 / (sum_of_squares(x) / x.len() as f32 + eps).sqrt()
}

#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    striped_sum(x, |value| value * value)
}

/// The sum of `term(value)`, striped over 16 partial sums, which are then added pairwise.
#[inline(always)]
pub(crate) fn striped_sum(x: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0f32; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += term(*value);
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += term(*value);
    }
    fold_halves(&mut sums, |a, b| a + b)
}

/// `x = (x − mean(x)) / √(variance(x) + eps) · weight + bias` for one row (layer normalization, Ba et al. 2016).
///
/// # Panics
/// Where the lengths differ.
pub fn layer_norm_in_place(isa: Isa, x: &mut [f32], (weight, bias, eps): (&[f32], &[f32], f32)) {
    assert!(x.len() == weight.len() && x.len() == bias.len());
    on_isa(isa, LayerNormInPlace { x, weight, bias, eps });
}

struct LayerNormInPlace<'a> {
    x: &'a mut [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    eps: f32,
}

impl Kernel for LayerNormInPlace<'_> {
    #[inline(always)]
    fn run(self) {
        let mean = striped_sum(self.x, |value| value) / self.x.len() as f32;
        for value in self.x.iter_mut() {
            *value -= mean;
        }
        let inverse = inverse_rms(self.x, self.eps);
        for ((value, weight), bias) in self.x.iter_mut().zip(self.weight).zip(self.bias) {
            *value = *value * inverse * weight + bias;
        }
    }
}

/// The form of the Gaussian-weighted unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gelu {
    /// By the error function.
    Erf,
    /// By the hyperbolic tangent, which is close to it.
    Tanh,
}

/// `x = gelu(x + bias)` for one row.
///
/// # Panics
/// Where the lengths differ.
pub fn add_bias_and_gelu(isa: Isa, form: Gelu, x: &mut [f32], bias: &[f32]) {
    assert_eq!(x.len(), bias.len());
    match form {
        Gelu::Erf => on_isa(isa, BiasGelu { x, bias, unit: motet_math::gelu }),
        Gelu::Tanh => on_isa(isa, BiasGelu { x, bias, unit: motet_math::gelu_tanh }),
    }
}

struct BiasGelu<'a, F> {
    x: &'a mut [f32],
    bias: &'a [f32],
    unit: F,
}

impl<F: Fn(f32) -> f32> Kernel for BiasGelu<'_, F> {
    #[inline(always)]
    fn run(self) {
        for (value, bias) in self.x.iter_mut().zip(self.bias) {
            *value = (self.unit)(*value + bias);
        }
    }
}

/// Shortest vector that [`l2_normalize`] takes for one with a direction, as PyTorch's `normalize` does.
const LEAST_LENGTH: f32 = 1e-12;

/// Makes the length of `x` 1; one that is nearly 0 stays about as it is.
pub fn l2_normalize(isa: Isa, x: &mut [f32]) {
    on_isa(isa, L2Normalize(x));
}

struct L2Normalize<'a>(&'a mut [f32]);

impl Kernel for L2Normalize<'_> {
    #[inline(always)]
    fn run(self) {
        let length = sum_of_squares(self.0).sqrt();
        // Written so that a NaN stays one.
        let length = if length < LEAST_LENGTH { LEAST_LENGTH } else { length };
        for value in self.0.iter_mut() {
            *value /= length;
        }
    }
}

/// `x += y`.
pub fn add_assign(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len());
    for (x, y) in x.iter_mut().zip(y) {
        *x += y;
    }
}

/// Angular frequencies of rotary embedding (Su et al. 2021), one per pair of a head's elements.
pub struct RopeFrequencies(Vec<f64>);

impl RopeFrequencies {
    /// `base^(-2i / dims) / divisor`; `divisors` holds one per pair (1 where unscaled).
    pub fn new(base: f32, divisors: &[f32]) -> Self {
        let pairs = divisors.len() as f64;
        let frequency = |(i, divisor): (usize, &f32)| {
            libm::pow(f64::from(base), -(i as f64) / pairs) / f64::from(*divisor)
        };
        Self(divisors.iter().enumerate().map(frequency).collect())
    }

    /// Pairs that are rotated.
    pub fn pairs(&self) -> usize {
        self.0.len()
    }

    /// Cosine and sine of every pair at `position`, computed in f64 by a portable library, so that
    /// every machine has the same.
    pub fn angles(&self, position: usize, out: &mut [(f32, f32)]) {
        for (out, frequency) in out.iter_mut().zip(&self.0) {
            let angle = position as f64 * frequency;
            *out = (libm::cos(angle) as f32, libm::sin(angle) as f32);
        }
    }
}

/// Which elements of a head rotary embedding turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeOrder {
    /// (2i, 2i + 1), as GGUF's llama stores them.
    Pairs,
    /// (i, i + n) of the first 2n elements, as most other architectures do (NEOX).
    Halves,
}

/// Rotates the pairs of every head of `x`; what lies beyond `2 · angles.len()` elements of a head stays.
pub fn rope(isa: Isa, order: RopeOrder, (angles, head_dim): (&[(f32, f32)], usize), x: &mut [f32]) {
    on_isa(isa, Rope { order, angles, head_dim, x });
}

struct Rope<'a> {
    order: RopeOrder,
    angles: &'a [(f32, f32)],
    head_dim: usize,
    x: &'a mut [f32],
}

impl Kernel for Rope<'_> {
    #[inline(always)]
    fn run(self) {
        for head in self.x.chunks_exact_mut(self.head_dim) {
            match self.order {
                RopeOrder::Pairs => {
                    let (pairs, _) = head.as_chunks_mut::<2>();
                    for (pair, &(cos, sin)) in pairs.iter_mut().zip(self.angles) {
                        let [a, b] = *pair;
                        *pair = [a * cos - b * sin, a * sin + b * cos];
                    }
                }
                RopeOrder::Halves => {
                    let (first, rest) = head.split_at_mut(self.angles.len());
                    for ((a, b), &(cos, sin)) in first.iter_mut().zip(rest).zip(self.angles) {
                        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn same_bits_on_every_isa(x in proptest::collection::vec(-50f32..50.0, 1..100)) {
            let run = |isa| {
                let mut normed = vec![0f32; x.len()];
                rms_norm(isa, &x, (&vec![0.7; x.len()], 1e-5), &mut normed);
                let mut in_place = x.clone();
                rms_norm_in_place(isa, &mut in_place, (&vec![0.7; x.len()], 1e-5));
                assert_eq!(in_place, normed);
                let angles: Vec<(f32, f32)> = x.iter().map(|v| (v.cos(), v.sin())).collect();
                let mut turned = [x.clone(), x.clone()].concat();
                rope(isa, RopeOrder::Pairs, (&angles, 2 * x.len()), &mut turned);
                rope(isa, RopeOrder::Halves, (&angles, 2 * x.len()), &mut turned);
                let mut layer_normed = x.clone();
                let weight = vec![0.7; x.len()];
                layer_norm_in_place(isa, &mut layer_normed, (&weight, &normed, 1e-5));
                let mut units = [Gelu::Erf, Gelu::Tanh].map(|form| {
                    let mut unit = x.clone();
                    add_bias_and_gelu(isa, form, &mut unit, &normed);
                    unit
                });
                l2_normalize(isa, &mut units[0]);
                let all = normed.iter().chain(&turned).chain(&layer_normed).chain(units.iter().flatten());
                all.map(|v| v.to_bits()).collect::<Vec<_>>()
            };
            for isa in Isa::available() {
                prop_assert_eq!(run(isa), run(Isa::Scalar));
            }
        }
    }

    #[test]
    fn layer_norm_and_length() {
        let mut x: Vec<f32> = (0..40).map(|i| (i * i % 17) as f32 - 3.0).collect();
        let mean = x.iter().sum::<f32>() / 40.0;
        let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>() / 40.0;
        let want: Vec<f32> = x.iter().map(|v| (v - mean) / (variance + 1e-12).sqrt() * 2.0 + 0.5).collect();
        layer_norm_in_place(Isa::detect(), &mut x, (&[2.0; 40], &[0.5; 40], 1e-12));
        assert!(x.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5), "{x:?}");
        l2_normalize(Isa::detect(), &mut x);
        assert!((x.iter().map(|v| v * v).sum::<f32>() - 1.0).abs() < 1e-6);
        let mut zero = [0.0; 3];
        l2_normalize(Isa::detect(), &mut zero);
        assert_eq!(zero, [0.0; 3]);
        let mut broken = [1.0, f32::NAN];
        l2_normalize(Isa::detect(), &mut broken);
        assert!(broken.iter().all(|v| v.is_nan()));
    }

    #[test]
    fn rope_turns_by_the_position() {
        let frequencies = RopeFrequencies::new(10_000.0, &[1.0, 4.0]);
        let mut angles = [(0.0, 0.0); 2];
        frequencies.angles(2, &mut angles);
        let slow = 2.0 * 10_000f32.powf(-0.5) / 4.0;
        let check = |order, mut x: [f32; 4], expected: [f32; 4]| {
            rope(Isa::detect(), order, (&angles, 4), &mut x);
            assert!(x.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{order:?} {x:?}");
        };
        check(RopeOrder::Pairs, [1.0, 0.0, 0.0, 1.0], [2f32.cos(), 2f32.sin(), -slow.sin(), slow.cos()]);
        check(RopeOrder::Halves, [1.0, 0.0, 0.0, 1.0], [2f32.cos(), -slow.sin(), 2f32.sin(), slow.cos()]);
        // A head of which only the first elements turn.
        let mut x = [1.0, 0.0, 5.0];
        rope(Isa::detect(), RopeOrder::Halves, (&angles[..1], 3), &mut x);
        assert!(x[2] == 5.0 && (x[1] - 2f32.sin()).abs() < 1e-6, "{x:?}");
    }
}
