//! Results as one self-contained page: no scripts, nothing fetched.

use std::fmt::Write;

use super::{
    charts::charts,
    model::{Report, Row, SearchResult},
    svg::{escape, svg},
    table::{amount, headline, percent, ratio_text},
};

const STYLE: &str = include_str!("page.css");

/// The page.
pub fn html(report: &Report) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Load test: {}</title>\
         <style>{STYLE}</style></head><body><main>\n",
        escape(&report.names().join(", "))
    );
    let _ = write!(out, "<h1>Load test</h1><p class=\"lead\">{}</p>", escape(&headline(report)));
    push_targets(&mut out, report);
    if report.is_partial {
        out.push_str("<p class=\"warn\">Stopped before its end.</p>");
    }
    push_searches(&mut out, report);
    push_rows(&mut out, report);
    out.push_str("<section class=\"charts\">");
    for chart in charts(report) {
        let _ = writeln!(
            out,
            "<figure><figcaption>{}</figcaption>{}</figure>",
            escape(&chart.title),
            svg(&chart)
        );
    }
    out.push_str("</section>");
    push_notes(&mut out, report);
    out.push_str("</main></body></html>\n");
    out
}

fn push_targets(out: &mut String, report: &Report) {
    out.push_str("<ul class=\"targets\">");
    for (index, info) in report.targets.iter().enumerate() {
        let is_base = info.target.name == report.baseline && report.targets.len() > 1;
        let _ = write!(
            out,
            "<li><span class=\"swatch b{}\"></span><b>{}</b> {} at {}{}</li>",
            index % super::svg::COLORS,
            escape(&info.target.name),
            escape(&info.model),
            escape(&info.target.url),
            if is_base { ", the baseline of the ratios" } else { "" }
        );
    }
    out.push_str("</ul>");
}

/// A table head: names over groups of columns.
const HEAD: &str = "<table><thead><tr class=\"groups\"><th colspan=\"2\"></th><th colspan=\"3\">output</th>\
<th colspan=\"4\">TTFT, ms</th><th colspan=\"3\">ITL, ms</th><th>E2E, ms</th><th colspan=\"3\">requests</th></tr>\
<tr><th class=\"l\">load</th><th class=\"l\">target</th><th>tok/s</th><th>×</th><th>req/s</th>\
<th>mean</th><th>p50</th><th>p99</th><th>×</th><th>mean</th><th>p99</th><th>×</th><th>mean</th>\
<th>stalls</th><th>done</th><th>good</th></tr></thead>";

fn push_rows(out: &mut String, report: &Report) {
    if report.rows.is_empty() {
        return;
    }
    let _ = write!(out, "<section class=\"wide\">{HEAD}");
    for load in report.loads() {
        out.push_str("<tbody>");
        for (index, row) in report.rows.iter().filter(|row| row.load == load).enumerate() {
            push_row(out, report, row, index == 0);
        }
        out.push_str("</tbody>");
    }
    out.push_str("</table></section>");
}

fn push_row(out: &mut String, report: &Report, row: &Row, is_first: bool) {
    let summary = &row.summary;
    let load = if is_first { row.load.text() } else { String::new() };
    let _ =
        write!(out, "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td>", escape(&load), escape(&row.target));
    let with_interval = |estimate: &crate::Estimate| {
        let interval = percent(estimate.relative());
        let interval = if interval.is_empty() { interval } else { format!(" <i>± {interval}</i>") };
        format!("{}{interval}", amount(estimate.mean))
    };
    let ratio = |of: &dyn Fn(&crate::Summary) -> f64| report.ratio(row, of).map_or(String::new(), ratio_text);
    let cells = [
        with_interval(&summary.output_tok_s),
        ratio(&|summary| summary.output_tok_s.mean),
        amount(summary.req_s.mean),
        with_interval(&summary.ttft_ms.mean),
        amount(summary.ttft_ms.p50),
        amount(summary.ttft_ms.p99),
        ratio(&|summary| summary.ttft_ms.mean.mean),
        with_interval(&summary.tpot_ms.mean),
        amount(summary.itl_ms.p99),
        ratio(&|summary| summary.tpot_ms.mean.mean),
        amount(summary.e2e_ms.mean.mean),
        summary.stalls.to_string(),
        format!("{}/{}", summary.completed, summary.requests),
        summary.goodput.map_or(String::new(), |share| format!("{share:.2}")),
    ];
    for cell in cells {
        let _ = write!(out, "<td>{cell}</td>");
    }
    out.push_str("</tr>");
}

fn push_searches(out: &mut String, report: &Report) {
    let Some(first) = report.searches.first() else { return };
    let limits = report.settings.slo.map(|slo| slo.text()).unwrap_or_default();
    let _ = write!(
        out,
        "<table class=\"small\"><thead><tr><th class=\"l\">highest rate with goodput ≥ {}</th><th>req/s</th><th>×</th></tr></thead><tbody>",
        first.options.share
    );
    let base = report.searches.iter().find(|search| search.target == report.baseline);
    for search in &report.searches {
        let best = search.best_rate.map_or("none".to_owned(), amount);
        let _ = write!(
            out,
            "<tr><td class=\"l\">{}</td><td>{best}</td><td>{}</td></tr>",
            escape(&search.target),
            search_ratio(search, base)
        );
    }
    let _ = write!(out, "</tbody></table><p class=\"mute\">Good: {}.</p>", escape(&limits));
}

fn search_ratio(search: &SearchResult, base: Option<&SearchResult>) -> String {
    let base = base.filter(|base| base.target != search.target);
    base.and_then(|base| Some(ratio_text(search.best_rate? / base.best_rate?))).unwrap_or_default()
}

fn push_notes(out: &mut String, report: &Report) {
    out.push_str("<section class=\"notes\"><h2>Notes</h2><ul>");
    for note in &report.notes {
        let _ = write!(out, "<li class=\"warn\">{}</li>", escape(note));
    }
    let explained = [
        "± is half the 95 % confidence interval of a mean, by batch means: ten windows of equal length for throughput, \
         ten batches of requests in the order of their ends for latencies. Error bars in the plots are the same.",
        "× is the ratio to the baseline at the same load: above 1 is better for throughput, below 1 for latencies.",
        "TTFT: from sending the request to the first piece of text. ITL: the mean is that of the requests' own means by the \
         server's count of tokens; p99 is over all gaps between pieces of text. E2E: to the end of the stream.",
        "Latencies and throughput are of completed requests. Goodput counts failed ones as not good.",
    ];
    for line in explained {
        let _ = write!(out, "<li>{line}</li>");
    }
    let _ = write!(
        out,
        "<li>A gap above {} ms is a stall. {} requests before each row warm the target up and are not measured.</li></ul></section>",
        amount(report.settings.stall_ms),
        report.settings.warmup
    );
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::report;
    use super::*;

    #[test]
    fn the_page_stands_alone() {
        let page = html(&report());
        assert!(page.contains("&lt;model&gt; a") && !page.contains("<model>"));
        for foreign in ["<script", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        // Three plots over the clients and goodput, one search, three distributions for each of two loads.
        assert_eq!(page.matches("<svg").count(), 11);
        assert!(page.contains("3.00×") && page.contains("2.00×") && page.contains("0.95"));
        assert!(!page.contains("NaN") && !page.contains("inf"));
        for tag in ["table", "tbody", "section", "figure", "svg", "ul", "li", "tr", "td"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn an_empty_report_is_a_page() {
        let mut report = report();
        report.rows.clear();
        report.searches.clear();
        assert!(html(&report).ends_with("</html>\n"));
    }
}
