//! Programs start while their files are replaced: by renaming another file over them, written in
//! place, truncated and rewritten, written through a mapping.
//!
//! A process that starts a program notes the last finished version before the start, and the
//! version being made after the program ended: the program's version must lie between these, and be
//! the same throughout (see `version.c`).

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use hayate_stress::balance::balanced;
use hayate_stress::{Ended, Random, c_path, fork, pause, wait};

use super::board::{Board, PROGRAMS, Wrong};
use super::policy::{self, POLICIES, Policy};
use super::{Orders, goes_on};

/// How many processes start programs.
const RUNNERS: usize = 3;
/// Versions are reported modulo this number.
const MODULUS: u64 = 200;
/// A child's exit status when exec failed: the file is being written, is not a program, or another
/// reason.
const BUSY: i32 = 210;
const NO_PROGRAM: i32 = 211;
const FAILED: i32 = 212;

/// A program that is replaced.
struct Target {
    path: String,
    c_path: CString,
    image: Vec<u8>,
    /// The offsets of the version in it.
    marks: Vec<usize>,
}

impl Target {
    fn new(orders: &Orders, name: &str, directory: &str) -> Result<Target, String> {
        let from = orders.program(name);
        let image = fs::read(&from).map_err(|e| format!("{from}: {e}"))?;
        let marks: Vec<usize> = image
            .windows(8)
            .enumerate()
            .filter(|(_, bytes)| *bytes == b"HAYATEV:")
            .map(|(at, _)| at + 8)
            .collect();
        if marks.len() != 12 {
            return Err(format!("{from} has {} marks", marks.len()));
        }
        let path = format!("{directory}/{name}");
        Ok(Target { c_path: c_path(&path), path, image, marks })
    }

    /// Returns the whole file in a version.
    fn content(&self, version: u64) -> Vec<u8> {
        let mut image = self.image.clone();
        for &mark in &self.marks {
            if let Some(to) = image.get_mut(mark..mark + 8) {
                to.copy_from_slice(&version.to_le_bytes());
            }
        }
        image
    }

