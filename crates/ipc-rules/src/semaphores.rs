//! A set of semaphores: what operations do at once, who waits, and what the end of a process undoes
//! (`ipc/sem.c` of Linux 6.1).
//!
//! The operations of one call happen all or not at all. Those that cannot yet, wait in the order in
//! which they came; after each change the set finds out which of them can go on, does their
//! operations for them, and says so ([`Set::settle`]). First go those that change nothing (they
//! wait for zero), then the first of the others, and again from the beginning, until nobody can.
//!
//! A waiter is examined again only when the semaphore that stopped it has changed: its operations
//! before that one cannot let it pass. So a change costs one comparison for each other waiter.
//!
//! Road not taken: Linux' queue for each semaphore, beside one for the set. It saves the
//! comparisons, and has two orders to keep apart.

use alloc::vec::Vec;

use crate::NoMemory;

/// The largest value (`SEMVMX`).
pub const LARGEST: i32 = 32767;
/// Adjustments are from `-LARGEST_UNDO - 1` to this (`SEMAEM`).
const LARGEST_UNDO: i32 = LARGEST;

/// `IPC_NOWAIT`
pub const NO_WAIT: i16 = 0o4000;
/// `SEM_UNDO`
pub const UNDO: i16 = 0x1000;

/// One operation of `semop(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The number of the semaphore.
    pub number: u16,
    /// The amount to add; 0 waits until the value is zero.
    pub change: i16,
    /// [`NO_WAIT`] and [`UNDO`].
    pub flags: i16,
}

/// Whether one of the operations changes a value.
pub fn alters(operations: &[Operation]) -> bool {
    operations.iter().any(|operation| operation.change != 0)
}

/// Whether one of the operations is to be undone.
pub fn undoes(operations: &[Operation]) -> bool {
    operations.iter().any(|operation| operation.flags & UNDO != 0)
}

/// One semaphore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Semaphore {
    /// Its value.
    pub value: u16,
    /// The process that changed it last.
    pub process: u32,
    /// Counts the changes of the value.
    version: u32,
}

/// The amounts that are added to each semaphore when the processes with a list of adjustments have
/// ended.
#[derive(Debug)]
struct Undo {
    list: u64,
    adjustments: Vec<i16>,
}

/// Why operations did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They would have to wait and may not (`EAGAIN`).
    WouldWait,
    /// A value or an adjustment would be too large (`ERANGE`).
    Range,
}

/// The result of operations that were tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// They happened.
    Done,
    /// They have to wait; the operation with this index stopped them.
    Waits(usize),
    /// They cannot happen.
    Refused(Refusal),
}

/// The process that makes operations, and its list of adjustments if one is to be undone.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    /// The number of the process.
    pub process: u32,
    /// The list.
    pub list: Option<u64>,
}

#[derive(Debug)]
struct Waiter<W> {
    token: W,
    operations: Vec<Operation>,
    who: Who,
    stopped_by: usize,
    /// The version of the semaphore that stopped it.
    version: u32,
}

/// A set. `W`: what the owner knows a waiter by.
#[derive(Debug)]
pub struct Set<W> {
    semaphores: Vec<Semaphore>,
    undos: Vec<Undo>,
    /// In the order in which they came.
    waiters: Vec<Waiter<W>>,
}

