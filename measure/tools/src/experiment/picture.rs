//! The picture of an experiment: bars on a logarithmic scale, as SVG.
//!
//! It is self-contained: no script, no font to load, legible on light and on dark backgrounds.

use super::results::{Line, Results, Value};
use std::fmt::Write;

/// Narrow enough to be read on a phone without moving it.
pub const WIDTH: f64 = 560.0;
/// A line of the legend.
pub const LEGEND_LINE: f64 = 20.0;
const LEFT: f64 = 14.0;
const RIGHT: f64 = 90.0;
const BAR: f64 = 15.0;
/// The name of the work above its bars.
const NAME: f64 = 17.0;
const GAP: f64 = 8.0;

/// The styles, for light and dark backgrounds.
pub const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#222}.t{font-size:17px}\
.n{font-size:11px}.g{stroke:#8884}.s0{fill:#0b7285}.s1{fill:#e8590c}.s2{fill:#868e96}\
.s3{fill:#5f3dc4}.s4{fill:#2b8a3e}.s5{fill:#c2255c}.s6{fill:#e67700}.s7{fill:#1971c2}\
.s8{fill:#862e9c}.s9{fill:#5c940d}.l0{stroke:#0b7285}.l1{stroke:#e8590c}.l2{stroke:#868e96}\
.l3{stroke:#5f3dc4}.l4{stroke:#2b8a3e}.l5{stroke:#c2255c}.l6{stroke:#e67700}.l7{stroke:#1971c2}\
.l8{stroke:#862e9c}.l9{stroke:#5c940d}polyline{fill:none;stroke-width:2}.a{stroke:#000;stroke-width:2}.w{stroke:#000a;stroke-width:1.5}\
.h{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.a{stroke:#fff}.w{stroke:#fffa}.h{stroke:#161616}}";
/// Colours that [`STYLE`] has.
pub const COLOURS: usize = 10;

/// The picture.
pub fn draw(r: &Results) -> String {
    let measured = r.measured();
    // A value that was not measured has no bar and takes no space: the table says so.
    let bars = |line: &Line| -> Vec<(usize, Value)> {
        let value = |system: &usize| Some((*system, *line.values.get(*system)?.as_ref()?));
        measured.iter().filter_map(value).collect()
    };
    let group = |line: &Line| NAME + BAR * bars(line).len().max(1) as f64 + GAP;
    let places = legend(r, &measured);
    let legend_lines = places.last().map_or(1.0, |place| place.1 + 1.0);
    let first_line = 36.0 + (legend_lines + 1.0) * LEGEND_LINE;
    let height = first_line + r.lines.iter().map(group).sum::<f64>() + 30.0;
    let values = || r.lines.iter().flat_map(|line| line.values.iter().flatten().map(|v| v.median));
    let low = values().filter(|v| *v > 0.0).fold(f64::MAX, f64::min).max(1e-3).log10().floor();
    let high = values().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    let x = |value: f64| {
        let share = (value.max(1e-9).log10() - low) / (high - low);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <title>{0}</title><style>{STYLE}</style><text class=\"t\" x=\"8\" y=\"22\">{0}</text>\n",
        escape(&r.title)
    );
    let unit = if r.counting { "instructions" } else { "time" };
    for (index, (at, line)) in measured.iter().zip(&places) {
        let top = 36.0 + line * LEGEND_LINE;
        let _ = writeln!(
            out,
            "<rect class=\"s{}\" x=\"{at}\" y=\"{top}\" width=\"12\" height=\"12\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            index % COLOURS,
            at + 17.0,
            top + 11.0,
            escape(&r.systems[*index].title)
        );
    }
    let aims = r.lines.iter().any(|line| line.at_most.is_some());
    let scattered = r.lines.iter().flat_map(bars).any(|(_, value)| scatters(&value));
    let _ = writeln!(
        out,
        "<text class=\"n\" x=\"8\" y=\"{}\">{unit}, each line ten times the one before{}{}</text>",
        36.0 + legend_lines * LEGEND_LINE + 11.0,
        if aims { "; the mark is the aim" } else { "" },
        if scattered { "; thin lines are 95 % intervals" } else { "" }
    );
    for power in low as i32..=high as i32 {
        let value = 10f64.powi(power);
        // The first label would be cut off at the edge.
        let anchor = if power == low as i32 { "start" } else { "middle" };
        let _ = writeln!(
            out,
            "<line class=\"g\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{first_line}\" y2=\"{1}\"/>\
             <text class=\"n\" x=\"{0:.1}\" y=\"{2}\" text-anchor=\"{4}\">{3}</text>",
            x(value),
            height - 24.0,
            height - 10.0,
            axis(r, value),
            anchor
        );
    }
    let mut next = first_line;
    for line in &r.lines {
        let top = next + NAME;
        next += group(line);
        let _ = writeln!(
            out,
            "<text class=\"h\" x=\"{LEFT}\" y=\"{}\">{}</text>",
            top - 4.0,
            escape(&shortened(&line.title))
        );
        let limit = line.at_most.map(&x);
        for (place, (system, whole)) in bars(line).into_iter().enumerate() {
            let y = top + BAR * place as f64;
            let value = whole.median;
            let mut end = x(value).max(limit.filter(|_| place == 0).unwrap_or(0.0));
            let mut interval = String::new();
            if scatters(&whole) {
                let (from, to) = (x(whole.low), x(whole.high));
                end = end.max(to);
                interval = format!(
                    "<line class=\"w\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{0}\" y2=\"{0}\"/>",
                    y + BAR / 2.0 - 1.0
                );
            }
            let _ = writeln!(
                out,
                "<rect class=\"s{}\" x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"{}\"/>\
                 {interval}<text class=\"n\" x=\"{:.1}\" y=\"{}\">{}</text>",
                system % COLOURS,
                x(value) - LEFT,
                BAR - 2.0,
                // Beside the mark and the interval, not under them.
                end + 5.0,
                y + 10.5,
                r.show(value)
            );
        }
        if let Some(limit) = limit {
            let _ = writeln!(
                out,
                "<line class=\"a\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1}\" y2=\"{2}\"/>",
                limit,
                top - 2.0,
                top + BAR
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Whether an interval is wide enough to be visible.
fn scatters(value: &Value) -> bool {
    value.median > 0.0 && (value.high - value.low) / value.median > 0.1
}

/// Formats a value below the picture, where seven zeros would overlap with the next value.
fn axis(r: &Results, value: f64) -> String {
    if r.counting && value >= 1e6 {
        return format!("{} million", r.show(value / 1e6));
    }
    r.show(value)
}

/// Returns the positions of the systems' names: column and line.
pub fn legend(r: &Results, measured: &[usize]) -> Vec<(f64, f64)> {
    let (mut at, mut line) = (8.0, 0.0);
    let mut places = Vec::new();
    for system in measured {
        let width = 40.0 + 7.5 * r.systems[*system].title.chars().count() as f64;
        if at + width > WIDTH && at > 8.0 {
            (at, line) = (8.0, line + 1.0);
        }
        places.push((at, line));
        at += width;
    }
    places
}

/// Returns a title shortened to fit above the bars.
fn shortened(title: &str) -> String {
    const FITS: usize = 76;
    if title.chars().count() <= FITS {
        return title.into();
    }
    title.chars().take(FITS - 1).chain(['…']).collect()
}

/// Escapes text for content and attributes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
