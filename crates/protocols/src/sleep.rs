//! Sleep and wake: one word for each execution.
//!
//! ```text
//!        begin        run                   prepare             leave
//!   NEW ------> RUNNABLE ------> RUNNING ----------> PREPARED --------> PARKED
//!                  ^    ^           ^                   | wake            | wake
//!                  |    |           +---- run ------- WOKEN               |
//!                  |    +-------- leave ----------------+                 |
//!                  +------------------------------------------------------+
//! ```
//!
//! The sleeper calls [`prepare`](Sleep::prepare), registers with its wakers, and only *then* checks
//! its condition. A waker makes the condition true *before* it looks for sleepers. So at least one
//! of the two sees the other.
//!
//! An execution that is PREPARED still runs on its processor, and no other processor may run it. So
//! a waker only marks it WOKEN. The processor that leaves it finds the mark in
//! [`leave`](Sleep::leave), while it runs on another stack, and puts the execution into a run queue
//! again. A waker that finds it PARKED does that itself. No processor ever spins until another
//! processor has finished a context switch.
//!
//! A sleeper is put into a run queue exactly once: by the waker whose [`wake`](Sleep::wake) returns
//! true, or by the processor whose [`leave`](Sleep::leave) says so. If the sleeper goes on without
//! having been left, it is not put there at all.

use crate::atomic::{AtomicU8, after_locked, const_new};
use core::sync::atomic::Ordering::SeqCst;

/// The state of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It waits in a run queue, or is on its way into one.
    Runnable,
    /// It runs.
    Running,
    /// It runs, and is about to sleep.
    Prepared,
    /// It runs; it was about to sleep, but has been woken.
    Woken,
    /// It sleeps.
    Parked,
    /// It has ended and will not run again.
    Dead,
    /// It was never in a run queue.
    New,
}

const RUNNABLE: u8 = State::Runnable as u8;
const RUNNING: u8 = State::Running as u8;
const PREPARED: u8 = State::Prepared as u8;
const WOKEN: u8 = State::Woken as u8;
const PARKED: u8 = State::Parked as u8;
const DEAD: u8 = State::Dead as u8;
const NEW: u8 = State::New as u8;

/// The action of a processor for the execution that it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Put it into a run queue: it was preempted.
    Preempted,
    /// Put it into a run queue: it was woken before it was left.
    Woken,
    /// Nothing: it sleeps. A waker may already be handling it.
    Parked,
    /// Give it up.
    Dead,
    /// Nothing: it was left earlier.
    Nothing,
}

/// The state word.
#[derive(Debug)]
pub struct Sleep(AtomicU8);

impl Default for Sleep {
    fn default() -> Sleep {
        Sleep::new()
    }
}

impl Sleep {
    const_new! {
        /// Returns the word of a new execution.
        pub fn new() -> Sleep { Sleep(AtomicU8::new(NEW)) }
    }

    /// Returns the state at this moment.
    #[inline]
    pub fn state(&self) -> State {
        match self.0.load(SeqCst) {
            RUNNABLE => State::Runnable,
            RUNNING => State::Running,
            PREPARED => State::Prepared,
            WOKEN => State::Woken,
            PARKED => State::Parked,
            DEAD => State::Dead,
            _ => State::New,
        }
    }

    /// Whether the execution runs and is not about to sleep.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.0.load(SeqCst) == RUNNING
    }

    /// Whether the execution is about to sleep and has not been woken yet.
    #[inline]
    pub fn is_prepared(&self) -> bool {
        self.0.load(SeqCst) == PREPARED
    }

    /// Makes a new execution runnable. True: the caller must put it into a run queue. False: it was
    /// not new.
    #[inline]
    pub fn begin(&self) -> bool {
        self.0.compare_exchange(NEW, RUNNABLE, SeqCst, SeqCst).is_ok()
    }

    /// Marks the execution as running, from now on or without having slept. Called by its
    /// processor.
    #[inline]
    pub fn run(&self) {
        self.0.store(RUNNING, SeqCst);
    }

    /// Marks the execution as about to sleep, followed by a full barrier. Called by the execution
    /// itself, before it checks its condition.
    #[inline]
    pub fn prepare(&self) {
        // A sequentially consistent store uses this instruction, too.
        self.0.swap(PREPARED, SeqCst);
        after_locked();
    }

    /// Marks the execution as ended: it will be left for the last time. Called by the execution
    /// itself.
    #[inline]
    pub fn die(&self) {
        self.0.store(DEAD, SeqCst);
    }

    /// Ends the execution's sleep, or the one that it is about to begin. True: the caller must put
    /// it into a run queue.
    #[inline]
    pub fn wake(&self) -> bool {
        let mut seen = self.0.load(SeqCst);
        loop {
            let next = match seen {
                PREPARED => WOKEN,
                PARKED => RUNNABLE,
                _ => return false,
            };
            match self.0.compare_exchange(seen, next, SeqCst, SeqCst) {
                Ok(_) => return seen == PARKED,
                Err(other) => seen = other,
            }
        }
    }

    /// Makes a preempted execution runnable, after its processor has left it while it
    /// [ran](Self::is_running). Nothing else changes the state of a running execution, so this is a
    /// plain store.
    #[inline]
    pub fn preempt(&self) {
        self.0.store(RUNNABLE, SeqCst);
    }

    /// Updates the state after the execution's processor has left it; returns what to do with it.
    #[inline]
    pub fn leave(&self) -> Left {
        let mut seen = self.0.load(SeqCst);
        loop {
            let (next, left) = match seen {
                RUNNING => (RUNNABLE, Left::Preempted),
                WOKEN => (RUNNABLE, Left::Woken),
                PREPARED => (PARKED, Left::Parked),
                DEAD => return Left::Dead,
                _ => return Left::Nothing,
            };
            match self.0.compare_exchange(seen, next, SeqCst, SeqCst) {
                Ok(_) => return left,
                Err(other) => seen = other,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_told_as_it_was_set() {
        let sleep = Sleep::new();
        assert_eq!(sleep.state(), State::New);
        assert!(sleep.begin());
        assert_eq!(sleep.state(), State::Runnable);
        assert!(!sleep.begin());
        sleep.run();
        assert!(sleep.is_running() && !sleep.wake());
        sleep.prepare();
        assert!(sleep.is_prepared() && !sleep.wake());
        assert_eq!(sleep.state(), State::Woken);
        assert_eq!(sleep.leave(), Left::Woken);
        assert_eq!(sleep.leave(), Left::Nothing);
        sleep.run();
        assert_eq!(sleep.leave(), Left::Preempted);
        sleep.run();
        sleep.prepare();
        assert_eq!(sleep.leave(), Left::Parked);
        assert_eq!(sleep.state(), State::Parked);
        assert!(sleep.wake());
        assert_eq!(sleep.state(), State::Runnable);
        sleep.die();
        assert_eq!((sleep.leave(), sleep.state(), sleep.wake()), (Left::Dead, State::Dead, false));
    }
}
