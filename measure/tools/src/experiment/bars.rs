//! The kind of picture that experiments have: groups of horizontal bars, a name above each group, a
//! value beside each bar, a mark for the aim.

use super::results::Results;
use measure_chart::{Anchor, COLOURS, LEGEND_LINE, Legend, Picture, Scale, Tick};

/// Narrow enough to be read on a phone without moving it.
pub const WIDTH: f64 = 560.0;
/// Where the legend begins, below the title.
pub const LEGEND_TOP: f64 = 36.0;

const LEFT: f64 = 14.0;
const BAR: f64 = 15.0;
/// The name of the work above its bars.
const NAME: f64 = 17.0;
const GAP: f64 = 8.0;
/// The axis with its labels, below the bars.
const BOTTOM: f64 = 30.0;

/// A picture of bars.
pub struct Bars {
    /// The title.
    pub title: String,
    /// The legend.
    pub legend: Legend,
    /// What the values are and what marks and lines mean, in one line.
    pub note: String,
    /// The positions of values.
    pub scale: Scale,
    /// The axis.
    pub ticks: Vec<Tick>,
    /// The groups, from above.
    pub groups: Vec<Group>,
}

/// The bars of one work.
pub struct Group {
    /// Its name.
    pub name: String,
    /// A bar for each system.
    pub bars: Vec<Bar>,
    /// The aim of the first.
    pub aim: Option<f64>,
}

/// The value of one system.
pub struct Bar {
    /// The number of the system, which has a colour.
    pub system: usize,
    /// The value.
    pub value: f64,
    /// Its interval, if it is to be seen.
    pub interval: Option<(f64, f64)>,
    /// The value as text.
    pub text: String,
}

/// Returns the span from the left edge to where bars end, if `right` is left for their values.
pub fn span(right: f64) -> (f64, f64) {
    (LEFT, WIDTH - right)
}

/// Returns the legend of the systems at these places.
pub fn legend(r: &Results, systems: &[usize]) -> Legend {
    Legend::new(WIDTH, systems.iter().map(|at| (*at, r.systems[*at].title.clone())))
}

impl Group {
    fn height(&self) -> f64 {
        NAME + BAR * self.bars.len().max(1) as f64 + GAP
    }
}

impl Bars {
    /// The picture.
    pub fn draw(&self) -> String {
        let note = LEGEND_TOP + self.legend.height();
        let top = note + LEGEND_LINE;
        let bottom = top + self.groups.iter().map(Group::height).sum::<f64>();
        let mut picture = Picture::alone(WIDTH, bottom + BOTTOM, &self.title);
        picture.legend(&self.legend, LEGEND_TOP);
        picture.text("tick", (8.0, note + 11.0), Anchor::Start, &self.note);
        picture.axis_below(&self.ticks, (top, bottom + 6.0), 14.0);
        let mut next = top;
        for group in &self.groups {
            self.group(&mut picture, group, next + NAME);
            next += group.height();
        }
        picture.finish()
    }

    /// One group, with its first bar at `top`.
    fn group(&self, picture: &mut Picture, group: &Group, top: f64) {
        picture.text("halo", (LEFT, top - 4.0), Anchor::Start, &shortened(&group.name));
        let aim = group.aim.map(|aim| self.scale.at(aim));
        for (place, bar) in group.bars.iter().enumerate() {
            self.bar(picture, bar, top + BAR * place as f64, aim.filter(|_| place == 0));
        }
        if let Some(aim) = aim {
            picture.line("aim", (aim, top - 2.0), (aim, top + BAR));
        }
    }

    /// One bar; its value stands beside it, its interval and its aim, not under them.
    fn bar(&self, picture: &mut Picture, bar: &Bar, y: f64, aim: Option<f64>) {
        let value = self.scale.at(bar.value);
        let class = format!("f{}", bar.system % COLOURS);
        picture.rectangle(&class, (LEFT, y), (value - LEFT, BAR - 2.0));
        let mut end = value.max(aim.unwrap_or(0.0));
        if let Some((low, high)) = bar.interval {
            let (from, to) = (self.scale.at(low), self.scale.at(high));
            let middle = y + BAR / 2.0 - 1.0;
            picture.line("whisker", (from, middle), (to, middle));
            end = end.max(to);
        }
        picture.text("tick", (end + 5.0, y + 10.5), Anchor::Start, &bar.text);
    }
}

/// Returns a title shortened to fit above the bars.
fn shortened(title: &str) -> String {
    const FITS: usize = 76;
    if title.chars().count() <= FITS {
        return title.into();
    }
    title.chars().take(FITS - 1).chain(['…']).collect()
}
