//! `process_vm_readv(2)`, `process_vm_writev(2)`.

use alloc::vec::Vec;

use hayate_abi::file::Iovec;
use hayate_abi::{Errno, Result};
use machine::user::{self, UserPtr};

use crate::memory::{PAGE, Space, Touch};
use crate::process;
use crate::reclaim::growth::Grow;

/// The most pieces of a vector (`UIO_MAXIOV`).
const PIECES_MAX: usize = 1024;

/// `process_vm_readv(2)`.
pub fn process_vm_readv(
    pid: i32,
    local: usize,
    local_count: usize,
    remote: usize,
    remote_count: usize,
    flags: u32,
) -> Result<usize> {
    transfer(pid, (local, local_count), (remote, remote_count), flags, Touch::Read)
}

/// `process_vm_writev(2)`.
pub fn process_vm_writev(
    pid: i32,
    local: usize,
    local_count: usize,
    remote: usize,
    remote_count: usize,
    flags: u32,
) -> Result<usize> {
    transfer(pid, (local, local_count), (remote, remote_count), flags, Touch::Write)
}

/// Reads the pieces of a vector.
fn vector((address, count): (usize, usize)) -> Result<Vec<Iovec>> {
    if count > PIECES_MAX {
        return Err(Errno::EINVAL);
    }
    let mut pieces = Vec::new();
    pieces.make_room_exact(count)?;
    let first = UserPtr::<Iovec>::new(address);
    let mut total = 0usize;
    for index in 0..count {
        let piece = first.at(index).read()?;
        total = total.checked_add(piece.iov_len as usize).ok_or(Errno::EINVAL)?;
        pieces.push(piece);
    }
    if total > isize::MAX as usize { Err(Errno::EINVAL) } else { Ok(pieces) }
}

fn transfer(
    pid: i32,
    local: (usize, usize),
    remote: (usize, usize),
    flags: u32,
    touch: Touch,
) -> Result<usize> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let (local, remote) = (vector(local)?, vector(remote)?);
    if local.iter().all(|piece| piece.iov_len == 0) || remote.is_empty() {
        return Ok(0);
    }
    let space = process::foreign_space(pid)?;
    if touch == Touch::Write {
        space.note_outside();
    }
    let mut done = 0;
    let mut mine = local.iter().map(|piece| (piece.iov_base as usize, piece.iov_len as usize));
    let (mut at, mut room) = (0, 0);
    for piece in &remote {
        let (mut there, mut left) = (piece.iov_base as usize, piece.iov_len as usize);
        while left > 0 {
            while room == 0 {
                match mine.next() {
                    Some(next) => (at, room) = next,
                    None => return Ok(done),
                }
            }
            let part = left.min(room).min(PAGE - there % PAGE);
            let moved = move_part(&space, there, at, part, touch);
            done += moved;
            if moved < part {
                return if done == 0 { Err(Errno::EFAULT) } else { Ok(done) };
            }
            (there, left) = (there.wrapping_add(part), left - part);
            (at, room) = (at.wrapping_add(part), room - part);
        }
    }
    Ok(done)
}

/// Moves bytes inside one page of the other space.
fn move_part(space: &Space, there: usize, here: usize, length: usize, touch: Touch) -> usize {
    let Some(frame) = space.foreign_frame(there, touch) else { return 0 };
    if touch == Touch::Write {
        user::copy_frame_in(&frame, there % PAGE, here, length)
    } else {
        user::copy_frame_out(here, &frame, there % PAGE, length)
    }
}
