//! The content of a file here: writes through the pages that the server does not have yet, changes
//! of the size, and the files that have such pages.
//!
//! A shared mapping changes pages, which [write-back](crate::page_cache::write_back) brings to the
//! server: within about five seconds, at `msync`, `fsync` and `sync`, and when the file is closed
//! and unmapped. Until then
//!
//! * a `read`, a `write` and a change of the size have the pages written first that they meet, and
//!   then ask the server as always;
//! * pages that the server has and that may be old are dropped, these never. If the host writes to
//!   the same page, the page of the guest wins, when it is written;
//! * the tree keeps the file ([`Node::leave_changed`]), whose last name or open file may be gone,
//!   and the file keeps a fid that is open for writing.
//!
//! # Locks
//!
//! The content lock of the page cache is held while a `write` or a change of the size asks the
//! server, and to make a page ready for changes: none becomes a changed one in between, which would
//! bring old bytes back or make the file longer again. The list of changed files is a spin lock,
//! which holds the page cache's `pages`: a page is noted as changed, or a file found without
//! changed pages, together with the file's place in the list.
//!
//! Road not taken: all reads and writes of a file that is mapped so by its pages. What the host
//! writes would not be seen as long as the mapping is there.

use alloc::sync::Arc;
use core::ops::Bound;

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_ninep::request;

use super::client::Fid;
use super::file::Opened;
use super::node::{Node, Volume};
use super::pages::PAGE;
use crate::page_cache::cache::PageCache;
use crate::schedule::{Mutex, MutexGuard};
use crate::vfs::inode::Inode;

const SHIFT: u32 = PAGE.trailing_zeros();
/// The last page that there can be.
const LAST: u64 = u64::MAX >> SHIFT;

impl Node {
    /// Returns the page cache, if there is one, with its content lock.
    fn locked_content(&self) -> Option<(&Arc<PageCache>, MutexGuard<'_, ()>)> {
        self.content.get().map(|content| (content, content.lock_content()))
    }

    /// Makes the page ready for changes by a mapping, which holds the file open.
    pub(super) fn prepare_page(&self, index: u64) -> Result<()> {
        let content = self.content.get().ok_or(Errno::EIO)?;
        let _lock = content.lock_content();
        let page = content.page(index)?;
        self.note_changed(content, index, &page)?;
        content.touch();
        Ok(())
    }

    /// Notes a page as changed, and the file among those that have changed pages.
    fn note_changed(&self, content: &PageCache, index: u64, page: &Frame) -> Result<()> {
        let this = self.this.upgrade().ok_or(Errno::EIO)?;
        let mut changed = self.volume.changed.lock();
        let is_noted = content.note_dirty(index, page);
        if is_noted {
            changed.entry(self.key()).or_insert(this);
        }
        drop(changed);
        if is_noted { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Takes the file from those that have changed pages if it has none any more.
    pub(super) fn leave_changed(&self) {
        let Some(content) = self.content.get() else { return };
        let mut changed = self.volume.changed.lock();
        let ended = if content.is_settled() { changed.remove(&self.key()) } else { None };
        drop(changed);
        drop(ended);
    }

    /// Carries out a change of attributes. A new size is also that of the pages.
    pub(super) fn change(&self, asked: request::Change) -> Result<()> {
        let Some(size) = asked.size else { return self.fid().change(asked) };
        let locked = self.locked_content();
        if let Some((content, _)) = &locked {
            // Those behind the new end, too: the server may refuse to cut the file.
            settle_range(content, 0, LAST)?;
        }
        self.fid().change(asked)?;
        self.resized(size);
        if let Some((content, _lock)) = locked {
            content.take_size(size);
            content.drop_copies(0, LAST);
        }
        Ok(())
    }
}

impl Opened for Node {
    fn open_fid(&self, flags: u32) -> Result<Arc<Fid>> {
        self.open_at_server(flags)
    }

    fn end(&self) -> Result<u64> {
        self.ask().map(|attributes| attributes.size)
    }

    fn appending(&self) -> &Mutex<()> {
        &self.appending
    }

    fn pages(&self) -> Option<Arc<PageCache>> {
        self.page_cache()
    }

    fn settle(&self, offset: u64, length: usize) -> Result<()> {
        let Some(content) = self.content.get().filter(|_| length != 0) else { return Ok(()) };
        let end = offset.saturating_add(length as u64);
        content.write_newer(offset >> SHIFT, (end - 1) >> SHIFT)
    }

    fn settle_all(&self) -> Result<()> {
        match self.content.get().map(|content| content.write_newer(0, LAST)) {
            Some(Err(Errno::ENOMEM)) => Err(Errno::ENOMEM),
            _ => Ok(()),
        }
    }

    fn keep_writer(&self, fid: Arc<Fid>) {
        let mut writer = self.writer.lock();
        let spare = if writer.is_none() { writer.replace(fid) } else { Some(fid) };
        drop(writer);
        drop(spare);
    }

    fn write(&self, fid: &Fid, offset: u64, frames: &[Frame], count: usize) -> Result<usize> {
        let (first, end) = (offset >> SHIFT, offset.saturating_add(count as u64));
        let last = end.saturating_sub(1) >> SHIFT;
        let locked = self.locked_content();
        if let Some((content, _)) = &locked {
            settle_range(content, first, last)?;
        }
        let written = fid.write(offset, frames, count);
        let size = self.grew(offset.saturating_add(*written.as_ref().unwrap_or(&0) as u64));
        if let Some((content, _lock)) = locked {
            content.take_size(size);
            // The server may have taken some even if that is not known.
            content.drop_copies(first, last);
        }
        written
    }
}

impl Volume {
    /// Has the changed pages of all files written, and makes them persistent.
    pub(super) fn sync_changed(&self) -> Result<()> {
        let mut outcome = Ok(());
        let mut at = Bound::Unbounded;
        loop {
            let next = self
                .changed
                .lock()
                .range((at, Bound::Unbounded))
                .next()
                .map(|(_, node)| node.clone());
            let Some(node) = next else { return outcome };
            at = Bound::Excluded(node.key());
            outcome = outcome.and(node.settle_all());
            let writer = node.writer.lock().clone();
            outcome = outcome.and(writer.map_or(Ok(()), |writer| writer.sync(false)));
        }
    }
}

/// Has changed pages written. The caller holds the content lock, so that no page becomes a changed
/// one until it releases that.
///
/// # Errors
/// `ENOMEM`: some were not written. The page cache tells others.
fn settle_range(content: &PageCache, first: u64, last: u64) -> Result<()> {
    let written = content.write_newer(first, last);
    if written == Err(Errno::ENOMEM) || content.is_newer(first, last) {
        return Err(Errno::ENOMEM);
    }
    Ok(())
}
