//! Horizontal bars from zero, with the interval as a whisker and the prediction as a tick.

use super::COLOURS;
use measure_chart::{Anchor, Picture, Scale, Tick};

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
        let end = self.end();
        let x = Scale::linear(0.0, end, LEFT, WIDTH - RIGHT);
        let mut picture = Picture::in_page(WIDTH, height, self.title);
        let ticks: Vec<Tick> =
            x.ticks(4).into_iter().map(|tick| Tick::new(x.at(tick), (self.text)(tick))).collect();
        picture.axis_below(&ticks, (TOP, height - BOTTOM), 17.0);
        for (i, bar) in self.bars.iter().enumerate() {
            let top = TOP + row * i as f64 + 4.0;
            let middle = top + thick * runs as f64 / 2.0;
            picture.text("", (LEFT - 8.0, middle + 4.5), Anchor::End, &bar.name);
            for (run, value) in bar.values.iter().enumerate() {
                if let Some(value) = value {
                    let y = top + thick * run as f64;
                    self.bar(&mut picture, &x, (y, thick), run % COLOURS, *value);
                }
            }
            if let Some(predicted) = bar.predicted {
                let at = x.at(predicted);
                let bottom = top + thick * runs as f64;
                picture.line("predicted", (at, top - 2.0), (at, bottom + 2.0));
                // The edge is not its position: an arrow and its value show that.
                if predicted > end * 1.001 {
                    let text = format!("→ {}", (self.text)(predicted));
                    picture.text("tick halo", (at + 4.0, middle + 4.0), Anchor::Start, &text);
                }
            }
        }
        picture.finish()
    }

    /// The end of the scale: the largest value, and a prediction that is not far beyond. One that
    /// is would compress all bars; it is drawn at the edge.
    fn end(&self) -> f64 {
        let measured = self.bars.iter().flat_map(|b| b.values.iter().flatten().map(|v| v.0));
        let most = measured.fold(0.0, f64::max);
        let predicted = self.bars.iter().filter_map(|b| b.predicted).fold(0.0, f64::max);
        most.max(predicted.min(most * 1.3))
    }

    /// The bar of one run, with its interval and its value.
    fn bar(
        &self,
        picture: &mut Picture,
        x: &Scale,
        (y, thick): (f64, f64),
        colour: usize,
        (value, low, high): (f64, f64, f64),
    ) {
        let end = x.at(value);
        let middle = y + thick / 2.0;
        // An interval that extends far beyond all bars ends where the value's text still fits.
        let edge = WIDTH - RIGHT;
        let (from, to) = (x.at(low).min(edge), x.at(high).min(edge));
        let size = ((end - LEFT).max(1.0), thick - 2.0);
        picture.rounded(&format!("f{colour}"), (LEFT, y + 1.0), size, 2.0);
        picture.line("whisker", (from, middle), (to, middle));
        let place = (end.max(to) + 6.0, middle + 4.0);
        picture.text("tick halo", place, Anchor::Start, &(self.text)(value));
    }
}
