//! Charts as SVG: the shapes, scales, axes and legends that all pictures of measurements are drawn
//! with. No other crate writes SVG.
//!
//! The crate `svg` writes elements and escapes text. [`Picture`] has the few shapes that charts are
//! made of, and the parts that they share: grid lines with labels, and a [`Legend`]. [`Scale`] maps
//! values to positions. Equal data give equal bytes.
//!
//! A shape has a class and no colour, so that one picture serves light and dark backgrounds and
//! paper. These are the classes; the style sheet is `picture.css` for a picture of its own, and
//! that of the page for a picture in a page:
//!
//! | class | of |
//! |---|---|
//! | `f0`, `f1`, ... and `s0`, `s1`, ... | fills and strokes in the colour of a series |
//! | `title`, `tick`, `halo` | the title, small text, text above lines |
//! | `grid`, `axis` | lines of a scale |
//! | `line`, `band`, `whisker` | a curve, its interval, the interval of a bar |
//!
//! Road not taken: `plotters` serves the axes, but writes colours and fonts into each element,
//! which no style sheet can change for a dark background.
#![forbid(unsafe_code)]

mod legend;
mod picture;
mod scale;

pub use legend::{LEGEND_LINE, Legend};
pub use picture::{Anchor, Picture, Tick};
pub use scale::Scale;

/// How many series a picture of its own has colours for; those beyond begin again.
pub const COLOURS: usize = 10;
