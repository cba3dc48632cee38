//! The remains of a change of a page table: stale TLB entries, and frames and tables that may be
//! given up only when no processor can reach them any more.
//!
//! Order matters: the entry is changed first; then every processor that has the space loaded drops
//! its TLB entries; only then the frame or table that it led to is given up. A [`Gather`] keeps
//! that order for a whole operation at the price of one shootdown. It reads the mask of processors
//! *after* the entries were changed: a processor that loads the space later sees the new entries
//! ([`PageTable::activate`](super::PageTable::activate) has the matching fence).

use super::entry::TableEntry;
use super::large;
use super::share;
use super::table::ENTRIES;
use super::teardown;
use super::usage::Usage;
use crate::cpu;
use crate::frames::Frame;
use crate::ipi::{self, TlbFlush};
use crate::layout::PAGE_SIZE;
use arrayvec::ArrayVec;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::fence;

/// How many items may wait for one shootdown.
const BATCH: usize = 120;

/// An item that waits for the flush.
enum Gathered {
    Page(Frame),
    /// A large page, by its first frame.
    Large(u32),
    /// A table with everything below it: its number and level.
    Table(u32, u8),
    /// The same, but a copy of it stays mapped: the counts stay as they are.
    Original(u32, u8),
}

/// Collects what changes of a table leave behind. Dropping it flushes and gives up what still
/// waits. It is part of an [`Edit`](super::Edit), so it always belongs to the table that is
/// changed.
pub(super) struct Gather<'a> {
    pub(super) usage: &'a Usage,
    start: usize,
    end: usize,
    waiting: ArrayVec<Gathered, BATCH>,
}

impl<'a> Gather<'a> {
    #[inline]
    pub(super) fn new(usage: &'a Usage) -> Self {
        Gather { usage, start: usize::MAX, end: 0, waiting: ArrayVec::new_const() }
    }

    /// Notes that the pages from `start` to `end` may be in TLBs with more rights than they have
    /// now.
    #[inline]
    pub(super) fn stale(&mut self, start: usize, end: usize) {
        self.start = self.start.min(start);
        self.end = self.end.max(end);
    }

    /// Takes `frame`, which was mapped in the stale range, to give it up after the flush.
    #[inline]
    pub(super) fn give(&mut self, frame: Frame) {
        self.wait(Gathered::Page(frame));
    }

    /// Takes over what an entry at `start` held, and subtracts it from the counts.
    pub(super) fn displace(&mut self, entry: TableEntry, start: usize, large: bool) {
        let pages = if large { ENTRIES } else { 1 };
        self.usage.remove(entry.kind(), pages as u64);
        if entry.has(TableEntry::PRESENT) {
            self.stale(start, start + pages * PAGE_SIZE);
        }
        if !entry.is_counted() {
            return;
        }
        if large {
            self.give_large(entry.number());
        } else {
            // SAFETY: the reference that the entry held.
            self.give(unsafe { Frame::from_number(entry.number()) });
        }
    }

    /// Takes the entry's part in a large page, which was mapped in the stale range, to give it up
    /// after the flush.
    #[inline]
    pub(super) fn give_large(&mut self, first: u32) {
        self.wait(Gathered::Large(first));
    }

    /// Takes a table that was reachable in the stale range, to give it up with its content after
    /// the flush.
    #[inline]
    pub(super) fn give_table(&mut self, number: u32, level: u8) {
        self.wait(Gathered::Table(number, level));
    }

    /// Like [`give_table`](Self::give_table), for a table that a copy has replaced.
    #[inline]
    pub(super) fn give_original(&mut self, number: u32, level: u8) {
        self.wait(Gathered::Original(number, level));
    }

    #[inline]
    fn wait(&mut self, what: Gathered) {
        if self.waiting.is_full() {
            self.flush();
        }
        self.waiting.push(what);
    }

    /// Flushes the TLBs and gives up what waited. May be called with spin locks held.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.start < self.end {
            self.shoot();
        }
        if !self.waiting.is_empty() {
            self.give_up();
        }
    }

    fn shoot(&mut self) {
        // The entries are written before the mask is read.
        fence(SeqCst);
        let cpus = self.usage.active.load(SeqCst);
        let own = 1u64 << cpu::id();
        if cpus & own != 0 {
            flush_here(self.start, self.end);
        }
        if cpus & !own != 0 {
            let range = TlbFlush::Range { start: self.start as u64, end: self.end as u64 };
            ipi::shootdown(cpus & !own, range);
        }
        (self.start, self.end) = (usize::MAX, 0);
    }

    /// Gives up, for a space whose program has ended, the parts that may be freed later.
    #[cold]
    fn give_up_late(&mut self) {
        self.waiting.retain(|what| {
            match *what {
                // SAFETY: the entry was cleared and flushed; its part in the large page came here.
                Gathered::Large(first) => unsafe { teardown::release_large(first) },
                // SAFETY: the entry was cleared and flushed; its reference came here.
                Gathered::Table(number, level) | Gathered::Original(number, level) => unsafe {
                    teardown::release(number, level);
                },
                Gathered::Page(_) => return true,
            }
            false
        });
    }

    fn give_up(&mut self) {
        if self.usage.ends.load(Relaxed) {
            self.give_up_late();
        }
        for what in self.waiting.drain(..) {
            match what {
                Gathered::Page(frame) => drop(frame),
                // SAFETY: the entry was cleared and flushed; its part in the large page came here.
                Gathered::Large(first) => unsafe { large::release(first) },
                // SAFETY: the entry was cleared and flushed; its reference came here.
                Gathered::Table(number, level) => unsafe {
                    share::release_table(number, level, Some(self.usage));
                },
                // SAFETY: as above.
                Gathered::Original(number, level) => unsafe {
                    share::release_table(number, level, None);
                },
            }
        }
    }
}

impl Drop for Gather<'_> {
    #[inline]
    fn drop(&mut self) {
        self.flush();
    }
}

/// Drops this processor's TLB entries for a range of the program's half.
fn flush_here(start: usize, end: usize) {
    if (end - start) / PAGE_SIZE > 32 {
        // SAFETY: reloading CR3 with its own value drops the entries that are not global.
        unsafe {
            core::arch::asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _,
                             options(nostack, preserves_flags));
        }
        return;
    }
    for page in (start..end).step_by(PAGE_SIZE) {
        // SAFETY: dropping TLB entries is always allowed.
        unsafe { core::arch::asm!("invlpg [{}]", in(reg) page, options(nostack, preserves_flags)) };
    }
}
