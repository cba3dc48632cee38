//! Templates of Python and Perl: `template make NAME --python`.
//!
//! The checks run in the guest (`templates.sh`): they run the same commands without and with a
//! bound path, and compare what they print. Those of `templates_saved.sh` run in machines that have
//! the same non-volatile memory, one after the other. The system calls have cases of their own
//! (`tests/c/template.c`).

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use anyhow::{Context, Result, ensure};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const CHECKS: [(&str, Check); 6] = [
    ("python_starts_print_the_same", |hayate| check(hayate, "python")),
    ("perl_starts_print_the_same", |hayate| check(hayate, "perl_starts")),
    ("perl_scripts_compiled_before_print_the_same", |hayate| check(hayate, "perl_scripts")),
    ("serve_one_user_each", |hayate| check(hayate, "users")),
    ("saved_ones_are_there_in_the_next_machines", saved),
    ("the_command_makes_them_before_the_machine", before),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    if options.guest_linux { Vec::new() } else { trials_of("templates", &CHECKS, options) }
}

/// Runs one check of the script in a machine.
fn check(hayate: &Hayate, check: &str) -> Result<()> {
    run(hayate, &[], &format!("set -- {check}\n{}", include_str!("templates.sh")))
}

/// Runs a script in a machine, whose last line must be "done".
fn run(hayate: &Hayate, options: &[&str], script: &str) -> Result<()> {
    let options = [&["--net", "none"], options].concat();
    let output = hayate.run(&options, &["/bin/sh", "-c", script])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let last = text.lines().last().with_context(|| format!("it said only {said}"))?;
    ensure!(last == "done" && output.status.success(), "{text}{said}");
    Ok(())
}

/// Saves templates in one machine, and uses them in others: with two processors, little memory, a
/// changed script, another processor, and a memory with a damaged bit.
fn saved(hayate: &Hayate) -> Result<()> {
    let place = tempfile::tempdir()?;
    let work = place.path().join("work");
    let nvm = place.path().join("nvm");
    std::fs::create_dir(&work)?;
    std::fs::File::create(&nvm)?.set_len(64 << 20)?;
    let script = Script { path: work.join("script.pl"), modified: SystemTime::now() };
    script.write("script")?;
    let with = format!("{}:/work", work.display());
    let nvm_option = nvm.to_str().context("a path")?;
    let machine = |check: &str, more: &[&str]| {
        let options = [&["--with", &with, "--nvm", nvm_option], more].concat();
        let script = format!("set -- {check}\n{}", include_str!("templates_saved.sh"));
        run(hayate, &options, &script).with_context(|| format!("{check} {more:?}"))
    };
    machine("make", &[])?;
    machine("use", &["--cpus", "2"])?;
    machine("use", &["--memory", "192M", "--append", "norandmaps"])?;
    script.write("SCRIPT")?;
    machine("changed", &[])?;
    script.write("script")?;
    machine("unused 'on another processor'", &["--deterministic"])?;
    machine("use", &[])?;
    damage(&nvm)?;
    machine("unused 'template:py: EBADMSG'", &[])
}

/// A script whose time of change stays the same.
struct Script {
    path: PathBuf,
    modified: SystemTime,
}

impl Script {
    fn write(&self, word: &str) -> Result<()> {
        let text = format!("#!/usr/bin/perl\nprint \"{word} @ARGV $<\\n\";\n");
        std::fs::write(&self.path, text)?;
        std::fs::set_permissions(&self.path, Permissions::from_mode(0o755))?;
        let file = std::fs::File::options().write(true).open(&self.path)?;
        Ok(file.set_modified(self.modified)?)
    }
}

/// Changes a bit in the head of each template that is on a memory.
fn damage(nvm: &Path) -> Result<()> {
    let mut bytes = std::fs::read(nvm)?;
    let mut damaged = 0;
    for page in bytes.chunks_exact_mut(hayate_template_file::PAGE) {
        if page.starts_with(&hayate_template_file::MAGIC) {
            page[300] ^= 1;
            damaged += 1;
        }
    }
    // Pages of those that were removed still look like one.
    ensure!(damaged >= 3, "{damaged} templates are on the memory");
    Ok(std::fs::write(nvm, bytes)?)
}

/// `--template`: made at the first use, there from the boot on in every later machine; of a program
/// that cannot be loaded, and with options that do not go with it, an error.
fn before(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "python3 -c 'import json; print(json.dumps([6 * 7]))'; \
        template show python | sed -n 's/^starts: //p'";
    let place = tempfile::tempdir()?;
    let with = format!("{}:/scripts", place.path().display());
    let script = Script { path: place.path().join("hi.pl"), modified: SystemTime::now() };
    let started = |options: &[&str], said: &str, script: &str| -> Result<()> {
        let output = hayate.run(options, &["/bin/sh", "-c", script])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && text == said, "{options:?}: {text}{errors}");
        Ok(())
    };
    let python = ["--net", "none", "--template", "python=json"];
    started(&python, "[42]\n1\n", SCRIPT)?;
    started(&python, "[42]\n1\n", SCRIPT)?;
    let small = [&python[..], &["--memory", "96M", "--cpus", "2"]].concat();
    started(&small, "[42]\n1\n", SCRIPT)?;
    let other = [&python[..], &["--env", "LANG=C"]].concat();
    started(&other, "[42]\n1\n", SCRIPT)?;
    for word in ["once", "again"] {
        script.write(word)?;
        let perl = ["--with", &with, "--template", "perl-script=/scripts/hi.pl"];
        let count = "/scripts/hi.pl you; template show _scripts_hi.pl | sed -n 's/^starts: //p'";
        started(&perl, &format!("{word} you 0\n1\n"), count)?;
    }
    let refused = |options: &[&str], status: i32, why: &str| -> Result<()> {
        let output = hayate.run(options, &["true"])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{options:?}: {}, {said}", output.status);
        ensure!(said.contains(why), "{options:?}: it says {said}");
        Ok(())
    };
    refused(&["--template", "python=no_such_module"], 125, "No module named 'no_such_module'")?;
    refused(&["--template", "perl-script=/no/such"], 125, "/no/such: No such file")?;
    refused(&["--template", "ruby"], 2, "say python, python=MODULE")?;
    refused(&["--template", "python", "--user", "1000"], 2, "makes templates for root")?;
    refused(&["--template", "python", "--nvm", "64M"], 2, "leave --nvm out")?;
    refused(&["--template", "python", "--linux"], 2, "leave --linux out")
}