    fn create(&self, path: &str, version: u64) -> std::io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o755);
        let file = options.open(path)?;
        let content = self.content(version);
        // In pieces, so that a start can come between them.
        for (at, piece) in content.chunks(16384).enumerate() {
            file.write_all_at(piece, at as u64 * 16384)?;
        }
        Ok(())
    }

    /// Makes a version of the file in a random way; returns which.
    fn replace(&self, version: u64, random: &mut Random) -> (i32, std::io::Result<()>) {
        match random.below(5) {
            0 => {
                let new = format!("{}.new", self.path);
                (0, self.create(&new, version).and_then(|()| fs::rename(&new, &self.path)))
            }
            1 => (1, self.write_in_place(version)),
            2 => (2, self.create(&self.path, version)),
            3 => {
                // Truncated for a moment, while nothing writes to it.
                let length = random.below(self.image.len() as u64) & !0xfff;
                // SAFETY: the path is a C string.
                if unsafe { libc::truncate(self.c_path.as_ptr(), length as i64) } == -1 {
                    return (3, Err(std::io::Error::last_os_error()));
                }
                pause(random.below(1000));
                // Until it is whole again it is not a program: wait for the processes that try to
                // start it.
                loop {
                    match self.create(&self.path, version) {
                        Err(e) if e.raw_os_error() == Some(libc::ETXTBSY) => pause(100),
                        other => return (3, other),
                    }
                }
            }
            _ => (4, self.write_through_mapping(version)),
        }
    }

    fn write_in_place(&self, version: u64) -> std::io::Result<()> {
        let file = fs::OpenOptions::new().write(true).open(&self.path)?;
        for &mark in &self.marks {
            file.write_all_at(&version.to_le_bytes(), mark as u64)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    fn write_through_mapping(&self, version: u64) -> std::io::Result<()> {
        use std::os::fd::AsRawFd;
        let file = fs::OpenOptions::new().read(true).write(true).open(&self.path)?;
        let (length, rights) = (self.image.len(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping, placed by the kernel.
        let map = unsafe {
            libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if map == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        drop(file);
        for &mark in &self.marks {
            // SAFETY: marks lie in the file, which keeps its full length as long as this process
            // does not change it; nothing else writes to it.
            unsafe { map.cast::<u8>().add(mark).cast::<[u8; 8]>().write(version.to_le_bytes()) };
            std::thread::yield_now();
        }
        // SAFETY: the mapping made above, not used again.
        unsafe { libc::munmap(map, length) };
        Ok(())
    }
}

/// Makes one version after the other until the storm ends.
fn replacer(board: &Board, targets: &[Target; PROGRAMS], seed: u64) -> ! {
    let mut random = Random::new(seed);
    while !board.is_over() {
        let which = random.below(PROGRAMS as u64) as usize;
        let version = board.begun[which].load(Relaxed) + 1;
        board.begun[which].store(version, Relaxed);
        match targets[which].replace(version, &mut random) {
            (_, Ok(())) => board.made[which].store(version, Relaxed),
            (way, Err(e)) => match e.raw_os_error() {
                // The program is running: try another way at another time.
                Some(libc::ETXTBSY) => drop(board.text_busy.fetch_add(1, Relaxed)),
                error => board.wrong(Wrong::Write, way, error.unwrap_or(0)),
            },
        }
        pause(random.below(1500));
    }
    std::process::exit(0)
}

/// Starts the programs until the storm ends, and checks their reports.
fn runner(board: &Board, targets: &[Target; PROGRAMS], seed: u64) -> ! {
    let mut random = Random::new(seed);
    while !board.is_over() {
        let which = random.below(PROGRAMS as u64) as usize;
        let path = &targets[which].c_path;
        let argv = [path.as_ptr(), std::ptr::null()];
        let envp = [std::ptr::null()];
        let oldest = board.made[which].load(Relaxed);
        let Ok(pid) = fork() else { continue };
        if pid == 0 {
            // SAFETY: the vectors end with null and their strings live.
            unsafe {
                libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr());
                libc::_exit(match *libc::__errno_location() {
                    libc::ETXTBSY => BUSY,
                    libc::ENOEXEC | libc::EIO => NO_PROGRAM,
                    _ => FAILED,
                })
            }
        }
        let ended = wait(pid);
        let newest = board.begun[which].load(Relaxed);
        match ended {
            Some((_, Ended::Exited(status))) if (status as u64) < MODULUS => {
                board.starts.fetch_add(1, Relaxed);
                let ahead = (status as u64 + MODULUS - oldest % MODULUS) % MODULUS;
                if newest - oldest < MODULUS && ahead > newest - oldest {
                    board.wrong(Wrong::Stale, which as i32, status);
                }
            }
            Some((_, Ended::Exited(201))) => board.wrong(Wrong::Mixed, which as i32, 0),
            Some((_, Ended::Exited(202))) => board.wrong(Wrong::NotFresh, which as i32, 0),
            Some((_, Ended::Exited(BUSY))) => drop(board.busy.fetch_add(1, Relaxed)),
            // A truncated file has no pages where its headers say, or no headers.
            Some((_, Ended::Exited(NO_PROGRAM) | Ended::Killed(libc::SIGSEGV | libc::SIGBUS))) => {
                board.cut_short.fetch_add(1, Relaxed);
            }
            Some((_, Ended::Exited(other))) => {
                board.wrong(Wrong::Ended, which as i32, other << 8);
            }
            Some((_, Ended::Killed(signal))) => board.wrong(Wrong::Ended, which as i32, signal),
            None => board.wrong(Wrong::Ended, which as i32, 0xffff),
        }
    }
    std::process::exit(0)
}

/// Makes one run under one policy.
fn blow(orders: &Orders, run: u64, length: Duration) -> Result<u64, String> {
    let (board, fd) = Board::new()?;
    let directory = format!("/tmp/storm.{}", std::process::id());
    fs::create_dir_all(&directory).map_err(|e| format!("{directory}: {e}"))?;
    let targets = [
        Target::new(orders, "version", &directory)?,
        Target::new(orders, "version-pie", &directory)?,
    ];
    for target in &targets {
        target.create(&target.path, 0).map_err(|e| format!("{}: {e}", target.path))?;
    }
    let mut random = Random::new(orders.seed << 16 | run);
    for worker in 0..=RUNNERS {
        let seed = random.bits();
        if fork().map_err(|e| format!("fork: {e}"))? == 0 {
            match worker {
                0 => replacer(board, &targets, seed),
                _ => runner(board, &targets, seed),
            }
        }
    }
    let made = || board.made.iter().map(|made| made.load(Relaxed)).sum::<u64>();
    let enough = || board.starts.load(Relaxed) > 0 && made() > 0;
    let begun = Instant::now();
    while goes_on(begun, length, enough()) && board.verdict().is_ok() {
        pause(10_000);
    }
    board.stop.store(1, Relaxed);
    while wait(-1).is_some() {}
    let versions = made();
    let [starts, busy, cut_short, text_busy] =
        [&board.starts, &board.busy, &board.cut_short, &board.text_busy].map(|n| n.load(Relaxed));
    println!(
        "storm replace: {versions} versions, {starts} starts; {busy} while it was written, {cut_short} while it was cut short; {text_busy} writes while it ran"
    );
    let verdict = board.verdict();
    Board::close(board, fd);
    fs::remove_dir_all(&directory).map_err(|e| format!("{directory}: {e}"))?;
    verdict?;
    if starts == 0 || versions == 0 {
        return Err("nothing was started, or nothing replaced".into());
    }
    Ok(starts + versions)
}

/// Runs the storm under every policy, and checks what is left.
pub fn storm(orders: &Orders) -> Result<(), String> {
    let before = Policy::remember();
    let policies: &[&str] = if before.is_some() { &POLICIES } else { &["another kernel's"] };
    balanced(orders.runs, 8, |run| {
        let share = orders.length / policies.len() as u32;
        let mut rounds = 0;
        for (number, policy) in policies.iter().enumerate() {
            if before.is_some() {
                policy::set(policy)?;
            }
            let run = run << 8 | number as u64;
            rounds += blow(orders, run, share).map_err(|why| format!("{policy}: {why}"))?;
        }
        Ok(rounds)
    })
}
