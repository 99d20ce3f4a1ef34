//! Goes through rows, repeats and targets, and gathers what came of them.
//!
//! Repeats take the targets in turn (A B A B), so that what changes on the machine meanwhile meets all of them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::{sync::watch, time::sleep};

use crate::{
    LoadError,
    arrivals::{self, Load},
    client::{Client, Record},
    drive::{self, Flow, Pace, Run, Sender},
    report::{Probe, Report, Row, SearchResult, Settings, TargetInfo},
    rng::mix,
    search::{FindRate, Search},
    slo::Slo,
    summary::{Limits, Summary},
    targets::Target,
    wire::RequestOptions,
    workload::{Seeds, Workload},
};

mod notes;
mod preflight;

/// What is sent to which servers.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The servers.
    pub targets: Vec<Target>,
    /// Which of them the others are compared with.
    pub baseline: usize,
    /// Sent as a bearer token to all of them.
    pub api_key: Option<String>,
    /// The model to ask for; otherwise the first that a server lists.
    pub model: Option<String>,
    /// What requests say besides their prompt.
    pub request: RequestOptions,
    /// The prompts.
    pub workload: Workload,
    /// Turns of a conversation, at least 1.
    pub turns: usize,
    /// Between a reply and the next turn.
    pub think: Duration,
    /// The loads, one row each.
    pub loads: Vec<Load>,
    /// Look for the highest rate; needs `slo`.
    pub find_rate: Option<FindRate>,
    /// Limits for good requests.
    pub slo: Option<Slo>,
    /// Requests in a row; otherwise four for each client and at least 16, or 100 in an open loop.
    pub requests: Option<usize>,
    /// Requests before each row that are not measured.
    pub warmup: usize,
    /// How often each row is run.
    pub repeats: usize,
    /// The seed of lengths, texts and arrivals.
    pub seed: u64,
    /// A longer gap is a stall.
    pub stall: Duration,
    /// Most requests at once in an open loop.
    pub max_in_flight: usize,
    /// Keep each request's record in the report.
    pub keep_records: bool,
}

/// Told what is going on.
pub trait Progress {
    /// A row begins: which, and how many requests it has.
    fn row(&self, title: &str, requests: usize);
    /// A request of the row ended.
    fn request(&self);
    /// The row ended, with its most important numbers.
    fn row_end(&self, result: &str);
}

/// Shows nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn row(&self, _title: &str, _requests: usize) {}
    fn request(&self) {}
    fn row_end(&self, _result: &str) {}
}

/// Upper bounds of what can be asked: a mistyped number must not take the machine's memory or ports.
const MAX_REQUESTS: usize = 100_000;
const MAX_CLIENTS: usize = 4096;
/// Requests in a row of an open loop when nothing is said.
const OPEN_REQUESTS: usize = 100;
/// After a cut row a server may still be busy with what was cancelled.
const SETTLE: Duration = Duration::from_millis(500);

/// Measures. `stop` becoming true ends it early with what there is by then.
///
/// # Errors
/// [`LoadError::Option`] for what can't be asked, [`LoadError::Target`] when a server can't be reached or refuses
/// the first requests. Later failures are results.
pub async fn run(
    experiment: &Experiment,
    stop: watch::Receiver<bool>,
    progress: &dyn Progress,
) -> Result<Report, LoadError> {
    experiment.check()?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let baseline = experiment.targets[experiment.baseline].name.clone();
    let mut suite = Suite {
        experiment,
        senders: Vec::new(),
        stop,
        progress,
        report: Report::new(began, experiment.settings(), baseline),
    };
    suite.prepare().await?;
    suite.rows().await;
    suite.searches().await;
    let is_stopped = *suite.stop.borrow();
    let mut report = suite.report;
    report.is_partial = is_stopped;
    notes::add(&mut report, experiment);
    Ok(report)
}

