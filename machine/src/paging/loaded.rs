//! Which page table is loaded on a processor.

use super::entry::TableEntry;
use super::kernel;
use super::table::Table;
use super::usage::Usage;
use crate::cpu::{self, PerCpu};
use crate::layout::PAGE_SHIFT;
use crate::mode;
use crate::per_cpu;
use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::Ordering::SeqCst;

/// The usage of the table that is loaded on this processor; null for the kernel's own table.
pub(super) struct Loaded(Cell<*const Usage>);

// SAFETY: an instance is touched only by its own processor.
unsafe impl Sync for Loaded {}

per_cpu! {
    // SAFETY: the gate's stubs use this name; no other symbol has it.
    #[unsafe(export_name = "hayate_loaded")]
    pub(super) static LOADED: PerCpu<Loaded> = PerCpu::new(Loaded(Cell::new(core::ptr::null())));
}

/// Loads a table on this processor; does nothing if it is loaded already.
///
/// # Safety
/// `root` is a root with the kernel's half, and `usage` belongs to it. Both live until no processor
/// has the table loaded.
#[inline]
pub(super) unsafe fn activate(usage: &Arc<Usage>, root: Table) {
    let usage_pointer = Arc::as_ptr(usage);
    let loaded = &LOADED.here().0;
    if loaded.get() == usage_pointer {
        return;
    }
    let own = 1 << cpu::id();
    // The bit is set first, then the table is loaded. An edit that changes an entry after this
    // point finds the bit set; a change made before it is seen by the page-table walks that
    // follow (SeqCst is a full fence).
    usage.active.fetch_or(own, SeqCst);
    let before = loaded.replace(usage_pointer);
    // SAFETY: this is a root with the kernel's half.
    unsafe { load(root.0) };
    // SAFETY: a table that is loaded somewhere lives: its drop waits until this processor
    // leaves it.
    let before_usage = unsafe { before.as_ref() };
    mode::set(before_usage.map(|usage| &usage.calls), usage.is_supervisor());
    forget(before, own);
}

/// Whether the table with these counts is loaded on this processor.
pub(super) fn is_here(usage: &Arc<Usage>) -> bool {
    LOADED.here().0.get() == Arc::as_ptr(usage)
}

/// Loads the kernel's own root, so that this processor has no space loaded any more.
pub fn deactivate() {
    let before = LOADED.here().0.replace(core::ptr::null());
    if !before.is_null() {
        // SAFETY: the kernel's root.
        unsafe { load(kernel::root()) };
        // SAFETY: as in `activate`.
        let before_usage = unsafe { before.as_ref() };
        mode::set(before_usage.map(|usage| &usage.calls), false);
        forget(before, 1 << cpu::id());
    }
}

fn forget(before: *const Usage, own: u64) {
    if !before.is_null() {
        // SAFETY: a table that is loaded somewhere lives: its drop waits until this processor
        // leaves it.
        unsafe { &*before }.active.fetch_and(!own, SeqCst);
    }
}

/// Leaves the table with this root, which is about to be dropped. The shootdown's handler calls it.
pub(super) fn leave(root: u64) {
    let loaded: u64;
    // SAFETY: reading CR3 has no effect.
    unsafe {
        core::arch::asm!("mov {}, cr3", out(reg) loaded, options(nomem, nostack, preserves_flags));
    }
    if loaded & TableEntry::ADDRESS == root {
        deactivate();
    }
}

/// # Safety
/// The frame must be a root table with the kernel's half.
#[inline]
unsafe fn load(root: u32) {
    let address = u64::from(root) << PAGE_SHIFT;
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("mov cr3, {}", in(reg) address, options(nostack, preserves_flags));
    }
}

/// Prepares this processor for the mode of the space that is loaded on it.
pub(super) fn follow_mode() {
    let loaded = LOADED.here().0.get();
    // SAFETY: a table that is loaded here lives: its drop waits until this processor leaves it.
    let loaded = unsafe { loaded.as_ref() };
    let supervisor = loaded.is_some_and(Usage::is_supervisor);
    mode::set(loaded.map(|usage| &usage.calls), supervisor);
}
