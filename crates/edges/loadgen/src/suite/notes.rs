//! What a reader of the numbers should know, found in the numbers.

use super::Experiment;
use crate::{report::Report, workload::Workload};

/// A cache that holds more of prompts that are all new than the first block of each.
const CACHED_SHARE: f64 = 0.1;
/// A timer that is later than this tells that the generator gets too little of a processor.
const LAG_MS: f64 = 20.0;
/// Replies are shorter than asked for when this share is missing.
const SHORT_SHARE: f64 = 0.98;
/// Two tokenizers count alike below this difference.
const SCALE_DIFFERENCE: f64 = 0.05;

/// Adds them.
pub(super) fn add(report: &mut Report, experiment: &Experiment) {
    if report.is_partial {
        report.notes.push("stopped before its end: rows may be missing or short".to_owned());
    }
    let base = report.targets.get(experiment.baseline).map_or(1.0, |info| info.tokens_per_word);
    let differing =
        report.targets.iter().filter(|info| (info.tokens_per_word / base - 1.0).abs() > SCALE_DIFFERENCE);
    let differing = differing.map(|info| {
        let name = &info.target.name;
        format!("{name} counts {:.2} tokens a word, the baseline {base:.2}: the same texts are not the same number of tokens", info.tokens_per_word)
    });
    let mut notes: Vec<String> = differing.collect();
    for target in report.names() {
        notes.extend(of_target(report, experiment, target));
    }
    report.notes.extend(notes);
}

fn of_target(report: &Report, experiment: &Experiment, target: &str) -> Vec<String> {
    let rows = || report.rows.iter().filter(|row| row.target == target && row.summary.completed > 0);
    let mut notes = Vec::new();
    if rows().any(|row| !row.summary.has_usage) {
        notes.push(format!("{target} does not report its token counts: pieces of text are counted instead"));
    }
    let is_distinct = matches!(experiment.workload, Workload::Random(_)) && experiment.turns == 1;
    let prompt: u64 = rows().map(|row| row.summary.prompt_tokens).sum();
    let cached: u64 = rows().filter_map(|row| row.summary.cached_tokens).sum();
    if is_distinct && cached as f64 > CACHED_SHARE * prompt as f64 {
        let share = cached as f64 / prompt as f64 * 100.0;
        notes.push(format!("{target} had {share:.0} % of prompts cached that should be new to it: restart it or take another --seed"));
    }
    let (asked, got) =
        rows().fold((0, 0), |sum, row| (sum.0 + row.summary.asked_tokens, sum.1 + row.summary.output_tokens));
    if (got as f64) < SHORT_SHARE * asked as f64 {
        notes.push(format!("{target} gave {got} of {asked} tokens asked for: it ends replies early, so its requests are less work"));
    }
    let lag = rows().map(|row| row.summary.timer_lag_ms.p99).fold(0.0, f64::max);
    if lag > LAG_MS {
        notes.push(format!("while {target} was measured, the generator's own timer was up to {lag:.0} ms late (p99): it shares processors with the server"));
    }
    if let Some((row, what)) = rows_with_failures(report, target).next() {
        notes.push(format!("{target}, {row}: {what}"));
    }
    notes
}

fn rows_with_failures<'a>(
    report: &'a Report,
    target: &'a str,
) -> impl Iterator<Item = (String, String)> + 'a {
    report.rows.iter().filter(move |row| row.target == target).filter_map(|row| {
        let first = row.summary.first_failure.as_ref()?;
        let kinds = row.summary.failures.iter().map(|(kind, count)| format!("{count} × {kind}"));
        Some((
            row.load.text(),
            format!("failed {}; the first: {first}", kinds.collect::<Vec<_>>().join(", ")),
        ))
    })
}
