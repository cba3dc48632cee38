//! Missing pages: made as zeroes, or read from the source.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::memory::Use;
use hayate_machine::frames::Frame;

use super::cache::PageCache;
use super::in_place::InPlace;
use super::pages::Slot;
use super::source::PageSource;
use super::write_state::WriteState;
use crate::reclaim;
use crate::reclaim::charge;
use crate::reclaim::growth::Grow;

/// The purpose for which pages are read from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A page fault on program text, or read-ahead for one.
    Text,
    /// Any other purpose.
    Other,
}

static TEXT_READ: AtomicU64 = AtomicU64::new(0);

/// Returns the number of pages read from a source for faults on text since boot. The count shows
/// that text mapped in place needs no reads.
pub fn text_read() -> u64 {
    TEXT_READ.load(Ordering::Relaxed)
}

const FILE: Use = Use::File;
const SHARED: Use = Use::Shared;

/// A frame for content of a file, charged to an owner ([`charge`]). Call it without spin locks.
fn fresh(owner: u32) -> Result<Frame> {
    reclaim::obtain(|| Frame::allocate().and_then(|new| charge::frame(owner, FILE, new)))
}

/// A frame for new content of a file that can be written back, charged to the caller's control
/// group. Its content is undefined. Call it without spin locks. `ENOMEM`.
pub fn fresh_frame() -> Result<Frame> {
    fresh(charge::current_owner())
}

/// The result of an attempt to load a page.
enum Claim {
    /// It is there.
    Present(Frame),
    /// It and the pages after it, this many in all, are the caller's to load.
    Own(usize),
    /// Another thread loads it.
    Others,
    /// There is no memory for the mark.
    NoMemory,
}

impl PageCache {
    /// Makes the page cache of a file of `size` bytes that `source` reads; `immutable` if neither
    /// size nor content ever changes.
    pub fn cached(size: u64, source: Arc<dyn PageSource>, immutable: bool) -> Arc<PageCache> {
        let page_cache = PageCache::build(Some(source), size, immutable);
        super::reclaim::note(&page_cache);
        page_cache
    }

    /// Makes the page cache of a file of `size` bytes that `source` reads and writes.
    pub fn written_back(size: u64, source: Arc<dyn PageSource>) -> Arc<PageCache> {
        let write_back = Some(Box::<WriteState>::default());
        let page_cache = PageCache::build_with(Some(source), size, false, None, write_back);
        super::reclaim::note(&page_cache);
        super::write_back::note(&page_cache);
        page_cache
    }

    /// Makes the page cache of an immutable file of `size` bytes. The pages of `place` lie on
    /// non-volatile memory; `source` reads the others.
    pub fn in_place(
        size: u64,
        source: Arc<dyn PageSource>,
        place: Option<InPlace>,
    ) -> Arc<PageCache> {
        let page_cache = PageCache::build_with(Some(source), size, true, place, None);
        super::reclaim::note(&page_cache);
        page_cache
    }

    /// Returns the page at `index`; reads or makes it if it is missing. Sleeps. Beyond the size:
    /// `EINVAL` (SIGBUS to a program that touches it); a failed read: `EIO`; no memory: `ENOMEM`.
    pub fn page(&self, index: u64) -> Result<Frame> {
        if index >= self.page_count() {
            return Err(Errno::EINVAL);
        }
        self.page_for_write(index)
    }

    /// Like [`PageCache::page`], but also beyond the size: a write makes the page first and then
    /// grows the file.
    pub fn page_for_write(&self, index: u64) -> Result<Frame> {
        if let Some(frame) = self.peek(index) {
            return Ok(frame);
        }
        let owner = charge::current_owner();
        if self.is_memory() {
            self.make(owner, index)
        } else {
            self.load(owner, Reader::Other, index, 1)
        }
    }

    /// Reads the missing pages of `first..first + count` that are inside the size, and waits for
    /// them. Errors show only when such a page is asked for.
    pub fn readahead(&self, first: u64, count: u64) {
        self.read_for(Reader::Other, first, count);
    }

    /// Like [`PageCache::readahead`], for the given purpose.
    pub fn read_for(&self, reader: Reader, first: u64, count: u64) {
        self.read_on_behalf(charge::current_owner(), reader, first, count);
    }

    /// The same, with the pages charged to `owner` ([`charge`]).
    pub(super) fn read_on_behalf(&self, owner: u32, reader: Reader, first: u64, count: u64) {
        if self.is_memory() {
            return;
        }
        let end = self.page_count().min(first.saturating_add(count));
        let mut index = first;
        while index < end {
            if self.peek(index).is_none() && self.load(owner, reader, index, end - index).is_err() {
                return;
            }
            index += 1;
        }
    }

