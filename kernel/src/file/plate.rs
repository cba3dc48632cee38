//! The plate: the content of one file as pages in memory (Linux' page cache of an inode).
//!
//! A plate holds frames by page index. Where a page is missing, its [`PlateSource`] reads it (a
//! file on a disk), or there is none and the page is a hole of zeroes (tmpfs, memfd, shared
//! anonymous memory): then the plate *is* the file. Reads, writes and mappings of a file all go
//! through its plate, so they agree.
//!
//! # Sharing and truncation
//!
//! Whoever maps a plate registers a [`Mapper`]; truncation and hole punching first take the pages
//! out of the plate and then call the mappers to take them out of page tables. A fault that races
//! looks the page up again under the space's lock and finds the size changed.
//!
//! A frame's own count says whether somebody else (a mapping, a pipe) still uses it.
//!
//! # Locks
//!
//! `pages` is a spin lock, held for look-ups only; reading a page happens without it, with the
//! slot marked as loading; those who want the same page sleep on `arrivals`. Order: a file
//! system's locks, then `pages`; mappers are called with no lock of the plate held.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::SpinLock;

use super::hint::Hint;
use super::off2f::InPlace;
use super::pages::{Pages, Slot};
use crate::resource::pressure;
use crate::schedule::{Mutex, MutexGuard, WaitQueue};

/// Who has pages read from a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A fault on text, or what is read ahead for one.
    Text,
    /// Anybody else.
    Other,
}

static TEXT_READ: AtomicU64 = AtomicU64::new(0);

/// Pages that faults on text had read from a source since boot. What the count is for: showing that
/// a text in place has none.
pub fn text_read() -> u64 {
    TEXT_READ.load(Ordering::Relaxed)
}

/// Size of a page in bytes.
pub const PAGE: usize = 4096;
const SHIFT: u32 = 12;

/// Where the pages of a plate come from.
pub trait PlateSource: Send + Sync {
    /// Fills the frames with the pages `first`, `first + 1`...: zeroes beyond the file's end.
    /// Sleeps. Gives how many were filled, from the first on, at least one.
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize>;

    /// The page itself, if the source has it in memory and lets others use it.
    fn lend(&self, index: u64) -> Option<Frame> {
        let _ = index;
        None
    }

    /// Writes a page back; `EROFS` for sources that cannot.
    fn write_page(&self, index: u64, frame: &Frame) -> Result<()> {
        let _ = (index, frame);
        Err(Errno::EROFS)
    }

    /// Counts a page that a plate without content of its own took (tmpfs' size limit); refuses
    /// with `ENOSPC`.
    fn charge(&self, pages: u64) -> Result<()> {
        let _ = pages;
        Ok(())
    }

    /// Gives counted pages back.
    fn uncharge(&self, pages: u64) {
        let _ = pages;
    }

    /// Whether the pages are only here: missing ones are holes, and none may be reclaimed.
    fn memory_only(&self) -> bool {
        false
    }
}

