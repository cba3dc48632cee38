//! The priority of a thread's input and output (`ioprio_set(2)`), and contexts that threads share
//! (`CLONE_IO`).
//!
//! The priority is kept, inherited and told. No device here sorts its requests by it, as no device
//! does in Linux whose scheduler is `none`, which is that of virtio's disks.
//!
//! It lies in the word of the nice value, because fork reads that word in any case and copies
//! nothing as long as it is 0. A thread has a context (`io_context`) from the first time that its
//! priority was set; only then can it share one. The few that are shared are in a list here, which
//! holds no execution: those that ended without [`Execution::leave_io`] go with the next change.
//!
//! Lock order: [`SHARED`] is a leaf.
//!
//! Road not taken: a reference to a context in each thread, as Linux has it. Each fork and each end
//! would pay for it.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::Result;
use hayate_machine::sync::SpinLock;

use super::execution::Execution;
use crate::reclaim::growth::Grow;

/// Bit of the word: it has a context.
const CONTEXT: u64 = 1 << 8;
/// It shares its context; the priority is in [`SHARED`].
const SHARES: u64 = 1 << 9;
/// Where the priority is in the word.
const SHIFT: u32 = 16;
/// The bits of the word that belong to this module.
const BITS: u64 = 0xffff << SHIFT | CONTEXT | SHARES;

/// The members of shared contexts, each with the priority of its context.
static SHARED: SpinLock<Vec<(Weak<Execution>, Arc<AtomicU32>)>> = SpinLock::new(Vec::new());

impl Execution {
    /// The shared context of this execution, in the locked list.
    fn shared<'a>(
        &self,
        list: &'a [(Weak<Execution>, Arc<AtomicU32>)],
    ) -> Option<&'a Arc<AtomicU32>> {
        let is_it = |member: &Weak<Execution>| core::ptr::eq(member.as_ptr(), self);
        list.iter().find(|(member, _)| is_it(member)).map(|(_, context)| context)
    }

    /// The priority of its input and output, in the form of `ioprio_set(2)`; 0: none was set.
    pub fn io_priority(&self) -> u16 {
        let word = self.own.load(Ordering::Relaxed);
        if word & SHARES == 0 {
            return (word >> SHIFT) as u16;
        }
        let list = SHARED.lock();
        self.shared(&list).map_or(0, |context| context.load(Ordering::Relaxed) as u16)
    }

    /// Sets the priority of its input and output, and of all that share it.
    pub fn set_io_priority(&self, priority: u16) {
        let list = SHARED.lock();
        match self.shared(&list) {
            Some(context) => context.store(priority.into(), Ordering::Relaxed),
            None => self.set_io(CONTEXT | u64::from(priority) << SHIFT),
        }
    }

    fn set_io(&self, bits: u64) {
        let set = |word| Some(word & !BITS | bits);
        let _ = self.own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }

    /// What names its context, as long as it lives; 0: it has none.
    pub fn io_context(&self) -> usize {
        let word = self.own.load(Ordering::Relaxed);
        if word & CONTEXT == 0 {
            return 0;
        }
        let list = SHARED.lock();
        self.shared(&list)
            .map_or(core::ptr::from_ref(self).addr(), |context| Arc::as_ptr(context).addr())
    }

    /// Gives a new execution what it inherits from its maker (`copy_io`, kernel/fork.c): the
    /// priority, or, if it `shares`, the context. Returns whether it shares one. `ENOMEM`.
    #[cold]
    pub fn inherit_io(&self, maker: &Execution, shares: bool) -> Result<bool> {
        /// The lowest priority of a class other than `IOPRIO_CLASS_NONE`.
        const FIRST_CLASS: u16 = 1 << 13;
        if maker.own.load(Ordering::Relaxed) & CONTEXT == 0 {
            return Ok(false);
        }
        if !shares {
            let priority = maker.io_priority();
            if priority >= FIRST_CLASS {
                self.set_io(CONTEXT | u64::from(priority) << SHIFT);
            }
            return Ok(false);
        }
        let mut list = SHARED.lock();
        list.retain(|(member, _)| member.strong_count() > 0);
        list.make_room(2)?;
        let context = match maker.shared(&list) {
            Some(context) => context.clone(),
            None => {
                let word = maker.own.load(Ordering::Relaxed);
                let context = Arc::new(AtomicU32::new(u32::from((word >> SHIFT) as u16)));
                list.push((maker.weak(), context.clone()));
                maker.set_io(CONTEXT | SHARES);
                context
            }
        };
        list.push((self.weak(), context));
        self.set_io(CONTEXT | SHARES);
        Ok(true)
    }

    /// The execution ends, and no longer shares a context.
    #[cold]
    pub fn leave_io(&self) {
        let mut list = SHARED.lock();
        list.retain(|(member, _)| !core::ptr::eq(member.as_ptr(), self));
        if list.is_empty() {
            *list = Vec::new();
        }
    }
}
