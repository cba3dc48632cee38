//! Moving data between files without the program: `splice`, `tee`, `sendfile`,
//! `copy_file_range`.
//!
//! Into a pipe, pages of a plate go by reference, as in Linux; everything else goes through a
//! buffer of a few pages. What was read from a pipe or at a position counts as consumed only once
//! it was written.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::open_file::OpenFile;
use super::pipe::{Pipe, Segment};
use super::plate::PAGE;
use super::transfer::{Input, Output};
use crate::schedule;

/// Bytes moved at a time through a buffer.
const BUFFER: usize = 4 * PAGE;

fn buffer(length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = length.clamp(1, BUFFER);
    bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// Where one side of a transfer works: at the file's position, or at an offset of its own, which
/// is moved on.
pub enum Side<'a> {
    /// The file's position.
    Position,
    /// This offset.
    At(&'a mut u64),
}

impl Side<'_> {
    fn read(&mut self, file: &OpenFile, bytes: &mut [u8]) -> Result<usize> {
        match self {
            Side::Position => file.read(&mut Output::kernel(bytes)),
            Side::At(offset) => file.read_at(**offset, &mut Output::kernel(bytes)),
        }
    }

    /// Moves on by what was truly used of a read of `read` bytes.
    fn settle(&mut self, file: &OpenFile, read: usize, used: usize) {
        match self {
            Side::Position => {
                let mut position = file.lock_position();
                *position = position.saturating_sub((read - used) as u64);
            }
            Side::At(offset) => **offset += used as u64,
        }
    }

    fn write(&mut self, file: &OpenFile, bytes: &[u8]) -> Result<usize> {
        match self {
            Side::Position => file.write(&mut Input::kernel(bytes)),
            Side::At(offset) => {
                let count = file.write_at(**offset, &mut Input::kernel(bytes))?;
                **offset += count as u64;
                Ok(count)
            }
        }
    }
}

/// Copies `count` bytes from a file with positions to any file through a buffer.
pub fn copy(
    from: &OpenFile,
    mut from_side: Side<'_>,
    to: &OpenFile,
    mut to_side: Side<'_>,
    count: usize,
) -> Result<usize> {
    let mut bytes = buffer(count)?;
    let mut done = 0;
    let mut failure = None;
    while done < count {
        let length = bytes.len().min(count - done);
        let piece = bytes.get_mut(..length).ok_or(Errno::EINVAL)?;
        let read = match from_side.read(from, piece) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => {
                failure = Some(error);
                break;
            }
        };
        let written = to_side.write(to, piece.get(..read).unwrap_or_default());
        let used = *written.as_ref().unwrap_or(&0);
        from_side.settle(from, read, used);
        done += used;
        match written {
            Err(error) => failure = Some(error),
            Ok(used) if used < read => {}
            // Part of the work is done: the signal goes before the rest.
            Ok(_) if schedule::breathe() => {}
            Ok(_) => continue,
        }
        break;
    }
    match failure {
        Some(error) if done == 0 => Err(error),
        _ => Ok(done),
    }
}

