//! The policy in force: which resources are kept.
//!
//! `recycle=` on the kernel command line sets it (default `full`); [`set`] changes it while the
//! system runs. A change counts for what ends or begins after it; what is kept by then and is no
//! longer wanted is dropped by `set` itself, so that after it returns the pools hold nothing that
//! the policy does not keep, but for what other processors were putting in at that moment.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use hayate_recycler::{Keep, Policy};
use machine::paging::teardown;
use machine::{boot, warn};

use super::pools;

static POLICY: AtomicU32 = AtomicU32::new(Keep::all().bits());

/// Reads `recycle=` from the command line. What it does not understand it says and takes as `full`.
pub(super) fn init() {
    let Some(text) = boot::option("recycle") else { return };
    match Policy::parse(text) {
        Ok(policy) => put(policy),
        Err(_) => warn!(
            "recycle={text} is no policy: everything is kept. \
             Names to join with + are none, program, space, region, all, all+text, full, \
             attachment, text, work-area, process, execution, debt"
        ),
    }
}

/// The policy in force.
#[inline]
pub fn get() -> Policy {
    Policy::new(Keep::from_bits_truncate(POLICY.load(Relaxed)))
}

/// Whether all of `what` is to be kept.
#[inline]
pub fn keeps(what: Keep) -> bool {
    POLICY.load(Relaxed) & what.bits() == what.bits()
}

/// Puts another policy in force and drops what it does not keep. Call it without locks: what is
/// dropped may close files.
pub fn set(policy: Policy) {
    put(policy);
    if !keeps(Keep::DEBT) {
        teardown::settle(|| {});
    }
    pools::follow_policy();
}

fn put(policy: Policy) {
    POLICY.store(policy.keep().bits(), Relaxed);
    teardown::allow(policy.keeps(Keep::DEBT));
}