    /// Puts a page of zeroes into a hole.
    fn make(&self, owner: u32, index: u64) -> Result<Frame> {
        let zeroed = || Frame::allocate_zeroed().and_then(|new| charge::frame(owner, SHARED, new));
        let frame = reclaim::obtain(zeroed)?;
        if let Some(account) = &self.source {
            account.charge(1)?;
        }
        let inserted = loop {
            let inserted = self.pages.lock().insert_if_empty(index, frame.clone());
            // The index of pages needs memory as well.
            if inserted.is_ok() || !reclaim::relieve() {
                break inserted;
            }
        };
        match inserted {
            Ok(Ok(frame)) => Ok(frame),
            Ok(Err(existing)) => {
                if let Some(account) = &self.source {
                    account.uncharge(1);
                }
                Ok(existing)
            }
            Err(error) => {
                if let Some(account) = &self.source {
                    account.uncharge(1);
                }
                Err(error)
            }
        }
    }

    /// Puts a frame into a hole of a content in memory, charged to `owner`. The size is asked for
    /// under the lock under which truncation, which has set it before, takes pages out.
    ///
    /// # Errors
    /// `EEXIST` (there is a page), `EFAULT` (the content ends before it), `ENOMEM`, `ENOSPC` (the
    /// file system is full).
    pub fn put_into_hole(&self, owner: u32, index: u64, frame: Frame) -> Result<()> {
        let frame = charge::frame(owner, SHARED, frame).ok_or(Errno::ENOMEM)?;
        if let Some(account) = &self.source {
            account.charge(1)?;
        }
        let outcome = {
            let mut pages = self.pages.lock();
            if index >= self.page_count() {
                Err(Errno::EFAULT)
            } else {
                match pages.insert_if_empty(index, frame) {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err(_)) => Err(Errno::EEXIST),
                    Err(error) => Err(error),
                }
            }
        };
        match (&outcome, &self.source) {
            (Ok(()), _) => self.touch(),
            (Err(_), Some(account)) => account.uncharge(1),
            (Err(_), None) => {}
        }
        outcome
    }

    /// Marks page `index`, and up to `most - 1` missing pages after it, as being loaded.
    fn claim(&self, index: u64, most: usize) -> Claim {
        let mut pages = self.pages.lock();
        match pages.get(index) {
            Slot::Present(frame) => Claim::Present(frame),
            Slot::Loading => Claim::Others,
            Slot::Empty => {
                let mut marked = 0;
                while marked < most
                    && matches!(pages.get(index + marked as u64), Slot::Empty)
                    && pages.mark_loading(index + marked as u64).is_ok()
                {
                    marked += 1;
                }
                if marked == 0 { Claim::NoMemory } else { Claim::Own(marked) }
            }
        }
    }

    /// Reads page `index` and up to `most - 1` missing pages after it from the source.
    fn load(&self, owner: u32, reader: Reader, index: u64, most: u64) -> Result<Frame> {
        /// Pages in one request of the source.
        const BATCH: usize = 32;
        let source = self.source.as_ref().ok_or(Errno::EIO)?;
        loop {
            let mut end = self.page_count().max(index + 1);
            if let Some(place) = &self.in_place {
                end = end.min(place.next(index));
            }
            let count = most.min(end - index).min(BATCH as u64);
            let mut frames: Vec<Frame> = Vec::new();
            frames.make_room_exact(count as usize)?;
            frames.push(fresh(owner)?);
            let others =
                |_| Frame::allocate().and_then(|new| charge::spare_frame(owner, FILE, new));
            frames.extend((1..count).map_while(others));
            match self.claim(index, frames.len()) {
                Claim::Present(frame) => return Ok(frame),
                Claim::Own(marked) => frames.truncate(marked),
                Claim::NoMemory if reclaim::relieve() => continue,
                Claim::NoMemory => return Err(Errno::ENOMEM),
                Claim::Others => {
                    drop(frames);
                    self.arrivals.wait_for_device(|| {
                        (!matches!(self.pages.lock().get(index), Slot::Loading)).then_some(())
                    });
                    continue;
                }
            }
            super::reclaim::keep_room();
            let read = self.read_source(source.as_ref(), index, &frames);
            let good = read.as_ref().map_or(0, |count| (*count).min(frames.len()));
            if reader == Reader::Text {
                TEXT_READ.fetch_add(good as u64, Ordering::Relaxed);
            }
            let first = {
                let mut pages = self.pages.lock();
                for (at, frame) in frames.iter().enumerate() {
                    let frame = (at < good).then(|| frame.clone());
                    pages.finish_loading(index + at as u64, frame);
                }
                // Not always the frame that was filled: a writer may have been faster.
                pages.present(index).cloned()
            };
            self.arrivals.wake_all();
            read?;
            return match first {
                Some(frame) => Ok(frame),
                // The file was cut short meanwhile, and the page goes with its last user.
                None if good > 0 => frames.into_iter().next().ok_or(Errno::EIO),
                None => Err(Errno::EIO),
            };
        }
    }
}
