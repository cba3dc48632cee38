//! An endpoint: the port of a socket, the groups that it hears, and its queue of messages.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::dump::Dump;
use crate::namespace::Handle;
use crate::net::config::Network;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;
use crate::vfs::caller;
use crate::vfs::fasync::Signals;
use crate::vfs::signal_owner::Band;
use crate::vfs::socket::Attempt;
use crate::vfs::socket_count::{Counted, Kind};
use crate::vfs::socket_options::RECEIVE_DEFAULT;
use crate::vfs::users::{self, Holdings};

/// The number of groups of NETLINK_ROUTE (`RTNLGRP_MAX` of Linux 6.1).
pub const GROUPS: u32 = 36;
/// The memory that a message counts for beside its bytes, as in Linux (`SKB_TRUESIZE(0)`).
const OVERHEAD: usize = 768;
/// The least room for one message of a dump (`NLMSG_GOODSIZE`), and the most (`netlink_recvmsg`).
const PIECE_LEAST: usize = 8192 - 320;
const PIECE_MOST: usize = 32 * 1024 - 320;

/// A message in a queue: one or more of netlink's, read by one recv(2).
pub struct Datagram {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The port of the sender; 0 is the kernel.
    pub port: u32,
    /// The group that it was sent to; 0 for none.
    pub group: u32,
    /// Credentials of the sender.
    pub sender: Ucred,
}

impl Datagram {
    /// A message of the kernel to one socket.
    pub fn of_kernel(bytes: Vec<u8>) -> Self {
        Self { bytes, port: 0, group: 0, sender: Ucred { pid: 0, uid: 0, gid: 0 } }
    }
}

/// Where a message goes: to a port, 0 for the kernel, and before to all that hear a group, unless
/// that is 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Destination {
    /// The port.
    pub port: u32,
    /// The number of the group.
    pub group: u32,
}

#[derive(Default)]
struct State {
    port: Option<u32>,
    /// The groups that it hears, one bit each from group 1 on.
    groups: u64,
    /// Where messages without an address go.
    destination: Destination,
    queue: VecDeque<Datagram>,
    /// The memory that the queue counts for, with that of promised messages.
    queued: usize,
    /// The messages that have a place and come later ([`super::letter`]).
    promised: usize,
    /// The socket is closed: what is promised is not kept.
    is_closed: bool,
    /// The dump that is under way; not while a piece of it is made.
    dump: Option<Dump>,
    /// A dump is not yet at its end.
    is_dumping: bool,
    /// The size of the largest buffer that a reader had.
    largest_read: usize,
    /// An error for the next call: ENOBUFS after messages were lost.
    error: Option<Errno>,
}

/// A netlink socket without its open file.
pub struct Endpoint {
    state: SpinLock<State>,
    /// SO_RCVBUF.
    pub receive_size: AtomicUsize,
    /// Something was received.
    pub readers: WaitQueue,
    /// A reader made room.
    pub senders: WaitQueue,
    /// The signals of its open file.
    pub signals: Signals,
    /// The protocol of netlink.
    pub protocol: i32,
    /// Its network namespace.
    pub network: Handle<Network>,
    /// The number of its inode.
    pub inode: AtomicU64,
    /// The counts of the user who made it; `None` for the superuser, who is not bounded.
    user: Option<Arc<Holdings>>,
    _counted: Counted,
}

impl Endpoint {
    /// Makes an endpoint without a port.
    pub fn new(protocol: i32, network: Handle<Network>) -> Arc<Self> {
        Arc::new(Self {
            state: SpinLock::new(State::default()),
            receive_size: AtomicUsize::new(RECEIVE_DEFAULT),
            readers: WaitQueue::new(),
            senders: WaitQueue::new(),
            signals: Signals::new(),
            protocol,
            network,
            inode: AtomicU64::new(0),
            user: users::limited(caller::identity().uid),
            _counted: Counted::new(Kind::Netlink),
        })
    }

    /// Returns what `/proc/net/netlink` shows: the memory that its queue counts for, and whether a
    /// dump is under way.
    pub fn shown(&self) -> (usize, bool) {
        let state = self.state.lock();
        (state.queued, state.is_dumping)
    }

