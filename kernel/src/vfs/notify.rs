//! Reports of file events: the operations of the tree and of open files call these functions.
//!
//! The upper half of notification. `watch.rs` is the lower half: it has the events and knows the
//! interfaces by which programs watch files, `dnotify.rs` and `ipc/inotify`.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use super::attributes::FileKind;
use super::inode::Inode;
use super::mount::Location;
use super::open_file::OpenFile;
use super::watch;
use super::watch::{Event, Mask, watched, watched_for};

/// Reports an event on `name` in a directory. `cookie` joins the two halves of a rename.
#[inline]
pub fn named(directory: &Arc<dyn Inode>, mask: Mask, name: &[u8], cookie: u32) {
    if watched_for(mask) {
        tell(directory, Event { mask, name, cookie, unlinked: false });
    }
}

/// Reports an event on a file itself.
#[inline]
pub fn inode(inode: &Arc<dyn Inode>, mask: Mask) {
    if watched_for(mask) {
        tell(inode, Event::itself(mask.about(inode.attributes().kind)));
    }
}

/// Reports an event on the file at a place, to the watchers of the file and of its directory.
#[inline]
pub fn place(location: &Location, mask: Mask) {
    if watched_for(mask) {
        location.tell_watchers(mask);
    }
}

/// Reports an event through an open file, to the watchers of the file and of its directory.
#[inline]
pub fn file(file: &OpenFile, mask: Mask) {
    if watched_for(mask) {
        file.tell_watchers(mask);
    }
}

/// Reports that a file was opened for writing, to the kernel itself: programs are told by
/// [`file()`].
#[inline]
pub fn opened_to_write(location: &Location) {
    if watched_for(Mask::MODIFY) {
        tell_opened_to_write(location);
    }
}

#[cold]
fn tell_opened_to_write(location: &Location) {
    if let Some(Ok(metadata)) = location.dentry.inode().map(|inode| inode.metadata()) {
        watch::opened_to_write(metadata.identity());
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
        tell_renamed(old_directory, old_name, new_directory, new_name, moved);
    }
}

fn tell(inode: &Arc<dyn Inode>, event: Event<'_>) {
    if let Ok(metadata) = inode.metadata() {
        watch::tell(metadata.identity(), event);
    }
}

/// Sends the events of a rename to the watchers of both directories and of the file itself.
fn tell_renamed(
    old_directory: &Arc<dyn Inode>,
    old_name: &[u8],
    new_directory: &Arc<dyn Inode>,
    new_name: &[u8],
    moved: &Arc<dyn Inode>,
) {
    static COOKIE: AtomicU32 = AtomicU32::new(1);
    let cookie = COOKIE.fetch_add(1, Ordering::Relaxed);
    let kind: FileKind = moved.attributes().kind;
    if Arc::ptr_eq(old_directory, new_directory)
        && let Ok(metadata) = old_directory.metadata()
    {
        watch::tell_renamed(metadata.identity());
    }
    named(old_directory, Mask::MOVED_FROM.about(kind), old_name, cookie);
    named(new_directory, Mask::MOVED_TO.about(kind), new_name, cookie);
    inode(moved, Mask::MOVE_SELF);
}
