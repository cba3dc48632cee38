//! The driver of virtio's 9P transport (virtio 1.2, 5.13 reserves its number; its layout is that
//! of `net/9p/trans_virtio.c` of Linux 6.1 and `hw/9pfs/virtio-9p-device.c` of QEMU): messages to a
//! server on the host, which is found by the tag that the host gave it.
//!
//! A caller [exchanges](Channel::exchange) a request for its reply, and sleeps until that is there.
//! Messages are made and read by [`hayate_ninep`]. The data of a read or write lies in frames that
//! the device fills and reads where they are.
//!
//! # Requests in flight
//!
//! A request has one of [`SLOTS`] slots, whose number is its tag; a caller waits for a free one.
//! Only the end of the caller's process ends the wait for a reply. The request is then *abandoned*:
//! the server is told by a flush, which has the slot's second tag, and the caller goes. The slot,
//! and with it the tag, stays taken until the device has given the request back *and* the flush was
//! answered, as flush(5) demands; the memory of a request belongs to the queue until the device
//! gives it back, whatever becomes of its caller.
//!
//! # Fids
//!
//! Numbers of fids are given out here, because one must not be used again before the server has
//! forgotten it, and the end of a fid waits for nobody: its number is put on a list, and clunked as
//! slots are free ([`State::go_on`]). A fid that an abandoned request may have made is clunked when
//! the request is over.
//!
//! # Locks
//!
//! `state` is a spin lock, which the interrupt handler takes too; that of a call's answer is taken
//! inside of it. Nobody sleeps with either.

mod message;
mod slots;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::info;
use hayate_machine::sync::{Once, SpinLock};
use hayate_machine::virtio::{Device, Error};
use hayate_ninep::NO_TAG;
use hayate_ninep::request::Request;

use crate::schedule;
use crate::schedule::{WaitQueue, Woken};
use message::{chain, read_back};
use slots::{Call, State};

pub use message::{Answer, Data, FRAMES, MESSAGE_MOST};
pub use slots::SLOTS;

/// `VIRTIO_9P_MOUNT_TAG`: the configuration has a tag.
const MOUNT_TAG: u64 = 1 << 0;
/// The largest queue that is used: descriptors in flight.
const QUEUE: u16 = 128;
/// The longest tag that is believed.
const TAG_MOST: usize = 255;

static CHANNELS: SpinLock<Vec<Arc<Channel>>> = SpinLock::new(Vec::new());

/// A server on the host.
pub struct Channel {
    tag: Vec<u8>,
    state: SpinLock<State>,
    /// Woken when a slot or descriptors may be free.
    room: WaitQueue,
    /// Whether somebody speaks with the server: a session has one client.
    taken: AtomicBool,
}

/// The failure of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing was asked, or the server said so, or its reply was none.
    Error(Errno),
    /// The caller's process ends, and did not wait for the reply. A fid that the request may have
    /// made is not the caller's any more.
    Abandoned,
}

impl From<Failure> for Errno {
    fn from(failure: Failure) -> Errno {
        match failure {
            Failure::Error(error) => error,
            Failure::Abandoned => Errno::EINTR,
        }
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        Failure::Error(error)
    }
}

/// Sets the device up and registers its server.
pub fn start(device: Device) -> core::result::Result<(), Error> {
    let agreed = device.negotiate(MOUNT_TAG)?;
    if agreed & MOUNT_TAG == 0 {
        return Err(Error::Features);
    }
    let slot: Arc<Once<Arc<Channel>>> = Arc::new(Once::new());
    let target = Arc::clone(&slot);
    device.connect(Box::new(move || {
        if let Some(channel) = target.get() {
            channel.interrupt();
        }
    }))?;
    let queue = device.queue(0, QUEUE)?;
    let tag: Vec<u8> = device.config(|config| {
        let length = usize::from(config.u16(0)).min(TAG_MOST);
        (0..length).map(|at| config.u8(2 + at)).collect()
    });
    let channel = Arc::new(Channel {
        tag,
        state: SpinLock::new(State::new(queue)),
        room: WaitQueue::new(),
        taken: AtomicBool::new(false),
    });
    slot.call_once(|| Arc::clone(&channel));
    device.start();
    info!("virtio-9p: {} at {}", channel.tag.escape_ascii(), device.place());
    CHANNELS.lock().push(channel);
    // The device is never released.
    core::mem::forget(device);
    Ok(())
}