/// Moves up to `count` bytes of a file into a pipe.
pub fn into_pipe(
    from: &OpenFile,
    mut side: Side<'_>,
    pipe: &Arc<Pipe>,
    count: usize,
    nonblocking: bool,
) -> Result<usize> {
    let plate = from.inode().plate();
    if !from.readable() {
        return Err(Errno::EBADF);
    }
    let mut done = 0;
    // The first page waits for room and data; after it, what goes without waiting.
    while done < count {
        let mut ring = match pipe.lock_for_writing(nonblocking || done != 0) {
            Ok(ring) => ring,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        let moved = match &plate {
            Some(plate) => {
                let offset = match &side {
                    Side::Position => *from.lock_position(),
                    Side::At(offset) => **offset,
                };
                let left = plate.size().saturating_sub(offset);
                let within = (offset % PAGE as u64) as usize;
                let length = (PAGE - within).min(count - done);
                let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
                if length == 0 {
                    break;
                }
                let frame = match plate.page(offset / PAGE as u64) {
                    Ok(frame) => frame,
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => break,
                };
                let piece = Segment { frame, offset: within, length, own: false, packet: false };
                pipe.push(&mut ring, piece)?;
                match &mut side {
                    Side::Position => *from.lock_position() += length as u64,
                    Side::At(offset) => **offset += length as u64,
                }
                length
            }
            None => {
                // A stream: read what is there, without the ring locked.
                drop(ring);
                let mut bytes = buffer((count - done).min(PAGE))?;
                let read = match side.read(from, &mut bytes) {
                    Ok(read) => read,
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => break,
                };
                if let Side::At(offset) = &mut side {
                    **offset += read as u64;
                }
                if read == 0 {
                    break;
                }
                let frame = super::reclaim::frame()?;
                frame.write(0, bytes.get(..read).unwrap_or_default());
                let mut ring = pipe.lock_for_writing(false)?;
                let piece = Segment { frame, offset: 0, length: read, own: true, packet: false };
                pipe.push(&mut ring, piece)?;
                drop(ring);
                pipe.wake_readers();
                done += read;
                if read < bytes.len() {
                    break;
                }
                continue;
            }
        };
        drop(ring);
        pipe.wake_readers();
        done += moved;
    }
    Ok(done)
}

/// Moves up to `count` bytes out of a pipe into a file.
pub fn out_of_pipe(
    pipe: &Arc<Pipe>,
    to: &OpenFile,
    mut side: Side<'_>,
    count: usize,
    nonblocking: bool,
) -> Result<usize> {
    if !to.writable() {
        return Err(Errno::EBADF);
    }
    let mut bytes = buffer(PAGE)?;
    let mut done = 0;
    while done < count {
        let mut ring = match pipe.lock_for_reading(nonblocking || done != 0) {
            Ok(Some(ring)) => ring,
            Ok(None) => break,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        let Some(front) = Pipe::piece(&ring, 0) else { continue };
        let length = front.length.min(count - done).min(PAGE);
        let piece = bytes.get_mut(..length).ok_or(Errno::EINVAL)?;
        front.frame.read(front.offset, piece);
        let written = side.write(to, piece);
        let used = *written.as_ref().unwrap_or(&0);
        if used != 0 {
            pipe.take(&mut ring, used);
        }
        drop(ring);
        pipe.wake_writers();
        done += used;
        match written {
            Err(error) if done == 0 => return Err(error),
            Ok(used) if used == length => {}
            _ => break,
        }
    }
    Ok(done)
}

/// Moves (`splice`) or copies (`tee`) up to `count` bytes from one pipe to another.
pub fn between_pipes(
    from: &Arc<Pipe>,
    to: &Arc<Pipe>,
    count: usize,
    nonblocking: bool,
    keep: bool,
) -> Result<usize> {
    if Arc::ptr_eq(from, to) {
        return Err(Errno::EINVAL);
    }
    loop {
        // Wait for both sides one after the other, then take both locks by address.
        if from.lock_for_reading(nonblocking)?.is_none() {
            return Ok(0);
        }
        drop(to.lock_for_writing(nonblocking)?);
        let from_first = Arc::as_ptr(from).addr() < Arc::as_ptr(to).addr();
        let (mut source, mut target);
        if from_first {
            source = from.lock();
            target = to.lock();
        } else {
            target = to.lock();
            source = from.lock();
        }
        if source.is_empty() || target.is_full() {
            continue;
        }
        let (mut done, mut index) = (0, 0);
        while done < count && !target.is_full() {
            let piece = if keep {
                let piece = Pipe::piece(&source, index);
                index += 1;
                piece
            } else {
                from.take(&mut source, count - done)
            };
            let Some(mut piece) = piece else { break };
            piece.length = piece.length.min(count - done);
            piece.own = false;
            done += piece.length;
            to.push(&mut target, piece)?;
        }
        drop(source);
        drop(target);
        to.wake_readers();
        if !keep {
            from.wake_writers();
        }
        return Ok(done);
    }
}
