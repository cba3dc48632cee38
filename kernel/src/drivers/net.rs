//! The seam between drivers of network devices and the network stack.
//!
//! Downwards: the stack gives an [`OutgoingFrame`] to [`NetworkDevice::transmit`]. Upwards: the
//! stack registers one [`Receiver`], which drivers give every [`IncomingFrame`], from an execution
//! of the kernel, never from an interrupt handler. No payload is copied either way: it lies in
//! [`FrameSlice`]s of frames, those that the device wrote or those that a socket filled.
//!
//! # Locks
//!
//! A driver calls the receiver, wakes [`NetworkDevice::room`] and drops what it has sent without a
//! lock of its own. `DEVICES` is innermost.
//!
//! Road not taken: one structure for both directions, with room for headers at its front (Linux's
//! `sk_buff`). A received frame is only taken apart, and an outgoing one only put together.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Run;
use hayate_machine::sync::{Once, SpinLock};
pub use hayate_virtio_net::{Checksum, Partial, Protocol, Segments, Sent};
use smallvec::SmallVec;

use crate::reclaim::growth::{self, Grow};
use crate::schedule::WaitQueue;

/// A piece of a packet's bytes, within contiguous frames of memory. Never empty.
#[derive(Clone, Debug)]
pub struct FrameSlice {
    memory: Run,
    offset: u16,
    length: u16,
}

impl FrameSlice {
    /// `length` bytes at `offset` of `memory`; `None` if that is nothing or not inside of it.
    pub fn new(memory: impl Into<Run>, offset: usize, length: usize) -> Option<FrameSlice> {
        let memory = memory.into();
        let inside = length != 0 && offset.checked_add(length)? <= memory.size();
        let (offset, length) = (u16::try_from(offset).ok()?, u16::try_from(length).ok()?);
        inside.then_some(FrameSlice { memory, offset, length })
    }

    /// Where the bytes begin in its memory.
    pub fn offset(&self) -> usize {
        self.offset.into()
    }

    /// How many bytes there are.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.length.into()
    }

    /// Copies bytes out, from the byte `from` of the slice on. Returns how many.
    pub fn read(&self, from: usize, to: &mut [u8]) -> usize {
        let left = self.len().saturating_sub(from);
        let count = to.len().min(left);
        self.memory.read(self.offset() + from.min(self.len()), &mut to[..count])
    }

    /// Takes bytes off the front; at least one stays.
    pub fn advance(&mut self, count: usize) {
        let count = count.min(self.len() - 1) as u16;
        self.offset += count;
        self.length -= count;
    }

    /// Takes bytes off the end; at least one stays.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length.max(1) as u16);
    }
}

/// The slices of one packet, in order.
pub type Slices = SmallVec<[FrameSlice; 2]>;

/// A received frame, from the first byte of the Ethernet header on.
#[derive(Debug)]
pub struct IncomingFrame {
    /// Its bytes; at least one slice.
    pub slices: Slices,
    /// How many bytes that are.
    pub length: usize,
    /// The state of its checksum.
    pub checksum: Checksum,
    /// The segments that were joined to it on the way, if it is larger than the medium's frames.
    pub segments: Option<Segments>,
}

/// Bytes at the front of an outgoing frame that belong to the driver.
const FRONT: usize = hayate_virtio_net::HEADER;

/// The most bytes of [`OutgoingFrame::push`]: with the driver's they are one object of the heap.
pub const HEAD: usize = 2048 - FRONT;

/// A frame to be sent. Its first bytes (headers, or a small frame altogether) are in memory of its
/// own, the rest in slices.
pub struct OutgoingFrame {
    /// The driver's bytes, then the first of the frame.
    head: Vec<u8>,
    slices: Slices,
    length: usize,
    /// The work that is left to the device; see [`NetworkDevice::offloads`].
    pub offload: Sent,
    /// Whether the sender waits until the device has sent it: otherwise it may be dropped only when
    /// further frames are sent.
    pub prompt: bool,
    owner: Option<Held>,
}

/// The sender of frames that counts the bytes that the device has not sent.
pub trait Owner: Send + Sync {
    /// The device, or its queue, was given a frame of so many bytes.
    fn given(&self, bytes: usize);

