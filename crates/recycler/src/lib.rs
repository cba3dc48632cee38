//! The resources that outlive a process, as pure logic: which kinds exist, which of them are kept
//! when a process ends, when a kept one fits a new process, and which are dropped when too many are
//! kept.
//!
//! * [`ResourceKind`] names the resources that a process consists of.
//! * [`Policy`] is the set of kinds that are kept ([`KeptKinds`]), with the names that the kernel
//!   command line, `resource policy` and `./hayate run --recycle` take.
//! * [`ContentKey`], [`AttachmentKey`], [`RegionKey`] are the rules of a match: a kept resource
//!   fits when its key is equal, and for no other reason.
//! * [`Pool`] holds the kept resources under such keys. The newest match is taken first (its memory
//!   is most likely in the caches), the oldest is dropped first when there are too many. It drops
//!   no value itself, but returns it to the caller, and takes no lock.
//! * [`ResourceCounts`] says what happened to the resources of a kind.
//!
//! The kernel's side, `kernel/src/recycle/`, adds locks, processors and memory pressure.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod counts;
mod key;
mod kind;
mod policy;
mod pool;

pub use counts::ResourceCounts;
pub use key::{AttachmentKey, ContentKey, Fingerprint, RegionKey, RegionRole};
pub use kind::ResourceKind;
pub use policy::{BadPolicy, KeptKinds, Policy};
pub use pool::{Pool, Refused, Stored};
