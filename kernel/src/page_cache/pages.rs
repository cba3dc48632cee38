//! Pages by index, in chunks of 64 pages: the first chunk inline, the others in a hash table.
//!
//! A small file costs one chunk of 256 bytes; a sparse file pays only for the chunks that it has
//! pages in. Road not taken: a radix tree. It costs two or three dependent loads where this costs
//! one hash, and only `SEEK_DATA` would use its order.

use alloc::vec::Vec;
use core::cell::Cell;
use core::hash::BuildHasherDefault;
use core::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use smallvec::SmallVec;

use crate::hash::IndexHasher;
use crate::reclaim::growth::Grow;

const CHUNK: u64 = 64;

/// Changed pages of all page caches that their sources do not have yet.
static DIRTY: AtomicUsize = AtomicUsize::new(0);

/// Returns how many changed pages their sources do not have yet.
pub fn dirty() -> usize {
    DIRTY.load(Ordering::Relaxed)
}

/// Pages with their indexes, to be written together.
pub struct Batch {
    pages: SmallVec<[(u64, Frame); Batch::FEW]>,
    most: usize,
}

impl Batch {
    /// The pages in a batch: with memory for the list, and without.
    const MANY: usize = 256;
    const FEW: usize = 16;

    /// An empty batch. Without memory it is a small one: pages are written to get memory.
    pub fn new() -> Batch {
        let mut pages = SmallVec::new();
        let most = if pages.make_room_exact(Self::MANY).is_ok() { Self::MANY } else { Self::FEW };
        Batch { pages, most }
    }

    fn has_room(&self) -> bool {
        self.pages.len() < self.most
    }

    /// The pages, in the order of their indexes.
    pub fn pages(&self) -> &[(u64, Frame)] {
        &self.pages
    }
}

/// The content of an index.
#[derive(Clone)]
pub enum Slot {
    /// No page.
    Empty,
    /// A thread is reading the page.
    Loading,
    /// The page.
    Present(Frame),
}

#[derive(Default)]
struct Chunk {
    /// Empty, or `CHUNK` entries long.
    pages: Vec<Option<Frame>>,
    /// One bit per page that is being read.
    loading: u64,
    /// One bit per page that the source does not have yet. Such a page is present.
    dirty: u64,
    /// One bit per page that is being written to the source.
    writing: u64,
}

/// The pages of a page cache.
#[derive(Default)]
pub struct Pages {
    first: Chunk,
    others: HashMap<u64, Chunk, BuildHasherDefault<IndexHasher>>,
    count: usize,
    dirty: usize,
    /// Whether a page was looked up or put in since [`take_use`](Pages::take_use).
    is_used: Cell<bool>,
    reads: Reads,
}

/// The reads of the source that are under way, in two groups: [`Pages::close_reads`] closes the one
/// that reads joined until then, so that they can be waited for while later ones begin.
#[derive(Default)]
struct Reads {
    even: u32,
    odd: u32,
    /// Whether reads join the odd ones.
    odd_is_open: bool,
}

impl Reads {
    fn of(&mut self, odd: bool) -> &mut u32 {
        if odd { &mut self.odd } else { &mut self.even }
    }
}

/// A group of reads.
#[derive(Clone, Copy)]
pub struct Group {
    odd: bool,
}

fn place(index: u64) -> (u64, usize) {
    (index / CHUNK, (index % CHUNK) as usize)
}

impl Pages {
    #[inline]
    fn chunk(&self, number: u64) -> Option<&Chunk> {
        if number == 0 { Some(&self.first) } else { self.others.get(&number) }
    }

    /// Returns the chunk; makes it if it is missing.
    fn chunk_or_new(&mut self, number: u64) -> Result<&mut Chunk> {
        let chunk = if number == 0 {
            &mut self.first
        } else {
            self.others.make_room(1)?;
            self.others.entry(number).or_default()
        };
        if chunk.pages.is_empty() {
            chunk.pages.make_room_exact(CHUNK as usize)?;
            chunk.pages.resize(CHUNK as usize, None);
        }
        Ok(chunk)
    }

    /// The number of pages present.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Notes that pages are used.
    #[inline]
    pub fn note_use(&self) {
        self.is_used.set(true);
    }

