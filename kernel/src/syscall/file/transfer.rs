//! `sendfile`, `splice`, `tee`, `vmsplice`.

use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use super::io;
use super::io::vector;
use super::{open_file, raise_broken_pipe};
use crate::ipc::pipe;
use crate::ipc::splice;
use crate::ipc::splice::Side;
use crate::vfs::inode::FileKind;
use crate::vfs::notify;
use crate::vfs::open_file::{OpenFile, Traits};
use crate::vfs::transfer::{Input, MAXIMUM, Output};
use crate::vfs::watch::Mask;

const SPLICE_F_NONBLOCK: u32 = 2;
const SPLICE_FLAGS: u32 = 0xf;

/// Reads an offset of the program, if it gave one.
fn read_offset(address: usize) -> Result<Option<u64>> {
    if address == 0 {
        return Ok(None);
    }
    let offset = UserPtr::<i64>::new(address).read()?;
    u64::try_from(offset).map(Some).map_err(|_| Errno::EINVAL)
}

/// Writes an offset back to the program.
fn write_offset(address: usize, offset: Option<u64>) -> Result<()> {
    match offset {
        Some(offset) => UserPtr::<i64>::new(address).write(&(offset as i64)),
        None => Ok(()),
    }
}

fn side(offset: &mut Option<u64>) -> Side<'_> {
    match offset {
        Some(offset) => Side::At(offset),
        None => Side::Position,
    }
}

/// Raises SIGPIPE for EPIPE where that is due.
fn report(to: &OpenFile, outcome: Result<usize>) -> Result<usize> {
    if outcome == Err(Errno::EPIPE) {
        raise_broken_pipe(to);
    }
    outcome
}

/// `sendfile(2)`
pub fn sendfile(out: i32, input: i32, offset: usize, count: usize) -> Result<usize> {
    let (from, to) = (open_file(input)?, open_file(out)?);
    let mut at = read_offset(offset)?;
    if !from.readable() || !to.writable() {
        return Err(Errno::EBADF);
    }
    if at.is_some() && !from.traits().contains(Traits::ADDRESSABLE) {
        return Err(Errno::ESPIPE);
    }
    if !from.traits().contains(Traits::REGULAR) || to.appends() {
        return Err(Errno::EINVAL);
    }
    if from.inode().attributes().kind == FileKind::Directory {
        return Err(Errno::EINVAL);
    }
    let count = count.min(MAXIMUM);
    let outcome = match pipe::end::of(&to) {
        // As much as the pipe has space for, as splice(2) (`do_sendfile`, fs/read_write.c, since
        // Linux 5.12).
        Some(target) => splice::into_pipe(&from, side(&mut at), target, count, to.nonblocking()),
        None => splice::copy(&from, side(&mut at), &to, Side::Position, count, io::write_piece),
    };
    let outcome = io::count_both(outcome);
    write_offset(offset, at)?;
    if outcome.is_ok_and(|moved| moved != 0) {
        notify::file(&from, Mask::ACCESS);
        notify::file(&to, Mask::MODIFY);
    }
    report(&to, outcome)
}

/// The offset that a call gives for a file; `EINVAL` if the file has none.
fn place_in(file: &OpenFile, offset: usize) -> Result<Option<u64>> {
    let at = read_offset(offset)?;
    if at.is_some() && !file.traits().contains(Traits::ADDRESSABLE) {
        return Err(Errno::EINVAL);
    }
    Ok(at)
}

/// `splice(2)`
pub fn splice(
    input: i32,
    input_offset: usize,
    out: i32,
    out_offset: usize,
    count: usize,
    flags: u32,
) -> Result<usize> {
    if flags & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(0);
    }
    let (from, to) = (open_file(input)?, open_file(out)?);
    if !from.readable() || !to.writable() {
        return Err(Errno::EBADF);
    }
    let count = count.min(MAXIMUM);
    let asked = flags & SPLICE_F_NONBLOCK != 0;
    let (from_pipe, to_pipe) = (pipe::end::of(&from), pipe::end::of(&to));
    if from_pipe.is_some() && input_offset != 0 || to_pipe.is_some() && out_offset != 0 {
        return Err(Errno::ESPIPE);
    }
    let outcome = match (from_pipe, to_pipe) {
        (Some(source), Some(target)) => {
            let nonblocking = asked || from.nonblocking() || to.nonblocking();
            splice::between_pipes(source, target, count, nonblocking, false)
        }
        (Some(source), None) => {
            let mut at = place_in(&to, out_offset)?;
            if to.appends() {
                return Err(Errno::EINVAL);
            }
            let nonblocking = asked || from.nonblocking();
            let side = side(&mut at);
            let outcome =
                splice::out_of_pipe(source, &to, side, count, nonblocking, io::write_piece);
            write_offset(out_offset, at)?;
            outcome
        }
        (None, Some(target)) => {
            let mut at = place_in(&from, input_offset)?;
            let nonblocking = asked || to.nonblocking();
            let outcome = splice::into_pipe(&from, side(&mut at), target, count, nonblocking);
            write_offset(input_offset, at)?;
            outcome
        }
        (None, None) => Err(Errno::EINVAL),
    };
    if matches!(outcome, Ok(1..)) {
        notify::file(&to, Mask::MODIFY);
        notify::file(&from, Mask::ACCESS);
    }
    report(&to, outcome)
}

/// `tee(2)`
pub fn tee(input: i32, out: i32, count: usize, flags: u32) -> Result<usize> {
    if flags & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if count == 0 {
        return Ok(0);
    }
    let (from, to) = (open_file(input)?, open_file(out)?);
    if !from.readable() || !to.writable() {
        return Err(Errno::EBADF);
    }
    let (source, target) =
        (pipe::end::of(&from).ok_or(Errno::EINVAL)?, pipe::end::of(&to).ok_or(Errno::EINVAL)?);
    let nonblocking = flags & SPLICE_F_NONBLOCK != 0 || from.nonblocking() || to.nonblocking();
    let outcome = splice::between_pipes(source, target, count, nonblocking, true);
    if matches!(outcome, Ok(1..)) {
        notify::file(&from, Mask::ACCESS);
        notify::file(&to, Mask::MODIFY);
    }
    report(&to, outcome)
}

/// `vmsplice(2)`: copies the program's pages, which is all that a program may rely on. Only the
/// call's flag decides whether to wait, whatever the pipe's own flags are, and a call waits only
/// for the first space or data.
pub fn vmsplice(fd: i32, address: usize, count: usize, flags: u32) -> Result<usize> {
    if flags & !SPLICE_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let file = open_file(fd)?;
    if !file.writable() && !file.readable() {
        return Err(Errno::EBADF);
    }
    let pieces = vector(address, count)?;
    let nonblocking = flags & SPLICE_F_NONBLOCK != 0;
    let pipe = pipe::end::of(&file).ok_or(Errno::EBADF)?;
    if file.writable() {
        let outcome = report(&file, pipe.write_some(nonblocking, &mut Input::vector(&pieces)));
        if matches!(outcome, Ok(1..)) {
            notify::file(&file, Mask::MODIFY);
        }
        outcome
    } else {
        let outcome = pipe.read(nonblocking, &mut Output::vector(&pieces));
        if matches!(outcome, Ok(1..)) {
            notify::file(&file, Mask::ACCESS);
        }
        outcome
    }
}
