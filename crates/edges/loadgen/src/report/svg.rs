//! Line plots as SVG. Colours are classes (`c0` … `c5`), which the page defines for light and dark.

use std::fmt::Write;

/// How values are laid out along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// In proportion.
    Linear,
    /// By their logarithm; values up to 0 are left out.
    Log,
}

/// One axis.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    /// Where ticks stand; empty for round numbers.
    pub(super) ticks: Vec<f64>,
    /// The axis covers these, whatever the data.
    pub(super) includes: Vec<f64>,
}

impl Axis {
    pub(super) fn new(label: &str, scale: Scale) -> Self {
        Self { label: label.to_owned(), scale, ticks: Vec::new(), includes: Vec::new() }
    }
}

/// A line.
#[derive(Debug, Clone, Default)]
pub(super) struct Series {
    pub(super) name: String,
    /// Which colour.
    pub(super) color: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// Lower and upper ends of error bars, one for each point, or none.
    pub(super) bars: Vec<(f64, f64)>,
    pub(super) has_markers: bool,
    pub(super) is_dashed: bool,
}

/// A plot.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Values of y with a line across.
    pub(super) rules: Vec<f64>,
}

/// Colours the page defines.
pub(super) const COLORS: usize = 6;

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 350.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 50.0;
const LEGEND_LINE: f64 = 20.0;
/// Average width of a letter at the size of the labels.
const LETTER: f64 = 6.7;