    /// Returns whether pages were used since the last call.
    pub fn take_use(&self) -> bool {
        self.is_used.take()
    }

    /// Returns the content of `index`.
    #[inline]
    pub fn get(&self, index: u64) -> Slot {
        self.note_use();
        let (number, at) = place(index);
        match self.chunk(number) {
            Some(chunk) => match chunk.pages.get(at) {
                Some(Some(frame)) => Slot::Present(frame.clone()),
                _ if chunk.loading & (1 << at) != 0 => Slot::Loading,
                _ => Slot::Empty,
            },
            None => Slot::Empty,
        }
    }

    /// Returns the page at `index`, if there is one.
    #[inline]
    pub fn present(&self, index: u64) -> Option<&Frame> {
        let (number, at) = place(index);
        self.chunk(number)?.pages.get(at)?.as_ref()
    }

    /// Puts `frame` at `index`. If there is a page already, returns that page as the error of the
    /// inner result.
    pub fn insert_if_empty(
        &mut self,
        index: u64,
        frame: Frame,
    ) -> Result<core::result::Result<Frame, Frame>> {
        let (number, at) = place(index);
        let chunk = self.chunk_or_new(number)?;
        let slot = chunk.pages.get_mut(at).ok_or(Errno::EINVAL)?;
        if let Some(existing) = slot {
            return Ok(Err(existing.clone()));
        }
        *slot = Some(frame.clone());
        self.count += 1;
        Ok(Ok(frame))
    }

    /// Marks an empty slot as being read.
    pub fn mark_loading(&mut self, index: u64) -> Result<()> {
        let (number, at) = place(index);
        self.chunk_or_new(number)?.loading |= 1 << at;
        Ok(())
    }

    /// Ends the reading of a slot, with the page or without one.
    pub fn finish_loading(&mut self, index: u64, frame: Option<Frame>) {
        let (number, at) = place(index);
        let chunk = if number == 0 { Some(&mut self.first) } else { self.others.get_mut(&number) };
        let Some(chunk) = chunk else { return };
        // Truncation clears the mark; then the page that was read is useless.
        if chunk.loading & (1 << at) == 0 {
            return;
        }
        chunk.loading &= !(1 << at);
        if let (Some(slot), Some(frame)) = (chunk.pages.get_mut(at), frame)
            && slot.is_none()
        {
            *slot = Some(frame);
            self.count += 1;
        }
    }

    /// Notes that a read of the source begins; returns its group.
    pub fn begin_read(&mut self) -> Group {
        let odd = self.reads.odd_is_open;
        *self.reads.of(odd) += 1;
        Group { odd }
    }

    /// Notes that a read of this group has ended. Returns whether it was the last of a group that
    /// is closed: then others may wait for that.
    pub fn end_read(&mut self, Group { odd }: Group) -> bool {
        let left = self.reads.of(odd);
        *left = left.saturating_sub(1);
        *left == 0 && odd != self.reads.odd_is_open
    }

    /// Closes the group of reads that are under way, and returns it. Only one can be closed: the
    /// caller waits for it before the next call.
    pub fn close_reads(&mut self) -> Group {
        let odd = self.reads.odd_is_open;
        self.reads.odd_is_open = !odd;
        Group { odd }
    }

    /// Whether reads of a group are under way.
    pub fn are_under_way(&mut self, Group { odd }: Group) -> bool {
        *self.reads.of(odd) != 0
    }

    /// Whether there are pages that the source does not have yet.
    pub fn is_dirty(&self) -> bool {
        self.dirty != 0
    }

    fn chunk_mut(&mut self, number: u64) -> Option<&mut Chunk> {
        if number == 0 { Some(&mut self.first) } else { self.others.get_mut(&number) }
    }

    /// Puts a page with new content at an empty place. If there is a page already, returns that. A
    /// read of the place that is under way is of no use any more.
    pub fn insert_new(
        &mut self,
        index: u64,
        frame: Frame,
    ) -> Result<core::result::Result<Frame, Frame>> {
        let inserted = self.insert_if_empty(index, frame)?;
        let (number, at) = place(index);
        if inserted.is_ok()
            && let Some(chunk) = self.chunk_mut(number)
        {
            chunk.loading &= !(1 << at);
        }
        Ok(inserted)
    }

