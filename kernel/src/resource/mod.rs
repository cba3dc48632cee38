//! Resources: which parts of a process are kept when it ends, how many, and which are dropped
//! first.
//!
//! The parts of a process outlive it (Tender): program, region, space, attachment, work area,
//! process record, execution. Each is made, used and released by its own module. Instead of
//! releasing a part, the module may keep it in a pool and reuse it for the next process that
//! matches. This module has what they have in common:
//!
//! | file | contents |
//! |---|---|
//! | [`policy`] | the set of what is kept, from the command line (`recycle=`), changed at run time |
//! | [`statistics`] | counts of resources made, reused, stored, dropped, and kept now |
//! | [`pools`] | all pools: listing, limits, dropping their contents |
//! | [`pressure`] | what is freed when frames run out, for all callers that need some |
//! | [`watch`] | the parts of a start, to measure where its time goes |
//! | [`registry`] | every resource there is, in use or kept, by kind and serial |
//!
//! The crate `hayate-recycler` has the kinds, the policies and the matching rules. It does not
//! depend on the kernel and is tested on the host.
//!
//! # How a module keeps a resource
//!
//! 1. When it makes a new one: call [`statistics::made`].
//! 2. When one ends: ask [`policy::keeps`]; if it is to be kept, put it into the module's own pool
//!    and call [`statistics::stored`]; else release it.
//! 3. When it needs one: take it from the pool, if the policy still allows it, and call
//!    [`statistics::reused`].
//! 4. When the pool drops one: call [`statistics::dropped`].
//! 5. The pool implements [`pools::Keeper`] and is registered at boot.
//!
//! On the path of a start, nothing here takes a lock or an atomic read-modify-write: the policy is
//! one word that is read, and the counts are per CPU.
//!
//! Lock order: the list of pools is a leaf; each pool's lock belongs to its module.

pub mod policy;
pub mod pools;
pub mod pressure;
#[cfg(debug_assertions)]
pub mod refusal;
pub mod registry;
pub mod statistics;
pub mod watch;

pub use hayate_recycler::{Counts, Keep, Kind, Policy};

/// Reads the policy from the command line; boot calls it once, before all other users.
pub fn init() {
    policy::init();
}
