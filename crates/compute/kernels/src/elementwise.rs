//! Norms, activations and rotary embedding, element by element.

use motet_math::silu;

use crate::Isa;
use crate::isa::{Kernel, on_isa};

/// Partial sums of a reduction: fixed, so that wider vectors add in the same order.
const STRIPES: usize = 16;

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
        let inverse = 1.0 / (sum_of_squares(self.x) / self.x.len() as f32 + self.eps).sqrt();
        for ((out, value), weight) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = value * inverse * weight;
        }
    }
}

/// Striped over 16 partial sums, which are then added pairwise.
#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut sums = [0f32; STRIPES];
    let (chunks, rest) = x.as_chunks::<STRIPES>();
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value * value;
        }
    }
    for (sum, value) in sums.iter_mut().zip(rest) {
        *sum += value * value;
    }
    let mut width = STRIPES / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}

/// `out = silu(gate) · up`.
pub fn silu_mul(isa: Isa, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == up.len() && gate.len() == out.len());
    on_isa(isa, SiluMul { gate, up, out });
}

struct SiluMul<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    #[inline(always)]
    fn run(self) {
        for ((out, gate), up) in self.out.iter_mut().zip(self.gate).zip(self.up) {
            *out = silu(*gate) * up;
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

/// Rotates the neighbouring pairs (2i, 2i + 1) of every head of `x`, as GGUF's llama stores them.
pub fn rope(angles: &[(f32, f32)], head_dim: usize, x: &mut [f32]) {
    for head in x.chunks_exact_mut(head_dim) {
        let (pairs, _) = head.as_chunks_mut::<2>();
        for (pair, &(cos, sin)) in pairs.iter_mut().zip(angles) {
            let [a, b] = *pair;
            *pair = [a * cos - b * sin, a * sin + b * cos];
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
                let mut gate = vec![0f32; x.len()];
                silu_mul(isa, &x, &normed, &mut gate);
                normed.iter().chain(&gate).map(|v| v.to_bits()).collect::<Vec<_>>()
            };
            for isa in Isa::available() {
                prop_assert_eq!(run(isa), run(Isa::Scalar));
            }
        }
    }

    #[test]
    fn rope_turns_by_the_position() {
        let frequencies = RopeFrequencies::new(10_000.0, &[1.0, 4.0]);
        let mut angles = [(0.0, 0.0); 2];
        frequencies.angles(2, &mut angles);
        let mut x = [1.0, 0.0, 0.0, 1.0];
        rope(&angles, 4, &mut x);
        let slow = 2.0 * 10_000f32.powf(-0.5) / 4.0;
        let expected = [2f32.cos(), 2f32.sin(), -slow.sin(), slow.cos()];
        assert!(x.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{x:?}");
    }
}
