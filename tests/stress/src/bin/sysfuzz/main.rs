//! A random system-call fuzzer: a supervisor, and workers that die and are replaced.
//!
//! Each worker is a process with a seed of its own, a directory, resource limits and a session. It
//! makes some hundred calls with half-plausible arguments and then ends, or is ended by the effects
//! of its calls. The supervisor starts the next one, and in between checks whether its own memory,
//! files, pipes and children still behave. No action of a worker may harm the supervisor, let alone
//! the kernel.
//!
//! `calls` has a table of every call of the kernel's, with the kinds of their arguments
//! (crates/abi/tests/fuzzed.rs fails where one lacks), and `scenes` has calls that mean something
//! only one after the other. Half of the users' workers are the superuser of a user namespace with
//! mounts of its own, half of root's have such mounts. With `--groups` each has a control group.
//!
//! On a Linux host workers run as the user nobody, so that the machine stays as it was; with
//! `--as-root` (meant for a guest) every second one keeps root's privilege.

mod calls;
mod groups;
mod scenes;
mod worker;

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::exit;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use groups::Groups;
use hayate_stress::{Ended, Options, Random, c_path, fork, wait, wait_now};
use worker::{Slot, Start};

const USAGE: &str =
    "sysfuzz [--seed N] [--seconds S] [--procs P] [--calls N] [--as-root] [--groups] [--replay SEED]
  --seed N       the seed that the seeds of all workers come from (1)
  --seconds S    how long (60)
  --procs P      workers at the same time (2)
  --calls N      calls of one worker (500)
  --as-root      keep root's privilege in every second worker: only in a machine of its own
  --groups       a control group for each worker, with controllers: only as root in such a machine
  --replay SEED  one worker with this seed, which prints every call on standard error
Example: sysfuzz --seed 7 --seconds 60 --procs 4 --as-root";

/// A worker that makes no call for this long is blocked in one: a signal interrupts it.
const NUDGE: Duration = Duration::from_millis(60);
/// After this long without a call a worker is stopped or ignores signals, and is killed.
const PATIENCE: Duration = Duration::from_millis(1500);

/// A worker that does not end for this long after it was killed never will.
const END: Duration = Duration::from_secs(60);

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
    group: Option<String>,
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

