//! One experiment as a page of Markdown.

use super::grid::{self, Grid};
use super::results::Results;
use super::{asked, scaling};
use crate::numbers::kind;
use std::fmt::Write;

/// Returns the kind of numbers that an experiment has.
pub fn said(r: &Results) -> String {
    match r.best_of {
        Some(_) => asked::KIND.into(),
        None if r.scaling.is_empty() => kind(r.counting).join(" "),
        None => scaling::KIND.into(),
    }
}

/// Returns the tables of an experiment's values: those that have rows.
pub fn tables(r: &Results) -> impl Iterator<Item = Grid> {
    let all = [
        Grid::of_lines(r),
        Grid::of_rates(r),
        Grid::of_aims(r),
        Grid::of_limits(r),
        Grid::of_break_even(r),
    ];
    all.into_iter().filter(Grid::has_rows)
}

/// Returns the tables of what was found besides in boots of its own: those that have rows.
pub fn others(r: &Results) -> impl Iterator<Item = Grid> {
    [Grid::of_counts(r), Grid::of_kept(r)].into_iter().filter(Grid::has_rows)
}

/// Returns the page.
pub fn markdown(r: &Results) -> String {
    let mut out = format!(
        "# {}\n\n{}\n\n{} `./hayate experiment {name}` makes this page from \
         `experiments/{name}.json`.\n\n",
        r.title,
        r.question,
        said(r),
        name = r.name
    );
    if !r.lines.is_empty() {
        picture(&mut out, &r.title, &r.name);
    }
    for table in tables(r).chain(others(r)) {
        let _ = writeln!(out, "{}", table.markdown());
    }
    for part in r.parts() {
        let _ = writeln!(out, "## {}\n", part.title);
        // Other processors have the same kind of numbers.
        if part.counting != r.counting {
            let _ = writeln!(out, "{}\n", said(part));
        }
        picture(&mut out, &part.title, &part.name);
        for table in tables(part) {
            let _ = writeln!(out, "{}", table.markdown());
        }
        if part.machine != r.machine {
            notes(&mut out, part);
        }
    }
    if !r.scaling.is_empty() {
        picture(&mut out, &r.title, &r.name);
    }
    for scaled in &r.scaling {
        let _ = writeln!(out, "{}", Grid::of_scaling(r, scaled).markdown());
    }
    for (index, curve) in r.sweeps.iter().enumerate() {
        let _ = writeln!(out, "## {}\n", curve.title);
        picture(&mut out, &curve.title, &format!("{}-{}", r.name, index + 1));
        let _ = writeln!(out, "{}", Grid::of_curve(r, curve).markdown());
    }
    notes(&mut out, r);
    out
}

fn picture(out: &mut String, title: &str, name: &str) {
    let _ = writeln!(out, "![{title}]({name}.svg)\n");
}

/// Writes what holds for all tables: the machine, the systems, and what was not measured.
fn notes(out: &mut String, r: &Results) {
    let times = r
        .baseline()
        .filter(|_| r.scaling.is_empty())
        .map(|at| format!(" Times less: {} by {}.", r.systems[at].title, r.systems[0].title));
    let _ = writeln!(out, "{}{}\n", r.machine, times.unwrap_or_default());
    if r.has_totals() {
        out.push_str(
            "1,000 starts / 1,000: of as many in a row, until everything that they leave to be \
             done is done; work that is put off counts there.\n\n",
        );
    }
    for (text, skipped) in grid::notes(r) {
        let _ = writeln!(out, "* {text}");
        for text in skipped {
            let _ = writeln!(out, "  * {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::results::Aim;

    /// Results on one processor, and on two, where the aim is missed.
    #[test]
    fn every_number_of_processors_has_its_table_and_its_aims() {
        let text = r#"{"title": "Jobs", "question": "x", "counting": false, "memory": 512,
            "memory_limit": "16M", "boots": 1, "passes": 1, "iterations": 1, "workload": [],
            "processors": [1, 2], "systems": [{"name": "a", "title": "A"}]}"#;
        let what = serde_json::from_str(text).unwrap();
        let machine = |processors: &str| (processors.to_owned(), Vec::new());
        let aim = |ratio: f64| Aim {
            name: "tar".into(),
            system: "A".into(),
            other: "B".into(),
            ratio,
            at_most: 1.0,
        };
        let mut one = Results::new("jobs", &what, false, machine("one processor."));
        one.aims.push(aim(0.25));
        assert!(!one.above());
        let mut two = Results::new("jobs-2", &what, false, machine("two processors."));
        two.title = "Jobs, two processors".into();
        two.aims.push(aim(1.125));
        one.further.push(two);
        assert!(one.above());
        let page = markdown(&one);
        let (first, second) = page.split_once("## Jobs, two processors").unwrap();
        assert!(first.contains("| 0.250 | 1 | reached |"), "{page}");
        assert!(second.contains("(jobs-2.svg)") && second.contains("| 1.125 | 1 | not reached |"));
        let (second, last) = second.split_once("two processors.").unwrap();
        assert!(last.contains("one processor.") && !second.contains("one processor."), "{page}");
        // They are kept with the first, and read again.
        let data = serde_json::to_string(&one).unwrap();
        let again: Results = serde_json::from_str(&data).unwrap();
        assert_eq!(markdown(&again), page);
    }
}
