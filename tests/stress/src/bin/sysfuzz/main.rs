//! A random system-call fuzzer: a supervisor, and workers that die and are replaced.
//!
//! Each worker is a process with a seed of its own, a directory, resource limits and a session. It
//! makes some hundred calls with half-plausible arguments and then ends, or is ended by the effects
//! of its calls. The supervisor starts the next one, and in between checks whether its own memory,
//! files, pipes and children still behave. No action of a worker may harm the supervisor, let alone
//! the kernel.
//! On a Linux host workers run as the user nobody, so that the machine stays as it was; with
//! `--as-root` (meant for a guest) every second one keeps root's privilege.

mod calls;
mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::exit;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hayate_stress::{Ended, Options, Random, c_path, fork, wait, wait_now};
use worker::Slot;

const USAGE: &str =
    "sysfuzz [--seed N] [--seconds S] [--procs P] [--calls N] [--as-root] [--replay SEED]
  --seed N       the seed that the seeds of all workers come from (1)
  --seconds S    how long (60)
  --procs P      workers at the same time (2)
  --calls N      calls of one worker (500)
  --as-root      keep root's privilege in every second worker: only in a machine of its own
  --replay SEED  one worker with this seed, which prints every call on standard error
Example: sysfuzz --seed 7 --seconds 60 --procs 4 --as-root";

/// A worker that makes no call for this long is blocked in one: a signal interrupts it.
const NUDGE: Duration = Duration::from_millis(60);
/// After this long without a call a worker is stopped or ignores signals, and is killed.
const PATIENCE: Duration = Duration::from_millis(1500);

/// No worker makes more calls than this between two checks.
const MOST_IN_A_ROUND: u64 = 100_000;

struct Running {
    pid: i32,
    seed: u64,
    /// The last count in its slot, and since when it has not changed.
    seen: u64,
    moved: Instant,
    nudged: Instant,
    directory: String,
}

/// Allocates memory shared by supervisor and workers: one slot each.
fn slots(count: usize) -> &'static [Slot] {
    let size = count * size_of::<Slot>();
    // SAFETY: a new shared mapping of zeroes, which are valid slots, never unmapped here.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if at == libc::MAP_FAILED {
            eprintln!("sysfuzz: shared memory: {}", std::io::Error::last_os_error());
            exit(1);
        }
        std::slice::from_raw_parts(at.cast::<Slot>(), count)
    }
}

/// The supervisor's files, and what it needs to find them again: a worker that is root may rename
/// or remove the folder, mount over it, or change every process's root, and all of that is allowed.
struct World {
    /// The root at the beginning.
    root: fs::File,
    base: String,
}

impl World {
    /// Returns to the first root and removes mounts that hide the base.
    fn repair(&self) {
        let base = c_path(&self.base);
        // SAFETY: calls with a live descriptor and with live strings; a failure shows in the code
        // that follows.
        unsafe {
            libc::fchdir(self.root.as_raw_fd());
            libc::chroot(c".".as_ptr());
            for place in [base.as_ptr(), c"/tmp".as_ptr()] {
                let mut most = 8;
                while most > 0 && libc::umount2(place, libc::MNT_DETACH) == 0 {
                    most -= 1;
                }
            }
        }
    }

    fn new_directory(&self, n: u64) -> std::io::Result<String> {
        new_directory(&self.base, n).or_else(|_| {
            self.repair();
            new_directory(&self.base, n)
        })
    }

    /// Checks whether everything is in order. Changes to the file system by a worker are repaired
    /// first; wrong contents, memory, pipes or children are never allowed.
    fn sane(&self, pattern: &[u64]) -> Result<(), String> {
        sane(pattern, &self.base).or_else(|why| {
            if !why.starts_with("mkdir") && !why.starts_with("write") {
                return Err(why);
            }
            self.repair();
            sane(pattern, &self.base)
        })
    }
}

fn new_directory(base: &str, n: u64) -> std::io::Result<String> {
    let directory = format!("{base}/{n}");
    // Creates the base as well, if it is gone.
    fs::create_dir_all(&directory)?;
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777))?;
    Ok(directory)
}

