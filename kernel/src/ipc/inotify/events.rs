//! The queue of an inotify instance: events that have not been read.
//!
//! An event equal to the last one in the queue is not added. If the queue is full, or there is no
//! memory to extend it, one `IN_Q_OVERFLOW` event is added and the others are lost.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use crate::reclaim::growth::Grow;
use crate::vfs::watch::Mask;

/// One event.
pub(super) struct Event {
    watch: i32,
    mask: Mask,
    cookie: u32,
    name: Vec<u8>,
}

impl Event {
    /// Makes an event about an entry of a directory, or about the file itself if the name is empty.
    pub(super) fn new(watch: i32, mask: Mask, cookie: u32, name: &[u8]) -> Result<Event> {
        let mut kept = Vec::new();
        kept.make_room_exact(name.len())?;
        kept.extend_from_slice(name);
        Ok(Event { watch, mask, cookie, name: kept })
    }

    /// Makes an event about a watch.
    pub(super) fn about(watch: i32, mask: Mask) -> Event {
        Event { watch, mask, cookie: 0, name: Vec::new() }
    }

    /// Whether `self` adds nothing to `last` (`event_compare`).
    fn repeats(&self, last: &Event) -> bool {
        self.mask == last.mask
            && self.watch == last.watch
            && self.name == last.name
            && !last.mask.contains(Mask::IGNORED)
    }

    /// Returns the length in the program's buffer: the header and the name, padded to a multiple of
    /// the header's size.
    fn size(&self) -> usize {
        const HEAD: usize = 16;
        let name =
            if self.name.is_empty() { 0 } else { (self.name.len() + 1).next_multiple_of(HEAD) };
        HEAD + name
    }

    fn encode(&self, bytes: &mut Vec<u8>) -> Result<()> {
        let size = self.size();
        bytes.make_room(size)?;
        let end = bytes.len() + size;
        bytes.extend_from_slice(&self.watch.to_le_bytes());
        bytes.extend_from_slice(&self.mask.bits().to_le_bytes());
        bytes.extend_from_slice(&self.cookie.to_le_bytes());
        bytes.extend_from_slice(&(size as u32 - 16).to_le_bytes());
        bytes.extend_from_slice(&self.name);
        bytes.resize(end, 0);
        Ok(())
    }
}

/// The events that have not been read.
pub(super) struct Queue {
    events: VecDeque<Event>,
    most: usize,
    /// Events were lost, and the event that reports it is not yet read.
    overflowed: bool,
    /// The event that reports the loss could not be added without memory: it comes last.
    lost: bool,
}

impl Queue {
    /// Makes an empty queue for at most `most` events.
    pub(super) const fn new(most: usize) -> Queue {
        Queue { events: VecDeque::new(), most, overflowed: false, lost: false }
    }

    /// Whether there are no events.
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && !self.lost
    }

    /// Returns the number of bytes that reading all events would return.
    pub(super) fn size(&self) -> usize {
        self.events.iter().map(Event::size).sum()
    }

    /// Adds an event; returns whether readers have to be woken.
    pub(super) fn push(&mut self, event: Event) -> bool {
        if self.events.len() >= self.most {
            return self.lose();
        }
        if self.events.back().is_some_and(|last| event.repeats(last)) {
            return false;
        }
        if self.events.make_room(1).is_err() {
            return self.lose();
        }
        self.events.push_back(event);
        true
    }

    /// Records the loss of an event; returns whether readers have to be woken.
    pub(super) fn lose(&mut self) -> bool {
        if self.overflowed {
            return false;
        }
        self.overflowed = true;
        if self.events.make_room(1).is_ok() {
            self.events.push_back(Event::about(-1, Mask::Q_OVERFLOW));
        } else {
            self.lost = true;
        }
        true
    }

    /// Takes as many whole events as fit into `room` bytes. `EINVAL` when not even one does.
    pub(super) fn take(&mut self, room: usize) -> Option<Result<Vec<u8>>> {
        if self.lost && self.events.make_room(1).is_ok() {
            self.lost = false;
            self.events.push_back(Event::about(-1, Mask::Q_OVERFLOW));
        }
        let first = self.events.front()?;
        if first.size() > room {
            return Some(Err(Errno::EINVAL));
        }
        let mut bytes = Vec::new();
        while let Some(event) = self.events.front() {
            if bytes.len() + event.size() > room {
                break;
            }
            if let Err(error) = event.encode(&mut bytes) {
                return Some(if bytes.is_empty() { Err(error) } else { Ok(bytes) });
            }
            self.overflowed &= !event.mask.contains(Mask::Q_OVERFLOW);
            self.events.pop_front();
        }
        Some(Ok(bytes))
    }
}
