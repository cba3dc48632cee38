//! Changed pages are written to their source: after [`AGE_NS`], earlier when there are many or
//! memory is short, and whenever somebody asks and waits for it (`fsync(2)`).
//!
//! A page is *dirty* from a change on until a write of it begins, and *being written* until the
//! source has it; one that is changed meanwhile is dirty again. Neither is reclaimed. One execution
//! of the kernel, the writer ([`start`]), writes all page caches in turn.
//!
//! * **Bounds.** More than a tenth of memory dirty, and the writer begins at once. More than a
//!   fifth, and a thread that changes pages writes some itself first ([`PageCache::balance`]).
//!   These are Linux' `vm.dirty_background_ratio` and `vm.dirty_ratio`.
//! * **Memory.** When nothing else can be reclaimed, the writer is woken, and the thread that wants
//!   memory waits until pages are clean ([`wait_for_some`]). The way of a page to its source takes
//!   no sleeping lock and asks for no reclaim: lists that cannot grow stay short, and small objects
//!   come from the kernel's reserve ([`crate::reclaim::growth`]).
//! * **Mappings.** A shared mapping makes a page dirty at the first fault that writes to it. Before
//!   a page is written it is taken out of the page tables, so that the next change faults again. So
//!   a page that a program can write is dirty.
//! * **Errors.** A write that fails is noted with the file and told once to each open file
//!   ([`hayate_protocols::write_errors`]). The page is clean afterwards, as on Linux: it would
//!   otherwise hold its memory for ever. A write that lacked memory is not counted as tried.
//!
//! Lock order: a page cache's `pages` is held for marks only, inside the lock of an address space
//! (a fault makes pages dirty). Mappers are called, and the source writes, with no spin lock held.
//! The list of page caches is a leaf.
//!
//! Road not taken: a time for each page (Linux has one for each inode). All that is dirty when the
//! writer begins goes; what is changed all the time is written once in five seconds.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::{self, Frame};
use hayate_machine::sync::SpinLock;
use hayate_protocols::write_errors::Seen;

use super::cache::{PAGE, PageCache, SHIFT};
use super::pages::{Batch, dirty};
use crate::drivers::io;
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{self, WaitQueue};

/// How long a changed page may wait.
const AGE_NS: u64 = 5_000_000_000;
/// How long the writer waits after it lacked memory.
const PAUSE_NS: u64 = 10_000_000;
/// Pages that a thread writes when there are too many dirty ones.
const SHARE: usize = 1024;
/// The last page that there can be.
const LAST: u64 = u64::MAX >> SHIFT;

static PAGE_CACHES: SpinLock<Vec<Weak<PageCache>>> = SpinLock::new(Vec::new());
/// Pages that are being written now.
static WRITING: AtomicUsize = AtomicUsize::new(0);
/// Counts pages that were written, or whose writing failed, since boot.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
/// Counts what the writer did, successful or not.
static ROUNDS: AtomicU64 = AtomicU64::new(0);
/// Dirty pages from which on the writer begins at once, and a thread writes itself.
static SOON: AtomicUsize = AtomicUsize::new(usize::MAX);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Somebody waits for memory.
static PRESSED: AtomicBool = AtomicBool::new(false);
/// The writer has nothing to do. Written before it looks at the number of dirty pages, and read
/// after that number grew, both with a full barrier between: one of the two sees the other's step.
static IS_IDLE: AtomicBool = AtomicBool::new(false);
/// Woken for the writer.
static WORK: WaitQueue = WaitQueue::new();
/// Woken when the writer or another thread has written pages.
static PROGRESS: WaitQueue = WaitQueue::new();

/// Registers a page cache; one that there is no memory for is written only when it is asked for.
pub(super) fn note(page_cache: &Arc<PageCache>) {
    let mut page_caches = PAGE_CACHES.lock();
    if page_caches.len() == page_caches.capacity() {
        page_caches.retain(|other| other.strong_count() != 0);
    }
    if page_caches.make_room(1).is_ok() {
        page_caches.push(Arc::downgrade(page_cache));
    }
}

