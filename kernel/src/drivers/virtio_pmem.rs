//! The driver of virtio's persistent memory (virtio 1.2, 5.19).
//!
//! The device reports the place of its memory, which becomes an area of non-volatile memory like an
//! NVDIMM ([`Device::attach_memory`]). It takes one kind of request: to make all data written so
//! far persistent. Data that has left the processor's caches is only in the host's page cache; the
//! request moves it to the host's disk.
//!
//! QEMU gives the device no MSI-X, and a flush takes from some microseconds (the file lies in the
//! host's memory) to as long as a disk takes. So the waiting thread polls: at first without a
//! pause, then with pauses in which it sleeps ([`Patience`]). One flush is under way at a time;
//! threads that come meanwhile sleep. A device that does not answer in time is not asked again: its
//! memory can be read, and changing it fails.
//!
//! Devices whose memory cannot be used (none, not at a large page, where other memory is) are left
//! alone, with a line in the log.
//!
//! Lock order: a device's state (sleeping) is a leaf; above it are the stores of
//! [`crate::in_place::store`].
//!
//! Road not taken: sharing one flush between all threads that wait when it begins. Texts are
//! published one at a time, each under its store's lock.

use alloc::boxed::Box;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::nvm::Area;
use hayate_machine::sync::SpinLock;
use hayate_machine::virtio::{Chain, Device, Error, Piece, Queue};
use hayate_machine::{info, warn};
use hayate_nvm_store::{Look, Patience};

use crate::schedule::time::monotonic_ns;
use crate::schedule::{Mutex, sleep_until};

/// The only type of request.
const FLUSH: u32 = 0;
/// The device's answer for success.
const DONE: u32 = 0;

/// A device's memory, and the queue for flush requests.
pub struct Pmem {
    area: &'static Area,
    state: Mutex<State>,
}

struct State {
    queue: Queue,
    /// A request was not answered in time; the device may still write to its memory, so that is
    /// never freed.
    lost: bool,
}

static FOUND: SpinLock<Vec<&'static Pmem>> = SpinLock::new(Vec::new());

/// Returns the devices that have memory, in the order in which they were found.
pub fn found() -> Vec<&'static Pmem> {
    FOUND.lock().clone()
}

/// Sets the device up and makes its memory an area.
pub fn start(device: Device) -> core::result::Result<(), Error> {
    device.negotiate(0)?;
    let mut queue = device.queue(0, 8)?;
    queue.silence();
    let place = device.place();
    let area = match device.attach_memory() {
        Ok(area) => area,
        Err((memory, refusal)) => {
            let (start, size) = (memory.start, memory.size);
            warn!("virtio-pmem: {place}: {size:#x} bytes at {start:#x}: {refusal}; left alone");
            device.give_up();
            return Ok(());
        }
    };
    device.start();
    info!("virtio-pmem: {} KiB at {:#x}, {place}", area.size() >> 10, area.address());
    let pmem = Pmem { area, state: Mutex::new(State { queue, lost: false }) };
    FOUND.lock().push(Box::leak(Box::new(pmem)));
    // The device is never released.
    core::mem::forget(device);
    Ok(())
}

impl Pmem {
    /// Returns the memory.
    pub fn area(&self) -> &'static Area {
        self.area
    }

    /// Makes all data persistent that was written to the memory and has left the processor's
    /// caches. Sleeps.
    ///
    /// * `EIO`: the device failed, or does not answer any more.
    /// * `ENOMEM`: there is no memory for the request.
    pub fn flush(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.lost {
            return Err(Errno::EIO);
        }
        let mut chain = Chain::new(0);
        if !chain.reads(Piece::bytes(Box::new(FLUSH.to_le_bytes())))
            || !chain.writes(Piece::bytes(Box::new([0xff; 4])))
        {
            return Err(Errno::ENOMEM);
        }
        state.queue.give(chain).map_err(|_| Errno::EIO)?;
        state.queue.notify();
        let patience = Patience::new(monotonic_ns());
        loop {
            if let Some((chain, _)) = state.queue.take() {
                let answer = chain.pieces().last();
                let done =
                    matches!(answer, Some(Piece::Bytes(ret)) if ret[..] == DONE.to_le_bytes());
                return if done { Ok(()) } else { Err(Errno::EIO) };
            }
            match patience.next(monotonic_ns()) {
                Look::Now => core::hint::spin_loop(),
                Look::At(then) => {
                    let _ = sleep_until(then, false);
                }
                Look::Never => break,
            }
        }
        state.lost = true;
        warn!(
            "virtio-pmem: {:#x}: a flush is not answered; no more are asked",
            self.area.address()
        );
        Err(Errno::EIO)
    }
}
