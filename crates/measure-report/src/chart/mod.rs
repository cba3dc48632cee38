//! Drawing: scales, line charts, bars, distributions. Everything returns an `<svg>` element
//! whose colours are classes of the style sheet.

mod bars;
mod histogram;
mod lines;
mod scale;

pub use bars::{Bar, BarChart};
pub use histogram::histogram;
pub use lines::{LineChart, Mark, Point, Series};
pub use scale::Scale;

/// How many colours the style sheet has; series beyond them begin again.
pub const COLOURS: usize = 6;
