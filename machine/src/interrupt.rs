//! Device interrupts: calls a driver's handler, a closure found by its vector.
//!
//! Handlers are never removed, as devices are not.

use alloc::boxed::Box;

use crate::apic;
use crate::sync::Once;

/// The function that a device's interrupt calls: with interrupts off; it must not sleep.
pub type Handler = Box<dyn Fn() + Send + Sync>;

static HANDLERS: [Once<Handler>; 256] = [const { Once::new() }; 256];

/// Allocates a vector and makes its interrupts call `handler`. `None` when all vectors are taken.
pub(crate) fn attach(handler: Handler) -> Option<u8> {
    let vector = apic::allocate_vector(dispatch)?;
    HANDLERS[usize::from(vector)].call_once(|| handler);
    Some(vector)
}

fn dispatch(vector: u8) {
    if let Some(handler) = HANDLERS[usize::from(vector)].get() {
        handler();
    }
}
