//! Norms, activations and rotary embedding, element by element.

use motet_math::silu;

use crate::Isa;
use crate::isa::{Kernel, on_isa};

/// Partial sums of a reduction: fixed, so that wider vectors add in the same order.
const STRIPES: usize = 16;

/// `out = x / √(mean(x²) + eps) · weight` for one row (RMSNorm, Zhang & Sennrich 2019).
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

/// Cosines and sines of rotary embedding (Su et al. 2021) for every position of a context.
pub struct RopeTable {
    pairs: usize,
    /// `cos, sin` by position, then pair.
    values: Vec<(f32, f32)>,
}

impl RopeTable {
    /// Angles `position / divisor · base^(-2i / dims)`; `divisors` holds one per pair (1 where unscaled).
    ///
    /// Computed in f64 by a portable library, so that every machine has the same table.
    pub fn new(positions: usize, base: f32, divisors: &[f32]) -> Self {
        let pairs = divisors.len();
        let frequencies: Vec<f64> = divisors
            .iter()
            .enumerate()
            .map(|(i, &divisor)| libm::pow(f64::from(base), -(i as f64) / pairs as f64) / f64::from(divisor))
            .collect();
        let values = (0..positions)
            .flat_map(|position| frequencies.iter().map(move |f| position as f64 * f))
            .map(|angle| (libm::cos(angle) as f32, libm::sin(angle) as f32))
            .collect();
        Self { pairs, values }
    }

    /// Dimensions of a head that are rotated.
    pub fn dims(&self) -> usize {
        self.pairs * 2
    }
}

/// Rotates the neighbouring pairs (2i, 2i + 1) of every head of `x`, as GGUF's llama stores them.
pub fn rope(table: &RopeTable, position: usize, head_dim: usize, x: &mut [f32]) {
    let angles = &table.values[position * table.pairs..][..table.pairs];
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
        let table = RopeTable::new(3, 10_000.0, &[1.0, 1.0]);
        let mut x = [1.0, 0.0, 0.0, 1.0];
        rope(&table, 2, 4, &mut x);
        let slow = 2.0 * 10_000f32.powf(-0.5);
        let expected = [2f32.cos(), 2f32.sin(), -slow.sin(), slow.cos()];
        assert!(x.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{x:?}");
    }
}
