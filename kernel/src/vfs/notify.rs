//! Reports of file events for watchers (`inotify(7)`).
//!
//! The operations of the tree and of open files report here. While there are no watches, a report
//! is one load and one branch.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use super::inode::{DeviceNumber, Inode};
use super::mount::Location;
use super::open_file::OpenFile;

bitflags::bitflags! {
    /// Events, with the numbers of `inotify(7)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Mask: u32 {
        /// Read.
        const ACCESS = 0x1;
        /// Written or truncated.
        const MODIFY = 0x2;
        /// Metadata changed.
        const ATTRIB = 0x4;
        /// Closed after being open for writing.
        const CLOSE_WRITE = 0x8;
        /// Closed otherwise.
        const CLOSE_NOWRITE = 0x10;
        /// Opened.
        const OPEN = 0x20;
        /// An entry was renamed away.
        const MOVED_FROM = 0x40;
        /// An entry was renamed to here.
        const MOVED_TO = 0x80;
        /// An entry was made.
        const CREATE = 0x100;
        /// An entry was removed.
        const DELETE = 0x200;
        /// The watched file lost its last name.
        const DELETE_SELF = 0x400;
        /// The watched file was renamed.
        const MOVE_SELF = 0x800;
        /// The file system was unmounted.
        const UNMOUNT = 0x2000;
        /// Events were lost.
        const Q_OVERFLOW = 0x4000;
        /// The watch is gone.
        const IGNORED = 0x8000;
        /// Only watch if it is a directory.
        const ONLYDIR = 0x0100_0000;
        /// Do not follow a symbolic link in the last component.
        const DONT_FOLLOW = 0x0200_0000;
        /// No events of removed entries.
        const EXCL_UNLINK = 0x0400_0000;
        /// Only make a watch, do not change one.
        const MASK_CREATE = 0x1000_0000;
        /// Add to an existing watch's events.
        const MASK_ADD = 0x2000_0000;
        /// The event is about a directory.
        const ISDIR = 0x4000_0000;
        /// One event only.
        const ONESHOT = 0x8000_0000;
    }
}

/// The number of watches in the whole system.
pub static WATCHES: AtomicU32 = AtomicU32::new(0);

/// Whether any file in the system is watched: one load, before anything is reported.
#[inline]
pub fn watched() -> bool {
    WATCHES.load(Ordering::Relaxed) != 0
}

/// Reports an event on `name` in a directory. `cookie` joins the two halves of a rename.
#[inline]
pub fn named(directory: &Arc<dyn Inode>, mask: Mask, name: &[u8], cookie: u32) {
    if watched() {
        crate::ipc::inotify::report(directory, mask, Some(name), cookie);
    }
}

/// Reports an event on a file itself.
#[inline]
pub fn inode(inode: &Arc<dyn Inode>, mask: Mask) {
    if watched() {
        crate::ipc::inotify::report(inode, mask, None, 0);
    }
}

/// Reports an event on the file at a place, to the watchers of the file and of its directory.
#[inline]
pub fn place(location: &Location, mask: Mask) {
    if watched() {
        crate::ipc::inotify::report_place(location, mask);
    }
}

/// Reports an event through an open file, to the watchers of the file and of its directory.
#[inline]
pub fn file(file: &OpenFile, mask: Mask) {
    if watched() {
        crate::ipc::inotify::report_open_file(file, mask);
    }
}

/// Returns a device number as `/proc/PID/fdinfo` shows it: as the kernel packs it (`MKDEV`).
pub fn shown_device(encoded: u64) -> u32 {
    let device = DeviceNumber::decode(encoded);
    device.major << 20 | device.minor
}

/// Reports that the last mount of a file system is gone.
#[inline]
pub fn unmounted(device: u64) {
    if watched() {
        crate::ipc::inotify::report_unmounted(device);
    }
}

/// Reports that a file may have lost its last name; watchers get `DELETE_SELF` if it did.
#[inline]
pub fn gone(inode: &Arc<dyn Inode>) {
    if watched() {
        crate::ipc::inotify::report_gone(inode);
    }
}

/// Reports that a file was renamed.
#[inline]
pub fn renamed(
    old_directory: &Arc<dyn Inode>,
    old_name: &[u8],
    new_directory: &Arc<dyn Inode>,
    new_name: &[u8],
    moved: &Arc<dyn Inode>,
) {
    if watched() {
        crate::ipc::inotify::report_renamed(
            old_directory,
            old_name,
            new_directory,
            new_name,
            moved,
        );
    }
}
