//! The machine layer below the kernel, which contains all unsafe code of Hayate.
//!
//! The kernel proper (`kernel/`) is `deny(unsafe_code)`; everything that needs the hardware, raw
//! memory or assembly lives here behind safe functions. The kernel runs with interrupts off (see
//! [`cpu`]), so no interrupt handler runs while a lock is held. It registers the functions that the
//! machine layer calls once, at boot ([`trap::Handlers`]).
#![cfg_attr(not(miri), no_std)]

extern crate alloc;

mod acpi;
mod apic;
pub mod boot;
pub mod context;
pub mod cpu;
pub mod fpu;
pub mod frames;
pub mod fw_cfg;
pub mod heap;
#[cfg(miri)]
mod interpreted;
mod interrupt;
mod ioapic;
pub mod layout;
pub mod log;
pub mod mmio;
pub mod nvm;
pub mod paging;
mod panic;
mod pci;
pub mod power;
pub mod random;
#[cfg(debug_assertions)]
pub mod refusal;
mod scattered;
pub mod serial;
pub mod shared;
pub mod smp;
pub mod stack;
pub mod sync;
pub mod time;
pub mod trap;
pub mod user;
pub mod vdso;
pub mod virtio;
