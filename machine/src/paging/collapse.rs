//! Makes a large page of small ones.
//!
//! [`Edit::collapse`] first clears and flushes the entry that leads to the small pages, so that no
//! processor can write to them while they are copied; a processor that accesses one meanwhile
//! faults and waits for the space's lock.

use super::edit::Edit;
use super::entry::{Access, PageKind, TableEntry};
use super::large::FRAMES;
use super::slot::Slot;
use super::table::{ENTRIES, Table, index};
use crate::frames::{Block, copy_numbered, zero_numbered};
use crate::layout::{LARGE_PAGE_SIZE, USER_END};

impl Edit<'_> {
    /// Replaces the small pages around `address` by one large page with their content, and zeroes
    /// where nothing is mapped. Returns whether it did so. It does not if a page is shared, belongs
    /// to a file, is held (`PROT_NONE`), or differs from `access` in being executable; nor where a
    /// large page was broken up before; nor without 2 MiB of contiguous free memory.
    #[cold]
    pub fn collapse(&mut self, address: usize, access: Access) -> bool {
        if address >= USER_END {
            return false;
        }
        let mut parent = self.root;
        for level in [3, 2] {
            let entry = parent.load(index(address, level));
            if entry.is_none() || entry.has(TableEntry::SHARED_TABLE) {
                return false;
            }
            parent = Table(entry.number());
        }
        let at = index(address, 1);
        let entry = parent.load(at);
        let never = [TableEntry::LARGE, TableEntry::BROKEN, TableEntry::SHARED_TABLE];
        if entry.is_none() || never.iter().any(|&bit| entry.has(bit)) {
            return false;
        }
        let table = Table(entry.number());
        let mut fit = true;
        table.occupied(0, ENTRIES - 1, |_, entry| {
            let alone = match entry.kind() {
                // No reference can be added while the space is locked.
                PageKind::Private => entry.info().refs() == 1,
                PageKind::Zero => true,
                PageKind::File | PageKind::Shared => false,
            };
            let may = entry.access();
            fit &= alone && may.read && may.execute == access.execute;
        });
        if !fit {
            return false;
        }
        let Some(block) = Block::allocate(FRAMES) else { return false };
        parent.clear(at);
        let start = address & !(LARGE_PAGE_SIZE - 1);
        self.gather.stale(start, start + LARGE_PAGE_SIZE);
        self.gather.flush();
        for (index, to) in block.frames().enumerate() {
            let entry = table.load(index);
            if entry.is_none() || entry.kind() == PageKind::Zero {
                zero_numbered(to);
            } else {
                copy_numbered(to, entry.number());
            }
        }
        let slot = Slot::new(parent, at, true, address, &mut self.gather);
        if slot.fill_large(block, access).is_err() {
            parent.fill(at, entry);
            return false;
        }
        self.gather.give_table(table.0, 0);
        true
    }
}
