//! Seeded random numbers: the same seed gives the same load on every machine.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Rng {
    /// A stream for these numbers together; each combination has its own.
    pub(crate) fn new(seed: &[u64]) -> Self {
        Self(mix(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        finish(self.0)
    }

    /// Uniform in [0, 1), with 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n; n at least 1. The bias of the product is below n / 2^64.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Exponential with mean 1, by inversion.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

/// One number from several, such as a seed and an index.
pub(crate) fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(GOLDEN, |sum, part| finish(sum.wrapping_mul(GOLDEN) ^ part.wrapping_add(GOLDEN)))
}

fn finish(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers() {
        // The reference implementation's first outputs for the state 1234567.
        let mut rng = Rng(1_234_567);
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn means_are_right() {
        let mut rng = Rng::new(&[1, 2]);
        let n = 20_000;
        let unit = (0..n).map(|_| rng.unit()).sum::<f64>() / f64::from(n);
        let exponential = (0..n).map(|_| rng.exponential()).sum::<f64>() / f64::from(n);
        assert!((unit - 0.5).abs() < 0.02 && (exponential - 1.0).abs() < 0.05, "{unit} {exponential}");
        assert!((0..1000).all(|_| rng.below(7) < 7));
    }

    #[test]
    fn combinations_differ() {
        assert_ne!(mix(&[1, 2]), mix(&[2, 1]));
        assert_ne!(mix(&[0]), mix(&[0, 0]));
    }
}
