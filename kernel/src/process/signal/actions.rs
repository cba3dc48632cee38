//! The actions of a process for each signal (`sigaction(2)`).
//!
//! The 64 actions are an immutable, shared record: fork takes a reference instead of copying two
//! kilobytes, and a change replaces the record by a changed copy unless there is no other
//! reference. The record that a program executed from here starts with is kept with it: for a shell
//! or server that catches signals and ignores others it is made once, not for every command.

use alloc::sync::Arc;

use hayate_abi::signal::*;
use hayate_machine::sync::{Lazy, Once, SpinLock};

use super::sets::{IGNORED_BY_DEFAULT, UNBLOCKABLE};

/// The actions for all signals.
pub struct Actions {
    entries: [Sigaction; NSIG as usize],
    /// Signals that have a handler.
    pub caught: SignalSet,
    /// Signals set to `SIG_IGN`.
    pub ignored: SignalSet,
    /// The record without handlers for a new program, once an exec has needed it.
    for_program: Once<Arc<Actions>>,
}

impl Clone for Actions {
    /// Makes a copy that will be changed, so `for_program` is not copied.
    fn clone(&self) -> Actions {
        let Actions { entries, caught, ignored, for_program: _ } = self;
        Actions { entries: *entries, caught: *caught, ignored: *ignored, for_program: Once::new() }
    }
}

/// The effect of a delivered signal.
#[derive(Clone, Copy)]
pub enum Disposition {
    /// The default action of the signal.
    Default,
    /// Nothing.
    Ignore,
    /// A handler of the program.
    Handler(Sigaction),
}

static DEFAULT: Lazy<Arc<Actions>> = Lazy::new(|| {
    Arc::new(Actions {
        entries: [Sigaction::default(); NSIG as usize],
        caught: 0,
        ignored: 0,
        for_program: Once::new(),
    })
});

impl Actions {
    /// The action of a signal.
    pub fn get(&self, signal: u32) -> Sigaction {
        self.entries.get(signal.wrapping_sub(1) as usize).copied().unwrap_or_default()
    }

    /// Makes the record for a new program: without handlers, but with the same `SIG_IGN`.
    fn without_handlers(&self) -> Arc<Actions> {
        let mut left = DEFAULT.clone();
        if self.ignored != 0 {
            let actions = Arc::make_mut(&mut left);
            for signal in (1..=NSIG).filter(|&signal| self.ignored & bit(signal) != 0) {
                actions.set(signal, Sigaction { sa_handler: SIG_IGN, ..Default::default() });
            }
        }
        left
    }

    fn set(&mut self, signal: u32, action: Sigaction) {
        if let Some(entry) = self.entries.get_mut(signal.wrapping_sub(1) as usize) {
            *entry = action;
        }
        self.caught &= !bit(signal);
        self.ignored &= !bit(signal);
        self.for_program = Once::new();
        match action.sa_handler {
            SIG_DFL => {}
            SIG_IGN => self.ignored |= bit(signal),
            _ => self.caught |= bit(signal),
        }
    }
}

/// The actions in force, shared by the threads of a process and by `clone(CLONE_SIGHAND)`.
pub struct ActionTable(SpinLock<Arc<Actions>>);

impl ActionTable {
    /// Makes a table with the default for every signal.
    pub fn new() -> ActionTable {
        ActionTable(SpinLock::new(DEFAULT.clone()))
    }

    /// Makes a table with the default for every signal but those that are ignored.
    pub fn ignoring(signals: SignalSet) -> ActionTable {
        let mut actions = Actions::clone(&DEFAULT);
        for signal in (1..=NSIG).filter(|&signal| signals & bit(signal) != 0) {
            actions.set(signal, Sigaction { sa_handler: SIG_IGN, ..Default::default() });
        }
        ActionTable(SpinLock::new(Arc::new(actions)))
    }

    /// Makes a table of its own with the same actions.
    pub fn fork(&self) -> ActionTable {
        ActionTable(SpinLock::new(self.snapshot()))
    }

    /// Makes the table for a new program: without handlers, but with the same `SIG_IGN`.
    pub fn for_program(&self) -> ActionTable {
        let mut now = self.snapshot();
        if now.caught != 0 {
            now = now.for_program.call_once(|| now.without_handlers()).clone();
        }
        ActionTable(SpinLock::new(now))
    }

    /// Makes the table for `CLONE_CLEAR_SIGHAND`: without handlers, but with the same `SIG_IGN`.
    pub fn cleared(&self) -> ActionTable {
        self.for_program()
    }

    /// All present actions.
    pub fn snapshot(&self) -> Arc<Actions> {
        self.0.lock().clone()
    }

    /// The action of one signal.
    pub fn get(&self, signal: u32) -> Sigaction {
        self.0.lock().get(signal)
    }

    /// Whether both tables have the same actions.
    pub fn is_same(&self, other: &ActionTable) -> bool {
        let (mine, theirs) = (self.snapshot(), other.snapshot());
        Arc::ptr_eq(&mine, &theirs) || mine.entries == theirs.entries
    }

    /// Replaces the action of one signal; returns the old one.
    pub fn replace(&self, signal: u32, mut action: Sigaction) -> Sigaction {
        action.sa_mask &= !UNBLOCKABLE;
        let mut shared = self.0.lock();
        let old = shared.get(signal);
        Arc::make_mut(&mut shared).set(signal, action);
        old
    }

    /// The signals set to `SIG_IGN`, and those with a handler.
    pub fn ignored_and_caught(&self) -> (SignalSet, SignalSet) {
        let actions = self.0.lock();
        (actions.ignored, actions.caught)
    }

    /// Whether a signal is ignored, by `SIG_IGN` or by default.
    pub fn ignores(&self, signal: u32) -> bool {
        let actions = self.0.lock();
        let by_default = IGNORED_BY_DEFAULT & !actions.caught;
        (actions.ignored | by_default) & bit(signal) != 0
    }

    /// Whether ended children vanish without being waited for: `SIGCHLD` is set to `SIG_IGN`, or
    /// has `SA_NOCLDWAIT`. The second value: whether `SIGCHLD` is sent about stops
    /// (`SA_NOCLDSTOP` is not set).
    pub fn about_children(&self) -> (bool, bool) {
        let action = self.get(SIGCHLD);
        let reaps_itself = action.sa_handler == SIG_IGN || action.sa_flags & SA_NOCLDWAIT != 0;
        (reaps_itself, action.sa_flags & SA_NOCLDSTOP == 0)
    }

    /// Decides how to handle a signal that is being delivered; resets a handler with
    /// `SA_RESETHAND`.
    pub fn dispose(&self, signal: u32) -> Disposition {
        let mut shared = self.0.lock();
        let action = shared.get(signal);
        match action.sa_handler {
            SIG_DFL => Disposition::Default,
            SIG_IGN => Disposition::Ignore,
            _ => {
                if action.sa_flags & SA_RESETHAND != 0 {
                    let spent = Sigaction { sa_handler: SIG_DFL, ..action };
                    Arc::make_mut(&mut shared).set(signal, spent);
                }
                Disposition::Handler(action)
            }
        }
    }

    /// Makes sure that a signal ends the process, if an instruction raised it while it was blocked
    /// or ignored.
    pub fn reset(&self, signal: u32) {
        Arc::make_mut(&mut self.0.lock()).set(signal, Sigaction::default());
    }
}

impl Default for ActionTable {
    fn default() -> Self {
        Self::new()
    }
}
