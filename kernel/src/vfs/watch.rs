//! The events of files, and the two interfaces that tell programs of them: inotify(7) and the older
//! `F_NOTIFY` of fcntl(2).
//!
//! This is the lower half of notification: events ([`Mask`], [`Event`]), and the [`Watchers`] that
//! get them. Files are named by device and inode number here, so that dentries and mounts, on which
//! the reports of the upper half ([`super::notify`]) stand, can report their own ends. `dnotify.rs`
//! and `ipc/inotify` keep the watches of programs, and register as [`Watchers`].
//!
//! While there are no watches, a report is one load and one branch. The kernel's own images of
//! programs need the changes alone ([`report_changes`]); then reports of other events cost one more
//! comparison.

use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::Result;

use super::attributes::{DeviceNumber, FileKind, Metadata};
use super::registered::Registered;

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

impl Mask {
    /// The events that tell of a change of a file or of a directory's names.
    pub const CHANGES: Mask = Mask::MODIFY
        .union(Mask::ATTRIB)
        .union(Mask::CREATE)
        .union(Mask::DELETE)
        .union(Mask::MOVED_FROM)
        .union(Mask::MOVED_TO)
        .union(Mask::DELETE_SELF)
        .union(Mask::MOVE_SELF)
        .union(Mask::UNMOUNT);

    /// Adds [`Mask::ISDIR`] if the event is about a directory.
    pub fn about(self, kind: FileKind) -> Mask {
        if kind == FileKind::Directory { self | Mask::ISDIR } else { self }
    }
}

/// An event on a file, or on an entry of a directory.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    /// The kind of event.
    pub mask: Mask,
    /// The entry's name, for watchers of its directory.
    pub name: &'a [u8],
    /// Joins the two halves of a rename.
    pub cookie: u32,
    /// The event came through an open file whose name was removed: not for watches with
    /// `EXCL_UNLINK`.
    pub unlinked: bool,
}

impl Event<'_> {
    /// Makes an event on a file itself.
    pub fn itself(mask: Mask) -> Event<'static> {
        Event { mask, name: &[], cookie: 0, unlinked: false }
    }
}

/// An interface by which programs watch files. A file is named by device and inode number.
pub trait Watchers: Send + Sync {
    /// Tells the watchers of a file about an event.
    fn tell(&self, file: (u64, u64), event: Event<'_>);

    /// Tells the watchers of a directory that an entry was renamed within it.
    fn tell_renamed(&self, directory: (u64, u64)) {
        let _ = directory;
    }

    /// Tells that a file was opened for writing: its content may change from now on.
    fn opened_to_write(&self, file: (u64, u64)) {
        let _ = file;
    }

    /// Tells that something was mounted, unmounted or remounted somewhere. Called with the lock of
    /// mounts held.
    fn mounts_changed(&self) {}

    /// Ends the watches of a file that lost its last name.
    fn end(&self, file: (u64, u64)) {
        let _ = file;
    }

    /// Tells the watchers of all files of a file system that it was unmounted, and ends their
    /// watches.
    fn end_all(&self, device: u64) {
        let _ = device;
    }
}

static WATCHERS: Registered<&'static dyn Watchers, 3> = Registered::new();

/// Adds an interface; at boot, once each.
pub fn register(watchers: &'static dyn Watchers) {
    WATCHERS.add(watchers);
}

/// The number of watches in the whole system, and [`KERNEL`].
pub static WATCHES: AtomicU32 = AtomicU32::new(0);

/// The bit of [`WATCHES`] that says that the kernel itself must know of changes
/// ([`report_changes`]).
const KERNEL: u32 = 1 << 31;

/// Reports changes ([`Mask::CHANGES`]) from now on though no program watches any file, or no more.
pub fn report_changes(wanted: bool) {
    if wanted {
        WATCHES.fetch_or(KERNEL, Ordering::SeqCst);
    } else {
        WATCHES.fetch_and(!KERNEL, Ordering::SeqCst);
    }
}

/// Whether any file in the system is watched: one load, before anything is reported.
#[inline]
pub fn watched() -> bool {
    WATCHES.load(Ordering::Relaxed) != 0
}

/// Whether anything must know of events of this kind.
#[inline]
pub fn watched_for(mask: Mask) -> bool {
    let watches = WATCHES.load(Ordering::Relaxed);
    watches != 0 && (watches != KERNEL || mask.intersects(Mask::CHANGES))
}

/// Tells that a file was opened for writing.
pub fn opened_to_write(file: (u64, u64)) {
    for watchers in WATCHERS.iter() {
        watchers.opened_to_write(file);
    }
}

/// Tells that something was mounted, unmounted or remounted.
pub fn mounts_changed() {
    if watched_for(Mask::UNMOUNT) {
        for watchers in WATCHERS.iter() {
            watchers.mounts_changed();
        }
    }
}

/// Sends an event to the watchers of a file.
pub fn tell(file: (u64, u64), event: Event<'_>) {
    for watchers in WATCHERS.iter() {
        watchers.tell(file, event);
    }
}

/// Tells the watchers of a directory that an entry was renamed within it.
pub fn tell_renamed(directory: (u64, u64)) {
    for watchers in WATCHERS.iter() {
        watchers.tell_renamed(directory);
    }
}

/// Reports that a file may have lost its last name; watchers get `DELETE_SELF` if it did.
#[inline]
pub fn gone(metadata: impl FnOnce() -> Result<Metadata>) {
    if watched()
        && let Ok(metadata) = metadata()
    {
        end(&metadata);
    }
}

/// Sends an event to the watchers of a file that lost its last name, and ends their watches.
fn end(metadata: &Metadata) {
    if metadata.links != 0 && metadata.kind != FileKind::Directory {
        return;
    }
    tell(metadata.identity(), Event::itself(Mask::DELETE_SELF));
    for watchers in WATCHERS.iter() {
        watchers.end(metadata.identity());
    }
}

/// Reports that the last mount of a file system is gone.
#[inline]
pub fn unmounted(device: u64) {
    if watched() {
        for watchers in WATCHERS.iter() {
            watchers.end_all(device);
        }
    }
}

/// Returns a device number as `/proc/PID/fdinfo` shows it: as the kernel packs it (`MKDEV`).
pub fn shown_device(encoded: u64) -> u32 {
    let device = DeviceNumber::decode(encoded);
    device.major << 20 | device.minor
}
