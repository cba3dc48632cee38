//! A receive queue: its buffers, and the frames that are made of them.
//!
//! Each buffer is a frame of memory. The device writes its header and then a packet into one, or,
//! with `MRG_RXBUF`, a large packet into several; the packet's slices are those very frames, and
//! new ones take their place. The lengths and numbers that the device writes are checked here.
//!
//! The queue's interrupt only wakes the queue's execution and is then off until that has found the
//! queue empty (as Linux' NAPI): under load nothing interrupts, and when idle nothing polls.

use arrayvec::ArrayVec;
use hayate_machine::frames::Frame;
use hayate_machine::sync::SpinLock;
use hayate_machine::virtio::{Chain, Piece, Queue};
use hayate_virtio_net::{self as format, HEADER, LARGEST};

use crate::drivers::net::{self, Counts, FrameSlice, IncomingFrame, Slices};
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{self, WaitQueue};

const PAGE: usize = 4096;
/// Buffers that the device has from the start; it gets the rest of the queue with the first packet.
const FIRST_BUFFERS: u16 = 64;
/// Packets after which others may run.
const TURN: usize = 64;
/// Buffers that are given back to the device at a time.
const BATCH: usize = 16;
/// After which time memory for buffers is asked for again, in nanoseconds, if there was none.
const RETRY: u64 = 20_000_000;

/// A receive queue.
pub struct Receive {
    state: SpinLock<State>,
    /// Woken by the interrupt, for the queue's execution.
    arrived: WaitQueue,
    agreed: u64,
}

struct State {
    queue: Queue,
    counts: Counts,
}

/// The result of taking one packet from the device.
enum Taken {
    Frame(IncomingFrame),
    /// It was counted and dropped.
    Bad,
}

impl Receive {
    /// A queue without buffers.
    pub fn new(queue: Queue, agreed: u64) -> Receive {
        let state = State { queue, counts: Counts::default() };
        Receive { state: SpinLock::new(state), arrived: WaitQueue::new(), agreed }
    }

    /// Counts of frames that went through it.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// For the interrupt handler.
    pub fn interrupt(&self) {
        let mut state = self.state.lock();
        if state.queue.has_answers() {
            state.queue.silence();
            drop(state);
            self.arrived.wake_all();
        }
    }

    /// The work of the queue's execution: gives the packets of device `number` to the receiver, for
    /// ever.
    pub fn run(&self, number: usize) -> ! {
        let mut full = self.fill(FIRST_BUFFERS);
        loop {
            // Without enough buffers the device may have none for a packet, and would not
            // interrupt.
            let deadline = (!full).then(|| monotonic_ns() + RETRY);
            let arrived = || self.state.lock().queue.listen().then_some(());
            let _ = self.arrived.wait_interruptible(deadline, arrived);
            self.state.lock().queue.silence();
            full = self.drain(number);
        }
    }

    /// Handles packets until there are none. Returns whether the queue has all its buffers.
    fn drain(&self, number: usize) -> bool {
        loop {
            let mut left = TURN;
            let mut is_empty = false;
            let mut frames = core::iter::from_fn(|| {
                while left > 0 {
                    left -= 1;
                    match self.take() {
                        Some(Taken::Frame(frame)) => return Some(frame),
                        Some(Taken::Bad) => {}
                        None => {
                            is_empty = true;
                            break;
                        }
                    }
                }
                None
            });
            match net::receiver() {
                Some(receiver) => receiver.receive(number, &mut frames),
                None => {
                    let lost = frames.count() as u64;
                    self.state.lock().counts.rx_dropped += lost;
                }
            }
            let full = self.fill(u16::MAX);
            if is_empty {
                return full;
            }
            schedule::breathe();
        }
    }

