//! The bytes of packets: pieces of counted frames, which queues and devices share without a copy.
//!
//! A [`Slice`] is a part of a frame, or of a run of contiguous frames. Its bytes are written once,
//! when it is made, and never after: so the sender's queue, a packet on its way and the receiver's
//! queue can refer to the same slice.
//! Large payloads get runs of 32 KiB of their own, and frames for the rest, and where memory is so
//! scattered that there is no run: what is done for each slice on its way through queues is done an
//! eighth as often. Small ones are cut from a frame that the processor keeps
//! for that ([`FRAGMENTS`]), so that many small messages do not take a frame each. Nobody can reach
//! a byte of the frame outside of the slice, and slices of one frame never overlap.
//!
//! A frame that holds small slices is freed when the last of them is dropped; [`Slice::charge`]
//! says what a slice counts for in the limits of a socket.
//!
//! Lock order: the processor's fragment lock is a leaf, and is not held while a frame is obtained.

use hayate_abi::{Errno, Result};
use hayate_ip::checksum::Checksum;
use hayate_machine::cpu::PerCpu;
use hayate_machine::frames::{Frame, RUN, Run};
use hayate_machine::per_cpu;
use hayate_machine::sync::SpinLock;
use smallvec::SmallVec;

use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::vfs::transfer::{Input, Output};

/// The bytes of a frame.
const PAGE: usize = 4096;
/// The bytes of a run.
const LARGE: usize = RUN as usize * PAGE;
/// The largest slice that is cut from the processor's frame.
const SMALL: usize = 2048;
/// The memory that a slice counts for besides its bytes: its place in a queue, and its part of the
/// frame's rest (as Linux counts an `sk_buff` and its shared data).
const OVERHEAD: usize = 576;

/// A part of contiguous frames.
#[derive(Clone, Debug)]
pub struct Slice {
    memory: Run,
    offset: u16,
    length: u16,
}

/// The frame that small slices of a processor are cut from.
struct Fragments {
    frame: Option<Frame>,
    used: usize,
}

per_cpu! {
    static FRAGMENTS: PerCpu<SpinLock<Fragments>> =
        PerCpu::new(SpinLock::new(Fragments { frame: None, used: 0 }));
}

impl Fragments {
    fn cut(&mut self, length: usize) -> Option<Slice> {
        let frame = self.frame.as_ref()?;
        if PAGE - self.used < length {
            return None;
        }
        let memory = frame.clone().into();
        let slice = Slice { memory, offset: self.used as u16, length: length as u16 };
        self.used += length;
        Some(slice)
    }
}

impl Slice {
    /// Makes a slice of at most a page whose bytes are written next, before another thread sees it.
    fn fresh(length: usize, obtain: impl FnOnce() -> Option<Frame>) -> Option<Slice> {
        let length = length.min(PAGE);
        if length > SMALL {
            return Some(Slice { memory: obtain()?.into(), offset: 0, length: length as u16 });
        }
        if let Some(slice) = FRAGMENTS.here().lock().cut(length) {
            return Some(slice);
        }
        let frame = obtain()?;
        let mut fragments = FRAGMENTS.here().lock();
        // The caller may be on another processor by now, whose frame is replaced.
        fragments.frame = Some(frame);
        fragments.used = 0;
        fragments.cut(length)
    }

    /// Like [`Slice::fresh`], for a program's bytes: of a run, if that many are wanted. Sleeps.
    fn fresh_large(length: usize) -> Option<Slice> {
        if length >= LARGE
            && let Some(memory) = Run::allocate()
        {
            return Some(Slice { memory, offset: 0, length: LARGE as u16 });
        }
        Slice::fresh(length, || reclaim::frame().ok())
    }

    /// Makes a slice of the bytes that a device wrote to memory. `None` if they are not in it.
    pub fn of_memory(memory: Run, offset: usize, length: usize) -> Option<Slice> {
        let inside = offset <= memory.size() && length <= memory.size() - offset;
        inside.then_some(Slice { memory, offset: offset as u16, length: length as u16 })
    }

    /// Copies bytes to a new slice; at most a page of them. Any lock may be held. `None`: memory is
    /// exhausted.
    pub fn copy(bytes: &[u8]) -> Option<Slice> {
        let slice = Slice::fresh(bytes.len(), Frame::allocate)?;
        slice.memory.write(usize::from(slice.offset), bytes);
        Some(slice)
    }

