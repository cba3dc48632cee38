//! Device interrupts to closures: a driver's handler, found by its vector.
//!
//! Handlers stay for ever, as devices do.

use alloc::boxed::Box;

use crate::apic;
use crate::sync::Once;

/// What a device's interrupt calls: with interrupts off, where nothing may sleep.
pub type Handler = Box<dyn Fn() + Send + Sync>;

static HANDLERS: [Once<Handler>; 256] = [const { Once::new() }; 256];

/// Reserves a vector and has its interrupts call `handler`. `None` when all vectors are taken.
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
