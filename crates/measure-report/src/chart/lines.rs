//! Line charts with intervals as bands and marks at positions of interest.

use super::{COLOURS, Scale};
use crate::markup::escape;
use std::fmt::Write;

/// A measured point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Position.
    pub x: f64,
    /// Value.
    pub y: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Points joined by a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// For the legend.
    pub name: String,
    /// In ascending order of x.
    pub points: Vec<Point>,
}

/// A vertical line with a word.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// What.
    pub text: String,
    /// Found by measurement (solid) or reported by the machine (dashed).
    pub found: bool,
}

/// A line chart.
pub struct LineChart<'a> {
    /// The content of the chart, as text for readers who cannot see it.
    pub title: &'a str,
    /// Name of the horizontal axis.
    pub x_name: &'a str,
    /// Whether x is logarithmic (base 2).
    pub x_log: bool,
    /// Whether y is logarithmic (base 10).
    pub y_log: bool,
    /// Prints a position.
    pub x_text: &'a dyn Fn(f64) -> String,
    /// Prints a value.
    pub y_text: &'a dyn Fn(f64) -> String,
    /// The lines.
    pub series: &'a [Series],
    /// The marks.
    pub marks: &'a [Mark],
    /// Width in units of the drawing; the page scales it.
    pub width: f64,
    /// Height.
    pub height: f64,
}

const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
const BOTTOM: f64 = 44.0;
const MARK_LINE: f64 = 15.0;

impl LineChart<'_> {
    /// The `<svg>`.
    pub fn draw(&self) -> String {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let least = |f: fn(&Point) -> f64| points().map(f).fold(f64::INFINITY, f64::min);
        let most = |f: fn(&Point) -> f64| points().map(f).fold(f64::NEG_INFINITY, f64::max);
        let top = 10.0 + MARK_LINE * self.marks.len().min(4) as f64;
        let (right, bottom) = (self.width - RIGHT, self.height - BOTTOM);
        let x = if self.x_log {
            Scale::logarithmic(2.0, least(|p| p.x), most(|p| p.x), LEFT, right)
        } else {
            Scale::linear(least(|p| p.x), most(|p| p.x), LEFT, right)
        };
        let y = if self.y_log {
            let low = points().map(|p| p.low).filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
            Scale::logarithmic(10.0, low * 0.85, most(|p| p.high) * 1.15, bottom, top)
        } else {
            Scale::linear(0.0, most(|p| p.high) * 1.06, bottom, top)
        };

        let mut svg = format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
            self.width,
            self.height,
            escape(self.title)
        );
        for tick in y.ticks(6) {
            let at = y.at(tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                at + 4.0,
                escape(&(self.y_text)(tick))
            );
        }
        for tick in x.whole_ticks(((right - LEFT) / 64.0) as usize) {
            let at = x.at(tick);
            // A word at the edge would be cut off.
            let anchor = if at > right - 12.0 { "end" } else { "middle" };
            let edge = if at > right - 12.0 { right + RIGHT - 2.0 } else { at };
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{bottom}\" y2=\"{:.1}\"/>\
                 <text class=\"tick\" x=\"{edge:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
                bottom + 5.0,
                bottom + 19.0,
                escape(&(self.x_text)(tick))
            );
        }
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            self.height - 6.0,
            escape(self.x_name)
        );
        self.draw_marks(&mut svg, &x, bottom);
        for (i, series) in self.series.iter().enumerate() {
            draw_series(&mut svg, series, i % COLOURS, &x, &y);
        }
        svg.push_str("</svg>");
        svg
    }

    fn draw_marks(&self, svg: &mut String, x: &Scale, bottom: f64) {
        for (i, mark) in self.marks.iter().enumerate() {
            let at = x.at(mark.x);
            let line = 4.0 + MARK_LINE * (i % 4 + 1) as f64;
            let (class, text_class) =
                if mark.found { ("found", "foundtext") } else { ("mark", "tick") };
            // Words right of the middle go to the left of their line.
            let middle = f64::midpoint(LEFT, self.width - RIGHT);
            let (anchor, shift) = if at > middle { ("end", -5.0) } else { ("start", 5.0) };
            let _ = write!(
                svg,
                "<line class=\"{class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{bottom}\"/>\
                 <text class=\"{text_class} halo\" x=\"{:.1}\" y=\"{line:.1}\" text-anchor=\"{anchor}\">{}</text>",
                line - 9.0,
                at + shift,
                escape(&mark.text)
            );
        }
    }
}

fn draw_series(svg: &mut String, series: &Series, colour: usize, x: &Scale, y: &Scale) {
    let pair = |px: f64, py: f64| format!("{:.1},{:.1}", x.at(px), y.at(py));
    if series.points.len() > 1 {
        let upper = series.points.iter().map(|p| pair(p.x, p.high));
        let lower = series.points.iter().rev().map(|p| pair(p.x, p.low));
        let band: Vec<String> = upper.chain(lower).collect();
        let line: Vec<String> = series.points.iter().map(|p| pair(p.x, p.y)).collect();
        let _ = write!(
            svg,
            "<polygon class=\"band f{colour}\" points=\"{}\"/>\
             <polyline class=\"line s{colour}\" points=\"{}\"/>",
            band.join(" "),
            line.join(" ")
        );
    }
    let radius = if series.points.len() > 30 { 1.8 } else { 3.0 };
    for p in &series.points {
        let _ = write!(
            svg,
            "<circle class=\"f{colour}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\"/>",
            x.at(p.x),
            y.at(p.y)
        );
    }
}
