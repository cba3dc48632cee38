//! Refuses the N-th memory request of the guest suite's cases, for each N.
//!
//! Needs a kernel for tests (`/proc/hayate/refusal`). Each case of the named programs runs
//! repeatedly: first undisturbed, then with its first request refused, then its second, and so on
//! until it ends without a refusal. The case may then fail, or be killed. The requirements are that
//! it ends, that the kernel survives, and that the kernel does not hold more after each sweep
//! through all cases of a program.

use hayate_stress::balance::{Memory, memory};
use hayate_stress::{Options, fork, wait};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::time::{Duration, Instant};

const USAGE: &str = "refusal [--stride N] [--only AREAS] [--case NAME] [--most N] FOLDER

Runs every case of the programs in FOLDER with its N-th request for memory refused.
  --stride N   refuse only every N-th request; each case begins with another one [1]
  --only AREAS only these programs, separated by commas
  --case NAME  only cases with NAME in their names
  --most N     no more than N requests of each case [1000]
Example: refusal --only pipe --case splice /tests/static";

/// The time limit of a case, and of its end after that, in seconds: many cases wait for a process
/// that was killed.
const LIMIT: &str = "4";
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a program is swept before growth counts as a leak.
const SWEEPS: u64 = 4;

/// How often a case runs; the same number of additional objects is a leak.
const LEAKS: u64 = 8;

/// Programs whose cases change the behaviour of the whole machine, or need minutes.
const LEFT_OUT: [&str; 4] = ["mode", "recycle", "teardown", "clock"];

fn refused_count() -> u64 {
    let text = match fs::read_to_string("/proc/hayate/refusal") {
        Ok(text) => text,
        Err(error) => {
            eprintln!("refusal: /proc/hayate/refusal: {error}: not a kernel for tests");
            exit(2);
        }
    };
    let count = text.lines().find_map(|line| line.strip_prefix("refused "));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// The state before the first case: a case that does not finish leaves mounts and files behind.
struct Before {
    mounts: String,
    files: Vec<PathBuf>,
}

/// The folders in which cases leave files.
const PLACES: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

fn files() -> Vec<PathBuf> {
    let entries = PLACES.iter().filter_map(|place| fs::read_dir(place).ok());
    entries.flat_map(|entries| entries.flatten().map(|entry| entry.path())).collect()
}

impl Before {
    fn look() -> Before {
        let _ = fs::write(OUTPUT, "");
        Before { mounts: fs::read_to_string("/proc/mounts").unwrap_or_default(), files: files() }
    }

    /// Unmounts and removes the mounts and files that did not exist before.
    fn restore(&self) {
        let now = fs::read_to_string("/proc/mounts").unwrap_or_default();
        for line in now.lines().rev().filter(|line| !self.mounts.lines().any(|old| old == *line)) {
            if let Some(place) = line.split(' ').nth(1)
                && let Ok(place) = std::ffi::CString::new(place)
            {
                // SAFETY: a string that ends with a zero.
                unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
            }
        }
        for file in files().iter().filter(|file| !self.files.contains(file)) {
            let _ = fs::remove_file(file).or_else(|_| fs::remove_dir_all(file));
        }
    }
}

/// The file for the output of a case.
const OUTPUT: &str = "/tmp/refusal.output";

/// Runs one case; returns its output, or `None` if it did not end.
fn run(program: &Path, case: &str, nth: u64) -> Option<String> {
    let mut command = Command::new(program);
    command.arg(case).env("TEST_TIMEOUT", LIMIT);
    if nth != 0 {
        command.env("REFUSE_NTH", nth.to_string());
    }
    let file = fs::File::create(OUTPUT).ok()?;
    command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let start = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if start.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(if start.elapsed().as_millis() < 50 {
            1
        } else {
            20
        }));
    }
    fs::read_to_string(OUTPUT).ok()
}

/// Refuses all requests of one case, one after the other; returns how many there were, or what went
/// wrong.
fn sweep(program: &Path, case: &str, first: u64, stride: u64, most: u64) -> Result<u64, String> {
    let before = Before::look();
    let mut nth = first;
    let mut runs = 0;
    while nth <= most {
        let count = refused_count();
        let said = run(program, case, nth).ok_or(format!("no end with request {nth} refused"))?;
        before.restore();
        if !said.contains("test result:") {
            return Err(format!("request {nth}: the runner ended early: {said}"));
        }
        if refused_count() == count {
            break;
        }
        runs += 1;
        nth += stride;
    }
    Ok(runs)
}

/// Returns the kernel's memory that could leak: the number of small objects, the larger ones, and
/// how many there are of each size.
fn held() -> ((u64, u64), String) {
    match memory(true) {
        Some(Memory::Frames { count, large, kinds, .. }) => ((count, large), kinds),
        _ => ((0, 0), String::new()),
    }
}

