//! The values that the first instructions hand over to Rust.

use crate::layout::KERNEL;

unsafe extern "C" {
    static hayate_boot_pml4: u8;
    static hayate_first_tsc: u64;
    static hayate_start_info: u64;
}

/// Returns the TSC at the kernel's first instruction.
pub(crate) fn first_tsc() -> u64 {
    // SAFETY: written before any Rust code ran, never again.
    unsafe { hayate_first_tsc }
}

/// Returns the physical address of the loader's `hvm_start_info`.
pub(super) fn start_info() -> u64 {
    // SAFETY: as for `first_tsc`.
    unsafe { hayate_start_info }
}

/// Returns the physical address of the boot page tables' root, below 4 GiB.
pub(crate) fn boot_root() -> u64 {
    &raw const hayate_boot_pml4 as u64 - KERNEL as u64
}
