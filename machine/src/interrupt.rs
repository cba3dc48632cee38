//! Device interrupts: their vectors, and the drivers' handlers; and interrupts that a processor
//! sends itself, for work that the locks it holds forbid.
//!
//! Handlers are never removed, as devices are not.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::apic::{FIRST_DEVICE, LAST_DEVICE};
use crate::sync::Once;
use crate::{apic, cpu};

/// The function that a device's interrupt calls: with interrupts off; it must not sleep.
pub type Handler = Box<dyn Fn() + Send + Sync>;

static TAKEN: [AtomicBool; 256] = [const { AtomicBool::new(false) }; 256];
static HANDLERS: [Once<Handler>; 256] = [const { Once::new() }; 256];

/// Allocates a vector and makes its interrupts call `handler`, after the end of interrupt: for
/// edge-triggered and MSI devices only. `None` when all vectors are taken.
pub(crate) fn attach(handler: Handler) -> Option<u8> {
    let vector = (FIRST_DEVICE..=LAST_DEVICE)
        .find(|v| !TAKEN[usize::from(*v)].swap(true, Ordering::AcqRel))?;
    HANDLERS[usize::from(vector)].call_once(|| handler);
    Some(vector)
}

/// An interrupt that a processor sends itself. The kernel runs with interrupts off, so the handler
/// runs when the locks that are held now are free (`irq_work` of Linux).
pub struct OwnInterrupt(u8);

impl OwnInterrupt {
    /// Allocates a vector for `handler`, which must not sleep. `None` when all vectors are taken.
    pub fn new(handler: Handler) -> Option<OwnInterrupt> {
        attach(handler).map(OwnInterrupt)
    }

    /// Lets the handler run on this processor. The interrupts of several calls may be one.
    pub fn raise(&self) {
        apic::send(apic::id_of(cpu::id()), u32::from(self.0));
    }
}

/// Whether a device has this vector.
pub(crate) fn is_taken(vector: u8) -> bool {
    TAKEN[usize::from(vector)].load(Ordering::Acquire)
}

/// Calls the handler of a vector.
pub(crate) fn deliver(vector: u8) {
    if let Some(handler) = HANDLERS[usize::from(vector)].get() {
        handler();
    }
}
