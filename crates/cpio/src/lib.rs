//! Reads newc cpio archives, the format of an initramfs.
//!
//! An initramfs is a chain of archives, each ended by an entry named `TRAILER!!!` and each padded
//! with any number of zero bytes (Linux
//! `Documentation/driver-api/early-userspace/buffer-format.rst`). [`Reader`] walks the whole chain
//! without copying: names and contents are slices of the input. The input is not trusted: whatever
//! it contains, the reader yields entries, then at most one [`Error`], and never panics.
//!
//! Road not taken: the crate `cpio_reader`. It ends at the first trailer without reporting where
//! that was, so the second archive of a chain cannot be found, and it takes a damaged header for
//! the end. The crate `cpio`, by which the host command writes its archives, reads from a stream of
//! the standard library, which a kernel has not, and copies every name.
#![no_std]
#![forbid(unsafe_code)]

mod name;
mod reader;

pub use name::components;
pub use reader::{Entry, Error, Fault, Item, Reader};
