//! What came out of a test run.

use super::{Counts, Outcome, RunnerFailed};
use anyhow::{Error, Result, bail};
use std::time::Duration;

/// The outcome of every step so far.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<Row>,
    total: Counts,
}

struct Row {
    title: &'static str,
    time: Duration,
    verdict: String,
    is_failure: bool,
}

impl Report {
    /// Adds a step. A failure that no runner counted counts as one failed test, so that the total never looks clean.
    pub(crate) fn add(&mut self, title: &'static str, time: Duration, outcome: Result<Outcome>) {
        let is_failure = outcome.is_err();
        let verdict = match outcome {
            Ok(Outcome::Passed) => "ok".to_owned(),
            Ok(Outcome::Counted(counts)) => {
                self.total = self.total + counts;
                format!("{} passed, {} skipped", counts.passed, counts.skipped)
            }
            Ok(Outcome::Skipped(why)) => {
                println!("skipped: {why}");
                format!("skipped: {why}")
            }
            Err(error) => {
                println!("failed: {error:#}");
                let counts = counts_of(&error);
                self.total = self.total + counts;
                format!("FAILED: {error}")
            }
        };
        self.rows.push(Row { title, time, verdict, is_failure });
    }

    /// Prints the steps and, as the last line, the total; an error names the steps that failed.
    pub(crate) fn print_and_judge(self) -> Result<()> {
        println!("\n=== summary ===");
        for row in &self.rows {
            println!("{:>8.1} s  {:24} {}", row.time.as_secs_f64(), row.title, row.verdict);
        }
        let time: Duration = self.rows.iter().map(|row| row.time).sum();
        println!("{:>8.1} s  in all", time.as_secs_f64());
        println!("\n{}", total_line(self.total));
        let failed: Vec<&str> = self.rows.iter().filter(|row| row.is_failure).map(|row| row.title).collect();
        if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
    }
}

fn total_line(total: Counts) -> String {
    let Counts { passed, failed, skipped } = total;
    let tail = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
    format!("TOTAL: {passed} passed, {failed} failed{tail}")
}

fn counts_of(error: &Error) -> Counts {
    let counted = error.downcast_ref::<RunnerFailed>().and_then(|failed| failed.counts).unwrap_or_default();
    Counts { failed: counted.failed.max(1), ..counted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_adds_up_and_never_hides_a_failure() {
        let mut report = Report::default();
        let counted = |passed, failed, skipped| Counts { passed, failed, skipped };
        let second = Duration::from_secs(1);
        report.add("a", second, Ok(Outcome::Passed));
        report.add("b", second, Ok(Outcome::Counted(counted(5, 0, 0))));
        assert_eq!(total_line(report.total), "TOTAL: 5 passed, 0 failed");

        let failed = RunnerFailed { counts: Some(counted(3, 2, 1)), what: "x".to_owned() };
        report.add("c", second, Err(failed.into()));
        assert_eq!(total_line(report.total), "TOTAL: 8 passed, 2 failed, 1 skipped");

        report.add("d", second, Err(anyhow::anyhow!("lint")));
        assert_eq!(report.total.failed, 3);
        assert_eq!(report.print_and_judge().unwrap_err().to_string(), "failed: c, d");
    }
}
