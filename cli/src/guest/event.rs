//! What happens while a machine runs, as messages to the thread that decides.
//!
//! A machine may be started a second time under another accelerator. What the threads of the first
//! start still say then is about a machine that is gone: each message names its start.

use super::monitor::Word;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Something that happened.
pub enum Event {
    /// A signal came to `./hayate`.
    Signal(i32),
    /// The terminal has another size.
    Resized,
    /// This start of the machine has news.
    Machine(u32, News),
}

/// News of a machine.
pub enum News {
    /// The guest was heard for the first time.
    Heard,
    /// A line came from the guest's init.
    Line(String),
    /// The control port has ended.
    ControlEnded,
    /// The kernel log has ended.
    LogEnded,
    /// Nobody reads this stream of the program any more.
    Unread(&'static str),
    /// The kernel said that it panicked.
    Panicked,
    /// QEMU said this.
    Monitor(Word),
    /// QEMU says no more.
    MonitorEnded,
    /// QEMU ended.
    Ended,
}

/// What the threads of one start of a machine tell by.
#[derive(Clone)]
pub struct Reporter {
    events: Sender<Event>,
    start: u32,
    ear: Arc<Ear>,
}

impl Reporter {
    /// A reporter for this start.
    pub fn new(events: Sender<Event>, start: u32) -> Reporter {
        Reporter { events, start, ear: Arc::default() }
    }

    /// Tells; a session that is over hears nothing.
    pub fn tell(&self, news: News) {
        let _ = self.events.send(Event::Machine(self.start, news));
    }

    /// Whether news are of this start.
    pub fn is(&self, start: u32) -> bool {
        self.start == start
    }

    /// A byte came from the guest.
    pub fn heard(&self) {
        if self.ear.hear() {
            self.tell(News::Heard);
        }
    }

    /// What knows whether a byte came from the guest.
    pub fn ear(&self) -> &Ear {
        &self.ear
    }
}

/// Whether a byte of any kind came from the guest since this start.
#[derive(Default)]
pub struct Ear {
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

impl Ear {
    /// Notes a byte; true for the first.
    fn hear(&self) -> bool {
        !self.heard.load(Ordering::Acquire) && self.leave(State::Heard)
    }

    /// This start of the machine is over: nothing more will be heard.
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
        let ear = Ear::default();
        assert!(!ear.heard());
        assert!(ear.hear());
        assert!(!ear.hear());
        ear.close();
        assert!(ear.heard() && ear.wait());

        let ear = Ear::default();
        ear.close();
        assert!(!ear.hear());
        assert!(!ear.heard() && !ear.wait());
    }
}
