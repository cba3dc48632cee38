//! A thread that waits to send or to receive (`struct ext_wait_queue`, ipc/mqueue.c).

use alloc::sync::Arc;

use hayate_machine::sync::SpinLock;

use super::message::Message;
use crate::schedule;
use crate::schedule::{Policy, WaitQueue};

/// A thread that waits.
pub struct Waiter {
    place: SpinLock<Place>,
    /// Where it sleeps.
    pub sleep: WaitQueue,
}

enum Place {
    /// A sender's message.
    Sent(Message),
    /// Of a receiver.
    Empty,
    /// The sender's message was taken.
    Taken,
    /// The receiver's message.
    Received(Message),
}

impl Waiter {
    /// One with a message, or one that wants one.
    pub fn new(message: Option<Message>) -> Arc<Waiter> {
        let place = message.map_or(Place::Empty, Place::Sent);
        Arc::new(Waiter { place: SpinLock::new(place), sleep: WaitQueue::new() })
    }

    /// Whether it need not wait any more.
    pub fn is_served(&self) -> bool {
        matches!(*self.place.lock(), Place::Taken | Place::Received(_))
    }

    /// Takes a sender's message, and lets it go on.
    pub fn take(&self) -> Option<Message> {
        let taken = core::mem::replace(&mut *self.place.lock(), Place::Taken);
        self.sleep.wake_all();
        if let Place::Sent(message) = taken { Some(message) } else { None }
    }

    /// Gives a receiver its message, and lets it go on.
    pub fn give(&self, message: Message) {
        *self.place.lock() = Place::Received(message);
        self.sleep.wake_all();
    }

    /// The message that a receiver was given.
    pub fn received(&self) -> Option<Message> {
        let received = core::mem::replace(&mut *self.place.lock(), Place::Empty);
        if let Place::Received(message) = received { Some(message) } else { None }
    }
}

/// The rank by which the calling thread is served: Linux' `prio`.
pub fn rank() -> i32 {
    let own = schedule::current();
    match own.policy() {
        Policy::Fifo(priority) | Policy::RoundRobin(priority) => 99 - i32::from(priority),
        _ => 120 + i32::from(own.nice()),
    }
}