impl Experiment {
    fn check(&self) -> Result<(), LoadError> {
        let fail = |why: String| Err(LoadError::Option(why));
        if self.targets.get(self.baseline).is_none() {
            return fail("no --target: write name=http://127.0.0.1:8080".to_owned());
        }
        if self.loads.is_empty() && self.find_rate.is_none() {
            return fail(
                "no load: write --concurrency, --rate, --speed with --trace, or --find-rate".to_owned(),
            );
        }
        if self.find_rate.is_some() && self.slo.is_none() {
            return fail("--find-rate needs limits: write --goodput \"ttft<1s,itl<50ms\"".to_owned());
        }
        if self.turns == 0 || self.repeats == 0 || self.requests == Some(0) {
            return fail("--turns, --repeats and --requests are at least 1".to_owned());
        }
        let is_trace = matches!(self.workload, Workload::Trace { .. });
        for load in &self.loads {
            let is_good = match load {
                Load::Concurrency(clients) => (1..=MAX_CLIENTS).contains(clients),
                Load::Rate(rate) => (1e-3..=1e5).contains(rate),
                Load::TraceSpeed(speed) => is_trace && (1e-3..=1e6).contains(speed),
            };
            if !is_good {
                let allowed =
                    "1 to 4096 clients, 0.001 to 100000 requests a second, or the speed of a --trace";
                return fail(format!("load {:?}: allowed are {allowed}", load.text()));
            }
            if self.requests_of(*load) > MAX_REQUESTS {
                return fail(format!("--requests: at most {MAX_REQUESTS}"));
            }
        }
        Ok(())
    }

    fn settings(&self) -> Settings {
        Settings {
            workload: self.workload.text(self.turns),
            endpoint: self.request.endpoint,
            slo: self.slo,
            repeats: self.repeats,
            warmup: self.warmup,
            seed: self.seed,
            stall_ms: self.stall.as_secs_f64() * 1e3,
        }
    }

    fn requests_of(&self, load: Load) -> usize {
        let fallback = match (load, self.workload.times()) {
            (Load::Concurrency(clients), _) => (4 * clients).max(16),
            (Load::TraceSpeed(_), Some(times)) => times.len(),
            (Load::Rate(_) | Load::TraceSpeed(_), _) => OPEN_REQUESTS,
        };
        self.requests.unwrap_or(fallback)
    }

    /// The row of a load. `text` tells its prompts from those of other rows.
    fn row(&self, load: Load, text: u64) -> drive::Row {
        let seeds = Seeds { shape: self.seed, text };
        let mut conversations = self.workload.plan(self.requests_of(load), self.turns, seeds);
        let count = conversations.len();
        let (pace, in_flight) = match (load, self.workload.times()) {
            (Load::Concurrency(clients), _) => (Pace::Closed, clients),
            (Load::TraceSpeed(speed), Some(times)) => {
                let times = arrivals::replay(&times[..times.len().min(count)], speed);
                conversations.truncate(times.len());
                (Pace::Open(times), self.max_in_flight)
            }
            (Load::Rate(rate) | Load::TraceSpeed(rate), _) => {
                (Pace::Open(arrivals::poisson(count, rate, self.seed)), self.max_in_flight)
            }
        };
        drive::Row { conversations, pace, in_flight, think: self.think }
    }

    fn limits(&self) -> Limits {
        Limits { slo: self.slo, stall_s: self.stall.as_secs_f64() }
    }
}

struct Suite<'a> {
    experiment: &'a Experiment,
    senders: Vec<Sender>,
    stop: watch::Receiver<bool>,
    progress: &'a dyn Progress,
    report: Report,
}