/// Starts the writer, when there is something that can be written to; further calls do nothing.
///
/// # Errors
/// `ENOMEM`.
pub fn start() -> Result<()> {
    static IS_STARTED: AtomicBool = AtomicBool::new(false);
    if IS_STARTED.swap(true, Ordering::AcqRel) {
        return Ok(());
    }
    start_writer().inspect_err(|_| IS_STARTED.store(false, Ordering::Release))
}

fn start_writer() -> Result<()> {
    let total = frames::counts().total;
    SOON.store(total / 10, Ordering::Relaxed);
    MOST.store(total / 5, Ordering::Relaxed);
    schedule::start_kernel("write-back", || {
        loop {
            IS_IDLE.store(true, Ordering::SeqCst);
            WORK.wait(|| (dirty() != 0).then_some(()));
            IS_IDLE.store(false, Ordering::SeqCst);
            let deadline = monotonic_ns().saturating_add(AGE_NS);
            let _ = WORK.wait_interruptible(Some(deadline), || is_urgent().then_some(()));
            PRESSED.store(false, Ordering::Relaxed);
            let outcome = write_all();
            ROUNDS.fetch_add(1, Ordering::Release);
            PROGRESS.wake_all();
            if outcome.is_err() {
                let _ = schedule::sleep_until(monotonic_ns().saturating_add(PAUSE_NS), false);
            }
        }
    })?;
    Ok(())
}

fn is_urgent() -> bool {
    PRESSED.load(Ordering::Relaxed) || dirty() > SOON.load(Ordering::Relaxed)
}

/// Writes the dirty pages of all page caches. `ENOMEM` if some were not tried.
fn write_all() -> Result<()> {
    let mut outcome = Ok(());
    // One after the other: a file may end while it is looked at.
    for at in 0.. {
        let Some(page_cache) = PAGE_CACHES.lock().get(at).map(Weak::upgrade) else { break };
        if let Some(page_cache) = page_cache
            && page_cache.write_some(0, LAST, usize::MAX) == Err(Errno::ENOMEM)
        {
            outcome = Err(Errno::ENOMEM);
        }
    }
    outcome
}

/// Returns the number of pages that are being written (`Writeback` of `/proc/meminfo`).
pub fn writing_pages() -> u64 {
    WRITING.load(Ordering::Relaxed) as u64
}

/// Returns the number of dirty pages (`Dirty` of `/proc/meminfo`).
pub fn dirty_pages() -> u64 {
    dirty() as u64
}

/// Lets the writer write, and waits until some pages are clean. Returns false if there are none to
/// be written, or none could be. Call it without spin locks.
pub fn wait_for_some() -> bool {
    let written = WRITTEN.load(Ordering::Acquire);
    let rounds = ROUNDS.load(Ordering::Acquire);
    if dirty() == 0 && WRITING.load(Ordering::Acquire) == 0 {
        return false;
    }
    PRESSED.store(true, Ordering::Relaxed);
    WORK.wake_all();
    PROGRESS.wait_for_device(|| {
        let changed = WRITTEN.load(Ordering::Acquire) != written;
        (changed || ROUNDS.load(Ordering::Acquire) != rounds).then_some(())
    });
    WRITTEN.load(Ordering::Acquire) != written
}

impl PageCache {
    /// Whether changed pages are written to the source: every change must be told by
    /// [`note_dirty`](Self::note_dirty).
    #[inline]
    pub fn is_written_back(&self) -> bool {
        self.write_back.is_some()
    }

    /// Whether a change by a mapping needs [`prepare`](Self::prepare) first.
    #[inline]
    pub fn prepares(&self) -> bool {
        self.is_written_back() && self.source.as_ref().is_some_and(|source| source.prepares())
    }

