//! Open files: the objects behind descriptors (Linux' `struct file`, POSIX' open file description).
//!
//! An [`OpenFile`] joins the operations ([`FileOps`]) with the state of one `open`: access mode,
//! status flags, position, place in the tree. `dup`, `fork` and descriptor passing share it through
//! its `Arc`. Dropping the last reference releases the file, which may sleep: never drop one with a
//! spin lock held.
//!
//! Lock order: the position lock (sleeping) comes before every lock of the operations.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::shared::Shared;
use hayate_machine::sync::{Once, SpinLock};

use super::fasync::{Interest, Signals};
use super::file_count::Counted;
use super::inode::{DirectorySink, Inode, Metadata};
use super::mount::Location;
pub use super::open_flags as flags;
use super::open_flags::*;
use super::poll::{Events, Registrar, Watch};
use super::registered::Registered;
use super::signal_owner::SignalOwner;
use super::socket::SocketOps;
use super::transfer::{Input, Output};
use super::watch;
use super::watch::Mask;
use crate::credentials::Credentials;
use crate::page_cache::access::OpenAccess;
use crate::page_cache::cache::PageCache;
use crate::reclaim::growth;
use crate::schedule;

/// The request of one `open`, for [`Inode::open`] and device openers.
pub struct OpenRequest<'a> {
    /// The flags of `open(2)`.
    pub flags: u32,
    /// The credentials of the caller.
    pub credentials: &'a Credentials,
    /// The place where the file was found.
    pub location: &'a Location,
}

impl OpenRequest<'_> {
    /// Whether the file will be read.
    pub fn reads(&self) -> bool {
        self.flags & O_ACCMODE != O_WRONLY
    }
    /// Whether the file will be written.
    pub fn writes(&self) -> bool {
        matches!(self.flags & O_ACCMODE, O_WRONLY | O_RDWR)
    }
}

bitflags::bitflags! {
    /// How a file behaves; constant while it is open.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Traits: u32 {
        /// Has a position: each read or write starts where the last one ended, and `lseek` works.
        const POSITIONED = 1;
        /// `pread` and `pwrite` work. (With `POSITIONED` for anything like a regular file.)
        const ADDRESSABLE = 2;
        /// Reports its real readiness to `poll`; other files are always ready, and epoll refuses
        /// them.
        const POLLABLE = 4;
    }
}

impl Traits {
    /// A regular file.
    pub const REGULAR: Traits = Traits::POSITIONED.union(Traits::ADDRESSABLE);
    /// A pipe, socket or terminal.
    pub const STREAM: Traits = Traits::POLLABLE;
}

/// The base of an `lseek(2)` offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The beginning.
    Set,
    /// The current position.
    Current,
    /// The end.
    End,
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset.
    Hole,
}

/// The memory that `mmap(2)` of a file maps.
pub enum MapSource {
    /// The pages of this page cache.
    PageCache(Arc<PageCache>),
    /// Anonymous memory (`/dev/zero`).
    Anonymous,
}

/// The operations of an open file. The defaults return what Linux returns for a file without the
/// operation. All may sleep.
pub trait FileOps: Any + Send + Sync {
    /// Returns how this file behaves.
    fn traits(&self) -> Traits;

    /// Reads at `offset` (meaningless without [`Traits::ADDRESSABLE`]) into `out`; returns the
    /// number of bytes, 0 at the end. Without data it fails with `EAGAIN` if `file.nonblocking()`,
    /// else sleeps interruptibly (`ERESTARTSYS`).
    fn read(&self, file: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let _ = (file, offset, out);
        Err(Errno::EINVAL)
    }

    /// Writes `input` at `*offset`; with `O_APPEND` first sets `*offset` to the end. Returns the
    /// number of bytes, by which the caller moves the position. On `EPIPE` from a stream the caller
    /// raises SIGPIPE.
    fn write(&self, file: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let _ = (file, offset, input);
        Err(Errno::EINVAL)
    }

