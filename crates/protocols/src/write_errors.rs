//! Errors of writing back, told once to every open file (`lib/errseq.c` of Linux).
//!
//! A page is written back long after the call that changed it, so an error belongs to the file and
//! not to a call. Each file has one [`WriteErrors`], each open file a [`Seen`]: what it was told.
//! The word has the last error, a count of errors, and a bit that says whether anybody was told of
//! the last one. The count only moves when somebody was told, so that it does not run over while
//! errors come in masses and nobody asks.
//!
//! A file that is opened after an error of which nobody was told is told of it, too: otherwise an
//! error that comes between two programs would be lost.

use crate::atomic::{AtomicU32, const_new};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The part of the word that is the error.
const ERROR: u32 = 0xfff;
/// Whether somebody was told.
const TOLD: u32 = 1 << 12;
/// One error more.
const ONE: u32 = 1 << 13;

/// The errors of one file.
#[derive(Debug)]
pub struct WriteErrors(AtomicU32);

/// The errors that one open file was told.
#[derive(Debug)]
pub struct Seen(AtomicU32);

impl Default for WriteErrors {
    fn default() -> WriteErrors {
        WriteErrors::new()
    }
}

impl WriteErrors {
    const_new! {
        /// No error so far.
        pub fn new() -> WriteErrors { WriteErrors(AtomicU32::new(0)) }
    }

    /// Notes an error: a number from 1 to 4095.
    pub fn record(&self, error: u16) {
        let error = u32::from(error) & ERROR;
        if error == 0 {
            return;
        }
        let mut old = self.0.load(Acquire);
        loop {
            let mut new = (old & !(ERROR | TOLD)) | error;
            if old & TOLD != 0 {
                new = new.wrapping_add(ONE);
            }
            if new == old {
                return;
            }
            match self.0.compare_exchange(old, new, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// What a file that is opened now counts as told.
    pub fn open(&self) -> Seen {
        let now = self.0.load(Acquire);
        Seen(AtomicU32::new(if now & TOLD != 0 { now } else { 0 }))
    }

    /// Returns the last error if the open file was not told of it, and counts it as told.
    pub fn tell(&self, seen: &Seen) -> Option<u16> {
        let old = self.0.load(Acquire);
        let before = seen.0.load(Relaxed);
        if old == before || old & ERROR == 0 {
            return None;
        }
        let new = old | TOLD;
        // If another error came meanwhile, the next call tells it.
        let _ = self.0.compare_exchange(old, new, AcqRel, Acquire);
        // Of two calls on the same open file, one tells.
        match seen.0.compare_exchange(before, new, Release, Relaxed) {
            Ok(_) => u16::try_from(old & ERROR).ok(),
            Err(_) => None,
        }
    }
}
