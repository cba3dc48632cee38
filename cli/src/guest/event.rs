//! The events of a running machine, as messages to the deciding thread.
//!
//! A machine may be started a second time under another accelerator. Later messages from threads of
//! the first start are about a machine that is gone: each message names its start.

use super::qmp::QmpMessage;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// An event.
pub enum Event {
    /// `./hayate` received a signal.
    Signal(i32),
    /// The terminal has another size.
    Resized,
    /// The guest says by its channel that it takes programs.
    Ready,
    /// The program has ended with this status, and nothing else of the machine matters.
    Over(i32),
    /// MachineEvent of this start of the machine.
    Machine(u32, MachineEvent),
}

/// MachineEvent of a machine.
pub enum MachineEvent {
    /// The first byte from the guest.
    FirstOutput,
    /// A line came from the guest's init.
    Line(String),
    /// The control port has ended.
    ControlEnded,
    /// The kernel log has ended.
    LogEnded,
    /// The reader of this stream of the program has closed it.
    ReaderClosed(&'static str),
    /// The kernel reported that it panicked.
    Panicked,
    /// A message of QEMU.
    Monitor(QmpMessage),
    /// QEMU's monitor has ended.
    MonitorEnded,
    /// QEMU ended.
    QemuEnded,
}

/// The sender of messages for the threads of one start of a machine.
#[derive(Clone)]
pub struct Reporter {
    events: Sender<Event>,
    start: u32,
    first_output: Arc<FirstOutput>,
}

impl Reporter {
    /// A reporter for this start.
    pub fn new(events: Sender<Event>, start: u32) -> Reporter {
        Reporter { events, start, first_output: Arc::default() }
    }

    /// Sends news; if the session is over they are dropped.
    pub fn send(&self, event: MachineEvent) {
        let _ = self.events.send(Event::Machine(self.start, event));
    }

    /// Whether news are of this start.
    pub fn is(&self, start: u32) -> bool {
        self.start == start
    }

    /// Notes a byte from the guest.
    pub fn heard(&self) {
        if self.first_output.hear() {
            self.send(MachineEvent::FirstOutput);
        }
    }

    /// Returns the record of whether a byte came from the guest.
    pub fn first_output(&self) -> &FirstOutput {
        &self.first_output
    }
}

/// Records whether a byte of any kind has come from the guest since this start.
#[derive(Default)]
pub struct FirstOutput {
    heard: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Silent,
    Heard,
    Over,
}

impl FirstOutput {
    /// Notes a byte; true for the first one.
    fn hear(&self) -> bool {
        !self.heard.load(Ordering::Acquire) && self.leave(State::Heard)
    }

    /// Notes that this start of the machine is over: no more bytes will come.
    pub fn close(&self) {
        self.leave(State::Over);
    }

    /// Whether the guest was heard.
    pub fn heard(&self) -> bool {
        self.heard.load(Ordering::Acquire)
    }

    /// Waits until the guest is heard, and returns whether it was before the end.
    pub fn wait(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.changed.wait_while(state, |state| *state == State::Silent);
        *state.unwrap_or_else(PoisonError::into_inner) == State::Heard
    }

    fn leave(&self, next: State) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *state == State::Silent;
        if first {
            *state = next;
            self.heard.store(next == State::Heard, Ordering::Release);
            self.changed.notify_all();
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_counts_and_nothing_after_the_end() {
        let first_output = FirstOutput::default();
        assert!(!first_output.heard());
        assert!(first_output.hear());
        assert!(!first_output.hear());
        first_output.close();
        assert!(first_output.heard() && first_output.wait());

        let first_output = FirstOutput::default();
        first_output.close();
        assert!(!first_output.hear());
        assert!(!first_output.heard() && !first_output.wait());
    }
}