    /// Returns its port, if it has one.
    pub fn port(&self) -> Option<u32> {
        self.state.lock().port
    }

    /// Sets its port unless it has one; returns that which it has then.
    pub fn set_port(&self, port: u32) -> u32 {
        *self.state.lock().port.get_or_insert(port)
    }

    /// Returns the groups that it hears, one bit each from group 1 on.
    pub fn groups(&self) -> u64 {
        self.state.lock().groups
    }

    /// Sets the groups of a mask to those given; others stay.
    pub fn set_groups(&self, mask: u64, groups: u64) {
        let mut state = self.state.lock();
        state.groups = state.groups & !mask | groups & mask;
    }

    /// Whether it hears a group.
    pub fn hears(&self, group: u32) -> bool {
        matches!(group, 1..=GROUPS) && self.groups() >> (group - 1) & 1 != 0
    }

    /// Where messages without an address go.
    pub fn destination(&self) -> Destination {
        self.state.lock().destination
    }

    /// Sets where messages without an address go.
    pub fn set_destination(&self, destination: Destination) {
        self.state.lock().destination = destination;
    }

    /// Takes the pending error.
    pub fn take_error(&self) -> Option<Errno> {
        self.state.lock().error.take()
    }

    /// Whether there is a message, and whether there is an error.
    pub fn readiness(&self) -> (bool, bool) {
        let state = self.state.lock();
        (!state.queue.is_empty(), state.error.is_some())
    }

    /// Puts a message into the queue; it stays with the caller if the queue is full. ENOBUFS.
    pub fn try_deliver(&self, datagram: &mut Option<Datagram>) -> Result<Attempt<()>> {
        {
            let mut state = self.state.lock();
            if state.queued > self.receive_size.load(Ordering::Relaxed) {
                return Ok(Attempt::Wait);
            }
            let more = state.promised + 1;
            state.queue.make_room(more).map_err(|_| Errno::ENOBUFS)?;
            let size = datagram.as_ref().map_or(0, |next| next.bytes.len() + OVERHEAD);
            self.count(size, state.queue.is_empty())?;
            if let Some(datagram) = datagram.take() {
                state.queued += size;
                state.queue.push_back(datagram);
            }
        }
        self.readers.wake_all();
        self.signals.tell(Band::In);
        Ok(Attempt::Done(()))
    }

    /// Takes a place for a message of so many bytes, as [`try_deliver`](Self::try_deliver) does.
    /// It is [fulfilled](Self::fulfil) or [withdrawn](Self::withdraw). ENOBUFS.
    pub fn promise(&self, bytes: usize) -> Result<Attempt<()>> {
        let mut state = self.state.lock();
        if state.queued > self.receive_size.load(Ordering::Relaxed) && !state.is_closed {
            return Ok(Attempt::Wait);
        }
        let more = state.promised + 1;
        state.queue.make_room(more).map_err(|_| Errno::ENOBUFS)?;
        self.count(bytes + OVERHEAD, state.queue.is_empty())?;
        state.queued += bytes + OVERHEAD;
        state.promised += 1;
        Ok(Attempt::Done(()))
    }

    /// Puts a promised message into the queue, for which there is room.
    pub fn fulfil(&self, datagram: Datagram) {
        let size = datagram.bytes.len();
        {
            let mut state = self.state.lock();
            if !state.is_closed {
                state.promised -= 1;
                state.queue.push_back(datagram);
                drop(state);
                self.readers.wake_all();
                self.signals.tell(Band::In);
                return;
            }
        }
        self.withdraw(size);
    }

    /// Gives the place of a promised message of so many bytes back.
    pub fn withdraw(&self, bytes: usize) {
        {
            let mut state = self.state.lock();
            state.promised = state.promised.saturating_sub(1);
            state.queued = state.queued.saturating_sub(bytes + OVERHEAD);
        }
        self.uncount(bytes + OVERHEAD);
        self.senders.wake_all();
    }

    /// Counts bytes for the user: `ENOBUFS` if that has too many in flight, in all queues that it
    /// does not read. A queue that is empty gets more.
    fn count(&self, size: usize, is_empty: bool) -> Result<()> {
        let Some(user) = &self.user else { return Ok(()) };
        let most = users::most_in_flight() * if is_empty { 2 } else { 1 };
        if user.bytes_in_flight.add(size) > most {
            self.uncount(size);
            return Err(Errno::ENOBUFS);
        }
        Ok(())
    }