    /// Marks the page at `index` as changed if it is `frame`. `None` if it is not; otherwise
    /// whether the mark is new.
    pub fn mark_dirty(&mut self, index: u64, frame: &Frame) -> Option<bool> {
        let (number, at) = place(index);
        let chunk = self.chunk_mut(number)?;
        let there = chunk.pages.get(at)?.as_ref()?;
        if there.number() != frame.number() {
            return None;
        }
        let is_new = chunk.dirty & (1 << at) == 0;
        chunk.dirty |= 1 << at;
        if is_new {
            self.dirty += 1;
            DIRTY.fetch_add(1, Ordering::Relaxed);
        }
        Some(is_new)
    }

    /// Whether the page at `index` is `frame` and is marked as changed.
    pub fn is_noted(&self, index: u64, frame: &Frame) -> bool {
        let (number, at) = place(index);
        self.chunk(number).is_some_and(|chunk| {
            let there = chunk.pages.get(at).and_then(Option::as_ref);
            chunk.dirty & (1 << at) != 0 && there.is_some_and(|it| it.number() == frame.number())
        })
    }

    /// Makes a read of the place that is under way useless.
    pub fn cancel_loading(&mut self, index: u64) {
        let (number, at) = place(index);
        if let Some(chunk) = self.chunk_mut(number) {
            chunk.loading &= !(1 << at);
        }
    }

    /// Takes changed pages of `first..=last` that nobody is writing into `batch`, in order, until
    /// it is full, and marks them as being written. Returns how many marks of changes that took.
    pub fn start_writing(&mut self, first: u64, last: u64, batch: &mut Batch) -> usize {
        let mut from = first;
        let mut taken = 0;
        while from <= last && batch.has_room() && self.dirty > 0 {
            let Some(number) = self.next_to_write(from / CHUNK) else { break };
            from = from.max(number * CHUNK);
            let Some(chunk) = self.chunk_mut(number) else { break };
            let end = (number + 1) * CHUNK;
            let before = taken;
            while from <= last && from < end && batch.has_room() {
                let at = (from % CHUNK) as usize;
                let bit = 1 << at;
                if chunk.dirty & !chunk.writing & bit != 0
                    && let Some(Some(frame)) = chunk.pages.get(at)
                {
                    batch.pages.push((from, frame.clone()));
                    chunk.dirty &= !bit;
                    chunk.writing |= bit;
                    taken += 1;
                }
                from += 1;
            }
            self.make_clean(taken - before);
        }
        taken
    }

    fn make_clean(&mut self, count: usize) {
        self.dirty -= count;
        DIRTY.fetch_sub(count, Ordering::Relaxed);
    }

    /// The first chunk from `number` on with a page for [`start_writing`](Self::start_writing).
    fn next_to_write(&self, number: u64) -> Option<u64> {
        let has = |chunk: &Chunk| chunk.dirty & !chunk.writing != 0;
        if number == 0 && has(&self.first) {
            return Some(0);
        }
        let others = self.others.iter().filter(|(at, chunk)| **at >= number && has(chunk));
        others.map(|(at, _)| *at).min()
    }

    /// Ends the writing of a page.
    pub fn finish_writing(&mut self, index: u64) {
        let (number, at) = place(index);
        if let Some(chunk) = self.chunk_mut(number) {
            chunk.writing &= !(1 << at);
        }
    }

    /// Whether a page of `first..=last` is being written.
    pub fn is_writing(&self, first: u64, last: u64) -> bool {
        self.has_mark(first, last, |chunk| chunk.writing)
    }

    /// Whether a page of `first..=last` is not with the source, or on its way there.
    pub fn is_newer(&self, first: u64, last: u64) -> bool {
        self.has_mark(first, last, |chunk| chunk.dirty | chunk.writing)
    }

