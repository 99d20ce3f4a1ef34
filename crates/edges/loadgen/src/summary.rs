//! From the records of a row's requests to what is reported of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    client::Record,
    drive::Run,
    slo::Slo,
    stats::{BATCHES, Estimate, Spread},
};

/// What was measured of one load on one target, over all repeats. Latencies and tokens are those of completed
/// requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Requests that ended, well or not.
    pub requests: usize,
    /// Requests with a whole reply.
    pub completed: usize,
    /// Failed requests by kind.
    pub failures: BTreeMap<String, usize>,
    /// What the first failure said.
    pub first_failure: Option<String>,
    /// Tokens of the prompts, as the server counted.
    pub prompt_tokens: u64,
    /// Those of them that the server found in its cache, where it says so.
    pub cached_tokens: Option<u64>,
    /// Tokens of the replies, as the server counted.
    pub output_tokens: u64,
    /// Tokens that were asked for.
    pub asked_tokens: u64,
    /// Whether the server reported its counts; otherwise pieces of text are counted.
    pub has_usage: bool,
    /// Duration in seconds, all repeats together.
    pub wall_s: f64,
    /// Reply tokens a second.
    pub output_tok_s: Estimate,
    /// Prompt and reply tokens a second.
    pub total_tok_s: Estimate,
    /// Completed requests a second.
    pub req_s: Estimate,
    /// Time to the first piece of text.
    pub ttft_ms: Spread,
    /// Between pieces of text.
    pub itl_ms: Spread,
    /// A request's mean time between tokens.
    pub tpot_ms: Spread,
    /// From sending to the end of the stream.
    pub e2e_ms: Spread,
    /// Share of requests inside the limits, where there are any; failed ones are outside.
    pub goodput: Option<f64>,
    /// Gaps longer than the limit for stalls.
    pub stalls: usize,
    /// Requests with such a gap.
    pub stalled_requests: usize,
    /// How much later than planned requests were sent; open loop only.
    pub send_lag_ms: Spread,
    /// How late the generator's timer was.
    pub timer_lag_ms: Spread,
    /// Output rate over time in the first repeat.
    pub timeline: Timeline,
    /// Stopped before its end.
    pub is_cut: bool,
}

/// Reply tokens a second in steps of equal length.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of a step in seconds.
    pub step_s: f64,
    /// Tokens a second in each.
    pub tok_s: Vec<f64>,
}

/// What requests are judged by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) slo: Option<Slo>,
    pub(crate) stall_s: f64,
}

impl Summary {
    pub(crate) fn of(runs: &[Run], limits: Limits) -> Self {
        let all: Vec<&Record> = runs.iter().flat_map(|run| &run.records).collect();
        let done: Vec<&Record> = all.iter().copied().filter(|record| record.failure.is_none()).collect();
        let mut summary = Self { requests: all.len(), completed: done.len(), ..Self::default() };
        summary.count(&all, &done, limits);
        summary.rates(runs);
        let ms = |value: Option<f64>| value.map(|seconds| seconds * 1e3);
        let spread = |of: &dyn Fn(&Record) -> Option<f64>| {
            Spread::of(&done.iter().filter_map(|record| ms(of(record))).collect::<Vec<_>>())
        };
        summary.ttft_ms = spread(&|record| record.ttft_s);
        summary.tpot_ms = spread(&Record::tpot_s);
        summary.e2e_ms = spread(&|record| Some(record.e2e_s));
        summary.send_lag_ms = spread(&|record| record.lag_s);
        let gaps = done.iter().flat_map(|record| &record.gaps_s).map(|gap| f64::from(*gap) * 1e3);
        summary.itl_ms = Spread::of(&gaps.collect::<Vec<_>>());
        let lags = runs.iter().flat_map(|run| &run.timer_lag_s).map(|lag| lag * 1e3);
        summary.timer_lag_ms = Spread::of(&lags.collect::<Vec<_>>());
        summary.timeline = runs.first().map(Timeline::of).unwrap_or_default();
        summary.is_cut = runs.iter().any(|run| run.is_cut);
        summary
    }

    fn count(&mut self, all: &[&Record], done: &[&Record], limits: Limits) {
        for failure in all.iter().filter_map(|record| record.failure.as_ref()) {
            *self.failures.entry(failure.kind.clone()).or_default() += 1;
            self.first_failure.get_or_insert_with(|| failure.what.clone());
        }
        for record in done {
            self.prompt_tokens += u64::from(record.prompt_tokens);
            self.output_tokens += u64::from(record.output_tokens);
            self.asked_tokens += u64::from(record.asked_tokens);
            if let Some(cached) = record.cached_tokens {
                *self.cached_tokens.get_or_insert(0) += u64::from(cached);
            }
            let stalls = record.gaps_s.iter().filter(|gap| f64::from(**gap) > limits.stall_s).count();
            self.stalls += stalls;
            self.stalled_requests += usize::from(stalls > 0);
        }
        self.has_usage = done.iter().all(|record| record.has_usage);
        self.goodput = limits
            .slo
            .filter(|_| !all.is_empty())
            .map(|slo| all.iter().filter(|record| slo.is_met(record)).count() as f64 / all.len() as f64);
    }

