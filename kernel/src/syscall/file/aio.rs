//! Asynchronous input and output: `io_setup`, `io_submit`, `io_getevents` and their kin. Which error
//! comes when follows fs/aio.c of Linux 6.1; [`crate::ipc::aio`] has the contexts.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::aio::*;
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_machine::time::monotonic_ns;
use hayate_machine::user::{UserBytes, UserPtr};

use super::events::with_mask;
use super::io::{
    FileOffset, check_buffer, check_read_flags, check_write_flags, read_file, sync_open, vector,
    write_flagged,
};
use super::{credentials, open_file};
use crate::credentials::Capability;
use crate::ipc::aio::{Begun, Context, Named, poll};
use crate::ipc::{aio, eventfd};
use crate::memory;
use crate::memory::map::{MapRequest, Placement};
use crate::memory::region::{Backing, Protection, RegionFlags};
use crate::vfs::inode::FileKind;
use crate::vfs::open_file::{OpenFile, Traits};
use crate::vfs::poll::Events;
use crate::vfs::transfer::{Input, Output};

/// `io_setup(2)`
pub fn io_setup(events: u32, id: usize) -> Result<()> {
    let id = UserPtr::<u64>::new(id);
    if id.read()? != 0 || events == 0 {
        return Err(Errno::EINVAL);
    }
    let space = memory::current();
    let file = aio::open(events, space.serial())?;
    let context = Context::of(&file, space.serial()).ok_or(Errno::EINVAL)?;
    let length = context.memory().size() as usize;
    let at = space.map(MapRequest {
        address: 0,
        place: Placement::Hint,
        length,
        protection: Protection::READ | Protection::WRITE,
        // The child of a fork has zeroes there, which no library takes for a ring, and does not
        // keep the context alive.
        flags: RegionFlags::SHARED | RegionFlags::MAY_WRITE | RegionFlags::WIPE_ON_FORK,
        backing: Some(Backing::file(context.memory().clone(), file.clone(), true)?),
        offset: 0,
        // So that its pages count as the program's.
        populate: true,
    })?;
    let told = id.write(&(at as u64));
    if told.is_err() {
        // Nobody knows the address; the context goes with the region.
        space.unmap(at, length)?;
    }
    told
}

/// The file of the context with this identifier: `EINVAL`.
fn file_of(id: usize) -> Result<Arc<OpenFile>> {
    memory::current().file_mapped_at(id).ok_or(Errno::EINVAL)
}

/// The context of such a file: `EINVAL`.
fn context_of(file: &OpenFile) -> Result<&Context> {
    Context::of(file, memory::current().serial()).ok_or(Errno::EINVAL)
}

/// `io_destroy(2)`
pub fn io_destroy(id: usize) -> Result<()> {
    let file = file_of(id)?;
    let context = context_of(&file)?;
    context.destroy()?;
    // What the program may have mapped or unmapped there itself is its own loss.
    let _ = memory::current().unmap(id, context.memory().size() as usize);
    Ok(())
}

/// `io_submit(2)`
pub fn io_submit(id: usize, count: i64, requests: usize) -> Result<usize> {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    let file = file_of(id)?;
    let context = context_of(&file)?;
    for number in 0..count.min(context.places()) {
        let one = UserPtr::<u64>::new(requests).at(number).read();
        if let Err(error) = one.and_then(|request| submit(context, request)) {
            return if number == 0 { Err(error) } else { Ok(number) };
        }
    }
    Ok(count.min(context.places()))
}