/// Takes the server with this tag, for one client.
///
/// # Errors
/// `ENOENT`: there is none; `EBUSY`: it has a client (as `p9_virtio_create` has both).
pub fn take(tag: &[u8]) -> Result<Arc<Channel>> {
    let channels = CHANNELS.lock();
    let mut named = channels.iter().filter(|channel| channel.tag == tag).peekable();
    if named.peek().is_none() {
        return Err(Errno::ENOENT);
    }
    named.find(|channel| !channel.taken.swap(true, Ordering::AcqRel)).cloned().ok_or(Errno::EBUSY)
}

impl Channel {
    /// Ends the use by a client.
    pub fn release(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Returns a number for a fid, which ends with [`Channel::drop_fid`] or
    /// [`Channel::return_fid`]. `ENOMEM`.
    pub fn new_fid(&self) -> Result<u32> {
        self.state.lock().fids.give()
    }

    /// Ends a fid that the server knows.
    pub fn drop_fid(&self, fid: u32) {
        let mut state = self.state.lock();
        state.fids.drop(fid);
        state.go_on();
    }

    /// Ends a fid that the server does not know.
    pub fn return_fid(&self, fid: u32) {
        self.state.lock().fids.forget(fid);
    }

    /// Sends a request and returns the reply. `makes` is the fid that it makes, if it makes one.
    /// `is_ending` tells whether the caller's process ends: then the request is abandoned.
    pub fn exchange(
        &self,
        request: &Request<'_>,
        data: Data<'_>,
        makes: Option<u32>,
        is_ending: fn() -> bool,
    ) -> Result<Answer, Failure> {
        let call = Arc::new(Call::default());
        // Nothing was asked: the number is as good as new.
        let unsent = |failure| {
            if let (Failure::Abandoned, Some(fid)) = (failure, makes) {
                self.return_fid(fid);
            }
            failure
        };
        let slot = self.wait(&self.room, is_ending, || self.state.lock().claim(&call));
        let slot = slot.map_err(unsent)?;
        let given = self.give(slot, request, data, is_ending);
        if let Err(failure) = given {
            self.state.lock().unclaim(slot);
            self.room.wake_all();
            return Err(unsent(failure));
        }
        let answered = self.wait(&call.done, is_ending, || call.answer.lock().take());
        let (chain, written) = match answered {
            Ok(answer) => answer,
            Err(failure) => match self.state.lock().abandon(slot, &call, makes) {
                // It came at the last moment.
                Some(answer) => answer,
                None => return Err(failure),
            },
        };
        let tag = if matches!(request, Request::Version { .. }) { NO_TAG } else { slot };
        Ok(read_back(request, tag, &chain, written)?)
    }

    /// Gives a request to the device, in a slot.
    fn give(
        &self,
        slot: u16,
        request: &Request<'_>,
        data: Data<'_>,
        is_ending: fn() -> bool,
    ) -> Result<(), Failure> {
        let tag = if matches!(request, Request::Version { .. }) { NO_TAG } else { slot };
        let mut chain = chain(request, tag, data)?;
        chain.token = slot.into();
        self.wait(&self.room, is_ending, || {
            let mut state = self.state.lock();
            match state.give(slot, core::mem::take(&mut chain)) {
                Ok(()) => Some(()),
                Err(back) => {
                    chain = back;
                    None
                }
            }
        })
    }

    /// Waits for a condition. Signals that do not end the process are left for later.
    fn wait<T>(
        &self,
        queue: &WaitQueue,
        is_ending: fn() -> bool,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T, Failure> {
        let mut interrupted = false;
        let outcome = loop {
            match queue.wait_interruptible(None, &mut condition) {
                Ok(value) => break Ok(value),
                Err(Woken::Interrupted) if is_ending() => break Err(Failure::Abandoned),
                Err(Woken::Interrupted | Woken::TimedOut) => {
                    interrupted = true;
                    schedule::current().clear_interrupt();
                }
            }
        };
        if interrupted {
            schedule::current().interrupt();
        }
        outcome
    }

    /// Takes the answers and wakes the callers.
    fn interrupt(&self) {
        let mut state = self.state.lock();
        while let Some((chain, length)) = state.take() {
            state.answered(chain, length as usize);
        }
        state.go_on();
        drop(state);
        self.room.wake_all();
    }
}
