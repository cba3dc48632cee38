//! Statistics of timing samples: no assumption of a normal distribution anywhere.

mod bootstrap;
mod outliers;
mod quantile;
mod rank;
mod summary;

pub use bootstrap::{Interval, median_interval, ratio_interval};
pub use outliers::Outliers;
pub use quantile::{median, quantile, quantile_of_sorted, sorted};
pub use rank::{EffectSize, MannWhitney, mann_whitney};
pub use summary::{Noise, Summary};
