//! Line charts with intervals as bands and marks at positions of interest.

use super::COLOURS;
use measure_chart::{Anchor, Picture, Scale};

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
        let bottom = self.height - BOTTOM;
        let (x, y) = self.scales();
        let mut picture = Picture::in_page(self.width, self.height, self.title);
        let ticks = y.ticks(6).into_iter().map(|tick| (y.at(tick), (self.y_text)(tick)));
        picture.axis_left(ticks, (LEFT, self.right()));
        self.draw_axis_below(&mut picture, &x);
        self.draw_marks(&mut picture, &x, bottom);
        for (i, series) in self.series.iter().enumerate() {
            draw_series(&mut picture, series, i % COLOURS, &x, &y);
        }
        picture.finish()
    }

    fn right(&self) -> f64 {
        self.width - RIGHT
    }

    /// The scales of both axes, over all points and their intervals.
    fn scales(&self) -> (Scale, Scale) {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let least = |f: fn(&Point) -> f64| points().map(f).fold(f64::INFINITY, f64::min);
        let most = |f: fn(&Point) -> f64| points().map(f).fold(f64::NEG_INFINITY, f64::max);
        let top = 10.0 + MARK_LINE * self.marks.len().min(4) as f64;
        let (right, bottom) = (self.right(), self.height - BOTTOM);
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
        (x, y)
    }

    fn draw_axis_below(&self, picture: &mut Picture, x: &Scale) {
        let (right, bottom) = (self.right(), self.height - BOTTOM);
        for tick in x.whole_ticks(((right - LEFT) / 64.0) as usize) {
            let at = x.at(tick);
            // A word at the edge would be cut off.
            let (edge, anchor) = if at > right - 12.0 {
                (right + RIGHT - 2.0, Anchor::End)
            } else {
                (at, Anchor::Middle)
            };
            picture.line("axis", (at, bottom), (at, bottom + 5.0));
            picture.text("tick", (edge, bottom + 19.0), anchor, &(self.x_text)(tick));
        }
        picture.line("axis", (LEFT, bottom), (right, bottom));
        picture.text("tick", (right, self.height - 6.0), Anchor::End, self.x_name);
    }

    fn draw_marks(&self, picture: &mut Picture, x: &Scale, bottom: f64) {
        for (i, mark) in self.marks.iter().enumerate() {
            let at = x.at(mark.x);
            let line = 4.0 + MARK_LINE * (i % 4 + 1) as f64;
            let (class, text_class) =
                if mark.found { ("found", "foundtext halo") } else { ("mark", "tick halo") };
            // Words right of the middle go to the left of their line.
            let middle = f64::midpoint(LEFT, self.right());
            let (anchor, shift) =
                if at > middle { (Anchor::End, -5.0) } else { (Anchor::Start, 5.0) };
            picture.line(class, (at, line - 9.0), (at, bottom));
            picture.text(text_class, (at + shift, line), anchor, &mark.text);
        }
    }
}

fn draw_series(picture: &mut Picture, series: &Series, colour: usize, x: &Scale, y: &Scale) {
    let place = |px: f64, py: f64| (x.at(px), y.at(py));
    if series.points.len() > 1 {
        let upper = series.points.iter().map(|p| place(p.x, p.high));
        let lower = series.points.iter().rev().map(|p| place(p.x, p.low));
        picture.polygon(&format!("band f{colour}"), upper.chain(lower));
        let middle = series.points.iter().map(|p| place(p.x, p.y));
        picture.polyline(&format!("line s{colour}"), middle);
    }
    let radius = if series.points.len() > 30 { 1.8 } else { 3.0 };
    for point in &series.points {
        picture.circle(&format!("f{colour}"), place(point.x, point.y), radius);
    }
}
