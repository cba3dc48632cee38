//! The loader's information, kept for the rest of the kernel.

use core::ops::Range;

use arrayvec::ArrayVec;

use crate::sync::{Once, SpinLock};

/// The kind of a range of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Free RAM.
    Usable,
    /// RAM in use from boot: the kernel image, modules, page tables made at boot.
    Kernel,
    /// RAM with ACPI tables, reclaimable in theory.
    Acpi,
    /// Non-volatile memory.
    Persistent,
    /// Anything else: never touched.
    Reserved,
}

/// A range of physical memory, page-aligned, `start < end`. Ranges are sorted and disjoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// The kind of the range.
    pub kind: MemoryKind,
}

/// The machine as the loader describes it at boot.
#[derive(Debug)]
pub struct BootInfo {
    /// The memory map; RAM of every kind is in the direct map.
    pub memory: ArrayVec<MemoryRange, 128>,
    /// The kernel's command line.
    pub command_line: &'static str,
    /// The modules that [`crate::boot::take_modules`] returns.
    pub(crate) modules: SpinLock<ArrayVec<&'static [u8], 8>>,
    /// Physical address of the ACPI root pointer, if known.
    pub rsdp: Option<u64>,
    /// The part of memory that `pseudo_nvm=` on the command line sets aside ([`crate::nvm`]).
    pub(crate) pseudo_nvm: Option<Range<u64>>,
}

static INFO: Once<BootInfo> = Once::new();

/// Returns what is known about the machine.
///
/// # Panics
/// Before the boot code has gathered it.
pub fn info() -> &'static BootInfo {
    INFO.get().expect("boot information is not gathered yet")
}

/// Keeps what the loader said. Called once, at boot; later calls change nothing.
pub(crate) fn keep(info: BootInfo) -> &'static BootInfo {
    INFO.call_once(|| info)
}
