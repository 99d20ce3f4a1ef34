//! Percentiles and confidence intervals.

use serde::{Deserialize, Serialize};

/// A value with its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub mean: f64,
    /// Lower end of the interval; equal to the value when there is too little data for one.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// A distribution. Unit as the field that holds it says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Spread {
    /// How many values.
    pub count: usize,
    /// Their mean, with its interval by batch means.
    pub mean: Estimate,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// The values at 0, 1, … 100 % of the distribution; empty without values.
    pub quantiles: Vec<f64>,
}

/// Into how many batches a run is cut. Ten is the usual compromise (Schmeiser, "Batch size effects in the analysis
/// of simulation output", 1982): more batches would be correlated, fewer leave few degrees of freedom.
pub(crate) const BATCHES: usize = 10;

/// 97.5 % quantiles of Student's t distribution for 1, 2, … 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// `mean` with an interval from the means of batches, taken as independent and normal.
    pub(crate) fn from_batches(mean: f64, batches: &[f64]) -> Self {
        let count = batches.len();
        if count < 2 {
            return Self { mean: round(mean), low: round(mean), high: round(mean) };
        }
        let centre = batches.iter().sum::<f64>() / count as f64;
        let variance = batches.iter().map(|batch| (batch - centre).powi(2)).sum::<f64>() / (count - 1) as f64;
        let half = T_975.get(count - 2).copied().unwrap_or(1.96) * (variance / count as f64).sqrt();
        Self { mean: round(mean), low: round(mean - half), high: round(mean + half) }
    }

    /// Half the width of the interval as a share of the value.
    pub fn relative(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { (self.high - self.low) / 2.0 / self.mean.abs() }
    }
}

impl Spread {
    /// Of values in the order in which they came, which the batches follow: neighbours in time are
    /// alike, so their means say more about the spread of the mean than single values do.
    pub(crate) fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let batches: Vec<f64> = cut(values).map(mean).collect();
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| quantile(&sorted, share);
        Self {
            count: values.len(),
            mean: Estimate::from_batches(mean(values), &batches),
            p50: round(at(0.5)),
            p90: round(at(0.9)),
            p95: round(at(0.95)),
            p99: round(at(0.99)),
            max: round(at(1.0)),
            quantiles: (0..=100).map(|percent| round(at(f64::from(percent) / 100.0))).collect(),
        }
    }
}

/// Batches of nearly equal size, at most [`BATCHES`].
fn cut<T>(values: &[T]) -> impl Iterator<Item = &[T]> {
    let count = values.len().min(BATCHES);
    (0..count).map(move |batch| &values[batch * values.len() / count..(batch + 1) * values.len() / count])
}

/// Linear interpolation between the closest ranks (definition 7 of Hyndman and Fan, 1996), as numpy does it.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len().saturating_sub(1)) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(a), Some(b)) => a + (b - a) * (place - below as f64),
        _ => 0.0,
    }
}

/// Four decimals are finer than what is measured, and saved results are read back as they were.
fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_percentiles() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((spread.count, spread.mean.mean, spread.p50, spread.max), (4, 2.5, 2.5, 4.0));
        assert!((spread.p90 - 3.7).abs() < 1e-12);
        assert_eq!(spread.quantiles.len(), 101);
        assert_eq!(Spread::of(&[]).count, 0);
        assert_eq!(Spread::of(&[3.0]).mean, Estimate { mean: 3.0, low: 3.0, high: 3.0 });
    }

    #[test]
    fn a_known_interval() {
        // Mean 3, standard deviation 1.5811, five batches: 2.776 × 1.5811 ÷ √5.
        let estimate = Estimate::from_batches(3.0, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((estimate.high - 3.0 - 1.9629).abs() < 1e-3, "{estimate:?}");
        assert!((estimate.relative() - 0.6543).abs() < 1e-3);
    }

    #[test]
    fn intervals_cover_the_mean() {
        let mut rng = crate::rng::Rng::new(&[5]);
        let covered = (0..400).filter(|_| {
            let values: Vec<f64> = (0..200).map(|_| rng.exponential()).collect();
            let mean = Spread::of(&values).mean;
            mean.low <= 1.0 && 1.0 <= mean.high
        });
        let covered = covered.count();
        assert!((360..=396).contains(&covered), "{covered} of 400 where about 380 are expected");
    }

    proptest! {
        #[test]
        fn percentiles_are_ordered(values in proptest::collection::vec(0.0f64..1e6, 1..200)) {
            let spread = Spread::of(&values);
            prop_assert!(spread.quantiles.is_sorted());
            prop_assert!(spread.p50 <= spread.p90 && spread.p90 <= spread.p99 && spread.p99 <= spread.max);
            prop_assert!(spread.mean.low <= spread.mean.mean && spread.mean.mean <= spread.mean.high);
            prop_assert_eq!(cut(&values).map(<[f64]>::len).sum::<usize>(), values.len());
        }
    }
}
