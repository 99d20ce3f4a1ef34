//! What a run hands out and what is saved as JSON.

use serde::{Deserialize, Serialize};

use crate::{
    LoadError, Target, arrivals::Load, search::FindRate, slo::Slo, summary::Summary, wire::Endpoint,
    words::TokenScale,
};

/// The version of the JSON; a reader refuses others.
const FORMAT: u32 = 1;

/// Everything that was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The version of this format.
    pub format: u32,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// Stopped before its end.
    pub is_partial: bool,
    /// What was sent and how.
    pub settings: Settings,
    /// The name of the target that the others are compared with.
    pub baseline: String,
    /// The measured servers.
    pub targets: Vec<TargetInfo>,
    /// One row for each load and target.
    pub rows: Vec<Row>,
    /// The highest rate of each target, where it was looked for.
    pub searches: Vec<SearchResult>,
    /// What a reader of the numbers should know.
    pub notes: Vec<String>,
}

/// What was sent and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The workload in words.
    pub workload: String,
    /// Which endpoint was asked.
    pub endpoint: Endpoint,
    /// Limits for good requests.
    pub slo: Option<Slo>,
    /// How often each row was run.
    pub repeats: usize,
    /// Requests before each row that are not measured.
    pub warmup: usize,
    /// The seed of lengths, texts and arrivals.
    pub seed: u64,
    /// A longer gap is a stall.
    pub stall_ms: f64,
}

/// A measured server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Its name and address.
    #[serde(flatten)]
    pub target: Target,
    /// The model that was asked for.
    pub model: String,
    /// Tokens per word of the prompts.
    pub tokens_per_word: f64,
    /// Tokens of a prompt that are not from its words.
    pub overhead_tokens: f64,
}

impl TargetInfo {
    pub(crate) fn new(target: Target, model: String, scale: TokenScale) -> Self {
        Self { target, model, tokens_per_word: scale.per_word, overhead_tokens: scale.overhead }
    }
}

/// One load on one target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The target's name.
    pub target: String,
    /// The load.
    pub load: Load,
    /// What was measured.
    #[serde(flatten)]
    pub summary: Summary,
    /// Each request, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<serde_json::Value>,
}

/// The search for a target's highest rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The target's name.
    pub target: String,
    /// What was looked for.
    pub options: FindRate,
    /// The highest rate that was good enough, in conversations a second.
    pub best_rate: Option<f64>,
    /// The rates that were tried, in this order.
    pub tried: Vec<Probe>,
}

/// A rate that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Conversations a second.
    pub rate: f64,
    /// Share of good requests; at most that much when it was cut.
    pub goodput: f64,
    /// Stopped as soon as the share could not be reached any more.
    pub is_cut: bool,
    /// Reply tokens a second.
    pub output_tok_s: f64,
    /// Median time to the first token.
    pub ttft_p50_ms: f64,
    /// Mean over requests of their mean time between tokens.
    pub tpot_mean_ms: f64,
}

