//! Which plots a report has.

use super::{
    model::{Report, Row},
    svg::{Axis, Chart, Scale, Series},
};
use crate::arrivals::Load;
use crate::summary::Summary;

/// More lines in one plot can't be told apart.
const MAX_LINES: usize = 6;

/// The plots of a report, in order.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let mut charts = Vec::new();
    for axis in [kind_clients as fn(Load) -> bool, kind_rate, kind_speed] {
        let loads: Vec<Load> = report.loads().into_iter().filter(|load| axis(*load)).collect();
        if loads.len() > 1 {
            charts.extend(over_loads(report, &loads));
        }
    }
    charts.extend(searches(report));
    if report.names().len() == 1 {
        charts.extend(distributions(report, "", &lines_of_loads(report)));
    } else {
        for load in ends(&report.loads()) {
            charts.extend(distributions(
                report,
                &format!(", {}", load.text()),
                &lines_of_targets(report, load),
            ));
        }
    }
    charts.retain(|chart| chart.series.iter().any(|series| series.points.len() > 1));
    charts
}

fn kind_clients(load: Load) -> bool {
    matches!(load, Load::Concurrency(_))
}

fn kind_rate(load: Load) -> bool {
    matches!(load, Load::Rate(_))
}

fn kind_speed(load: Load) -> bool {
    matches!(load, Load::TraceSpeed(_))
}

/// The first and the last load: light and heavy.
fn ends(loads: &[Load]) -> Vec<Load> {
    let mut ends: Vec<Load> = loads.first().into_iter().chain(loads.last()).copied().collect();
    ends.dedup();
    ends
}

/// A line's name and its row.
type Line<'a> = (String, &'a Row);

fn lines_of_loads(report: &Report) -> Vec<Line<'_>> {
    report.rows.iter().map(|row| (row.load.text(), row)).take(MAX_LINES).collect()
}

fn lines_of_targets(report: &Report, load: Load) -> Vec<Line<'_>> {
    let rows = report.names().into_iter().filter_map(|name| report.row(name, load));
    rows.map(|row| (row.target.clone(), row)).take(MAX_LINES).collect()
}

fn over_loads(report: &Report, loads: &[Load]) -> Vec<Chart> {
    let label = match loads[0] {
        Load::Concurrency(_) => "clients",
        Load::Rate(_) => "requests a second",
        Load::TraceSpeed(_) => "speed of the trace",
    };
    let mut x = Axis::new(label, Scale::Log);
    x.ticks = loads.iter().map(Load::position).collect();
    x.ticks.sort_by(f64::total_cmp);
    x.ticks.dedup();
    let chart = |title: &str, y: Axis, series: Vec<Series>| Chart {
        title: title.to_owned(),
        x: x.clone(),
        y,
        series,
        rules: Vec::new(),
    };
    let lines = |value: Value<'_>| over(report, loads, value);
    let tokens = lines(&|s| (s.output_tok_s.mean, Some((s.output_tok_s.low.max(0.0), s.output_tok_s.high))));
    let mut first = lines(&|s| (s.ttft_ms.p50, None));
    let late = lines(&|s| (s.ttft_ms.p99, None));
    first.extend(late.into_iter().map(|line| Series { name: String::new(), is_dashed: true, ..line }));
    let between = lines(&|s| (s.tpot_ms.mean.mean, Some((s.tpot_ms.mean.low.max(0.0), s.tpot_ms.mean.high))));
    let mut charts = vec![
        chart("Output throughput", Axis::new("tokens a second", Scale::Linear), tokens),
        chart("Time to first token: median, dashed p99", Axis::new("ms", Scale::Log), first),
        chart("Mean time between tokens", Axis::new("ms", Scale::Log), between),
    ];
    if report.rows.iter().any(|row| row.summary.goodput.is_some()) {
        let mut y = Axis::new("share of good requests", Scale::Linear);
        y.includes = vec![0.0, 1.0];
        charts.push(chart("Goodput", y, lines(&|s| (s.goodput.unwrap_or(0.0), None))));
    }
    charts
}