/// Kills the processes that workers have left behind (this process is their subreaper, and procfs
/// its directory).
fn sweep(running: &[Option<Running>]) {
    let own = std::process::id();
    let Ok(entries) = fs::read_dir(".") else { return };
    for pid in entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()) {
        let known = running.iter().flatten().any(|r| r.pid == pid);
        let Ok(stat) = fs::read_to_string(format!("{pid}/stat")) else { continue };
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        if !known && parent == Some(own) {
            // SAFETY: plain calls with numbers.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// Prints what procfs says of all processes, for a worker that does not end.
fn show_processes() {
    let entries = match fs::read_dir(".") {
        Ok(entries) => entries,
        Err(why) => return println!("sysfuzz: /proc cannot be read: {why}"),
    };
    for pid in entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok()) {
        let status = fs::read_to_string(format!("{pid}/status")).unwrap_or_default();
        let wanted =
            ["Name", "State", "PPid", "TracerPid", "Threads", "SigPnd", "ShdPnd", "SigBlk"];
        let lines = status.lines().filter(|line| wanted.iter().any(|name| line.starts_with(name)));
        println!("sysfuzz: {pid}: {}", lines.collect::<Vec<_>>().join(", ").replace('\t', " "));
        let group = fs::read_to_string(format!("{pid}/cgroup")).unwrap_or_default();
        let call = fs::read_to_string(format!("{pid}/syscall")).unwrap_or_default();
        println!("sysfuzz: {pid}: {} {}", group.trim(), call.trim());
    }
}

/// The supervisor's knowledge of its workers.
struct Supervisor {
    world: World,
    slots: &'static [Slot],
    groups: Option<Groups>,
    /// Calls of one worker.
    calls: u64,
    as_root: bool,
    /// A pattern in its own memory that must not change.
    pattern: Vec<u64>,
    seeds: Random,
    running: Vec<Option<Running>>,
    endings: BTreeMap<Ended, u64>,
    /// Workers started.
    workers: u64,
    /// Workers killed because they made no call.
    late: u64,
    /// Calls made by all workers.
    made: u64,
}

impl Supervisor {
    /// Starts a worker in each free slot.
    fn start_workers(&mut self) -> Result<(), String> {
        for (place, slot) in self.running.iter_mut().zip(self.slots) {
            if place.is_some() {
                continue;
            }
            let seed = self.seeds.bits();
            self.workers += 1;
            let directory = self.world.new_directory(self.workers);
            let directory = directory.map_err(|e| format!("mkdir: {e}"))?;
            let group = self.groups.as_ref().and_then(|groups| groups.make(self.workers));
            let pid = fork().map_err(|e| format!("fork: {e}"))?;
            if pid == 0 {
                if std::env::set_current_dir(&directory).is_err() {
                    exit(3);
                }
                let (calls, as_root) = (self.calls, self.as_root);
                worker::work(Start { seed, calls, as_root, trace: false, group }, slot)
            }
            let now = Instant::now();
            let seen = slot.calls.load(Ordering::Relaxed);
            *place = Some(Running { pid, seed, seen, moved: now, nudged: now, directory, group });
        }
        Ok(())
    }

    /// Reaps the workers that have ended.
    fn reap(&mut self) {
        while let Some((pid, ended)) = wait_now(-1) {
            for place in &mut self.running {
                if place.as_ref().is_some_and(|worker| worker.pid == pid) {
                    *self.endings.entry(ended).or_default() += 1;
                    if let Some(gone) = place.take() {
                        let _ = fs::remove_dir_all(&gone.directory);
                        if let (Some(groups), Some(group)) = (&mut self.groups, gone.group) {
                            groups.remove(group);
                        }
                    }
                }
            }
        }
    }

    /// Counts calls, interrupts workers that are blocked, and kills those that stay so.
    fn watch(&mut self) -> Result<(), String> {
        let mut stands = false;
        for (place, slot) in self.running.iter_mut().zip(self.slots) {
            let Some(worker) = place else { continue };
            let now = slot.calls.load(Ordering::Relaxed);
            if now != worker.seen {
                // The slot is in the worker's own memory, and a call may have overwritten it:
                // impossible values are not counted.
                self.made += now.wrapping_sub(worker.seen).min(MOST_IN_A_ROUND);
                worker.seen = now;
                worker.moved = Instant::now();
            }
            if worker.moved.elapsed() > END {
                show_processes();
                return Err(format!("worker {} does not end although it was killed", worker.pid));
            }
            let signal = if worker.moved.elapsed() > PATIENCE {
                self.late += 1;
                stands = true;
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
        if stands {
            // Its child may trace it: then its end is told when that has ended (`ptrace(2)`).
            sweep(&self.running);
        }
        Ok(())
    }

    /// Starts and watches workers for some seconds, or until something is wrong.
    fn run(&mut self, seconds: u64) -> Result<(), String> {
        let begin = Instant::now();
        let mut printed = begin;
        while begin.elapsed().as_secs() < seconds {
            self.start_workers()?;
            std::thread::sleep(Duration::from_millis(2));
            self.reap();
            self.watch()?;
            if printed.elapsed() > Duration::from_secs(10) {
                printed = Instant::now();
                let (passed, workers) = (begin.elapsed().as_secs(), self.workers);
                println!("sysfuzz: {passed} s, {workers} workers, {} calls", self.made);
            }
            if self.workers.is_multiple_of(20) {
                sweep(&self.running);
                self.world.sane(&self.pattern)?;
            }
        }
        Ok(())
    }

    /// Ends the workers, and checks a last time that everything is in order.
    fn stop(&mut self, mount_point: &CStr) -> Result<(), String> {
        let mut result = Ok(());
        for worker in self.running.iter().flatten() {
            // SAFETY: plain calls with numbers.
            unsafe { libc::kill(worker.pid, libc::SIGKILL) };
            let begin = Instant::now();
            while wait_now(worker.pid).is_none() {
                if begin.elapsed() > END {
                    result = Err(format!("worker {} cannot be reaped", worker.pid));
                    break;
                }
                sweep(&self.running);
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.running.clear();
        for _ in 0..50 {
            sweep(&self.running);
            while wait_now(-1).is_some() {}
            std::thread::sleep(Duration::from_millis(2));
        }
        if let Some(groups) = &mut self.groups {
            groups.end();
            println!("{:8} groups cannot be removed", groups.left());
        }
        // SAFETY: the path is a live string.
        while unsafe { libc::umount2(mount_point.as_ptr(), libc::MNT_DETACH) } == 0 {}
        result.and_then(|()| self.world.sane(&self.pattern))
    }
}

/// Makes the folder of all workers.
fn make_base() -> std::io::Result<String> {
    let base = format!("/tmp/sysfuzz.{}", std::process::id());
    fs::create_dir(&base)?;
    fs::set_permissions(&base, fs::Permissions::from_mode(0o777))?;
    Ok(base)
}

fn main() {
    let options = Options::parse(
        USAGE,
        &["seed", "seconds", "procs", "calls", "replay"],
        &["as-root", "groups"],
    );
    let seed: u64 = options.get("seed", 1);
    let seconds: u64 = options.get("seconds", 60);
    let procs: usize = options.get("procs", 2);
    if procs == 0 || procs > 64 {
        options.wrong("--procs is 1 to 64");
    }
    let base = make_base().unwrap_or_else(|e| {
        eprintln!("sysfuzz: cannot make a folder in /tmp: {e}");
        exit(1)
    });
    // Here it stays, whatever workers that are root mount on it: relative paths lead to procfs.
    if let Err(why) = std::env::set_current_dir("/proc") {
        options.wrong(&format!("/proc: {why}"));
    }
    let root = fs::File::open("/").unwrap_or_else(|e| options.wrong(&format!("/: {e}")));
    let mount_point = format!("{base}/mnt");
    let _ = fs::create_dir(&mount_point);
    let mount_point = c_path(&mount_point);
    let _ = worker::MOUNT_POINT.set(mount_point.clone());
    // SAFETY: a plain call with numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    let groups = options.has("groups").then(|| Groups::new(&base));
    let groups = groups.transpose().unwrap_or_else(|e| options.wrong(&format!("--groups: {e}")));
    let mut supervisor = Supervisor {
        world: World { root, base: base.clone() },
        groups,
        slots: slots(procs),
        calls: options.get("calls", 500),
        as_root: options.has("as-root"),
        pattern: (0..65_536).map(|i| i * 0x9e37_79b9).collect(),
        seeds: Random::new(seed),
        running: (0..procs).map(|_| None).collect(),
        endings: BTreeMap::new(),
        workers: 0,
        late: 0,
        made: 0,
    };
    if options.has("replay") {
        let Supervisor { world, slots, calls, as_root, groups, .. } = supervisor;
        let directory = world.new_directory(0).unwrap_or_else(|e| options.wrong(&e.to_string()));
        let _ = std::env::set_current_dir(&directory);
        let (seed, group) = (options.get("replay", 0), groups.and_then(|groups| groups.make(0)));
        worker::work(Start { seed, calls, as_root, trace: true, group }, &slots[0]);
    }
    let ran = supervisor.run(seconds);
    if ran.is_err() {
        for worker in supervisor.running.iter().flatten() {
            println!("sysfuzz: worker {} has seed {:#x}", worker.pid, worker.seed);
        }
    }
    let stopped = supervisor.stop(&mount_point);
    let _ = fs::remove_dir_all(&base);
    for (ended, times) in &supervisor.endings {
        println!("{times:8} workers {ended:?}");
    }
    let Supervisor { workers, late, made, .. } = supervisor;
    if late > 0 {
        println!("{late:8} times a worker was killed for standing still");
    }
    if let Err(why) = ran.and(stopped) {
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