/// Returns the sizes of objects whose number changed.
fn changed(before: &str, after: &str) -> String {
    let pairs = before.split(' ').zip(after.split(' '));
    pairs.filter(|(a, b)| a != b).map(|(a, b)| format!(" [{a} -> {b}]")).collect()
}

/// Refuses all requests of all cases of a program, one after the other; returns how many there
/// were.
///
/// A sweep may make permanent allocations (a table that grows to its final size). A leak grows with
/// every sweep: so a program after which the kernel holds more is swept again, at most [`SWEEPS`]
/// times.
fn sweep_all(program: &Path, cases: &[&str], stride: u64, most: u64) -> Result<u64, String> {
    let (mut last, mut kinds) = held();
    let mut total = 0;
    for turn in 0..SWEEPS {
        for (number, case) in cases.iter().enumerate() {
            let first = 1 + (number as u64 + turn) % stride;
            let runs = sweep(program, case, first, stride, most)
                .map_err(|why| format!("{case}: {why}"))?;
            if turn == 0 {
                println!("    {case}: {runs} refusals");
            }
            total += runs;
        }
        let (now, now_kinds) = held();
        if now.0 <= last.0 && now.1 <= last.1 {
            return Ok(total);
        }
        println!(
            "    after sweep {}: objects {} to {}, large {} to {}:{}",
            turn + 1,
            last.0,
            now.0,
            last.1,
            now.1,
            changed(&kinds, &now_kinds)
        );
        (last, kinds) = (now, now_kinds);
    }
    name_leaks(program, cases, stride, most);
    Err("the kernel holds more after every sweep".into())
}

/// Names the cases after each of whose runs the kernel holds more: undisturbed, or with which
/// request refused.
fn name_leaks(program: &Path, cases: &[&str], stride: u64, most: u64) {
    let all = Before::look();
    for (number, case) in cases.iter().enumerate() {
        let first = 1 + number as u64 % stride;
        let refused = (first..=most).step_by(usize::try_from(stride).unwrap_or(1));
        for nth in [0].into_iter().chain(refused) {
            let (before, refused_before) = (held(), refused_count());
            for _ in 0..LEAKS {
                run(program, case, nth);
                all.restore();
            }
            let after = held();
            if after.0.0 >= before.0.0 + LEAKS || after.0.1 >= before.0.1 + LEAKS {
                println!(
                    "    {case}, request {nth}, {LEAKS} times:{}",
                    changed(&before.1, &after.1)
                );
            }
            if nth != 0 && refused_count() == refused_before {
                break;
            }
        }
    }
}

/// Lets tables that grow with use, up to a bound, reach their final size before anything is
/// counted: those of process numbers, and the queues of the futex table.
fn fill_tables(options: &Options) {
    for _ in 0..1024 {
        match fork() {
            // SAFETY: ends the child at once.
            Ok(0) => unsafe { libc::_exit(0) },
            Ok(pid) => drop(wait(pid)),
            Err(error) => options.wrong(&format!("fork: {error}")),
        }
    }
    let words = vec![0u32; 4096];
    let soon = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    for word in &words {
        let no = std::ptr::null::<u32>();
        // SAFETY: the word and the time live; the call waits no longer than that time.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 0, &soon, no, 0) };
    }
}

fn main() {
    let options = Options::parse(USAGE, &["stride", "only", "case", "most"], &[]);
    let stride: u64 = options.get("stride", 1).max(1);
    let most: u64 = options.get("most", 1000);
    let only: String = options.get("only", String::new());
    let wanted: String = options.get("case", String::new());
    let Some(folder) = options.plain.clone() else { options.wrong("which folder?") };
    let mut programs: Vec<_> = match fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) => options.wrong(&format!("{folder}: {error}")),
    };
    programs.sort();
    fill_tables(&options);
    let (mut failed, mut total) = (0, 0);
    for program in &programs {
        let area = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let chosen = only.split(',').any(|one| one == area);
        if !chosen && (!only.is_empty() || LEFT_OUT.contains(&area.as_str())) {
            continue;
        }
        let Ok(list) = Command::new(program).arg("--list").output() else { continue };
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let passes =
            |case: &&str| run(program, case, 0).is_some_and(|said| said.contains(" ... ok"));
        let cases = list.lines().filter(|case| case.contains(wanted.as_str()));
        let cases: Vec<&str> = cases.filter(passes).collect();
        match sweep_all(program, &cases, stride, most) {
            Ok(runs) => {
                total += runs;
                println!("{area}: {} cases, {runs} refusals", cases.len());
            }
            Err(why) => {
                failed += 1;
                println!("{area}: FAILED: {why}");
            }
        }
    }
    println!("{total} refusals in all, {failed} programs failed");
    exit(i32::from(failed != 0 || total == 0));
}
