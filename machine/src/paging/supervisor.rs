//! The program's half as supervisor memory.
//!
//! The processor lets ring 3 reach a page only if the user bit is set at *every* level of the
//! page-table walk. If the bit is clear at *any* level, the page is a supervisor page, for which
//! SMEP and SMAP do not apply (Intel SDM vol. 3, 4.6.1). A program has two or three entries in the
//! root. Clearing the bit there changes the whole half: no page and no lower table is touched, and
//! tables shared with spaces in the other mode stay shared. The root entry for the two pages of the
//! kernel's half that programs see ([`crate::vdso`]) is changed with them.
//!
//! The mode is a property of the space. It is changed under the table's lock: first the flag, then
//! the entries. Then every processor that has the table loaded is told ([`TlbFlush::Mode`]), and
//! has flushed its TLB and prepared its traps for the new mode before the change returns. A
//! processor that loads the table later sets its bit in the mask of active processors before it
//! reads the flag, so it either sees the new flag or is told.
//!
//! A fork copies the entries as they are, and the flag with the counts.

use super::edit::Edit;
use super::entry::TableEntry;
use super::kernel;
use super::page_table::PageTable;
use super::table::ENTRIES;
use crate::ipi::{self, TlbFlush};
use crate::mode;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::fence;

impl<T> PageTable<T> {
    /// Whether the program's half is supervisor memory.
    #[inline]
    pub fn is_supervisor(&self) -> bool {
        self.usage.is_supervisor()
    }

    /// Whether the program's half ever was supervisor memory.
    #[inline]
    pub fn was_supervisor(&self) -> bool {
        self.usage.was_supervisor()
    }

    /// Returns the number of this stay in supervisor mode; no other stay of any space has it.
    #[inline]
    pub fn stay(&self) -> u64 {
        self.usage.stay()
    }

    /// Returns how many system calls came in supervisor mode: through the gate, and by `syscall`.
    pub fn supervisor_calls(&self) -> (u64, u64) {
        let active = self.usage.active.load(SeqCst);
        let here = (0..u64::BITS as usize).filter(|cpu| active >> cpu & 1 != 0);
        let calls = here.map(mode::gated_on).sum::<u64>() + self.usage.calls.load(Relaxed);
        (calls, self.usage.traps.load(Relaxed))
    }
}

impl Edit<'_> {
    /// Whether the program's half is supervisor memory.
    #[inline]
    pub fn is_supervisor(&self) -> bool {
        self.gather.usage.is_supervisor()
    }

    /// Makes the program's half supervisor memory, or user memory again. When it returns, no
    /// processor executes an instruction of the program in the old mode any more.
    pub fn set_supervisor(&mut self, supervisor: bool) {
        if self.gather.usage.is_supervisor() == supervisor {
            return;
        }
        // Flushes earlier changes as well.
        self.gather.flush();
        self.gather.usage.set_supervisor(supervisor);
        self.root.occupied(0, ENTRIES / 2 - 1, |at, entry| {
            let user = if supervisor { 0 } else { TableEntry::USER };
            self.root.store(at, TableEntry(entry.0 & !TableEntry::USER | user));
        });
        kernel::follow_mode(self.root, supervisor);
        fence(SeqCst);
        ipi::shootdown(self.gather.usage.active.load(SeqCst), TlbFlush::Mode);
    }
}