    /// The frame was sent, or dropped. Called on whichever processor, from an interrupt handler
    /// too, without a lock of the driver's. Must neither sleep nor send.
    fn sent(&self, bytes: usize);
}

/// The bytes of a frame that its owner counts.
pub struct Held {
    owner: Arc<dyn Owner>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.owner.sent(self.bytes);
    }
}

impl OutgoingFrame {
    /// An empty frame with room for `head` bytes in memory of its own.
    ///
    /// # Errors
    /// `ENOMEM`; `EMSGSIZE` for more than [`HEAD`].
    pub fn new(head: usize) -> Result<OutgoingFrame> {
        if head > HEAD {
            return Err(Errno::EMSGSIZE);
        }
        let mut bytes = Vec::new();
        bytes.make_room_exact(FRONT + head)?;
        bytes.extend_from_slice(&[0; FRONT]);
        Ok(OutgoingFrame {
            head: bytes,
            slices: Slices::new(),
            length: 0,
            offload: Sent::default(),
            prompt: false,
            owner: None,
        })
    }

    /// Appends bytes to the head, before all slices.
    ///
    /// # Errors
    /// `EMSGSIZE`: there is not so much room left of what [`new`](Self::new) was told.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if self.head.capacity() - self.head.len() < bytes.len() {
            return Err(Errno::EMSGSIZE);
        }
        self.head.extend_from_slice(bytes);
        self.length += bytes.len();
        Ok(())
    }

    /// Appends bytes of frames of memory to the head, before all slices.
    ///
    /// # Errors
    /// `EMSGSIZE` as [`push`](Self::push), `EINVAL` if the memory has not so many.
    pub fn push_from(&mut self, memory: &Run, offset: usize, count: usize) -> Result<()> {
        if self.head.capacity() - self.head.len() < count {
            return Err(Errno::EMSGSIZE);
        }
        if !memory.append_to(&mut self.head, offset, count) {
            return Err(Errno::EINVAL);
        }
        self.length += count;
        Ok(())
    }

    /// Appends a slice.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn append(&mut self, slice: FrameSlice) -> Result<()> {
        self.slices.make_room(1)?;
        self.length += slice.len();
        self.slices.push(slice);
        Ok(())
    }

    /// Lets `owner` count its bytes from now until the device has sent it, or it is dropped. It has
    /// all its bytes.
    pub fn set_owner(&mut self, owner: Arc<dyn Owner>) {
        owner.given(self.length);
        self.owner = Some(Held { owner, bytes: self.length });
    }

    /// Returns the number of its bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the number of its slices.
    pub(super) fn slices(&self) -> usize {
        self.slices.len()
    }

    /// Takes it apart: the head behind `front`, the slices, the owner.
    pub(super) fn into_parts(mut self, front: [u8; FRONT]) -> (Vec<u8>, Slices, Option<Held>) {
        self.head[..FRONT].copy_from_slice(&front);
        (self.head, self.slices, self.owner)
    }
}

impl FrameSlice {
    /// Takes it apart: memory, offset, length.
    pub fn into_parts(self) -> (Run, usize, usize) {
        (self.memory, self.offset.into(), self.length.into())
    }
}

/// The work that a device takes from the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// It completes checksums of TCP and UDP.
    pub checksum: bool,
    /// It cuts TCP over IPv4 into segments.
    pub tso4: bool,
    /// It cuts TCP over IPv6 into segments.
    pub tso6: bool,
}

/// Counts of frames that went through a device since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are named as in /proc/net/dev")]
pub struct Counts {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    /// Frames that did not obey the device's rules.
    pub rx_errors: u64,
    /// Frames for which there was no memory, or no receiver.
    pub rx_dropped: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Frames that ask for what the device cannot do.
    pub tx_errors: u64,
    /// Frames for which there was no memory.
    pub tx_dropped: u64,
}

impl core::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.rx_packets += more.rx_packets;
        self.rx_bytes += more.rx_bytes;
        self.rx_errors += more.rx_errors;
        self.rx_dropped += more.rx_dropped;
        self.tx_packets += more.tx_packets;
        self.tx_bytes += more.tx_bytes;
        self.tx_errors += more.tx_errors;
        self.tx_dropped += more.tx_dropped;
    }
}

