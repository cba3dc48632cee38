//! Reading, writing, positions.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::file::Iovec;
use hayate_abi::signal::SIGXFSZ;
use hayate_abi::{Errno, Result};
use hayate_machine::user::{UserBytes, UserPtr, in_user_half};

use super::{open_file, raise, raise_broken_pipe};
use crate::fs::disk;
use crate::memory::USER_END;
use crate::page_cache::read_ahead;
use crate::process;
use crate::reclaim::growth::Grow;
use crate::vfs::inode::{FileKind, Inode};
use crate::vfs::mount;
use crate::vfs::notify;
use crate::vfs::open_file::flags::{O_APPEND, O_NONBLOCK};
use crate::vfs::open_file::{OpenFile, Traits, Whence};
use crate::vfs::set_id;
use crate::vfs::transfer::{Input, MAXIMUM, Output};
use crate::vfs::watch::Mask;

/// The most pieces of a vector (`UIO_MAXIOV`).
pub const PIECES_MAX: usize = 1024;

const RWF_HIPRI: u32 = 1;
const RWF_DSYNC: u32 = 2;
const RWF_SYNC: u32 = 4;
const RWF_NOWAIT: u32 = 8;
const RWF_APPEND: u32 = 16;
const RWF_ALL: u32 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND;

/// Where in the file a call reads or writes.
#[derive(Clone, Copy)]
pub enum FileOffset {
    /// At the position, which moves.
    Current,
    /// At an offset given by the call.
    At(u64),
}

/// Counts a call that moves bytes between two files (`do_sendfile`, fs/read_write.c).
pub fn count_both(outcome: Result<usize>) -> Result<usize> {
    let thread = process::current();
    thread.moved.read(outcome.unwrap_or(0));
    thread.moved.wrote(outcome.unwrap_or(0));
    outcome
}

fn offset(raw: i64) -> Result<FileOffset> {
    u64::try_from(raw).map(FileOffset::At).map_err(|_| Errno::EINVAL)
}

/// Reads, counts the call, and notifies watchers.
#[inline(always)]
pub fn read_file(file: &OpenFile, place: FileOffset, out: &mut Output<'_>) -> Result<usize> {
    let outcome = match place {
        FileOffset::Current => file.read(out),
        FileOffset::At(offset) => file.read_at(offset, out),
    };
    process::current().moved.read(outcome.unwrap_or(0));
    let count = outcome?;
    if count != 0 {
        notify::file(file, Mask::ACCESS);
    }
    Ok(count)
}

/// Writes, counts the call, and notifies watchers; raises SIGPIPE and SIGXFSZ for their errors.
#[inline(always)]
pub fn write_file(file: &OpenFile, place: FileOffset, input: &mut Input<'_>) -> Result<usize> {
    // A stream skips the code for positions at once.
    let outcome = if file.traits().contains(Traits::POSITIONED) {
        write_positioned(file, place, input)
    } else {
        write_there(file, place, input)
    };
    process::current().moved.wrote(outcome.unwrap_or(0));
    match outcome {
        Ok(0) => {}
        Ok(_) => notify::file(file, Mask::MODIFY),
        Err(Errno::EPIPE) => raise_broken_pipe(file),
        Err(_) => {}
    }
    outcome
}

/// Writes a piece of a longer transfer, at an offset or at the position. The limits apply as to any
/// write, but the caller notifies watchers of the whole transfer.
pub fn write_piece(file: &OpenFile, at: Option<u64>, input: &mut Input<'_>) -> Result<usize> {
    write_positioned(file, at.map_or(FileOffset::Current, FileOffset::At), input)
}

#[inline(always)]
fn write_there(file: &OpenFile, place: FileOffset, input: &mut Input<'_>) -> Result<usize> {
    match place {
        FileOffset::Current => file.write(input),
        FileOffset::At(offset) => file.write_at(offset, input),
    }
}

/// A separate function, so that a stream need not save the registers that this one uses.
#[inline(never)]
fn write_positioned(file: &OpenFile, place: FileOffset, input: &mut Input<'_>) -> Result<usize> {
    if file.traits().contains(Traits::REGULAR) && input.remaining() != 0 {
        limit_size(file, place, input)?;
        remove_privileges(file.inode())?;
    }
    write_there(file, place, input)
}

