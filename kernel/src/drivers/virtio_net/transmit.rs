//! A transmit queue.
//!
//! Frames that the device has sent are given back when further frames come, without an interrupt
//! for each: the queue asks for one only when it is full, when a sender waits for a frame's memory
//! ([`OutgoingFrame::prompt`]) or for any frames ([`Transmit::hasten`]), or when sent frames hold
//! [`HELD`] bytes. So the memory of an idle queue is bounded by that.
//!
//! Frames that find the queue full wait behind it, in order (as in Linux' `pfifo_fast`), and the
//! interrupt that they ask for moves them on: a sender that is faster than the device for a moment
//! loses nothing. A connection of TCP keeps itself from filling that
//! ([`Owner`](crate::drivers::net::Owner)).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use hayate_abi::Result;
use hayate_machine::sync::{SpinGuard, SpinLock};
use hayate_machine::virtio::{Chain, Piece, Queue};
use hayate_virtio_net as format;

use crate::drivers::net::{Counts, Held, OutgoingFrame};
use crate::reclaim::growth::{self, Grow};

/// Bytes in the queue from which on an interrupt tells that they were sent.
const HELD: usize = 256 << 10;
/// The most frames that wait behind a full queue (Linux: `DEFAULT_TX_QUEUE_LEN`).
const WAITING: usize = 1000;
/// The most bytes of these.
const WAITING_BYTES: usize = 4 << 20;
/// Frames that are given back under one hold of the lock.
const BATCH: usize = 16;

/// A transmit queue.
pub struct Transmit {
    state: SpinLock<State>,
    agreed: u64,
}

struct State {
    queue: Queue,
    /// A note on each frame in the queue; its number is the chain's token.
    notes: Vec<Note>,
    /// The numbers of free notes.
    free: Vec<u16>,
    /// Bytes of the frames in the queue.
    held: usize,
    /// Frames in the queue for whose memory a sender waits.
    prompt: usize,
    /// Frames that wait for room, and their bytes.
    waiting: VecDeque<OutgoingFrame>,
    waiting_bytes: usize,
    /// Whether a sender waits for frames that are in the queue.
    hastened: bool,
    /// Whether a sender was refused for want of room, and not yet woken.
    wanted: bool,
    counts: Counts,
}

#[derive(Default)]
struct Note {
    length: usize,
    prompt: bool,
    owner: Option<Held>,
}

/// Frames that were sent, to be dropped without the lock.
type Done = ArrayVec<(Chain, Option<Held>), BATCH>;

impl Transmit {
    /// An empty queue, which wants no interrupts. `ENOMEM`.
    pub fn new(mut queue: Queue, agreed: u64) -> Result<Transmit> {
        queue.silence();
        let size = queue.size();
        let mut notes = Vec::new();
        notes.make_room_exact(size.into())?;
        notes.resize_with(size.into(), Note::default);
        let free = growth::collect((0..size).rev())?;
        let counts = Counts::default();
        let state = State {
            queue,
            notes,
            free,
            held: 0,
            prompt: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            hastened: false,
            wanted: false,
            counts,
        };
        Ok(Transmit { state: SpinLock::new(state), agreed })
    }

    /// Counts of frames that went through it.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Gives a frame to the device; see `NetworkDevice::transmit`.
    pub fn give(&self, frame: OutgoingFrame) -> core::result::Result<(), OutgoingFrame> {
        let header = format::write(&frame.offload, frame.length(), self.agreed);
        let mut done = Done::new();
        let mut state = self.state.lock();
        let needed = 1 + frame.slices();
        let Some(header) = header.ok().filter(|_| needed <= usize::from(state.queue.size())) else {
            state.counts.tx_errors += 1;
            return Ok(());
        };
        loop {
            state.collect(&mut done);
            state.refill(&mut done, self.agreed);
            if state.waiting.is_empty() && usize::from(state.queue.room()) >= needed {
                break;
            }
            if done.is_empty() && state.listen() {
                return state.hold(frame);
            }
            state = self.part(state, &mut done);
        }
        let left = state.put(frame, header);
        while state.wants_interrupts() && !state.listen() {
            // They are sent already.
            state.collect(&mut done);
            state = self.part(state, &mut done);
        }
        drop(state);
        // Dropped without the lock, as all that was sent.
        drop(left);
        Ok(())
    }

    /// For the interrupt handler: gives back what was sent. Returns whether those that wait for
    /// room are to be woken.
    pub fn interrupt(&self) -> bool {
        self.give_back(self.state.lock())
    }

    /// Somebody waits for frames that are in the queue, or behind it: gives back those that were
    /// sent, and asks for interrupts until it is empty. Returns as [`interrupt`](Self::interrupt).
    pub fn hasten(&self) -> bool {
        let mut state = self.state.lock();
        state.hastened = state.queue.outstanding() > 0;
        state.hastened && self.give_back(state)
    }