/// Checks whether the supervisor's own environment is in order: memory, files, pipes, children.
fn sane(pattern: &[u64], base: &str) -> Result<(), String> {
    if let Some(i) = pattern.iter().enumerate().position(|(i, v)| *v != i as u64 * 0x9e37_79b9) {
        return Err(format!("word {i} of the supervisor's memory has changed"));
    }
    fs::create_dir_all(base).map_err(|e| format!("mkdir: {e}"))?;
    let path = format!("{base}/check");
    let text = b"the quick brown fox".repeat(500);
    let mut back = Vec::new();
    fs::write(&path, &text).map_err(|e| format!("write: {e}"))?;
    fs::File::open(&path)
        .and_then(|mut f| f.read_to_end(&mut back))
        .map_err(|e| format!("read: {e}"))?;
    if text != back {
        return Err("a file reads back otherwise than it was written".to_string());
    }
    let (mut reader, mut writer) = std::io::pipe().map_err(|e| format!("pipe: {e}"))?;
    let pid = fork().map_err(|e| format!("fork: {e}"))?;
    if pid == 0 {
        drop(reader);
        exit(i32::from(writer.write_all(b"alive").is_err()))
    }
    drop(writer);
    back.clear();
    reader.read_to_end(&mut back).map_err(|e| format!("read of a pipe: {e}"))?;
    match wait(pid) {
        Some((_, Ended::Exited(0))) if back == b"alive" => Ok(()),
        other => Err(format!("a child ended as {other:?} after saying {back:?}")),
    }
}