/// What of a row is plotted: a value, with the ends of its error bar where it has one.
type Value<'a> = &'a dyn Fn(&Summary) -> (f64, Option<(f64, f64)>);

/// One line for each target: a value, with error bars where there are any, over the loads.
fn over(report: &Report, loads: &[Load], value: Value<'_>) -> Vec<Series> {
    let mut loads = loads.to_vec();
    loads.sort_by(|a, b| a.position().total_cmp(&b.position()));
    let line = |(color, name): (usize, &str)| {
        let rows =
            loads.iter().filter_map(|load| report.row(name, *load)).filter(|row| row.summary.completed > 0);
        let values: Vec<_> = rows.map(|row| (row.load.position(), value(&row.summary))).collect();
        Series {
            name: name.to_owned(),
            color,
            points: values.iter().map(|(at, (value, _))| (*at, *value)).collect(),
            bars: values.iter().filter_map(|(_, (_, bar))| *bar).collect(),
            has_markers: true,
            is_dashed: false,
        }
    };
    report.names().into_iter().take(MAX_LINES).enumerate().map(line).collect()
}

/// Distributions of latencies and the output rate over time, one line for each row.
fn distributions(report: &Report, suffix: &str, lines: &[Line<'_>]) -> Vec<Chart> {
    let series = |points: &dyn Fn(&Row) -> Vec<(f64, f64)>| {
        let lines = lines.iter().enumerate();
        let line = |(index, (name, row)): (usize, &Line<'_>)| {
            let is_single = report.names().len() == 1;
            let color = report.names().iter().position(|name| *name == row.target).filter(|_| !is_single);
            Series {
                name: name.clone(),
                color: color.unwrap_or(index),
                points: points(row),
                ..Series::default()
            }
        };
        lines.map(line).collect::<Vec<_>>()
    };
    let share = |quantiles: &[f64]| -> Vec<(f64, f64)> {
        quantiles.iter().enumerate().map(|(percent, value)| (*value, percent as f64 / 100.0)).collect()
    };
    let cdf = |title: String, of: &str, series: Vec<Series>| {
        let mut y = Axis::new(&format!("share of {of}"), Scale::Linear);
        y.includes = vec![0.0, 1.0];
        Chart { title, x: Axis::new("ms", Scale::Log), y, series, rules: Vec::new() }
    };
    let time = Chart {
        title: format!("Output rate over time{suffix}"),
        x: Axis::new("seconds", Scale::Linear),
        y: Axis::new("tokens a second", Scale::Linear),
        series: series(&timeline),
        rules: Vec::new(),
    };
    vec![
        cdf(
            format!("Time to first token: distribution{suffix}"),
            "requests",
            series(&|row| share(&row.summary.ttft_ms.quantiles)),
        ),
        cdf(
            format!("Between pieces of text: distribution{suffix}"),
            "gaps",
            series(&|row| share(&row.summary.itl_ms.quantiles)),
        ),
        time,
    ]
}

fn timeline(row: &Row) -> Vec<(f64, f64)> {
    let timeline = &row.summary.timeline;
    let at = |step: usize| (step as f64 + 0.5) * timeline.step_s;
    timeline.tok_s.iter().enumerate().map(|(step, rate)| (at(step), *rate)).collect()
}

fn searches(report: &Report) -> Option<Chart> {
    let first = report.searches.first()?;
    let names = report.names();
    let line = |search: &super::SearchResult| {
        let mut points: Vec<(f64, f64)> =
            search.tried.iter().map(|probe| (probe.rate, probe.goodput)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let color = names.iter().position(|name| *name == search.target).unwrap_or(0);
        Series { name: search.target.clone(), color, points, has_markers: true, ..Series::default() }
    };
    let mut y = Axis::new("share of good requests", Scale::Linear);
    y.includes = vec![0.0, 1.0];
    Some(Chart {
        title: format!("Goodput against rate; the line is {}", first.options.share),
        x: Axis::new("requests a second", Scale::Log),
        y,
        series: report.searches.iter().take(MAX_LINES).map(line).collect(),
        rules: vec![first.options.share],
    })
}
