//! An open file: reads and writes go to the server.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::SpinLock;
use hayate_protocols::write_errors::Seen;

use super::client::Fid;
use super::pages::PAGE;
use crate::drivers::virtio_9p::FRAMES;
use crate::page_cache::cache::PageCache;
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule::{self, Mutex};
use crate::vfs::caller;
use crate::vfs::content::SIZE_MAX;
use crate::vfs::open_file::flags::*;
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, Traits};
use crate::vfs::transfer::{Input, Output};

/// What an open file needs of its node.
pub trait Opened: Send + Sync {
    /// Opens it with flags of `open(2)`.
    fn open_fid(&self, flags: u32) -> Result<Arc<Fid>>;

    /// Asks where it ends.
    fn end(&self) -> Result<u64>;

    /// The lock that a write to the end holds, from the question where that is.
    fn appending(&self) -> &Mutex<()>;

    /// Returns its pages, for mappings.
    fn pages(&self) -> Option<Arc<PageCache>>;

    /// Keeps a fid that is open for writing, and does not append, for the pages that a mapping is
    /// going to change.
    fn keep_writer(&self, fid: Arc<Fid>);

    /// Has the changed pages of `length` bytes from `offset` on written, for a read of the server.
    fn settle(&self, offset: u64, length: usize) -> Result<()>;

    /// Has all changed pages written.
    ///
    /// # Errors
    /// `ENOMEM`. The page cache tells others ([`PageCache::tell_errors`]).
    fn settle_all(&self) -> Result<()>;

    /// Writes bytes of frames; returns how many the server took.
    fn write(&self, fid: &Fid, offset: u64, frames: &[Frame], count: usize) -> Result<usize>;
}

/// An open file.
pub struct OpenedFile {
    node: Arc<dyn Opened>,
    /// The file, opened at the server.
    fid: SpinLock<Arc<Fid>>,
    /// The flags with which it was opened there.
    flags: SpinLock<u32>,
    /// The errors of writing its pages back that were told here.
    seen: Option<Seen>,
}

/// Returns frames for a transfer of so many bytes, or for a part of it.
fn frames(wanted: usize) -> Result<Vec<Frame>> {
    let count = wanted.div_ceil(PAGE).clamp(1, FRAMES);
    let mut frames = Vec::new();
    frames.make_room_exact(count)?;
    frames.push(reclaim::frame()?);
    frames.extend((1..count).map_while(|_| Frame::allocate()));
    Ok(frames)
}

/// Calls `step` with each frame and how many of `count` bytes it has, until a step moves less.
fn each(
    frames: &[Frame],
    count: usize,
    mut step: impl FnMut(&Frame, usize) -> Result<usize>,
) -> Result<usize> {
    let mut moved = 0;
    for frame in frames {
        let length = (count - moved).min(PAGE);
        if length == 0 {
            break;
        }
        match step(frame, length) {
            Ok(part) => {
                moved += part;
                if part < length {
                    break;
                }
            }
            Err(_) if moved != 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(moved)
}

impl OpenedFile {
    pub(super) fn new(node: Arc<dyn Opened>, fid: Arc<Fid>, flags: u32) -> OpenedFile {
        let seen = node.pages().and_then(|pages| pages.open_errors());
        OpenedFile { node, fid: SpinLock::new(fid), flags: SpinLock::new(flags), seen }
    }

    fn fid(&self) -> Arc<Fid> {
        Arc::clone(&self.fid.lock())
    }

    fn read_on(&self, mut offset: u64, out: &mut Output<'_>) -> Result<()> {
        let fid = self.fid();
        let frames = frames(out.remaining())?;
        self.node.settle(offset, out.remaining())?;
        while out.remaining() != 0 && offset < SIZE_MAX {
            let wanted = out.remaining().min(frames.len() * PAGE).min(fid.most());
            let count = fid.read(offset, &frames, wanted)?;
            let put = each(&frames, count, |frame, length| out.put_frame(frame, 0, length))?;
            if put < count {
                return Err(Errno::EFAULT);
            }
            offset += count as u64;
            if count < wanted || caller::is_ending() {
                break;
            }
            schedule::breathe();
        }
        Ok(())
    }

    fn write_on(&self, mut offset: u64, input: &mut Input<'_>) -> Result<()> {
        let fid = self.fid();
        let frames = frames(input.remaining())?;
        while input.remaining() != 0 {
            let wanted = input.remaining().min(frames.len() * PAGE).min(fid.most());
            let before = input.done();
            let taken = each(&frames, wanted, |frame, length| input.take_frame(frame, 0, length))?;
            let written = self.node.write(&fid, offset, &frames, taken);
            let count = written.as_ref().map_or(0, |count| *count);
            if count < taken {
                // The bytes that the server did not take were not written.
                input.give_back(before + count);
                return written.map(drop);
            }
            if taken < wanted {
                return Err(Errno::EFAULT);
            }
            offset += count as u64;
            if caller::is_ending() {
                break;
            }
            schedule::breathe();
        }
        Ok(())
    }
}

impl FileOps for OpenedFile {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        if out.remaining() == 0 {
            return Ok(0);
        }
        let outcome = self.read_on(offset, out);
        out.finish(outcome)
    }

    fn write(&self, file: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        if input.remaining() == 0 {
            return Ok(0);
        }
        let _appending;
        if file.appends() {
            // The server's descriptor appends too, wherever the host has brought the end by then.
            _appending = self.node.appending().lock();
            *offset = self.node.end()?;
        }
        if *offset >= SIZE_MAX {
            return Err(Errno::EFBIG);
        }
        input.limit(usize::try_from(SIZE_MAX - *offset).unwrap_or(usize::MAX));
        let outcome = self.write_on(*offset, input);
        input.finish(outcome)
    }

    fn map(&self, file: &OpenFile) -> Result<MapSource> {
        let content = self.node.pages().ok_or(Errno::ENODEV)?;
        if file.readable() && file.writable() {
            let flags = *self.flags.lock();
            // A server that appends does so wherever a write begins (pwrite(2)).
            let appends = flags & O_APPEND != 0;
            let fid = if appends { self.node.open_fid(flags & !O_APPEND)? } else { self.fid() };
            self.node.keep_writer(fid);
        }
        Ok(MapSource::PageCache(content))
    }

    fn sync(&self, _: &OpenFile, data_only: bool) -> Result<()> {
        self.node.settle_all()?;
        let synced = self.fid().sync(data_only);
        let pages = self.node.pages();
        pages.map_or(Ok(()), |pages| pages.tell_errors(self.seen.as_ref())).and(synced)
    }

    /// Programs and the host see what a mapping wrote as soon as the file is closed and unmapped,
    /// as on Linux (`v9fs_mmap_vm_close`).
    fn release(&self, file: &OpenFile) {
        if file.writable() {
            let _ = self.node.settle_all();
        }
    }

    /// Whether the server's descriptor appends is decided when it is opened, so another one is
    /// opened when that changes.
    fn set_flags(&self, _: &OpenFile, new: u32) -> Result<()> {
        let old = *self.flags.lock();
        if old & O_APPEND == new & O_APPEND {
            return Ok(());
        }
        let flags = old & !O_APPEND | new & O_APPEND;
        let fid = self.node.open_fid(flags)?;
        let old = core::mem::replace(&mut *self.fid.lock(), fid);
        *self.flags.lock() = flags;
        drop(old);
        Ok(())
    }
}
