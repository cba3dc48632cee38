//! Rules for the sources, checked by reading them.

use super::cargo::CARGO_FOLDER;
use super::report::{Case, Verdict, judge};
use super::{Report, Trial};
use crate::{compile, paths, tool};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The trials.
pub fn trials() -> Vec<Trial> {
    vec![
        trial("sources/unsafe_lives_in_machine_only", unsafe_lives_in_machine_only),
        trial("sources/every_unsafe_block_says_why_it_is_sound", every_unsafe_block_says_why),
        trial("sources/macros_bring_no_unsafe_code_out_of_its_room", macros_bring_no_unsafe_code),
        trial("sources/no_work_is_left_for_later", no_work_is_left),
        trial("sources/arrows_between_modules_point_down", super::layers::arrows_point_down),
        trial("sources/documents_name_files_that_exist", super::documents::name_files_that_exist),
        Trial::new("sources/formatted", |_| cargo(&["fmt", "--all", "--check"])),
        Trial::new("sources/lints_of_the_kernel", |_| lints_of_the_kernel(""))
            .exclusive(CARGO_FOLDER),
        Trial::new("sources/lints_of_the_kernel_with_its_tests", |_| lints_of_the_kernel("tests"))
            .exclusive(CARGO_FOLDER),
        Trial::new("sources/documentation_of_the_kernel", |_| documentation_of_the_kernel())
            .exclusive(CARGO_FOLDER),
        Trial::new("sources/lints_of_host_crates", |_| {
            cargo(&["clippy", "--all-targets", "--", "-D", "warnings"])
        })
        .exclusive(CARGO_FOLDER),
    ]
}

fn trial(name: &str, look: fn() -> Result<Vec<String>>) -> Trial {
    let run = move |_: &[String]| {
        let found = look()?;
        let verdict = match found.len() {
            0 => Verdict::Passed,
            count => Verdict::Failed(format!("{count} places")),
        };
        Ok(Report { cases: vec![Case::new("", verdict)], output: found.join("\n") })
    };
    Trial::new(name, run)
}

fn lints_of_the_kernel(features: &str) -> Result<Report> {
    let target = ["--target", "x86_64-unknown-none", "-p", "hayate-kernel"];
    let rest = ["--features", features, "--", "-D", "warnings"];
    cargo(&[&["clippy"], &target[..], &rest].concat())
}

/// Makes the documentation of the kernel and of `machine/`, private items included. A link that
/// leads nowhere is an error.
fn documentation_of_the_kernel() -> Result<Report> {
    let mut command = compile::cargo()?;
    command.env("RUSTDOCFLAGS", "-D warnings").arg("doc");
    command.args([
        "--target",
        "x86_64-unknown-none",
        "-p",
        "hayate-kernel",
        "-p",
        "hayate-machine",
    ]);
    command.args(["--no-deps", "--document-private-items"]);
    report_of(&mut command, "cargo doc")
}

fn cargo(arguments: &[&str]) -> Result<Report> {
    let name = arguments.first().copied().unwrap_or_default();
    report_of(compile::cargo()?.args(arguments), &format!("cargo {name}"))
}

fn report_of(command: &mut Command, name: &str) -> Result<Report> {
    let result = tool::run(command);
    let passed = vec![Case::new("", Verdict::Passed)];
    Ok(match result {
        Ok(_) => Report { cases: passed, output: String::new() },
        Err(error) => {
            let cases = judge(Vec::new(), Err(name.to_string()));
            Report { cases, output: error.to_string() }
        }
    })
}

