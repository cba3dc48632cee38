//! Programs that the user names with `--program`: started like any other program, and timed from
//! before fork to after wait.

use super::processes::reap;
use super::syscalls::c_path;
use crate::experiment::{Experiment, Named, Setting};
use crate::idle::Stopwatch;
use crate::sampler::{Sampler, Skip};
use crate::sys::process::{Program, Split, silence_streams};
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The experiments of this file.
pub fn experiments(setting: &Setting) -> Vec<Experiment> {
    setting.programs.iter().cloned().map(experiment).collect()
}

fn experiment(named: Named) -> Experiment {
    let (name, warm_up) = (format!("program/{}", named.name), named.warm_up);
    let title = named.command.join(" ");
    let made = Experiment::time(name, title, move |s, m| samples(s, m, &named))
        .method("fork(2), execve(2) of the named program with this environment and no input, its output thrown away, wait4(2)")
        .hardware(120.0, "trap", "calls and page faults of a dynamic program")
        .software(930_000.0, "instruction", "as the smallest dynamic program; its own work is not known");
    if warm_up { made } else { made.without_warm_up() }
}

fn samples(s: &Setting, m: &mut Sampler, named: &Named) -> Result<(), Skip> {
    let path = c_path(&found(&named.command[0])?)?;
    let c_string = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| Skip("a zero byte".into()));
    let words = named.command.iter().map(|word| c_string(word.clone().into_bytes()));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let words: Vec<&CStr> = words.iter().map(CString::as_c_str).collect();
    let variables = std::env::vars_os()
        .map(|(name, value)| c_string([name, value].map(OsString::into_vec).join(&b'=')));
    let variables = variables.collect::<Result<Vec<_>, _>>()?;
    let program = Program::new(&path, &words).environment(&variables);
    silence_streams().map_err(Skip::because("/dev/null"))?;
    let mut watch = Stopwatch::new(m.clock(), s.without_idle)?;
    let what = format!("executing {}", named.command[0]);
    m.collect(|| {
        if let Some(before) = &named.before {
            prepare(before)?;
        }
        watch.time(|| reap(program.start(Split::Fork), &what))
    })
}

/// Runs the user's command before a start.
fn prepare(before: &str) -> Result<(), Skip> {
    // A shell without libraries, if there is one: libraries that a program shares with the shell
    // would stay in memory while the shell drops everything else.
    const ALONE: &str = "/bin/busybox";
    let mut shell = Command::new(if Path::new(ALONE).exists() { ALONE } else { "/bin/sh" });
    if Path::new(ALONE).exists() {
        shell.arg("sh");
    }
    let done = shell.args(["-c", before]).stdin(Stdio::null()).output();
    let done = done.map_err(Skip::because("/bin/sh"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(Skip(format!("--before {before}: {}: {}", done.status, said.trim())))
}

/// Returns the program's file, searched as by a shell.
fn found(name: &str) -> Result<PathBuf, Skip> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    let places = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&places).map(|place| place.join(name)).find(|p| is_file(p));
    found.ok_or_else(|| Skip(format!("no program {name} in PATH")))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file())
}
