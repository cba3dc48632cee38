//! Copying data between files without passing through the program: `splice`, `tee`, `sendfile`,
//! `copy_file_range`.
//!
//! Pages of a page cache go into a pipe by reference, as on Linux; all other data goes through a
//! buffer of a few pages. Data read from a pipe or at a position counts as consumed only once it
//! was written. A transfer into a pipe waits only for the first piece; after that it moves as much
//! as fits.
//!
//! The caller provides the function that writes a piece to a file ([`Write`]); it knows the limits
//! of the process and notifies the watchers of the file.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::pipe::{Pipe, Segment};
use crate::page_cache::cache::{PAGE, PageCache};
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule;
use crate::vfs::open_file::OpenFile;
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::{Input, Output};

/// Bytes moved at a time through a buffer.
const BUFFER: usize = 4 * PAGE;

fn buffer(length: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = length.clamp(1, BUFFER);
    bytes.make_room_exact(length)?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// Writes a piece to a file: at an offset, or at the file's position.
pub type Write = fn(&OpenFile, Option<u64>, &mut Input<'_>) -> Result<usize>;

/// Where one side of a transfer reads or writes: at the file's position, or at an offset of its
/// own, which moves on.
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

    /// Advances the side by the bytes that were used of a read of `read` bytes.
    fn settle(&mut self, file: &OpenFile, read: usize, used: usize) {
        match self {
            Side::Position => {
                let mut position = file.lock_position();
                *position = position.saturating_sub((read - used) as u64);
            }
            Side::At(offset) => **offset += used as u64,
        }
    }

    fn write(&mut self, write: Write, file: &OpenFile, bytes: &[u8]) -> Result<usize> {
        match self {
            Side::Position => write(file, None, &mut Input::kernel(bytes)),
            Side::At(offset) => {
                let count = write(file, Some(**offset), &mut Input::kernel(bytes))?;
                **offset += count as u64;
                Ok(count)
            }
        }
    }
}

/// Copies `count` bytes from a file with a position to any file, through a buffer.
pub fn copy(
    from: &OpenFile,
    mut from_side: Side<'_>,
    to: &OpenFile,
    mut to_side: Side<'_>,
    count: usize,
    write: Write,
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
        let written = to_side.write(write, to, piece.get(..read).unwrap_or_default());
        let used = *written.as_ref().unwrap_or(&0);
        from_side.settle(from, read, used);
        done += used;
        match written {
            Err(error) => failure = Some(error),
            Ok(used) if used < read => {}
            // A signal came: return what was copied so far.
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
    side: Side<'_>,
    pipe: &Arc<Pipe>,
    count: usize,
    nonblocking: bool,
) -> Result<usize> {
    if !from.readable() {
        return Err(Errno::EBADF);
    }
    match from.inode().page_cache() {
        Some(page_cache) if !page_cache.is_copied() => {
            pages_into_pipe(from, side, &page_cache, pipe, count, nonblocking)
        }
        _ => bytes_into_pipe(from, side, pipe, count, nonblocking),
    }
}

fn pages_into_pipe(
    from: &OpenFile,
    mut side: Side<'_>,
    page_cache: &PageCache,
    pipe: &Arc<Pipe>,
    count: usize,
    nonblocking: bool,
) -> Result<usize> {
    let mut done = 0;
    // The first page waits for a free slot; further pages only go as long as no wait is needed.
    while done < count {
        let mut ring = match pipe.lock_for_writing(nonblocking || done != 0) {
            Ok(ring) => ring,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        };
        let offset = match &side {
            Side::Position => *from.lock_position(),
            Side::At(offset) => **offset,
        };
        let left = page_cache.size().saturating_sub(offset);
        let within = (offset % PAGE as u64) as usize;
        let length = (PAGE - within).min(count - done);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            break;
        }
        let pushed = page_cache.page(offset / PAGE as u64).and_then(|frame| {
            let piece = Segment { frame, offset: within, length, own: false, packet: false };
            pipe.push(&mut ring, piece)
        });
        match pushed {
            Ok(()) => {}
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
        match &mut side {
            Side::Position => *from.lock_position() += length as u64,
            Side::At(offset) => **offset += length as u64,
        }
        drop(ring);
        pipe.wake_readers();
        done += length;
    }
    Ok(done)
}

/// Moves what a stream has now, at most a buffer full: a second read could wait for ever.
fn bytes_into_pipe(
    from: &OpenFile,
    mut side: Side<'_>,
    pipe: &Arc<Pipe>,
    count: usize,
    nonblocking: bool,
) -> Result<usize> {
    let free = pipe.lock_for_writing(nonblocking)?.free();
    let readable = Events::READABLE | Events::HUP | Events::ERR;
    if nonblocking && !from.poll(&mut Registrar::Query).intersects(readable) {
        return Err(Errno::EAGAIN);
    }
    let mut bytes = buffer(count.min(free.saturating_mul(PAGE)))?;
    // Allocates all memory that is needed before any data is taken.
    let pages = bytes.len().div_ceil(PAGE);
    let mut frames = Vec::new();
    frames.make_room_exact(pages)?;
    for _ in 0..pages {
        frames.push(reclaim::frame()?);
    }
    pipe.lock().reserve(pages)?;
    let read = side.read(from, &mut bytes)?;
    if read == 0 {
        return Ok(0);
    }
    if let Side::At(offset) = &mut side {
        **offset += read as u64;
    }
    let mut ring = pipe.lock();
    ring.reserve(pages)?;
    for (frame, chunk) in frames.into_iter().zip(bytes[..read].chunks(PAGE)) {
        frame.write(0, chunk);
        let piece = Segment { frame, offset: 0, length: chunk.len(), own: true, packet: false };
        pipe.push_reserved(&mut ring, piece);
    }
    drop(ring);
    pipe.wake_readers();
    Ok(read)
}

/// Moves up to `count` bytes out of a pipe into a file.
pub fn out_of_pipe(
    pipe: &Arc<Pipe>,
    to: &OpenFile,
    mut side: Side<'_>,
    count: usize,
    nonblocking: bool,
    write: Write,
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
        let written = side.write(write, to, piece);
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
        // Waits for both sides one after the other, then takes both locks by address.
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
            // Checked before a piece is taken, which would otherwise be lost.
            match target.reserve(1) {
                Ok(()) => {}
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
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
            to.push_reserved(&mut target, piece);
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