    /// Returns its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the bytes from `from` up to `to`, of the same memory; cut to what there is.
    pub fn slice(&self, from: usize, to: usize) -> Slice {
        let to = to.min(self.len());
        let from = from.min(to);
        let offset = self.offset + from as u16;
        Slice { memory: self.memory.clone(), offset, length: (to - from) as u16 }
    }

    /// Joins `next` to this slice if its bytes lie directly behind; returns whether it did.
    pub fn join(&mut self, next: &Slice) -> bool {
        let joins = self.memory == next.memory && self.offset + self.length == next.offset;
        if joins {
            self.length += next.length;
        }
        joins
    }

    /// Drops the first bytes.
    pub fn skip(&mut self, count: usize) {
        let count = count.min(self.len()) as u16;
        self.offset += count;
        self.length -= count;
    }

    /// Returns what it counts for in the limits of a socket, in bytes. A small part of a run counts
    /// as all of it, for it keeps the rest from being freed.
    #[inline]
    pub fn charge(&self) -> usize {
        let size = self.memory.size();
        let held = if size > PAGE && self.len() < PAGE { size } else { self.len() };
        held + OVERHEAD
    }

    /// Returns what it counts for in the bounds of what all sockets hold ([`memory`](super::memory)),
    /// in bytes: at least half a frame, which a small slice shares with others.
    #[inline]
    pub fn pinned(&self) -> usize {
        self.charge().max(SMALL + OVERHEAD)
    }

    /// Copies bytes out, from `offset` in the slice; returns how many.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> usize {
        let offset = offset.min(self.len());
        let count = to.len().min(self.len() - offset);
        self.memory.read(usize::from(self.offset) + offset, &mut to[..count])
    }

    /// Adds its bytes to a checksum.
    #[inline]
    pub fn add_to(&self, sum: &mut Checksum) {
        let length = self.len();
        sum.add_sum(self.memory.sum(usize::from(self.offset), length), length);
    }

    /// Returns memory, offset and length, for a device.
    pub fn parts(&self) -> (&Run, usize, usize) {
        (&self.memory, usize::from(self.offset), self.len())
    }
}

/// The payload of a packet: slices in order. A program decides how many, so a second reference to
/// them takes memory that may be refused ([`Payload::share`]).
#[derive(Debug, Default)]
pub struct Payload {
    slices: SmallVec<[Slice; 4]>,
    length: usize,
}

impl Payload {
    /// No bytes.
    pub fn new() -> Payload {
        Payload::default()
    }

    /// Takes exactly `length` bytes from a program (or the kernel's buffer). Sleeps; call it
    /// without spin locks.
    ///
    /// # Errors
    /// `EFAULT` if not all of them can be read, `ENOMEM` or `ENOBUFS`.
    pub fn take(input: &mut Input<'_>, length: usize) -> Result<Payload> {
        let mut payload = Payload::new();
        let mut left = length;
        while left > 0 {
            let slice = Slice::fresh_large(left).ok_or(Errno::ENOBUFS)?;
            let (count, offset) = (slice.len(), usize::from(slice.offset));
            if input.take_run(&slice.memory, offset, count)? < count {
                return Err(Errno::EFAULT);
            }
            left -= count;
            payload.push(slice)?;
        }
        Ok(payload)
    }

    /// Copies bytes to new slices. Any lock may be held. `ENOMEM`.
    pub fn copy(bytes: &[u8]) -> Result<Payload> {
        let mut payload = Payload::new();
        for part in bytes.chunks(PAGE) {
            payload.push(Slice::copy(part).ok_or(Errno::ENOMEM)?)?;
        }
        Ok(payload)
    }

    /// Copies slices to as few frames as hold their bytes. Any lock may be held. `ENOMEM`.
    pub fn gather(slices: &[Slice]) -> Result<Payload> {
        let mut payload = Payload::new();
        let mut left: usize = slices.iter().map(Slice::len).sum();
        let mut rest = slices.iter();
        let (mut slice, mut from) = (rest.next(), 0);
        while left > 0 {
            let frame = Run::from(Frame::allocate().ok_or(Errno::ENOMEM)?);
            let length = left.min(PAGE);
            let mut done = 0;
            while done < length {
                let Some(source) = slice else { return Err(Errno::EINVAL) };
                let mut buffer = [0; 256];
                let most = (length - done).min(buffer.len());
                let count = source.read(from, &mut buffer[..most]);
                if count == 0 {
                    (slice, from) = (rest.next(), 0);
                    continue;
                }
                frame.write(done, &buffer[..count]);
                (from, done) = (from + count, done + count);
            }
            left -= length;
            payload.push(Slice { memory: frame, offset: 0, length: length as u16 })?;
        }
        Ok(payload)
    }

