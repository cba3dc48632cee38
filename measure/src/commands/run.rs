//! `measure run` and `measure selftest`.

use crate::args::RunArguments;
use crate::exit::{CANNOT_MEASURE, Failure, STOPPED, TOO_NOISY, WORSE};
use crate::save::{check, save};
use crate::session::Session;
use crate::table;
use measure_data::Verdict;
use measure_data::compare::{Limits, compare_runs};
use measure_data::read::write_run;
use measure_data::run::{Completion, Run};
use std::path::{Path, PathBuf};

/// Measures, saves and prints.
pub fn run(a: &RunArguments) -> Result<(), Failure> {
    let targets = [&a.json, &a.csv, &a.markdown, &a.html];
    targets.into_iter().flatten().try_for_each(|path| check(path))?;
    let mut session = Session::new(a, 1)?;
    session.measure();
    let Some(run) = session.into_runs().pop() else {
        return Err(Failure::new(CANNOT_MEASURE, "there is nothing to measure"));
    };
    let stopped = run.completion == Completion::Interrupted;
    let saved = save_all(a, &run);
    if !prints_data(a) {
        print!("{}", table::text(&run));
    }
    saved?;
    if stopped {
        return Err(Failure::new(
            STOPPED,
            "stopped; the measurements until then are saved or printed above",
        ));
    }
    if run.results.is_empty() {
        return Err(Failure::new(CANNOT_MEASURE, "nothing could be measured here; see above"));
    }
    Ok(())
}

/// Whether a result is written to standard output, so that no table may be printed there.
fn prints_data(a: &RunArguments) -> bool {
    let targets = [&a.json, &a.csv, &a.markdown, &a.html];
    targets.into_iter().flatten().any(|p| p.as_os_str() == "-")
}

/// Saves all requested outputs, trying all of them even if one fails. A run that was stopped is
/// saved with its samples even if no output was requested.
fn save_all(a: &RunArguments, run: &Run) -> Result<(), Failure> {
    let json = || write_run(run).map_err(|error| Failure::new(1, error));
    let mut outcomes = Vec::new();
    let mut put = |path: &Option<PathBuf>, text: &dyn Fn() -> Result<String, Failure>| {
        if let Some(path) = path {
            outcomes.push(text().and_then(|text| {
                save(path, &text)?;
                note(path);
                Ok(())
            }));
        }
    };
    put(&a.json, &json);
    put(&a.csv, &|| Ok(table::csv(run)));
    put(&a.markdown, &|| Ok(table::markdown(run)));
    put(&a.html, &|| Ok(measure_report::html(std::slice::from_ref(run))));
    if run.completion == Completion::Interrupted && a.json.is_none() && !run.results.is_empty() {
        let name = format!("measure-stopped-{}.json", std::process::id());
        put(&Some(std::env::temp_dir().join(name)), &json);
    }
    // All messages are printed; the first failure determines the status.
    let mut failures = outcomes.into_iter().filter_map(Result::err);
    let Some(first) = failures.next() else { return Ok(()) };
    let messages = failures.map(|f| f.message);
    let all: Vec<String> = std::iter::once(first.message).chain(messages).collect();
    Err(Failure::new(first.status, all.join("\n")))
}

fn note(path: &Path) {
    if path.as_os_str() != "-" {
        eprintln!("saved {}", path.display());
    }
}

/// Measures everything twice in turn and compares the two: A/A.
pub fn selftest(a: &RunArguments) -> Result<(), Failure> {
    let mut session = Session::new(a, 2)?;
    session.measure();
    let runs = session.into_runs();
    let [first, second] = runs.as_slice() else {
        return Err(Failure::new(CANNOT_MEASURE, "there is nothing to measure"));
    };
    if first.results.is_empty() {
        print!("{}", table::text(first));
        return Err(Failure::new(CANNOT_MEASURE, "nothing could be measured here; see above"));
    }
    let comparison = compare_runs(first, second, &Limits::default());
    let count = |v| comparison.count(v);
    let false_alarms = count(Verdict::Better) + count(Verdict::Worse);
    let compared = comparison.results.len();
    for c in &comparison.results {
        if matches!(c.verdict, Verdict::Better | Verdict::Worse) {
            println!("{}", super::compare::line(c));
        }
    }
    let (none, noisy) = (count(Verdict::NoDifference), count(Verdict::TooNoisy));
    println!(
        "measured against itself: {none} of {compared} no difference, {false_alarms} false alarms, \
         {noisy} too noisy to tell"
    );
    if first.completion == Completion::Interrupted {
        return Err(Failure::new(STOPPED, "stopped before the end"));
    }
    if none + false_alarms == 0 {
        return Err(Failure::new(TOO_NOISY, "nothing can be told on this machine; quiet it"));
    }
    if false_alarms * 20 > none + false_alarms {
        return Err(Failure::new(
            WORSE,
            "more than one in twenty of what can be told: this machine changes too much for comparisons; \
             quiet it, or use more --passes",
        ));
    }
    Ok(())
}