impl<W: PartialEq> Set<W> {
    /// A set of so many semaphores, all of them 0.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(count: usize) -> Result<Self, NoMemory> {
        let mut semaphores = Vec::new();
        semaphores.try_reserve_exact(count).map_err(|_| NoMemory)?;
        semaphores.resize(count, Semaphore::default());
        Ok(Set { semaphores, undos: Vec::new(), waiters: Vec::new() })
    }

    /// The semaphores.
    pub fn semaphores(&self) -> &[Semaphore] {
        &self.semaphores
    }

    /// The number of waiters that this semaphore stopped: which wait for it to be zero, or to grow
    /// (`GETZCNT`, `GETNCNT`).
    pub fn waiting(&self, number: u16, for_zero: bool) -> usize {
        let counts = |waiter: &&Waiter<W>| {
            waiter.operations.get(waiter.stopped_by).is_some_and(|operation| {
                operation.number == number
                    && if for_zero { operation.change == 0 } else { operation.change < 0 }
            })
        };
        self.waiters.iter().filter(counts).count()
    }

    /// Whether a list has adjustments here.
    pub fn has_list(&self, list: u64) -> bool {
        self.undos.iter().any(|undo| undo.list == list)
    }

    /// Makes adjustments for a list that has none.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn add_list(&mut self, list: u64) -> Result<(), NoMemory> {
        let mut adjustments = Vec::new();
        adjustments.try_reserve_exact(self.semaphores.len()).map_err(|_| NoMemory)?;
        adjustments.resize(self.semaphores.len(), 0);
        self.undos.try_reserve(1).map_err(|_| NoMemory)?;
        self.undos.push(Undo { list, adjustments });
        Ok(())
    }

    /// Tries operations, all or nothing. Numbers are those of the set, and a list that is named has
    /// adjustments. After [`Attempt::Done`] the owner calls [`settle`](Self::settle).
    pub fn attempt(&mut self, operations: &[Operation], who: Who) -> Attempt {
        let undo = self.undos.iter_mut().find(|undo| Some(undo.list) == who.list);
        let mut adjustments = undo.map(|undo| &mut undo.adjustments[..]);
        for (index, operation) in operations.iter().enumerate() {
            let stopped = step(&mut self.semaphores, adjustments.as_deref_mut(), operation, 1);
            let Some(stopped) = stopped else { continue };
            for done in operations.get(..index).unwrap_or_default().iter().rev() {
                step(&mut self.semaphores, adjustments.as_deref_mut(), done, -1);
            }
            return match stopped {
                Attempt::Waits(_) if operation.flags & NO_WAIT != 0 => {
                    Attempt::Refused(Refusal::WouldWait)
                }
                Attempt::Waits(_) => Attempt::Waits(index),
                other => other,
            };
        }
        for operation in operations {
            if let Some(semaphore) = self.semaphores.get_mut(usize::from(operation.number)) {
                semaphore.process = who.process;
                if operation.change != 0 {
                    semaphore.version = semaphore.version.wrapping_add(1);
                }
            }
        }
        Attempt::Done
    }

    /// Lets operations wait that [`Attempt::Waits`] said must.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn wait(
        &mut self,
        operations: Vec<Operation>,
        who: Who,
        stopped_by: usize,
        token: W,
    ) -> Result<(), NoMemory> {
        self.waiters.try_reserve(1).map_err(|_| NoMemory)?;
        let number = operations.get(stopped_by).map_or(0, |operation| operation.number);
        let version = self.version(number);
        self.waiters.push(Waiter { token, operations, who, stopped_by, version });
        Ok(())
    }

    fn version(&self, number: u16) -> u32 {
        self.semaphores.get(usize::from(number)).map_or(0, |semaphore| semaphore.version)
    }

    /// Takes out a waiter that gave up; false if it is not there any more.
    pub fn give_up(&mut self, token: &W) -> bool {
        let at = self.waiters.iter().position(|waiter| waiter.token == *token);
        at.map(|at| self.waiters.remove(at)).is_some()
    }

    /// Takes out all waiters (the set is removed).
    pub fn dismiss(&mut self, mut gone: impl FnMut(W)) {
        self.waiters.drain(..).for_each(|waiter| gone(waiter.token));
    }

    /// Does the operations of all waiters that can go on, and calls `gone` for each with the
    /// result. Returns whether the operations of one happened.
    pub fn settle(&mut self, mut gone: impl FnMut(W, Result<(), Refusal>)) -> bool {
        let mut happened = false;
        loop {
            // Those that change nothing, all of them.
            let mut at = 0;
            while let Some(waiter) = self.waiters.get(at) {
                if alters(&waiter.operations) || !self.goes_on(at, &mut gone, &mut happened) {
                    at += 1;
                }
            }
            // Of the others the first, which may let those before it go on.
            let mut at = 0;
            let mut changed = false;
            while let Some(waiter) = self.waiters.get(at)
                && !changed
            {
                if !alters(&waiter.operations) || !self.goes_on(at, &mut gone, &mut changed) {
                    at += 1;
                }
            }
            if !changed {
                return happened;
            }
            happened = true;
        }
    }

    /// Tries the operations of one waiter again, if what stopped it has changed. Returns whether it
    /// waits no longer.
    fn goes_on(
        &mut self,
        at: usize,
        gone: &mut impl FnMut(W, Result<(), Refusal>),
        happened: &mut bool,
    ) -> bool {
        let Some(waiter) = self.waiters.get_mut(at) else { return false };
        let stop = waiter.operations.get(waiter.stopped_by).map_or(0, |stop| stop.number);
        let now = self.semaphores.get(usize::from(stop)).map_or(0, |semaphore| semaphore.version);
        if now == waiter.version {
            return false;
        }
        let (operations, who) = (core::mem::take(&mut waiter.operations), waiter.who);
        let result = match self.attempt(&operations, who) {
            Attempt::Waits(stopped_by) => {
                let number = operations.get(stopped_by).map_or(0, |stop| stop.number);
                let version = self.version(number);
                if let Some(waiter) = self.waiters.get_mut(at) {
                    (waiter.operations, waiter.stopped_by, waiter.version) =
                        (operations, stopped_by, version);
                }
                return false;
            }
            Attempt::Done => Ok(()),
            Attempt::Refused(refusal) => Err(refusal),
        };
        *happened |= result.is_ok();
        gone(self.waiters.remove(at).token, result);
        true
    }

    /// Sets values from the semaphore `first` on (`SETVAL`, `SETALL`), and forgets what the ends of
    /// processes would have undone there. The owner calls [`settle`](Self::settle) then.
    pub fn set(&mut self, first: usize, values: &[u16], process: u32) {
        for (semaphore, value) in self.semaphores.iter_mut().skip(first).zip(values) {
            semaphore.value = *value;
            semaphore.process = process;
            semaphore.version = semaphore.version.wrapping_add(1);
        }
        for undo in &mut self.undos {
            undo.adjustments.iter_mut().skip(first).take(values.len()).for_each(|a| *a = 0);
        }
    }

    /// Adds the adjustments of a list, whose processes have ended, and forgets it. Values stop at 0
    /// and at the largest. The owner calls [`settle`](Self::settle) then.
    pub fn undo(&mut self, list: u64, process: u32) {
        let Some(at) = self.undos.iter().position(|undo| undo.list == list) else { return };
        let undo = self.undos.swap_remove(at);
        for (semaphore, adjustment) in self.semaphores.iter_mut().zip(undo.adjustments) {
            if adjustment != 0 {
                let value = i32::from(semaphore.value) + i32::from(adjustment);
                semaphore.value = value.clamp(0, LARGEST) as u16;
                semaphore.process = process;
                semaphore.version = semaphore.version.wrapping_add(1);
            }
        }
    }
}

/// Does one operation, or with `sign` -1 takes it back. `None`: it happened.
fn step(
    semaphores: &mut [Semaphore],
    adjustments: Option<&mut [i16]>,
    operation: &Operation,
    sign: i32,
) -> Option<Attempt> {
    let at = usize::from(operation.number);
    let semaphore = semaphores.get_mut(at)?;
    let change = i32::from(operation.change) * sign;
    let value = i32::from(semaphore.value);
    let new = value + change;
    if sign == 1 {
        if (change == 0 && value != 0) || new < 0 {
            return Some(Attempt::Waits(0));
        }
        if new > LARGEST {
            return Some(Attempt::Refused(Refusal::Range));
        }
    }
    if operation.flags & UNDO != 0
        && let Some(adjustment) = adjustments.and_then(|all| all.get_mut(at))
    {
        let undo = i32::from(*adjustment) - change;
        if !(-LARGEST_UNDO - 1..=LARGEST_UNDO).contains(&undo) {
            return Some(Attempt::Refused(Refusal::Range));
        }
        *adjustment = undo as i16;
    }
    semaphore.value = new as u16;
    None
}
