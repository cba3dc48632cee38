//! Tender: the parts of a process as resources that outlive it and are reused.
//!
//! A program, a region, a space, an attachment, a work area, a process record, an execution: each
//! is made, used and released by its own module. Instead of releasing a part, a pool of this folder
//! keeps it for the next process that matches. The crate `hayate-recycler` has the kinds, the
//! policies and the matching rules; it does not depend on the kernel and is tested on the host.
//!
//! | file | what it keeps |
//! |---|---|
//! | [`programs`] | what exec found out about an executable |
//! | [`spaces`] | a space with its program in it, for the next start of that program |
//! | [`empty_spaces`] | a space with nothing in it, for any process |
//! | [`heirs`] | a space in which a start from an image ran, in the image's state again |
//! | [`regions`] | the pages of a region without their space |
//! | [`stacks`] | the kernel stacks of threads |
//!
//! | file | what the pools have in common |
//! |---|---|
//! | [`policy`] | the set of what is kept, from the command line (`recycle=`), changed at run time |
//! | [`statistics`] | counts of resources made, reused, stored, dropped, and kept now |
//! | [`pools`] | all pools: listing, limits, dropping their contents |
//! | [`per_cpu_pool`] | a pool with a part for each processor: the rules of the hand-over |
//! | [`registry`] | every resource there is, in use or kept, by kind and serial |
//! | [`watch`] | the parts of a start, to measure where its time goes |
//!
//! [`crate::reclaim`] decides what is given up when frames run out, and in which order.
//!
//! # How a module keeps a resource
//!
//! 1. When it makes a new one: call [`statistics::made`].
//! 2. When one ends: ask [`policy::keeps`]; if it is to be kept, put it into the module's own pool
//!    and call [`statistics::stored`]; else release it.
//! 3. When it needs one: take it from the pool, if the policy still allows it, and call
//!    [`statistics::reused`].
//! 4. When the pool drops one: call [`statistics::dropped`].
//! 5. The pool implements [`pools::AnyPool`] and is registered at boot.
//!
//! A [`PerCpuPool`](per_cpu_pool::PerCpuPool) does all of this but the first step.
//!
//! On the path of a start, nothing here takes a lock or an atomic read-modify-write: the policy is
//! one word that is read, and the counts are per CPU.
//!
//! Lock order: the list of pools is a leaf; each pool's lock belongs to its module.

pub mod empty_spaces;
pub mod heirs;
pub mod per_cpu_pool;
pub mod policy;
pub mod pools;
pub mod programs;
pub mod regions;
pub mod registry;
pub mod spaces;
pub mod stacks;
pub mod statistics;
pub mod watch;

pub use hayate_recycler::{KeptKinds, Policy, ResourceCounts, ResourceKind};

/// Reads the policy from the command line; boot calls it once, before all other users.
pub fn init() {
    policy::init();
}
