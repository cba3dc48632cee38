//! A volume that is written and its files: what there is of them in memory.
//!
//! `info` of a [`Node`] is what its inode says. Mode, owner and names change with the inode, inside
//! the writer's lock; size and times of a file's content change here first ([`Pending`]) and are
//! handed to the writer by a commit.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize};

use hayate_ext4::{Time, Writer};
use hayate_machine::sync::{Once, SpinLock};

use super::blocks::Blocks;
use super::clock::Clock;
use super::device::DiskDevice;
use super::doomed::Doomed;
use crate::fs::disk::{Claim, Disk};
use crate::page_cache::cache::PageCache;
use crate::schedule::{Mutex, RwMutex};
use crate::vfs::filesystem::RootHandle;
use crate::vfs::inode::{DeviceNumber, FileKind, Timestamp};

/// A volume that is mounted for writing.
pub struct Live {
    pub type_name: &'static str,
    pub disk: Arc<Disk>,
    pub device: DiskDevice,
    /// Of a block's size.
    pub shift: u32,
    pub writer: RwMutex<Writer>,
    /// Held by a commit.
    pub committing: Mutex<()>,
    /// A tree, as that of a volume that is only read.
    pub nodes: SpinLock<BTreeMap<u32, Weak<Node>>>,
    pub changed: SpinLock<BTreeMap<u32, Arc<Node>>>,
    pub doomed: SpinLock<Doomed>,
    pub clock: Arc<Clock>,
    /// Whether it takes no changes: remounted so, after an error, or at the end.
    pub is_read_only: AtomicBool,
    /// Files that are open for writing.
    pub writers: AtomicUsize,
    pub claim: SpinLock<Option<Claim>>,
    pub root: RootHandle<Node>,
    pub this: Weak<Live>,
}

bitflags::bitflags! {
    /// Changes that a node has and its inode has not.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub struct Pending: u8 {
        /// The size.
        const SIZE = 1;
        /// The times of the last change of the content and of the inode.
        const MODIFIED = 2;
        /// The time of the last access.
        const ACCESSED = 4;
    }
}

/// The fields of an inode.
#[derive(Clone, Copy)]
pub struct Info {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    /// In bytes, on the volume.
    pub size: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Timestamp,
    pub capabilities: bool,
    pub pending: Pending,
    /// Whether the inode was freed though something has the node, because the volume is given up.
    pub is_released: bool,
    /// The transaction of the last change, and of the last one of the content.
    pub transaction: u32,
    pub data_transaction: u32,
}

/// A file, directory, link or device node.
pub struct Node {
    pub live: Arc<Live>,
    pub number: u32,
    pub kind: FileKind,
    pub info: SpinLock<Info>,
    pub represents: DeviceNumber,
    /// Held while the content is filled.
    pub filling: Mutex<()>,
    pub content: Once<(Arc<PageCache>, Arc<Blocks>)>,
    pub target: Once<Vec<u8>>,
    pub this: Weak<Node>,
}

/// The volume's time for one of the kernel.
pub fn time_of(at: Timestamp) -> Time {
    Time { seconds: at.seconds, nanoseconds: at.nanoseconds }
}

/// The time of day, for the volume.
pub fn time_now() -> Time {
    time_of(Timestamp::now())
}