impl Suite<'_> {
    /// Asks every target for its model and measures how it counts tokens; the baseline's scale holds for all,
    /// so that all get the same prompts.
    async fn prepare(&mut self) -> Result<(), LoadError> {
        let experiment = self.experiment;
        for target in &experiment.targets {
            let client = Client::new(target.clone(), experiment.request, experiment.api_key.clone())?;
            let sender = preflight::sender(client, experiment).await?;
            let info = TargetInfo::new(target.clone(), sender.model.to_string(), sender.scale);
            self.report.targets.push(info);
            self.senders.push(sender);
        }
        let scale = self.senders[experiment.baseline].scale;
        for sender in &mut self.senders {
            sender.scale = scale;
        }
        let seeds = Seeds { shape: experiment.seed, text: 0 };
        if let Some(warm) = experiment.workload.warm_prefix(seeds) {
            for sender in self.senders.clone() {
                let row = drive::Row {
                    conversations: vec![warm.clone()],
                    pace: Pace::Closed,
                    in_flight: 1,
                    think: Duration::ZERO,
                };
                drive::drive(&sender, row, &mut self.stop, |_| Flow::Continue).await;
            }
        }
        Ok(())
    }

    async fn rows(&mut self) {
        let experiment = self.experiment;
        for (index, load) in experiment.loads.iter().enumerate() {
            let mut runs: Vec<Vec<Run>> = self.senders.iter().map(|_| Vec::new()).collect();
            for repeat in 0..experiment.repeats {
                for (sender, runs) in self.senders.clone().iter().zip(&mut runs) {
                    if *self.stop.borrow() {
                        break;
                    }
                    runs.push(self.one(sender, *load, mix(&[index as u64, repeat as u64])).await);
                }
            }
            for (target, runs) in experiment.targets.iter().zip(&runs).filter(|(_, runs)| !runs.is_empty()) {
                let records: Vec<&Record> = runs.iter().flat_map(|run| &run.records).collect();
                let records = experiment.keep_records.then(|| serde_json::to_value(records).ok()).flatten();
                let summary = Summary::of(runs, experiment.limits());
                self.report.rows.push(Row { target: target.name.clone(), load: *load, summary, records });
            }
        }
    }

    /// Warms up, then measures one repeat of one row on one target.
    async fn one(&mut self, sender: &Sender, load: Load, text: u64) -> Run {
        self.warm_up(sender, text).await;
        let row = self.experiment.row(load, text);
        let total = row.conversations.iter().map(|conversation| conversation.turns.len()).sum();
        self.progress.row(&format!("{}, {}", sender.client.target.name, load.text()), total);
        let progress = self.progress;
        let run = drive::drive(sender, row, &mut self.stop, |_| {
            progress.request();
            Flow::Continue
        });
        let run = run.await;
        let summary = Summary::of(std::slice::from_ref(&run), self.experiment.limits());
        progress.row_end(&line(&summary));
        run
    }

    async fn warm_up(&mut self, sender: &Sender, text: u64) {
        if self.experiment.warmup == 0 || *self.stop.borrow() {
            return;
        }
        let seeds = Seeds { shape: self.experiment.seed, text: mix(&[text, 0x7761_726d]) };
        let row = drive::Row {
            conversations: self.experiment.workload.plan(self.experiment.warmup, 1, seeds),
            pace: Pace::Closed,
            in_flight: 4,
            think: Duration::ZERO,
        };
        drive::drive(sender, row, &mut self.stop, |_| Flow::Continue).await;
    }

    async fn searches(&mut self) {
        let experiment = self.experiment;
        let (Some(options), Some(slo)) = (experiment.find_rate, experiment.slo) else { return };
        for sender in self.senders.clone() {
            let mut search = Search::new(options);
            let mut tried = Vec::new();
            while let Some(rate) = search.next().filter(|_| !*self.stop.borrow()) {
                let probe = self.probe(&sender, rate, (slo, options.share), tried.len()).await;
                if *self.stop.borrow() {
                    break;
                }
                search.record(rate, probe.goodput);
                tried.push(probe);
            }
            if tried.is_empty() {
                break;
            }
            let target = sender.client.target.name.clone();
            self.report.searches.push(SearchResult { target, options, best_rate: search.best(), tried });
        }
    }

    /// Tries a rate, and gives up as soon as too many requests are outside the limits.
    async fn probe(&mut self, sender: &Sender, rate: f64, (slo, share): (Slo, f64), index: usize) -> Probe {
        let load = Load::Rate(rate);
        let text = mix(&[0x0070_726f_6265, index as u64]);
        self.warm_up(sender, text).await;
        let row = self.experiment.row(load, text);
        let total: usize = row.conversations.iter().map(|conversation| conversation.turns.len()).sum();
        self.progress.row(
            &format!("{}, looking for its highest rate: {}", sender.client.target.name, load.text()),
            total,
        );
        let progress = self.progress;
        let mut bad = 0;
        let run = drive::drive(sender, row, &mut self.stop, |record| {
            progress.request();
            bad += usize::from(!slo.is_met(record));
            let best = (total - bad.min(total)) as f64 / total as f64;
            if best < share { Flow::Stop } else { Flow::Continue }
        });
        let run = run.await;
        let summary = Summary::of(std::slice::from_ref(&run), self.experiment.limits());
        let goodput = (total - bad.min(total)) as f64 / total.max(1) as f64;
        let word = if run.is_cut { "at most " } else { "" };
        progress.row_end(&format!("goodput {word}{goodput:.2}; {}", line(&summary)));
        if run.is_cut {
            sleep(SETTLE).await;
        }
        Probe {
            rate,
            goodput,
            is_cut: run.is_cut,
            output_tok_s: summary.output_tok_s.mean,
            ttft_p50_ms: summary.ttft_ms.p50,
            tpot_mean_ms: summary.tpot_ms.mean.mean,
        }
    }
}

/// A row in one line.
fn line(summary: &Summary) -> String {
    let failed = summary.requests - summary.completed;
    let failed = if failed > 0 { format!(", {failed} failed") } else { String::new() };
    format!(
        "{:.0} tok/s, TTFT {:.0} ms, ITL {:.1} ms{failed}",
        summary.output_tok_s.mean, summary.ttft_ms.mean.mean, summary.tpot_ms.mean.mean
    )
}
