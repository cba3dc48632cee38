//! strace's own tests, of its source as Debian has it, made on this host and run in a machine. They
//! look at some twelve hundred calls and stops from outside, with arguments that no other program
//! uses.
//!
//! `strace_known.txt` names those that do not pass, with the reason of each, first those that fail
//! on Debian's Linux in the same machine. One that is named and passes is a failure: the list stays
//! true.

use super::command::Hayate;
use super::report::{Case, Verdict, judge};
use super::{Report, Trial};
use crate::arguments::Test;
use crate::image::default;
use anyhow::{Context, Result};
use std::collections::BTreeMap;

const NAME: &str = "debuggers/strace_passes_its_own_tests";
const SCRIPT: &str = include_str!("strace_suite.sh");
const KNOWN: &str = include_str!("strace_known.txt");
/// The word of a line of [`KNOWN`] about a test that fails on Linux, too.
const EVERYWHERE: &str = "linux";

/// The trial, which takes half an hour.
pub fn trials(options: &Test) -> Option<Trial> {
    let hayate = Hayate::new(options);
    options.includes_long(NAME).then(|| Trial::new(NAME, move |_| run(&hayate)).weight(2))
}

/// The tests that are known not to pass in a system, with the reason of each.
fn known(linux: bool) -> BTreeMap<&'static str, &'static str> {
    let lines = KNOWN.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let parts = lines.filter_map(|line| {
        let (system, rest) = line.split_once(' ')?;
        let (name, why) = rest.split_once(": ")?;
        (!linux || system == EVERYWHERE).then_some((name, why))
    });
    parts.collect()
}

fn run(hayate: &Hayate) -> Result<Report> {
    let image = default::STRACE.get()?;
    let image = image.to_string_lossy();
    let known = known(hayate.linux);
    let options = ["--net", "none", "--rootfs", &image, "--cpus", "2", "--memory", "3G"];
    let options = [&options[..], &["--timeout", "7200"]].concat();
    let names: Vec<&str> = known.keys().copied().collect();
    let words = [&["/bin/sh", "-c", SCRIPT, "strace_suite.sh"], &names[..]].concat();
    let output = hayate.run(&options, &words)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let end = if output.status.success() && text.lines().last() == Some("done") {
        Ok(())
    } else {
        Err(format!("the machine ended with {}", output.status))
    };
    let mut cases = cases(&text, &known)?;
    let missing = known.keys().filter(|name| !cases.iter().any(|case| case.name == **name));
    let missing: Vec<Case> = missing
        .map(|name| Case::new(name, Verdict::Failed("strace has no such test".into())))
        .collect();
    cases.extend(missing);
    let passed = cases.iter().filter(|case| case.verdict == Verdict::Passed).count();
    let failed = cases.iter().filter(|case| matches!(case.verdict, Verdict::Failed(_))).count();
    let output = format!("{}{said}{passed} passed, {failed} did not\n", failures(&text, &cases));
    Ok(Report { cases: judge(cases, end), output })
}

/// The tests of a machine's output, each a case: one that is known to fail is skipped.
fn cases(text: &str, known: &BTreeMap<&str, &str>) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    let mut lines = text.lines().take_while(|line| *line != "done").peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('|') {
            continue;
        }
        let (result, name) = line.split_once(' ').with_context(|| format!("no result: {line}"))?;
        let mut last = "";
        while let Some(more) = lines.next_if(|line| line.starts_with("| ")) {
            // The harness adds the last line.
            if !more.contains("(exit status: ") {
                last = more.trim_start_matches("| ");
            }
        }
        let told = last.rsplit_once(": ").map_or(last, |(_, why)| why);
        let verdict = match (result, known.get(name)) {
            ("PASS", None) => Verdict::Passed,
            ("PASS", Some(_)) => Verdict::Failed("it is said not to pass".into()),
            ("FAIL", Some(why)) => Verdict::Skipped(format!("known to fail: {why}")),
            ("SKIP", None) => Verdict::Skipped(told.into()),
            (other, _) => Verdict::Failed(format!("{other}: {told}")),
        };
        cases.push(Case::new(name, verdict));
    }
    Ok(cases)
}

/// What the tests printed that failed.
fn failures(text: &str, cases: &[Case]) -> String {
    let mut shown = String::new();
    let mut shows = false;
    for line in text.lines() {
        if let Some((_, name)) = line.split_once(' ').filter(|_| !line.starts_with('|')) {
            shows = cases
                .iter()
                .any(|case| case.name == name && matches!(case.verdict, Verdict::Failed(_)));
        }
        if shows {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_said_not_to_pass_may_not() {
        let known = BTreeMap::from([("b", "no such call"), ("c", "no such call")]);
        let text = "PASS a\nFAIL b\n| b.test: failed test: mismatch\n| FAIL b (exit status: 1)\n\
                    PASS c\nSKIP d\n| d.test: skipped test: it needs much\n\
                    | SKIP d (exit status: 77)\nFAIL e\n| e.test: failed test: odd\ndone\n";
        let cases = cases(text, &known).unwrap();
        let verdicts: Vec<Verdict> = cases.iter().map(|case| case.verdict.clone()).collect();
        let failed = |why: &str| Verdict::Failed(why.into());
        assert_eq!(
            verdicts,
            [
                Verdict::Passed,
                Verdict::Skipped("known to fail: no such call".into()),
                failed("it is said not to pass"),
                Verdict::Skipped("it needs much".into()),
                failed("FAIL: odd"),
            ]
        );
        let shown = "PASS c\nFAIL e\n| e.test: failed test: odd\ndone\n";
        assert_eq!(failures(text, &cases), shown);
    }

    #[test]
    fn every_line_of_the_list_is_understood() {
        let lines = KNOWN.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        assert_eq!(known(false).len(), lines.count());
        assert!(known(true).len() <= known(false).len());
    }
}
