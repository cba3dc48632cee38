//! The protocols between processors: words that several of them read and change at the same time,
//! and the rules by which they do.
//!
//! | module | agrees on |
//! |---|---|
//! | [`sleep`] | who puts a sleeping execution back into a run queue: nobody forgets it, no two do |
//! | [`presence`] | whether a wait queue is empty, without taking its lock |
//! | [`futex`] | which waiter of a word is woken, moved, or leaves by itself |
//! | [`debt`] | how many frames wait to be given back, so that nobody is refused one of them |
//! | [`shootdown`] | when every processor has dropped a stale translation |
//!
//! Each is the code that the kernel runs, and each is model-checked: `tests/models.rs` runs it with
//! the atomic types of the crate `loom`, which tries every order of the threads' steps, and every
//! value that a load may return by the memory model of C11.
//!
//! loom treats a sequentially consistent access as acquire and release only; its fences are exact.
//! Where a protocol needs a store before a load of another word, it says so by a fence, and
//! where a locked instruction of x86 is that fence already, by [`after_locked`].
//!
//! The road not taken: models written beside the code. They prove something about the model.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod atomic;
pub mod debt;
pub mod futex;
pub mod presence;
pub mod shootdown;
pub mod sleep;

pub use atomic::after_locked;
