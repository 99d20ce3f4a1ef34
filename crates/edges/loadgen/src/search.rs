//! Finds the highest rate at which enough requests are good.
//!
//! The rate is doubled or halved until one that is good enough and one that is not are known, then the interval
//! is halved on a logarithmic scale. Goodput is taken to fall with the rate; where noise breaks that, the
//! answer is the highest good rate below the lowest bad one that was tried.

use serde::{Deserialize, Serialize};

/// Bounds of the search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FindRate {
    /// The first rate that is tried, in conversations a second.
    pub start: f64,
    /// The share of good requests that is enough.
    pub share: f64,
    /// The search ends when the bad rate is at most so many times the good one.
    pub precision: f64,
}

impl Default for FindRate {
    fn default() -> Self {
        Self { start: 1.0, share: 0.9, precision: 1.1 }
    }
}

/// Rates outside are not tried: below, a hundred requests take hours; above, one machine can't send them.
const RATES: std::ops::RangeInclusive<f64> = 0.01..=10_000.0;
/// Bounds the time that a search takes.
const MAX_PROBES: usize = 24;

/// Where a search stands.
#[derive(Debug, Clone)]
pub(crate) struct Search {
    options: FindRate,
    good: Option<f64>,
    bad: Option<f64>,
    probes: usize,
}

impl Search {
    pub(crate) fn new(options: FindRate) -> Self {
        Self { options, good: None, bad: None, probes: 0 }
    }

    /// The next rate to try; `None` when the search is over.
    pub(crate) fn next(&self) -> Option<f64> {
        if self.probes >= MAX_PROBES {
            return None;
        }
        let rate = match (self.good, self.bad) {
            (None, None) => self.options.start,
            (Some(good), None) => good * 2.0,
            (None, Some(bad)) => bad / 2.0,
            (Some(good), Some(bad)) if bad / good > self.options.precision => (good * bad).sqrt(),
            (Some(_), Some(_)) => return None,
        };
        RATES.contains(&rate).then_some(rate)
    }

    /// Says how a rate did.
    pub(crate) fn record(&mut self, rate: f64, share: f64) {
        self.probes += 1;
        if share >= self.options.share {
            self.good = Some(self.good.map_or(rate, |good| good.max(rate)));
        } else {
            self.bad = Some(self.bad.map_or(rate, |bad| bad.min(rate)));
        }
    }

    /// The highest rate that was good enough.
    pub(crate) fn best(&self) -> Option<f64> {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rates tried on a target that is good up to `limit`, and the answer.
    fn search(limit: f64, start: f64) -> (Vec<f64>, Option<f64>) {
        let mut search = Search::new(FindRate { start, ..FindRate::default() });
        let mut tried = Vec::new();
        while let Some(rate) = search.next() {
            tried.push(rate);
            search.record(rate, if rate <= limit { 1.0 } else { 0.5 });
        }
        (tried, search.best())
    }

    #[test]
    fn rates_are_tried_in_turn() {
        let (tried, best) = search(3.0, 1.0);
        assert_eq!(tried[..3], [1.0, 2.0, 4.0]);
        assert!(best.is_some_and(|best| (3.0 / 1.1..=3.0).contains(&best)), "{tried:?}");
        assert_eq!(search(0.0, 1.0).1, None);
        assert_eq!(search(1e9, 1.0).1, Some(8192.0));
    }

    proptest! {
        #[test]
        fn the_limit_is_found(limit in 0.02f64..9000.0, start in 0.1f64..100.0) {
            let (tried, best) = search(limit, start);
            prop_assert!(tried.len() <= MAX_PROBES);
            let best = best.unwrap();
            prop_assert!(best <= limit && limit <= best * 2.0, "{best} {limit}");
            if limit < 4000.0 {
                prop_assert!(limit <= best * 1.1 + 1e-9, "{best} {limit} {tried:?}");
            }
        }
    }
}
