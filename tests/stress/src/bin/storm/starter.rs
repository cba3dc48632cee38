//! Starts of all kinds, one after the other, for use by the storms.

use std::ffi::CString;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use hayate_stress::{Ended, Random, c_path, fork, wait};

use super::Orders;
use super::board::{Board, STARTERS, Wrong};

/// The programs that starters execute.
pub struct Programs {
    tiny: CString,
    version: CString,
    pie: CString,
}

impl Programs {
    /// Returns the programs in the folder of this program.
    pub fn new(orders: &Orders) -> Programs {
        let path = |name: &str| c_path(&orders.program(name));
        Programs { tiny: path("tiny"), version: path("version"), pie: path("version-pie") }
    }
}

/// Forks a starter that continues until the storm ends; returns its number.
///
/// # Errors
/// Those of fork.
pub fn launch(
    board: &'static Board,
    programs: &Programs,
    slot: usize,
    seed: u64,
    may_be_killed: bool,
) -> Result<i32, String> {
    match fork().map_err(|e| format!("fork of a starter: {e}"))? {
        0 => {
            let mut random = Random::new(seed);
            while !board.is_over() {
                start(
                    board,
                    programs,
                    &board.children[slot % STARTERS],
                    &mut random,
                    may_be_killed,
                );
            }
            std::process::exit(0)
        }
        pid => Ok(pid),
    }
}

/// Makes one start of a random kind, waits for it and checks it.
fn start(
    board: &Board,
    programs: &Programs,
    child: &AtomicI32,
    random: &mut Random,
    may_be_killed: bool,
) {
    let kind = random.below(9) as i32;
    let number = random.below(5) as i32;
    let word = c"argument".as_ptr();
    let (program, status) = match kind {
        0..=2 => (&programs.tiny, number),
        // This program was not patched: version 0.
        3 | 4 => (&programs.version, 0),
        5 => (&programs.pie, 0),
        _ => (&programs.tiny, number),
    };
    let mut argv = vec![program.as_ptr()];
    argv.extend((0..number).map(|_| word));
    argv.push(std::ptr::null());
    let envp = [c"STRESS=storm".as_ptr(), std::ptr::null()];
    // A failure before the point of no return changes nothing.
    let missing = number == 0;
    let pid = if matches!(kind, 1 | 4 | 6) {
        // SAFETY: the child of vfork calls only execve and _exit, and returns from no function; it
        // stores only to an atomic.
        #[allow(deprecated)]
        unsafe {
            libc::vfork()
        }
    } else {
        fork().unwrap_or(-1)
    };
    if pid == 0 {
        // SAFETY: the vectors end with null and their strings live on; the rest are plain calls.
        unsafe {
            child.store(libc::getpid(), Relaxed);
            match kind {
                0..=5 => {
                    if missing {
                        libc::execve(c"/nowhere".as_ptr(), argv.as_ptr(), envp.as_ptr());
                    }
                    libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr());
                    libc::_exit(127)
                }
                7 => {
                    // Writes to memory that it shares with its parent, and leaves a child behind.
                    grow(256);
                    if libc::fork() == 0 {
                        libc::_exit(0);
                    }
                    libc::_exit(status)
                }
                _ => libc::_exit(status),
            }
        }
    }
    if pid == -1 {
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        board.wrong(Wrong::Start, kind, error);
        return;
    }
    child.store(pid, Relaxed);
    let ended = wait(pid);
    child.store(0, Relaxed);
    judge(board, kind, ended.map(|(_, ended)| ended), status, may_be_killed);
}

/// Counts a start, or reports how its end differs from the expected status.
fn judge(board: &Board, kind: i32, ended: Option<Ended>, status: i32, may_be_killed: bool) {
    match ended {
        Some(Ended::Exited(got)) if got == status => {
            board.starts.fetch_add(1, Relaxed);
        }
        Some(Ended::Killed(libc::SIGKILL)) if may_be_killed => {
            board.killed.fetch_add(1, Relaxed);
        }
        Some(Ended::Exited(201)) => board.wrong(Wrong::Mixed, kind, 0),
        Some(Ended::Exited(202)) => board.wrong(Wrong::NotFresh, kind, 0),
        Some(Ended::Exited(other)) => board.wrong(Wrong::Ended, kind, other << 8),
        Some(Ended::Killed(signal)) => board.wrong(Wrong::Ended, kind, signal),
        None => board.wrong(Wrong::Ended, kind, 0xffff),
    }
}

/// Writes to this many KiB of memory that the parent has written as well, or that is new.
fn grow(kib: usize) {
    let mut memory = vec![0u8; kib << 10];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}
