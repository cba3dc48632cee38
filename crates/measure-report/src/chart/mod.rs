//! The kinds of charts: lines, bars, distributions. Each returns an `<svg>` element for a page with
//! the style sheet of the report.

mod bars;
mod histogram;
mod lines;

pub use bars::{Bar, BarChart};
pub use histogram::histogram;
pub use lines::{LineChart, Mark, Point, Series};

/// How many colours the style sheet has; series beyond them begin again.
pub const COLOURS: usize = 6;
