//! Per-CPU words, read and written in one instruction each.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// A per-CPU machine word, read and written in one instruction each. Declare with `per_cpu!`.
#[repr(transparent)]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// Returns the initial value on every CPU.
    pub const fn new(value: u64) -> Self {
        Word(AtomicU64::new(value))
    }

    /// Returns this CPU's value.
    #[inline(always)]
    pub fn get(&'static self) -> u64 {
        gs_load_volatile(self as *const Self as usize) as u64
    }

    /// Sets this CPU's value.
    #[inline(always)]
    pub fn set(&'static self, value: u64) {
        gs_store(self as *const Self as usize, value as usize);
    }
}

/// Half a [`Word`]: two halves can be compared with zero at once.
#[repr(transparent)]
pub(crate) struct Half(AtomicU32);

impl Half {
    /// Returns the initial value on every CPU.
    pub const fn new(value: u32) -> Self {
        Half(AtomicU32::new(value))
    }

    /// Returns this CPU's value.
    #[inline(always)]
    pub fn get(&'static self) -> u32 {
        let value;
        // SAFETY: as for `gs_load_volatile`.
        unsafe {
            asm!("mov {0:e}, gs:[{1}]", out(reg) value, in(reg) self as *const Self,
                 options(nostack, preserves_flags));
        }
        value
    }

    /// Sets this CPU's value.
    #[inline(always)]
    pub fn set(&'static self, value: u32) {
        // SAFETY: as for `gs_store`.
        unsafe {
            asm!("mov gs:[{1}], {0:e}", in(reg) value, in(reg) self as *const Self,
                 options(nostack, preserves_flags));
        }
    }
}

/// Loads the word at `gs:[address]`. The load is never merged or moved, because interrupt handlers
/// change the word.
#[inline(always)]
fn gs_load_volatile(address: usize) -> usize {
    if cfg!(miri) {
        // SAFETY: as for `gs_store`.
        return unsafe { (address as *const usize).read() };
    }
    let value;
    // SAFETY: as for `gs_store`.
    unsafe {
        asm!("mov {0}, gs:[{1}]", out(reg) value, in(reg) address, options(nostack, preserves_flags));
    }
    value
}

/// Stores a word at `gs:[address]`.
#[inline(always)]
pub(super) fn gs_store(address: usize, value: usize) {
    if cfg!(miri) {
        // SAFETY: this is the address of a word in a static, which only this interpreter's one CPU
        // uses.
        return unsafe { (address as *mut usize).write(value) };
    }
    // SAFETY: callers pass the address of a word in `.percpu`; GS is set up before any caller runs.
    unsafe {
        asm!("mov gs:[{1}], {0}", in(reg) value, in(reg) address, options(nostack, preserves_flags));
    }
}
