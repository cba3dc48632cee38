//! virtio: the transports and the queues (virtio 1.2, sections 2 to 4).
//!
//! A driver in the kernel finds a [`Device`] by [`devices`], negotiates features, makes its
//! [`Queue`]s and starts it. The requests of a queue are [`Chain`]s, which own their memory until
//! the device has answered: that is why a driver can be written without unsafe code.
//!
//! Split queues, version 1 only (`VIRTIO_F_VERSION_1`): every device model of the last ten years
//! offers both; legacy devices are refused.
//!
//! Road not taken: the crate `virtio-drivers`. It has transports and queues, but its queues take
//! Rust slices (a device fills frames that programs may have mapped), have a size fixed at compile
//! time, and stop the machine on an invalid answer. Its transports support neither MSI-X nor
//! virtio-pmem, and take three register accesses for a notification instead of one.

mod chain;
mod device;
mod mmio;
mod pci;
mod queue;

use alloc::vec::Vec;

pub use crate::interrupt::Handler;
pub use chain::{Bytes, Chain, Piece};
pub use device::{ClaimedMemory, Config, Device, Error, kind};
pub use queue::{EVENT_INDEX, Queue};

/// Finds all virtio devices, on the PCI bus and by memory-mapped registers. Devices that cannot be
/// used are left out with a line in the log.
pub fn devices() -> Vec<Device> {
    let mut found = pci::devices();
    found.extend(mmio::devices());
    found
}
