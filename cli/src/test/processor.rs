//! Processor models, old and new, with their missing features: each boots to a program that checks
//! all processors of the machine, on both boards; models that the kernel cannot run on are refused
//! with one line.
//!
//! Every model runs on both boards. The numbers of processors are distributed so that each board
//! has every number, and each model a small and a large one.

use super::command::{Check, Hayate, expect, trials_of};
use super::report::{Case, judge};
use super::{Report, Trial};
use crate::arguments::Test;
use crate::paths;
use anyhow::Result;

/// A model: the name of its row, QEMU's name, and the numbers of processors on q35 and on microvm.
const MODELS: [(&str, &str, [u8; 2]); 9] = [
    ("qemu64", "qemu64", [1, 16]),
    ("Nehalem", "Nehalem", [16, 2]),
    ("Haswell", "Haswell", [4, 1]),
    ("EPYC", "EPYC", [2, 4]),
    ("max-without-xsave", "max,-xsave", [1, 4]),
    ("max-without-fsgsbase", "max,-fsgsbase", [4, 16]),
    ("max-without-smep-and-smap", "max,-smep,-smap", [2, 1]),
    ("max-without-rdrand", "max,-rdrand,-rdseed", [16, 1]),
    ("max", "max", [4, 2]),
];

const BOARDS: [&str; 2] = ["q35", "microvm"];

/// The program's path in the folder of static programs, and its area.
const PROGRAM: &str = "/processors";
const AREA: &str = "processors::";

const REFUSED: [(&str, Check); 2] = [
    ("one_that_the_kernel_cannot_run_on_is_refused", refused),
    ("one_that_nobody_knows_is_2", unknown),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, model, cpus) in MODELS {
        for (board, cpus) in BOARDS.into_iter().zip(cpus) {
            // Linux finds no clock on microvm without KVM.
            if options.guest_linux && board == "microvm" {
                continue;
            }
            let hayate = Hayate::new(options);
            let trial = Trial::new(format!("processor/{name}/{board}/{cpus}-cpu"), move |_| {
                boots(&hayate, model, board, cpus)
            });
            trials.push(trial.weight(usize::from(cpus)));
        }
    }
    trials.extend(trials_of("processor", &REFUSED, options));
    trials
}

fn boots(hayate: &Hayate, model: &str, board: &str, cpus: u8) -> Result<Report> {
    let folder = paths::build("tests")?.join("static").to_string_lossy().into_owned();
    let cpus = cpus.to_string();
    let options = ["--rootfs", &folder, "--in-memory", "--timeout", "300", "--cpu", model];
    let options = [&options[..], &["--machine", board, "--cpus", &cpus]].concat();
    let output = hayate.run(&options, &[PROGRAM])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let cases = text.lines().filter_map(Case::of_line);
    let cases = cases.map(|case| Case {
        name: case.name.strip_prefix(AREA).unwrap_or(&case.name).into(),
        ..case
    });
    // QEMU's warnings about unavailable features are not shown to the user.
    let end = match (output.status.code(), said.is_empty()) {
        (Some(0), true) => Ok(()),
        (Some(0), false) => Err("something is on standard error".into()),
        _ => Err(format!("it ended with {}", output.status)),
    };
    Ok(Report { cases: judge(cases.collect(), end), output: said })
}

/// Features that every program of x86-64, and the kernel, needs; on the other board as well.
fn refused(hayate: &Hayate) -> Result<()> {
    if hayate.linux {
        return Ok(());
    }
    let refusal = |model: &str, board: &str, lacks: &str| -> Result<()> {
        let output = hayate.run(&["--cpu", model, "--machine", board], &["true"])?;
        let line = format!(
            "hayate: the kernel does not boot on this machine: this processor lacks {lacks}\n"
        );
        expect(&output, 125, "", &line)?;
        anyhow::ensure!(output.stderr == line.as_bytes(), "more than one line is said");
        Ok(())
    };
    refusal("qemu32", "q35", "nx lm")?;
    refusal("qemu32", "microvm", "nx lm")?;
    refusal("max,-nx", "q35", "nx")?;
    refusal("max,-sse2", "q35", "sse2")?;
    refusal("max,-apic", "microvm", "apic")?;
    refusal("max,-syscall", "q35", "syscall")
}

fn unknown(hayate: &Hayate) -> Result<()> {
    expect(&hayate.run(&["--cpu", "i8086"], &["true"])?, 2, "", "knows no processor i8086")?;
    let output = hayate.run(&["--cpu", "max,+no-such-thing"], &["true"])?;
    let line = "hayate: QEMU does not start the machine: ";
    expect(&output, 125, "", line)?;
    anyhow::ensure!(output.stderr.iter().filter(|&&byte| byte == b'\n').count() == 1, "one line");
    Ok(())
}