    /// Means over the whole duration; their intervals from ten windows of equal length in each repeat.
    fn rates(&mut self, runs: &[Run]) {
        self.wall_s = runs.iter().map(|run| run.wall_s).sum();
        let mut windows = [const { Vec::new() }; 3];
        for run in runs.iter().filter(|run| run.wall_s > 0.0) {
            let mut sums = [[0.0; BATCHES]; 3];
            for (which, at_s, amount) in run.records.iter().flat_map(happenings) {
                let window = (at_s / run.wall_s * BATCHES as f64) as usize;
                sums[which][window.min(BATCHES - 1)] += amount;
            }
            let length = run.wall_s / BATCHES as f64;
            for (windows, sums) in windows.iter_mut().zip(sums) {
                windows.extend(sums.map(|sum| sum / length));
            }
        }
        let total = [self.output_tokens as f64, self.prompt_tokens as f64, self.completed as f64];
        let rate = |total: f64| if self.wall_s > 0.0 { total / self.wall_s } else { 0.0 };
        let both: Vec<f64> = windows[OUTPUT].iter().zip(&windows[PROMPT]).map(|(a, b)| a + b).collect();
        self.output_tok_s = Estimate::from_batches(rate(total[OUTPUT]), &windows[OUTPUT]);
        self.total_tok_s = Estimate::from_batches(rate(total[OUTPUT] + total[PROMPT]), &both);
        self.req_s = Estimate::from_batches(rate(total[DONE]), &windows[DONE]);
    }
}

const OUTPUT: usize = 0;
const PROMPT: usize = 1;
const DONE: usize = 2;

/// What a completed request adds to the rates: (which, seconds from the row's beginning, amount).
fn happenings(record: &Record) -> Vec<(usize, f64, f64)> {
    if record.failure.is_some() {
        return Vec::new();
    }
    let mut happened = vec![
        (PROMPT, record.start_s + record.ttft_s.unwrap_or(record.e2e_s), f64::from(record.prompt_tokens)),
        (DONE, record.start_s + record.e2e_s, 1.0),
    ];
    happened.extend(token_times(record).map(|(at_s, tokens)| (OUTPUT, at_s, tokens)));
    happened
}

/// When a reply's pieces came and how many tokens each stands for.
fn token_times(record: &Record) -> impl Iterator<Item = (f64, f64)> + '_ {
    let first = record.start_s + record.ttft_s.unwrap_or(record.e2e_s);
    let each = f64::from(record.output_tokens) / (record.gaps_s.len() + 1) as f64;
    let later = record.gaps_s.iter().scan(first, |at, gap| {
        *at += f64::from(*gap);
        Some(*at)
    });
    std::iter::once(first).chain(later).map(move |at| (at, each))
}

impl Timeline {
    /// Steps in a timeline: as many as a plot can show.
    const STEPS: f64 = 80.0;
    /// Shorter steps would show the scheduler's steps instead of a rate.
    const SHORTEST_S: f64 = 0.1;

    fn of(run: &Run) -> Self {
        let step_s = (run.wall_s / Self::STEPS).max(Self::SHORTEST_S);
        let steps = (run.wall_s / step_s).ceil().max(1.0) as usize;
        let mut tokens = vec![0.0; steps];
        for (at_s, amount) in run.records.iter().filter(|r| r.failure.is_none()).flat_map(token_times) {
            tokens[((at_s / step_s) as usize).min(steps - 1)] += amount;
        }
        Self { step_s, tok_s: tokens.into_iter().map(|sum| (sum / step_s * 10.0).round() / 10.0).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Failure;

    /// Ten requests, one after the other, each of 0.1 s to the first of 5 tokens and 0.1 s between them.
    fn run() -> Run {
        let record = |index: u32| Record {
            start_s: f64::from(index) * 0.5,
            ttft_s: Some(0.1),
            last_s: 0.5,
            e2e_s: 0.5,
            gaps_s: vec![0.1; 4],
            prompt_tokens: 20,
            output_tokens: 5,
            asked_tokens: 5,
            has_usage: true,
            ..Record::default()
        };
        Run { records: (0..10).map(record).collect(), wall_s: 5.0, ..Run::default() }
    }

    fn limits(text: &str) -> Limits {
        Limits { slo: Slo::parse(text).ok(), stall_s: 0.2 }
    }

    #[test]
    fn a_steady_run_is_summed_up() {
        let summary = Summary::of(&[run(), run()], limits("ttft<150ms"));
        assert_eq!((summary.requests, summary.completed, summary.output_tokens), (20, 20, 100));
        assert!((summary.output_tok_s.mean - 10.0).abs() < 1e-9);
        assert!((summary.total_tok_s.mean - 50.0).abs() < 1e-9);
        assert!((summary.req_s.mean - 2.0).abs() < 1e-9);
        assert!((summary.ttft_ms.p50 - 100.0).abs() < 1e-9 && (summary.tpot_ms.p50 - 100.0).abs() < 1e-9);
        assert_eq!((summary.goodput, summary.stalls), (Some(1.0), 0));
        let tokens: f64 = summary.timeline.tok_s.iter().map(|rate| rate * summary.timeline.step_s).sum();
        assert!((tokens - 50.0).abs() < 0.5, "{tokens}");
    }

    #[test]
    fn failures_count_but_are_not_averaged() {
        let mut run = run();
        run.records[3].failure = Some(Failure::new("timeout", "no end"));
        run.records[3].e2e_s = 100.0;
        run.records[4].gaps_s[1] = 0.3;
        run.records[4].last_s = 0.7;
        let summary = Summary::of(&[run], limits("itl<120ms"));
        assert_eq!((summary.completed, summary.failures["timeout"]), (9, 1));
        assert_eq!(summary.first_failure.as_deref(), Some("no end"));
        assert!(summary.e2e_ms.max < 1000.0);
        assert_eq!((summary.goodput, summary.stalls, summary.stalled_requests), (Some(0.8), 1, 1));
    }

    #[test]
    fn nothing_is_no_division_by_zero() {
        let summary = Summary::of(&[Run::default()], limits("ttft<1s"));
        assert_eq!((summary.requests, summary.goodput, summary.output_tok_s.mean), (0, None, 0.0));
        assert!(serde_json::to_string(&summary).is_ok());
    }
}
