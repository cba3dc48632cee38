//! The picture of an experiment: bars on a logarithmic scale.

use super::bars::{self, Bar, Bars, Group};
use super::results::{Line, Results, Value};
use measure_chart::{Anchor, Scale, Tick};

/// Room for values beside the bars.
const RIGHT: f64 = 90.0;

const INTERVALS: &str = "; thin lines are 95 % intervals";

/// The picture.
pub fn draw(r: &Results) -> String {
    let measured = r.measured();
    let groups: Vec<Group> = r.lines.iter().map(|line| group(r, &measured, line)).collect();
    let scale = scale(r);
    Bars {
        title: r.title.clone(),
        legend: bars::legend(r, &measured),
        note: note(r, &groups),
        ticks: ticks(r, &scale),
        scale,
        groups,
    }
    .draw()
}

/// The bars of a line. A value that was not measured has none and takes no space: the table says
/// so.
fn group(r: &Results, measured: &[usize], line: &Line) -> Group {
    let bar = |system: &usize| {
        let value = line.values.get(*system)?.as_ref()?;
        Some(Bar {
            system: *system,
            value: value.median,
            interval: scatters(value).then_some((value.low, value.high)),
            text: r.show(value.median),
        })
    };
    Group {
        name: line.title.clone(),
        bars: measured.iter().filter_map(bar).collect(),
        aim: line.at_most,
    }
}

/// Powers of ten around all values.
fn scale(r: &Results) -> Scale {
    let values = || r.lines.iter().flat_map(|line| line.values.iter().flatten().map(|v| v.median));
    let (from, to) = bars::span(RIGHT);
    let (low, high) = powers_of_ten(values);
    Scale::logarithmic(10.0, low, high, from, to)
}

/// Returns the power of ten at or below the smallest positive value, and that at or above the
/// largest.
pub fn powers_of_ten<I: Iterator<Item = f64>>(values: impl Fn() -> I) -> (f64, f64) {
    let least = values().filter(|value| *value > 0.0).reduce(f64::min).unwrap_or(1.0);
    let low = least.max(1e-3).log10().floor();
    let high = values().fold(1.0, f64::max).log10().ceil().max(low + 1.0);
    (10f64.powf(low), 10f64.powf(high))
}

fn ticks(r: &Results, scale: &Scale) -> Vec<Tick> {
    let ticks = scale.ticks(usize::MAX).into_iter();
    let mut ticks: Vec<Tick> =
        ticks.map(|value| Tick::new(scale.at(value), axis(r, value))).collect();
    // The first label would be cut off at the edge.
    if let Some(first) = ticks.first_mut() {
        first.anchor = Anchor::Start;
    }
    ticks
}

/// What the values, the mark and the thin lines are.
fn note(r: &Results, groups: &[Group]) -> String {
    let unit = if r.counting { "instructions" } else { "time" };
    let mut note = format!("{unit}, each line ten times the one before");
    if groups.iter().any(|group| group.aim.is_some()) {
        note += "; the mark is the aim";
    }
    if groups.iter().flat_map(|group| &group.bars).any(|bar| bar.interval.is_some()) {
        let best = r.best_of.is_some();
        note += if best { "; thin lines reach up to the worst round" } else { INTERVALS };
    }
    note
}

/// Whether an interval is wide enough to be visible.
fn scatters(value: &Value) -> bool {
    value.median > 0.0 && (value.high - value.low) / value.median > 0.1
}

/// Formats a value below the picture, where seven zeros would overlap with the next value.
fn axis(r: &Results, value: f64) -> String {
    if r.counting && value >= 1e6 {
        return format!("{} million", r.show(value / 1e6));
    }
    r.show(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::results::System;

    /// The results of two systems, with these values in one line.
    fn results(values: [Option<Value>; 2]) -> Results {
        let text = r#"{"title": "A & B", "question": "x", "counting": true, "memory": 512,
            "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1, "workload": [],
            "systems": [{"name": "a", "title": "A"}, {"name": "b", "title": "B"}]}"#;
        let what = serde_json::from_str(text).unwrap();
        let system = |title: &str| System {
            name: title.to_lowercase(),
            title: title.into(),
            linux: false,
            words: String::new(),
            release: None,
            missing: None,
            failed: false,
            skipped: Vec::new(),
        };
        let systems = vec![system("A"), system("B")];
        let mut results = Results::new("x", &what, true, (String::new(), systems));
        results.lines.push(Line {
            name: "work".into(),
            title: "work".into(),
            at_most: Some(100.0),
            values: values.to_vec(),
            totals: vec![None, None],
        });
        results
    }

    #[test]
    fn a_bar_is_as_long_as_its_value_on_the_scale() {
        let value = |low: f64, median: f64| Some(Value { median, low, high: median });
        let svg = draw(&results([value(100.0, 100.0), value(800.0, 1000.0)]));
        // From 100 to 1,000: nothing of the width, and all of it.
        assert!(svg.contains(r#"<rect class="f0" height="13" width="0" x="14""#), "{svg}");
        assert!(svg.contains(r#"<rect class="f1" height="13" width="456" x="14""#), "{svg}");
        assert!(svg.contains("thin lines are 95 % intervals") && svg.contains("A &amp; B"));
        assert_eq!(svg.matches(r#"class="whisker""#).count(), 1);
    }

    #[test]
    fn values_that_were_not_measured_leave_a_picture() {
        let svg = draw(&results([None, None]));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.contains(r#"class="aim""#), "{svg}");
    }
}
