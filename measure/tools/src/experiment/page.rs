//! One experiment as a page of Markdown.

use super::grid::{self, Grid};
use super::results::Results;
use super::scaling;
use crate::numbers::kind;
use std::fmt::Write;

/// Returns the kind of numbers that an experiment has.
pub fn said(r: &Results) -> String {
    if r.scaling.is_empty() { kind(r.counting).join(" ") } else { scaling::KIND.into() }
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
    if let Some(time) = &r.time {
        let _ = writeln!(out, "## {}\n\n{}\n", time.title, said(time));
        picture(&mut out, &time.title, &time.name);
        for table in tables(time) {
            let _ = writeln!(out, "{}", table.markdown());
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