fn submit(context: &Context, address: u64) -> Result<()> {
    let request = UserPtr::<Iocb>::new(address as usize).read()?;
    if request.aio_reserved2 != 0 || request.aio_nbytes > i64::MAX as u64 {
        return Err(Errno::EINVAL);
    }
    let begun = context.begin()?;
    let file = open_file(request.aio_fildes)?;
    let eventfd = if request.aio_flags & IOCB_FLAG_RESFD != 0 {
        let eventfd = open_file(request.aio_resfd)?;
        if !eventfd::is(&eventfd) {
            return Err(Errno::EINVAL);
        }
        Some(eventfd)
    } else {
        None
    };
    UserPtr::<u32>::new(address as usize + KEY).write(&KIOCB_KEY)?;
    let named = Named { data: request.aio_data, request: address };
    match request.aio_lio_opcode {
        IOCB_CMD_PREAD | IOCB_CMD_PREADV => {
            report(begun, named, read(&request, &file)?, eventfd);
        }
        IOCB_CMD_PWRITE | IOCB_CMD_PWRITEV => {
            report(begun, named, write(&request, &file)?, eventfd);
        }
        IOCB_CMD_FSYNC | IOCB_CMD_FDSYNC => {
            let has_more = request.aio_buf != 0
                || request.aio_offset != 0
                || request.aio_nbytes != 0
                || request.aio_rw_flags != 0;
            let kind = file.inode().attributes().kind;
            let can =
                matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::BlockDevice);
            if has_more || !can {
                return Err(Errno::EINVAL);
            }
            let outcome = sync_open(&file, request.aio_lio_opcode == IOCB_CMD_FDSYNC);
            report(begun, named, outcome.map(|()| 0), eventfd);
        }
        IOCB_CMD_POLL => {
            let has_more =
                request.aio_offset != 0 || request.aio_nbytes != 0 || request.aio_rw_flags != 0;
            let events = u16::try_from(request.aio_buf).map_err(|_| Errno::EINVAL)?;
            if has_more {
                return Err(Errno::EINVAL);
            }
            let wanted = Events::from_bits_retain(u32::from(events));
            poll::submit(begun, file, wanted, (named, eventfd))?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Reports the result of a request that was carried out. A call that a signal interrupted cannot be
/// made again (`aio_rw_done`).
fn report(begun: Begun<'_>, named: Named, outcome: Result<usize>, eventfd: Option<Arc<OpenFile>>) {
    let result = match outcome {
        Ok(count) => count as i64,
        Err(error) if error.is_restart() => Errno::EINTR.to_return(),
        Err(error) => error.to_return(),
    };
    begun.complete(named, result, eventfd.as_deref());
}

/// The memory that a request reads into or writes from.
enum Buffer {
    One(usize, usize),
    Pieces(Vec<UserBytes>),
}

/// The memory of a request, and where in the file it goes (`aio_prep_rw`, `aio_setup_rw`,
/// `rw_verify_area`).
fn prepared(request: &Iocb, file: &OpenFile) -> Result<(Buffer, FileOffset)> {
    if request.aio_flags & IOCB_FLAG_IOPRIO != 0 {
        check_priority(request.aio_reqprio as u16)?;
    }
    let (address, length) = (request.aio_buf as usize, request.aio_nbytes as usize);
    let is_vector = matches!(request.aio_lio_opcode, IOCB_CMD_PREADV | IOCB_CMD_PWRITEV);
    let buffer = if is_vector {
        Buffer::Pieces(vector(address, length)?)
    } else {
        check_buffer(address, length)?;
        Buffer::One(address, length)
    };
    let offset = u64::try_from(request.aio_offset).map_err(|_| Errno::EINVAL)?;
    let has_offsets = file.traits().contains(Traits::ADDRESSABLE);
    Ok((buffer, if has_offsets { FileOffset::At(offset) } else { FileOffset::Current }))
}

/// Reads; the outer result is that of the submission.
fn read(request: &Iocb, file: &OpenFile) -> Result<Result<usize>> {
    check_read_flags(file, request.aio_rw_flags)?;
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    if file.inode().attributes().kind == FileKind::Directory {
        return Err(Errno::EINVAL);
    }
    let (buffer, place) = prepared(request, file)?;
    Ok(match buffer {
        Buffer::One(address, length) => read_file(file, place, &mut Output::user(address, length)),
        Buffer::Pieces(pieces) => read_file(file, place, &mut Output::vector(&pieces)),
    })
}

/// Writes; the outer result is that of the submission.
fn write(request: &Iocb, file: &OpenFile) -> Result<Result<usize>> {
    check_write_flags(file, request.aio_rw_flags)?;
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    let (buffer, place) = prepared(request, file)?;
    let flags = request.aio_rw_flags;
    Ok(match buffer {
        Buffer::One(address, length) => {
            write_flagged(file, place, &mut Input::user(address, length), flags)
        }
        Buffer::Pieces(pieces) => write_flagged(file, place, &mut Input::vector(&pieces), flags),
    })
}

/// Checks an I/O priority, which has no effect here (`ioprio_check_cap`, block/ioprio.c).
fn check_priority(priority: u16) -> Result<()> {
    let (class, level) = (priority >> 13, priority & 0x1fff);
    match class {
        1 => {
            let own = credentials();
            if !own.has(Capability::SysAdmin) && !own.has(Capability::SysNice) {
                return Err(Errno::EPERM);
            }
            if level < 8 { Ok(()) } else { Err(Errno::EINVAL) }
        }
        2 if level < 8 => Ok(()),
        0 if level == 0 => Ok(()),
        3 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// The deadline of a time to wait; `None`: there is none. One that is negative has passed.
fn deadline(timeout: usize) -> Result<Option<u64>> {
    if timeout == 0 {
        return Ok(None);
    }
    let time = UserPtr::<Timespec>::new(timeout).read()?;
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    Ok(Some(match u64::try_from(nanos.max(0)) {
        Ok(0) => 0,
        Ok(nanos) => monotonic_ns().saturating_add(nanos),
        Err(_) => u64::MAX,
    }))
}

fn take(id: usize, least: i64, most: i64, events: usize, until: Option<u64>) -> Result<usize> {
    let file = file_of(id)?;
    let context = context_of(&file)?;
    let (Ok(least), Ok(most)) = (usize::try_from(least), usize::try_from(most)) else {
        return Err(Errno::EINVAL);
    };
    if least > most {
        return Err(Errno::EINVAL);
    }
    let to = UserPtr::<[u8; 32]>::new(events);
    context.take((least, most), until, |number, event| to.at(number).write(event))
}

/// `io_getevents(2)`
pub fn io_getevents(
    id: usize,
    least: i64,
    most: i64,
    events: usize,
    timeout: usize,
) -> Result<usize> {
    let until = deadline(timeout)?;
    take(id, least, most, events, until)
}

/// `io_pgetevents(2)`
pub fn io_pgetevents(
    id: usize,
    least: i64,
    most: i64,
    events: usize,
    timeout: usize,
    mask: usize,
) -> Result<usize> {
    let until = deadline(timeout)?;
    let [set, size] = match mask {
        0 => [0, 0],
        mask => UserPtr::<[u64; 2]>::new(mask).read()?,
    };
    with_mask(set as usize, size as usize, || {
        // Under another mask, the signal's handler runs before the old one is there again.
        take(id, least, most, events, until).map_err(|error| match error {
            Errno::EINTR => Errno::ERESTARTNOHAND,
            error => error,
        })
    })
}

/// `io_cancel(2)`: that the request is being given up is the answer; its event comes as any other.
pub fn io_cancel(id: usize, request: usize, _: usize) -> Result<()> {
    if UserPtr::<u32>::new(request.wrapping_add(KEY)).read()? != KIOCB_KEY {
        return Err(Errno::EINVAL);
    }
    let file = file_of(id)?;
    context_of(&file)?.cancel(request as u64)?;
    Err(Errno::EINPROGRESS)
}