/// Kills the processes that workers have left behind (this process is their subreaper).
fn sweep(running: &[Option<Running>]) {
    let own = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else { return };
    for pid in entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()) {
        let known = running.iter().flatten().any(|r| r.pid == pid);
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        if !known && parent == Some(own) {
            // SAFETY: plain calls with numbers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

fn main() {
    let options =
        Options::parse(USAGE, &["seed", "seconds", "procs", "calls", "replay"], &["as-root"]);
    let seed: u64 = options.get("seed", 1);
    let seconds: u64 = options.get("seconds", 60);
    let procs: usize = options.get("procs", 2);
    let calls: u64 = options.get("calls", 500);
    let as_root = options.has("as-root");
    if procs == 0 || procs > 64 {
        options.wrong("--procs is 1 to 64");
    }
    let base = format!("/tmp/sysfuzz.{}", std::process::id());
    let made = fs::create_dir(&base)
        .and_then(|()| fs::set_permissions(&base, fs::Permissions::from_mode(0o777)));
    if let Err(e) = made {
        eprintln!("sysfuzz: {base}: {e}");
        exit(1);
    }
    let root = fs::File::open("/").unwrap_or_else(|e| options.wrong(&format!("/: {e}")));
    let world = World { root, base: base.clone() };
    let slots = slots(procs);
    let mount_point = format!("{base}/mnt");
    let _ = fs::create_dir(&mount_point);
    let mount_point = c_path(&mount_point);
    let _ = worker::MOUNT_POINT.set(mount_point.clone());
    // SAFETY: a plain call with numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if options.has("replay") {
        let directory = world.new_directory(0).unwrap_or_else(|e| options.wrong(&e.to_string()));
        let _ = std::env::set_current_dir(&directory);
        worker::work(options.get("replay", 0), calls, as_root, true, &slots[0]);
    }
    let pattern: Vec<u64> = (0..65_536).map(|i| i * 0x9e37_79b9).collect();
    let mut seeds = Random::new(seed);
    let mut running: Vec<Option<Running>> = (0..procs).map(|_| None).collect();
    let mut endings: BTreeMap<Ended, u64> = BTreeMap::new();
    let (mut workers, mut late, mut made) = (0u64, 0u64, 0u64);
    let begin = Instant::now();
    let mut told = begin;
    let mut failure = None;
    while begin.elapsed().as_secs() < seconds && failure.is_none() {
        for (n, place) in running.iter_mut().enumerate() {
            if place.is_none() {
                let worker_seed = seeds.bits();
                workers += 1;
                let directory = match world.new_directory(workers) {
                    Ok(directory) => directory,
                    Err(e) => {
                        failure = Some(format!("mkdir: {e}"));
                        break;
                    }
                };
                match fork() {
                    Ok(0) => {
                        if std::env::set_current_dir(&directory).is_err() {
                            exit(3);
                        }
                        worker::work(worker_seed, calls, as_root, false, &slots[n])
                    }
                    Ok(pid) => {
                        let now = Instant::now();
                        *place = Some(Running {
                            pid,
                            seed: worker_seed,
                            seen: slots[n].calls.load(Ordering::Relaxed),
                            moved: now,
                            nudged: now,
                            directory,
                        });
                    }

                    Err(e) => failure = Some(format!("fork: {e}")),
                }
            }
        }
        std::thread::sleep(Duration::from_millis(2));
        while let Some((pid, ended)) = wait_now(-1) {
            for place in &mut running {
                if place.as_ref().is_some_and(|r| r.pid == pid) {
                    *endings.entry(ended).or_default() += 1;
                    if let Some(gone) = place.take() {
                        let _ = fs::remove_dir_all(&gone.directory);
                    }
                }
            }
        }
        for (place, slot) in running.iter_mut().zip(slots) {
            let Some(worker) = place else { continue };
            let now = slot.calls.load(Ordering::Relaxed);
            if now != worker.seen {
                // The slot is in the worker's own memory, and a call may have overwritten it:
                // impossible values are not counted.
                made += now.wrapping_sub(worker.seen).min(MOST_IN_A_ROUND);
                worker.seen = now;
                worker.moved = Instant::now();
            }
            let signal = if worker.moved.elapsed() > PATIENCE {
                late += 1;
                libc::SIGKILL
            } else if worker.moved.elapsed() > NUDGE && worker.nudged.elapsed() > NUDGE {
                worker.nudged = Instant::now();
                libc::SIGALRM
            } else {
                continue;
            };
            // SAFETY: plain calls with numbers.
            unsafe { libc::kill(worker.pid, signal) };
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            println!("sysfuzz: {} s, {workers} workers, {made} calls", begin.elapsed().as_secs());
        }
        if workers.is_multiple_of(20) {
            sweep(&running);
            failure = failure.or(world.sane(&pattern).err());
        }
    }
    if failure.is_some() {
        for place in running.iter().flatten() {
            println!("sysfuzz: worker {} has seed {:#x}", place.pid, place.seed);
        }
    }
    for place in running.iter().flatten() {
        // SAFETY: plain calls with numbers.
        unsafe { libc::kill(place.pid, libc::SIGKILL) };
        if wait(place.pid).is_none() {
            failure = Some(format!("worker {} cannot be reaped", place.pid));
        }
    }
    running.clear();
    for _ in 0..50 {
        sweep(&running);
        while wait_now(-1).is_some() {}
        std::thread::sleep(Duration::from_millis(2));
    }
    // SAFETY: the path is a live string.
    while unsafe { libc::umount2(mount_point.as_ptr(), libc::MNT_DETACH) } == 0 {}
    failure = failure.or(world.sane(&pattern).err());
    let _ = fs::remove_dir_all(&base);
    for (ended, times) in &endings {
        println!("{times:8} workers {ended:?}");
    }
    if late > 0 {
        println!("{late:8} times a worker was killed for standing still");
    }
    if let Some(why) = failure {
        println!("sysfuzz: FAILED: {why} (seed {seed}, {workers} workers, {made} calls)");
        exit(1);
    }
    // A fuzzer whose workers all die at once tests nothing.
    if made < workers.saturating_mul(5) {
        println!("sysfuzz: FAILED: {workers} workers made only {made} calls");
        exit(1);
    }
    println!("sysfuzz: ok, {made} calls of {workers} workers in {seconds} s, seed {seed}");
}
