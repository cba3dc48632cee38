//! The pictures of a sweep: one line for each system over the size, both axes logarithmic, as
//! self-contained SVG.

use super::picture::{COLOURS, LEGEND_LINE, STYLE, WIDTH, escape, legend};
use super::results::{Curve, Results};
use measure_data::units::size;
use std::fmt::Write;

const LEFT: f64 = 84.0;
const RIGHT: f64 = 20.0;
const PLOT: f64 = 300.0;

/// The picture of one curve.
pub fn draw(r: &Results, curve: &Curve) -> String {
    let measured: Vec<usize> = (0..r.systems.len())
        .filter(|at| curve.points.iter().any(|p| p.values.get(*at).is_some_and(Option::is_some)))
        .collect();
    let places = legend(r, &measured);
    let legend_lines = places.last().map_or(1.0, |place| place.1 + 1.0);
    let top = 40.0 + legend_lines * LEGEND_LINE;
    let (bottom, right) = (top + PLOT, WIDTH - RIGHT);
    let values = || {
        curve
            .points
            .iter()
            .flat_map(|p| p.values.iter().flatten().map(|v| v.median))
            .filter(|v| *v > 0.0)
    };
    let low = values().fold(f64::MAX, f64::min).max(1e-3).log10().floor();
    let high = values().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let positions = || curve.points.iter().map(|p| p.x.max(1.0).log2());
    let first = positions().fold(f64::MAX, f64::min);
    let last = positions().fold(f64::MIN, f64::max).max(first + 1.0);
    let x =
        |v: f64| LEFT + (v.max(1.0).log2() - first) / (last - first) * (right - LEFT - 20.0) + 10.0;
    let y = |v: f64| bottom - (v.max(1e-9).log10() - low) / (high - low) * PLOT;

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\
         <title>{1}</title><style>{STYLE}</style><text class=\"t\" x=\"8\" y=\"22\">{1}</text>\n",
        bottom + 48.0,
        escape(&curve.title)
    );
    for (system, (at, line)) in measured.iter().zip(&places) {
        let top = 36.0 + line * LEGEND_LINE;
        let _ = writeln!(
            out,
            "<rect class=\"s{}\" x=\"{at}\" y=\"{top}\" width=\"12\" height=\"12\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            system % COLOURS,
            at + 17.0,
            top + 11.0,
            escape(&r.systems[*system].title)
        );
    }
    for power in low as i32..=high as i32 {
        let value = 10f64.powi(power);
        let _ = writeln!(
            out,
            "<line class=\"g\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>\
             <text class=\"n\" x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text>",
            y(value),
            LEFT - 8.0,
            y(value) + 4.0,
            escape(&r.show(value))
        );
    }
    for point in &curve.points {
        let name = if curve.unit == "bytes" { size(point.x) } else { format!("{:.0}", point.x) };
        let _ = writeln!(
            out,
            "<line class=\"g\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"n\" x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2}</text>",
            x(point.x),
            bottom + 16.0,
            escape(&name)
        );
    }
    let unit = if r.counting { "instructions" } else { "time" };
    let _ = writeln!(
        out,
        "<text class=\"n\" x=\"{LEFT}\" y=\"{0}\">{unit} over {1}, both axes logarithmic</text>",
        bottom + 38.0,
        if curve.unit == "bytes" { "size" } else { &curve.unit }
    );
    for system in measured {
        let colour = system % COLOURS;
        let points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .filter_map(|p| Some((x(p.x), y(p.values.get(system)?.as_ref()?.median))))
            .collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(out, "<polyline class=\"l{colour}\" points=\"{}\"/>", path.join(" "));
        for (x, y) in points {
            let _ = writeln!(
                out,
                "<circle class=\"s{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"
            );
        }
    }
    out.push_str("</svg>\n");
    out
}
