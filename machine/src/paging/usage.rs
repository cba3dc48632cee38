//! The counts of a page table, and which processors have it loaded.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use super::entry::PageKind;

/// The counts of one page table. They are written under the table's lock and read by any processor.
#[derive(Default)]
pub(crate) struct Usage {
    /// The processors that have the table loaded, one bit each.
    pub active: AtomicU64,
    /// Whether the program's half is supervisor memory: the user bit is clear in the root's
    /// entries.
    supervisor: AtomicBool,
    /// Whether it was supervisor memory at some time: pages of text may have been changed for that.
    was_supervisor: AtomicBool,
    /// The program has ended, and tables that are unmapped are not subtracted from the counts: see
    /// [`super::teardown`].
    pub ends: AtomicBool,
    /// The unique number of the space's latest stay in supervisor mode.
    stay: AtomicU64,
    /// System calls that came through the gate, without those that a processor which has the table
    /// loaded has yet to add (`trap::gated_on`).
    pub calls: AtomicU64,
    /// System calls by `syscall` executed in ring 0. Counted by the entry stub without a locked
    /// instruction: two processors at once may lose one.
    pub traps: AtomicU64,
    pages: [AtomicU64; 4],
    tables: AtomicU64,
    /// Whom tables are charged to that are made; 0: nobody ([`crate::frames::owner`]).
    owner: AtomicU32,
}

/// How much is mapped, in pages of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Private pages with content of their own.
    pub anonymous: usize,
    /// Pages of files seen by private mappings.
    pub file: usize,
    /// Pages of shared mappings.
    pub shared: usize,
    /// Page tables.
    pub tables: usize,
}

impl Resident {
    /// All pages, tables not included.
    pub fn pages(&self) -> usize {
        self.anonymous + self.file + self.shared
    }
}

impl Usage {
    /// Adds `pages` (wrapping, so it may also subtract) to the count of a kind. Under the table's
    /// lock: a load and a store, no locked instruction.
    #[inline]
    pub fn add(&self, kind: PageKind, pages: u64) {
        let count = &self.pages[kind as usize];
        count.store(count.load(Relaxed).wrapping_add(pages), Relaxed);
    }

    #[inline]
    pub fn remove(&self, kind: PageKind, pages: u64) {
        self.add(kind, pages.wrapping_neg());
    }

    #[inline]
    pub fn add_tables(&self, tables: u64) {
        self.tables.store(self.tables.load(Relaxed).wrapping_add(tables), Relaxed);
    }

    /// Returns whom tables are charged to that are made.
    #[inline]
    pub fn owner(&self) -> u32 {
        self.owner.load(Relaxed)
    }

    /// Changes that.
    pub fn set_owner(&self, owner: u32) {
        self.owner.store(owner, Relaxed);
    }

    /// Sets all counts to zero.
    pub fn clear(&self) {
        self.pages.iter().for_each(|count| count.store(0, Relaxed));
        self.tables.store(0, Relaxed);
    }

    /// Whether the program's half is supervisor memory.
    #[inline]
    pub fn is_supervisor(&self) -> bool {
        self.supervisor.load(SeqCst)
    }

    /// Whether the program's half ever was supervisor memory.
    #[inline]
    pub fn was_supervisor(&self) -> bool {
        self.was_supervisor.load(Relaxed)
    }

    /// Returns the number of this stay in supervisor mode.
    #[inline]
    pub fn stay(&self) -> u64 {
        self.stay.load(Relaxed)
    }

    pub fn set_supervisor(&self, supervisor: bool) {
        static STAYS: AtomicU64 = AtomicU64::new(1);
        if supervisor {
            self.stay.store(STAYS.fetch_add(1, Relaxed), Relaxed);
        }
        self.supervisor.store(supervisor, SeqCst);
        self.was_supervisor.store(true, Relaxed);
    }

    /// Takes over the counts of a table whose content this table shares now, and its mode.
    pub fn copy_counts(&self, from: &Usage) {
        if from.was_supervisor() {
            self.set_supervisor(from.is_supervisor());
        }
        for (to, from) in self.pages.iter().zip(&from.pages) {
            to.store(from.load(Relaxed), Relaxed);
        }
        self.tables.store(from.tables.load(Relaxed), Relaxed);
    }

    /// Returns the number of pages of a kind.
    #[inline]
    pub fn count(&self, kind: PageKind) -> u64 {
        self.pages[kind as usize].load(Relaxed)
    }

    /// Returns about how many pages are mapped: pages that are being counted at this moment may
    /// make the sum too large.
    #[inline]
    pub fn mapped(&self) -> u64 {
        let kinds = [PageKind::Private, PageKind::File, PageKind::Shared];
        kinds.iter().fold(0, |sum, kind| sum.wrapping_add(self.count(*kind)))
    }

    pub fn resident(&self) -> Resident {
        let pages =
            |kind: PageKind| (self.pages[kind as usize].load(Relaxed) as i64).max(0) as usize;
        Resident {
            anonymous: pages(PageKind::Private),
            file: pages(PageKind::File),
            shared: pages(PageKind::Shared),
            tables: (self.tables.load(Relaxed) as i64).max(0) as usize,
        }
    }
}
