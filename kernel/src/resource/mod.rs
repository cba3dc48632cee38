//! Resources: which parts of a process are kept when it ends, how many there are, what goes first.
//!
//! What a process is made of outlives it (Tender): program, region, space, attachment, work area,
//! process record, execution. Each is made, used and given up by its own module; when it would be
//! given up, the module may keep it in a pool instead and take it out again for the next process
//! that it fits. This module holds what they have in common:
//!
//! | file | what it keeps |
//! |---|---|
//! | [`policy`] | the set of what is kept, from the command line (`recycle=`), changed at run time |
//! | [`statistics`] | how many were made, reused, stored, dropped, and what is kept now |
//! | [`pools`] | all pools, for those who list them, limit them, and drop what they hold |
//! | [`pressure`] | what is done when frames run out, for all who ask for some |
//! | [`watch`] | what a start is made of, for who wants to see where its time goes |
//! | [`registry`] | every resource there is, in use or kept, by kind and serial |
//!
//! The kinds, the policies and the rules of a match are those of the crate `hayate-recycler`, which
//! knows no kernel and is tested on the host.
//!
//! # How a module keeps a resource
//!
//! 1. When one is made new: [`statistics::made`].
//! 2. When one ends: ask [`policy::keeps`]; if it is to be kept put it into the module's own pool
//!    and say [`statistics::stored`]; else give it up.
//! 3. When one is wanted: take one from the pool, if the policy still says so, and say
//!    [`statistics::reused`].
//! 4. When the pool gives one up: [`statistics::dropped`].
//! 5. The pool implements [`pools::Keeper`] and is registered at boot.
//!
//! Nothing here takes a lock or an atomic read-modify-write on the way of a start: the policy is one
//! word that is read, the counts are each processor's own.
//!
//! Lock order: the list of pools is a leaf; the pools' own locks are their modules'.

pub mod policy;
pub mod pools;
pub mod pressure;
#[cfg(debug_assertions)]
pub mod refusal;
pub mod registry;
pub mod statistics;
pub mod watch;

pub use hayate_recycler::{Counts, Keep, Kind, Policy};

/// Reads the policy from the command line; boot calls it once, first of all rooms.
pub fn init() {
    policy::init();
}
