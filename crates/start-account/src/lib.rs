//! The account of one start of a program: where the time went, from the call that makes the process
//! to the end of the wait for it.
//!
//! The kernel keeps an [`Account`]: at each event (a call, a fault, the next step of an exec),
//! every nanosecond since the previous event is added to exactly one [`StartPart`], so the parts
//! always add up to the whole. The clocks of a [`Moment`] divide this time: the new process's
//! processor time goes to its current part, its parent's to the parent's part, idle time is kept
//! apart, and the rest belongs to other processes. The time of the accounting itself is kept apart
//! too ([`Account::skip`]).
//!
//! A finished account with its counts is a [`Start`]. The kernel writes it as lines of text
//! (`/proc/hayate/starts`), `./hayate explain` reads them back: both directions are in [`text`], so
//! they cannot diverge.
//!
//! All times are nanoseconds of the kernel's clock; under `--deterministic` that is instructions.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod account;
mod began;
mod part;
mod text;

pub use account::{Account, Moment, Runner};
pub use began::{Began, Image};
pub use part::{Fault, Stage, StartPart};
pub use text::{Start, parse};
