//! The slots of requests in flight, and the numbers of fids.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_machine::sync::SpinLock;
use hayate_machine::virtio::{Chain, Queue};
use hayate_ninep::request::Request;

use super::message::{Data, chain};
use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;

/// Requests in flight. The tag of a slot's flush is the slot's number and this.
pub const SLOTS: u16 = 32;

/// A caller that waits for an answer: the chain, and how many bytes the device wrote.
#[derive(Default)]
pub struct Call {
    pub answer: SpinLock<Option<(Chain, usize)>>,
    pub done: WaitQueue,
}

/// What happens with a fid when the request of a slot is over.
#[derive(Clone, Copy, Default)]
pub enum Afterwards {
    #[default]
    Nothing,
    /// The request may have made it, and nobody wants it.
    Clunk(u32),
    /// The request has ended it.
    Forget(u32),
}

/// The flush of an abandoned request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Flush {
    #[default]
    None,
    /// To be sent.
    Wanted,
    /// Not answered yet.
    Sent,
}

#[derive(Default)]
struct Slot {
    is_taken: bool,
    /// Whether the device has the request.
    is_at_device: bool,
    /// The thread that waits for the answer; none if the request was abandoned.
    call: Option<Arc<Call>>,
    flush: Flush,
    afterwards: Afterwards,
}

/// The numbers of fids. Both lists have room for all numbers that are given out.
#[derive(Default)]
pub struct Fids {
    given: u32,
    free: Vec<u32>,
    /// To be clunked.
    dropped: Vec<u32>,
}

impl Fids {
    /// Gives a number out. `ENOMEM`.
    pub fn give(&mut self) -> Result<u32> {
        if let Some(fid) = self.free.pop() {
            return Ok(fid);
        }
        let all = self.given as usize + 1;
        self.free.make_room(all - self.free.len())?;
        self.dropped.make_room(all - self.dropped.len())?;
        self.given += 1;
        Ok(self.given)
    }

    pub fn drop(&mut self, fid: u32) {
        self.dropped.push(fid);
    }

    pub fn forget(&mut self, fid: u32) {
        self.free.push(fid);
    }
}

/// The queue and what is in it.
pub struct State {
    queue: Queue,
    slots: Vec<Slot>,
    pub fids: Fids,
}

impl State {
    pub fn new(queue: Queue) -> State {
        let slots = (0..SLOTS).map(|_| Slot::default()).collect();
        State { queue, slots, fids: Fids::default() }
    }

    /// Takes a chain that the device has given back.
    pub fn take(&mut self) -> Option<(Chain, u32)> {
        self.queue.take()
    }

    fn slot(&mut self, slot: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(slot))
    }

    fn free_slot(&self) -> Option<u16> {
        self.slots.iter().position(|slot| !slot.is_taken).map(|at| at as u16)
    }

    /// Takes a free slot for a call.
    pub fn claim(&mut self, call: &Arc<Call>) -> Option<u16> {
        let free = self.free_slot()?;
        *self.slot(free)? =
            Slot { is_taken: true, call: Some(Arc::clone(call)), ..Slot::default() };
        Some(free)
    }

    /// Frees a slot whose request the device did not get.
    pub fn unclaim(&mut self, slot: u16) {
        if let Some(slot) = self.slot(slot) {
            *slot = Slot::default();
        }
    }

    /// Gives a request to the device; gives it back if the queue has no room for it now.
    pub fn give(&mut self, slot: u16, chain: Chain) -> Result<(), Chain> {
        let outcome = self.queue.give(chain);
        // Also without room: what is in the queue must be on its way, or room would never come.
        self.queue.notify();
        if outcome.is_ok()
            && let Some(slot) = self.slot(slot)
        {
            slot.is_at_device = true;
        }
        outcome
    }

    /// Takes the answer to a request, or to the flush of one.
    pub fn answered(&mut self, chain: Chain, written: usize) {
        let token = chain.token as u16;
        if token >= SLOTS {
            if let Some(slot) = self.slot(token - SLOTS) {
                slot.flush = Flush::None;
            }
            return self.end(token - SLOTS);
        }
        let Some(slot) = self.slot(token) else { return };
        slot.is_at_device = false;
        if slot.flush == Flush::Wanted {
            slot.flush = Flush::None;
        }
        if let Some(call) = slot.call.take() {
            *call.answer.lock() = Some((chain, written));
            call.done.wake_all();
        }
        self.end(token);
    }

    /// Frees a slot if its request is over.
    fn end(&mut self, number: u16) {
        let Some(slot) = self.slot(number) else { return };
        if slot.is_at_device || slot.flush != Flush::None {
            return;
        }
        match core::mem::take(slot).afterwards {
            Afterwards::Nothing => {}
            Afterwards::Clunk(fid) => self.fids.drop(fid),
            Afterwards::Forget(fid) => self.fids.forget(fid),
        }
    }

    /// Leaves a request alone, unless its answer is there: that is returned.
    pub fn abandon(
        &mut self,
        slot: u16,
        call: &Call,
        makes: Option<u32>,
    ) -> Option<(Chain, usize)> {
        if let Some(answer) = call.answer.lock().take() {
            return Some(answer);
        }
        if let Some(slot) = self.slot(slot) {
            slot.call = None;
            slot.flush = Flush::Wanted;
            slot.afterwards = makes.map_or(Afterwards::Nothing, Afterwards::Clunk);
        }
        self.go_on();
        None
    }

    /// Sends what waits for nobody, as far as there is room: flushes, then clunks. Called when
    /// something was added or room came.
    pub fn go_on(&mut self) {
        for number in 0..SLOTS {
            if self.slot(number).is_some_and(|slot| slot.flush == Flush::Wanted)
                && self.send(number + SLOTS, &Request::Flush { tag: number })
                && let Some(slot) = self.slot(number)
            {
                slot.flush = Flush::Sent;
            }
        }
        while let Some(&fid) = self.fids.dropped.last()
            && let Some(free) = self.free_slot()
            && self.send(free, &Request::Clunk { fid })
        {
            self.fids.dropped.pop();
            let afterwards = Afterwards::Forget(fid);
            if let Some(slot) = self.slot(free) {
                *slot = Slot { is_taken: true, is_at_device: true, afterwards, ..Slot::default() };
            }
        }
        self.queue.notify();
    }

    /// Sends a request whose answer nobody waits for. False without room or memory: the next call
    /// of [`State::go_on`] tries again.
    fn send(&mut self, tag: u16, request: &Request<'_>) -> bool {
        let Ok(mut chain) = chain(request, tag, Data::None) else { return false };
        chain.token = tag.into();
        self.queue.give(chain).is_ok()
    }
}