    /// Returns the events that are there now. Calls [`Registrar::register`] for *every* wait queue
    /// that may change the answer, whatever the state: the same calls undo the registration.
    fn poll(&self, file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        let _ = (file, registrar);
        Events::ALWAYS
    }

    /// Performs `ioctl(2)`; `arg` is a user pointer or a number, depending on `command`.
    fn ioctl(&self, file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        let _ = (file, command, arg);
        Err(Errno::ENOTTY)
    }

    /// Returns the memory to map for `mmap(2)`; by default the inode's page cache, if it has one.
    fn map(&self, file: &OpenFile) -> Result<MapSource> {
        file.inode().page_cache().map(MapSource::PageCache).ok_or(Errno::ENODEV)
    }

    /// Moves the position, now `position`, and returns the new one.
    fn seek(&self, file: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        default_seek(file, position, offset, whence)
    }

    /// `fallocate(2)` with its mode bits.
    fn allocate(&self, file: &OpenFile, mode: u32, offset: u64, length: u64) -> Result<()> {
        let _ = (file, mode, offset, length);
        Err(Errno::EOPNOTSUPP)
    }

    /// Enumerates an open directory; see [`Inode::read_dir`].
    fn read_dir(
        &self,
        file: &OpenFile,
        position: &mut u64,
        sink: &mut dyn DirectorySink,
    ) -> Result<()> {
        file.inode().read_dir(position, sink)
    }

    /// `fsync(2)` / `fdatasync(2)`.
    fn sync(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        file.inode().sync(data_only)
    }

    /// Called before the status flags become `new` (`F_SETFL`); may refuse.
    fn set_flags(&self, file: &OpenFile, new: u32) -> Result<()> {
        let _ = (file, new);
        Ok(())
    }

    /// Returns the list of open files that want signals (`O_ASYNC`), and which events concern this
    /// one; `None` if this kind of file sends no signals.
    fn signals(&self, file: &OpenFile) -> Option<(&Signals, Interest)> {
        let _ = file;
        None
    }

    /// Called before signals are switched on: sets a default owner if there is none.
    fn own_signals(&self, file: &OpenFile) {
        let _ = file;
    }

    /// Called after an owner of its signals was set (`F_SETOWN`).
    fn owned(&self, file: &OpenFile) {
        let _ = file;
    }

    /// Returns the operations of a socket, if this file is one.
    fn as_socket(&self) -> Option<&dyn SocketOps> {
        None
    }

    /// Called when the last reference goes away.
    fn release(&self, file: &OpenFile) {
        let _ = file;
    }

    /// Returns extra lines for `/proc/PID/fdinfo/N`, each ended by a newline.
    fn describe(&self, file: &OpenFile) -> Option<Vec<u8>> {
        let _ = file;
        None
    }
}

bitflags::bitflags! {
    /// Registrations elsewhere that the end of an open file has to undo.
    #[derive(Clone, Copy, Debug)]
    pub struct Marks: u32 {
        /// A lock was taken through it.
        const LOCKS = 1;
        /// It wanted signals.
        const SIGNALS = 2;
        /// It had a lease.
        const LEASE = 4;
        /// It watched a directory.
        const NOTIFY = 8;
        /// The watchers were already told that it is closed.
        const CLOSED = 16;
    }
}

/// The functions that undo the registrations of an open file that ends, by mark.
static AT_END: Registered<(Marks, Undo), 3> = Registered::new();

/// Undoes the registrations of an open file that ends.
type Undo = fn(&OpenFile);

/// Registers what has to be undone when an open file with this mark ends; at boot.
pub fn at_end(mark: Marks, undo: Undo) {
    AT_END.add((mark, undo));
}

/// An open file.
pub struct OpenFile {
    ops: Shared<dyn FileOps>,
    inode: Arc<dyn Inode>,
    location: Location,
    flags: AtomicU32,
    /// Parts of the flags that never change, kept here to save decoding.
    readable: bool,
    writable: bool,
    path_only: bool,
    traits: Traits,
    position: schedule::Mutex<u64>,
    /// The owner that gets its signals; made when a program first asks.
    owner: Once<Arc<SignalOwner>>,
    /// The registrations to undo at the end, as [`Marks`].
    marks: AtomicU32,
    /// The epoll sets that watch this file.
    watches: SpinLock<Vec<Watch>>,
    access: Option<OpenAccess>,
    _counted: Counted,
}

