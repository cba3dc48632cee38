//! Black-box tests of `./hayate explain`.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Output;

const CHECKS: [(&str, Check); 4] = [
    ("a_dynamic_program_is_taken_apart", dynamic),
    ("a_static_program_has_no_linking", fixed),
    ("a_shell_and_its_children", shell),
    ("what_cannot_be_explained_is_refused", refused),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    // Linux has no such command.
    if options.guest_linux { Vec::new() } else { trials_of("explain", &CHECKS, options) }
}

/// `./hayate explain OPTIONS -- PROGRAM`.
fn explain(hayate: &Hayate, options: &[&str], program: &[&str]) -> Result<Output> {
    let mut command = hayate.any("explain")?;
    command.args(["--timeout", "240"]).args(options).arg("--").args(program);
    Ok(command.output()?)
}

/// Returns the numbers and the table for a program that must end with this status and write this.
fn numbers(
    hayate: &Hayate,
    options: &[&str],
    program: &[&str],
    (status, said): (i32, &str),
) -> Result<(Value, String)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("numbers");
    let name = file.to_str().context("a folder with an odd name")?;
    let output = explain(hayate, &[options, &["--json", name]].concat(), program)?;
    let table = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(status), "{}: {table}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text == said, "expected {said:?}, got {text:?}: {table}");
    Ok((serde_json::from_slice(&std::fs::read(&file)?)?, table))
}

fn number(of: &Value, path: &str) -> Result<u64> {
    of.pointer(path).and_then(Value::as_u64).with_context(|| format!("no number {path} in {of}"))
}

/// Returns the sum of those parts of a start for whose part and stage `wanted` holds.
fn sum(start: &Value, wanted: impl Fn(&str, &str) -> bool) -> Result<u64> {
    let parts = start["parts"].as_array().context("no parts")?;
    let mut sum = 0;
    for part in parts {
        let name = |key: &str| part[key].as_str().unwrap_or_default();
        if wanted(name("part"), name("stage")) {
            sum += number(part, "/value")?;
        }
    }
    Ok(sum)
}

/// Returns both starts. Their parts must add up to the total, and their faults to the fault parts.
fn both(numbers: &Value) -> Result<[&Value; 2]> {
    let starts = numbers["starts"].as_array().context("no starts")?;
    let [first, second] = starts.as_slice() else { anyhow::bail!("{} starts", starts.len()) };
    for start in [first, second] {
        let total = number(start, "/total")?;
        ensure!(sum(start, |_, _| true)? == total, "the parts are not the total {total}: {start}");
        let faults = start["faults"].as_array().context("no faults")?;
        let mut times = 0;
        for kind in faults {
            times += number(kind, "/value")?;
        }
        let parts = sum(start, |part, _| part.ends_with("-faults"))?;
        // Each is rounded when clock time is converted to instructions.
        ensure!(times.abs_diff(parts) <= 16, "faults take {times}, their parts {parts}: {start}");
        ensure!(number(start, "/programs-executed")? == 1, "not one program: {start}");
    }
    Ok([first, second])
}

fn dynamic(hayate: &Hayate) -> Result<()> {
    let (found, table) = numbers(hayate, &[], &["/bin/echo", "hello"], (0, "hello\nhello\n"))?;
    for row in ["files looked up", "headers read", "dynamic linking", "program itself", "total"] {
        ensure!(table.contains(row), "no row {row:?}: {table}");
    }
    let [first, second] = both(&found)?;
    ensure!(first["entry-seen"] == true && second["entry-seen"] == true, "no entry: {found}");
    for stage in ["fork", "exec", "linking", "program", "exit", "wait"] {
        ensure!(sum(second, |_, own| own == stage)? > 0, "no time for {stage}: {second}");
    }
    // The program and its dynamic linker are read, parsed and attached once.
    ensure!(number(first, "/program-records/made")? == 2, "{first}");
    ensure!(number(first, "/spaces/made")? == 1 && number(first, "/spaces/kept")? == 1, "{first}");
    ensure!(number(second, "/program-records/made")? == 0, "{second}");
    ensure!(number(second, "/program-records/reused")? == 2, "{second}");
    ensure!(number(second, "/spaces/reused")? == 1, "{second}");
    let steps = |start| sum(start, |part, _| matches!(part, "read" | "attach"));
    ensure!(steps(first)? > 0 && steps(second)? == 0, "read and attached again: {second}");
    let restored = number(second, "/pages-restored/copied")?;
    ensure!(restored > 0, "no page of the kept space was written to: {second}");
    ensure!(number(second, "/total")? < number(first, "/total")?, "not faster: {found}");
    Ok(())
}

fn fixed(hayate: &Hayate) -> Result<()> {
    let measure = crate::compile::measure()?;
    let image = crate::image::small::get(&measure)?.to_string_lossy().into_owned();
    let options = ["--in-memory", "--rootfs", &image, "--fork", "--recycle", "none"];
    let folder = tempfile::tempdir()?;
    let picture = folder.path().join("picture");
    let name = picture.to_str().context("a folder with an odd name")?;
    let with_picture = [options.as_slice(), &["--svg", name]].concat();
    // Wrong options end the program at once, with 2.
    let program = ["/usr/bin/measure", "--no-such-option"];
    let (found, _) = numbers(hayate, &with_picture, &program, (2, ""))?;
    ensure!(found["made-by"] == "fork", "{found}");
    let [first, second] = both(&found)?;
    for start in [first, second] {
        ensure!(start["entry-seen"] == false, "a dynamic linker: {start}");
        ensure!(sum(start, |_, stage| stage == "linking")? == 0, "linking: {start}");
        // Nothing is kept.
        ensure!(number(start, "/spaces/reused")? == 0 && number(start, "/spaces/made")? == 0);
        ensure!(number(start, "/program-records/made")? == 1, "{start}");
    }
    let picture = std::fs::read_to_string(&picture)?;
    ensure!(picture.starts_with("<svg ") && picture.contains("Second start"), "{picture}");
    Ok(())
}

fn shell(hayate: &Hayate) -> Result<()> {
    let program = ["/bin/sh", "-c", "/bin/true; (exit 3); exit 5"];
    let (found, table) = numbers(hayate, &[], &program, (5, ""))?;
    let [_, second] = both(&found)?;
    ensure!(number(second, "/processes-and-threads-started")? == 2, "{second}");
    ensure!(table.contains("processes and threads it started"), "{table}");
    // The children's time counts as theirs.
    ensure!(sum(second, |part, _| part == "others")? > 1000, "{second}");
    Ok(())
}

fn refused(hayate: &Hayate) -> Result<()> {
    let expect = |options: &[&str], program: &[&str], status, said: &str| -> Result<()> {
        let output = explain(hayate, options, program)?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        ensure!(code == Some(status) && text.contains(said), "{code:?}, {text}, not {said}");
        ensure!(!text.contains("first start"), "a table of nothing: {text}");
        Ok(())
    };
    expect(&[], &[], 2, "name the program")?;
    expect(&["--linux"], &["true"], 2, "--linux")?;
    expect(&["--cpus", "2"], &["true"], 2, "one processor")?;
    expect(&["--time", "--deterministic"], &["true"], 2, "choose one")?;
    expect(&[], &["no-such-program"], 127, "no program no-such-program")
}
