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
//! The sleeper says [`prepare`](Sleep::prepare), makes itself known to those who will wake it, and
//! only *then* looks at what it waits for. A waker makes that true *before* it looks for sleepers.
//! So one of the two sees the other.
//!
//! An execution that is PREPARED still runs on its processor, and nobody else may run it. So a
//! waker only marks it WOKEN. The processor that leaves it finds the mark, in
//! [`leave`](Sleep::leave), from another stack, and puts it into a queue again. A waker that finds
//! it PARKED does that itself. Nobody ever spins until another processor has finished a switch.
//!
//! Exactly one of three puts a sleeper into a run queue: the waker whose [`wake`](Sleep::wake) says
//! so, the processor whose [`leave`](Sleep::leave) says so, or nobody, if the sleeper goes on
//! without having left.

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
    /// It runs, was about to sleep, and shall not.
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

/// What a processor has to do with the execution that it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Put it into a run queue: it was preempted.
    Preempted,
    /// Put it into a run queue: it was woken before it had left.
    Woken,
    /// Nothing: it sleeps. A waker may have it by now.
    Parked,
    /// Give it up.
    Dead,
    /// Nothing: it was left before.
    Nothing,
}

/// The word.
#[derive(Debug)]
pub struct Sleep(AtomicU8);

impl Default for Sleep {
    fn default() -> Sleep {
        Sleep::new()
    }
}

impl Sleep {
    const_new! {
        /// The word of a new execution.
        pub fn new() -> Sleep { Sleep(AtomicU8::new(NEW)) }
    }

    /// Its state at this moment.
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

    /// Whether it runs and is not about to sleep.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.0.load(SeqCst) == RUNNING
    }

    /// Whether it is about to sleep and was not woken yet.
    #[inline]
    pub fn is_prepared(&self) -> bool {
        self.0.load(SeqCst) == PREPARED
    }

    /// Makes a new execution runnable. True: the caller puts it into a run queue. False: it was not
    /// new.
    #[inline]
    pub fn begin(&self) -> bool {
        self.0.compare_exchange(NEW, RUNNABLE, SeqCst, SeqCst).is_ok()
    }

    /// It runs from now on, or goes on without having slept. For its processor.
    #[inline]
    pub fn run(&self) {
        self.0.store(RUNNING, SeqCst);
    }

    /// It is about to sleep; a full barrier follows. For the execution itself, before it looks at
    /// what it waits for.
    #[inline]
    pub fn prepare(&self) {
        // The instruction of a sequentially consistent store, too.
        self.0.swap(PREPARED, SeqCst);
        after_locked();
    }

    /// It will be left for the last time. For the execution itself.
    #[inline]
    pub fn die(&self) {
        self.0.store(DEAD, SeqCst);
    }

    /// Ends its sleep, or the one that it is about to begin. True: the caller puts it into a run
    /// queue.
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

    /// Its processor has left it, and it [ran](Self::is_running): it is runnable. Nobody else
    /// changes the state of an execution that runs, so this is a plain store.
    #[inline]
    pub fn preempt(&self) {
        self.0.store(RUNNABLE, SeqCst);
    }

    /// Its processor has left it: what is to be done with it.
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