impl OpenFile {
    /// Joins operations, place and the flags of `open(2)`. `location` must have an inode.
    ///
    /// # Errors
    /// `ENFILE`: too many files are open.
    pub fn new(ops: Arc<dyn FileOps>, location: Location, flags: u32) -> Result<Arc<OpenFile>> {
        OpenFile::counted(ops, location, flags, None, Counted::new()?)
    }

    /// Like [`OpenFile::new`] for a file that was counted before it was looked for, and counts the
    /// open file with the content of the file, which keeps a file that is open for writing from
    /// being executed.
    pub fn counted(
        ops: Arc<dyn FileOps>,
        location: Location,
        flags: u32,
        access: Option<OpenAccess>,
        counted: Counted,
    ) -> Result<Arc<OpenFile>> {
        let inode = location.inode()?;
        Ok(OpenFile::of(inode, ops, location, flags, access, counted))
    }

    /// Like [`OpenFile::counted`] for the inode of `location`.
    pub fn of(
        inode: Arc<dyn Inode>,
        ops: Arc<dyn FileOps>,
        location: Location,
        flags: u32,
        access: Option<OpenAccess>,
        counted: Counted,
    ) -> Arc<OpenFile> {
        let traits = ops.traits();
        let path_only = flags & O_PATH != 0;
        let mode = flags & O_ACCMODE;
        Arc::new(OpenFile {
            readable: !path_only && matches!(mode, O_RDONLY | O_RDWR),
            writable: !path_only && matches!(mode, O_WRONLY | O_RDWR),
            path_only,
            ops: ops.into(),
            inode,
            location,
            flags: AtomicU32::new(flags & !OPEN_ONLY),
            traits,
            position: schedule::Mutex::new(0),
            owner: Once::new(),
            marks: AtomicU32::new(0),
            watches: SpinLock::new(Vec::new()),
            access,
            _counted: counted,
        })
    }

    /// Returns the page cache of a regular file that has one, as it was when it was opened.
    pub fn opened_cache(&self) -> Option<&Arc<PageCache>> {
        Some(self.access.as_ref()?.page_cache())
    }

    /// Returns the operations.
    pub fn ops(&self) -> &dyn FileOps {
        &*self.ops
    }

