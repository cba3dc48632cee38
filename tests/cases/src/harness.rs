//! Runs cases like the C harness: the same command line, output and exit status.
//!
//! Each case runs in a process of its own (this program once more, with `--run CASE`), in a fresh
//! directory and its own process group, under a time limit.

use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A case: its name, and a function that panics when it fails.
pub type Case = (&'static str, fn());

/// Ends the running case as skipped.
pub fn skip(why: &str) -> ! {
    eprintln!("{why}");
    std::process::exit(77)
}

enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

fn run(name: &str, limit: Duration) -> std::io::Result<Verdict> {
    let base = std::env::var("TMPDIR").unwrap_or_else(|_| "/tmp".to_string());
    let directory = format!("{base}/hayate-rust.{}.{name}", std::process::id());
    fs::create_dir(&directory)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--run", name])
        .current_dir(&directory)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begin.elapsed() > limit {
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
        // Also kills processes that the case left running, which would hold the pipe open.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut said);
    }
    let _ = child.wait();
    let _ = fs::remove_dir_all(&directory);
    // A panic reports place and reason in two lines.
    let said = said.trim().replace('\n', " | ");
    Ok(match status {
        None => Verdict::Failed(format!("no end within {} s", limit.as_secs())),
        Some(status) if status.success() => Verdict::Passed,
        Some(status) if status.code() == Some(77) => Verdict::Skipped(said),
        Some(status) => match status.signal() {
            Some(signal) => Verdict::Failed(format!("killed by signal {signal} {said}")),
            None => Verdict::Failed(said),
        },
    })
}

/// The program: lists, runs one or all.
pub fn main(area: &str, cases: &[Case]) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let filter = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => None,
        ["--list"] => {
            cases.iter().for_each(|(name, _)| println!("{area}::{name}"));
            return ExitCode::SUCCESS;
        }
        ["--run", name] => {
            if let Some((_, run)) = cases.iter().find(|(n, _)| *n == name) {
                run();
                return ExitCode::SUCCESS;
            }
            return ExitCode::from(2);
        }
        [filter] if !filter.starts_with('-') => Some(filter),
        _ => {
            eprintln!("usage: {area} [--list | CASE]");
            return ExitCode::from(2);
        }
    };
    let seconds = std::env::var("TEST_TIMEOUT").ok().and_then(|t| t.parse().ok()).unwrap_or(30);
    let full = |name: &str| format!("{area}::{name}");
    let is = |name: &str| filter.is_some_and(|f| f == name || f == full(name));
    let exact = cases.iter().any(|(name, _)| is(name));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, _) in cases {
        if !filter.is_none_or(|f| if exact { is(name) } else { full(name).contains(f) }) {
            continue;
        }
        let verdict = run(name, Duration::from_secs(seconds))
            .unwrap_or_else(|e| Verdict::Failed(format!("cannot be started: {e}")));
        match verdict {
            Verdict::Passed => {
                passed += 1;
                println!("test {area}::{name} ... ok");
            }
            Verdict::Failed(why) => {
                failed += 1;
                println!("test {area}::{name} ... FAILED ({why})");
            }
            Verdict::Skipped(why) => {
                skipped += 1;
                println!("test {area}::{name} ... skipped ({why})");
            }
        }
    }
    if passed + failed + skipped == 0 {
        eprintln!("no case of {area} has such a name");
        return ExitCode::from(2);
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed; {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}
