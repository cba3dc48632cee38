//! The machine layer below the kernel, which contains all unsafe code of Hayate.
//!
//! The kernel proper (`kernel/`) is `deny(unsafe_code)`; everything that needs the hardware, raw
//! memory or assembly lives here behind safe functions. The kernel runs with interrupts off (see
//! [`cpu`]), so no interrupt handler runs while a lock is held. It registers the functions that the
//! machine layer calls once, at boot ([`trap::Handlers`]).
//!
//! # Layers
//!
//! A module uses only modules of lower layers. Lowest first:
//!
//! 1. [`layout`], [`cpu`], [`mailbox`], [`sync`], [`shared`], `refusal` (kernels for tests)
//! 2. [`serial`], [`clock`], [`loader`], [`log`], [`attention`], [`mode`], [`random`],
//!    [`fpu_state`]
//! 3. [`frames`], [`kernel_tables`], [`user`], [`fw_cfg`]
//! 4. [`acpi`], [`nvm`], [`mmio`]
//! 5. [`apic`], [`ioapic`], [`interrupt`], [`ipi`], [`power`], [`mod@panic`]
//! 6. [`time`], [`scattered`], [`heap`], [`stack`]
//! 7. [`paging`], [`vdso`]
//! 8. [`pci`], [`virtio`]
//! 9. [`trap`], [`context`], [`fpu`]
//! 10. [`boot`], [`smp`]
//! 11. `interpreted` (under Miri: a stand-in for a machine)
//!
//! Within a layer the same holds in the order of the list. Where a lower layer has to reach a
//! higher one, the higher one registers a function at boot: a processor that waits for a lock
//! answers other processors ([`mailbox`], [`ipi`]), the frame allocator has deferred frees done
//! ([`frames`], [`paging`]), a shootdown leaves a space ([`ipi`], [`paging`]), a space changes the
//! mode of the traps ([`mode`], [`trap`]).
#![cfg_attr(not(miri), no_std)]
// The documentation is read with its private items.
#![allow(rustdoc::private_intra_doc_links)]

extern crate alloc;

mod acpi;
mod apic;
pub mod attention;
pub mod boot;
mod clock;
pub mod context;
pub mod cpu;
pub mod fpu;
mod fpu_state;
pub mod frames;
pub mod fw_cfg;
pub mod heap;
#[cfg(miri)]
mod interpreted;
pub mod interrupt;
mod ioapic;
mod ipi;
mod kernel_tables;
pub mod layout;
mod loader;
pub mod log;
mod mailbox;
pub mod mmio;
mod mode;
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
