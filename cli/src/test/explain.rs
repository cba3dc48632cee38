//! Black-box tests of `./hayate explain`.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

const CHECKS: [(&str, Check); 6] = [
    ("a_dynamic_program_is_taken_apart", dynamic),
    ("a_static_program_has_no_linking", fixed),
    ("a_shell_and_its_children", shell),
    ("an_image_is_explained", image),
    ("a_program_without_an_image_says_why", no_image),
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

/// Returns the numbers and the table for a program that must end with this status and write this at
/// each start.
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
    let found: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let made = number(&found, "/starts-made")? as usize;
    ensure!((2..=10).contains(&made), "{made} starts");
    ensure!(text == said.repeat(made), "expected {made} times {said:?}, got {text:?}: {table}");
    Ok((found, table))
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

/// Returns the first two starts. The parts of all must add up to the total, and their faults to the
/// fault parts.
fn both(numbers: &Value) -> Result<[&Value; 2]> {
    let starts = numbers["starts"].as_array().context("no starts")?;
    let [first, second, rest @ ..] = starts.as_slice() else {
        anyhow::bail!("{} starts", starts.len())
    };
    let image = rest.iter().all(|start| start["began"] == "image");
    ensure!(rest.len() <= 1 && image, "more than a start from an image: {numbers}");
    ensure!(first["began"] == "first" && second["began"] == "first", "{numbers}");
    for start in starts {
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
    let (found, table) = numbers(hayate, &[], &["/bin/echo", "hello"], (0, "hello\n"))?;
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

fn image(hayate: &Hayate) -> Result<()> {
    // What they print, and the call before which their images are taken.
    for (program, said, horizon) in [
        (["/bin/bash", "-c", "echo $((6 * 7))"].as_slice(), "42\n", "write(1)"),
        (&["/bin/true"], "", "exit_group(0)"),
    ] {
        let (found, table) = numbers(hayate, &[], program, (0, said))?;
        let [_, second] = both(&found)?;
        let third = &found["starts"][2];
        ensure!(third["began"] == "image", "no start began at an image: {table}");
        // The linker and nearly all of the program's own start-up lie behind it.
        ensure!(sum(third, |_, stage| stage == "linking")? == 0, "linking: {third}");
        ensure!(third["entry-seen"] == false, "its entry: {third}");
        for stage in ["fork", "exec", "exit", "wait"] {
            ensure!(sum(third, |_, own| own == stage)? > 0, "no time for {stage}: {third}");
        }
        let (before, after) = (number(second, "/total")?, number(third, "/total")?);
        let saved = number(&found, "/image/saved")?;
        ensure!(saved == before - after && saved > before / 2, "saved {saved} of {before}");
        ensure!(found["image"]["horizon"] == horizon, "{}", found["image"]);
        let last = table.lines().last().unwrap_or_default();
        let starts = format!("image: taken at {horizon}, ");
        ensure!(last.starts_with(&starts) && last.ends_with(" instructions saved"), "{last}");
        ensure!(table.contains("     from image\n"), "{table}");
    }
    Ok(())
}

/// A program that ends at its first system call: one segment, `exit_group(0)`.
fn shortest() -> Vec<u8> {
    const CODE: [u8; 9] = [0xb8, 231, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
    const BASE: u64 = 0x40_0000;
    let size = 120 + CODE.len() as u64;
    // Where it begins, its program headers, its section headers.
    let header = [BASE + 120, 64, 0].map(u64::to_le_bytes).concat();
    // Flags; sizes of headers and how many there are.
    let sizes = [0, 0, 64, 56, 1, 64, 0, 0].map(u16::to_le_bytes).concat();
    // Loaded, readable and executable, from the file's beginning.
    let segment = [1u32, 5].map(u32::to_le_bytes).concat();
    let place = [0, BASE, BASE, size, size, 0x1000].map(u64::to_le_bytes).concat();
    let kind = [2, 0, 62, 0, 1, 0, 0, 0];
    let parts: [&[u8]; 7] =
        [b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0", &kind, &header, &sizes, &segment, &place, &CODE];
    parts.concat()
}

fn no_image(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shortest");
    std::fs::write(&file, shortest())?;
    std::fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    let root = folder.path().to_str().context("a folder with an odd name")?;
    let small = ["--in-memory", "--rootfs", root];
    let (short, set_id) = ("its start-up is too short", "it has set-user-id or set-group-id bits");
    for (options, program, status, why) in [
        (small.as_slice(), ["/shortest"].as_slice(), 0, short),
        (&[], &["/bin/su", "--version"], 0, set_id),
        (&["--recycle", "none"], &["/bin/true"], 0, "the policy is without images"),
    ] {
        let output = explain(hayate, options, program)?;
        let table = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = table.lines().last().unwrap_or_default();
        ensure!(output.status.code() == Some(status), "{}: {table}", output.status);
        ensure!(last.starts_with(&format!("image: none: {why}")), "not {why}: {table}");
        ensure!(!table.contains("from image"), "{table}");
    }
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
