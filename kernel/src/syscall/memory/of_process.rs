//! `process_madvise(2)`, `process_mrelease(2)`: advice on the memory of the process of a
//! descriptor, and giving it back for a process that is ending.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::file::Iovec;
use hayate_abi::raw::general as raw;
use hayate_abi::{Errno, Result};
use machine::user::{self, UserPtr};

use super::super::file::open_file;
use crate::credentials::Capability;
use crate::memory;
use crate::memory::Space;
use crate::memory::advise::Advice;
use crate::process;
use crate::process::access::{self, Ids};
use crate::process::record::notice;
use crate::process::{Process, pidfd, pids};
use crate::reclaim::growth::Grow;

/// The most pieces of a vector (`UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;
/// The most bytes of all pieces together (`MAX_RW_COUNT`); what is beyond does not count.
const BYTES_MAX: usize = 0x7fff_f000;

/// Reads the ranges that advice is about (`import_iovec`). `EINVAL`, `EFAULT`, `ENOMEM`.
fn ranges(address: usize, count: usize) -> Result<Vec<(usize, usize)>> {
    if count > PIECES_MAX {
        return Err(Errno::EINVAL);
    }
    let mut ranges = Vec::new();
    ranges.make_room_exact(count)?;
    let first = UserPtr::<Iovec>::new(address);
    let mut room = BYTES_MAX;
    for index in 0..count {
        let piece = first.at(index).read()?;
        let (start, length) = (piece.iov_base as usize, piece.iov_len as usize);
        if length > isize::MAX as usize {
            return Err(Errno::EINVAL);
        }
        if !user::in_user_half(start, length) {
            return Err(Errno::EFAULT);
        }
        let length = length.min(room);
        room -= length;
        ranges.push((start, length));
    }
    Ok(ranges)
}

/// The space of a process whose addresses the caller may know (`mm_access`): `EACCES` otherwise,
/// `ESRCH` for a process that has ended.
fn space_of(target: &Arc<Process>) -> Result<Arc<Space>> {
    let first = target.thread(target.id()).ok_or(Errno::ESRCH)?;
    let (space, allowed) =
        target.steady(|| (first.space(), access::check(&first, Ids::FileSystem)));
    let space = space.ok_or(Errno::ESRCH)?;
    let is_own = core::ptr::eq(&*memory::current(), &*space);
    if is_own || allowed.is_ok() { Ok(space) } else { Err(Errno::EACCES) }
}

/// `process_madvise(2)`: returns the number of bytes that the advice was applied to, which are
/// fewer than asked for if it fails at a later range.
pub fn process_madvise(
    fd: i32,
    vector: usize,
    count: usize,
    advice: i32,
    flags: u32,
) -> Result<usize> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let ranges = ranges(vector, count)?;
    let target = pidfd::process(&*open_file(fd)?)?;
    let advice = match advice as u32 {
        raw::MADV_COLD | raw::MADV_PAGEOUT => Advice::Nothing,
        raw::MADV_WILLNEED => Advice::WillNeed,
        // MADV_COLLAPSE too, as for madvise(2).
        _ => return Err(Errno::EINVAL),
    };
    let space = space_of(&target)?;
    process::current().credentials().require(Capability::SysNice)?;
    let mut done = 0;
    for (start, length) in ranges.into_iter().filter(|&(_, length)| length > 0) {
        match space.advise(start, length, advice) {
            Ok(()) => done += length,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Whether a thread of a process has a space. `ENOMEM`.
fn has_space(process: &Process, space: &Arc<Space>) -> Result<bool> {
    // Not while the list of threads is locked: this may be the last reference to a space.
    let threads = process.threads()?;
    Ok(threads.iter().filter_map(|thread| thread.space()).any(|own| Arc::ptr_eq(&own, space)))
}

/// Whether a process is ending and needs its memory no more, not even for a core file.
fn needs_no_memory(process: &Process) -> bool {
    process.is_exiting() && process.notice() & notice::DUMP == 0
}

/// `process_mrelease(2)`: the memory of a process that is ending, with all that share it
/// (`task_will_free_mem`).
pub fn process_mrelease(fd: i32, flags: u32) -> Result<()> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let target = pidfd::process(&*open_file(fd)?)?;
    let threads = target.threads()?;
    let space = threads.iter().find_map(|thread| thread.space()).ok_or(Errno::ESRCH)?;
    for process in pids::processes()? {
        if !needs_no_memory(&process) && has_space(&process, &space)? {
            return Err(Errno::EINVAL);
        }
    }
    space.unmap_private()
}
