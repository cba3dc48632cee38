//! The legend of a picture: names beside their colours, in as many lines as they need.

use crate::{Anchor, COLOURS, Picture};

/// The height of a line.
pub const LEGEND_LINE: f64 = 20.0;

/// The side of a square of colour.
const SQUARE: f64 = 12.0;
const LEFT: f64 = 8.0;

/// Names with their places. They are known before the picture, whose height depends on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Legend {
    names: Vec<Name>,
}

#[derive(Clone, Debug, PartialEq)]
struct Name {
    colour: usize,
    text: String,
    x: f64,
    line: usize,
}

impl Legend {
    /// Places names, each with the number of its colour, in a picture of that width.
    pub fn new(width: f64, names: impl IntoIterator<Item = (usize, String)>) -> Self {
        let (mut x, mut line) = (LEFT, 0);
        let place = |(colour, text): (usize, String)| {
            let wide = 40.0 + 7.5 * text.chars().count() as f64;
            if x + wide > width && x > LEFT {
                (x, line) = (LEFT, line + 1);
            }
            let name = Name { colour, text, x, line };
            x += wide;
            name
        };
        Self { names: names.into_iter().map(place).collect() }
    }

    /// Returns the height of all lines.
    pub fn height(&self) -> f64 {
        LEGEND_LINE * self.names.last().map_or(1, |name| name.line + 1) as f64
    }
}

impl Picture {
    /// A legend from there on downwards.
    pub fn legend(&mut self, legend: &Legend, top: f64) {
        for name in &legend.names {
            let y = top + LEGEND_LINE * name.line as f64;
            self.legend_name((name.x, y), name.colour, &name.text);
        }
    }

    /// One name of a legend.
    pub fn legend_name(&mut self, (x, y): (f64, f64), colour: usize, text: &str) {
        self.rectangle(&format!("f{}", colour % COLOURS), (x, y), (SQUARE, SQUARE));
        self.text("", (x + SQUARE + 5.0, y + SQUARE - 1.0), Anchor::Start, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_fit_go_to_the_next_line() {
        let names = |count: usize| (0..count).map(|at| (at, "ten letter".to_owned()));
        assert_eq!(Legend::new(300.0, names(2)).height(), LEGEND_LINE);
        assert_eq!(Legend::new(300.0, names(3)).height(), 2.0 * LEGEND_LINE);
        // One that is longer than the picture is wide has a line of its own.
        assert_eq!(Legend::new(20.0, names(1)).height(), LEGEND_LINE);
        assert_eq!(Legend::new(20.0, names(0)).height(), LEGEND_LINE);
    }
}
