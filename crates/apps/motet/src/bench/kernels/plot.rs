//! The roofline (Williams, Waterman and Patterson, 2009) as a drawing: operations a second over operations
//! per byte, both logarithmic.

use std::fmt::Write;

use motet_kernels::machine::Limits;
use motet_model::Isa;

use super::points::Point;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Told apart by people who see colours differently (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7A6A00", "#666666"];

/// Both axes.
struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    /// Whole decades that hold all values.
    fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
        let logs = values.filter(|v| v.is_finite() && *v > 0.0).map(f64::log10);
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high { (0.0, 1.0) } else { (low.floor(), high.ceil().max(low.floor() + 1.0)) }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value.log10() - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value.log10() - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - TOP - BOTTOM)
    }
}

/// A ceiling: a bandwidth up to where it meets a peak, then the peak.
struct Ceiling {
    label: String,
    bandwidth: f64,
    peak: f64,
}

/// The drawing, with what each point is as its tooltip.
pub(super) fn svg(limits: &Limits, isa: Isa, points: &[Point]) -> String {
    let (int8, f32) = (limits.int8_of(isa.name()), limits.f32_of(isa.name()));
    let ceilings = [
        Ceiling { label: format!("int8 {int8:.0} Gop/s"), bandwidth: limits.small_model, peak: int8 },
        Ceiling { label: format!("f32 {f32:.0} GFLOP/s"), bandwidth: limits.small_model, peak: f32 },
    ];
    let ridge = int8.max(f32) / limits.memory.min(limits.small_model).max(1e-9);
    let axes = Axes {
        x: Axes::decades(points.iter().map(Point::intensity).chain([1.0, ridge])),
        y: Axes::decades(points.iter().map(|p| p.gops).chain([int8, f32])),
    };
    let mut out = String::new();
    frame(&mut out, &axes, &format!("{} threads, {}", limits.threads, isa.name()));
    ceilings.iter().filter(|c| c.peak > 0.0).for_each(|ceiling| draw_ceiling(&mut out, &axes, ceiling));
    draw_bandwidths(&mut out, &axes, limits, int8.max(f32));
    draw_points(&mut out, &axes, points);
    out.push_str("</svg>\n");
    out
}

// Writing to a string does not fail: the results below are not looked at.

fn frame(out: &mut String, axes: &Axes, title: &str) {
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"16\">Kernels under the machine's roof ({title})</text>"
    );
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for decade in axes.x.0 as i32..=axes.x.1 as i32 {
        let x = axes.x(10f64.powi(decade));
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#dddddd\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            bottom + 18.0,
            tick(decade)
        );
    }
    for decade in axes.y.0 as i32..=axes.y.1 as i32 {
        let y = axes.y(10f64.powi(decade));
        let _ = writeln!(
            out,
            "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#dddddd\"/><text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            tick(decade)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">operations per byte</text>\n\
         <text x=\"18\" y=\"{:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {:.1})\">Gop/s</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 16.0,
        (TOP + bottom) / 2.0,
        (TOP + bottom) / 2.0
    );
}

fn tick(decade: i32) -> String {
    if decade >= 0 { format!("{:.0}", 10f64.powi(decade)) } else { format!("{}", 10f64.powi(decade)) }
}

fn draw_ceiling(out: &mut String, axes: &Axes, ceiling: &Ceiling) {
    let ridge = (ceiling.peak / ceiling.bandwidth).max(10f64.powf(axes.x.0));
    let _ = writeln!(
        out,
        "<path d=\"M{:.1} {:.1}H{:.1}\" stroke=\"#333333\" stroke-width=\"1.5\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        axes.x(ridge),
        axes.y(ceiling.peak),
        WIDTH - RIGHT,
        WIDTH - RIGHT - 4.0,
        axes.y(ceiling.peak) - 6.0,
        ceiling.label
    );
}

/// Diagonals up to the highest peak.
fn draw_bandwidths(out: &mut String, axes: &Axes, limits: &Limits, top: f64) {
    let lines = [(limits.small_model, "96 MiB", ""), (limits.memory, "memory", " stroke-dasharray=\"5 4\"")];
    for (row, (bandwidth, label, style)) in lines.into_iter().enumerate() {
        let start = 10f64.powf(axes.x.0).max(10f64.powf(axes.y.0) / bandwidth);
        let end = top / bandwidth;
        let _ = writeln!(
            out,
            "<path d=\"M{:.1} {:.1}L{:.1} {:.1}\" stroke=\"#333333\" stroke-width=\"1.5\"{style}/>\n\
             <path d=\"M{:.1} {y:.1}h24\" stroke=\"#333333\" stroke-width=\"1.5\"{style}/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{label} {bandwidth:.1} GB/s</text>",
            axes.x(start),
            axes.y(start * bandwidth),
            axes.x(end),
            axes.y(top),
            WIDTH - RIGHT + 14.0,
            WIDTH - RIGHT + 44.0,
            TOP + 14.0 + 20.0 * row as f64,
            y = TOP + 10.0 + 20.0 * row as f64
        );
    }
}

/// A dot for each point with its number of rows, a square for attention; a legend of the formats.
fn draw_points(out: &mut String, axes: &Axes, points: &[Point]) {
    let mut formats: Vec<&str> = Vec::new();
    for point in points {
        if !formats.contains(&point.format) {
            formats.push(point.format);
        }
        let index = formats.iter().position(|format| *format == point.format).unwrap_or(0);
        let (x, y, colour) = (axes.x(point.intensity()), axes.y(point.gops), COLOURS[index % COLOURS.len()]);
        let _ = writeln!(
            out,
            "<g fill=\"{colour}\"><title>{}, {} rows: {:.1} Gop/s, {:.1} GB/s, {:.0}% of the limit</title>{}\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"8\">{}</text></g>",
            point.name,
            point.rows,
            point.gops,
            point.gigabytes,
            100.0 * point.share(),
            mark(point.kernel, x, y),
            x + 5.0,
            y + 3.0,
            point.rows
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#666666\">numbers: rows at once</text>",
        WIDTH - RIGHT + 14.0,
        TOP + 74.0 + 20.0 * formats.len() as f64
    );
    for (row, format) in formats.iter().enumerate() {
        let y = TOP + 64.0 + 20.0 * row as f64;
        let kernel = points.iter().find(|point| point.format == *format).map_or("", |point| point.kernel);
        let _ = writeln!(
            out,
            "<g fill=\"{}\">{}<text x=\"{:.1}\" y=\"{:.1}\">{format} ({kernel})</text></g>",
            COLOURS[row % COLOURS.len()],
            mark(kernel, WIDTH - RIGHT + 26.0, y),
            WIDTH - RIGHT + 44.0,
            y + 4.0
        );
    }
}

fn mark(kernel: &str, x: f64, y: f64) -> String {
    match kernel {
        "attention" => {
            let (left, top) = (x - 3.5, y - 3.5);
            format!("<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"7\" height=\"7\"/>")
        }
        _ => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>"),
    }
}
