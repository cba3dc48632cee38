//! Devices: the parts of the machine besides processors and memory.
//!
//! [`init`] finds the virtio devices and gives each to its driver, and finds the disks that QEMU
//! holds in its memory ([`fw_disk`]). Drivers are safe code over [`machine::virtio`]: a driver has
//! its queues behind one spin lock, gives chains to the device under it, and takes answers in its
//! interrupt handler, under the same lock (the kernel runs with interrupts off, so an interrupt
//! never finds its own processor holding the lock). A driver waits without the lock.
//!
//! Nothing here knows files: the nodes in `/dev` are made by `fs::devfs`.

pub mod block;
pub mod entropy;
mod fw_disk;
pub mod io;
pub mod net;
pub mod virtio_9p;
pub mod virtio_balloon;
mod virtio_blk;
pub mod virtio_console;
pub mod virtio_net;
pub mod virtio_pmem;

use hayate_machine::virtio::{self, kind};
use hayate_machine::{info, warn};

/// Finds all devices and starts their drivers. Called once at boot, when the scheduler runs.
pub fn init() {
    fw_disk::start();
    for device in virtio::devices() {
        let place = alloc::string::String::from(device.place());
        let started = match device.kind() {
            kind::BALLOON => virtio_balloon::start(device),
            kind::BLOCK => virtio_blk::start(device),
            kind::CONSOLE => virtio_console::start(device),
            kind::ENTROPY => entropy::start(device),
            kind::NINEP => virtio_9p::start(device),
            kind::NET => virtio_net::start(device),
            kind::PMEM => virtio_pmem::start(device),
            other => {
                info!("virtio: {place}: no driver for device type {other}");
                continue;
            }
        };
        if let Err(error) = started {
            warn!("virtio: {place}: {error}; device left out");
        }
    }
}
