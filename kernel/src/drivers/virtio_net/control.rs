//! The control queue (virtio 1.2, 5.1.6.5): commands to the device, one at a time.
//!
//! The first command, for more pairs of queues, is sent at boot without waiting for its answer: the
//! device works with one pair until then.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::virtio::{Chain, Piece, Queue};

use crate::reclaim::growth::{self, Grow};
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Mutex, WaitQueue, sleep_until};

/// Classes and their commands.
pub mod command {
    pub const PROMISCUOUS: (u8, u8) = (0, 0);
    pub const ALL_MULTICAST: (u8, u8) = (0, 1);
    pub const MAC: (u8, u8) = (1, 1);
    pub const PAIRS: (u8, u8) = (4, 0);
}

/// How long a device may take to answer, in nanoseconds.
const PATIENCE: u64 = 1_000_000_000;
/// How often a caller that may not be interrupted any more looks for the answer.
const STEP: u64 = 1_000_000;
/// The answer that a command succeeded.
const OK: u8 = 0;

/// The control queue.
pub struct Control {
    state: SpinLock<State>,
    /// Held by the sender of a command, until it is answered.
    turn: Mutex<()>,
    /// Woken by answers.
    answered: WaitQueue,
}

struct State {
    queue: Queue,
    /// The number of the last command.
    last: u64,
    /// The last answer: to which command, and whether it succeeded.
    answer: Option<(u64, bool)>,
    /// Whether the first command is that of [`Control::begin`].
    begun: bool,
    /// Whether it succeeded, until that is asked.
    first: Option<bool>,
}

impl Control {
    /// A queue without commands.
    pub fn new(queue: Queue) -> Control {
        let state = State { queue, last: 0, answer: None, begun: false, first: None };
        Control { state: SpinLock::new(state), turn: Mutex::new(()), answered: WaitQueue::new() }
    }

    /// Gives a command to the device; returns its number.
    fn give(&self, (class, command): (u8, u8), data: &[u8]) -> Result<u64> {
        let mut bytes = Vec::new();
        bytes.make_room_exact(2 + data.len())?;
        bytes.extend_from_slice(&[class, command]);
        bytes.extend_from_slice(data);
        let answer = growth::copy(&[u8::MAX])?;
        let mut state = self.state.lock();
        let number = state.last + 1;
        let mut chain = Chain::new(number);
        if !chain.reads(Piece::list(bytes)) || !chain.writes(Piece::list(answer)) {
            return Err(Errno::ENOMEM);
        }
        // Full of commands that the device has not answered.
        state.queue.give(chain).map_err(|_| Errno::EIO)?;
        state.last = number;
        state.queue.notify();
        Ok(number)
    }

    /// Sends a command before all others and does not wait.
    pub fn begin(&self, command: (u8, u8), data: &[u8]) -> Result<()> {
        self.state.lock().begun = true;
        let given = self.give(command, data);
        self.state.lock().begun = given.is_ok();
        given.map(|_| ())
    }

    /// Sends a command and sleeps until it is answered. `EIO`: the device refuses it or does not
    /// answer.
    pub fn send(&self, command: (u8, u8), data: &[u8]) -> Result<()> {
        let _turn = self.turn.lock();
        let number = self.give(command, data)?;
        let deadline = monotonic_ns() + PATIENCE;
        let mut answered = || {
            self.collect();
            let answer = self.state.lock().answer;
            answer.filter(|(to, _)| *to == number)
        };
        let mut answer = self.answered.wait_interruptible(Some(deadline), &mut answered).ok();
        // A signal ends the wait, but the device has the command.
        while answer.is_none() && monotonic_ns() < deadline {
            let _ = sleep_until(monotonic_ns() + STEP, false);
            answer = answered();
        }
        if answer.is_some_and(|(_, good)| good) { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Takes answers, and asks for an interrupt at the next one.
    fn collect(&self) {
        let mut state = self.state.lock();
        loop {
            state.take();
            if !state.queue.listen() {
                return;
            }
        }
    }

    /// For the interrupt handler; returns, once, the answer to the command of
    /// [`begin`](Self::begin).
    pub fn interrupt(&self) -> Option<bool> {
        self.collect();
        self.answered.wake_all();
        self.state.lock().first.take()
    }
}

impl State {
    fn take(&mut self) {
        while let Some((chain, _)) = self.queue.take() {
            let last = chain.pieces().last();
            let good = matches!(last, Some(Piece::Bytes(bytes)) if **bytes == [OK]);
            self.answer = Some((chain.token, good));
            if self.begun && chain.token == 1 {
                self.first = Some(good);
            }
        }
    }
}
