//! What a thread has declared about the template that its next fork makes.
//!
//! Below [`crate::process::thread`], whose record has a place for it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::signal::SignalSet;
use hayate_machine::sync::SpinLock;
use hayate_template_rules::Rules;

use super::source::Source;

/// Where a start is told its environment, besides the structure that all starts have; 0: nowhere.
#[derive(Clone, Copy, Default)]
pub struct Environments {
    /// The C library's pointer to the vector (`environ(7)`).
    pub vector: usize,
    /// `struct hayate_variables`.
    pub variables: usize,
}

/// A declaration: everything in it comes from a program and is checked where it is used.
pub struct Declared {
    /// The name of the template.
    pub name: Vec<u8>,
    /// Where each start is told what it was started with.
    pub start: usize,
    /// Which starts it serves.
    pub serves: Rules,
    /// The files that the program says it was made of, one a line.
    pub files: Vec<u8>,
    /// Where the environment of a start is told as well.
    pub environments: Environments,
    /// The files that must be unchanged for a start.
    pub sources: Vec<Source>,
    /// The variables of its environment that must be the same for a start, each ended by a NUL.
    pub environment: Vec<u8>,
    /// The signals that its thread blocked.
    pub blocked: SignalSet,
    /// The serial of its space: a program that was executed since has declared nothing.
    pub space: u64,
}

/// The place for a declaration in the record of a thread.
#[derive(Default)]
pub struct Declaration {
    is_there: AtomicBool,
    declared: SpinLock<Option<Box<Declared>>>,
}

impl Declaration {
    /// Whether there is one.
    #[inline(always)]
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// Puts one there. For the current thread.
    pub fn set(&self, declared: Box<Declared>) {
        let old = self.declared.lock().replace(declared);
        self.is_there.store(true, Ordering::Relaxed);
        drop(old);
    }

    /// Takes it. For the current thread.
    pub fn take(&self) -> Option<Box<Declared>> {
        self.is_there.store(false, Ordering::Relaxed);
        self.declared.lock().take()
    }
}
