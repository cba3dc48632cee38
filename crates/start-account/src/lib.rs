//! Where one start of a program went, from the call that makes the process to the end of the wait
//! for it.
//!
//! The kernel keeps an [`Account`]: at each event that it knows (a call, a fault, the next step of an
//! exec) all time since the event before goes to exactly one [`Part`], so the parts always add up to
//! the whole. Whose time it was is told by the clocks of a [`Moment`]: what the new process had of the
//! processor goes to the part it is in, what its parent had to the parent's part, idle time is put
//! aside, and the rest is what others had. What the accounting itself took is put aside too
//! ([`Account::skip`]).
//!
//! A finished account with its counts is a [`Start`]. The kernel writes it as lines of text
//! (`/proc/hayate/starts`), `./hayate explain` reads them back: both directions are in [`text`], so
//! they cannot drift apart.
//!
//! All times are nanoseconds of the kernel's clock; under `--deterministic` that is instructions.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod account;
mod part;
mod text;

pub use account::{Account, Moment, Runner};
pub use part::{Fault, Part, Stage};
pub use text::{Start, parse};
