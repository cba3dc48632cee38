//! Reading and writing a file through its page cache: the part that is the same for all file
//! systems with pages.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::io::Direction;
use hayate_machine::frames::Frame;

use super::inode::FileKind;
use super::open_file::flags::O_DIRECT;
use super::open_file::{OpenFile, Whence, default_seek};
use super::transfer::{Input, Output};
use crate::drivers::block::SECTOR;
use crate::drivers::io;
use crate::page_cache::cache::{PAGE, PageCache};
use crate::page_cache::read_ahead::WINDOW;
use crate::page_cache::{load, read_ahead, seals};
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule;

/// The largest size of a file (`MAX_LFS_FILESIZE`).
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// `fallocate(2)` modes.
pub mod mode {
    #![allow(missing_docs, reason = "the names are those of fallocate(2)")]
    pub const FALLOC_FL_KEEP_SIZE: u32 = 1;
    pub const FALLOC_FL_PUNCH_HOLE: u32 = 2;
    pub const FALLOC_FL_NO_HIDE_STALE: u32 = 4;
    pub const FALLOC_FL_COLLAPSE_RANGE: u32 = 8;
    pub const FALLOC_FL_ZERO_RANGE: u32 = 16;
    pub const FALLOC_FL_INSERT_RANGE: u32 = 32;
}

/// Lets pending interrupts and other threads run after every sixteenth page of a long transfer.
#[inline]
fn rest_after(index: u64) {
    if index % 16 == 15 {
        schedule::breathe();
    }
}

/// Reads from `offset` on, up to the size. Holes read as zeroes and stay holes.
pub fn read(page_cache: &PageCache, offset: u64, out: &mut Output<'_>) -> Result<usize> {
    read_with(page_cache, None, offset, out)
}

/// Like [`read`], for a cached file: reading in order requests the next window ahead of time
/// ([`read_ahead`]).
pub fn read_cached(
    page_cache: &Arc<PageCache>,
    offset: u64,
    out: &mut Output<'_>,
) -> Result<usize> {
    read_with(page_cache, Some(page_cache), offset, out)
}

/// Whether a transfer leaves the page cache out (`O_DIRECT`). `EINVAL`: its offset and length are
/// not of whole sectors (open(2)).
pub fn is_direct(file: &OpenFile, offset: u64, length: usize) -> Result<bool> {
    let is_direct = file.flags() & O_DIRECT != 0;
    if is_direct && !(offset | length as u64).is_multiple_of(SECTOR) {
        return Err(Errno::EINVAL);
    }
    Ok(is_direct)
}

/// Reads a file on a disk: through its page cache, or past it with `O_DIRECT`.
pub fn read_on_disk(
    page_cache: &Arc<PageCache>,
    file: &OpenFile,
    offset: u64,
    out: &mut Output<'_>,
) -> Result<usize> {
    // What lies on non-volatile memory is not cached.
    if is_direct(file, offset, out.remaining())? && page_cache.place().is_none() {
        read_past(page_cache, offset, out)
    } else {
        read_cached(page_cache, offset, out)
    }
}

/// Like [`read`], from the file's source and past its page cache (`O_DIRECT`); the caller has
/// checked offset and length.
fn read_past(page_cache: &PageCache, mut offset: u64, out: &mut Output<'_>) -> Result<usize> {
    const PAGE_SIZE: u64 = PAGE as u64;
    let outcome = loop {
        let end = page_cache.size().min(offset.saturating_add(out.remaining() as u64));
        if offset >= end {
            break Ok(());
        }
        let first = offset / PAGE_SIZE;
        let wanted = (end.div_ceil(PAGE_SIZE) - first).min(WINDOW);
        let Some(wanted) = possible(page_cache, wanted) else { break Err(Errno::EINTR) };
        match read_past_some(page_cache, first, wanted, (offset, end), out) {
            Ok(count) => offset += count as u64,
            Err(error) => break Err(error),
        }
        rest_after(offset / PAGE_SIZE);
    };
    out.finish(outcome)
}

/// Reads some of the pages `first..first + wanted`, and puts their bytes within `within` out;
/// returns how many bytes.
fn read_past_some(
    page_cache: &PageCache,
    first: u64,
    wanted: u64,
    (from, to): (u64, u64),
    out: &mut Output<'_>,
) -> Result<usize> {
    let mut frames: Vec<Frame> = Vec::new();
    frames.make_room_exact(wanted as usize)?;
    frames.push(reclaim::obtain(Frame::allocate)?);
    frames.extend((1..wanted).map_while(|_| Frame::allocate()));
    let read = page_cache.read_past(first, &frames)?;
    let mut at = from;
    for frame in frames.iter().take(read) {
        let within = (at % PAGE as u64) as usize;
        let length = (PAGE - within).min(usize::try_from(to - at).unwrap_or(PAGE));
        let count = out.put_frame(frame, within, length)?;
        at += count as u64;
        if count < length {
            return Err(Errno::EFAULT);
        }
    }
    Ok((at - from) as usize)
}

