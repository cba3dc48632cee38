//! Pipes: a ring of pages between writers and readers (`pipe(7)`).
//!
//! A pipe has a limited number of *slots*; each holds a piece of one frame. A small write goes into
//! the space left in the last piece if it fits whole, otherwise into a new page. So a write of up
//! to `PIPE_BUF` (4096) bytes lies in one page and is atomic, as POSIX requires. `splice` puts
//! pages of files into slots without copying.
//!
//! Locks: `ring` is a sleeping lock held over the copy from or to the program. The state that
//! sleepers and `poll` look at (bytes, slots in use, open ends) is also in atomics, changed under
//! the lock.
//!
//! Data or free space wakes only one of the threads that wait for it (`pipe_read` and `pipe_write`,
//! fs/pipe.c of Linux 6.1). A woken thread that leaves some of it, or gives up, wakes the next.
//! Threads that wait in `open` of a FIFO all go on at once, so they have a wait queue of their own.
//! Closing an end wakes all.
//!
//! This file is the pipe. `limits.rs` is below it, `end.rs` has its open ends and `pipe(2)`, and
//! `fifo.rs` on top of all the pipes behind named nodes.

pub mod end;
pub mod fifo;
pub mod limits;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::SpinLock;

use self::limits::Share;
use crate::credentials::Credentials;
use crate::page_cache::cache::PAGE;
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule::{Mutex, MutexGuard, WaitQueue};
use crate::vfs::fasync::Signals;
use crate::vfs::inode::{Metadata, Timestamp};
use crate::vfs::open_file::OpenFile;
use crate::vfs::open_file::flags::O_DIRECT;
use crate::vfs::signal_owner::Band;
use crate::vfs::transfer::{Input, Output};

/// A piece of data in a pipe.
#[derive(Clone)]
pub struct Segment {
    /// The page that holds it.
    pub frame: Frame,
    /// Where it begins in the page, in bytes.
    pub offset: usize,
    /// How long it is, in bytes.
    pub length: usize,
    /// More can be written after it: the frame belongs to the pipe.
    pub own: bool,
    /// A packet (`O_DIRECT`): one read takes it, whole or truncated.
    pub packet: bool,
}

/// The data of a pipe.
pub struct Ring {
    segments: VecDeque<Segment>,
    slots: usize,
    /// A page kept from the last read for the next write.
    spare: Option<Frame>,
}

/// A pipe or FIFO.
pub struct Pipe {
    metadata: SpinLock<Metadata>,
    ring: Mutex<Ring>,
    bytes: AtomicUsize,
    used: AtomicUsize,
    slots: AtomicUsize,
    /// Its share of the user's limit; changed with the ring locked.
    share: Share,
    readers: AtomicU32,
    writers: AtomicU32,
    /// The number of opens so far; an open of a FIFO waits for the other side's number to change.
    reader_openings: AtomicU32,
    writer_openings: AtomicU32,
    /// Readers wait here.
    readable: WaitQueue,
    /// Writers wait here.
    writable: WaitQueue,
    /// Threads in `open` wait here for the other side.
    opened: WaitQueue,
    /// Open files that want signals.
    signals: Signals,
}

impl Pipe {
    /// Makes a pipe with no open end.
    pub fn new(metadata: Metadata, share: Share) -> Arc<Pipe> {
        let slots = share.slots();
        Arc::new(Pipe {
            metadata: SpinLock::new(metadata),
            ring: Mutex::new(Ring { segments: VecDeque::new(), slots, spare: None }),
            bytes: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            slots: AtomicUsize::new(slots),
            share,
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            reader_openings: AtomicU32::new(0),
            writer_openings: AtomicU32::new(0),
            readable: WaitQueue::new(),
            writable: WaitQueue::new(),
            opened: WaitQueue::new(),
            signals: Signals::new(),
        })
    }

