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
//! This file keeps what all others of the folder stand on: the fields, and the look-ups that never
//! sleep. `load.rs` makes or reads missing pages, `truncate.rs` takes pages out, `write_back.rs`
//! writes changed ones to the source, `access.rs` counts the users.
//!
//! # Locks
//!
//! `pages` is a spin lock, held for look-ups only. A page is read without it: the slot is marked as
//! loading, and other threads that want the same page sleep on `arrivals`. Order: a file system's
//! locks, then `pages`; mappers are called with no lock of the page cache held.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::SpinLock;

use super::hint::LifetimeHint;
use super::in_place::InPlace;
use super::pages::Pages;
use super::seals::F_SEAL_SEAL;
use super::source::PageSource;
use super::write_state::WriteState;
use crate::schedule::{Mutex, MutexGuard, WaitQueue};

/// Size of a page in bytes.
pub const PAGE: usize = 4096;
pub(super) const SHIFT: u32 = 12;

/// An address space that has pages of the file in its page tables.
pub trait Mapper: Send + Sync {
    /// Removes pages `first..=last` of the file from the page tables, and private copies too if
    /// `copies` (for truncation; not for hole punching and writing back). Returns false if memory
    /// was lacking to remove some.
    fn unmap(&self, page_cache: &PageCache, first: u64, last: u64, copies: bool) -> bool;
}

/// The content of a file in pages.
pub struct PageCache {
    /// Never reused, so that it identifies the content.
    id: u64,
    pub(super) source: Option<Arc<dyn PageSource>>,
    pub(super) pages: SpinLock<Pages>,
    /// Pages that are on non-volatile memory; some of them are among `pages`, too.
    pub(super) in_place: Option<InPlace>,
    /// What a page cache has whose changed pages are written to the source.
    pub(super) write_back: Option<Box<WriteState>>,
    pub(super) size: AtomicU64,
    pub(super) arrivals: WaitQueue,
    /// Counts changes of content. Together with `id` it identifies what was read (recycling relies
    /// on it).
    pub(super) version: AtomicU64,
    pub(super) mappers: SpinLock<Vec<Weak<dyn Mapper>>>,
    /// Writers when positive, refusals of writers (running programs) when negative.
    pub(super) write_access: AtomicI32,
    /// Open files that only read.
    pub(super) readers: AtomicU32,
    /// Writable shared mappings, for the write seal.
    pub(super) writable_mappings: AtomicU32,
    pub(super) seals: AtomicU32,
    /// Serializes changes of content: writes, truncation, hole punching.
    pub(super) content: Mutex<()>,
    /// Whether content and size never change.
    immutable: AtomicBool,
    /// Something that is kept of ended processes refers to this page cache.
    remembered: AtomicBool,
    /// How long its bytes are going to live.
    pub hint: LifetimeHint,
    /// Where programs map the file, if addresses are drawn once per boot; 0: not drawn yet.
    pub address: AtomicUsize,
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl PageCache {
    pub(super) fn build(
        source: Option<Arc<dyn PageSource>>,
        size: u64,
        immutable: bool,
    ) -> Arc<PageCache> {
        PageCache::build_with(source, size, immutable, None, None)
    }

    pub(super) fn build_with(
        source: Option<Arc<dyn PageSource>>,
        size: u64,
        immutable: bool,
        in_place: Option<InPlace>,
        write_back: Option<Box<WriteState>>,
    ) -> Arc<PageCache> {
        Arc::new(PageCache {
            id: next_id(),
            source,
            pages: SpinLock::new(Pages::default()),
            in_place,
            write_back,
            size: AtomicU64::new(size),
            arrivals: WaitQueue::new(),
            version: AtomicU64::new(0),
            mappers: SpinLock::new(Vec::new()),
            write_access: AtomicI32::new(0),
            readers: AtomicU32::new(0),
            writable_mappings: AtomicU32::new(0),
            seals: AtomicU32::new(F_SEAL_SEAL),
            content: Mutex::new(()),
            immutable: AtomicBool::new(immutable),
            remembered: AtomicBool::new(false),
            hint: LifetimeHint::new(),
            address: AtomicUsize::new(0),
        })
    }

    /// Makes a page cache without a backing file: holes read as zeroes. For tmpfs files, memfds and
    /// shared anonymous memory.
    pub fn memory(size: u64) -> Arc<PageCache> {
        PageCache::build(None, size, false)
    }

    /// Like [`PageCache::memory`], but counted against a limit by `account` (whose `memory_only`
    /// must be true).
    pub fn memory_counted(size: u64, account: Arc<dyn PageSource>) -> Arc<PageCache> {
        PageCache::build(Some(account), size, false)
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

    /// The disk that it is read from ([`PageSource::device`]).
    #[inline]
    pub fn device(&self) -> Option<usize> {
        self.source.as_ref().and_then(|source| source.device())
    }

    /// Whether the pages are copies of a content that others change as well
    /// ([`PageSource::is_copied`]).
    pub fn is_copied(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.is_copied())
    }

    /// Returns the page if it is in memory now. Never sleeps.
    #[inline]
    pub fn peek(&self, index: u64) -> Option<Frame> {
        let pages = self.pages.lock();
        pages.note_use();
        let page = pages.present(index).cloned();
        drop(pages);
        match &self.in_place {
            Some(place) if page.is_none() => place.frame(index),
            _ => page,
        }
    }

    /// Calls `found` for each page of `first..first + count` that is in memory, taking the lock
    /// only once (fault-around). `found` must be short and never sleep.
    pub fn peek_range(&self, first: u64, count: u64, mut found: impl FnMut(u64, &Frame)) {
        let pages = self.pages.lock();
        pages.note_use();
        for index in first..first.saturating_add(count) {
            if let Some(frame) = pages.present(index) {
                found(index, frame);
            } else if let Some(frame) = self.in_place.as_ref().and_then(|place| place.frame(index))
            {
                found(index, &frame);
            }
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

    /// Whether a page that can be read again was looked up since the last call.
    pub fn was_used(&self) -> bool {
        !self.is_memory() && self.pages.lock().take_use()
    }

    /// Drops up to `most` pages that can be read again and have no other user; returns how many.
    pub fn reclaim(&self, most: usize) -> usize {
        self.reclaim_if(most, |_| true)
    }

    /// The same of those for which `may` holds.
    pub fn reclaim_if(&self, most: usize, may: impl Fn(&Frame) -> bool) -> usize {
        if self.is_memory() {
            return 0;
        }
        let Some(mut pages) = self.pages.try_lock() else { return 0 };
        let dropped = pages.remove_unused(0, u64::MAX, most, may);
        drop(pages);
        dropped.len()
    }

    /// Drops the pages `first..=last` that can be read again and have no other user.
    pub fn let_go(&self, first: u64, last: u64) {
        /// So many at once, because the others wait for the lock.
        const AT_ONCE: usize = 1024;
        while !self.is_memory() {
            let dropped = self.pages.lock().remove_unused(first, last, AT_ONCE, |_| true);
            if dropped.len() < AT_ONCE {
                return;
            }
        }
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
