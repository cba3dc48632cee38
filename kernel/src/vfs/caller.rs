//! The process that calls, as files see it: its credentials, and its account of device reads. The
//! process layer is above and registers both.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Once;

use crate::credentials::{Capability, Credentials};

/// The process layer, as seen from here.
pub struct Caller {
    /// Returns the credentials of the calling process.
    pub credentials: fn() -> Arc<Credentials>,
    /// Charges bytes that were read from a device to the calling thread, if there is one.
    pub read_from_device: fn(usize),
}

static CALLER: Once<Caller> = Once::new();

/// Registers the process layer; at boot.
pub fn register(caller: Caller) {
    CALLER.call_once(|| caller);
}

/// Checks that the calling process has a capability: `EPERM`.
pub fn require(capability: Capability) -> Result<()> {
    let caller = CALLER.get().ok_or(Errno::EPERM)?;
    (caller.credentials)().require(capability)
}

/// Charges bytes that were read from a device to the calling thread, if there is one.
pub fn read_from_device(bytes: usize) {
    if let Some(caller) = CALLER.get() {
        (caller.read_from_device)(bytes);
    }
}