    /// Gives the device new buffers until it has `target` (or the queue is full). Returns false if
    /// memory did not suffice.
    fn fill(&self, target: u16) -> bool {
        loop {
            let missing = {
                let state = self.state.lock();
                let target = target.min(state.queue.size());
                target.saturating_sub(state.queue.size() - state.queue.room())
            };
            let mut frames: ArrayVec<Frame, BATCH> = ArrayVec::new();
            let wanted = usize::from(missing).min(BATCH);
            // Without the lock, since what is cached may have to be given up for them.
            frames.extend((0..wanted).map_while(|_| reclaim::frame().ok()));
            let enough = frames.len() == wanted;
            let mut state = self.state.lock();
            for frame in frames {
                let mut chain = Chain::new(0);
                if !chain.writes(Piece::frame(frame)) || state.queue.give(chain).is_err() {
                    return false;
                }
            }
            state.queue.notify();
            drop(state);
            if !enough || usize::from(missing) == wanted {
                return enough;
            }
        }
    }

    /// Takes the next packet from the queue.
    fn take(&self) -> Option<Taken> {
        let mut state = self.state.lock();
        let State { queue, counts } = &mut *state;
        let first = queue.take()?;
        let taken = assemble(first, || queue.take(), self.agreed);
        Some(match taken {
            Ok(frame) => {
                counts.rx_packets += 1;
                counts.rx_bytes += frame.length as u64;
                Taken::Frame(frame)
            }
            Err(Unfit::Memory) => {
                counts.rx_dropped += 1;
                Taken::Bad
            }
            Err(Unfit::Device) => {
                counts.rx_errors += 1;
                Taken::Bad
            }
        })
    }
}

/// Why there is no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Memory for its slices is exhausted.
    Memory,
    /// The device did not obey its rules.
    Device,
}

/// Makes a frame of the buffer `first` and as many further ones as its header says, which `more`
/// takes from the queue. Those that belong to a packet are taken even if it is not a good one.
///
/// # Errors
/// Why there is none; the buffers are free then.
pub fn assemble(
    first: (Chain, u32),
    mut more: impl FnMut() -> Option<(Chain, u32)>,
    agreed: u64,
) -> Result<IncomingFrame, Unfit> {
    let (frame, written) = buffer(first).ok_or(Unfit::Device)?;
    let mut header = [0; HEADER];
    if written < HEADER || frame.read(0, &mut header) != HEADER {
        return Err(Unfit::Device);
    }
    let buffers = format::buffers(&header, agreed);
    let mut slices = Slices::new();
    let mut length = written - HEADER;
    let mut fault = if buffers == 0 { Some(Unfit::Device) } else { None };
    if usize::from(buffers) > LARGEST.div_ceil(PAGE) + 1 {
        // Nobody needs so many; the following buffers are taken for packets of their own.
        return Err(Unfit::Device);
    }
    if slices.make_room(buffers.into()).is_err() {
        fault = fault.or(Some(Unfit::Memory));
    }
    let mut keep = |slice: Option<FrameSlice>| match slice {
        Some(slice) if fault.is_none() => slices.push(slice),
        Some(_) => {}
        None => fault = Some(Unfit::Device),
    };
    keep(FrameSlice::new(frame, HEADER, written - HEADER));
    for _ in 1..buffers {
        // All buffers of a packet come at once (5.1.6.4).
        match more().map(buffer) {
            Some(Some((frame, written))) => {
                length += written;
                keep(FrameSlice::new(frame, 0, written));
            }
            Some(None) => keep(None),
            None => return Err(Unfit::Device),
        }
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    if length > LARGEST {
        return Err(Unfit::Device);
    }
    let received = format::read(&header, length, agreed).map_err(|_| Unfit::Device)?;
    let format::Received { checksum, segments } = received;
    Ok(IncomingFrame { slices, length, checksum, segments })
}

/// Returns a buffer's frame of memory, and how many bytes the device says it wrote; `None` if that
/// is more than it has.
fn buffer((chain, written): (Chain, u32)) -> Option<(Frame, usize)> {
    let written = usize::try_from(written).ok().filter(|written| *written <= PAGE)?;
    match chain.into_pieces().pop() {
        Some(Piece::Frame { frame, .. }) => Some((frame, written)),
        _ => None,
    }
}
