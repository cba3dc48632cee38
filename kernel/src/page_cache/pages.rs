//! Pages by index, in chunks of 64 pages: the first chunk inline, the others in a hash table.
//!
//! A small file costs one chunk of 256 bytes; a sparse file pays only for the chunks that it has
//! pages in. Road not taken: a radix tree. It costs two or three dependent loads where this costs
//! one hash, and only `SEEK_DATA` would use its order.

use alloc::vec::Vec;
use core::cell::Cell;
use core::hash::BuildHasherDefault;

use hashbrown::HashMap;
use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;

use crate::hash::IndexHasher;
use crate::reclaim::growth::Grow;

const CHUNK: u64 = 64;

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
}

/// The pages of a page cache.
#[derive(Default)]
pub struct Pages {
    first: Chunk,
    others: HashMap<u64, Chunk, BuildHasherDefault<IndexHasher>>,
    count: usize,
    /// Whether a page was looked up or put in since [`take_use`](Pages::take_use).
    is_used: Cell<bool>,
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

    /// Takes out the pages `first..=last`, as many as there is memory to list, but at least one.
    /// Returns whether these were all. The caller drops the pages after it released its lock, and
    /// calls again for the rest.
    pub fn remove_range(&mut self, first: u64, last: u64) -> (Vec<Frame>, bool) {
        let mut removed = Vec::new();
        let mut all = true;
        let low = first / CHUNK;
        let mut clear = |number: u64, chunk: &mut Chunk| {
            for (at, slot) in chunk.pages.iter_mut().enumerate() {
                let index = number * CHUNK + at as u64;
                if (first..=last).contains(&index) {
                    chunk.loading &= !(1 << at);
                    // The list for the first few pages is a small allocation, which the memory
                    // reserve can serve.
                    if !removed.is_empty() && slot.is_some() && removed.make_room(1).is_err() {
                        all = false;
                        return;
                    }
                    removed.extend(slot.take());
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
                    return chunk.loading != 0 || chunk.pages.iter().any(Option::is_some);
                }
                true
            });
        }
        self.count -= removed.len();
        (removed, all)
    }

    /// Takes out up to `most` pages without other users.
    pub fn remove_unused(&mut self, most: usize) -> Vec<Frame> {
        let mut removed: Vec<Frame> = Vec::new();
        for chunk in core::iter::once(&mut self.first).chain(self.others.values_mut()) {
            for slot in &mut chunk.pages {
                if removed.len() < most
                    && slot.as_ref().is_some_and(Frame::is_unique)
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