/// Checks that `kernel/` and `crates/` have no unsafe code and forbid it by a lint, and that
/// `cli/`, `measure/tools/` and `shim/` do too.
fn unsafe_lives_in_machine_only() -> Result<Vec<String>> {
    let root = paths::project();
    let mut found = Vec::new();
    for folder in ["kernel/src", "crates", "cli", "measure/tools", "shim"] {
        for (path, text) in sources(&root.join(folder))? {
            for (number, line) in text.lines().enumerate() {
                if has_word(&code(line), "unsafe") {
                    found.push(place_of(&root, &path, number));
                }
            }
        }
    }
    let mut tops = vec![root.join("kernel/src/main.rs"), root.join("cli/src/lib.rs")];
    let more = ["cli/command/src/main.rs", "measure/tools/src/lib.rs", "shim/src/main.rs"];
    tops.extend(more.map(|top| root.join(top)));
    for entry in root.join("crates").read_dir()? {
        tops.push(entry?.path().join("src/lib.rs"));
    }
    for top in tops.iter().filter(|top| top.exists()) {
        let text = std::fs::read_to_string(top)?;
        if !text.contains("#![forbid(unsafe_code)]") && !text.contains("#![deny(unsafe_code)]") {
            found.push(format!("{}: does not forbid unsafe code", shown(&root, top)));
        }
    }
    Ok(found)
}

/// Checks that every other unsafe block and implementation has its reason directly above it. The
/// lint `undocumented_unsafe_blocks` checks the same; this also covers code that a build leaves
/// out.
fn every_unsafe_block_says_why() -> Result<Vec<String>> {
    let root = paths::project();
    let mut found = Vec::new();
    for folder in ["machine", "guest", "measure", "tests"] {
        for (path, text) in sources(&root.join(folder))? {
            let lines: Vec<&str> = text.lines().collect();
            for (number, line) in lines.iter().enumerate() {
                let code = code(line);
                let block = code.contains("unsafe {") || code.contains("unsafe impl");
                if block && !explained(&lines, number) {
                    found.push(place_of(&root, &path, number));
                }
            }
        }
    }
    Ok(found)
}

/// Checks macros, which may expand to unsafe code where they are called. Each macro that `machine/`
/// exports and that does so must say why any safe use of it is sound. In `kernel/` only macros of
/// well-maintained crates that are meant for such use may expand to unsafe code.
fn macros_bring_no_unsafe_code() -> Result<Vec<String>> {
    let root = paths::project();
    let mut found = Vec::new();
    for (path, text) in sources(&root.join("machine/src"))? {
        for number in unexplained_macros(&text) {
            found.push(place_of(&root, &path, number));
        }
    }
    for folder in ["kernel/src", "crates", "cli", "measure/tools", "shim"] {
        for (path, text) in sources(&root.join(folder))? {
            for number in unknown_expansions(&text) {
                found.push(place_of(&root, &path, number));
            }
        }
    }
    Ok(found)
}

/// Returns the lines of exported macros that expand to unsafe code and do not say why any safe use
/// is sound.
fn unexplained_macros(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (number, _) in lines.iter().enumerate().filter(|(_, line)| line.contains("#[macro_export]"))
    {
        let body = lines[number..].iter().take_while(|line| **line != "}");
        let expands = body.clone().any(|line| has_word(&code(line), "unsafe"));
        let above = lines[..number].iter().rev().take_while(|line| line.starts_with("//"));
        let mut comments = above.chain(body).filter(|line| line.trim_start().starts_with("//"));
        if expands && !comments.any(|line| line.contains("SOUND:")) {
            found.push(number);
        }
    }
    found
}

/// Returns the lines where unsafe code is allowed for something that is not a known macro.
fn unknown_expansions(text: &str) -> Vec<usize> {
    const KNOWN: [&str; 2] = ["intrusive_adapter!(", "#[linkme::distributed_slice"];
    let lines: Vec<&str> = text.lines().collect();
    let allows = |line: &str| {
        let code = code(line);
        code.contains("(unsafe_code") && !code.contains("deny(") && !code.contains("forbid(")
    };
    let known = |line: &&str| KNOWN.iter().any(|name| line.contains(name));
    let all = lines.iter().enumerate().filter(|(_, line)| allows(line));
    all.map(|(number, _)| number)
        .filter(|&number| !lines[number..].iter().take(10).any(known))
        .collect()
}

