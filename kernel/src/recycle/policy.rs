//! The policy in force: which resources are kept.
//!
//! `recycle=` on the kernel command line sets it (default `full`); [`set`] changes it while the
//! system runs. A change applies to what ends or begins after it. `set` itself drops what is kept
//! and no longer allowed, so after it returns the pools hold nothing that the policy does not keep,
//! except what other processors were storing at that moment.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use hayate_recycler::{KeptKinds, Policy};
use machine::paging::teardown;
use machine::{boot, warn};

use super::pools;

static POLICY: AtomicU32 = AtomicU32::new(KeptKinds::FULL.bits());

/// Reads `recycle=` from the command line. An invalid value is reported and treated as `full`.
pub fn init() {
    let Some(text) = boot::option("recycle") else { return };
    match Policy::parse(text) {
        Ok(policy) => put(policy),
        Err(_) => warn!(
            "recycle={text} is no policy: everything is kept. \
             Names to join with + are none, program, space, region, all, all+text, full, \
             attachment, text, work-area, process, execution, debt, image"
        ),
    }
}

/// The policy in force.
#[inline]
pub fn get() -> Policy {
    Policy::new(KeptKinds::from_bits_truncate(POLICY.load(Relaxed)))
}

/// Whether all of `what` is to be kept.
#[inline]
pub fn keeps(what: KeptKinds) -> bool {
    POLICY.load(Relaxed) & what.bits() == what.bits()
}

/// Whether spaces are kept with their pages: under `attachment`, or where both spaces and regions
/// are kept.
pub fn keeps_whole_spaces() -> bool {
    keeps(KeptKinds::ATTACHMENT) || keeps(KeptKinds::SPACE | KeptKinds::REGION)
}

/// Sets another policy and drops what it does not keep. Call it without locks, since dropping may
/// close files.
pub fn set(policy: Policy) {
    put(policy);
    if !keeps(KeptKinds::DEFERRED_FREE) {
        teardown::free_all(|| {});
    }
    pools::follow_policy();
}

fn put(policy: Policy) {
    POLICY.store(policy.keep().bits(), Relaxed);
    teardown::allow(policy.keeps(KeptKinds::DEFERRED_FREE));
}
