//! A device: its start, its queues, its configuration, over either transport.

use super::queue::{Bell, EVENT_INDEX, Queue};
use crate::clock;
use crate::interrupt::Handler;
use crate::nvm::{self, Area, Refusal};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering};

/// The kinds of devices that drivers name; the others are passed on by number.
pub mod kind {
    #![allow(missing_docs)]
    pub const NET: u32 = 1;
    pub const BLOCK: u32 = 2;
    pub const CONSOLE: u32 = 3;
    pub const ENTROPY: u32 = 4;
    pub const BALLOON: u32 = 5;
    pub const NINEP: u32 = 9;
    pub const PMEM: u32 = 27;
}

/// `VIRTIO_F_VERSION_1`.
const VERSION_1: u64 = 1 << 32;

mod status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
    pub const FAILED: u8 = 128;
}

/// Why a device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The device does not finish a reset.
    Reset,
    /// The device supports only the interface before version 1.
    Legacy,
    /// The device refuses the chosen features.
    Features,
    /// The device has no such queue.
    NoQueue,
    /// Memory for a queue is exhausted.
    Memory,
    /// No interrupt could be set up.
    Interrupt,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Reset => "it does not answer to a reset",
            Self::Legacy => "it offers only the legacy interface",
            Self::Features => "it refuses the features chosen",
            Self::NoQueue => "it lacks a queue",
            Self::Memory => "there is no memory for a queue",
            Self::Interrupt => "no interrupt could be set up for it",
        })
    }
}

/// How long a device's reset may take.
const RESET_NS: u64 = 2_000_000_000;

/// Access to a device's registers. Offsets and meanings of the device's own configuration are the
/// same in both transports.
pub(super) trait Transport: Send + Sync {
    fn kind(&self) -> u32;
    fn status(&self) -> u8;
    fn set_status(&self, status: u8);
    fn features(&self) -> u64;
    fn set_features(&self, features: u64);
    fn queue_size(&self, queue: u16) -> u16;
    /// Tells the device where the three parts of a queue are, and starts the queue.
    fn set_queue(&self, queue: u16, size: u16, descriptors: u64, available: u64, used: u64);
    /// Returns the register that takes a queue's number as notification of new requests.
    fn bell(&self, queue: u16) -> Bell;
    /// Lets the device interrupt for all queues and changes of configuration.
    fn connect(&self, handler: Handler) -> bool;
    /// Moves the interrupts of these queues, which are set up, to a handler and a processor of
    /// their own. False if the transport cannot do that: nothing has changed then.
    fn connect_queues(&self, _queues: &[u16], _cpu: usize, _handler: Handler) -> bool {
        false
    }
    /// Whether an interrupt since the last call may have been for a change of configuration.
    fn may_have_changed(&self) -> bool {
        true
    }
    fn generation(&self) -> u32;
    fn config8(&self, offset: usize) -> u8;
    fn config32(&self, offset: usize) -> u32;
    fn set_config32(&self, offset: usize, value: u32);
}

/// A virtio device.
pub struct Device {
    transport: Box<dyn Transport>,
    /// The device's address, for messages.
    place: alloc::string::String,
    /// The features that were negotiated.
    agreed: AtomicU64,
}

impl Device {
    pub(super) fn new(transport: Box<dyn Transport>, place: alloc::string::String) -> Device {
        Device { transport, place, agreed: AtomicU64::new(0) }
    }

    /// Returns the kind of device (see [`kind`]).
    pub fn kind(&self) -> u32 {
        self.transport.kind()
    }

    /// Returns the device's address, for messages: its PCI address or that of its registers.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Resets the device and negotiates the features of `wanted` that it offers, which are
    /// returned.
    pub fn negotiate(&self, wanted: u64) -> Result<u64, Error> {
        self.negotiate_by(|offered| offered & wanted)
    }

    /// Resets the device and negotiates those features that `choose` picks out of the offered ones,
    /// which are returned: where some features need others.
    pub fn negotiate_by(&self, choose: impl FnOnce(u64) -> u64) -> Result<u64, Error> {
        let transport = &*self.transport;
        transport.set_status(0);
        // A device may take some time (VIRTIO 1.2, 4.1.4.3.2); a removed device reads as all ones.
        let end = clock::monotonic_ns() + RESET_NS;
        while transport.status() != 0 {
            if clock::monotonic_ns() > end {
                return Err(Error::Reset);
            }
            core::hint::spin_loop();
        }
        transport.set_status(status::ACKNOWLEDGE);
        transport.set_status(status::ACKNOWLEDGE | status::DRIVER);
        let offered = transport.features();
        if offered & VERSION_1 == 0 {
            transport.set_status(status::FAILED);
            return Err(Error::Legacy);
        }
        let agreed = offered & (choose(offered) | VERSION_1);
        transport.set_features(agreed);
        transport.set_status(status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK);
        if transport.status() & status::FEATURES_OK == 0 {
            transport.set_status(status::FAILED);
            return Err(Error::Features);
        }
        self.agreed.store(agreed, Ordering::Relaxed);
        Ok(agreed)
    }

