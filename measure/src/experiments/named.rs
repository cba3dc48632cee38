//! Programs that the user names with `--program`: started like any other program, and timed from
//! before fork to after wait.

use super::processes::reap;
use super::syscalls::c_path;
use crate::experiment::{Experiment, Named, Setting};
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
    let made = Experiment::time(name, title, move |_, m| samples(m, &named))
        .method("fork(2), execve(2) of the named program with this environment and no input, its output thrown away, wait4(2)")
        .hardware(120.0, "trap", "calls and page faults of a dynamic program")
        .software(930_000.0, "instruction", "as the smallest dynamic program; its own work is not known");
    if warm_up { made } else { made.without_warm_up() }
}

fn samples(m: &mut Sampler, named: &Named) -> Result<(), Skip> {
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
    let clock = m.clock();
    let what = format!("executing {}", named.command[0]);
    m.collect(|| {
        if let Some(before) = &named.before {
            prepare(before)?;
        }
        let idle = || if named.without_idle { idle_ns() } else { Ok(0) };
        let before = idle()?;
        let start = clock.start();
        reap(program.start(Split::Fork), &what)?;
        let ticks = clock.stop().saturating_sub(start);
        // Reading it does not wait, so the whole difference belongs to the start.
        let idle = idle()?.saturating_sub(before) as f64 / clock.ns(1.0);
        Ok(ticks.saturating_sub(idle as u64))
    })
}

/// Returns the nanoseconds since boot in which the processor was idle.
fn idle_ns() -> Result<u64, Skip> {
    let path = "/proc/timer_list";
    let list = std::fs::read_to_string(path).map_err(Skip::because(path))?;
    idle_of(&list).ok_or_else(|| Skip(format!("{path} does not tell of one processor that idles")))
}

/// Returns the sum of Linux' line ` .idle_sleeptime : 123 nsecs` and of that for idling while a
/// thread waits for a disk. With several processors, the work of one while others idle is not
/// known.
fn idle_of(list: &str) -> Option<u64> {
    let number = |wanted: &str| {
        let mut values = list.lines().filter_map(|line| {
            let (name, value) = line.trim().split_once(':')?;
            (name.trim() == wanted).then_some(value)
        });
        let one = values.next()?.split_whitespace().next()?.parse::<u64>().ok()?;
        values.next().is_none().then_some(one)
    };
    Some(number(".idle_sleeptime")? + number(".iowait_sleeptime")?)
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

#[cfg(test)]
mod tests {
    use super::idle_of;

    #[test]
    fn idle_time_is_that_of_the_only_processor() {
        let one = "cpu: 0\n  .nr_events : 7\n  .idle_waketime  : 9 nsecs\n  \
            .idle_sleeptime : 100 nsecs\n  .iowait_sleeptime: 20 nsecs\n";
        assert_eq!(idle_of(one), Some(120));
        assert_eq!(idle_of(&format!("{one}{one}")), None);
        assert_eq!(idle_of("Timer List Version: v0.9\n"), None);
    }
}
