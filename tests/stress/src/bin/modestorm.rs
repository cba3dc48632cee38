//! Runs a program while every process but this one and the first is switched between user and
//! supervisor mode, back and forth.
//!
//! Status: the program's own; 1 if a switch failed for another reason than that the process is gone
//! or may not be switched, or if nothing was switched; 77 if the kernel has only one mode.

use hayate_guest::{KEEP, switch_supervisor, switch_user};
use std::process::{Child, Command, ExitStatus, exit};
use std::time::{Duration, Instant};

const USAGE: &str = "modestorm [--hertz N] [--seconds N] -- CMD...

  --hertz N     how often a second each process is switched (100)
  --seconds N   run the program again until these have passed; without it once
Example: modestorm --seconds 60 -- /tests/runall static/";

fn wrong(why: &str) -> ! {
    eprintln!("{why}\nusage: {USAGE}");
    exit(2)
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (mut hertz, mut seconds) = (100, 0);
    while let Some(word) = words.next() {
        let number = |value: Option<String>| match value.and_then(|v| v.parse::<u64>().ok()) {
            Some(value) => value,
            None => wrong(&format!("{word} needs a number")),
        };
        match word.as_str() {
            "--hertz" => hertz = number(words.next()).clamp(1, 10_000),
            "--seconds" => seconds = number(words.next()),
            "--" => break,
            _ => wrong(&format!("what is {word}?")),
        }
    }
    let command: Vec<String> = words.collect();
    let Some((program, arguments)) = command.split_first() else {
        wrong("name a program after --")
    };
    if let Err(error) = switch_supervisor(0, 0).and_then(|()| switch_user(0)) {
        eprintln!("the mode cannot be switched here: {error}");
        exit(77);
    }
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut storm = Storm::default();
    let mut rounds = 0;
    loop {
        let child = Command::new(program).args(arguments).env("MODE_STORM", "1").spawn();
        let child = child.unwrap_or_else(|error| {
            eprintln!("{program}: {error}");
            exit(127)
        });
        let status = storm.until_end(child, Duration::from_micros(1_000_000 / hertz));
        rounds += 1;
        if !status.success() || Instant::now() >= end {
            eprintln!("modestorm: {rounds} rounds, {} switches: {status}", storm.switches);
            exit(status.code().unwrap_or(1));
        }
    }
}

#[derive(Default)]
struct Storm {
    switches: u64,
    supervisor: bool,
}

impl Storm {
    fn until_end(&mut self, mut child: Child, period: Duration) -> ExitStatus {
        let before = self.switches;
        let mut next = Instant::now();
        loop {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => {
                    if self.switches == before {
                        eprintln!("modestorm: nothing was switched");
                        exit(1);
                    }
                    return status;
                }
                Err(error) => {
                    eprintln!("modestorm: wait: {error}");
                    exit(1);
                }
            }
            self.supervisor = !self.supervisor;
            self.switch_all();
            // Missed ticks are not made up for, so that the program can make progress, too.
            next = (next + period).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()).max(period / 8));
        }
    }

    fn switch_all(&mut self) {
        let own = std::process::id() as i32;
        let Ok(entries) = std::fs::read_dir("/proc") else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = pid.filter(|&pid| pid != 1 && pid != own) else { continue };
            let done =
                if self.supervisor { switch_supervisor(pid, KEEP) } else { switch_user(pid) };
            match done {
                Ok(()) => self.switches += 1,
                // Set-user-id programs are not switched; processes end.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ESRCH)) => {}
                Err(error) => {
                    eprintln!("modestorm: process {pid}: {error}");
                    exit(1);
                }
            }
        }
    }
}
