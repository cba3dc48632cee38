//! Randomness from the host: virtio's entropy device (virtio 1.2, 5.4). It is asked once, at boot,
//! for a seed of the kernel's generator ([`crate::random`]).

use alloc::boxed::Box;
use alloc::sync::Arc;

use hayate_machine::virtio::{Chain, Device, Error, Piece};

use crate::random;
use crate::schedule::WaitQueue;
use crate::schedule::time::monotonic_ns;

/// How long to wait for the device, in nanoseconds.
const PATIENCE: u64 = 200_000_000;

/// Asks the device for a seed.
pub fn start(device: Device) -> Result<(), Error> {
    device.negotiate(0)?;
    let arrived = Arc::new(WaitQueue::new());
    let waker = Arc::clone(&arrived);
    device.connect(Box::new(move || waker.wake_all()))?;
    let mut queue = device.queue(0, 8)?;
    device.start();
    let mut chain = Chain::new(0);
    if !chain.writes(Piece::bytes(Box::new([0; 32]))) || queue.give(chain).is_err() {
        return Err(Error::Memory);
    }
    queue.notify();
    let deadline = monotonic_ns() + PATIENCE;
    if let Ok((chain, 32)) = arrived.wait_interruptible(Some(deadline), || queue.take())
        && let Some(Piece::Bytes(bytes)) = chain.pieces().first()
        && let Ok(seed) = <&[u8; 32]>::try_from(&bytes[..])
    {
        random::add_seed(seed);
    }
    // The device is never released.
    core::mem::forget(device);
    Ok(())
}
