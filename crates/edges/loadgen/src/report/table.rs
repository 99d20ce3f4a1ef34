//! Results as text for a terminal.

use std::fmt::Write;

use super::model::{Report, Row, SearchResult};

/// A column: its head, and a cell for each row.
type Column = (&'static str, Vec<String>);

/// The results as a table with aligned columns, what was found in searches, and the notes.
pub fn table(report: &Report) -> String {
    let mut text = format!("{}\n", headline(report));
    if !report.rows.is_empty() {
        text.push('\n');
        push_columns(&mut text, &columns(report));
        let _ = writeln!(
            text,
            "\n± is half the 95 % confidence interval of the mean (batch means).{}",
            ratios_of(report)
        );
    }
    for search in &report.searches {
        push_search(&mut text, report, search);
    }
    if !report.notes.is_empty() {
        text.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// What was sent, in one line.
pub(super) fn headline(report: &Report) -> String {
    let settings = &report.settings;
    let repeats =
        if settings.repeats > 1 { format!(", {} repeats", settings.repeats) } else { String::new() };
    let slo = settings.slo.map_or(String::new(), |slo| format!("; good is {}", slo.text()));
    let endpoint = settings.endpoint.path();
    format!("{}; {endpoint}{repeats}, seed {}{slo}", settings.workload, settings.seed)
}

fn ratios_of(report: &Report) -> String {
    if report.names().len() < 2 {
        return String::new();
    }
    format!(" × is the ratio to {} at the same load.", report.baseline)
}

fn columns(report: &Report) -> Vec<Column> {
    let mut rows: Vec<&Row> = Vec::new();
    for load in report.loads() {
        rows.extend(report.rows.iter().filter(|row| row.load == load));
    }
    let column = |head: &'static str, cell: &dyn Fn(&Row) -> String| -> Column {
        (head, rows.iter().map(|row| cell(row)).collect())
    };
    let ratio = |row: &Row, of: &dyn Fn(&super::Row) -> f64| {
        let base = report.row(&report.baseline, row.load).filter(|base| base.target != row.target);
        base.map_or(String::new(), |base| ratio_text(of(row) / of(base)))
    };
    let mut columns =
        vec![column("load", &|row| row.load.text()), column("target", &|row| row.target.clone())];
    columns.extend([
        column("output tok/s", &|row| amount(row.summary.output_tok_s.mean)),
        column("±", &|row| percent(row.summary.output_tok_s.relative())),
        column("×", &|row| ratio(row, &|row| row.summary.output_tok_s.mean)),
        column("req/s", &|row| amount(row.summary.req_s.mean)),
        column("TTFT ms", &|row| amount(row.summary.ttft_ms.mean.mean)),
        column("±", &|row| percent(row.summary.ttft_ms.mean.relative())),
        column("p50", &|row| amount(row.summary.ttft_ms.p50)),
        column("p99", &|row| amount(row.summary.ttft_ms.p99)),
        column("×", &|row| ratio(row, &|row| row.summary.ttft_ms.mean.mean)),
        column("ITL ms", &|row| amount(row.summary.tpot_ms.mean.mean)),
        column("±", &|row| percent(row.summary.tpot_ms.mean.relative())),
        column("p99", &|row| amount(row.summary.itl_ms.p99)),
        column("×", &|row| ratio(row, &|row| row.summary.tpot_ms.mean.mean)),
        column("E2E ms", &|row| amount(row.summary.e2e_ms.mean.mean)),
        column("stalls", &|row| row.summary.stalls.to_string()),
        column("done", &|row| format!("{}/{}", row.summary.completed, row.summary.requests)),
        column("good", &|row| row.summary.goodput.map_or(String::new(), |share| format!("{share:.2}"))),
    ]);
    columns.retain(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
    columns
}

fn push_columns(text: &mut String, columns: &[Column]) {
    let width = |(head, cells): &Column| {
        cells.iter().map(|cell| cell.chars().count()).chain([head.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let count = columns.first().map_or(0, |(_, cells)| cells.len());
    for line in 0..=count {
        for (index, ((head, cells), width)) in columns.iter().zip(&widths).enumerate() {
            let cell = if line == 0 { head } else { cells[line - 1].as_str() };
            // Names stand left, numbers right.
            let _ =
                if index < 2 { write!(text, "{cell:<width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
}

fn push_search(text: &mut String, report: &Report, search: &SearchResult) {
    let limits = report.settings.slo.map(|slo| slo.text()).unwrap_or_default();
    let share = search.options.share;
    let base = report.searches.iter().find(|other| other.target == report.baseline);
    let ratio = base
        .filter(|base| base.target != search.target)
        .and_then(|base| Some(search.best_rate? / base.best_rate?));
    let ratio =
        ratio.map_or(String::new(), |ratio| format!(", {} of {}", ratio_text(ratio), report.baseline));
    let best = search.best_rate.map_or("none".to_owned(), |rate| format!("{} req/s{ratio}", amount(rate)));
    let _ = writeln!(text, "\n{}: highest rate with goodput ≥ {share} ({limits}): {best}", search.target);
    let column = |head: &'static str, cell: &dyn Fn(&super::Probe) -> String| -> Column {
        (head, search.tried.iter().map(cell).collect())
    };
    let columns = [
        column("", &|_| String::new()),
        column("tried req/s", &|probe| amount(probe.rate)),
        column("goodput", &|probe| format!("{}{:.2}", if probe.is_cut { "≤ " } else { "" }, probe.goodput)),
        column("output tok/s", &|probe| amount(probe.output_tok_s)),
        column("TTFT p50 ms", &|probe| amount(probe.ttft_p50_ms)),
        column("ITL ms", &|probe| amount(probe.tpot_mean_ms)),
    ];
    push_columns(text, &columns);
}

/// Three significant digits, and no fewer before the point than there are.
pub(super) fn amount(value: f64) -> String {
    let digits = match value.abs() {
        x if x >= 99.95 || x == 0.0 => 0,
        x if x >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

pub(super) fn percent(share: f64) -> String {
    if share.is_finite() && share > 0.0 { format!("{:.0} %", share * 100.0) } else { String::new() }
}

pub(super) fn ratio_text(ratio: f64) -> String {
    if ratio.is_finite() && ratio > 0.0 { format!("{}×", amount(ratio)) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::report;
    use super::*;

    #[test]
    fn a_table_is_aligned() {
        let text = table(&report());
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0]
                .starts_with("random prompts, 128 in, 64 out; /v1/completions, seed 0; good is TTFT < 1 s"),
            "{text}"
        );
        let head = lines.iter().position(|line| line.starts_with("load")).unwrap();
        assert!(lines[head].contains("output tok/s"));
        let ends = |line: &str, part: &str| {
            line.find(part).map(|at| line[..at].chars().count() + part.chars().count())
        };
        assert_eq!(ends(lines[head], "output tok/s"), ends(lines[head + 1], "120"), "{text}");
        assert!(lines[head + 2].contains("3.00×"), "{text}");
        assert!(
            text.contains("b: highest rate with goodput ≥ 0.9 (TTFT < 1 s): 4.00 req/s, 2.00× of a"),
            "{text}"
        );
        assert!(text.contains("note: something"), "{text}");
    }

    #[test]
    fn numbers_are_short() {
        let check = |value: f64, expected: &str| assert_eq!(amount(value), expected);
        check(0.0, "0");
        check(0.123, "0.12");
        check(9.999, "10.0");
        check(12.34, "12.3");
        check(99.96, "100");
        check(1234.5, "1234");
    }
}