    fn uncount(&self, size: usize) {
        if let Some(user) = &self.user {
            user.bytes_in_flight.give(size);
        }
    }

    /// Puts a message into the queue: ENOBUFS if the queue is full.
    pub fn deliver(&self, datagram: Datagram) -> Result<()> {
        match self.try_deliver(&mut Some(datagram))? {
            Attempt::Done(()) => Ok(()),
            Attempt::Wait => Err(Errno::ENOBUFS),
        }
    }

    /// A message for it was lost: the next call fails with ENOBUFS (`netlink_overrun`).
    pub fn overrun(&self) {
        self.state.lock().error = Some(Errno::ENOBUFS);
        self.readers.wake_all();
    }

    /// Begins a dump and delivers its first piece. EBUSY while another one is not at its end.
    pub fn begin(&self, dump: Dump) -> Result<()> {
        {
            let mut state = self.state.lock();
            if state.is_dumping {
                return Err(Errno::EBUSY);
            }
            state.is_dumping = true;
            state.dump = Some(dump);
        }
        self.go_on();
        Ok(())
    }

    /// Called after a message was taken: lets senders go on, and a dump.
    pub fn taken(&self) {
        self.senders.wake_all();
        self.go_on();
    }

    /// Makes the next piece of a dump if there is one and the queue is half empty (`netlink_dump`).
    fn go_on(&self) {
        let (mut dump, room) = {
            let mut state = self.state.lock();
            if state.queued > self.receive_size.load(Ordering::Relaxed) / 2 {
                return;
            }
            let Some(dump) = state.dump.take() else { return };
            (dump, state.largest_read.clamp(PIECE_LEAST, PIECE_MOST))
        };
        let mut bytes = Vec::new();
        let made = growth::relieved(|| bytes.make_room_exact(room)).is_ok();
        let mut is_done = true;
        if made {
            bytes.resize(room, 0);
            let length;
            (length, is_done) = dump.fill(&mut bytes);
            bytes.truncate(length);
            // The queue counts the bytes, not the room that they were made in.
            bytes.shrink_to_fit();
        }
        {
            let mut state = self.state.lock();
            state.is_dumping = !is_done;
            state.dump = (!is_done).then_some(dump);
        }
        if !made || self.deliver(Datagram::of_kernel(bytes)).is_err() {
            self.overrun();
        }
    }

    /// Takes a message out of the queue, or copies up to `room` bytes of it (`peek`), and returns
    /// it with its full length. Never sleeps; the caller calls [`taken`](Self::taken) afterwards.
    pub fn receive(&self, room: usize, peek: bool) -> Result<Attempt<(Datagram, usize)>> {
        let mut state = self.state.lock();
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        let Some(first) = state.queue.front() else { return Ok(Attempt::Wait) };
        let full = first.bytes.len();
        if peek {
            let bytes = growth::copy(&first.bytes[..full.min(room)])?;
            let Datagram { port, group, sender, .. } = *first;
            return Ok(Attempt::Done((Datagram { bytes, port, group, sender }, full)));
        }
        let Some(first) = state.queue.pop_front() else { return Ok(Attempt::Wait) };
        state.queued -= full + OVERHEAD;
        self.uncount(full + OVERHEAD);
        state.largest_read = state.largest_read.max(room);
        Ok(Attempt::Done((first, full)))
    }

    /// The socket is closed: drops what is queued.
    pub fn close(&self) {
        let old = {
            let mut state = self.state.lock();
            let (queued, promised) = (state.queued, state.promised);
            let old = core::mem::take(&mut *state);
            let dropped: usize = old.queue.iter().map(|next| next.bytes.len() + OVERHEAD).sum();
            // What is promised stays counted until it is withdrawn.
            state.queued = queued.saturating_sub(dropped);
            state.promised = promised;
            state.is_closed = true;
            self.uncount(dropped);
            old
        };
        self.senders.wake_all();
        drop(old);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // A message may have come after it was closed.
        let queued = self.state.lock().queued;
        self.uncount(queued);
    }
}
