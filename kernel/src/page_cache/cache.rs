//! The page cache of one file: its content as pages in memory (the `address_space` of a Linux
//! inode).
//!
//! A [`PageCache`] is such a page cache. It holds frames by page index. If a page is missing, the
//! [`PageSource`] reads it (a file on a disk). Without a source, a missing page is a hole of
//! zeroes (tmpfs, memfd, shared anonymous memory), and the page cache *is* the file. Reads, writes
//! and mappings of a file all go through its page cache, so they agree.
//!
//! # Sharing and truncation
//!
//! An address space that maps pages registers a [`Mapper`]. Truncation and hole punching first take
//! the pages out of the page cache and then call the mappers to take them out of page tables. A
//! page fault that races with them looks the page up again under the space's lock and finds the
//! size changed.
//!
//! The reference count of a frame says whether it has other users (a mapping, a pipe).
//!
//! # Locks
//!
//! `pages` is a spin lock, held for look-ups only. A page is read without it: the slot is marked as
//! loading, and other threads that want the same page sleep on `arrivals`. Order: a file system's
//! locks, then `pages`; mappers are called with no lock of the page cache held.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::SpinLock;

use super::pages::{Pages, Slot};
use crate::in_place::view::InPlace;
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule::{Mutex, MutexGuard, WaitQueue};
use crate::vfs::hint::Hint;

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

/// Size of a page in bytes.
pub const PAGE: usize = 4096;
const SHIFT: u32 = 12;

/// The source of a page cache.
pub trait PageSource: Send + Sync {
    /// Fills the frames with the pages `first`, `first + 1`...; bytes beyond the file's end are
    /// zero. Sleeps. Returns how many frames were filled, counted from the first; at least one.
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize>;

    /// Returns the source's own frame of the page, if it has the page in memory and allows sharing.
    fn lend(&self, index: u64) -> Option<Frame> {
        let _ = index;
        None
    }

    /// Writes a page back; `EROFS` for sources that cannot.
    fn write_page(&self, index: u64, frame: &Frame) -> Result<()> {
        let _ = (index, frame);
        Err(Errno::EROFS)
    }

    /// Counts pages that a page cache without a backing file took (tmpfs' size limit); `ENOSPC`
    /// beyond the limit.
    fn charge(&self, pages: u64) -> Result<()> {
        let _ = pages;
        Ok(())
    }

    /// Takes back a charge.
    fn uncharge(&self, pages: u64) {
        let _ = pages;
    }

    /// Whether the pages exist only in memory: missing pages are holes, and no page may be
    /// reclaimed.
    fn memory_only(&self) -> bool {
        false
    }
}

/// An address space that has pages of the file in its page tables.
pub trait Mapper: Send + Sync {
    /// Removes pages `first..=last` of the file from the page tables, and private copies too if
    /// `copies` (for truncation; not for hole punching).
    fn unmap(&self, page_cache: &PageCache, first: u64, last: u64, copies: bool);
}

/// Seals of `F_ADD_SEALS` (`memfd_create(2)`).
pub mod seals {
    #![allow(missing_docs, reason = "the names are those of fcntl(2)")]
    pub const F_SEAL_SEAL: u32 = 1;
    pub const F_SEAL_SHRINK: u32 = 2;
    pub const F_SEAL_GROW: u32 = 4;
    pub const F_SEAL_WRITE: u32 = 8;
    pub const F_SEAL_FUTURE_WRITE: u32 = 16;
}

/// The content of a file in pages.
pub struct PageCache {
    /// Never reused, so that it identifies the content.
    id: u64,
    source: Option<Arc<dyn PageSource>>,
    pages: SpinLock<Pages>,
    /// Pages that are on non-volatile memory; some of them are among `pages`, too.
    in_place: Option<InPlace>,
    size: AtomicU64,
    arrivals: WaitQueue,
    /// Counts changes of content. Together with `id` it identifies what was read (recycling relies
    /// on it).
    version: AtomicU64,
    mappers: SpinLock<Vec<Weak<dyn Mapper>>>,
    /// Writers when positive, refusals of writers (running programs) when negative.
    write_access: AtomicI32,
    /// Open files that only read.
    readers: AtomicU32,
    /// Writable shared mappings, for the write seal.
    writable_mappings: AtomicU32,
    seals: AtomicU32,
    /// Serializes changes of content: writes, truncation, hole punching.
    content: Mutex<()>,
    /// Whether content and size never change.
    immutable: AtomicBool,
    /// Something that is kept of ended processes refers to this page cache.
    remembered: AtomicBool,
    /// How long its bytes are going to live.
    pub hint: Hint,
}