/// From values to places.
#[derive(Debug, Clone)]
struct Map {
    scale: Scale,
    low: f64,
    high: f64,
    /// Where `low` and `high` are drawn.
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Map {
    fn new(axis: &Axis, values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let is_shown = |value: &f64| value.is_finite() && (axis.scale == Scale::Linear || *value > 0.0);
        let all = values.chain(axis.includes.iter().copied()).chain(axis.ticks.iter().copied());
        let bounds = all.filter(is_shown).fold(None, |bounds: Option<(f64, f64)>, value| {
            Some(bounds.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let (low, high) = bounds.unwrap_or((1.0, 2.0));
        let (low, high, ticks) = match axis.scale {
            Scale::Linear => linear(low.min(0.0), high),
            Scale::Log => logarithmic(low, high),
        };
        if axis.ticks.is_empty() {
            return Self { scale: axis.scale, low, high, from, to, ticks };
        }
        // Given ticks bound the axis, with a little room so that markers are whole.
        let (first, last) = bounds.unwrap_or((1.0, 2.0));
        let (low, high) = match axis.scale {
            Scale::Log => {
                let room = if last > first { (last / first).powf(0.04) } else { 1.5 };
                (first / room, last * room)
            }
            Scale::Linear => {
                let room = if last > first { (last - first) * 0.04 } else { 1.0 };
                (first - room, last + room)
            }
        };
        Self { scale: axis.scale, low, high, from, to, ticks: axis.ticks.clone() }
    }

    /// The place of the end of an error bar, which may lie outside the axis.
    fn place_end(&self, value: f64) -> Option<f64> {
        self.place(value.clamp(self.low, self.high))
    }

    fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log if value > 0.0 => (value / self.low).ln() / (self.high / self.low).ln(),
            Scale::Log => return None,
        };
        (share.is_finite() && (-0.001..=1.001).contains(&share))
            .then_some(self.from + share * (self.to - self.from))
    }
}

/// Bounds and ticks at 1, 2 or 5 times a power of ten, about five of them.
fn linear(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let span = if high > low { high - low } else { high.abs().max(1.0) };
    let rough = span / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|factor| factor * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let (first, last) = ((low / step).floor() as i64, ((low + span) / step - 1e-9).ceil() as i64);
    (first as f64 * step, last as f64 * step, (first..=last).map(|tick| tick as f64 * step).collect())
}

/// Bounds and ticks at powers of ten, with 2 and 5 between them where there are few.
fn logarithmic(low: f64, high: f64) -> (f64, f64, Vec<f64>) {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let factors: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let ticks = (first..=last).flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    let all: Vec<f64> = ticks.collect();
    // The nearest ticks outside the data are the bounds.
    let below = all.iter().copied().rfind(|tick| *tick <= low * 1.0001).unwrap_or(low);
    let above = all.iter().copied().find(|tick| *tick >= high * 0.9999).unwrap_or(high);
    let above = if above > below { above } else { below * 10.0 };
    (below, above, all.into_iter().filter(|tick| (below..=above).contains(tick)).collect())
}

/// A tick's number, without zeros that say nothing.
fn tick_text(value: f64) -> String {
    let size = value.abs();
    let text = if size >= 1e6 {
        format!("{:.1}M", value / 1e6)
    } else if size >= 1e4 {
        format!("{:.0}k", value / 1e3)
    } else {
        format!("{value:.3}")
    };
    let (number, unit) = text.split_at(text.len() - usize::from(text.ends_with(['M', 'k'])));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

/// The plot as an `svg` element.
pub(super) fn svg(chart: &Chart) -> String {
    let legend = legend(&chart.series);
    let top = 14.0 + legend.1;
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let bars = || chart.series.iter().flat_map(|series| &series.bars).flat_map(|(low, high)| [*low, *high]);
    let x = Map::new(&chart.x, points().map(|point| point.0), (LEFT, WIDTH - RIGHT));
    let values = points().map(|point| point.1).chain(bars()).chain(chart.rules.iter().copied());
    let y = Map::new(&chart.y, values, (HEIGHT - BOTTOM, top));
    let title = escape(&chart.title);
    let mut out = format!(r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">"#);
    out.push_str(&legend.0);
    push_axes(&mut out, chart, (&x, &y), top);
    for rule in chart.rules.iter().filter_map(|rule| y.place(*rule)) {
        let _ = write!(
            out,
            r#"<line class="rule" x1="{LEFT}" x2="{:.1}" y1="{rule:.1}" y2="{rule:.1}"/>"#,
            WIDTH - RIGHT
        );
    }
    for series in &chart.series {
        push_series(&mut out, series, (&x, &y));
    }
    out.push_str("</svg>");
    out
}

/// The legend's elements and its height.
fn legend(series: &[Series]) -> (String, f64) {
    let mut out = String::new();
    let (mut at, mut line) = (LEFT, 0.0);
    for entry in series.iter().filter(|series| !series.name.is_empty()) {
        let width = 34.0 + LETTER * entry.name.chars().count() as f64;
        if at + width > WIDTH && at > LEFT {
            (at, line) = (LEFT, line + LEGEND_LINE);
        }
        let y = 12.0 + line;
        let dash = if entry.is_dashed { " dash" } else { "" };
        let color = entry.color % COLORS;
        let _ = write!(
            out,
            r#"<line class="line c{color}{dash}" x1="{at:.1}" x2="{:.1}" y1="{y}" y2="{y}"/><text class="name" x="{:.1}" y="{:.1}">{}</text>"#,
            at + 20.0,
            at + 26.0,
            y + 4.0,
            escape(&entry.name)
        );
        at += width + 10.0;
    }
    let height = if out.is_empty() { 0.0 } else { line + LEGEND_LINE };
    (out, height)
}

fn push_axes(out: &mut String, chart: &Chart, (x, y): (&Map, &Map), top: f64) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in &y.ticks {
        let Some(at) = y.place(*tick) else { continue };
        let _ = write!(
            out,
            r#"<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1}" y2="{at:.1}"/><text class="tick end" x="{:.1}" y="{:.1}">{}</text>"#,
            LEFT - 8.0,
            at + 4.0,
            tick_text(*tick)
        );
    }
    for tick in &x.ticks {
        let Some(at) = x.place(*tick) else { continue };
        let _ = write!(
            out,
            r#"<line class="grid" x1="{at:.1}" x2="{at:.1}" y1="{top:.1}" y2="{:.1}"/><text class="tick middle" x="{at:.1}" y="{:.1}">{}</text>"#,
            bottom + 5.0,
            bottom + 19.0,
            tick_text(*tick)
        );
    }
    let middle = f64::midpoint(top, bottom);
    let _ = write!(
        out,
        r#"<path class="axis" d="M{LEFT} {top:.1}V{bottom:.1}H{right}"/><text class="label middle" x="{:.1}" y="{:.1}">{}</text><text class="label middle" transform="translate(14 {middle:.1}) rotate(-90)">{}</text>"#,
        f64::midpoint(LEFT, right),
        HEIGHT - 10.0,
        escape(&chart.x.label),
        escape(&chart.y.label)
    );
}

fn push_series(out: &mut String, series: &Series, (x, y): (&Map, &Map)) {
    let color = series.color % COLORS;
    let placed: Vec<(f64, f64)> =
        series.points.iter().filter_map(|(at, value)| Some((x.place(*at)?, y.place(*value)?))).collect();
    let steps = placed
        .iter()
        .enumerate()
        .map(|(index, (px, py))| format!("{}{px:.1} {py:.1}", if index == 0 { "M" } else { "L" }));
    let dash = if series.is_dashed { " dash" } else { "" };
    let path: String = steps.collect();
    let _ = write!(out, r#"<path class="line c{color}{dash}" d="{path}"/>"#);
    for ((at, _), (low, high)) in series.points.iter().zip(&series.bars) {
        let (Some(at), Some(low), Some(high)) = (x.place(*at), y.place_end(*low), y.place_end(*high)) else {
            continue;
        };
        let _ = write!(
            out,
            r#"<path class="bar c{color}" d="M{at:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8"/>"#,
            at - 4.0,
            at - 4.0
        );
    }
    if series.has_markers {
        for (px, py) in &placed {
            let _ = write!(out, r#"<circle class="dot c{color}" cx="{px:.1}" cy="{py:.1}" r="3.6"/>"#);
        }
    }
}

/// Text inside HTML and SVG, attributes included.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        let check =
            |low: f64, high: f64, expected: &[f64]| assert_eq!(linear(low, high).2, expected, "{low} {high}");
        check(0.0, 100.0, &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        check(0.0, 7.0, &[0.0, 2.0, 4.0, 6.0, 8.0]);
        check(0.0, 1.0, &[0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        check(0.0, 0.0, &[0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(logarithmic(3.0, 80.0).2, [2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(logarithmic(1.0, 1e6).2.len(), 7);
        assert_eq!(logarithmic(5.0, 5.0), (5.0, 50.0, vec![5.0, 10.0, 20.0, 50.0]));
        assert_eq!(["0.6", "20k", "1.5M", "0", "1000"], [0.6, 2e4, 1.5e6, 0.0, 1e3].map(tick_text)[..]);
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("<a href=\"x\">&'\u{1b}"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39; ");
    }

    #[test]
    fn a_chart_is_drawn() {
        let series = Series {
            name: "a < b".to_owned(),
            points: vec![(1.0, 10.0), (8.0, 20.0)],
            bars: vec![(9.0, 11.0), (18.0, 22.0)],
            has_markers: true,
            ..Series::default()
        };
        let mut x = Axis::new("clients", Scale::Log);
        x.ticks = vec![1.0, 8.0];
        let y = Axis::new("tokens/s", Scale::Linear);
        let text = svg(&Chart { title: "t".to_owned(), x, y, series: vec![series], rules: vec![15.0] });
        assert_eq!(text.matches("<circle").count(), 2);
        assert_eq!(text.matches("class=\"bar").count(), 2);
        assert!(
            text.contains("a &lt; b") && text.contains("class=\"rule\"") && !text.contains("NaN"),
            "{text}"
        );
    }

    proptest! {
        /// Whatever the data, places are numbers inside the picture.
        #[test]
        fn places_are_inside(values in proptest::collection::vec(-1e9f64..1e9, 0..20), is_log in any::<bool>()) {
            let axis = Axis::new("", if is_log { Scale::Log } else { Scale::Linear });
            let map = Map::new(&axis, values.iter().copied(), (10.0, 200.0));
            prop_assert!(map.ticks.len() <= 40, "{:?}", map.ticks);
            for value in values {
                let place = map.place(value);
                prop_assert!(place.is_none_or(|at| (9.0..=201.0).contains(&at)));
                prop_assert_eq!(place.is_some(), !is_log || value > 0.0, "{}", value);
            }
        }
    }
}
