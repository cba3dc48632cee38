//! Reading and writing a file through its page cache: the part that is the same for all file
//! systems with pages.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::ahead::{self, WINDOW};
use super::inode::FileKind;
use super::open_file::{OpenFile, Whence, default_seek};
use super::plate::{PAGE, Plate, seals};
use super::transfer::{Input, Output};
use crate::schedule;

/// The largest size of a file (`MAX_LFS_FILESIZE`).
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// `fallocate(2)` modes.
pub mod mode {
    #![allow(missing_docs, reason = "the names are those of fallocate(2)")]
    pub const FALLOC_FL_KEEP_SIZE: u32 = 1;
    pub const FALLOC_FL_PUNCH_HOLE: u32 = 2;
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
pub fn read(plate: &Plate, offset: u64, out: &mut Output<'_>) -> Result<usize> {
    read_with(plate, None, offset, out)
}

/// Like [`read`], for a cached file: reading in order requests the next window ahead of time
/// ([`ahead`]).
pub fn read_cached(plate: &Arc<Plate>, offset: u64, out: &mut Output<'_>) -> Result<usize> {
    read_with(plate, Some(plate), offset, out)
}

#[inline]
fn read_with(
    plate: &Plate,
    cached: Option<&Arc<Plate>>,
    mut offset: u64,
    out: &mut Output<'_>,
) -> Result<usize> {
    let outcome = loop {
        let size = plate.size();
        if offset >= size || out.remaining() == 0 {
            break Ok(());
        }
        let within = (offset % PAGE as u64) as usize;
        let length = (PAGE - within).min(out.remaining());
        let length = length.min(usize::try_from(size - offset).unwrap_or(usize::MAX));
        let index = offset / PAGE as u64;
        let put = match plate.peek(index) {
            Some(frame) => {
                if let Some(cached) = cached
                    && index.is_multiple_of(WINDOW)
                {
                    ahead::ask(cached, index + WINDOW, WINDOW);
                }
                out.put_frame(&frame, within, length)
            }
            None if plate.is_memory() => out.zero(length),
            None => {
                let wanted = (out.remaining() as u64).div_ceil(PAGE as u64) + 1;
                let wanted = wanted.max(WINDOW - index % WINDOW);
                if let Some(cached) = cached
                    && (index == 0 || plate.peek(index - 1).is_some())
                {
                    ahead::ask(cached, index + wanted, WINDOW);
                }
                plate.readahead(index, wanted);
                match plate.page(index) {
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
    plate: &Plate,
    file: &OpenFile,
    offset: &mut u64,
    input: &mut Input<'_>,
) -> Result<usize> {
    let _content = plate.lock_content();
    if file.appends() {
        *offset = plate.size();
    }
    write_locked(plate, *offset, input)
}

/// Like [`write()`], for a caller that holds the content lock.
pub fn write_locked(plate: &Plate, offset: u64, input: &mut Input<'_>) -> Result<usize> {
    if input.remaining() == 0 {
        return Ok(0);
    }
    let sealed = plate.seals();
    if sealed & (seals::F_SEAL_WRITE | seals::F_SEAL_FUTURE_WRITE) != 0 {
        return Err(Errno::EPERM);
    }
    if offset >= SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    input.limit(usize::try_from(SIZE_MAX - offset).unwrap_or(usize::MAX));
    let old = plate.size();
    if sealed & seals::F_SEAL_GROW != 0 && offset.saturating_add(input.remaining() as u64) > old {
        return Err(Errno::EPERM);
    }
    if offset > old {
        // Writes through a mapping may have left bytes beyond the old end in its page.
        plate.zero_tail(old);
    }
    let mut at = offset;
    let outcome = loop {
        if input.remaining() == 0 {
            break Ok(());
        }
        let within = (at % PAGE as u64) as usize;
        let length = (PAGE - within).min(input.remaining());
        let taken = plate
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
        plate.grow_to(at);
        plate.touch();
    }
    input.finish(outcome)
}

/// Changes the size, with the checks of `ftruncate(2)` on seals and limits.
pub fn truncate(plate: &Plate, size: u64) -> Result<()> {
    if size > SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    let _content = plate.lock_content();
    let (old, sealed) = (plate.size(), plate.seals());
    if size < old && sealed & seals::F_SEAL_SHRINK != 0
        || size > old && sealed & seals::F_SEAL_GROW != 0
    {
        return Err(Errno::EPERM);
    }
    if size > old {
        plate.zero_tail(old);
    }
    plate.set_size(size);
    Ok(())
}

/// `fallocate(2)` on a page cache in memory: allocates pages, punches holes, zeroes ranges.
pub fn allocate(plate: &Plate, mode: u32, offset: u64, length: u64) -> Result<()> {
    use mode::*;
    let known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE;
    if mode & !known != 0 || mode == FALLOC_FL_PUNCH_HOLE {
        return Err(Errno::EOPNOTSUPP);
    }
    let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
    if end > SIZE_MAX {
        return Err(Errno::EFBIG);
    }
    let _content = plate.lock_content();
    let sealed = plate.seals();
    if mode & FALLOC_FL_PUNCH_HOLE != 0 {
        if sealed & (seals::F_SEAL_WRITE | seals::F_SEAL_FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        plate.punch(offset, length);
        return Ok(());
    }
    let old = plate.size();
    if mode & FALLOC_FL_KEEP_SIZE == 0 && end > old {
        if sealed & seals::F_SEAL_GROW != 0 {
            return Err(Errno::EPERM);
        }
        plate.zero_tail(old);
    }
    for index in offset / PAGE as u64..end.div_ceil(PAGE as u64) {
        plate.page_for_write(index)?;
    }
    if mode & FALLOC_FL_KEEP_SIZE == 0 {
        plate.grow_to(end);
    }
    Ok(())
}

/// `lseek(2)` on a page cache, with real holes.
pub fn seek(
    plate: &Plate,
    file: &OpenFile,
    position: u64,
    offset: i64,
    whence: Whence,
) -> Result<u64> {
    match whence {
        Whence::Data | Whence::Hole => {
            let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            plate.seek_content(from, whence == Whence::Data)
        }
        _ => default_seek(file, position, offset, whence),
    }
}

/// Whether a file of this kind keeps its content in a page cache.
pub fn has_plate(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::BlockDevice)
}
