//! What outlives a process, as pure logic: which kinds of resource there are, which of them are
//! kept when a process ends, when a kept one fits a new process, and what goes when there is too
//! much of it.
//!
//! * [`Kind`] names the resources a process is made of.
//! * [`Policy`] is the set of what is kept ([`Keep`]), with the names that the kernel command line,
//!   `resource policy` and `./hayate run --recycle` take.
//! * [`Content`], [`AttachmentKey`], [`RegionKey`] are the rules of a match: a kept resource fits
//!   when its key is equal, and for no other reason.
//! * [`Pool`] holds what is kept under such keys: the newest match is taken first (its memory is
//!   the warmest), the oldest goes first when there is too much. It holds values, drops none of
//!   them behind its user's back, and takes no lock.
//! * [`Counts`] says what became of the resources of a kind.
//!
//! The kernel's side, `kernel/src/resource/`, adds locks, processors and memory pressure.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod counts;
mod key;
mod kind;
mod policy;
mod pool;

pub use counts::Counts;
pub use key::{AttachmentKey, Content, Fingerprint, RegionKey, Role};
pub use kind::Kind;
pub use policy::{BadPolicy, Keep, Policy};
pub use pool::{Kept, NoRoom, Pool};
