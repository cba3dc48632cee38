//! `measure compare`.

use super::read_file;
use crate::exit::{BAD_FILE, Failure, TOO_NOISY, WORSE};
use measure_data::compare::{Comparison, Limits, RunComparison, compare_runs};
use measure_data::run::Completion;
use measure_data::units::{change, value};
use measure_data::{Run, Verdict};
use std::path::Path;

/// Reads the files of one side, given as A1.json,A2.json.
fn side(text: &str) -> Result<Run, Failure> {
    // If a file of this name exists, a comma belongs to the name.
    if Path::new(text).exists() || !text.contains(',') {
        return read_file(Path::new(text));
    }
    let runs = text.split(',').map(|p| read_file(Path::new(p))).collect::<Result<Vec<_>, _>>()?;
    Run::join(&runs).ok_or_else(|| {
        Failure::new(BAD_FILE, format!("{text}: these runs are not of one machine and version"))
    })
}

/// One result in a line.
pub fn line(c: &Comparison) -> String {
    let interval = if c.exact {
        "exact".to_owned()
    } else if c.interval.high > 1e6 {
        "no interval".to_owned()
    } else {
        format!("{} to {}", change(c.interval.low), change(c.interval.high))
    };
    format!(
        "{:<32} {:>10} {:>10} {:>9}  ({interval}; p {:.3}, effect {})  {}",
        c.name,
        value(c.quantity, c.a),
        value(c.quantity, c.b),
        if c.ratio > 1e6 { "new".into() } else { change(c.ratio) },
        c.p,
        c.effect.word(),
        c.verdict.words()
    )
}

/// Compares and prints.
pub fn compare(a: &str, b: &str, threshold: f64, all: bool) -> Result<(), Failure> {
    let (a, b) = (side(a)?, side(b)?);
    let limits = Limits { threshold: threshold / 100.0, ..Limits::default() };
    let comparison = compare_runs(&a, &b, &limits);
    if comparison.results.is_empty() {
        return Err(Failure::new(BAD_FILE, "the two runs have no result in common"));
    }
    print_circumstances(&a, &b);
    for (name, of_a, of_b) in &comparison.facts {
        println!("differs: {name}: {of_a} | {of_b}");
    }
    println!();
    print_results(&comparison, all);
    let count = |v| comparison.count(v);
    println!(
        "{} better, {} worse, {} no difference of more than {threshold} %, {} too noisy to tell",
        count(Verdict::Better),
        count(Verdict::Worse),
        count(Verdict::NoDifference),
        count(Verdict::TooNoisy)
    );
    if count(Verdict::Worse) > 0 {
        return Err(Failure::silent(WORSE));
    }
    if count(Verdict::TooNoisy) > 0 {
        return Err(Failure::silent(TOO_NOISY));
    }
    Ok(())
}

/// Prints which runs these are, and what about them differs.
fn print_circumstances(a: &Run, b: &Run) {
    println!("A: {}\nB: {}", a.label, b.label);
    for (run, name) in [(a, "A"), (b, "B")] {
        if run.completion == Completion::Interrupted {
            println!("{name} was stopped before its end");
        }
    }
    if a.suite.version != b.suite.version {
        let (a, b) = (&a.suite.version, &b.suite.version);
        println!("A was measured by measure {a}, B by {b}: their work may differ");
    } else if let (Some(a), Some(b)) = (&a.suite.binary_sha256, &b.suite.binary_sha256)
        && a != b
    {
        println!("A and B were measured by different builds of measure: their work may differ");
    }
    if a.clock.name != b.clock.name {
        println!("A and B were measured with different clocks");
    }
}

/// Prints a line for each result, or only for those that differ, and what could not be compared.
fn print_results(comparison: &RunComparison, all: bool) {
    let shown = |c: &&Comparison| all || c.verdict != Verdict::NoDifference;
    for c in comparison.results.iter().filter(shown) {
        println!("{}", line(c));
    }
    let only = |names: &[String], side: &str| {
        if !names.is_empty() {
            println!("only in {side}: {}", names.join(", "));
        }
    };
    only(&comparison.only_a, "A");
    only(&comparison.only_b, "B");
    if !comparison.changed_meaning.is_empty() {
        println!(
            "not comparable, the experiment changed: {}",
            comparison.changed_meaning.join(", ")
        );
    }
}
