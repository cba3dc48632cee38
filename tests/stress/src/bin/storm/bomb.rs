//! The fork bomb: every process starts others as fast as it can, until memory or the limit is
//! exhausted.

use std::process::exit;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hayate_stress::balance::balanced;
use hayate_stress::{Random, c_path, fork, kill, limit, pause, wait, wait_now};

use super::board::{Board, Wrong};
use super::{Orders, goes_on};

/// Runs bombs, and checks what is left after each.
pub fn storm(orders: &Orders) -> Result<(), String> {
    let (board, fd) = Board::new()?;
    balanced(orders.runs, 10, |run| {
        for counter in [&board.starts, &board.no_memory, &board.no_process, &board.killed] {
            counter.store(0, Relaxed);
        }
        board.stop.store(0, Relaxed);
        let own = c_path("/proc/self/exe");
        let texts = [fd as u64, orders.seed + run, orders.limit].map(|n| c_path(&n.to_string()));
        let argv = [
            c"storm".as_ptr(),
            c"--bomber".as_ptr(),
            texts[0].as_ptr(),
            texts[1].as_ptr(),
            texts[2].as_ptr(),
            std::ptr::null(),
        ];
        let bomber = fork().map_err(|e| format!("fork: {e}"))?;
        if bomber == 0 {
            // SAFETY: plain calls; the vector ends with null and its strings live.
            unsafe {
                libc::setpgid(0, 0);
                libc::execv(own.as_ptr(), argv.as_ptr());
                libc::_exit(127)
            }
        }
        // SAFETY: a plain call; either of the two makes the group in time.
        unsafe { libc::setpgid(bomber, bomber) };
        let refused = if orders.limit > 0 { &board.no_process } else { &board.no_memory };
        let begun = Instant::now();
        while goes_on(begun, orders.length, refused.load(Relaxed) > 0) {
            pause(20_000);
        }
        board.stop.store(1, Relaxed);
        // A process that is being started at this moment is killed in the next round.
        while wait_now(-1).is_some() || !is_alone() {
            kill(-bomber, libc::SIGKILL);
            pause(1000);
        }
        let [starts, no_memory, no_process, killed] =
            [&board.starts, &board.no_memory, &board.no_process, &board.killed]
                .map(|counter| counter.load(Relaxed));
        println!(
            "storm bomb: {starts} starts, refused {no_memory} for memory and {no_process} for a limit, {killed} killed"
        );
        board.verdict()?;
        if starts == 0 || refused.load(Relaxed) == 0 {
            return Err("the bomb reached no end: less memory or more seconds are needed".into());
        }
        Ok(starts)
    })
}

/// Whether there is no child left.
fn is_alone() -> bool {
    // SAFETY: the call accepts a null pointer for a status that is not wanted.
    unsafe {
        libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) == -1
            && std::io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD)
    }
}

/// `storm --bomber BOARD SEED LIMIT`: the first process of a bomb. Does not return.
pub fn bomber() -> ! {
    let number = |n: usize| std::env::args().nth(n).and_then(|word| word.parse::<u64>().ok());
    let (Some(fd), Some(seed), Some(processes)) = (number(2), number(3), number(4)) else {
        exit(2)
    };
    let Some(board) = Board::of(fd as i32) else { exit(2) };
    // On another Linux, the bomb should be the victim of the OOM killer.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if processes > 0 {
        hayate_stress::become_nobody();
        limit(libc::RLIMIT_NPROC as libc::c_int, processes);
    }
    let mut random = Random::new(seed);
    loop {
        start_one(board, &mut random);
    }
}

/// Takes memory permanently and writes to each page of it; false when memory is exhausted.
fn take(length: usize) -> bool {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping, placed by the kernel.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length.max(4096), rights, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return false;
    }
    for offset in (0..length).step_by(4096) {
        // SAFETY: within the mapping just made.
        unsafe { at.cast::<u8>().add(offset).write_volatile(1) };
    }
    true
}

/// Starts a child, which continues here like its parent; or executes itself anew; or grows.
fn start_one(board: &Board, random: &mut Random) {
    if board.is_over() {
        exit(0);
    }
    match fork() {
        Ok(0) => {
            board.starts.fetch_add(1, Relaxed);
            // A child with its own seed, which takes some memory for itself.
            // SAFETY: no arguments.
            *random = Random::new(random.bits() ^ unsafe { libc::getpid() } as u64);
            if random.one_in(2) && !take(random.below(512) as usize * 4096) {
                board.no_memory.fetch_add(1, Relaxed);
            }
        }
        Ok(child) => {
            // Some wait, others leave their children to the process that adopts them.
            if random.one_in(3)
                && let Some((_, ended)) = wait(child)
                && ended == hayate_stress::Ended::Killed(libc::SIGKILL)
                && !board.is_over()
            {
                board.killed.fetch_add(1, Relaxed);
            }
        }
        Err(e) => {
            match e.raw_os_error() {
                Some(libc::ENOMEM) => board.no_memory.fetch_add(1, Relaxed),
                Some(libc::EAGAIN) => board.no_process.fetch_add(1, Relaxed),
                other => {
                    board.wrong(Wrong::Start, 0, other.unwrap_or(0));
                    exit(1)
                }
            };
            while wait_now(-1).is_some() {}
            // Ends at times, to make room for other processes.
            if random.one_in(8) {
                exit(0);
            }
            pause(random.below(2000));
        }
    }
}