    /// Sets queue `index` up, with at most `limit` descriptors (a power of two).
    pub fn queue(&self, index: u16, limit: u16) -> Result<Queue, Error> {
        let size = self.transport.queue_size(index).min(limit);
        if size == 0 || !size.is_power_of_two() {
            return Err(Error::NoQueue);
        }
        let events = self.agreed.load(Ordering::Relaxed) & EVENT_INDEX != 0;
        let queue = Queue::new(size, self.transport.bell(index), events).ok_or(Error::Memory)?;
        let [descriptors, available, used] = queue.parts();
        self.transport.set_queue(index, size, descriptors, available, used);
        Ok(queue)
    }

    /// Enables the device's interrupts, for all queues that are set up afterwards. May be called
    /// once.
    pub fn connect(&self, handler: Handler) -> Result<(), Error> {
        if self.transport.connect(handler) { Ok(()) } else { Err(Error::Interrupt) }
    }

    /// Gives queues, which are set up, an interrupt and a handler of their own, on processor `cpu`.
    /// Returns false if the transport has only one interrupt for all, or none left: then these
    /// queues keep the handler of [`connect`](Self::connect). Called before
    /// [`start`](Self::start).
    pub fn connect_queues(&self, queues: &[u16], cpu: usize, handler: Handler) -> bool {
        self.transport.connect_queues(queues, cpu, handler)
    }

    /// Makes an area of the memory that a persistent memory device reports (virtio 1.2, 5.19.4).
    ///
    /// # Errors
    /// The memory that the device reports (empty if the device is of another kind), and why it
    /// cannot be used.
    pub fn attach_memory(&self) -> Result<&'static Area, (ClaimedMemory, Refusal)> {
        const START: usize = 0;
        const SIZE: usize = 8;
        let claimed = if self.kind() == kind::PMEM {
            self.config(|config| ClaimedMemory { start: config.u64(START), size: config.u64(SIZE) })
        } else {
            ClaimedMemory { start: 0, size: 0 }
        };
        nvm::attach(claimed.start, claimed.size).map_err(|refusal| (claimed, refusal))
    }

    /// Tells the device that its driver has given up.
    pub fn give_up(&self) {
        self.transport.set_status(status::FAILED);
    }

    /// Tells the device that its driver is ready.
    pub fn start(&self) {
        use status::{ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK};
        self.transport.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
    }

    /// Whether the device's configuration may have changed since the last call; for the handler of
    /// [`connect`](Self::connect).
    pub fn may_have_changed(&self) -> bool {
        self.transport.may_have_changed()
    }

    /// Tells a balloon's device how many frames the host has (`actual`, virtio 1.2, 5.5.4). Other
    /// kinds of devices are told nothing.
    pub fn set_balloon_size(&self, frames: u32) {
        const ACTUAL: usize = 4;
        if self.kind() == kind::BALLOON {
            self.transport.set_config32(ACTUAL, frames);
        }
    }

    /// Reads the device's configuration with `read`, repeatedly until it has not changed meanwhile.
    pub fn config<T>(&self, read: impl Fn(Config<'_>) -> T) -> T {
        loop {
            let before = self.transport.generation();
            let value = read(Config(&*self.transport));
            if self.transport.generation() == before {
                return value;
            }
        }
    }
}

/// The memory that a persistent memory device reports.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedMemory {
    /// The physical address.
    pub start: u64,
    /// The size in bytes.
    pub size: u64,
}

/// A device's configuration, by byte offset. Fields that a device does not have read as all ones.
#[derive(Clone, Copy)]
pub struct Config<'a>(&'a dyn Transport);

impl Config<'_> {
    /// Reads a byte.
    pub fn u8(self, offset: usize) -> u8 {
        self.0.config8(offset)
    }

    /// Reads two bytes.
    pub fn u16(self, offset: usize) -> u16 {
        u16::from_le_bytes([self.u8(offset), self.u8(offset + 1)])
    }

    /// Reads four bytes, aligned.
    pub fn u32(self, offset: usize) -> u32 {
        self.0.config32(offset)
    }

    /// Reads eight bytes, aligned to four.
    pub fn u64(self, offset: usize) -> u64 {
        u64::from(self.u32(offset)) | u64::from(self.u32(offset + 4)) << 32
    }
}