/// Whether a reason is in the line, in the statement's lines above it, or in the comment above
/// those.
fn explained(lines: &[&str], number: usize) -> bool {
    if lines[number].contains("SAFETY:") {
        return true;
    }
    let mut in_comment = false;
    for line in lines[..number].iter().rev().take(40) {
        let line = line.trim();
        if line.starts_with("//") || line.starts_with("#[") {
            in_comment = true;
            if line.contains("SAFETY:") {
                return true;
            }
        } else if in_comment || line.is_empty() || line.ends_with([';', '}']) {
            return false;
        }
    }
    false
}

/// Checks that there is no marker of unfinished work.
fn no_work_is_left() -> Result<Vec<String>> {
    let root = paths::project();
    // Assembled so that this file does not match itself.
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|parts| parts.concat());
    let calls = [["todo", "!("], ["unimplemented", "!("], ["#[ig", "nore"]].map(|p| p.concat());
    let mut found = Vec::new();
    for folder in ["cli", "crates", "guest", "kernel", "machine", "measure", "shim", "tests"] {
        for (path, text) in sources(&root.join(folder))? {
            for (number, line) in text.lines().enumerate() {
                if words.iter().any(|word| has_word(line, word))
                    || calls.iter().any(|call| line.contains(call.as_str()))
                {
                    found.push(place_of(&root, &path, number));
                }
            }
        }
    }
    Ok(found)
}

/// Returns a line without its comment and without quoted text.
pub fn code(line: &str) -> String {
    let mut code = String::new();
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '\\' if quoted => {
                characters.next();
            }
            '"' => quoted = !quoted,
            '/' if !quoted && characters.peek() == Some(&'/') => break,
            c if !quoted => code.push(c),
            _ => {}
        }
    }
    code
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

fn place_of(root: &Path, path: &Path, number: usize) -> String {
    format!("{}:{}", shown(root, path), number + 1)
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// Every Rust and C file below a folder.
pub fn sources(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut pending = vec![folder.to_path_buf()];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                for entry in path.read_dir()? {
                    pending.push(entry?.path());
                }
            }
        } else if path.extension().is_some_and(|end| end == "rs" || end == "c" || end == "h") {
            let text = std::fs::read_to_string(&path)?;
            found.push((path, text));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_is_left() {
        assert_eq!(code("let x = 1; // unsafe"), "let x = 1; ");
        assert_eq!(code(r#"f("un\"safe//", y)"#), "f(, y)");
    }

    #[test]
    fn macros_say_why_they_are_sound() {
        let bad =
            "/// Does it.\n#[macro_export]\nmacro_rules! m {\n    () => { unsafe { f() } };\n}\n";
        assert_eq!(unexplained_macros(bad), [1]);
        let good = bad.replace("/// Does it.", "// SOUND: it is.");
        assert!(unexplained_macros(&good).is_empty());
        let safe = bad.replace("unsafe ", "");
        assert!(unexplained_macros(&safe).is_empty());
        // Text behind the end of a macro does not belong to it.
        assert!(unexplained_macros(&format!("{safe}// x\nunsafe fn f() {{}}\n")).is_empty());
    }

    #[test]
    fn unsafe_code_is_allowed_to_known_macros() {
        let good = "#[allow(unsafe_code)]\nmod a {\n    intrusive_adapter!(A = B);\n}\n";
        assert!(unknown_expansions(good).is_empty());
        assert_eq!(unknown_expansions(&good.replace("intrusive", "other")), [0]);
        assert!(unknown_expansions("#![deny(unsafe_code)]\n").is_empty());
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("let x = unsafe { 1 };", "unsafe"));
        assert!(!has_word("#![deny(unsafe_code)]", "unsafe"));
        assert!(!has_word("an_unsafe", "unsafe"));
    }

    #[test]
    fn a_reason_stands_above() {
        let good = ["// SAFETY: it is fine.", "let x =", "    unsafe { f() };"];
        assert!(explained(&good, 2));
        let bad = ["// SAFETY: of another.", "unsafe { g() };", "unsafe { f() };"];
        assert!(!explained(&bad, 2));
        assert!(!explained(&["", "unsafe { f() };"], 1));
    }
}
