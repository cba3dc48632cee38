//! The driver of virtio's persistent memory (virtio 1.2, 5.19).
//!
//! The device says where its memory is, which then is an area of non-volatile memory like an NVDIMM
//! ([`Device::attach_memory`]), and takes one kind of request: to make last all that was written so
//! far. What has left the processor's caches is in the host's page cache; only the request takes it
//! to the host's disk.
//!
//! QEMU gives the device no MSI-X, and a flush takes from some microseconds (the file lies in the host's
//! memory) to as long as a disk likes. So the one who waits polls: without a pause at first, then with
//! pauses in which he sleeps ([`Patience`]). One flush is under way at a time; those who come meanwhile
//! sleep. A device that does not answer in time is not asked again: its memory can be read, and
//! changing it fails.
//!
//! Devices whose memory cannot be used (none, not at a large page, where other memory is) are left
//! alone with a line in the log.
//!
//! Lock order: a device's state (sleeping) is a leaf; above it are the stores of [`crate::nvm`].
//!
//! Road not taken: a flush that is shared by all who wait when it begins. Texts are published one at
//! a time, each under its store's lock.

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

/// The one type of a request.
const FLUSH: u32 = 0;
/// What the device answers when all is well.
const DONE: u32 = 0;

/// A device's memory, and the way to make last what is written there.
pub struct Pmem {
    area: &'static Area,
    state: Mutex<State>,
}

struct State {
    queue: Queue,
    /// It did not answer once, so what it has of ours it keeps.
    lost: bool,
}

static FOUND: SpinLock<Vec<&'static Pmem>> = SpinLock::new(Vec::new());

/// The devices that have memory, in the order they were found in.
pub fn found() -> Vec<&'static Pmem> {
    FOUND.lock().clone()
}

/// Sets the device up and makes an area of its memory.
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
    // The device works for ever.
    core::mem::forget(device);
    Ok(())
}

impl Pmem {
    /// The memory.
    pub fn area(&self) -> &'static Area {
        self.area
    }

    /// Returns when all that was written to the memory before, and has left the processor's caches,
    /// will last. Sleeps.
    ///
    /// * `EIO`: the device could not, or does not answer any more.
    /// * `ENOMEM`: there is no memory to ask it.
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
