//! Physical frames: the frame table, counted references, the allocator.
//!
//! Every 4 KiB frame of memory has a [`FrameInfo`] in one table in the direct map. A [`Frame`] is a
//! counted reference: cloning adds one, dropping takes one away, and dropping the last one frees
//! the frame. The content of a frame is accessed only through methods that copy, because a program
//! may be writing to the same frame on another processor; no Rust reference to it exists.
//!
//! Allocation: each processor has a cache of free frames ([`per_cpu_cache`]) in front of one buddy
//! allocator behind a spin lock, which is taken once in 64 allocations. In addition each processor
//! has a cache of frames that were zeroed while it was idle ([`prepare`]).
//!
//! Watermark: the last [`reserve`](counts) frames are for the kernel itself. Requests for a program
//! ([`Frame::allocate`], [`Block::allocate`]) are refused below it; small kernel objects
//! ([`allocate_kernel`]) may use it up. So a program that uses all memory meets an error where the
//! kernel can report it to the program, and not in the middle of an operation that cannot.
//! Above the reserve is a part for programs of administrators
//! ([`keep_for_administrators`]): whatever the others hold, root can start a program and look.
//! Linux has such a part where memory is promised strictly (`vm.admin_reserve_kbytes`), and
//! otherwise ends some process; here no process is ended for another's request.
//!
//! Lock order: the buddy's lock is a leaf. A processor's caches are touched only by that processor
//! with interrupts off and need no lock.
//!
//! Layers, lowest first: [`mod@info`], [`bytes`], [`deferred`], [`per_cpu_cache`], [`allocator`],
//! [`owner`], [`frame`], [`content`], [`block`], [`run`], [`unused`], [`lent`]. Nothing here knows
//! of page tables: the module that defers the free of frames registers how to free them
//! ([`deferred`]).
//!
//! Road not taken: compound pages with one count for a large block. The entries that map a large
//! page hold one reference to each of its 512 frames instead (`paging/large.rs`): it can then be
//! split and partly freed without finding a head frame.

mod allocator;
mod block;
mod bytes;
mod content;
pub(crate) mod deferred;
mod frame;
mod info;
mod lent;
pub mod owner;
mod per_cpu_cache;
mod run;
mod unused;

pub use allocator::{
    FrameCounts, counts, given_back, is_low, is_plentiful, is_scarce, is_scarce_in_all,
    keep_for_administrators, prepare, total,
};
pub(crate) use allocator::{adopt, allocate_kernel, give_run, give_zeroed, init};
pub use block::Block;
pub(crate) use bytes::{copy_numbered, direct, physical, zero as zero_numbered};
pub use frame::Frame;
pub(crate) use info::{FrameInfo, Given, extend, info};
pub use info::{in_units, untold};
pub use lent::{LENT, Lent};
pub use run::{RUN, Run};
pub use unused::Unused;