/// How many of the wanted pages may be read at once, after a rest if the caller's control group has
/// read too much ([`io`]). `None`: the caller's process ends.
fn possible(page_cache: &PageCache, wanted: u64) -> Option<u64> {
    match page_cache.device() {
        Some(device) if io::is_held(device, Direction::Read) => {
            io::rest(device, Direction::Read).then_some(wanted.min(WINDOW))
        }
        _ => Some(wanted),
    }
}

/// Calls `write`, which writes what it is given and takes the content lock: once, or for one part
/// after the other if the caller's control group is held to a speed of writing; then it rests in
/// between, without the lock. Returns the bytes of all parts.
pub fn in_parts(
    page_cache: &PageCache,
    input: &mut Input<'_>,
    mut write: impl FnMut(&mut Input<'_>) -> Result<usize>,
) -> Result<usize> {
    /// Bytes that are written without a rest.
    const PART: usize = 256 << 10;
    let device = page_cache.device().filter(|&device| io::is_held(device, Direction::Write));
    let Some(device) = device else { return write(input) };
    let outcome = loop {
        if !io::rest(device, Direction::Write) {
            break Err(Errno::EINTR);
        }
        let (length, before) = (input.remaining().min(PART), input.done());
        match input.part(length, &mut write) {
            Ok(_) if input.remaining() == 0 || input.done() - before < length => break Ok(()),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    input.finish(outcome)
}

#[inline]
fn read_with(
    page_cache: &PageCache,
    cached: Option<&Arc<PageCache>>,
    mut offset: u64,
    out: &mut Output<'_>,
) -> Result<usize> {
    let outcome = loop {
        let size = page_cache.size();
        if offset >= size || out.remaining() == 0 {
            break Ok(());
        }
        let within = (offset % PAGE as u64) as usize;
        let length = (PAGE - within).min(out.remaining());
        let length = length.min(usize::try_from(size - offset).unwrap_or(usize::MAX));
        let index = offset / PAGE as u64;
        let put = match page_cache.peek(index) {
            Some(frame) => {
                if let Some(cached) = cached
                    && index.is_multiple_of(WINDOW)
                {
                    read_ahead::ask(cached, index + WINDOW, WINDOW);
                }
                out.put_frame(&frame, within, length)
            }
            None if page_cache.is_memory() => out.zero(length),
            None => {
                let wanted = (out.remaining() as u64).div_ceil(PAGE as u64) + 1;
                let wanted = wanted.max(WINDOW - index % WINDOW);
                let Some(wanted) = possible(page_cache, wanted) else { break Err(Errno::EINTR) };
                if let Some(cached) = cached
                    && (index == 0 || page_cache.peek(index - 1).is_some())
                {
                    read_ahead::ask(cached, index + wanted, WINDOW);
                }
                page_cache.readahead(index, wanted);
                match page_cache.page(index) {
                    Ok(frame) => out.put_frame(&frame, within, length),
                    // The file shrank meanwhile.
                    Err(Errno::EINVAL) => break Ok(()),
                    Err(error) => Err(error),
                }
            }
        };
        match put {
            Ok(count) => {
                offset += count as u64;
                if count < length {
                    break Err(Errno::EFAULT);
                }
                rest_after(index);
            }
            Err(error) => break Err(error),
        }
    };
    out.finish(outcome)
}

/// Writes at `*offset`; for a file that appends, sets `*offset` to the end first. Takes the content
/// lock.
pub fn write(
    page_cache: &PageCache,
    file: &OpenFile,
    offset: &mut u64,
    input: &mut Input<'_>,
) -> Result<usize> {
    let _content = page_cache.lock_content();
    if file.appends() {
        *offset = page_cache.size();
    }
    write_locked(page_cache, *offset, input)
}

/// Like [`write()`], for a caller that holds the content lock.
pub fn write_locked(page_cache: &PageCache, offset: u64, input: &mut Input<'_>) -> Result<usize> {
    if input.remaining() == 0 {
        return Ok(0);
    }
    let sealed = page_cache.seals();
    if sealed & (seals::F_SEAL_WRITE | seals::F_SEAL_FUTURE_WRITE) != 0 {
        return Err(Errno::EPERM);
    }
    if offset >= SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    input.limit(usize::try_from(SIZE_MAX - offset).unwrap_or(usize::MAX));
    let old = page_cache.size();
    if sealed & seals::F_SEAL_GROW != 0 && offset.saturating_add(input.remaining() as u64) > old {
        return Err(Errno::EPERM);
    }
    if offset > old {
        // Writes through a mapping may have left bytes beyond the old end in its page.
        page_cache.zero_tail(old);
    }
    let mut at = offset;
    let outcome = loop {
        if input.remaining() == 0 {
            break Ok(());
        }
        let within = (at % PAGE as u64) as usize;
        let length = (PAGE - within).min(input.remaining());
        let taken = page_cache
            .page_for_write(at / PAGE as u64)
            .and_then(|frame| input.take_frame(&frame, within, length));
        match taken {
            Ok(count) => {
                at += count as u64;
                if count < length {
                    break Err(Errno::EFAULT);
                }
                rest_after(at / PAGE as u64);
            }
            Err(error) => break Err(error),
        }
    };
    if at > offset {
        page_cache.grow_to(at);
        page_cache.touch();
    }
    input.finish(outcome)
}

/// Writes to a file whose changed pages are written to its source later; the caller keeps to the
/// size. Takes the content lock. Writes some pages if too many wait for it.
pub fn write_cached(page_cache: &PageCache, offset: u64, input: &mut Input<'_>) -> Result<usize> {
    let _content = page_cache.lock_content();
    let mut at = offset;
    let outcome = loop {
        if input.remaining() == 0 {
            break Ok(());
        }
        let within = (at % PAGE as u64) as usize;
        let length = (PAGE - within).min(input.remaining());
        match write_page(page_cache, at, length, input) {
            Ok(count) => {
                at += count as u64;
                if count < length {
                    break Err(Errno::EFAULT);
                }
                page_cache.balance();
                rest_after(at / PAGE as u64);
            }
            Err(error) => break Err(error),
        }
    };
    if at > offset {
        page_cache.touch();
    }
    input.finish(outcome)
}

/// Writes `length` bytes at `at`, inside one page of a file whose changed pages are written to its
/// source later. A page that is replaced as a whole is not read before. The caller holds the
/// content lock, and sees to the size.
pub fn write_page(
    page_cache: &PageCache,
    at: u64,
    length: usize,
    input: &mut Input<'_>,
) -> Result<usize> {
    let index = at / PAGE as u64;
    let within = (at % PAGE as u64) as usize;
    let is_whole = within == 0 && (length == PAGE || at + length as u64 == page_cache.size());
    if is_whole && page_cache.peek(index).is_none() {
        let frame = load::fresh_frame()?;
        let count = input.take_frame(&frame, 0, length)?;
        if count == length {
            frame.zero_range(length, PAGE - length);
        } else {
            // The program's memory ended early: the rest of the page keeps its content.
            let there = page_cache.page_for_write(index)?;
            let mut rest = [0; 256];
            let mut from = count;
            while from < PAGE {
                let part = rest.len().min(PAGE - from);
                let rest = rest.get_mut(..part).unwrap_or_default();
                there.read(from, rest);
                frame.write(from, rest);
                from += part;
            }
        }
        page_cache.put_new(index, frame)?;
        return Ok(count);
    }
    let frame = page_cache.page_for_write(index)?;
    let count = input.take_frame(&frame, within, length)?;
    // The page cannot be taken out: the content is locked, and the page has a user.
    if count > 0 && !page_cache.note_dirty(index, &frame) {
        return Err(Errno::EIO);
    }
    Ok(count)
}

/// Changes the size, with the checks of `ftruncate(2)` on seals and limits.
pub fn truncate(page_cache: &PageCache, size: u64) -> Result<()> {
    if size > SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    let _content = page_cache.lock_content();
    let (old, sealed) = (page_cache.size(), page_cache.seals());
    if size < old && sealed & seals::F_SEAL_SHRINK != 0
        || size > old && sealed & seals::F_SEAL_GROW != 0
    {
        return Err(Errno::EPERM);
    }
    if size > old {
        page_cache.zero_tail(old);
    }
    page_cache.set_size(size);
    Ok(())
}

/// `fallocate(2)` on a page cache in memory: allocates pages, punches holes, zeroes ranges.
pub fn allocate(page_cache: &PageCache, mode: u32, offset: u64, length: u64) -> Result<()> {
    use mode::*;
    let known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
    if mode & !known != 0 || mode == FALLOC_FL_PUNCH_HOLE {
        return Err(Errno::EOPNOTSUPP);
    }
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    if end > SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    let _content = page_cache.lock_content();
    let sealed = page_cache.seals();
    if mode & FALLOC_FL_PUNCH_HOLE != 0 {
        if sealed & (seals::F_SEAL_WRITE | seals::F_SEAL_FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        page_cache.punch(offset, length);
        return Ok(());
    }
    let old = page_cache.size();
    if mode & FALLOC_FL_KEEP_SIZE == 0 && end > old {
        if sealed & seals::F_SEAL_GROW != 0 {
            return Err(Errno::EPERM);
        }
        page_cache.zero_tail(old);
    }
    for index in offset / PAGE as u64..end.div_ceil(PAGE as u64) {
        page_cache.page_for_write(index)?;
    }
    if mode & FALLOC_FL_KEEP_SIZE == 0 {
        page_cache.grow_to(end);
    }
    Ok(())
}

/// `lseek(2)` on a page cache, with real holes.
pub fn seek(
    page_cache: &PageCache,
    file: &OpenFile,
    position: u64,
    offset: i64,
    whence: Whence,
) -> Result<u64> {
    match whence {
        Whence::Data | Whence::Hole => {
            let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            page_cache.seek_content(from, whence == Whence::Data)
        }
        _ => default_seek(file, position, offset, whence),
    }
}

/// Whether a file of this kind keeps its content in a page cache.
pub fn has_page_cache(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::BlockDevice)
}
