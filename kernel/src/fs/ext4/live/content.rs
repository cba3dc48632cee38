//! Changes of a file's content: writing, cutting, holes and preallocation.
//!
//! The order of a write: the pages are in memory (a hole's as zeroes) before their blocks have
//! places, and dirty before the writer's lock is free again. So a page is never read from a block
//! that was not written, and a commit of the places finds all pages that belong there. Reads that
//! leave the page cache out are waited for before, and begin under the content lock.
//!
//! Lock order: the page cache's content lock, then those of a commit, then the writer's lock.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Change, Fill};
use hayate_machine::frames::Frame;

use super::blocks::Owner;
use super::state::{Node, Pending, time_now, time_of};
use crate::page_cache::cache::{PAGE, PageCache};
use crate::reclaim::growth::Grow;
use crate::schedule;
use crate::vfs::content::mode::*;
use crate::vfs::content::{SIZE_MAX, write_page};
use crate::vfs::inode::Timestamp;
use crate::vfs::transfer::Input;

/// Bytes whose blocks are allocated together at most.
const PART: u64 = 1 << 20;
/// The largest number that a page has, of all that a file can have.
const LAST: u64 = u64::MAX / PAGE as u64;

impl Owner for Node {
    fn prepare(&self, index: u64) -> Result<()> {
        self.live.check_writable()?;
        let (page_cache, _) = self.content()?;
        let _content = page_cache.lock_content();
        let frame = page_cache.page(index)?;
        let (from, size) = (index * PAGE as u64, page_cache.size());
        let end = (from + PAGE as u64).min(size);
        if self.reserve(from, end)? < end {
            return Err(Errno::ENOSPC);
        }
        if !page_cache.note_dirty(index, &frame) {
            return Err(Errno::EIO);
        }
        page_cache.touch();
        self.note_written();
        Ok(())
    }
}

