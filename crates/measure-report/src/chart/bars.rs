//! Horizontal bars from zero, with the interval as a whisker and the prediction as a tick.

use super::{COLOURS, Scale};
use crate::markup::escape;
use std::fmt::Write;

/// A row: one bar for each run.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The name of the row.
    pub name: String,
    /// For each run: value, lower and upper end of its interval; `None` where not measured.
    pub values: Vec<Option<(f64, f64, f64)>>,
    /// The prediction of the first run.
    pub predicted: Option<f64>,
}

/// A bar chart.
pub struct BarChart<'a> {
    /// The content of the chart, as text for readers who cannot see it.
    pub title: &'a str,
    /// The rows.
    pub bars: &'a [Bar],
    /// Prints a value.
    pub text: &'a dyn Fn(f64) -> String,
}

// Narrow enough to be read on a phone without moving it.
const WIDTH: f64 = 480.0;
const LEFT: f64 = 168.0;
const RIGHT: f64 = 74.0;
const TOP: f64 = 4.0;
const BOTTOM: f64 = 26.0;

impl BarChart<'_> {
    /// The `<svg>`.
    pub fn draw(&self) -> String {
        let runs = self.bars.iter().map(|b| b.values.len()).max().unwrap_or(1);
        let thick = if runs == 1 { 16.0 } else { 12.0 };
        let row = thick * runs as f64 + 9.0;
        let height = TOP + row * self.bars.len() as f64 + BOTTOM;
        let bottom = height - BOTTOM;
        let measured = self.bars.iter().flat_map(|b| b.values.iter().flatten().map(|v| v.0));
        let most = measured.fold(0.0, f64::max);
        // A prediction far beyond would compress all bars; it is drawn at the edge then.
        let predicted = self.bars.iter().filter_map(|b| b.predicted).fold(0.0, f64::max);
        let end = most.max(predicted.min(most * 1.3));
        let x = Scale::linear(0.0, end, LEFT, WIDTH - RIGHT);

        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(self.title)
        );
        for tick in x.ticks(4) {
            let at = x.at(tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
                 <text class=\"tick\" x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 17.0,
                escape(&(self.text)(tick))
            );
        }
        for (i, bar) in self.bars.iter().enumerate() {
            let top = TOP + row * i as f64 + 4.0;
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                top + thick * runs as f64 / 2.0 + 4.5,
                escape(&bar.name)
            );
            for (run, value) in bar.values.iter().enumerate() {
                if let Some((value, low, high)) = value {
                    let y = top + thick * run as f64;
                    self.one(&mut svg, &x, y, thick, run, (*value, *low, *high));
                }
            }
            if let Some(predicted) = bar.predicted {
                let at = x.at(predicted);
                let _ = write!(
                    svg,
                    "<line class=\"predicted\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    top - 2.0,
                    top + thick * runs as f64 + 2.0
                );
                // The edge is not its position: an arrow and its value show that.
                if predicted > end * 1.001 {
                    let _ = write!(
                        svg,
                        "<text class=\"tick halo\" x=\"{:.1}\" y=\"{:.1}\">→ {}</text>",
                        at + 4.0,
                        top + thick * runs as f64 / 2.0 + 4.0,
                        escape(&(self.text)(predicted))
                    );
                }
            }
        }
        svg.push_str("</svg>");
        svg
    }

    fn one(
        &self,
        svg: &mut String,
        x: &Scale,
        y: f64,
        thick: f64,
        run: usize,
        (value, low, high): (f64, f64, f64),
    ) {
        let (end, colour) = (x.at(value), run % COLOURS);
        let middle = y + thick / 2.0;
        // An interval that extends far beyond all bars ends where the value's text still fits.
        let edge = WIDTH - RIGHT;
        let (from, to) = (x.at(low).min(edge), x.at(high).min(edge));
        let _ = write!(
            svg,
            "<rect class=\"f{colour}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\"/>\
             <line class=\"whisker\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>\
             <text class=\"tick halo\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            y + 1.0,
            (end - LEFT).max(1.0),
            thick - 2.0,
            end.max(to) + 6.0,
            middle + 4.0,
            escape(&(self.text)(value))
        );
    }
}
