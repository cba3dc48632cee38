//! The mode that this processor's traps are prepared for, and the calls through the gate.
//!
//! While a space in supervisor mode is loaded, a processor uses another interrupt table and another
//! entry for `syscall` ([`crate::trap`], which registers how to change between them). Page tables
//! say which mode the loaded space has ([`crate::paging`]).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::attention::{self, is_supervisor};
use crate::cpu::PerCpu;
use crate::sync::Once;

crate::per_cpu! {
    /// Calls through the gate that have not been added yet to the count of the loaded space: one
    /// instruction for each call, and no word that two processors write.
    #[doc(hidden)]
    pub static GATED: PerCpu<AtomicU64> = PerCpu::new(AtomicU64::new(0));
}

static LOAD_ENTRIES: Once<fn(bool)> = Once::new();

/// Registers the function that loads the entries of supervisor mode (true) or of user mode on this
/// processor. Called once, at boot.
pub(crate) fn register(load_entries: fn(bool)) {
    LOAD_ENTRIES.call_once(|| load_entries);
}

/// Prepares this CPU's traps for the mode of the space that is loaded. The calls through the gate
/// are added to `calls`, the count of the space that was loaded until now (or still is).
#[inline]
pub(crate) fn set(calls: Option<&AtomicU64>, supervisor: bool) {
    if is_supervisor() | supervisor {
        change(calls, supervisor);
    }
}

#[cold]
fn change(calls: Option<&AtomicU64>, supervisor: bool) {
    let gated = GATED.here().swap(0, Ordering::Relaxed);
    if let Some(calls) = calls {
        calls.fetch_add(gated, Ordering::Relaxed);
    }
    if is_supervisor() == supervisor {
        return;
    }
    if let Some(load_entries) = LOAD_ENTRIES.get() {
        load_entries(supervisor);
        attention::set_mode(supervisor);
    }
}

/// Returns the calls through the gate on processor `cpu` that have not been added yet to the count
/// of the space there.
pub(crate) fn gated_on(cpu: usize) -> u64 {
    GATED.of(cpu).map_or(0, |gated| gated.load(Ordering::Relaxed))
}