    /// Prepares a page for a change by a mapping
    /// ([`PageSource::prepare`](super::source::PageSource)). Sleeps.
    pub fn prepare(&self, index: u64) -> Result<()> {
        self.source.as_ref().map_or(Ok(()), |source| source.prepare(index))
    }

    /// Whether `frame` is the page at `index` and counts as changed. Spin locks may be held.
    pub fn is_noted(&self, index: u64, frame: &Frame) -> bool {
        self.pages.lock().is_noted(index, frame)
    }

    /// Waits until no page of `first..=last` is being written. Pages that were taken out may still
    /// be on their way, to a place that the file is about to give up.
    pub fn wait_for_writes(&self, first: u64, last: u64) {
        let Some(write_back) = &self.write_back else { return };
        write_back.done.wait_for_device(|| {
            let is_writing = self.pages.lock().is_writing(first, last);
            (!is_writing).then_some(())
        });
    }

    /// Puts bytes that the source has got by another way into the page at `index`, if it is there.
    /// A read of it that is under way is of no use any more.
    pub fn overwrite(&self, index: u64, offset: usize, bytes: &[u8]) {
        let mut pages = self.pages.lock();
        match pages.present(index) {
            Some(frame) => {
                frame.write(offset, bytes);
            }
            None => pages.cancel_loading(index),
        }
    }

    /// Notes that a page has changed, or is about to be. Returns false if `frame` is not the page
    /// at `index` any more. Spin locks may be held.
    pub fn note_dirty(&self, index: u64, frame: &Frame) -> bool {
        let marked = self.pages.lock().mark_dirty(index, frame);
        if marked == Some(true) {
            if io::groups::is_limited()
                && let Some(device) = self.device()
            {
                io::made_dirty(device, PAGE as u64);
            }
            // Counting the page was a locked instruction, which is a full barrier.
            if IS_IDLE.load(Ordering::SeqCst) || dirty() > SOON.load(Ordering::Relaxed) {
                WORK.wake_all();
            }
        }
        marked.is_some()
    }