impl Node {
    /// Gives places to the blocks of `from..end` that have none, and makes their pages dirty. The
    /// file reaches to `end` at least on the volume. The caller holds the content lock. Returns up
    /// to where there are places, if that is beyond `from`.
    fn reserve(&self, from: u64, end: u64) -> Result<u64> {
        let (page_cache, blocks) = self.content()?;
        let shift = self.live.shift;
        let page = PAGE as u64;
        // All blocks of the pages, as far as the file goes.
        let reach = end.max(page_cache.size());
        let last = end.div_ceil(page).saturating_mul(page).min(reach).div_ceil(1 << shift);
        let mut at = (from / page * page) >> shift;
        while let Some((block, count)) = blocks.hole(at, last) {
            match self.give_places(block, count, end) {
                Ok(next) => at = next,
                Err(_) if u64::from(block) << shift > from => {
                    return Ok((u64::from(block) << shift).min(end));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(end)
    }

    /// Gives places to some of the blocks `block..block + count`, which have none, and makes their
    /// pages dirty; returns the block behind them. The file reaches to `end` at most.
    fn give_places(&self, block: u32, count: u32, end: u64) -> Result<u64> {
        let (page_cache, blocks) = self.content()?;
        let (shift, page) = (self.live.shift, PAGE as u64);
        let first = (u64::from(block) << shift) / page;
        let count = u64::from(count).min(PART >> shift) as u32;
        let behind = ((u64::from(block) + u64::from(count)) << shift).div_ceil(page);
        let mut frames: Vec<(u64, Frame)> = Vec::new();
        frames.make_room_exact((behind - first) as usize)?;
        for index in first..behind {
            frames.push((index, page_cache.page_for_write(index)?));
        }
        blocks.make_room()?;
        // One that leaves the page cache out would find blocks that are not written yet.
        page_cache.wait_for_reads();
        let reaches = ((u64::from(block) + u64::from(count)) << shift).min(end);
        let mut got = None;
        self.live.change(|writer, device| {
            // First, so that no commit has blocks behind the end of a file.
            if reaches > self.info.lock().size {
                let size = Change { size: Some(reaches), ..Change::default() };
                let inode = writer.change(device, self.number, &size)?;
                self.take(writer, &inode);
            }
            if got.is_none() {
                let fill = Fill::Written;
                let extent = writer.allocate(device, self.number, block, count, fill)?;
                blocks.insert(extent);
                got = Some(extent);
                let start = (u64::from(extent.block) << shift) / page;
                let stop = (u64::from(extent.block) + u64::from(extent.count)) << shift;
                let inside = |index: u64| index >= start && index * page < stop;
                for (index, frame) in frames.iter().filter(|(index, _)| inside(*index)) {
                    page_cache.note_dirty(*index, frame);
                }
            }
            self.refresh(writer, device)?;
            self.info.lock().data_transaction = writer.running();
            Ok(())
        })?;
        let extent = got.ok_or(Errno::EIO)?;
        self.keep();
        Ok(u64::from(extent.block) + u64::from(extent.count))
    }

    /// Writes at `offset`. The caller holds the content lock.
    pub fn write(&self, offset: u64, input: &mut Input<'_>) -> Result<usize> {
        let (page_cache, blocks) = self.content()?;
        if input.remaining() == 0 {
            return Ok(0);
        }
        let room = blocks.largest.min(SIZE_MAX).checked_sub(offset).filter(|room| *room > 0);
        input.limit(usize::try_from(room.ok_or(Errno::EFBIG)?).unwrap_or(usize::MAX));
        let old = page_cache.size();
        if offset > old {
            // Writes through a mapping may have left bytes beyond the old end in its page.
            page_cache.zero_tail(old);
        }
        let mut at = offset;
        let outcome = loop {
            if input.remaining() == 0 {
                break Ok(());
            }
            let length = (PART - at % PART).min(input.remaining() as u64);
            match self.write_part(at, length, input) {
                Ok((count, possible)) => {
                    at += count;
                    if count < possible {
                        break Err(Errno::EFAULT);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        if at > offset {
            page_cache.grow_to(at);
            page_cache.touch();
            self.note_written();
        }
        let size = page_cache.size();
        blocks.set_reach(size);
        if self.info.lock().size > size {
            // Blocks were reserved for bytes that did not come.
            self.cut_on_disk(size)?;
        }
        input.finish(outcome)
    }

    /// Writes up to `length` bytes; returns how many could be read from the program, and for how
    /// many there was room.
    fn write_part(&self, offset: u64, length: u64, input: &mut Input<'_>) -> Result<(u64, u64)> {
        let (page_cache, blocks) = self.content()?;
        let end = offset + length;
        blocks.raise(end);
        let end = self.reserve(offset, end)?;
        let mut at = offset;
        while at < end {
            let within = at % PAGE as u64;
            let count = (PAGE as u64 - within).min(end - at) as usize;
            let taken = write_page(page_cache, at, count, input);
            let moved = match taken {
                Ok(moved) => moved,
                // The bytes before count.
                Err(Errno::EFAULT) if at > offset => break,
                Err(_) if at > offset => return Ok((at - offset, at - offset)),
                Err(error) => return Err(error),
            };
            at += moved as u64;
            page_cache.grow_to(at);
            if moved < count {
                break;
            }
            page_cache.balance();
            if (at / PAGE as u64).is_multiple_of(16) {
                schedule::breathe();
            }
        }
        Ok((at - offset, end - offset))
    }

    /// Sets the size on the volume, which frees the blocks behind it. The caller holds the content
    /// lock.
    fn cut_on_disk(&self, size: u64) -> Result<()> {
        let (page_cache, blocks) = self.content()?;
        blocks.make_room()?;
        blocks.remove(size.div_ceil(1 << self.live.shift), u64::MAX);
        page_cache.wait_for_reads();
        self.live.change_in_steps(|writer, device| {
            let progress = writer.set_size(device, self.number, size, time_now())?;
            self.refresh(writer, device)?;
            self.info.lock().data_transaction = writer.running();
            Ok(progress)
        })
    }

    /// Zeroes bytes inside one page, which is dirty then. The caller holds the content lock.
    fn zero(&self, page_cache: &PageCache, from: u64, to: u64) -> Result<()> {
        if from >= to || self.is_hole(from, to) {
            return Ok(());
        }
        let index = from / PAGE as u64;
        let frame = page_cache.page_for_write(index)?;
        frame.zero_range((from % PAGE as u64) as usize, (to - from) as usize);
        if page_cache.note_dirty(index, &frame) { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Whether none of the bytes has a place.
    fn is_hole(&self, from: u64, to: u64) -> bool {
        let shift = self.live.shift;
        let Ok((_, blocks)) = self.content() else { return true };
        (from >> shift..to.div_ceil(1 << shift))
            .all(|block| matches!(blocks.run(block << shift), hayate_ext4::Run::Hole { .. }))
    }

    /// Changes the size.
    pub fn truncate(&self, size: u64) -> Result<()> {
        let (page_cache, blocks) = self.content()?;
        if size > blocks.largest.min(SIZE_MAX) {
            return Err(Errno::EFBIG);
        }
        let _content = page_cache.lock_content();
        let old = page_cache.size();
        if size >= old {
            page_cache.zero_tail(old);
            blocks.raise(size);
            page_cache.set_size(size);
            self.note_written();
            // Preallocated blocks behind the end go, too.
            return if size == old { self.cut_on_disk(size) } else { Ok(()) };
        }
        let page = PAGE as u64;
        // The page that is cut is read as long as it is whole.
        let end = size.next_multiple_of(page).min(old);
        self.zero(page_cache, size, end)?;
        page_cache.set_size(size);
        page_cache.wait_for_writes(size.div_ceil(page), LAST);
        blocks.set_reach(size);
        self.cut_on_disk(size)?;
        self.keep();
        Ok(())
    }

    /// `fallocate(2)`: preallocates, punches holes, zeroes.
    pub fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<()> {
        const KNOWN: u32 = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
        let (punches, zeroes) =
            (mode & FALLOC_FL_PUNCH_HOLE != 0, mode & FALLOC_FL_ZERO_RANGE != 0);
        let keeps = mode & FALLOC_FL_KEEP_SIZE != 0;
        if mode & !KNOWN != 0 || punches && (zeroes || !keeps) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.live.check_writable()?;
        let (page_cache, blocks) = self.content()?;
        let end = offset.checked_add(length).filter(|end| *end <= blocks.largest.min(SIZE_MAX));
        let end = end.ok_or(Errno::EFBIG)?;
        let _content = page_cache.lock_content();
        if punches || zeroes {
            self.punch(page_cache, offset, end)?;
        }
        if !punches {
            let shift = self.live.shift;
            let (mut at, last) = (offset >> shift, end.div_ceil(1 << shift));
            while let Some((block, count)) = blocks.hole(at, last) {
                let extent = self.live.change(|writer, device| {
                    let fill = Fill::Unwritten;
                    let extent = writer.allocate(device, self.number, block, count, fill)?;
                    self.refresh(writer, device)?;
                    self.info.lock().data_transaction = writer.running();
                    Ok(extent)
                })?;
                at = u64::from(extent.block) + u64::from(extent.count);
                schedule::breathe();
            }
            let old = page_cache.size();
            if !keeps && end > old {
                page_cache.zero_tail(old);
                blocks.raise(end);
                page_cache.set_size(end);
            }
        }
        self.note_written();
        Ok(())
    }

    /// Makes a hole. The caller holds the content lock.
    fn punch(&self, page_cache: &PageCache, offset: u64, end: u64) -> Result<()> {
        let (_, blocks) = self.content()?;
        let (page, block) = (PAGE as u64, 1 << self.live.shift);
        let size = page_cache.size();
        // Whole blocks go, and of whole pages alone: a page is dirty as a whole.
        let unit = page.max(block);
        let whole_end = if end >= size { end.next_multiple_of(unit) } else { end / unit * unit };
        let whole = (offset.next_multiple_of(unit), whole_end);
        if whole.0 >= whole.1 {
            let middle = offset.next_multiple_of(page).min(end);
            self.zero(page_cache, offset, middle.min(size))?;
            return self.zero(page_cache, middle, end.min(size));
        }
        self.zero(page_cache, offset, whole.0.min(size))?;
        self.zero(page_cache, whole.1.min(end), end.min(size))?;
        page_cache.punch(whole.0, whole.1 - whole.0);
        page_cache.wait_for_writes(whole.0 / page, whole.1 / page - 1);
        let (from, to) = (whole.0 / block, whole.1 / block);
        blocks.make_room()?;
        blocks.remove(from, to);
        page_cache.wait_for_reads();
        let (from, to) = (from as u32, u32::try_from(to).unwrap_or(u32::MAX));
        self.live.change_in_steps(|writer, device| {
            let progress = writer.punch(device, self.number, from, to, time_now())?;
            self.refresh(writer, device)?;
            self.info.lock().data_transaction = writer.running();
            Ok(progress)
        })
    }

    /// Makes the file durable; for `data_only` without times.
    pub fn make_durable(&self, data_only: bool) -> Result<()> {
        if let Some(page_cache) = self.loaded() {
            // Other errors are told by the page cache.
            if page_cache.write_everything() == Err(Errno::ENOMEM) {
                return Err(Errno::ENOMEM);
            }
        }
        let pending = self.info.lock().pending;
        let counts = if data_only { Pending::SIZE } else { Pending::all() };
        if pending.intersects(counts) {
            self.live.change(|writer, device| self.hand_over(writer, device))?;
        }
        let info = *self.info.lock();
        let wanted = if data_only { info.data_transaction } else { info.transaction };
        self.live.commit_until(Some(wanted))
    }

    /// Notes an access: if `always`, or if relatime requires it (mount(2)).
    pub fn accessed(&self, always: bool) {
        const DAY: i64 = 24 * 60 * 60;
        if self.live.check_writable().is_err() {
            return;
        }
        let mut info = self.info.lock();
        let time = |at: Timestamp| (at.seconds, at.nanoseconds);
        let is_old =
            time(info.accessed) <= time(info.modified) || time(info.accessed) <= time(info.changed);
        if !always && !is_old {
            let now = Timestamp::now();
            if info.accessed.seconds.saturating_add(DAY) > now.seconds {
                return;
            }
        }
        info.accessed = Timestamp::now();
        info.pending.insert(Pending::ACCESSED);
        drop(info);
        self.keep();
    }

    /// Changes mode, owner or times, with what is pending of them.
    pub fn change(&self, change: &crate::vfs::inode::Change) -> Result<()> {
        let now = Timestamp::now();
        self.live.change(|writer, device| {
            let asked = Change {
                permissions: change.mode,
                uid: change.uid,
                gid: change.gid,
                accessed: change.accessed.map(time_of),
                modified: change.modified.map(time_of),
                changed: Some(time_of(now)),
                ..Change::default()
            };
            self.hand_over(writer, device)?;
            let inode = writer.change(device, self.number, &asked)?;
            self.take(writer, &inode);
            Ok(())
        })
    }
}
