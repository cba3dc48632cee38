//! The protocols between processors: words that several of them read and change at the same time,
//! and the rules for that.
//!
//! | module | decides |
//! |---|---|
//! | [`sleep`] | which processor puts a sleeping execution back into a run queue: exactly one does |
//! | [`presence`] | whether a wait queue is empty, without taking its lock |
//! | [`futex`] | which waiter of a word is woken, moved, or leaves by itself |
//! | [`deferred`] | how many frames wait to be freed, so that no allocation fails while one does |
//! | [`shootdown`] | when every processor has flushed a stale translation |
//! | [`write_errors`] | which open files have yet to be told that a page could not be written |
//!
//! Each module is the code that the kernel runs, and each is model-checked: `tests/models.rs` runs
//! it with the atomic types of the crate `loom`, which tries every order of the threads' steps, and
//! every value that a load may return by the memory model of C11.
//!
//! loom treats a sequentially consistent access as acquire and release only; its fences are exact.
//! Where a protocol needs a store before a load of another word, it uses a fence, or
//! [`after_locked`] where a locked instruction of x86 is already that fence.
//!
//! Road not taken: models written beside the code. They would only prove properties of the model.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod atomic;
pub mod deferred;

pub mod futex;
pub mod presence;
pub mod shootdown;
pub mod sleep;
pub mod write_errors;

pub use atomic::after_locked;
