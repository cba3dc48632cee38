//! virtio: the transports and the queues (virtio 1.2, sections 2 to 4).
//!
//! A driver in the kernel finds a [`Device`] by [`devices`], negotiates features, makes its
//! [`Queue`]s and starts it. What travels through a queue is a [`Chain`], which owns its memory until
//! the device has answered: that is why a driver can be written without unsafe code.
//!
//! Split queues, version 1 only (`VIRTIO_F_VERSION_1`): every device model of the last ten years
//! offers both; legacy devices are refused.
//!
//! The road not taken: the crate `virtio-drivers` has transports and queues, but its queues take
//! Rust slices (a device fills frames that programs may have mapped), have a size fixed at compile
//! time and stop the machine on an odd answer; its transports know neither MSI-X nor
//! virtio-pmem and take three register accesses for a notification instead of one.

mod chain;
mod mmio;
mod pci;
mod queue;

use crate::nvm::{self, Area, Refusal};
use crate::time;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub use crate::interrupt::Handler;
pub use chain::{Bytes, Chain, Piece};
pub use queue::Queue;

/// `VIRTIO_F_VERSION_1`.
const VERSION_1: u64 = 1 << 32;

/// What a driver calls a kind of device; the others are passed on by number.
pub mod kind {
    #![allow(missing_docs)]
    pub const NET: u32 = 1;
    pub const BLOCK: u32 = 2;
    pub const CONSOLE: u32 = 3;
    pub const ENTROPY: u32 = 4;
    pub const PMEM: u32 = 27;
}

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
    /// It does not come to the end of a reset.
    Reset,
    /// It speaks only the interface before version 1.
    Legacy,
    /// It refuses the features that were chosen.
    Features,
    /// It has no such queue.
    NoQueue,
    /// There is no memory for a queue.
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

/// How registers are reached. Offsets and meanings of the device's own configuration are the same
/// in both transports.
trait Transport: Send + Sync {
    fn kind(&self) -> u32;
    fn status(&self) -> u8;
    fn set_status(&self, status: u8);
    fn features(&self) -> u64;
    fn set_features(&self, features: u64);
    fn queue_size(&self, queue: u16) -> u16;
    /// Tells where the three parts of a queue are, and starts it.
    fn set_queue(&self, queue: u16, size: u16, descriptors: u64, available: u64, used: u64);
    /// The register to write a queue's number to when there is something in it.
    fn bell(&self, queue: u16) -> queue::Bell;
    /// Lets the device interrupt for all queues and changes of configuration.
    fn connect(&self, handler: Handler) -> bool;
    fn generation(&self) -> u32;
    fn config8(&self, offset: usize) -> u8;
    fn config32(&self, offset: usize) -> u32;
}

/// A virtio device.
pub struct Device {
    transport: Box<dyn Transport>,
    /// Where it is, for messages.
    place: alloc::string::String,
}

/// Finds all virtio devices, on the PCI bus and by memory-mapped registers. Devices that are
/// there but cannot be used are left out with a line in the log.
pub fn devices() -> Vec<Device> {
    let mut found = pci::devices();
    found.extend(mmio::devices());
    found
}

impl Device {
    /// Which kind it is (see [`kind`]).
    pub fn kind(&self) -> u32 {
        self.transport.kind()
    }

    /// Where it is, for messages: a PCI address or that of its registers.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Resets the device and agrees on those of `wanted` that it offers, which are returned.
    pub fn negotiate(&self, wanted: u64) -> Result<u64, Error> {
        let transport = &*self.transport;
        transport.set_status(0);
        // A device may take its time (VIRTIO 1.2, 4.1.4.3.2); one that is gone reads as all ones.
        let end = time::monotonic_ns() + RESET_NS;
        while transport.status() != 0 {
            if time::monotonic_ns() > end {
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
        let agreed = offered & (wanted | VERSION_1);
        transport.set_features(agreed);
        transport.set_status(status::ACKNOWLEDGE | status::DRIVER | status::FEATURES_OK);
        if transport.status() & status::FEATURES_OK == 0 {
            transport.set_status(status::FAILED);
            return Err(Error::Features);
        }
        Ok(agreed)
    }

    /// Sets queue `index` up, with at most `limit` descriptors (a power of two).
    pub fn queue(&self, index: u16, limit: u16) -> Result<Queue, Error> {
        let size = self.transport.queue_size(index).min(limit);
        if size == 0 || !size.is_power_of_two() {
            return Err(Error::NoQueue);
        }
        let queue = Queue::new(size, self.transport.bell(index)).ok_or(Error::Memory)?;
        let [descriptors, available, used] = queue.parts();
        self.transport.set_queue(index, size, descriptors, available, used);
        Ok(queue)
    }

    /// Lets the device interrupt; for all queues that are set up afterwards. Once only.
    pub fn connect(&self, handler: Handler) -> Result<(), Error> {
        if self.transport.connect(handler) { Ok(()) } else { Err(Error::Interrupt) }
    }

    /// Makes an area of the memory that a persistent memory device says it has (virtio 1.2,
    /// 5.19.4).
    ///
    /// # Errors
    /// What the device says, nothing if it is of another kind, and why that cannot be used.
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

    /// Tells the device that its driver has given it up.
    pub fn give_up(&self) {
        self.transport.set_status(status::FAILED);
    }

    /// Lets the device work.
    pub fn start(&self) {
        use status::{ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK};
        self.transport.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK);
    }

    /// Reads the device's configuration with `read` until it did not change meanwhile.
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

/// Where a persistent memory device says its memory is.
#[derive(Clone, Copy, Debug)]
pub struct ClaimedMemory {
    /// The physical address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
}

/// The configuration of a device, by byte offset. What a device does not have reads as ones.
#[derive(Clone, Copy)]
pub struct Config<'a>(&'a dyn Transport);

impl Config<'_> {
    /// A byte.
    pub fn u8(self, offset: usize) -> u8 {
        self.0.config8(offset)
    }

    /// Two bytes.
    pub fn u16(self, offset: usize) -> u16 {
        u16::from_le_bytes([self.u8(offset), self.u8(offset + 1)])
    }

    /// Four bytes, aligned.
    pub fn u32(self, offset: usize) -> u32 {
        self.0.config32(offset)
    }

    /// Eight bytes, aligned to four.
    pub fn u64(self, offset: usize) -> u64 {
        u64::from(self.u32(offset)) | u64::from(self.u32(offset + 4)) << 32
    }
}