    fn has_mark(&self, first: u64, last: u64, marks: impl Fn(&Chunk) -> u64) -> bool {
        let within = |number: u64, chunk: &Chunk| {
            let (low, high) = (number * CHUNK, number * CHUNK + CHUNK - 1);
            let marks = marks(chunk);
            if marks == 0 || high < first || low > last {
                return false;
            }
            let from = first.saturating_sub(low);
            let to = last.min(high) - low;
            marks & (u64::MAX << from) & (u64::MAX >> (CHUNK - 1 - to)) != 0
        };
        let (low, high) = (first / CHUNK, last / CHUNK);
        if high.saturating_sub(low) < self.others.len() as u64 {
            let is = |number| self.chunk(number).is_some_and(|chunk| within(number, chunk));
            return (low..=high).any(is);
        }
        within(0, &self.first) || self.others.iter().any(|(number, chunk)| within(*number, chunk))
    }

    /// Takes out the pages `first..=last`, as many as there is memory to list, but at least one;
    /// without those that the source does not have yet, unless `newer`. Returns whether these were
    /// all. The caller drops the pages after it released its lock, and calls again for the rest.
    pub fn remove_range(&mut self, first: u64, last: u64, newer: bool) -> (Vec<Frame>, bool) {
        let mut removed = Vec::new();
        let mut all = true;
        let mut clean = 0;
        let low = first / CHUNK;
        let mut clear = |number: u64, chunk: &mut Chunk| {
            for (at, slot) in chunk.pages.iter_mut().enumerate() {
                let index = number * CHUNK + at as u64;
                let is_newer = (chunk.dirty | chunk.writing) >> at & 1 != 0;
                if (first..=last).contains(&index) && (newer || !is_newer) {
                    chunk.loading &= !(1 << at);
                    // The list for the first few pages is a small allocation, which the memory
                    // reserve can serve.
                    if !removed.is_empty() && slot.is_some() && removed.make_room(1).is_err() {
                        all = false;
                        return;
                    }
                    removed.extend(slot.take());
                    clean += (chunk.dirty >> at & 1) as usize;
                    chunk.dirty &= !(1 << at);
                }
            }
        };
        if low == 0 {
            clear(0, &mut self.first);
        }
        let high = last / CHUNK;
        if !self.others.is_empty() {
            self.others.retain(|&number, chunk| {
                if (low..=high).contains(&number) {
                    clear(number, chunk);
                    let marks = chunk.loading | chunk.writing;
                    return marks != 0 || chunk.pages.iter().any(Option::is_some);
                }
                true
            });
        }
        self.count -= removed.len();
        self.make_clean(clean);
        (removed, all)
    }

    /// Takes out up to `most` of the pages `first..=last` that the source has and that have no
    /// other users, of those for which `may` holds.
    pub fn remove_unused(
        &mut self,
        first: u64,
        last: u64,
        most: usize,
        may: impl Fn(&Frame) -> bool,
    ) -> Vec<Frame> {
        let mut removed: Vec<Frame> = Vec::new();
        let own = core::iter::once((0, &mut self.first));
        let others = self.others.iter_mut().map(|(number, chunk)| (*number, chunk));
        let within = first / CHUNK..=last / CHUNK;
        for (number, chunk) in own.chain(others).filter(|(number, _)| within.contains(number)) {
            let kept = chunk.dirty | chunk.writing;
            for (at, slot) in chunk.pages.iter_mut().enumerate() {
                if removed.len() < most
                    && kept & (1 << at) == 0
                    && (first..=last).contains(&(number * CHUNK + at as u64))
                    && slot.as_ref().is_some_and(|frame| frame.is_unique() && may(frame))
                    && removed.make_room(1).is_ok()
                {
                    removed.extend(slot.take());
                }
            }
        }
        self.count -= removed.len();
        removed
    }

    /// Returns the first index at or after `index` that has a page.
    pub fn next_present(&self, index: u64) -> Option<u64> {
        let (low, at) = place(index);
        let in_chunk = |number: u64, from: usize| {
            let pages = &self.chunk(number)?.pages;
            let found = pages.iter().enumerate().skip(from).find(|(_, slot)| slot.is_some())?.0;
            Some(number * CHUNK + found as u64)
        };
        in_chunk(low, at).or_else(|| {
            let later = self.others.keys().filter(|&&number| number > low);
            later.filter_map(|&number| in_chunk(number, 0)).min()
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.make_clean(self.dirty);
    }
}
