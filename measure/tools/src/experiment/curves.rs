//! Sweeps: their curves from what was measured, and their pictures, one line for each system over
//! the size, both axes logarithmic.

use super::bars::{LEGEND_TOP, WIDTH, legend};
use super::describe::{Description, Sweep};
use super::picture::powers_of_ten;
use super::results::{Curve, Point, Results, value};
use measure_chart::{Anchor, COLOURS, Picture, Scale, Tick};
use measure_data::Run;
use measure_data::units::size;

const LEFT: f64 = 84.0;
const RIGHT: f64 = WIDTH - 20.0;
/// Between the edges of the plot and the first and last size.
const MARGIN: f64 = 10.0;
const PLOT: f64 = 300.0;

/// Returns the curves of `what`.
pub fn of(what: &Description, runs: &[Option<&Run>]) -> Vec<Curve> {
    let curve = |sweep: &Sweep| {
        let mut places: Vec<(f64, String, String)> = Vec::new();
        for result in runs.iter().flatten().flat_map(|run| &run.results) {
            if let Some(axis) = &result.axis
                && result.name.starts_with(&sweep.results)
                && places.iter().all(|(_, name, _)| *name != result.name)
            {
                places.push((axis.x, result.name.clone(), axis.unit.clone()));
            }
        }
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
        let points = places.iter().map(|(x, name, _)| Point {
            x: *x,
            values: runs.iter().map(|run| value(*run, name)).collect(),
        });
        Curve {
            title: sweep.title.clone(),
            unit: places.first().map_or_else(String::new, |place| place.2.clone()),
            points: points.collect(),
        }
    };
    what.sweeps.iter().map(curve).collect()
}

/// The picture of one curve.
pub fn draw(r: &Results, curve: &Curve) -> String {
    let measured: Vec<usize> = (0..r.systems.len())
        .filter(|at| curve.points.iter().any(|p| p.values.get(*at).is_some_and(Option::is_some)))
        .collect();
    let legend = legend(r, &measured);
    let top = LEGEND_TOP + legend.height() + 4.0;
    let bottom = top + PLOT;
    let (x, y) = (sizes(curve), values(curve, top, bottom));

    let mut picture = Picture::alone(WIDTH, bottom + 48.0, &curve.title);
    picture.legend(&legend, LEGEND_TOP);
    let ticks = y.ticks(usize::MAX).into_iter().map(|value| (y.at(value), r.show(value)));
    picture.axis_left(ticks, (LEFT, RIGHT));
    let ticks: Vec<Tick> =
        curve.points.iter().map(|point| Tick::new(x.at(point.x), place(curve, point.x))).collect();
    picture.axis_below(&ticks, (top, bottom), 16.0);
    let unit = if r.counting { "instructions" } else { "time" };
    let over = if curve.unit == "bytes" { "size" } else { &curve.unit };
    let axes = format!("{unit} over {over}, both axes logarithmic");
    picture.text("tick", (LEFT, bottom + 38.0), Anchor::Start, &axes);
    for system in measured {
        line(&mut picture, curve, system, (&x, &y));
    }
    picture.finish()
}

/// The horizontal scale: powers of two around all sizes.
fn sizes(curve: &Curve) -> Scale {
    let sizes = || curve.points.iter().map(|point| point.x.max(1.0));
    let first = sizes().fold(f64::MAX, f64::min);
    let last = sizes().fold(1.0, f64::max).max(first * 2.0);
    Scale::logarithmic(2.0, first, last, LEFT + MARGIN, RIGHT - MARGIN)
}

/// The vertical scale: powers of ten around all values.
fn values(curve: &Curve, top: f64, bottom: f64) -> Scale {
    let (low, high) = powers_of_ten(|| {
        curve.points.iter().flat_map(|point| point.values.iter().flatten().map(|v| v.median))
    });
    Scale::logarithmic(10.0, low, high, bottom, top)
}

/// The label of a size.
fn place(curve: &Curve, x: f64) -> String {
    if curve.unit == "bytes" { size(x) } else { format!("{x:.0}") }
}

/// The line of one system.
fn line(picture: &mut Picture, curve: &Curve, system: usize, (x, y): (&Scale, &Scale)) {
    let colour = system % COLOURS;
    let point = |point: &super::results::Point| {
        Some((x.at(point.x), y.at(point.values.get(system)?.as_ref()?.median)))
    };
    let points: Vec<(f64, f64)> = curve.points.iter().filter_map(point).collect();
    picture.polyline(&format!("line s{colour}"), points.iter().copied());
    for point in points {
        picture.circle(&format!("f{colour}"), point, 3.5);
    }
}
