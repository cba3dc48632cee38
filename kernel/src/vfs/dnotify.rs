//! Signals for changes of a directory (`F_NOTIFY`, fcntl(2)): the older interface. `ipc/inotify` is
//! the newer one.
//!
//! A program asks, through an open directory, for kinds of changes of its entries. Each change
//! sends the signal of the open file's owner, only once unless `DN_MULTISHOT` was set. Events come
//! from the same reports as inotify's (`notify.rs`, through `watch.rs`): while there are no
//! watches, nothing is looked up.
//!
//! A watch belongs to the open file and to the descriptor table through which it was made: it ends
//! when any descriptor of that table for the open file is closed, also a duplicate
//! (`dnotify_flush`, fs/notify/dnotify/dnotify.c).
//!
//! Locks: the table is a spin lock and a leaf. It is not held when signals are sent.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::descriptor;
use super::descriptor::FdTable;
use super::inode::FileKind;
use super::open_file;
use super::open_file::{Marks, OpenFile};
use super::signal_owner::{Band, SignalOwner};
use super::users::Limit;
use super::watch;
use super::watch::{Event, Mask, WATCHES, Watchers};
use crate::reclaim::growth::Grow;

/// Whether directories can be watched (`/proc/sys/fs/dir-notify-enable`).
pub static ENABLED: Limit = Limit::new(|| 1);

bitflags::bitflags! {
    /// The kinds of changes, with the numbers of fcntl(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Changes: u32 {
        /// A file was read.
        const ACCESS = 1;
        /// A file was written or truncated.
        const MODIFY = 2;
        /// An entry was added.
        const CREATE = 4;
        /// An entry was removed.
        const DELETE = 8;
        /// An entry was renamed within the directory.
        const RENAME = 0x10;
        /// Metadata of a file changed.
        const ATTRIB = 0x20;
        /// Send more than one signal.
        const MULTISHOT = 0x8000_0000;
    }
}

impl Changes {
    /// Returns the changes that an event stands for.
    fn of(event: Mask) -> Changes {
        const MEANING: [(Mask, Changes); 7] = [
            (Mask::ACCESS, Changes::ACCESS),
            (Mask::MODIFY, Changes::MODIFY),
            (Mask::ATTRIB, Changes::ATTRIB),
            (Mask::CREATE, Changes::CREATE),
            (Mask::MOVED_TO, Changes::CREATE),
            (Mask::DELETE, Changes::DELETE),
            (Mask::MOVED_FROM, Changes::DELETE),
        ];
        let meant = MEANING.iter().filter(|(one, _)| event.contains(*one));
        meant.fold(Changes::empty(), |all, (_, change)| all | *change)
    }
}

struct Watch {
    directory: (u64, u64),
    /// The addresses of the open file and of the descriptor table.
    file: usize,
    table: usize,
    fd: i32,
    changes: Changes,
    owner: Arc<SignalOwner>,
}

static TABLE: SpinLock<Vec<Watch>> = SpinLock::new(Vec::new());
static COUNT: AtomicU32 = AtomicU32::new(0);

fn address(file: &OpenFile) -> usize {
    core::ptr::from_ref(file).addr()
}

/// `F_NOTIFY` through the descriptor `fd` of a table: adds kinds of changes; asking for none ends
/// the watch.
pub fn request(files: &FdTable, file: &OpenFile, fd: i32, asked: u32) -> Result<()> {
    if ENABLED.get() == 0 {
        return Err(Errno::EINVAL);
    }
    let changes = Changes::from_bits_truncate(asked);
    if (changes - Changes::MULTISHOT).is_empty() {
        closed(files, file);
        return Ok(());
    }
    if file.inode().attributes().kind != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    let directory = file.metadata()?.identity();
    let owner = Arc::clone(file.owner());
    owner.set_caller();
    // This comes first: every later close of a descriptor then ends the new watch.
    files.note_closings();
    file.mark(Marks::NOTIFY);
    enter(Watch { directory, file: address(file), table: number(files), fd, changes, owner })?;
    // If the descriptor was closed before that, the watch has to be ended here.
    if !files.get(fd).is_ok_and(|now| core::ptr::eq(&*now, file)) {
        closed(files, file);
    }
    Ok(())
}

/// Adds a watch, or adds its changes to the existing watch of its open file and table.
fn enter(new: Watch) -> Result<()> {
    let mut table = TABLE.lock();
    let same = |watch: &&mut Watch| watch.file == new.file && watch.table == new.table;
    if let Some(watch) = table.iter_mut().find(same) {
        watch.fd = new.fd;
        watch.changes |= new.changes;
        return Ok(());
    }
    table.make_room(1)?;
    table.push(new);
    COUNT.fetch_add(1, Ordering::Relaxed);
    WATCHES.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn number(files: &FdTable) -> usize {
    core::ptr::from_ref(files).addr()
}

fn take(table: &mut Vec<Watch>, at: usize) -> Watch {
    COUNT.fetch_sub(1, Ordering::Relaxed);
    WATCHES.fetch_sub(1, Ordering::Relaxed);
    table.swap_remove(at)
}

/// Ends the watch of a table and an open file: a descriptor was closed, or no changes are wanted
/// any more.
fn closed(files: &FdTable, file: &OpenFile) {
    if COUNT.load(Ordering::Relaxed) != 0 {
        end(|watch| watch.file == address(file) && watch.table == number(files));
    }
}

/// Called when the open file ends. Its descriptors were closed before; only an open file in flight
/// between sockets had none to close.
fn release(file: &OpenFile) {
    while end(|watch| watch.file == address(file)) {}
}

/// Ends the first watch for which `is_meant` is true; returns whether there was one.
fn end(is_meant: impl Fn(&Watch) -> bool) -> bool {
    let mut table = TABLE.lock();
    let at = table.iter().position(is_meant);
    let ended = at.map(|at| take(&mut table, at));
    drop(table);
    ended.is_some()
}

/// This interface, for [`watch`].
struct DirectoryWatches;

impl Watchers for DirectoryWatches {
    fn tell(&self, directory: (u64, u64), event: Event<'_>) {
        if COUNT.load(Ordering::Relaxed) != 0 {
            tell_changes(directory, Changes::of(event.mask));
        }
    }

    fn tell_renamed(&self, directory: (u64, u64)) {
        tell_changes(directory, Changes::RENAME);
    }
}

/// Registers what ends watches and what is told of events; boot calls it once.
pub fn init() {
    watch::register(&DirectoryWatches);
    open_file::at_end(Marks::NOTIFY, release);
    descriptor::at_close(closed);
}

fn tell_changes(directory: (u64, u64), changes: Changes) {
    let mut index = 0;
    loop {
        let mut table = TABLE.lock();
        let Some(watch) = table.get(index) else { return };
        let wanted = watch.directory == directory && watch.changes.intersects(changes);
        if !wanted {
            index += 1;
            continue;
        }
        let (owner, fd) = (Arc::clone(&watch.owner), watch.fd);
        let ended = if watch.changes.contains(Changes::MULTISHOT) {
            index += 1;
            None
        } else {
            Some(take(&mut table, index))
        };
        drop(table);
        drop(ended);
        owner.tell(fd, Band::Message);
    }
}
