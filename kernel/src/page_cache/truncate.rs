//! Pages taken out of a file: truncation, hole punching, and the address spaces that are told.

use alloc::sync::Weak;
use core::sync::atomic::Ordering;

use hayate_abi::Result;

use super::cache::{Mapper, PAGE, PageCache, SHIFT};
use crate::reclaim::growth::Grow;

impl PageCache {
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

    /// Takes pages out that are copies and may be old, and sets the size to what `size` returns.
    /// The next access reads the pages again. Pages that the source does not have yet stay, as far
    /// as they are inside the size, and so do private copies. Sleeps.
    pub fn refresh(&self, first: u64, last: u64, size: impl FnOnce() -> u64) {
        let _content = self.lock_content();
        self.take_size(size());
        self.drop_copies(first, last);
    }

    /// Sets the size to that of the source. The caller holds [`PageCache::lock_content`].
    pub fn take_size(&self, size: u64) {
        let old = self.size();
        if size > old {
            // A mapping may have left something behind the end.
            self.zero_tail(old);
        }
        if size != old {
            self.set_size(size);
        }
    }

    /// Takes pages out that are copies and may be old. Pages that the source does not have yet and
    /// private copies stay. The caller holds [`PageCache::lock_content`].
    pub fn drop_copies(&self, first: u64, last: u64) {
        self.take_out(first, last, false);
    }

    /// Takes all pages out, changed ones too, because the source was written by another way.
    /// Private copies stay. Sleeps.
    pub fn take_all_out(&self) {
        let _content = self.lock_content();
        self.take_out(0, u64::MAX >> SHIFT, true);
    }

    fn take_out(&self, first: u64, last: u64, newer: bool) {
        self.touch();
        self.drop_those(first, last, newer);
        self.unmap(first, last, false);
        // A fault may have put a page back between the two steps.
        self.drop_those(first, last, newer);
    }

    /// Gives up all pages, dirty ones too, and waits until none is being written: the file is gone,
    /// and its place on the source is another's soon. Nobody has it open or mapped. Sleeps.
    pub fn discard(&self) {
        self.drop_pages(0, u64::MAX >> SHIFT);
        self.wait_for_writes(0, u64::MAX >> SHIFT);
    }

    fn drop_pages(&self, first: u64, last: u64) {
        self.drop_those(first, last, true);
    }

    fn drop_those(&self, first: u64, last: u64, newer: bool) {
        loop {
            let (removed, all) = self.pages.lock().remove_range(first, last, newer);
            if let Some(account) = &self.source {
                account.uncharge(removed.len() as u64);
            }
            if all {
                return;
            }
        }
    }

    /// Calls the mappers to take pages out of page tables. Returns whether all were taken out.
    pub(super) fn unmap(&self, first: u64, last: u64, copies: bool) -> bool {
        // Visits the mappers from the last to the first. A mapper that is removed meanwhile is
        // replaced by the last one (`swap_remove`), which was either visited already or was added
        // after the pages were removed. So no mapper is missed, and the list need not be copied:
        // this code also runs when memory is exhausted.
        let mut are_out = true;
        let mut left = self.mappers.lock().len();
        while left > 0 {
            let mapper = {
                let mappers = self.mappers.lock();
                left = left.min(mappers.len());
                left = left.saturating_sub(1);
                mappers.get(left).and_then(Weak::upgrade)
            };
            if let Some(mapper) = mapper {
                are_out &= mapper.unmap(self, first, last, copies);
            }
        }
        are_out
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
}
