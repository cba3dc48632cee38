//! Devices: what the machine has besides processors and memory.
//!
//! [`init`] finds the virtio devices and hands each to its driver, and the disks that QEMU holds in
//! its memory ([`fw_disk`]). Drivers are safe code over
//! [`machine::virtio`]: a driver owns its queues behind one spin lock, gives chains under it, and
//! takes answers in its interrupt, under the same lock (the kernel runs with interrupts off, so an
//! interrupt never meets its own processor inside the lock). Waiting is done without the lock.
//!
//! Nothing here knows files: the nodes in `/dev` are `file::disk` and `file::port`.

pub mod block;
pub mod entropy;
mod fw_disk;
mod virtio_blk;
pub mod virtio_console;
pub mod virtio_pmem;

use hayate_machine::virtio::{self, kind};
use hayate_machine::{info, warn};

/// Finds all devices and starts their drivers. Once, at boot, with the scheduler running.
pub fn init() {
    fw_disk::start();
    for device in virtio::devices() {
        let place = alloc::string::String::from(device.place());
        let started = match device.kind() {
            kind::BLOCK => virtio_blk::start(device),
            kind::CONSOLE => virtio_console::start(device),
            kind::ENTROPY => entropy::start(device),
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