    /// Returns the operations as a `T` if they are one: epoll and ioctls find their own files so.
    pub fn ops_as<T: FileOps>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.ops;
        any.downcast_ref::<T>()
    }

    /// Returns the inode.
    pub fn inode(&self) -> &Arc<dyn Inode> {
        &self.inode
    }

    /// Returns the place where it was opened.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Returns all that `fstat(2)` reports.
    pub fn metadata(&self) -> Result<Metadata> {
        self.inode.metadata()
    }

    /// Returns access mode and status flags, as `F_GETFL` shows them.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Replaces the status flags that `F_SETFL` can change; `O_ASYNC` is
    /// [`switch_signals`](Self::switch_signals).
    pub fn set_flags(&self, new: u32) -> Result<()> {
        let old = self.flags();
        let new = (old & !SETTABLE) | (new & SETTABLE);
        self.ops.set_flags(self, new)?;
        self.flags.store(new, Ordering::Relaxed);
        Ok(())
    }

    /// Switches `O_ASYNC` on, with signals that name the descriptor `fd`, or off. Does nothing if
    /// it is so already. Returns `false` if this kind of file has no signals.
    pub fn switch_signals(&self, fd: i32, on: bool) -> Result<bool> {
        if on == (self.flags() & FASYNC != 0) {
            return Ok(true);
        }
        let Some((signals, interest)) = self.ops.signals(self) else { return Ok(false) };
        if on {
            self.ops.own_signals(self);
            signals.enter(self.address(), fd, interest, self.owner())?;
            self.flags.fetch_or(FASYNC, Ordering::Relaxed);
            self.mark(Marks::SIGNALS);
        } else {
            signals.leave(self.address());
            self.flags.fetch_and(!FASYNC, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Returns how the file behaves.
    pub fn traits(&self) -> Traits {
        self.traits
    }

    /// Whether operations must not block.
    pub fn nonblocking(&self) -> bool {
        self.flags() & O_NONBLOCK != 0
    }

    /// Whether it was opened for reading.
    #[inline]
    pub fn readable(&self) -> bool {
        self.readable
    }

    /// Whether it was opened for writing.
    #[inline]
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Whether it was opened with `O_PATH` and only names a place.
    #[inline]
    pub fn path_only(&self) -> bool {
        self.path_only
    }

    /// Whether writes go to the end.
    pub fn appends(&self) -> bool {
        self.flags() & O_APPEND != 0
    }

    /// Whether reading the file sets the time of last access (neither `O_NOATIME` nor a mount with
    /// `noatime` forbids it).
    pub fn updates_access_time(&self) -> bool {
        self.flags() & O_NOATIME == 0 && self.location.mount.notes_access(false)
    }

    /// Notes that an epoll set watches this file. `ENOMEM`.
    pub fn add_watch(&self, watch: Watch) -> Result<()> {
        growth::push(&mut self.watches.lock(), watch)
    }

    /// Whether an epoll set watches this file.
    pub fn has_watches(&self) -> bool {
        !self.watches.lock().is_empty()
    }

    /// Calls `visit` with each watch until a call fails.
    pub fn for_each_watch(&self, visit: &mut dyn FnMut(&Watch) -> Result<()>) -> Result<()> {
        self.watches.lock().iter().try_for_each(visit)
    }

    /// Removes the watch for which `is_it` is true.
    pub fn take_watch(&self, is_it: impl Fn(&Watch) -> bool) -> Option<Watch> {
        let mut watches = self.watches.lock();
        let at = watches.iter().position(is_it)?;
        Some(watches.swap_remove(at))
    }

    /// Notes that this open file has `flock` or open file description locks.
    pub fn note_locks(&self) {
        self.mark(Marks::LOCKS);
    }

    /// Notes a registration that the end of this open file has to undo.
    pub fn mark(&self, what: Marks) {
        self.marks.fetch_or(what.bits(), Ordering::Relaxed);
    }

    /// Returns the owner that gets its signals.
    pub fn owner(&self) -> &Arc<SignalOwner> {
        self.owner.call_once(|| Arc::new(SignalOwner::default()))
    }

    /// Tells watchers that the file is closed, because no program uses it any more; something that
    /// is kept of an ended program may still refer to it.
    #[cold]
    pub fn close_for_watchers(&self) {
        self.tell_closed();
        self.mark(Marks::CLOSED);
    }

    fn tell_closed(&self) {
        let marks = self.marks.load(Ordering::Relaxed);
        if marks & Marks::CLOSED.bits() == 0 {
            let mask = if self.writable() { Mask::CLOSE_WRITE } else { Mask::CLOSE_NOWRITE };
            if watch::watched() {
                self.tell_watchers(mask);
            }
        }
    }

    /// Tells the watchers of the file and of its directory about an event through this open file.
    pub fn tell_watchers(&self, mask: Mask) {
        if !self.path_only {
            self.location.tell_watchers(mask);
        }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Undoes the registrations of this open file elsewhere.
    #[cold]
    fn end_marks(&self, marks: Marks) {
        for (mark, end) in AT_END.iter() {
            if marks.contains(*mark) {
                end(self);
            }
        }
        if marks.contains(Marks::SIGNALS)
            && let Some((signals, _)) = self.ops.signals(self)
        {
            signals.leave(self.address());
        }
    }

    /// `read(2)`: reads at the position and moves it.
    #[inline(always)]
    pub fn read(&self, out: &mut Output<'_>) -> Result<usize> {
        if !self.readable() {
            return Err(Errno::EBADF);
        }
        if !self.traits.contains(Traits::POSITIONED) {
            return self.ops.read(self, 0, out);
        }
        self.read_on(out)
    }

    /// Reads at the position. A function of its own, so that reading a stream need not save the
    /// registers that this code uses.
    #[inline(never)]
    fn read_on(&self, out: &mut Output<'_>) -> Result<usize> {
        let mut position = self.position.lock();
        let count = self.ops.read(self, *position, out)?;
        *position += count as u64;
        Ok(count)
    }

    /// `write(2)`: writes at the position, or at the end with `O_APPEND`, and moves the position.
    #[inline(always)]
    pub fn write(&self, input: &mut Input<'_>) -> Result<usize> {
        if !self.writable() {
            return Err(Errno::EBADF);
        }
        if !self.traits.contains(Traits::POSITIONED) {
            return self.ops.write(self, &mut 0, input);
        }
        let mut position = self.position.lock();
        let mut at = *position;
        let count = self.ops.write(self, &mut at, input)?;
        *position = at + count as u64;
        Ok(count)
    }

    /// `pread(2)`: does not move the position.
    #[inline]
    pub fn read_at(&self, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        if !self.traits.contains(Traits::ADDRESSABLE) {
            return Err(Errno::ESPIPE);
        }
        if !self.readable() {
            return Err(Errno::EBADF);
        }
        self.ops.read(self, offset, out)
    }

    /// `pwrite(2)`: does not move the position. `O_APPEND` still appends, as on Linux (`pwrite(2)`,
    /// BUGS).
    #[inline]
    pub fn write_at(&self, offset: u64, input: &mut Input<'_>) -> Result<usize> {
        if !self.traits.contains(Traits::ADDRESSABLE) {
            return Err(Errno::ESPIPE);
        }
        if !self.writable() {
            return Err(Errno::EBADF);
        }
        let mut at = offset;
        self.ops.write(self, &mut at, input)
    }

    /// `lseek(2)`.
    pub fn seek(&self, offset: i64, whence: Whence) -> Result<u64> {
        if !self.traits.intersects(Traits::REGULAR) {
            return Err(Errno::ESPIPE);
        }
        let mut position = self.position.lock();
        *position = self.ops.seek(self, *position, offset, whence)?;
        Ok(*position)
    }

    /// Locks the position and returns it, for operations that use and move it themselves
    /// (`getdents64`, `sendfile`).
    pub fn lock_position(&self) -> schedule::MutexGuard<'_, u64> {
        self.position.lock()
    }

    /// Returns the events that are there now; shows the wait queues to `registrar`.
    pub fn poll(&self, registrar: &mut Registrar<'_>) -> Events {
        if self.traits.contains(Traits::POLLABLE) {
            self.ops.poll(self, registrar)
        } else {
            Events::ALWAYS
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if watch::watched_for(Mask::CLOSE_WRITE) {
            self.tell_closed();
        }
        for watch in core::mem::take(self.watches.get_mut()) {
            self.poll(&mut Registrar::Unlisten(&watch.listener));
            watch.tell_end();
        }
        let marks = *self.marks.get_mut();
        if marks != 0 {
            self.end_marks(Marks::from_bits_retain(marks));
        }
        self.ops.release(self);
    }
}

/// Computes an `lseek` from the size of the file. For holes this is Linux' default: all of the file
/// is data, with one hole at the end.
pub fn default_seek(file: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
    let size = || file.inode().metadata().map(|metadata| metadata.size);
    let base = match whence {
        Whence::Set => 0,
        Whence::Current => position as i64,
        Whence::End => size()? as i64,
        Whence::Data | Whence::Hole => {
            let size = size()?;
            if offset < 0 || offset as u64 >= size {
                return Err(Errno::ENXIO);
            }
            return Ok(if whence == Whence::Data { offset as u64 } else { size });
        }
    };
    match base.checked_add(offset) {
        None => Err(Errno::EOVERFLOW),
        Some(new) if new < 0 => Err(Errno::EINVAL),
        Some(new) => Ok(new as u64),
    }
}
