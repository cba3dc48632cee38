//! The distribution of a result in the size of a word: a histogram from the smallest sample to the
//! 97th percentile, with the median as a line. The rest is in the table.

use measure_chart::Picture;
use measure_data::statistics::{quantile_of_sorted, sorted};

const WIDTH: f64 = 110.0;
const HEIGHT: f64 = 24.0;
const BINS: usize = 36;

/// The `<svg>` of `values` in colour `colour`.
pub fn histogram(values: &[f64], colour: usize) -> String {
    let sorted = sorted(values);
    let (low, high) = (quantile_of_sorted(&sorted, 0.0), quantile_of_sorted(&sorted, 0.97));
    let median = quantile_of_sorted(&sorted, 0.5);
    let mut picture = Picture::ornament(WIDTH, HEIGHT);
    let class = format!("f{colour}");
    let range = high - low;
    if range <= 0.0 {
        // No scatter: one line in the middle.
        picture.rectangle(&class, (WIDTH / 2.0, 2.0), (3.0, HEIGHT - 4.0));
        return picture.finish();
    }
    let mut bins = [0usize; BINS];
    for value in sorted.iter().filter(|v| **v <= high) {
        let bin = ((value - low) / range * BINS as f64) as usize;
        bins[bin.min(BINS - 1)] += 1;
    }
    let most = bins.iter().copied().max().unwrap_or(1).max(1) as f64;
    let wide = WIDTH / BINS as f64;
    let columns = bins.iter().enumerate().filter(|(_, count)| **count > 0).map(|(i, count)| {
        // Square roots keep rare values visible.
        (i as f64 * wide, (*count as f64 / most).sqrt() * (HEIGHT - 3.0))
    });
    picture.columns(&class, HEIGHT, wide - 0.4, columns);
    let at = (median - low) / range * WIDTH;
    picture.line("whisker", (at, 0.0), (at, HEIGHT));
    picture.finish()
}

#[cfg(test)]
mod tests {
    use super::histogram;

    #[test]
    fn any_values_draw() {
        for values in [vec![], vec![1.0], vec![2.0; 9], vec![1.0, 2.0, 300.0]] {
            let svg = histogram(&values, 0);
            assert!(svg.ends_with("</svg>") && !svg.contains("NaN") && !svg.contains("inf"));
        }
    }
}
