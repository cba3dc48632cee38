//! Infers properties of the hardware from the curves of a run, and compares them with what the
//! machine reports.

use measure_data::infer::{Point, agree, capacities, line_size};
use measure_data::run::{Inferred, Run};
use measure_data::statistics::quantile;

/// Curves use the value that a tenth of the samples undercuts: disturbances only make samples
/// slower.
const UNDISTURBED: f64 = 0.1;

/// Infers cache sizes, the line size and the reach of the TLB from a run's curves.
pub fn from_curves(run: &Run) -> Vec<Inferred> {
    let mut found = Vec::new();
    let reported = &run.machine.caches;
    let latency = curve(run, "load latency, stride 64");
    let levels = if reported.is_empty() { 3 } else { reported.len() };
    for (i, value) in capacities(&latency).into_iter().take(levels).enumerate() {
        let level = i as u32 + 1;
        let report = reported.iter().find(|c| c.level == level).map(|c| c.bytes as f64);
        let what = if level == 1 { "L1 data cache".into() } else { format!("L{level} cache") };
        found.push(Inferred {
            what,
            value,
            unit: "bytes".into(),
            reported: report,
            agrees: report.map(|r| agree(value, r)),
        });
    }
    if let Some(value) = line_size(&curve(run, "pair of loads")) {
        let report = reported.first().map(|c| c.line as f64);
        found.push(Inferred {
            what: "cache line".into(),
            value,
            unit: "bytes".into(),
            reported: report,
            agrees: report.map(|r| r == value),
        });
    }
    let names = ["first TLB reach", "second TLB reach"];
    for (what, value) in names.into_iter().zip(capacities(&translation(run, &latency))) {
        found.push(Inferred {
            what: what.into(),
            value,
            unit: "pages".into(),
            reported: None,
            agrees: None,
        });
    }
    found
}

/// The points of a series, by size.
fn curve(run: &Run, series: &str) -> Vec<Point> {
    let mut points: Vec<Point> = run
        .results
        .iter()
        .filter_map(|r| {
            let axis = r.axis.as_ref().filter(|a| a.series == series)?;
            Some((axis.x, quantile(&r.values(&run.clock).concat(), UNDISTURBED)))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Returns the cost of address translation over the number of pages: one line per page compared
/// with as many adjacent lines, added to the latency of the first cache so that ratios stay finite.
fn translation(run: &Run, latency: &[Point]) -> Vec<Point> {
    let Some(base) = latency.first().map(|p| p.1) else { return Vec::new() };
    let beside = |pages: f64| latency.iter().find(|p| p.0 == pages * 64.0).map(|p| p.1);
    curve(run, "one line per page")
        .into_iter()
        .filter_map(|(pages, total)| Some((pages, base + (total - beside(pages)?).max(0.0))))
        .collect()
}