/// An Ethernet device.
pub trait NetworkDevice: Send + Sync {
    /// Its address.
    fn mac(&self) -> [u8; 6];

    /// The most bytes of an IP packet in one frame.
    fn mtu(&self) -> usize;

    /// Whether the other end is there.
    fn link_up(&self) -> bool;

    /// The work that it takes from the stack.
    fn offloads(&self) -> Offloads;

    /// Gives a frame to the device, on the transmit queue of this processor. Does not sleep. The
    /// frames of one processor go out in order. A frame that the device cannot send, or for which
    /// there is no memory, is dropped and counted, as on any medium.
    ///
    /// # Errors
    /// The frame, if the queue is full: then [`room`](Self::room) will be woken.
    fn transmit(&self, frame: OutgoingFrame) -> core::result::Result<(), OutgoingFrame>;

    /// Somebody waits until frames are sent that were given to any of the queues: gives back those
    /// that are, and asks for an interrupt for the others. Does not sleep.
    fn hasten(&self);

    /// Woken, also from an interrupt handler, when a queue that was full has room again.
    fn room(&self) -> &WaitQueue;

    /// Returns what went through it.
    fn counts(&self) -> Counts;

    /// Whether to receive frames for all addresses. Sleeps. `EOPNOTSUPP` if the device cannot,
    /// `EIO` if it does not answer.
    fn set_promiscuous(&self, on: bool) -> Result<()>;

    /// Whether to receive frames for all multicast addresses; as
    /// [`set_promiscuous`](Self::set_promiscuous).
    fn set_all_multicast(&self, on: bool) -> Result<()>;

    /// Changes the address; as [`set_promiscuous`](Self::set_promiscuous), and `EADDRNOTAVAIL` for
    /// one that no device can have.
    fn set_mac(&self, mac: [u8; 6]) -> Result<()>;
}

/// Whether a device can have this address: not that of a group, nor zero.
pub fn is_station(mac: [u8; 6]) -> bool {
    mac[0] & 1 == 0 && mac != [0; 6]
}

/// The network stack, as drivers know it. Devices are named by their number among all
/// ([`devices`]).
pub trait Receiver: Send + Sync {
    /// Takes frames that arrived one after the other. Called from an execution of the kernel, one
    /// for each receive queue; may sleep.
    fn receive(&self, device: usize, frames: &mut dyn Iterator<Item = IncomingFrame>);

    /// The link of a device came or went ([`NetworkDevice::link_up`]). Called from an interrupt
    /// handler; must not sleep.
    fn link_changed(&self, device: usize);
}

static RECEIVER: Once<&'static dyn Receiver> = Once::new();
static DEVICES: SpinLock<Vec<Arc<dyn NetworkDevice>>> = SpinLock::new(Vec::new());

/// Registers the receiver of all devices; later calls change nothing.
pub fn set_receiver(receiver: &'static dyn Receiver) {
    RECEIVER.call_once(|| receiver);
}

/// The receiver, if there is one by now.
pub(super) fn receiver() -> Option<&'static dyn Receiver> {
    #[cfg(feature = "tests")]
    if let Some(witness) = *WITNESS.lock() {
        return Some(witness);
    }
    RECEIVER.get().copied()
}

/// In a kernel for tests: takes the place of the receiver while a test watches.
#[cfg(feature = "tests")]
pub static WITNESS: SpinLock<Option<&'static dyn Receiver>> = SpinLock::new(None);

/// Registers a device; returns its number. `ENOMEM`.
pub(super) fn register(device: Arc<dyn NetworkDevice>) -> Result<usize> {
    let mut devices = DEVICES.lock();
    growth::push(&mut devices, device)?;
    Ok(devices.len() - 1)
}

/// Returns all devices, in the order in which they were found.
pub fn devices() -> Vec<Arc<dyn NetworkDevice>> {
    DEVICES.lock().clone()
}

/// Returns the device of this number.
pub fn device(number: usize) -> Option<Arc<dyn NetworkDevice>> {
    DEVICES.lock().get(number).cloned()
}