/// One open file, counted; see [`PageCache::open_for_writing`] and [`PageCache::open_for_reading`].
pub struct OpenAccess {
    page_cache: Arc<PageCache>,
    writes: bool,
}

impl Drop for OpenAccess {
    fn drop(&mut self) {
        if self.writes {
            self.page_cache.write_access.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.page_cache.readers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// While it exists, the file cannot be opened for writing; see [`PageCache::deny_writing`].
pub struct WriteDenial(Arc<PageCache>);

impl Drop for WriteDenial {
    fn drop(&mut self) {
        self.0.write_access.fetch_add(1, Ordering::AcqRel);
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl PageCache {
    fn build(source: Option<Arc<dyn PageSource>>, size: u64, immutable: bool) -> Arc<PageCache> {
        PageCache::build_with(source, size, immutable, None)
    }

    fn build_with(
        source: Option<Arc<dyn PageSource>>,
        size: u64,
        immutable: bool,
        in_place: Option<InPlace>,
    ) -> Arc<PageCache> {
        Arc::new(PageCache {
            id: next_id(),
            source,
            pages: SpinLock::new(Pages::default()),
            in_place,
            size: AtomicU64::new(size),
            arrivals: WaitQueue::new(),
            version: AtomicU64::new(0),
            mappers: SpinLock::new(Vec::new()),
            write_access: AtomicI32::new(0),
            readers: AtomicU32::new(0),
            writable_mappings: AtomicU32::new(0),
            seals: AtomicU32::new(seals::F_SEAL_SEAL),
            content: Mutex::new(()),
            immutable: AtomicBool::new(immutable),
            remembered: AtomicBool::new(false),
            hint: Hint::new(),
        })
    }

    /// Makes a page cache without a backing file: holes read as zeroes. For tmpfs files, memfds and
    /// shared anonymous memory.
    pub fn memory(size: u64) -> Arc<PageCache> {
        PageCache::build(None, size, false)
    }

    /// Like [`PageCache::memory`], but counted against a limit by `account` (whose `memory_only` must
    /// be true).
    pub fn memory_counted(size: u64, account: Arc<dyn PageSource>) -> Arc<PageCache> {
        PageCache::build(Some(account), size, false)
    }

    /// Makes the page cache of a file of `size` bytes that `source` reads; `immutable` if neither
    /// size nor content ever changes.
    pub fn cached(size: u64, source: Arc<dyn PageSource>, immutable: bool) -> Arc<PageCache> {
        let page_cache = PageCache::build(Some(source), size, immutable);
        crate::vfs::reclaim::note(&page_cache);
        page_cache
    }

    /// Makes the page cache of an immutable file of `size` bytes. The pages of `place` lie on
    /// non-volatile memory; `source` reads the others.
    pub fn in_place(
        size: u64,
        source: Arc<dyn PageSource>,
        place: Option<InPlace>,
    ) -> Arc<PageCache> {
        let page_cache = PageCache::build_with(Some(source), size, true, place);
        crate::vfs::reclaim::note(&page_cache);
        page_cache
    }

    /// Returns the pages that lie on non-volatile memory, if there are any.
    #[inline]
    pub fn place(&self) -> Option<&InPlace> {
        self.in_place.as_ref()
    }

    /// Adds a page that was read along with others; a page that is already there stays. `ENOMEM`.
    pub fn take_page(&self, index: u64, frame: &Frame) -> Result<()> {
        self.pages.lock().insert_if_empty(index, frame.clone()).map(drop)
    }

    /// Returns a number that no other page cache ever has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the version, which changes whenever content or size changes. It also changes when
    /// the file is opened for writing, because writes through a shared mapping are not seen.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that something that is kept of ended processes refers to this page cache.
    pub fn remember(&self) {
        self.remembered.store(true, Ordering::Relaxed);
    }

    /// Discards what is kept of ended processes and refers to this page cache, because the last
    /// name of the file is gone. No lock may be held.
    pub fn forget(&self) {
        if self.remembered.load(Ordering::Relaxed) {
            crate::recycle::pools::forget_page_cache(self.id);
        }
    }

    /// Whether content and size never change; then mappings need not be registered.
    pub fn is_immutable(&self) -> bool {
        self.immutable.load(Ordering::Relaxed)
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// The number of pages up to the size.
    pub fn page_count(&self) -> u64 {
        self.size().div_ceil(PAGE as u64)
    }

    /// The number of pages in memory.
    pub fn resident(&self) -> u64 {
        self.pages.lock().count() as u64
    }

    /// Whether a missing page is a hole of zeroes.
    pub fn is_memory(&self) -> bool {
        self.source.as_ref().is_none_or(|source| source.memory_only())
    }

    /// Returns the page if it is in memory now. Never sleeps.
    #[inline]
    pub fn peek(&self, index: u64) -> Option<Frame> {
        let page = self.pages.lock().present(index).cloned();
        match &self.in_place {
            Some(place) if page.is_none() => place.frame(index),
            _ => page,
        }
    }

    /// Calls `found` for each page of `first..first + count` that is in memory, taking the lock
    /// only once (fault-around). `found` must be short and never sleep.
    pub fn peek_range(&self, first: u64, count: u64, mut found: impl FnMut(u64, &Frame)) {
        let pages = self.pages.lock();
        for index in first..first.saturating_add(count) {
            if let Some(frame) = pages.present(index) {
                found(index, frame);
            } else if let Some(frame) = self.in_place.as_ref().and_then(|place| place.frame(index))
            {
                found(index, &frame);
            }
        }
    }

    /// Returns the page at `index`; reads or makes it if it is missing. Sleeps. Beyond the size:
    /// `EINVAL` (SIGBUS to a program that touches it); a failed read: `EIO`; no memory: `ENOMEM`.
    pub fn page(&self, index: u64) -> Result<Frame> {
        if index >= self.page_count() {
            return Err(Errno::EINVAL);
        }
        self.page_for_write(index)
    }

    /// Like [`PageCache::page`], but also beyond the size: a write makes the page first and then grows
    /// the file.
    pub fn page_for_write(&self, index: u64) -> Result<Frame> {
        if let Some(frame) = self.peek(index) {
            return Ok(frame);
        }
        if self.is_memory() { self.make(index) } else { self.load(Reader::Other, index, 1) }
    }

    /// Reads the missing pages of `first..first + count` that are inside the size, and waits for
    /// them. Errors show only when such a page is asked for.
    pub fn readahead(&self, first: u64, count: u64) {
        self.read_for(Reader::Other, first, count);
    }

    /// Like [`PageCache::readahead`], for the given purpose.
    pub fn read_for(&self, reader: Reader, first: u64, count: u64) {
        if self.is_memory() {
            return;
        }
        let end = self.page_count().min(first.saturating_add(count));
        let mut index = first;
        while index < end {
            if self.peek(index).is_none() && self.load(reader, index, end - index).is_err() {
                return;
            }
            index += 1;
        }
    }

    /// Puts a page of zeroes into a hole.
    fn make(&self, index: u64) -> Result<Frame> {
        let frame = reclaim::zeroed_frame()?;
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

    /// Reads page `index` and up to `most - 1` missing pages after it from the source.
    fn load(&self, reader: Reader, index: u64, most: u64) -> Result<Frame> {
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
            frames.push(reclaim::frame()?);
            frames.extend((1..count).map_while(|_| Frame::allocate()));
            {
                let mut pages = self.pages.lock();
                match pages.get(index) {
                    Slot::Present(frame) => return Ok(frame),
                    Slot::Loading => frames.clear(),
                    Slot::Empty => {
                        let mut marked = 0;
                        while marked < frames.len()
                            && matches!(pages.get(index + marked as u64), Slot::Empty)
                            && pages.mark_loading(index + marked as u64).is_ok()
                        {
                            marked += 1;
                        }
                        if marked == 0 {
                            drop(pages);
                            if reclaim::relieve() {
                                continue;
                            }
                            return Err(Errno::ENOMEM);
                        }
                        frames.truncate(marked);
                    }
                }
            }
            if frames.is_empty() {
                self.arrivals.wait_for_device(|| {
                    (!matches!(self.pages.lock().get(index), Slot::Loading)).then_some(())
                });
                continue;
            }
            crate::vfs::reclaim::keep_room();
            let read = source.read_pages(index, &frames);
            let good = read.as_ref().map_or(0, |count| (*count).min(frames.len()));
            let first = frames.first().cloned();
            if reader == Reader::Text {
                TEXT_READ.fetch_add(good as u64, Ordering::Relaxed);
            }
            {
                let mut pages = self.pages.lock();
                for (at, frame) in frames.into_iter().enumerate() {
                    pages.finish_loading(index + at as u64, (at < good).then_some(frame));
                }
            }
            self.arrivals.wake_all();
            read?;
            return match first {
                Some(frame) if good > 0 => Ok(frame),
                _ => Err(Errno::EIO),
            };
        }
    }

    /// Locks the content against every other change during a write or truncation. Taken by the file
    /// system's operations; sleeps.
    pub fn lock_content(&self) -> MutexGuard<'_, ()> {
        self.content.lock()
    }

    /// Grows the size to `size` if it is smaller (after a write). The caller holds
    /// [`PageCache::lock_content`].
    pub fn grow_to(&self, size: u64) {
        if size > self.size() {
            self.size.store(size, Ordering::Release);
        }
    }

    /// Notes that the content changed.
    pub fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets the size. Pages beyond it are removed, from page tables too, and the rest of the last
    /// page is zeroed. The caller holds [`PageCache::lock_content`].
    pub fn set_size(&self, size: u64) {
        let old = self.size.swap(size, Ordering::AcqRel);
        self.touch();
        if size >= old {
            return;
        }
        let kept = size.div_ceil(PAGE as u64);
        self.drop_pages(kept, u64::MAX >> SHIFT);
        self.unmap(kept, u64::MAX >> SHIFT, true);
        // A fault may have put a page back between the two steps.
        self.drop_pages(kept, u64::MAX >> SHIFT);
        self.zero_tail(size);
    }

    /// Zeroes the last page from `size` on. The caller holds [`PageCache::lock_content`].
    pub fn zero_tail(&self, size: u64) {
        let within = (size % PAGE as u64) as usize;
        if within != 0
            && let Some(frame) = self.peek(size >> SHIFT)
        {
            frame.zero_range(within, PAGE - within);
        }
    }

    /// Turns the bytes `offset..offset + length` into zeroes; whole pages become holes. The caller
    /// holds [`PageCache::lock_content`].
    pub fn punch(&self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let first_whole = offset.div_ceil(PAGE as u64);
        let end_whole = end >> SHIFT;
        let zero = |from: u64, to: u64| {
            if from < to
                && let Some(frame) = self.peek(from >> SHIFT)
            {
                frame.zero_range((from % PAGE as u64) as usize, (to - from) as usize);
            }
        };
        if first_whole > end_whole {
            zero(offset, end);
        } else {
            zero(offset, first_whole << SHIFT);
            zero(end_whole << SHIFT, end);
        }
        if first_whole < end_whole {
            self.drop_pages(first_whole, end_whole - 1);
            self.unmap(first_whole, end_whole - 1, false);
            self.drop_pages(first_whole, end_whole - 1);
        }
        self.touch();
    }

    fn drop_pages(&self, first: u64, last: u64) {
        loop {
            let (removed, all) = self.pages.lock().remove_range(first, last);
            if let Some(account) = &self.source {
                account.uncharge(removed.len() as u64);
            }
            if all {
                return;
            }
        }
    }

    fn unmap(&self, first: u64, last: u64, copies: bool) {
        // Visits the mappers from the last to the first. A mapper that is removed meanwhile is
        // replaced by the last one (`swap_remove`), which was either visited already or was added
        // after the pages were removed. So no mapper is missed, and the list need not be copied:
        // this code also runs when memory is exhausted.
        let mut left = self.mappers.lock().len();
        while left > 0 {
            let mapper = {
                let mappers = self.mappers.lock();
                left = left.min(mappers.len());
                left = left.saturating_sub(1);
                mappers.get(left).and_then(Weak::upgrade)
            };
            if let Some(mapper) = mapper {
                mapper.unmap(self, first, last, copies);
            }
        }
    }

    /// Registers an address space that maps pages; once for each mapping.
    pub fn add_mapper(&self, mapper: Weak<dyn Mapper>) -> Result<()> {
        let mut mappers = self.mappers.lock();
        mappers.make_room(1)?;
        mappers.push(mapper);
        Ok(())
    }

    /// Ends one registration of `mapper`.
    pub fn remove_mapper(&self, mapper: &Weak<dyn Mapper>) {
        let mut mappers = self.mappers.lock();
        if let Some(at) = mappers.iter().position(|other| other.ptr_eq(mapper)) {
            mappers.swap_remove(at);
        }
    }

    /// Returns the first offset at or after `offset` that is data (`data`) or hole, up to the size.
    /// `ENXIO` at or beyond the size, or when data is sought and only a hole follows.
    pub fn seek_content(&self, offset: u64, data: bool) -> Result<u64> {
        let size = self.size();
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        if !self.is_memory() {
            return Ok(if data { offset } else { size });
        }
        let pages = self.pages.lock();
        let (first, end) = (offset >> SHIFT, self.page_count());
        let found = if data {
            pages.next_present(first).filter(|&index| index < end)
        } else {
            (first..end).find(|&index| pages.present(index).is_none())
        };
        match found {
            Some(index) => Ok((index << SHIFT).max(offset)),
            None if data => Err(Errno::ENXIO),
            None => Ok(size),
        }
    }

    /// Opens the file for writing; `ETXTBSY` while the file runs as a program.
    pub fn open_for_writing(self: Arc<Self>) -> Result<OpenAccess> {
        self.write_access
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count >= 0).then_some(count.saturating_add(1))
            })
            .map(|_| {
                self.version.fetch_add(1, Ordering::AcqRel);
            })
            .map_err(|_| Errno::ETXTBSY)?;
        Ok(OpenAccess { page_cache: self, writes: true })
    }

    /// Opens the file for reading only.
    pub fn open_for_reading(self: Arc<Self>) -> OpenAccess {
        // Ordered before the opener looks for leases: see `lease.rs`.
        self.readers.fetch_add(1, Ordering::SeqCst);
        OpenAccess { page_cache: self, writes: false }
    }

    /// The number of open files that only read.
    pub fn readers(&self) -> usize {
        self.readers.load(Ordering::SeqCst) as usize
    }

    /// The number of open files that may write.
    pub fn writers(&self) -> usize {
        self.write_access.load(Ordering::Acquire).max(0) as usize
    }

    /// Denies opening the file for writing (exec); `ETXTBSY` while it is open for writing.
    pub fn deny_writing(self: &Arc<Self>) -> Result<WriteDenial> {
        self.write_access
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count <= 0).then_some(count.saturating_sub(1))
            })
            .map(|_| WriteDenial(Arc::clone(self)))
            .map_err(|_| Errno::ETXTBSY)
    }

    /// Counts a writable shared mapping; `EPERM` under a write seal.
    pub fn add_writable_mapping(&self) -> Result<()> {
        if self.seals() & (seals::F_SEAL_WRITE | seals::F_SEAL_FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        self.writable_mappings.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Counts one more writable shared mapping, made by fork or by a split.
    pub fn copy_writable_mapping(&self) {
        self.writable_mappings.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one writable shared mapping less.
    pub fn remove_writable_mapping(&self) {
        self.writable_mappings.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the seals (`F_GET_SEALS`).
    pub fn seals(&self) -> u32 {
        self.seals.load(Ordering::Acquire)
    }

    /// Allows sealing (`MFD_ALLOW_SEALING`): a new page cache carries `F_SEAL_SEAL`.
    pub fn allow_sealing(&self) {
        self.seals.store(0, Ordering::Release);
    }

    /// Adds seals: `EPERM` under `F_SEAL_SEAL`, `EBUSY` for the write seal while there are writable
    /// mappings.
    pub fn add_seals(&self, new: u32) -> Result<()> {
        let _content = self.content.lock();
        if self.seals() & seals::F_SEAL_SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if new & seals::F_SEAL_WRITE != 0 && self.writable_mappings.load(Ordering::Acquire) != 0 {
            return Err(Errno::EBUSY);
        }
        self.seals.fetch_or(new, Ordering::AcqRel);
        Ok(())
    }

    /// Drops up to `most` pages that can be read again and have no other user; returns how many.
    pub fn reclaim(&self, most: usize) -> usize {
        if self.is_memory() {
            return 0;
        }
        let Some(mut pages) = self.pages.try_lock() else { return 0 };
        let dropped = pages.remove_unused(most);
        drop(pages);
        dropped.len()
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        if let Some(account) = &self.source
            && account.memory_only()
        {
            account.uncharge(self.pages.get_mut().count() as u64);
        }
    }
}
