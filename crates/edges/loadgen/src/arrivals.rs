//! When requests are sent: as soon as another ends, at random, or as a trace recorded it.

use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// How load is put on a target: one row of the results.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Closed loop: so many clients, each sends its next request when its last one has ended.
    Concurrency(usize),
    /// Open loop: a Poisson process with so many conversations a second, however slow the replies are.
    Rate(f64),
    /// Open loop at the times of the trace, so many times as fast.
    TraceSpeed(f64),
}

impl Load {
    /// As a person writes it.
    pub fn text(&self) -> String {
        match self {
            Self::Concurrency(1) => "1 client".to_owned(),
            Self::Concurrency(n) => format!("{n} clients"),
            Self::Rate(rate) => format!("{} req/s", short(*rate)),
            Self::TraceSpeed(speed) => format!("trace × {}", short(*speed)),
        }
    }

    /// Its place on the axis of a plot.
    pub fn position(&self) -> f64 {
        match self {
            Self::Concurrency(n) => *n as f64,
            Self::Rate(x) | Self::TraceSpeed(x) => *x,
        }
    }
}

/// At most three significant digits, without zeros at the end.
fn short(value: f64) -> String {
    let digits = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `count` arrival times in seconds of a Poisson process with `rate` arrivals a second, the first at 0.
/// The gaps are the same for all rates but for their scale, so that rates are compared on one sequence.
pub(crate) fn poisson(count: usize, rate: f64, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(&[seed, 0x61_72_72]);
    let mut at = 0.0;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        times.push(at);
        at += rng.exponential() / rate;
    }
    times
}

/// The times of a trace in seconds from its first row, `speed` times as fast, in ascending order.
pub(crate) fn replay(times: &[f64], speed: f64) -> Vec<f64> {
    let first = times.iter().copied().fold(f64::INFINITY, f64::min);
    let mut times: Vec<f64> = times.iter().map(|time| (time - first) / speed).collect();
    times.sort_by(f64::total_cmp);
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn loads_are_named() {
        let check = |load: Load, expected: &str| assert_eq!(load.text(), expected);
        check(Load::Concurrency(1), "1 client");
        check(Load::Concurrency(32), "32 clients");
        check(Load::Rate(2.0), "2 req/s");
        check(Load::Rate(1.234_5), "1.23 req/s");
        check(Load::Rate(120.0), "120 req/s");
        check(Load::TraceSpeed(0.5), "trace × 0.5");
    }

    #[test]
    fn a_rate_is_kept() {
        let times = poisson(20_001, 4.0, 3);
        assert!((times[20_000] / 20_000.0 - 0.25).abs() < 0.01);
        // The gaps of a Poisson process have a coefficient of variation of 1.
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_trace_is_compressed() {
        assert_eq!(replay(&[10.0, 14.0, 12.0], 2.0), [0.0, 1.0, 2.0]);
        assert!(replay(&[], 2.0).is_empty());
    }

    proptest! {
        #[test]
        fn rates_share_one_sequence(seed in any::<u64>(), rate in 0.01f64..1e4) {
            let (one, other) = (poisson(50, 1.0, seed), poisson(50, rate, seed));
            prop_assert!(other.is_sorted() && other[0] == 0.0);
            for (a, b) in one.iter().zip(&other) {
                prop_assert!((a / rate - b).abs() <= 1e-9 * (1.0 + a / rate));
            }
        }
    }
}