/// Somebody who has pages of a plate in page tables: a space.
pub trait Mapper: Send + Sync {
    /// Takes pages `first..=last` of the plate out of the page tables, private copies too if
    /// `copies` (truncation; not for hole punching).
    fn unmap(&self, plate: &Plate, first: u64, last: u64, copies: bool);
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
pub struct Plate {
    /// Never used twice, so that it can name the content.
    id: u64,
    source: Option<Arc<dyn PlateSource>>,
    pages: SpinLock<Pages>,
    /// Pages that are on non-volatile memory; some of them are among `pages`, too.
    in_place: Option<InPlace>,
    size: AtomicU64,
    arrivals: WaitQueue,
    /// Counts changes of content: the identity of what was read (recycling relies on it).
    version: AtomicU64,
    mappers: SpinLock<Vec<Weak<dyn Mapper>>>,
    /// Writers when positive, refusals of writers (running programs) when negative.
    write_access: AtomicI32,
    /// Writable shared mappings, for the write seal.
    writable_mappings: AtomicU32,
    seals: AtomicU32,
    /// Content changes one at a time: writes, truncation, hole punching.
    content: Mutex<()>,
    /// Whether content can change at all; constant.
    immutable: AtomicBool,
    /// Something that is kept of ended processes refers to it.
    remembered: AtomicBool,
    /// How long its bytes are going to live.
    pub hint: Hint,
}

/// One opening for writing; see [`Plate::open_for_writing`].
pub struct WriteAccess(Arc<Plate>);

impl Drop for WriteAccess {
    fn drop(&mut self) {
        self.0.write_access.fetch_sub(1, Ordering::AcqRel);
    }
}

/// While it lives nobody can open the file for writing; see [`Plate::deny_writing`].
pub struct WriteDenial(Arc<Plate>);

impl Drop for WriteDenial {
    fn drop(&mut self) {
        self.0.write_access.fetch_add(1, Ordering::AcqRel);
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Plate {
    fn build(source: Option<Arc<dyn PlateSource>>, size: u64, immutable: bool) -> Arc<Plate> {
        Plate::build_with(source, size, immutable, None)
    }

    fn build_with(
        source: Option<Arc<dyn PlateSource>>,
        size: u64,
        immutable: bool,
        in_place: Option<InPlace>,
    ) -> Arc<Plate> {
        Arc::new(Plate {
            id: next_id(),
            source,
            pages: SpinLock::new(Pages::default()),
            in_place,
            size: AtomicU64::new(size),
            arrivals: WaitQueue::new(),
            version: AtomicU64::new(0),
            mappers: SpinLock::new(Vec::new()),
            write_access: AtomicI32::new(0),
            writable_mappings: AtomicU32::new(0),
            seals: AtomicU32::new(seals::F_SEAL_SEAL),
            content: Mutex::new(()),
            immutable: AtomicBool::new(immutable),
            remembered: AtomicBool::new(false),
            hint: Hint::new(),
        })
    }

    /// Content of its own in memory: holes read as zeroes. What tmpfs files, memfds and shared
    /// anonymous memory are.
    pub fn memory(size: u64) -> Arc<Plate> {
        Plate::build(None, size, false)
    }

    /// The same, counted against a limit by `account` (whose `memory_only` must be true).
    pub fn memory_counted(size: u64, account: Arc<dyn PlateSource>) -> Arc<Plate> {
        Plate::build(Some(account), size, false)
    }

    /// Pages of `source`, a file of `size` bytes; `immutable` if neither size nor content ever
    /// change.
    pub fn cached(size: u64, source: Arc<dyn PlateSource>, immutable: bool) -> Arc<Plate> {
        let plate = Plate::build(Some(source), size, immutable);
        super::reclaim::note(&plate);
        plate
    }

    /// Pages of `source`, a file of `size` bytes that never changes, but for those that lie on
    /// non-volatile memory.
    pub fn in_place(size: u64, source: Arc<dyn PlateSource>, place: Option<InPlace>) -> Arc<Plate> {
        let plate = Plate::build_with(Some(source), size, true, place);
        super::reclaim::note(&plate);
        plate
    }

    /// The pages that lie on non-volatile memory, if there are any.
    #[inline]
    pub fn place(&self) -> Option<&InPlace> {
        self.in_place.as_ref()
    }

    /// Takes a page that was read by the way; one that is there already stays. `ENOMEM`.
    pub fn take_page(&self, index: u64, frame: &Frame) -> Result<()> {
        self.pages.lock().insert_if_empty(index, frame.clone()).map(drop)
    }

    /// A number that no other plate ever has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Changes whenever content or size change, and when the file is opened for writing: a shared
    /// mapping changes content without telling.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that something which is kept of ended processes refers to it.
    pub fn remember(&self) {
        self.remembered.store(true, Ordering::Relaxed);
    }

    /// Gives up what is kept of ended processes and refers to this plate, because the last name of
    /// the file has gone. No lock may be held.
    pub fn forget(&self) {
        if self.remembered.load(Ordering::Relaxed) {
            crate::resource::pools::forget_plate(self.id);
        }
    }

    /// Whether content and size never change: then mappings need not be registered.
    pub fn is_immutable(&self) -> bool {
        self.immutable.load(Ordering::Relaxed)
    }

    /// The size in bytes.
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

    /// The page if it is in memory now. Never sleeps.
    #[inline]
    pub fn peek(&self, index: u64) -> Option<Frame> {
        let page = self.pages.lock().present(index).cloned();
        match &self.in_place {
            Some(place) if page.is_none() => place.frame(index),
            _ => page,
        }
    }

    /// Calls `found` for each page of `first..first + count` that is in memory, under the lock of
    /// the plate once (fault-around): `found` must be short and never sleep.
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

    /// The page at `index`, read or made if it is missing. Sleeps. Beyond the size: `EINVAL`
    /// (SIGBUS to a program that touches it); a failed read: `EIO`; no memory: `ENOMEM`.
    pub fn page(&self, index: u64) -> Result<Frame> {
        if index >= self.page_count() {
            return Err(Errno::EINVAL);
        }
        self.page_for_write(index)
    }

    /// Like [`Plate::page`], but also beyond the size: a write makes the page first and then
    /// moves the size.
    pub fn page_for_write(&self, index: u64) -> Result<Frame> {
        if let Some(frame) = self.peek(index) {
            return Ok(frame);
        }
        if self.is_memory() { self.make(index) } else { self.load(Reader::Other, index, 1) }
    }

    /// Reads the pages `first..first + count` that are missing and inside the size.
    /// Waits for them; errors show when a page is asked for.
    pub fn readahead(&self, first: u64, count: u64) {
        self.read_for(Reader::Other, first, count);
    }

    /// The same for a certain reader.
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

    /// A page of zeroes into a hole.
    fn make(&self, index: u64) -> Result<Frame> {
        let frame = pressure::zeroed_frame()?;
        if let Some(account) = &self.source {
            account.charge(1)?;
        }
        let inserted = loop {
            let inserted = self.pages.lock().insert_if_empty(index, frame.clone());
            // Its row of pages needs memory as well.
            if inserted.is_ok() || !pressure::relieve() {
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
            frames.try_reserve_exact(count as usize).map_err(|_| Errno::ENOMEM)?;
            frames.push(pressure::frame()?);
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
                            if pressure::relieve() {
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
            super::reclaim::keep_room();
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

    /// Holds off every other change of content while a write or truncation is under way. The
    /// file system's operations take it; sleeping.
    pub fn lock_content(&self) -> MutexGuard<'_, ()> {
        self.content.lock()
    }

    /// Moves the size up to `size` if it is smaller (after a write). The caller holds
    /// [`Plate::lock_content`].
    pub fn grow_to(&self, size: u64) {
        if size > self.size() {
            self.size.store(size, Ordering::Release);
        }
    }

    /// Notes that content changed.
    pub fn touch(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets the size; pages beyond go away, out of page tables too, and the rest of the last page
    /// is zeroed. The caller holds [`Plate::lock_content`].
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

    /// Zeroes what lies behind `size` in its last page. The caller holds
    /// [`Plate::lock_content`].
    pub fn zero_tail(&self, size: u64) {
        let within = (size % PAGE as u64) as usize;
        if within != 0
            && let Some(frame) = self.peek(size >> SHIFT)
        {
            frame.zero_range(within, PAGE - within);
        }
    }

    /// Turns the bytes `offset..offset + length` into a hole (of zeroes). The caller holds
    /// [`Plate::lock_content`].
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
        // From the last one down: one that leaves meanwhile gives its place to the last, which has
        // had its turn, or has come since and finds the pages gone. So nobody is passed over, and
        // no list is made: this happens when memory has run out as well.
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

    /// Registers somebody who maps pages; once for each mapping.
    pub fn add_mapper(&self, mapper: Weak<dyn Mapper>) -> Result<()> {
        let mut mappers = self.mappers.lock();
        mappers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
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

    /// The first offset at or after `offset` that is data (`data`) or hole, up to the size:
    /// `ENXIO` at or beyond it or when only a hole follows.
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

    /// Opens for writing: `ETXTBSY` while the file runs as a program.
    pub fn open_for_writing(self: &Arc<Self>) -> Result<WriteAccess> {
        self.write_access
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count >= 0).then_some(count.saturating_add(1))
            })
            .map(|_| {
                self.version.fetch_add(1, Ordering::AcqRel);
                WriteAccess(Arc::clone(self))
            })
            .map_err(|_| Errno::ETXTBSY)
    }

    /// How many have it open for writing.
    pub fn writers(&self) -> usize {
        self.write_access.load(Ordering::Acquire).max(0) as usize
    }

    /// Refuses writers (exec): `ETXTBSY` while there are some.
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

    /// Counts the copy of a writable shared mapping at fork, or its split.
    pub fn copy_writable_mapping(&self) {
        self.writable_mappings.fetch_add(1, Ordering::AcqRel);
    }

    /// The end of a writable shared mapping.
    pub fn remove_writable_mapping(&self) {
        self.writable_mappings.fetch_sub(1, Ordering::AcqRel);
    }

    /// The seals (`F_GET_SEALS`).
    pub fn seals(&self) -> u32 {
        self.seals.load(Ordering::Acquire)
    }

    /// Allows sealing (`MFD_ALLOW_SEALING`): plates begin sealed against it.
    pub fn allow_sealing(&self) {
        self.seals.store(0, Ordering::Release);
    }

    /// Adds seals: `EPERM` when sealed against it, `EBUSY` for the write seal while there are
    /// writable mappings.
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

    /// Drops pages that can be read again and that nobody else uses; gives how many.
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

impl Drop for Plate {
    fn drop(&mut self) {
        if let Some(account) = &self.source
            && account.memory_only()
        {
            account.uncharge(self.pages.get_mut().count() as u64);
        }
    }
}
