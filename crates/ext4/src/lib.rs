//! The ext4 format (and the older ext2 and ext3), read and written with its journal: pure logic, no
//! devices.
//!
//! A [`Volume`] is opened over any [`Source`] of bytes. It returns [`Inode`]s by number. An inode's
//! [`Map`] lists all runs of the device that hold its content; [`Entries`] walks one block of a
//! directory. The caller owns every cache and does all reading of file content, in requests as
//! large as the runs are.
//!
//! A [`Writer`] is opened over a [`Device`]. It replays the journal, and does the operations of a
//! file system on private copies of metadata blocks: names, inodes, blocks of files, attributes.
//! Each operation is whole or not done at all. A commit writes the copies to the journal, in halves
//! between which no lock need be held; a checkpoint writes them to their places. The caller writes
//! file content itself, before the commit of the transaction that gave the blocks.
//!
//! An image is not trusted: every number read from it is checked before it is used, metadata
//! checksums are verified where the volume has them, walks are bounded, allocations may fail.
//! Whatever an image contains, the result is a value or an [`Error`], never a panic and never an
//! infinite loop. The format is that of Linux `Documentation/filesystems/ext4/`.
//!
//! Roads not taken. The crate `ext4-view` reads the format too, but only by whole paths; it shares
//! by `Rc` (a kernel's volume is used by many processors at once) and does not expose inode
//! numbers, link counts, device numbers and extents. The crate `rsext4` (0.9.2) writes it, but a
//! kernel cannot stand on it: about a thousand places that unwrap or panic, on images that anybody
//! may bring; memory that must not run out; and one lock around everything, held while the device
//! works.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod allocate;
mod allocate_inode;
mod attributes;
mod bitmap;
mod checksum;
mod commit;
mod content;
mod directory;
mod error;
mod extent_tree;
mod field;
mod group;
mod indirect;
mod inode;
mod journal;
mod map;
mod names;
mod node;
mod orphan;
mod overhead;
mod superblock;
mod transaction;
mod volume;
mod writer;

pub use attributes::write::Condition;
pub use checksum::{Crc32c, by_table as crc32c_by_table};
pub use commit::{Checkpoint, Sealed, View};
pub use content::{Fill, Mapping, Progress};
pub use directory::list::Sink;
pub use directory::{DirEntry, Entries, EntryKind, named};
pub use error::{Error, Result};
pub use inode::{Inode, Time};
pub use map::{Extent, Map, Run};
pub use names::{Content, New, Rename, Unlinked};
pub use node::Change;
pub use volume::{Device, Source, Statistics, Volume};
pub use writer::Writer;

/// The number of the root directory's inode.
pub const ROOT: u32 = 2;
