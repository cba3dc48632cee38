//! Kills starters: `SIGKILL` in the middle of fork, vfork, exec and exit.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hayate_stress::balance::balanced;
use hayate_stress::{Ended, Random, kill, pause, wait, wait_now};

use super::board::Board;
use super::starter::{self, Programs};
use super::{Orders, goes_on};

/// How many starters there are.
const STARTERS: usize = 4;

/// Runs starters and kills them, and checks what is left after each run.
pub fn storm(orders: &Orders) -> Result<(), String> {
    let (board, _) = Board::new()?;
    let programs = Programs::new(orders);
    balanced(orders.runs, 10, |run| {
        board.stop.store(0, Relaxed);
        board.starts.store(0, Relaxed);
        board.killed.store(0, Relaxed);
        let mut random = Random::new(orders.seed << 8 | run);
        let mut starters = [0; STARTERS];
        let mut strikes = [0u64; 2];
        let begun = Instant::now();
        let enough = || board.starts.load(Relaxed) > 0 && board.killed.load(Relaxed) > 0;
        while goes_on(begun, orders.length, enough()) && board.verdict().is_ok() {
            for (slot, pid) in starters.iter_mut().enumerate() {
                if *pid == 0 {
                    *pid = starter::launch(board, &programs, slot, random.bits(), true)?;
                }
            }
            // Any moment: at once, after a few turns of other threads, or within two milliseconds.
            match random.below(3) {
                0 => {}
                1 => (0..random.below(20)).for_each(|_| std::thread::yield_now()),
                _ => pause(random.below(2000)),
            }
            let slot = random.below(STARTERS as u64) as usize;
            let child = board.children[slot].load(Relaxed);
            if random.one_in(4) {
                kill(starters[slot], libc::SIGKILL);
                strikes[0] += 1;
            } else if child > 1 {
                kill(child, libc::SIGKILL);
                strikes[1] += 1;
            }
            // Starters that were killed, and their orphans.
            while let Some((pid, ended)) = wait_now(-1) {
                if let Some(slot) = starters.iter().position(|&starter| starter == pid) {
                    if ended != Ended::Killed(libc::SIGKILL) {
                        return Err(format!("a starter ended as {ended:?}"));
                    }
                    starters[slot] = 0;
                    board.children[slot].store(0, Relaxed);
                }
            }
        }
        board.stop.store(1, Relaxed);
        for pid in starters.into_iter().filter(|&pid| pid != 0) {
            kill(pid, libc::SIGKILL);
        }
        while wait(-1).is_some() {}
        let [starts, killed] = [&board.starts, &board.killed].map(|n| n.load(Relaxed));
        println!(
            "storm strike: {} strikes at starters, {} at their children; {starts} starts went well, {killed} children fell",
            strikes[0], strikes[1]
        );
        board.verdict()?;
        if starts == 0 || killed == 0 {
            return Err("nothing was started, or nothing was hit".into());
        }
        Ok(starts + strikes[0] + strikes[1])
    })
}