    /// Appends a slice. `ENOMEM`.
    #[inline]
    pub fn push(&mut self, slice: Slice) -> Result<()> {
        if self.slices.is_empty() && !self.slices.spilled() && !slice.is_empty() {
            self.length = slice.len();
            self.slices.push(slice);
            return Ok(());
        }
        self.push_behind(slice)
    }

    #[inline(never)]
    fn push_behind(&mut self, slice: Slice) -> Result<()> {
        if slice.is_empty() {
            return Ok(());
        }
        self.length += slice.len();
        if self.slices.last_mut().is_some_and(|last| last.join(&slice)) {
            return Ok(());
        }
        self.slices.make_room(1).inspect_err(|_| self.length -= slice.len())?;
        self.slices.push(slice);
        Ok(())
    }

    /// Returns another reference to the same bytes. Any lock may be held. `ENOMEM`.
    pub fn share(&self) -> Result<Payload> {
        self.part(0, self.length)
    }

    /// Returns another reference to the bytes from `from` up to `to`, as far as there are any. Any
    /// lock may be held. `ENOMEM`.
    pub fn part(&self, from: usize, to: usize) -> Result<Payload> {
        let mut part = Payload::new();
        let mut at = 0;
        for slice in &self.slices {
            if at >= to {
                break;
            }
            let end = at + slice.len();
            if end > from {
                part.push(slice.slice(from.saturating_sub(at), to - at))?;
            }
            at = end;
        }
        Ok(part)
    }

    /// Returns its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns its slices, in order.
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// Takes the slices out.
    pub fn into_slices(self) -> SmallVec<[Slice; 4]> {
        self.slices
    }

    /// Returns what it counts for in the limits of a socket, in bytes.
    pub fn charge(&self) -> usize {
        OVERHEAD + self.slices.iter().map(Slice::charge).sum::<usize>()
    }

    /// Returns what it counts for in the bounds of what all sockets hold; see [`Slice::pinned`].
    pub fn pinned(&self) -> usize {
        OVERHEAD + self.slices.iter().map(Slice::pinned).sum::<usize>()
    }

    /// Drops the first bytes.
    pub fn skip(&mut self, count: usize) {
        let mut left = count.min(self.length);
        self.length -= left;
        if let Some(first) = self.slices.first_mut()
            && first.len() > left
        {
            return first.skip(left);
        }
        let whole = self.slices.iter().take_while(|slice| {
            let whole = slice.len() <= left;
            left -= if whole { slice.len() } else { 0 };
            whole
        });
        let whole = whole.count();
        self.slices.drain(..whole);
        if let Some(first) = self.slices.first_mut() {
            first.skip(left);
        }
    }

    /// Keeps only the first bytes.
    pub fn truncate(&mut self, length: usize) {
        if length >= self.length {
            return;
        }
        let mut left = length;
        self.length = length;
        let mut kept = 0;
        for slice in &mut self.slices {
            if left == 0 {
                break;
            }
            slice.length = slice.len().min(left) as u16;
            left -= slice.len();
            kept += 1;
        }
        self.slices.truncate(kept);
    }

    /// Copies bytes out, from `offset`; returns how many.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> usize {
        let (mut skip, mut done) = (offset, 0);
        for slice in &self.slices {
            if done == to.len() {
                break;
            }
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            done += slice.read(skip, &mut to[done..]);
            skip = 0;
        }
        done
    }

    /// Copies up to `length` bytes to a program, from `offset`; returns how many. Call it without
    /// spin locks. `EFAULT` if none can be written.
    pub fn put(&self, offset: usize, length: usize, out: &mut Output<'_>) -> Result<usize> {
        let (mut skip, mut left, mut done) = (offset, length, 0);
        for slice in &self.slices {
            if left == 0 {
                break;
            }
            if skip >= slice.len() {
                skip -= slice.len();
                continue;
            }
            let wanted = left.min(slice.len() - skip);
            let at = usize::from(slice.offset) + skip;
            let count = match out.put_run(&slice.memory, at, wanted) {
                Ok(count) => count,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            };
            done += count;
            if count < wanted {
                return Ok(done);
            }
            left -= count;
            skip = 0;
        }
        Ok(done)
    }

    /// Adds all bytes to a checksum.
    pub fn add_to(&self, sum: &mut Checksum) {
        self.slices.iter().for_each(|slice| slice.add_to(sum));
    }
}
