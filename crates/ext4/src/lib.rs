//! Reads the ext4 format (and the older ext2 and ext3): pure logic, no devices.
//!
//! A [`Volume`] is opened over any [`Source`] of bytes. It returns [`Inode`]s by number. An inode's
//! [`Map`] lists all runs of the device that hold its content; [`Entries`] walks one block of a
//! directory. The caller owns every cache and does all reading of file content, in requests as
//! large as the runs are.
//!
//! An image is not trusted: every number read from it is checked before it is used, metadata
//! checksums are verified where the volume has them, walks are bounded, allocations may fail.
//! Whatever an image contains, the result is a value or an [`Error`], never a panic and never an
//! infinite loop. The format is that of Linux `Documentation/filesystems/ext4/`.
//!
//! Road not taken: the crate `ext4-view`. It reads the format too, but only by whole paths; it
//! shares by `Rc` (a kernel's volume is used by many processors at once) and does not expose inode
//! numbers, link counts, device numbers and extents.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod checksum;
mod directory;
mod error;
mod field;
mod group;
mod inode;
mod journal;
mod map;
mod volume;

pub use directory::{DirEntry, Entries, EntryKind, named};
pub use error::{Error, Result};
pub use inode::{Inode, Time};
pub use map::{Extent, Map, Run};
pub use volume::{Source, Statistics, Volume};

/// The number of the root directory's inode.
pub const ROOT: u32 = 2;