/// Applies `RLIMIT_FSIZE`: cuts a write that would pass the limit, or refuses it with SIGXFSZ
/// (`generic_write_check_limits`, mm/filemap.c).
#[cold]
fn check_limit(limit: u64, at: u64, input: &mut Input<'_>) -> Result<()> {
    if at >= limit {
        raise(SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    input.limit(usize::try_from(limit - at).unwrap_or(usize::MAX));
    Ok(())
}

fn limit_size(file: &OpenFile, place: FileOffset, input: &mut Input<'_>) -> Result<()> {
    let limit = super::size_limit();
    if limit == u64::MAX || file.inode().attributes().kind != FileKind::Regular {
        return Ok(());
    }
    let at = match place {
        _ if file.appends() => file.metadata()?.size,
        FileOffset::At(offset) => offset,
        FileOffset::Current => *file.lock_position(),
    };
    check_limit(limit, at, input)
}

/// Removes the set-id bits, as an unprivileged user changes the content.
#[inline]
pub fn remove_privileges(inode: &Arc<dyn Inode>) -> Result<()> {
    if set_id::are_there(inode) {
        set_id::drop_for_write(inode, &super::credentials())?;
    }
    Ok(())
}

/// `read(2)`
pub fn read(fd: i32, buffer: usize, count: usize) -> Result<usize> {
    read_open(&*process::current().file(fd)?, buffer, count)
}

#[inline(always)]
fn read_open(file: &OpenFile, buffer: usize, count: usize) -> Result<usize> {
    // A file of `O_PATH` is neither readable nor writable.
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    let length = length(buffer, count)?;
    read_file(file, FileOffset::Current, &mut Output::user_within(buffer, length))
}

/// `write(2)`
pub fn write(fd: i32, buffer: usize, count: usize) -> Result<usize> {
    write_open(&*process::current().file(fd)?, buffer, count)
}

#[inline(always)]
fn write_open(file: &OpenFile, buffer: usize, count: usize) -> Result<usize> {
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    let length = length(buffer, count)?;
    write_file(file, FileOffset::Current, &mut Input::user_within(buffer, length))
}

/// `pread(2)`
pub fn pread64(fd: i32, buffer: usize, count: usize, at: i64) -> Result<usize> {
    let place = offset(at)?;
    let file = open_file(fd)?;
    check_buffer(buffer, count)?;
    read_file(&file, place, &mut Output::user(buffer, count))
}

/// `pwrite(2)`
pub fn pwrite64(fd: i32, buffer: usize, count: usize, at: i64) -> Result<usize> {
    let place = offset(at)?;
    let file = open_file(fd)?;
    check_buffer(buffer, count)?;
    write_file(&file, place, &mut Input::user(buffer, count))
}

/// Refuses a buffer outside the user half before anything happens (`access_ok`).
#[inline]
pub fn check_buffer(buffer: usize, count: usize) -> Result<()> {
    if (count as isize) < 0 {
        return Err(Errno::EINVAL);
    }
    if in_user_half(buffer, count) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// The length of a buffer, which is checked as by [`check_buffer`]; at most [`MAXIMUM`].
#[inline(always)]
fn length(buffer: usize, count: usize) -> Result<usize> {
    if count <= MAXIMUM && buffer <= USER_END - count {
        return Ok(count);
    }
    long_or_wrong(buffer, count)
}

#[cold]
fn long_or_wrong(buffer: usize, count: usize) -> Result<usize> {
    check_buffer(buffer, count).map(|()| count.min(MAXIMUM))
}

/// Copies a vector of pieces and checks it (`import_iovec`).
pub fn vector(address: usize, count: usize) -> Result<Vec<UserBytes>> {
    if count > PIECES_MAX {
        return Err(Errno::EINVAL);
    }
    let mut pieces = Vec::new();
    pieces.make_room_exact(count)?;
    let mut total = 0i64;
    for index in 0..count {
        let piece = UserPtr::<Iovec>::new(address).at(index).read()?;
        let length = i64::try_from(piece.iov_len).map_err(|_| Errno::EINVAL)?;
        total = total.checked_add(length).ok_or(Errno::EINVAL)?;
        let bytes = UserBytes::new(piece.iov_base as usize, piece.iov_len as usize);
        if !in_user_half(bytes.address, bytes.len) {
            return Err(Errno::EFAULT);
        }
        pieces.push(bytes);
    }
    Ok(pieces)
}

/// `readv(2)`
pub fn readv(fd: i32, address: usize, count: usize) -> Result<usize> {
    let file = open_file(fd)?;
    let pieces = vector(address, count)?;
    read_file(&file, FileOffset::Current, &mut Output::vector(&pieces))
}

/// `writev(2)`
pub fn writev(fd: i32, address: usize, count: usize) -> Result<usize> {
    let file = open_file(fd)?;
    let pieces = vector(address, count)?;
    write_file(&file, FileOffset::Current, &mut Input::vector(&pieces))
}

/// `preadv(2)`. On x86-64 the low word is the whole offset.
pub fn preadv(fd: i32, address: usize, count: usize, at: i64, _high: usize) -> Result<usize> {
    let place = offset(at)?;
    let file = open_file(fd)?;
    let pieces = vector(address, count)?;
    read_file(&file, place, &mut Output::vector(&pieces))
}

/// `pwritev(2)`
pub fn pwritev(fd: i32, address: usize, count: usize, at: i64, _high: usize) -> Result<usize> {
    let place = offset(at)?;
    let file = open_file(fd)?;
    let pieces = vector(address, count)?;
    write_file(&file, place, &mut Input::vector(&pieces))
}

fn place_or_position(at: i64) -> Result<FileOffset> {
    if at == -1 { Ok(FileOffset::Current) } else { offset(at) }
}

/// `preadv2(2)`
pub fn preadv2(
    fd: i32,
    address: usize,
    count: usize,
    at: i64,
    _high: usize,
    flags: u32,
) -> Result<usize> {
    let place = place_or_position(at)?;
    let file = open_file(fd)?;
    check_read_flags(&file, flags)?;
    let pieces = vector(address, count)?;
    read_file(&file, place, &mut Output::vector(&pieces))
}

/// Checks the flags of one read (`RWF_*`; `kiocb_set_rw_flags`, include/linux/fs.h): `EOPNOTSUPP`.
pub fn check_read_flags(file: &OpenFile, flags: u32) -> Result<()> {
    let may_wait = !file.traits().contains(Traits::REGULAR) && !file.nonblocking();
    if flags & !RWF_ALL != 0 || flags & RWF_NOWAIT != 0 && may_wait {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// `pwritev2(2)`
pub fn pwritev2(
    fd: i32,
    address: usize,
    count: usize,
    at: i64,
    _high: usize,
    flags: u32,
) -> Result<usize> {
    let place = place_or_position(at)?;
    let file = open_file(fd)?;
    check_write_flags(&file, flags)?;
    let pieces = vector(address, count)?;
    write_flagged(&file, place, &mut Input::vector(&pieces), flags)
}

/// Checks the flags of one write, as [`check_read_flags`].
pub fn check_write_flags(file: &OpenFile, flags: u32) -> Result<()> {
    if flags & !RWF_ALL != 0 || flags & RWF_NOWAIT != 0 && file.flags() & O_NONBLOCK == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// Writes as [`write_file`], heeding the flags of this one write.
pub fn write_flagged(
    file: &OpenFile,
    place: FileOffset,
    input: &mut Input<'_>,
    flags: u32,
) -> Result<usize> {
    let written = if flags & RWF_APPEND != 0 && file.flags() & O_APPEND == 0 {
        // Append without O_APPEND on the file: the end is looked up for this call.
        let end = file.metadata()?.size;
        write_file(file, FileOffset::At(end), input)?
    } else {
        write_file(file, place, input)?
    };
    if flags & (RWF_SYNC | RWF_DSYNC) != 0 {
        file.ops().sync(file, flags & RWF_SYNC == 0)?;
    }
    Ok(written)
}

/// `lseek(2)`
pub fn lseek(fd: i32, offset: i64, whence: i32) -> Result<u64> {
    let file = open_file(fd)?;
    let whence = match whence {
        0 => Whence::Set,
        1 => Whence::Current,
        2 => Whence::End,
        3 => Whence::Data,
        4 => Whence::Hole,
        _ => return Err(Errno::EINVAL),
    };
    file.seek(offset, whence)
}

/// `fsync(2)`
pub fn fsync(fd: i32) -> Result<()> {
    sync_file(fd, false)
}

/// `fdatasync(2)`
pub fn fdatasync(fd: i32) -> Result<()> {
    sync_file(fd, true)
}

fn sync_file(fd: i32, data_only: bool) -> Result<()> {
    sync_open(&*open_file(fd)?, data_only)
}

/// Writes what a file keeps in memory to where it lasts. `EINVAL`: this kind of file cannot.
pub fn sync_open(file: &OpenFile, data_only: bool) -> Result<()> {
    match file.inode().attributes().kind {
        FileKind::Regular | FileKind::Directory | FileKind::BlockDevice => {
            file.ops().sync(file, data_only)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `sync_file_range(2)`
pub fn sync_file_range(fd: i32, offset: i64, count: i64, flags: u32) -> Result<()> {
    let file = open_file(fd)?;
    if flags & !7 != 0 || offset < 0 || count < 0 || offset.checked_add(count).is_none() {
        return Err(Errno::EINVAL);
    }
    match file.inode().attributes().kind {
        FileKind::Regular | FileKind::Directory | FileKind::BlockDevice => {
            file.ops().sync(&file, true)
        }
        FileKind::Symlink => Err(Errno::EINVAL),
        _ => Err(Errno::ESPIPE),
    }
}

/// `sync(2)`
pub fn sync() -> Result<()> {
    let mut next = mount::filesystem_after(0);
    while let Some((_, mount)) = next {
        // The mount is not kept in use while its file system works.
        let filesystem = mount.filesystem().clone();
        drop(mount);
        // `sync` reports no errors; calls on a single file do.
        let _ = filesystem.sync();
        next = mount::filesystem_after(filesystem.device());
    }
    disk::sync_all();
    Ok(())
}

/// `syncfs(2)`
pub fn syncfs(fd: i32) -> Result<()> {
    open_file(fd)?.location().mount.filesystem().sync()
}

/// `readahead(2)`
pub fn readahead(fd: i32, offset: i64, count: usize) -> Result<()> {
    let file = open_file(fd)?;
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    let page_cache = file.inode().page_cache().ok_or(Errno::EINVAL)?;
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    read_ahead::ask_all(&page_cache, offset / 4096, (count as u64).div_ceil(4096).min(512));
    Ok(())
}

/// `posix_fadvise(2)`: advice about sequential use has no effect here; pages that will be needed
/// are read, and those that will not be are dropped, but for changed and mapped ones.
pub fn fadvise64(fd: i32, offset: i64, length: usize, advice: i32) -> Result<()> {
    let file = open_file(fd)?;
    if file.inode().attributes().kind == FileKind::Fifo {
        return Err(Errno::ESPIPE);
    }
    if !(0..=5).contains(&advice) || (length as i64) < 0 {
        return Err(Errno::EINVAL);
    }
    const POSIX_FADV_WILLNEED: i32 = 3;
    const POSIX_FADV_DONTNEED: i32 = 4;
    let Some(page_cache) = file.inode().page_cache() else { return Ok(()) };
    let Ok(offset) = u64::try_from(offset) else { return Ok(()) };
    match advice {
        POSIX_FADV_WILLNEED => {
            let pages = if length == 0 { 512 } else { (length as u64).div_ceil(4096).min(512) };
            read_ahead::ask_all(&page_cache, offset / 4096, pages);
        }
        POSIX_FADV_DONTNEED => {
            // Parts of pages stay, unless it is the last one up to the file's end (Linux 6.1,
            // mm/fadvise.c, `generic_fadvise`).
            let end = if length == 0 { u64::MAX } else { offset.saturating_add(length as u64) };
            let end = if end >= page_cache.size() { u64::MAX } else { end / 4096 };
            let first = offset.div_ceil(4096);
            if first < end {
                page_cache.let_go(first, end - 1);
            }
        }
        _ => {}
    }
    Ok(())
}