    /// Returns how often the other side (readers if `writes`) was opened, if it is not open now.
    /// Called before this side is opened, for [`wait_for_other`](Self::wait_for_other).
    pub fn other_side(&self, writes: bool) -> Option<u32> {
        let (openings, count) = if writes {
            (&self.reader_openings, &self.readers)
        } else {
            (&self.writer_openings, &self.writers)
        };
        let before = openings.load(Ordering::Acquire);
        (count.load(Ordering::Acquire) == 0).then_some(before)
    }

    /// Sleeps until the other end (readers if `writes`) was opened at least once since `before` was
    /// taken (`fifo(7)`).
    pub fn wait_for_other(&self, writes: bool, before: Option<u32>) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let openings = if writes { &self.reader_openings } else { &self.writer_openings };
        self.opened
            .wait_interruptible(None, || (openings.load(Ordering::Acquire) != before).then_some(()))
            .map_err(|_| Errno::ERESTARTSYS)
    }

    /// The number of open files that read from the pipe.
    pub fn readers(&self) -> u32 {
        self.readers.load(Ordering::Acquire)
    }

    /// Locks what is in the pipe. May sleep.
    pub fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Acquire) >= self.slots.load(Ordering::Acquire)
    }

    /// Stores in the atomics what the ring holds now.
    fn publish(&self, ring: &Ring, bytes: usize) {
        self.bytes.store(bytes, Ordering::Release);
        self.used.store(ring.segments.len(), Ordering::Release);
    }

    /// Locks the ring once it has data; `None` at the end (no writers and empty).
    pub fn lock_for_reading(&self, nonblocking: bool) -> Result<Option<MutexGuard<'_, Ring>>> {
        let mut woken = false;
        let ring = self.await_data(nonblocking, &mut woken)?;
        if woken {
            // This reader may leave data.
            self.readable.wake_one();
        }
        Ok(ring)
    }

    /// Like [`Pipe::lock_for_reading`], but does not wake the next reader. Sets `woken` if it
    /// waited: then the caller wakes the next reader if it leaves data.
    fn await_data(
        &self,
        nonblocking: bool,
        woken: &mut bool,
    ) -> Result<Option<MutexGuard<'_, Ring>>> {
        loop {
            if self.bytes.load(Ordering::Acquire) != 0 {
                let ring = self.ring.lock();
                if !ring.segments.is_empty() {
                    return Ok(Some(ring));
                }
                continue;
            }
            if self.writers.load(Ordering::Acquire) == 0 {
                // Data may have come between the two checks.
                if self.bytes.load(Ordering::Acquire) != 0 {
                    continue;
                }
                return Ok(None);
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            *woken = true;
            let waited = self.readable.wait_interruptible(None, || {
                let ready = self.bytes.load(Ordering::Acquire) != 0
                    || self.writers.load(Ordering::Acquire) == 0;
                ready.then_some(())
            });
            if waited.is_err() {
                // The wake-up that came while this thread gave up belongs to another reader.
                if self.bytes.load(Ordering::Acquire) != 0 {
                    self.readable.wake_one();
                }
                return Err(Errno::ERESTARTSYS);
            }
        }
    }

    /// Locks the ring once it has a free slot; `EPIPE` without readers.
    pub fn lock_for_writing(&self, nonblocking: bool) -> Result<MutexGuard<'_, Ring>> {
        let mut woken = false;
        loop {
            if self.readers.load(Ordering::Acquire) == 0 {
                return Err(Errno::EPIPE);
            }
            if !self.is_full() {
                let ring = self.ring.lock();
                if ring.segments.len() < ring.slots {
                    if woken {
                        // This writer may leave free space.
                        self.writable.wake_one();
                    }
                    return Ok(ring);
                }
                continue;
            }
            if nonblocking {
                return Err(Errno::EAGAIN);
            }
            woken = true;
            self.wait_writable()?;
        }
    }

    /// Waits for free space. A thread that waited was woken on behalf of all waiting writers; it
    /// wakes the next one if it leaves space.
    fn wait_writable(&self) -> Result<()> {
        let waited = self.writable.wait_interruptible(None, || {
            let ready = !self.is_full() || self.readers.load(Ordering::Acquire) == 0;
            ready.then_some(())
        });
        if waited.is_err() {
            // The wake-up that came while this thread gave up belongs to another writer.
            self.pass_room_on();
            return Err(Errno::ERESTARTSYS);
        }
        Ok(())
    }

    fn pass_room_on(&self) {
        if !self.is_full() {
            self.writable.wake_one();
        }
    }

    /// Takes up to `most` bytes off the front, as a piece of a frame.
    pub fn take(&self, ring: &mut Ring, most: usize) -> Option<Segment> {
        let front = ring.segments.front_mut()?;
        let mut taken = front.clone();
        taken.own = false;
        taken.length = taken.length.min(most);
        let count = taken.length;
        self.consume(ring, count);
        Some(taken)
    }

    /// Returns a copy of the `index`th piece (`tee`).
    pub fn piece(ring: &Ring, index: usize) -> Option<Segment> {
        ring.segments.get(index).cloned()
    }

    /// Adds a piece in a free slot.
    pub fn push(&self, ring: &mut Ring, segment: Segment) -> Result<()> {
        if ring.segments.len() >= ring.slots {
            return Err(Errno::EAGAIN);
        }
        ring.reserve(1)?;
        self.push_reserved(ring, segment);
        Ok(())
    }

    /// Adds a piece at the end, even beyond the last slot: for data that has no other place to
    /// stay. The caller has [reserved](Ring::reserve) memory for it.
    pub fn push_reserved(&self, ring: &mut Ring, segment: Segment) {
        let bytes = self.bytes.load(Ordering::Relaxed) + segment.length;
        ring.segments.push_back(segment);
        self.publish(ring, bytes);
    }

    /// Drops `count` bytes of the first piece.
    fn consume(&self, ring: &mut Ring, count: usize) {
        let Some(front) = ring.segments.front_mut() else { return };
        front.offset += count;
        front.length -= count.min(front.length);
        let mut bytes = self.bytes.load(Ordering::Relaxed).saturating_sub(count);
        if front.length == 0 || front.packet {
            bytes = bytes.saturating_sub(front.length);
            if let Some(done) = ring.segments.pop_front()
                && done.own
                && ring.spare.is_none()
                && done.frame.is_unique()
            {
                ring.spare = Some(done.frame);
            }
        }
        self.publish(ring, bytes);
    }

    /// Wakes one thread that waits for data; that thread wakes the next if it leaves some.
    pub fn wake_readers(&self) {
        self.readable.wake_one();
        self.signals.tell(Band::In);
    }

    /// Wakes one thread that waits for space; that thread wakes the next if it leaves some.
    pub fn wake_writers(&self) {
        self.writable.wake_one();
        self.signals.tell(Band::Out);
    }

    /// Reads the data that is there; waits for the first byte unless `nonblocking`.
    pub fn read(&self, nonblocking: bool, out: &mut Output<'_>) -> Result<usize> {
        if out.remaining() == 0 {
            return Ok(0);
        }
        let mut woken = false;
        let Some(mut ring) = self.await_data(nonblocking, &mut woken)? else {
            return Ok(0);
        };
        let was_full = ring.segments.len() >= ring.slots;
        let mut outcome = Ok(());
        while out.remaining() != 0 {
            let Some(front) = ring.segments.front() else { break };
            let length = front.length.min(out.remaining());
            let packet = front.packet;
            match out.put_frame(&front.frame, front.offset, length) {
                Ok(count) => {
                    self.consume(&mut ring, count);
                    if packet || count < length {
                        break;
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        let room = ring.segments.len() < ring.slots;
        let rest = !ring.is_empty();
        drop(ring);
        if woken && rest {
            self.readable.wake_one();
        }
        if was_full && room {
            self.writable.wake_one();
        }
        self.signals.tell(Band::Out);
        self.metadata.lock().accessed = Timestamp::now();
        out.finish(outcome)
    }

    /// Writes into a locked ring as much as fits now.
    fn fill(&self, ring: &mut Ring, input: &mut Input<'_>, packet: bool) -> Result<()> {
        // A short piece is appended to the last one if it fits whole.
        let head = input.remaining() % PAGE;
        if head != 0
            && !packet
            && let Some(last) = ring.segments.back_mut()
            && last.own
            && !last.packet
            && last.offset + last.length + head <= PAGE
        {
            let count = input.take_frame(&last.frame, last.offset + last.length, head)?;
            last.length += count;
            self.bytes.fetch_add(count, Ordering::AcqRel);
            if count < head {
                return Err(Errno::EFAULT);
            }
        }
        while input.remaining() != 0 && ring.segments.len() < ring.slots {
            let frame = match ring.spare.take() {
                Some(frame) => frame,
                None => reclaim::frame()?,
            };
            let length = input.remaining().min(PAGE);
            let count = match input.take_frame(&frame, 0, length) {
                Ok(count) => count,
                Err(error) => {
                    ring.spare = Some(frame);
                    return Err(error);
                }
            };
            self.push(ring, Segment { frame, offset: 0, length: count, own: true, packet })?;
            if count < length {
                return Err(Errno::EFAULT);
            }
        }
        Ok(())
    }

    fn write(&self, file: &OpenFile, input: &mut Input<'_>) -> Result<usize> {
        if input.remaining() == 0 {
            return Ok(0);
        }
        let mut woken = false;
        let outcome = self.write_all(file, input, &mut woken);
        if woken {
            self.pass_room_on();
        }
        input.finish(outcome)
    }

    fn write_all(&self, file: &OpenFile, input: &mut Input<'_>, woken: &mut bool) -> Result<()> {
        let packet = file.flags() & O_DIRECT != 0;
        loop {
            if self.readers.load(Ordering::Acquire) == 0 {
                return Err(Errno::EPIPE);
            }
            let mut ring = self.ring.lock();
            let before = input.done();
            let outcome = self.fill(&mut ring, input, packet);
            drop(ring);
            if input.done() != before {
                self.wake_readers();
                self.touch();
            }
            if outcome.is_err() || input.remaining() == 0 {
                return outcome;
            }
            if file.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            *woken = true;
            self.wait_writable()?;
        }
    }

    /// Writes as much as fits; waits for the first free slot unless `nonblocking`, but not for more
    /// (`vmsplice_to_pipe`, fs/splice.c of Linux 6.1).
    pub fn write_some(&self, nonblocking: bool, input: &mut Input<'_>) -> Result<usize> {
        if input.remaining() == 0 {
            return Ok(0);
        }
        let mut ring = self.lock_for_writing(nonblocking)?;
        let outcome = self.fill(&mut ring, input, false);
        drop(ring);
        if input.done() != 0 {
            self.readable.wake_all();
            self.touch();
        }
        input.finish(outcome)
    }

    /// Notes the time of a write.
    pub fn touch(&self) {
        let now = Timestamp::now();
        let mut metadata = self.metadata.lock();
        metadata.modified = now;
        metadata.changed = now;
    }

    /// Returns the capacity in bytes (`F_GETPIPE_SZ`).
    pub fn capacity(&self) -> usize {
        self.slots.load(Ordering::Acquire) * PAGE
    }

    /// Changes the capacity (`F_SETPIPE_SZ`); returns the new one, a power of two pages.
    pub fn set_capacity(&self, bytes: usize, credentials: &Credentials) -> Result<usize> {
        let slots = limits::round(bytes)? / PAGE;
        let mut ring = self.ring.lock();
        self.share.resize(slots, credentials, || {
            if ring.segments.len() > slots { Err(Errno::EBUSY) } else { Ok(()) }
        })?;
        ring.slots = slots;
        self.slots.store(slots, Ordering::Release);
        drop(ring);
        self.writable.wake_all();
        Ok(slots * PAGE)
    }
}

impl Ring {
    /// Whether no slot is free.
    pub fn is_full(&self) -> bool {
        self.segments.len() >= self.slots
    }

    /// The number of free slots.
    pub fn free(&self) -> usize {
        self.slots.saturating_sub(self.segments.len())
    }

    /// Reserves memory for `count` more pieces.
    pub fn reserve(&mut self, count: usize) -> Result<()> {
        self.segments.make_room(count)
    }

    /// Whether there is no data.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}
