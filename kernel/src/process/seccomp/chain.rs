//! The filters of a thread: each with those that were there before it, and what they allow
//! together.
//!
//! A chain only grows at its end, and a thread never loses a filter, so what a chain allows
//! whatever the arguments only shrinks. The words in [`State`] may therefore be changed one by one,
//! by another thread (`SECCOMP_FILTER_FLAG_TSYNC`), while their owner reads them without a lock.
//!
//! The references to the last filter of a chain are its users: when the last one goes, nobody can
//! ask its listener any more. Nothing else keeps one for longer than a call.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_bpf::seccomp;
use hayate_bpf::seccomp::{ARCH_X86_64, Data, MOST_TOGETHER, PENALTY, Verdict};
use hayate_machine::sync::SpinLock;

use super::notices::Notices;
use crate::schedule;

/// Modes (`SECCOMP_MODE_*`).
pub const STRICT: u8 = 1;
pub const FILTER: u8 = 2;

/// Numbers of calls below this may be allowed at once.
const NUMBERS: usize = 512;
const WORDS: usize = NUMBERS / 64;

/// A filter, and those before it.
pub struct Filter {
    program: seccomp::Filter,
    /// Its actions are logged (`SECCOMP_FILTER_FLAG_LOG`).
    pub logs: bool,
    /// Who is asked (`SECCOMP_FILTER_FLAG_NEW_LISTENER`).
    pub notices: Option<Arc<Notices>>,
    previous: Option<Arc<Filter>>,
    /// The calls that it and those before it allow whatever the arguments.
    allowed: [u64; WORDS],
    /// How many instructions it and those before it count.
    length: usize,
    count: u32,
}

impl Filter {
    /// Makes a filter that is in no chain. Lets interrupts in.
    pub fn new(program: seccomp::Filter, logs: bool, notices: Option<Arc<Notices>>) -> Filter {
        let mut allowed = [0; WORDS];
        for (word, first) in allowed.iter_mut().zip((0..).step_by(64)) {
            *word = program.allowed(first, ARCH_X86_64);
            schedule::breathe();
        }
        let length = program.length();
        Filter { program, logs, notices, previous: None, allowed, length, count: 1 }
    }

    /// Puts it behind a chain. `ENOMEM` if it becomes too long.
    pub fn follow(&mut self, previous: Option<Arc<Filter>>) -> Result<()> {
        let Some(before) = &previous else { return Ok(()) };
        let length = self.length + before.length + PENALTY;
        if length > MOST_TOGETHER {
            return Err(Errno::ENOMEM);
        }
        self.length = length;
        self.count = before.count + 1;
        for (word, earlier) in self.allowed.iter_mut().zip(before.allowed) {
            *word &= earlier;
        }
        self.previous = previous;
        Ok(())
    }

    fn chain(&self) -> impl Iterator<Item = &Filter> {
        core::iter::successors(Some(self), |filter| filter.previous.as_deref())
    }

    /// Whether one of a chain has a listener that is open.
    pub fn has_listener(&self) -> bool {
        self.chain().filter_map(|filter| filter.notices.as_ref()).any(|notices| notices.is_open())
    }

    /// Whether a chain is this one or an earlier state of it (`is_ancestor`).
    pub fn descends_from(&self, other: &Filter) -> bool {
        self.chain().any(|filter| core::ptr::eq(filter, other))
    }

    /// What all say of a call: the verdict that has precedence, and the latest filter that gave it.
    /// `None`: all allow it.
    pub fn judge(&self, data: &Data) -> (Verdict, Option<&Filter>) {
        let mut decided = (Verdict::ALLOW, None);
        for filter in self.chain() {
            let verdict = filter.program.run(data);
            if verdict.outranks(decided.0) {
                decided = (verdict, Some(filter));
            }
        }
        decided
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        if let Some(notices) = &self.notices {
            notices.abandon();
        }
        // One after the other: a chain may be thousands long, and a kernel stack is not.
        let mut next = self.previous.take();
        while let Some(mut filter) = next.and_then(Arc::into_inner) {
            next = filter.previous.take();
        }
    }
}

/// The filters of a thread that has or had any.
pub struct State {
    mode: AtomicU8,
    /// The calls that need not be looked at, by number.
    allowed: [AtomicU64; WORDS],
    chain: SpinLock<Option<Arc<Filter>>>,
}

impl Default for State {
    fn default() -> State {
        State {
            mode: AtomicU8::new(0),
            allowed: [const { AtomicU64::new(u64::MAX) }; WORDS],
            chain: SpinLock::new(None),
        }
    }
}

impl State {
    /// Its mode (`SECCOMP_MODE_*`).
    pub fn mode(&self) -> u8 {
        self.mode.load(Ordering::SeqCst)
    }

    /// Whether a call is allowed whatever its arguments.
    #[inline(always)]
    pub fn allows(&self, number: u32) -> bool {
        let word = self.allowed.get(number as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (number % 64) & 1 != 0)
    }

    /// The chain, unless the mode is another.
    pub fn chain(&self) -> Option<Arc<Filter>> {
        self.chain.lock().clone()
    }

    /// How many filters there are.
    pub fn count(&self) -> u32 {
        self.chain.lock().as_ref().map_or(0, |filter| filter.count)
    }

    /// Allows these calls and no others.
    pub fn be_strict(&self, calls: &[u32]) {
        for (word, first) in self.allowed.iter().zip((0u32..).step_by(64)) {
            let bits =
                calls.iter().filter_map(|call| call.checked_sub(first).filter(|bit| *bit < 64));
            word.store(bits.fold(0, |word, bit| word | 1 << bit), Ordering::Relaxed);
        }
        self.mode.store(STRICT, Ordering::SeqCst);
    }

    /// Takes over a chain that descends from its own. Returns its own, to be dropped without a
    /// lock.
    #[must_use]
    pub fn take_over(&self, filter: Arc<Filter>) -> Option<Arc<Filter>> {
        let mut chain = self.chain.lock();
        for (word, allowed) in self.allowed.iter().zip(filter.allowed) {
            word.store(allowed, Ordering::Relaxed);
        }
        self.mode.store(FILTER, Ordering::SeqCst);
        chain.replace(filter)
    }

    /// Becomes as the state of a parent.
    #[must_use]
    pub fn take_after(&self, parent: &State) -> Option<Arc<Filter>> {
        match parent.chain() {
            Some(filter) => self.take_over(filter),
            None => {
                for (word, allowed) in self.allowed.iter().zip(&parent.allowed) {
                    word.store(allowed.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                self.mode.store(parent.mode(), Ordering::SeqCst);
                None
            }
        }
    }
}
