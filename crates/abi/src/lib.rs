//! Linux x86-64 numbers, structures and errno, thin over linux-raw-sys.
//!
//! Constants come from [`raw`] (linux-raw-sys) wherever it has them. Their integer types vary, so
//! code that uses a constant casts it. The structures that cross the system-call boundary are
//! defined here, by family, because they need zerocopy's derives: only types without padding and
//! without invalid bit patterns can be copied to and from a program's memory, and the derives check
//! exactly that at compile time. Where C has padding, the padding is a named field.
//! `tests/layout.rs` compares every size with the C library's.
#![no_std]
#![forbid(unsafe_code)]

pub mod accounting;
pub mod aio;
pub mod capability;
mod errno;
pub mod file;
pub mod ipc;
pub mod process;
pub mod ptrace;
pub mod rseq;
pub mod signal;
pub mod socket;
pub mod time;

pub use errno::{Errno, Result};
pub use linux_raw_sys as raw;
