//! Starts a small program repeatedly on several workers, and checks for leaks.
//!
//! Each round is fork (or vfork), execve, exit and wait4. The program's exit status is its number
//! of arguments less one, so a wrong argument vector or status is noticed. With `--leak-check` the
//! memory in use before and after is compared after caches are dropped. Where the kernel reports it
//! (`/proc/hayate/frames`), this is exact to the frame and, for the kernel's own objects, to the
//! byte; on a Linux with other activity it allows half a page per round.

use std::ffi::CString;
use std::path::PathBuf;
use std::process::exit;
use std::time::Instant;

use hayate_stress::balance::{Memory, lost, memory};
use hayate_stress::{Ended, Options, c_path, fork, wait};

const USAGE: &str =
    "spawner [--count N] [--procs P] [--how fork|vfork|none] [--leak-check] [PROGRAM]
  --count N      rounds over all workers (10000)
  --procs P      workers at the same time (2)
  --how HOW      start by fork (default) or vfork; none: fork and exit without execve
  --leak-check   drop the kernel's caches and fail when memory is lost
  PROGRAM        exits with its number of arguments (default: `tiny` beside this program)
Example: spawner --count 1000 --how vfork --leak-check";

#[derive(Clone, Copy, PartialEq)]
enum How {
    Fork,
    Vfork,
    None,
}

/// Does one round with `arguments` arguments; returns the text of a failure.
fn round(program: &CString, how: How, arguments: i32) -> Result<(), String> {
    let word = c"argument";
    let mut argv = vec![program.as_ptr()];
    argv.extend((0..arguments).map(|_| word.as_ptr()));
    argv.push(std::ptr::null());
    let envp = [c"STRESS=spawner".as_ptr(), std::ptr::null()];
    let pid = match how {
        // SAFETY: the child of vfork calls only execve and _exit and returns from no function.
        #[allow(deprecated)]
        How::Vfork => unsafe { libc::vfork() },
        _ => fork().map_err(|e| format!("fork: {e}"))?,
    };
    if pid == 0 {
        // SAFETY: both vectors end with null and point to strings that live on.
        unsafe {
            if how != How::None {
                libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr());
                libc::_exit(127)
            }
            libc::_exit(arguments)
        }
    }
    if pid == -1 {
        return Err(format!("vfork: {}", std::io::Error::last_os_error()));
    }
    match wait(pid) {
        Some((_, Ended::Exited(status))) if status == arguments => Ok(()),
        other => Err(format!("child {pid} with {arguments} arguments ended as {other:?}")),
    }
}

fn worker(program: &CString, how: How, rounds: u64) -> i32 {
    for i in 0..rounds {
        if let Err(why) = round(program, how, (i % 5) as i32) {
            eprintln!("spawner: round {i}: {why}");
            return 1;
        }
    }
    0
}

fn run(program: &CString, how: How, count: u64, procs: u64) -> bool {
    let mut pids = Vec::new();
    for n in 0..procs {
        let share = count / procs + u64::from(n < count % procs);
        match fork() {
            Ok(0) => exit(worker(program, how, share)),
            Ok(pid) => pids.push(pid),
            Err(e) => {
                eprintln!("spawner: fork of a worker: {e}");
                return false;
            }
        }
    }
    pids.into_iter().fold(true, |good, pid| {
        let ended = wait(pid);
        good & matches!(ended, Some((_, Ended::Exited(0))))
    })
}

fn main() {
    let options = Options::parse(USAGE, &["count", "procs", "how"], &["leak-check"]);
    let count: u64 = options.get("count", 10_000);
    let procs: u64 = options.get("procs", 2);
    let how = match options.get("how", "fork".to_string()).as_str() {
        "fork" => How::Fork,
        "vfork" => How::Vfork,
        "none" => How::None,
        _ => options.wrong("--how is fork, vfork or none"),
    };
    if procs == 0 || procs > 256 {
        options.wrong("--procs is 1 to 256");
    }
    let beside = || {
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("./spawner"));
        own.with_file_name("tiny").to_string_lossy().into_owned()
    };
    let program = c_path(&options.plain.clone().unwrap_or_else(beside));
    // Warm up with exactly the same rounds: permanent allocations of the first rounds are not a
    // leak.
    let check = options.has("leak-check");
    let warm_up = if check { count / 5 + 20 * procs } else { 4 * procs };
    let measured = |count: u64, what: &str| {
        let from = Instant::now();
        if !run(&program, how, count, procs) {
            println!("spawner: FAILED: a round went wrong");
            exit(1);
        }
        let seconds = from.elapsed().as_secs_f64();
        println!(
            "spawner: {what}: {count} rounds on {procs} workers in {seconds:.2} s, {:.1} us each",
            seconds * 1e6 / count.max(1) as f64
        );
        let memory = memory(check);
        match &memory {
            Some(Memory::Frames { text, kinds, .. }) => {
                println!("spawner: frames: {text}");
                println!("spawner: objects: {kinds}");
            }
            Some(Memory::KiB(number)) => println!("spawner: {number} KiB free"),
            None => println!("spawner: no figures of free memory here"),
        }
        memory
    };
    measured(warm_up, "to warm up");
    let mut before = measured(warm_up, "once more");
    // A table of the kernel may grow once, when two processors use it at once for the first time. A
    // leak grows with every run: two consecutive readings are never equal.
    let attempts = if check { 4 } else { 1 };
    let leaks = !(0..attempts).any(|_| {
        let after = measured(count, "measured");
        let same = !lost(&before, &after, count);
        before = after;
        same
    });
    if leaks && options.has("leak-check") {
        println!("spawner: FAILED: not all memory came back");
        exit(1);
    }
    println!("spawner: ok");
}