impl Report {
    pub(crate) fn new(began_unix_s: u64, settings: Settings, baseline: String) -> Self {
        Self {
            format: FORMAT,
            began_unix_s,
            is_partial: false,
            settings,
            baseline,
            targets: Vec::new(),
            rows: Vec::new(),
            searches: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Reads saved results; `file` is their name for messages.
    ///
    /// # Errors
    /// [`LoadError::File`] when it is not what [`Report::json`] writes.
    pub fn parse(text: &str, file: &str) -> Result<Self, LoadError> {
        let failed = |why: String| LoadError::File { file: file.to_owned(), why };
        let report: Self =
            serde_json::from_str(text).map_err(|error| failed(format!("no saved results: {error}")))?;
        if report.format == FORMAT {
            Ok(report)
        } else {
            Err(failed(format!("format {}, but this version reads {FORMAT}: measure again", report.format)))
        }
    }

    /// The results as indented JSON with a line break at the end.
    pub fn json(&self) -> String {
        // Maps with text keys and finite numbers always serialize.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Puts saved results together: targets and rows in the order of the files, settings and baseline of the first.
    ///
    /// # Errors
    /// [`LoadError::Option`] without any report.
    pub fn merge(reports: Vec<Self>) -> Result<Self, LoadError> {
        let mut reports = reports.into_iter();
        let mut whole = reports.next().ok_or_else(|| LoadError::Option("no saved results".to_owned()))?;
        for other in reports {
            if other.settings != whole.settings {
                let names: Vec<&str> = other.targets.iter().map(|info| info.target.name.as_str()).collect();
                whole.notes.push(format!(
                    "{} had other settings ({}); ratios compare different loads",
                    names.join(", "),
                    other.settings.workload
                ));
            }
            whole.is_partial |= other.is_partial;
            let known = whole.targets.clone();
            whole.targets.extend(other.targets.into_iter().filter(|info| !known.contains(info)));
            whole.rows.extend(other.rows);
            whole.searches.extend(other.searches);
            whole.notes.extend(other.notes);
        }
        whole.notes.dedup();
        Ok(whole)
    }

    /// The loads in the order of their rows, each once.
    pub(crate) fn loads(&self) -> Vec<Load> {
        let mut loads: Vec<Load> = Vec::new();
        for row in &self.rows {
            if !loads.contains(&row.load) {
                loads.push(row.load);
            }
        }
        loads
    }

    /// The names of the targets that have rows or searches, in order.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for info in &self.targets {
            if !names.contains(&info.target.name.as_str()) {
                names.push(&info.target.name);
            }
        }
        names
    }

    pub(crate) fn row(&self, target: &str, load: Load) -> Option<&Row> {
        self.rows.iter().find(|row| row.target == target && row.load == load)
    }

    /// How a row compares with the baseline's at the same load; `None` for the baseline itself and without its row.
    pub(crate) fn ratio(&self, row: &Row, of: impl Fn(&Summary) -> f64) -> Option<f64> {
        let base = self.row(&self.baseline, row.load).filter(|base| base.target != row.target)?;
        let (ours, theirs) = (of(&row.summary), of(&base.summary));
        (ours > 0.0 && theirs > 0.0).then_some(ours / theirs)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::stats::{Estimate, Spread};
    use crate::summary::Timeline;

    /// Two targets, two loads and a search.
    pub(crate) fn report() -> Report {
        let settings = Settings {
            workload: "random prompts, 128 in, 64 out".to_owned(),
            endpoint: Endpoint::Completions,
            slo: Slo::parse("ttft<1s").ok(),
            repeats: 1,
            warmup: 2,
            seed: 0,
            stall_ms: 500.0,
        };
        let mut report = Report::new(0, settings, "a".to_owned());
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            let target = Target { name: name.to_owned(), url: format!("http://127.0.0.1:808{index}") };
            report.targets.push(TargetInfo::new(target, format!("<model> {name}"), TokenScale::default()));
            for (clients, tok_s) in [(1, 120.0), (8, 300.0)] {
                let factor = if name == "b" { 3.0 } else { 1.0 };
                report.rows.push(row(name, clients, tok_s * factor));
            }
            report.searches.push(search(name, 2.0 * (index + 1) as f64));
        }
        report.notes.push("something".to_owned());
        report
    }

    fn row(target: &str, clients: usize, tok_s: f64) -> Row {
        let values: Vec<f64> = (1..=40).map(|step| f64::from(step) * 1000.0 / tok_s).collect();
        let summary = Summary {
            requests: 20,
            completed: 20,
            has_usage: true,
            output_tok_s: Estimate { mean: tok_s, low: tok_s - 12.0, high: tok_s + 12.0 },
            ttft_ms: Spread::of(&values),
            itl_ms: Spread::of(&values),
            tpot_ms: Spread::of(&values),
            e2e_ms: Spread::of(&values),
            goodput: Some(0.95),
            timeline: Timeline { step_s: 0.5, tok_s: vec![tok_s; 20] },
            ..Summary::default()
        };
        Row { target: target.to_owned(), load: Load::Concurrency(clients), summary, records: None }
    }

    fn search(target: &str, best: f64) -> SearchResult {
        let probe = |rate: f64, goodput: f64| Probe {
            rate,
            goodput,
            is_cut: goodput < 0.9,
            output_tok_s: 100.0,
            ttft_p50_ms: 50.0,
            tpot_mean_ms: 10.0,
        };
        SearchResult {
            target: target.to_owned(),
            options: FindRate::default(),
            best_rate: Some(best),
            tried: vec![probe(best, 0.97), probe(best * 2.0, 0.5)],
        }
    }

    #[test]
    fn saved_results_are_read() {
        let text = report().json();
        let read = Report::parse(&text, "r.json").unwrap();
        assert!(read.json() == text, "what is read is what was saved");
        let check = |text: &str, part: &str| {
            let error = Report::parse(text, "r.json").unwrap_err().to_string();
            assert!(error.starts_with("r.json: ") && error.contains(part), "{error}");
        };
        check("{}", "no saved results");
        check(&text.replacen("\"format\": 1", "\"format\": 2", 1), "measure again");
    }

    #[test]
    fn reports_are_merged() {
        let (mut a, mut b) = (report(), report());
        a.rows.retain(|row| row.target == "a");
        b.rows.retain(|row| row.target == "b");
        a.targets.truncate(1);
        b.settings.workload = "other".to_owned();
        let whole = Report::merge(vec![a, b]).unwrap();
        assert_eq!((whole.names(), whole.rows.len()), (vec!["a", "b"], 4));
        assert_eq!(whole.ratio(&whole.rows[2], |summary| summary.output_tok_s.mean), Some(3.0));
        assert_eq!(whole.ratio(&whole.rows[0], |summary| summary.output_tok_s.mean), None);
        assert!(whole.notes.iter().any(|note| note.contains("other settings")));
        assert!(Report::merge(Vec::new()).is_err());
    }
}
