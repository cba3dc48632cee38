//! `copy_file_range(2)`: copies bytes from one file to another without the program.
//!
//! The checks and their order are those of `generic_copy_file_checks` (fs/read_write.c, Linux 6.1).
//! There are no swap files and no immutable files here, so `ETXTBSY` and `EPERM` do not occur.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use super::open_file;
use crate::ipc::splice;
use crate::ipc::splice::Side;
use crate::vfs::inode::FileKind;
use crate::vfs::notify;
use crate::vfs::open_file::OpenFile;
use crate::vfs::transfer::MAXIMUM;
use crate::vfs::watch::Mask;

/// Where one side begins: at an offset given by the call, or at the file's position.
struct Begin {
    /// The address of the program's offset.
    pointer: Option<UserPtr<i64>>,
    at: u64,
}

impl Begin {
    /// A negative offset counts as a very large one until it is checked.
    fn read(file: &OpenFile, address: usize) -> Result<Begin> {
        match UserPtr::<i64>::new(address).optional() {
            Some(pointer) => Ok(Begin { pointer: Some(pointer), at: pointer.read()? as u64 }),
            None => Ok(Begin { pointer: None, at: *file.lock_position() }),
        }
    }

    fn side<'a>(&self, at: &'a mut u64) -> Side<'a> {
        if self.pointer.is_some() { Side::At(at) } else { Side::Position }
    }

    /// Writes the new offset to the program.
    fn write(&self, moved: usize) -> Result<()> {
        match self.pointer {
            Some(pointer) => pointer.write(&((self.at + moved as u64) as i64)),
            None => Ok(()),
        }
    }
}

/// Checks whether bytes can be copied between these files at all.
fn check_files(from: &OpenFile, to: &OpenFile) -> Result<()> {
    let kinds = [from.inode().attributes().kind, to.inode().attributes().kind];
    if kinds.contains(&FileKind::Directory) {
        return Err(Errno::EISDIR);
    }
    if kinds != [FileKind::Regular; 2] {
        return Err(Errno::EINVAL);
    }
    if !from.readable() || !to.writable() || to.appends() {
        return Err(Errno::EBADF);
    }
    let device = |file: &OpenFile| file.location().mount.filesystem().device();
    if device(from) != device(to) { Err(Errno::EXDEV) } else { Ok(()) }
}

/// The part of `count` that can be copied: as much as there is, and as may be written.
fn check_range(
    from: &OpenFile,
    from_at: u64,
    to: &OpenFile,
    to_at: u64,
    count: usize,
) -> Result<usize> {
    let wraps = |at: u64| at.checked_add(count as u64).is_none();
    if wraps(from_at) || wraps(to_at) {
        return Err(Errno::EOVERFLOW);
    }
    let there = from.metadata()?.size.saturating_sub(from_at);
    let mut count = there.min(count as u64);
    let limit = super::size_limit();
    if limit != u64::MAX && to_at >= limit {
        super::raise(hayate_abi::signal::SIGXFSZ);
        return Err(Errno::EFBIG);
    }
    let largest = limit.min(i64::MAX as u64);
    if to_at >= largest {
        return Err(Errno::EFBIG);
    }
    count = count.min(largest - to_at);
    let overlaps = from_at < to_at + count && to_at < from_at.saturating_add(count);
    if Arc::ptr_eq(from.inode(), to.inode()) && overlaps {
        return Err(Errno::EINVAL);
    }
    Ok(usize::try_from(count).unwrap_or(MAXIMUM).min(MAXIMUM))
}

/// `copy_file_range(2)`
pub fn copy_file_range(
    input: i32,
    input_offset: usize,
    out: i32,
    out_offset: usize,
    count: usize,
    flags: u32,
) -> Result<usize> {
    let (from, to) = (open_file(input)?, open_file(out)?);
    let begin = Begin::read(&from, input_offset)?;
    let end = Begin::read(&to, out_offset)?;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    check_files(&from, &to)?;
    let count = check_range(&from, begin.at, &to, end.at, count)?;
    if i64::try_from(begin.at).is_err() || i64::try_from(end.at).is_err() {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(0);
    }
    super::io::remove_privileges(to.inode())?;
    let (mut from_at, mut to_at) = (begin.at, end.at);
    let (from_side, to_side) = (begin.side(&mut from_at), end.side(&mut to_at));
    let moved = splice::copy(&from, from_side, &to, to_side, count, super::io::write_piece);
    let moved = super::io::count_both(moved)?;
    if moved != 0 {
        notify::file(&from, Mask::ACCESS);
        notify::file(&to, Mask::MODIFY);
        begin.write(moved)?;
        end.write(moved)?;
    }
    Ok(moved)
}