    /// Puts a page of new content where there may be one already, which then gets this content;
    /// notes the change. The caller holds [`PageCache::lock_content`]. `ENOMEM`.
    pub fn put_new(&self, index: u64, frame: Frame) -> Result<()> {
        let inserted = loop {
            let inserted = self.pages.lock().insert_new(index, frame.clone());
            if inserted.is_ok() || !reclaim::relieve() {
                break inserted?;
            }
        };
        let there = inserted.unwrap_or_else(|there| {
            there.copy_from(&frame);
            there
        });
        if self.note_dirty(index, &there) { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Whether so many pages are dirty that the thread that changes them has to write.
    #[inline]
    pub fn is_over_bound(&self) -> bool {
        dirty() > MOST.load(Ordering::Relaxed)
    }

    /// Writes some pages if too many are dirty: for a thread that changes pages. Sleeps.
    #[inline]
    pub fn balance(&self) {
        if self.is_over_bound() {
            let _ = self.write_some(0, LAST, SHARE);
        }
    }

    /// Writes the changed pages of `first..=last`, also those that others began to write, and waits
    /// until the source has them. Returns the first error of its own writes, which
    /// [`tell_errors`](Self::tell_errors) tells as well.
    ///
    /// # Errors
    /// `ENOMEM`: some were not tried, and there is nothing to be reclaimed.
    pub fn write_range(&self, first: u64, last: u64) -> Result<()> {
        let Some(write_back) = &self.write_back else { return Ok(()) };
        let mut outcome = Ok(());
        // The first round leaves out pages that others write an earlier state of.
        for _ in 0..2 {
            loop {
                match self.write_some(first, last, usize::MAX) {
                    Err(Errno::ENOMEM) if reclaim::relieve() => {}
                    Err(Errno::ENOMEM) => return Err(Errno::ENOMEM),
                    round => break outcome = outcome.and(round),
                }
            }
            write_back.done.wait_for_device(|| {
                let is_writing = self.pages.lock().is_writing(first, last);
                (!is_writing).then_some(())
            });
        }
        outcome
    }

    /// Like [`write_range`](Self::write_range), if there is anything to be written.
    pub fn write_newer(&self, first: u64, last: u64) -> Result<()> {
        if self.is_newer(first, last) { self.write_range(first, last) } else { Ok(()) }
    }

    /// Like [`write_range`](Self::write_range), for all pages.
    pub fn write_everything(&self) -> Result<()> {
        self.write_range(0, LAST)
    }

    /// Whether a page of `first..=last` may be newer than the source has it.
    pub fn is_newer(&self, first: u64, last: u64) -> bool {
        self.pages.lock().is_newer(first, last)
    }

    /// Whether there are dirty pages.
    pub fn is_dirty(&self) -> bool {
        self.pages.lock().is_dirty()
    }

    /// Whether the source has all pages, and none is on its way there.
    pub fn is_settled(&self) -> bool {
        let pages = self.pages.lock();
        !pages.is_dirty() && !pages.is_writing(0, LAST)
    }

    /// Returns what a file that is opened now counts as told of errors.
    pub fn open_errors(&self) -> Option<Seen> {
        self.write_back.as_ref().map(|write_back| write_back.errors.open())
    }

    /// Returns an error of writing that the open file was not told yet.
    pub fn tell_errors(&self, seen: Option<&Seen>) -> Result<()> {
        let (Some(write_back), Some(seen)) = (&self.write_back, seen) else { return Ok(()) };
        match write_back.errors.tell(seen) {
            None => Ok(()),
            Some(number) if number == Errno::ENOSPC.number() as u16 => Err(Errno::ENOSPC),
            Some(_) => Err(Errno::EIO),
        }
    }

    /// Writes up to about `most` dirty pages of `first..=last`. Returns the first error.
    fn write_some(&self, first: u64, last: u64, most: usize) -> Result<()> {
        let (Some(write_back), Some(source)) = (&self.write_back, &self.source) else {
            return Ok(());
        };
        let (mut at, mut count, mut outcome) = (first, 0, Ok(()));
        while count < most {
            let mut batch = Batch::new();
            let taken = self.pages.lock().start_writing(at, last, &mut batch);
            let Some((end, _)) = batch.pages().last() else { break };
            at = end + 1;
            count += taken;
            WRITING.fetch_add(taken, Ordering::Release);
            let is_out = self.take_from_tables(batch.pages());
            let written = source.write_pages(batch.pages());
            {
                let mut pages = self.pages.lock();
                for (index, frame) in batch.pages() {
                    pages.finish_writing(*index);
                    if written == Err(Errno::ENOMEM) || !is_out {
                        pages.mark_dirty(*index, frame);
                    }
                }
            }
            if written != Err(Errno::ENOMEM) {
                WRITTEN.fetch_add(taken as u64, Ordering::Release);
            }
            WRITING.fetch_sub(taken, Ordering::Release);
            drop(batch);
            write_back.done.wake_all();
            PROGRESS.wake_all();
            match written {
                Ok(()) => {}
                Err(Errno::ENOMEM) => return Err(Errno::ENOMEM),
                Err(error) => {
                    write_back.errors.record(error.number() as u16);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        if count != 0 {
            source.wrote();
        }
        outcome
    }

    /// Takes the pages out of page tables, so that a change from now on faults. Returns false if
    /// some could not be taken out, which stay dirty then.
    fn take_from_tables(&self, pages: &[(u64, Frame)]) -> bool {
        if !self.is_mapped_writable() {
            return true;
        }
        let mut are_out = true;
        // Twice: a space that was made of another one meanwhile may be missed the first time.
        for _ in 0..2 {
            for run in pages.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
                if let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) {
                    are_out &= self.unmap(*first, *last, false);
                }
            }
        }
        are_out
    }
}