    /// Gives back what was sent, and asks for the next interrupt if one is wanted.
    fn give_back<'a>(&'a self, mut state: SpinGuard<'a, State>) -> bool {
        let mut done = Done::new();
        let mut wake = false;
        loop {
            loop {
                let count = state.collect(&mut done);
                state.refill(&mut done, self.agreed);
                if count == 0 {
                    break;
                }
                state = self.part(state, &mut done);
            }
            if state.queue.room() >= state.queue.size() / 2 {
                wake |= core::mem::take(&mut state.wanted);
            }
            if !state.wants_interrupts() {
                state.queue.silence();
                return wake;
            }
            if state.listen() {
                return wake;
            }
        }
    }

    /// Drops what was sent, without the lock meanwhile.
    fn part<'a>(&'a self, state: SpinGuard<'a, State>, done: &mut Done) -> SpinGuard<'a, State> {
        drop(state);
        done.clear();
        self.state.lock()
    }
}

impl State {
    /// Takes frames that were sent out of the queue; returns how many.
    fn collect(&mut self, done: &mut Done) -> usize {
        let before = done.len();
        while !done.is_full()
            && let Some((chain, _)) = self.queue.take()
        {
            let number = chain.token as u16;
            let note = self.notes.get_mut(usize::from(number)).map(core::mem::take);
            let note = note.unwrap_or_default();
            self.free.push(number);
            self.held -= note.length;
            self.prompt -= usize::from(note.prompt);
            done.push((chain, note.owner));
        }
        self.hastened = self.hastened && self.queue.outstanding() > 0;
        done.len() - before
    }

    /// Lets a frame wait for room in the queue. It comes back if too many do.
    fn hold(&mut self, frame: OutgoingFrame) -> core::result::Result<(), OutgoingFrame> {
        let bytes = self.waiting_bytes + frame.length();
        let admitted = self.waiting.len() < WAITING && bytes <= WAITING_BYTES;
        if !admitted || self.waiting.make_room(1).is_err() {
            self.wanted = true;
            return Err(frame);
        }
        self.waiting_bytes = bytes;
        self.waiting.push_back(frame);
        Ok(())
    }

    /// Puts frames that wait into the queue, as far as it has room. What is dropped instead goes to
    /// `done`.
    fn refill(&mut self, done: &mut Done, agreed: u64) {
        while !done.is_full()
            && let Some(first) = self.waiting.front()
            && usize::from(self.queue.room()) > first.slices()
            && let Some(frame) = self.waiting.pop_front()
        {
            self.waiting_bytes -= frame.length();
            // It was made before, or the frame would not wait.
            if let Ok(header) = format::write(&frame.offload, frame.length(), agreed) {
                done.extend(self.put(frame, header));
            }
        }
    }

    /// Puts a frame into the queue, which has room for it. Returns what is to be dropped instead,
    /// if memory is exhausted.
    fn put(
        &mut self,
        frame: OutgoingFrame,
        header: [u8; format::HEADER],
    ) -> Option<(Chain, Option<Held>)> {
        let (length, prompt, pieces) = (frame.length(), frame.prompt, 1 + frame.slices());
        let (head, slices, owner) = frame.into_parts(header);
        let mut chain = Chain::new(0);
        let mut good = chain.make_room(pieces) && chain.reads(Piece::list(head));
        for slice in slices {
            let (run, offset, length) = slice.into_parts();
            good = good && chain.reads(Piece::Run { run, offset, length });
        }
        let number = if good { self.free.pop() } else { None };
        let Some(number) = number else {
            self.counts.tx_dropped += 1;
            return Some((chain, owner));
        };
        chain.token = number.into();
        if let Err(chain) = self.queue.give(chain) {
            self.free.push(number);
            self.counts.tx_dropped += 1;
            return Some((chain, owner));
        }
        self.notes[usize::from(number)] = Note { length, prompt, owner };
        self.held += length;
        self.prompt += usize::from(prompt);
        self.counts.tx_packets += 1;
        self.counts.tx_bytes += length as u64;
        self.queue.notify();
        None
    }

    /// Whether a sender is to hear of frames that are sent, before more of them come.
    fn wants_interrupts(&self) -> bool {
        let wanted = self.wanted || self.hastened || self.prompt > 0 || !self.waiting.is_empty();
        self.queue.outstanding() > 0 && (wanted || self.held >= HELD)
    }

    /// Asks for an interrupt. Returns false if there is something to collect instead.
    fn listen(&mut self) -> bool {
        let all = self.queue.outstanding();
        // If senders wait for room, three quarters are enough to go on, before the rest is sent,
        // too.
        !self.queue.listen_after(if self.prompt > 0 { all } else { all - all / 4 })
    }
}
