//! The kernel's half: its root, the zero page, and pages mapped one by one.
//!
//! Every space has the same kernel half: the entries of its root above the middle are copies of the
//! kernel's entries. They never change after [`init`], which allocates the tables below them in
//! advance (for the area of stacks and device registers, and for the two pages that programs see).
//! So a new table never has to be entered in every space.

use super::entry::TableEntry;
use super::table::{ENTRIES, Table, index};
use crate::frames::Frame;
use crate::layout::{PAGE_SHIFT, SHOWN, VMAP};
use crate::sync::Once;
use arrayvec::ArrayVec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};

/// The frame of the zero page; entries that map it hold no references.
static ZERO: AtomicU32 = AtomicU32::new(0);

/// The kernel's own root.
static ROOT: AtomicU32 = AtomicU32::new(0);

/// The entries that every root shares: a few, constant after [`init`].
static HALF: Once<ArrayVec<(usize, u64), 32>> = Once::new();

/// How many root entries the area of stacks and devices may use; each covers 512 GiB.
const VMAP_ROOTS: usize = 1;

/// Takes the page table that is loaded as the kernel's root, and makes the zero page. Called once,
/// on the first processor, when frames can be allocated.
///
/// # Panics
/// If memory is exhausted at boot.
pub fn init() {
    let loaded: u64;
    // SAFETY: reading CR3 has no effect.
    unsafe {
        core::arch::asm!("mov {}, cr3", out(reg) loaded, options(nomem, nostack, preserves_flags));
    }
    let root = Table((loaded >> PAGE_SHIFT) as u32);
    ROOT.store(root.0, Relaxed);
    for at in (0..VMAP_ROOTS).map(|n| index(VMAP, 3) + n) {
        if root.load(at).is_none() {
            let table = Table::allocate().expect("no memory for the kernel's page tables");
            root.store(at, kernel_table(table));
        }
    }
    let shown = Table::allocate().expect("no memory for the kernel's page tables");
    root.store(SHOWN_AT, shown_table(shown));
    HALF.call_once(|| {
        let entries = (ENTRIES / 2..ENTRIES).map(|at| (at, root.load(at)));
        entries.filter(|(_, entry)| !entry.is_none()).map(|(at, entry)| (at, entry.0)).collect()
    });
    let zero = Frame::allocate_zeroed().expect("no memory for the page of zeroes");
    ZERO.store(zero.into_number(), Release);
}

fn kernel_table(table: Table) -> TableEntry {
    TableEntry(
        u64::from(table.0) << PAGE_SHIFT
            | TableEntry::PRESENT
            | TableEntry::WRITE
            | TableEntry::ACCESSED,
    )
}

/// The index in the root of the area that programs see.
const SHOWN_AT: usize = index(SHOWN, 3);

fn shown_table(table: Table) -> TableEntry {
    TableEntry(kernel_table(table).0 | TableEntry::USER)
}

/// Memory for a page table is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Maps the page at a physical address for all programs, at `address` in the area at [`SHOWN`],
/// readable and, if asked, executable. The mapping is never removed. Only one caller may change the
/// area at a time.
///
/// # Errors
/// Memory for tables is exhausted.
///
/// # Safety
/// The page lives for ever and holds nothing that programs may not read; no other caller is in this
/// function meanwhile.
pub(crate) unsafe fn show(address: usize, physical: u64, execute: bool) -> Result<(), Refused> {
    let mut table = Table(ROOT.load(Relaxed));
    for level in (1..=3).rev() {
        let at = index(address, level);
        if table.load(at).is_none() {
            let below = Table::allocate().ok_or(Refused)?;
            table.store(at, shown_table(below));
        }
        table = Table(table.load(at).number());
    }
    // Not global: the mode of a space decides which privilege level may reach it.
    let bits = physical | TableEntry::PRESENT | TableEntry::USER | TableEntry::ACCESSED;
    table.store(
        index(address, 0),
        TableEntry(if execute { bits } else { bits | TableEntry::NO_EXECUTE }),
    );
    Ok(())
}

/// Makes the user bit of what programs see follow the mode of a space with this root.
#[inline]
pub(super) fn follow_mode(root: Table, supervisor: bool) {
    let user = if supervisor { 0 } else { TableEntry::USER };
    let entry = root.load(SHOWN_AT);
    root.store(SHOWN_AT, TableEntry(entry.0 & !TableEntry::USER | user));
}

/// Returns the number of the kernel's root.
pub(super) fn root() -> u32 {
    ROOT.load(Relaxed)
}

/// Copies the kernel's half to a new root.
#[inline]
pub(super) fn copy_half(to: Table) {
    for &(at, entry) in HALF.get().into_iter().flatten() {
        to.store(at, TableEntry(entry));
    }
}

/// Clears the kernel's half of a root that is going away.
#[inline]
pub(super) fn remove_half(root: Table) {
    for &(at, _) in HALF.get().into_iter().flatten() {
        root.store(at, TableEntry::NONE);
    }
}

/// Returns the number of the zero page's frame, which reading untouched memory shows.
pub fn zero_frame() -> u32 {
    ZERO.load(Relaxed)
}
