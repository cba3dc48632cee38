//! One end of a Unix-domain connection, or an unconnected socket.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};

use super::account::Account;
use super::address;
use super::address::Name;
use super::flight;
use super::message::Message;
use super::urgent;
use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;
use crate::vfs::fasync::Signals;
use crate::vfs::inode::Inode;
use crate::vfs::open_file::OpenFile;
use crate::vfs::poll::Events;
use crate::vfs::signal_owner::{Band, Owner};

/// The number of datagrams from senders other than its peer that may wait in one queue:
/// net.unix.max_dgram_qlen.
pub const QUEUE_DATAGRAMS: usize = 10;
/// SOMAXCONN.
pub const MOST_BACKLOG: usize = 4096;

/// The kinds of Unix-domain socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Datagram,
    /// SOCK_SEQPACKET.
    Packet,
}

impl Kind {
    /// Whether sockets of this kind listen and accept.
    pub fn connects(self) -> bool {
        self != Kind::Datagram
    }
}

/// The state of an endpoint.
enum Role {
    Idle,
    /// listen(2) was called. `waiting`: connections that wait to be accepted.
    Listening {
        backlog: usize,
        waiting: VecDeque<Arc<Endpoint>>,
    },
    /// connect(2), accept(2) or socketpair(2).
    Connected {
        peer: Weak<Endpoint>,
    },
}

struct Inner {
    role: Role,
    queue: VecDeque<Message>,
    queued: usize,
    /// One of the messages is out-of-band data that is not yet read.
    urgent: bool,
    name: Option<Name>,
    node: Option<Arc<dyn Inode>>,
    /// Nothing more is received (`no_receive`) or sent (`no_send`; shutdown(2)). The socket is
    /// being closed.
    no_receive: bool,
    no_send: bool,
    /// It is being closed.
    closed: bool,
    /// An error for the next call: ECONNRESET.
    error: Option<Errno>,
    /// Credentials of the process that made the peer, or that listens there: SO_PEERCRED.
    peer_credentials: Option<Ucred>,
    /// Endpoints that found the queue of datagrams, or the backlog, full.
    blocked: Vec<Weak<Endpoint>>,
}

/// One end of a connection, or an unconnected socket.
pub struct Endpoint {
    /// Its kind.
    pub kind: Kind,
    /// Credentials of the process that made it.
    pub owner: Ucred,
    /// Counts the bytes that it has in flight; holds its buffer sizes.
    pub account: Arc<Account>,
    inner: SpinLock<Inner>,
    /// Something was received, or the peer is gone.
    pub readers: WaitQueue,
    /// There may be room at the peer.
    pub writers: WaitQueue,
    /// The signals of its socket, if a program asked for them.
    pub signals: Signals,
    /// The owner that gets SIGURG; set once the socket has an owner.
    file_owner: Once<Arc<Owner>>,
    /// There was no room when a send or a poll last looked.
    space_wanted: AtomicBool,
}

impl Inner {
    /// Remembers an endpoint that has to wait; only once, however often it tries. ENOBUFS without
    /// memory for that.
    fn block(&mut self, waiting: &Arc<Endpoint>) -> Result<()> {
        let known = |held: &Weak<Endpoint>| core::ptr::eq(held.as_ptr(), Arc::as_ptr(waiting));
        if !self.blocked.iter().any(known) {
            self.blocked.make_room(1).map_err(|_| Errno::ENOBUFS)?;
            self.blocked.push(Arc::downgrade(waiting));
        }
        Ok(())
    }
}

impl Inner {
    /// Returns the result of a read that found no message; `ended` when the peer sends no more.
    fn nothing<T>(&mut self, ended: bool) -> Result<Attempt<Option<T>>> {
        match self.error.take() {
            Some(error) => Err(error),
            None if ended || self.no_receive => Ok(Attempt::Done(None)),
            None => Ok(Attempt::Wait),
        }
    }

    /// Whether `sender` has to wait because too many datagrams are queued. The limit does not apply
    /// to the sender that this endpoint is connected to (`unix_recvq_full` in
    /// `unix_dgram_sendmsg`).
    fn has_many_datagrams(&self, kind: Kind, sender: &Arc<Endpoint>) -> bool {
        let peer = match &self.role {
            Role::Connected { peer } => peer.as_ptr(),
            _ => core::ptr::null(),
        };
        kind == Kind::Datagram
            && self.queue.len() > QUEUE_DATAGRAMS
            && !core::ptr::eq(peer, Arc::as_ptr(sender))
    }
}

/// The result of an attempt that may have to be made again.
pub enum Attempt<T> {
    /// It was made.
    Done(T),
    /// Wait, then try again.
    Wait,
}

impl Endpoint {
    /// Makes an unconnected endpoint.
    pub fn new(kind: Kind, owner: Ucred) -> Arc<Self> {
        Arc::new(Self {
            kind,
            owner,
            account: Account::new(),
            inner: SpinLock::new(Inner {
                role: Role::Idle,
                queue: VecDeque::new(),
                queued: 0,
                urgent: false,
                name: None,
                node: None,
                no_receive: false,
                no_send: false,
                closed: false,
                error: None,
                peer_credentials: None,
                blocked: Vec::new(),
            }),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            signals: Signals::new(),
            file_owner: Once::new(),
            space_wanted: AtomicBool::new(false),
        })
    }

    /// Makes two endpoints connected to each other: socketpair(2).
    pub fn pair(kind: Kind, owner: Ucred) -> (Arc<Self>, Arc<Self>) {
        let (one, other) = (Self::new(kind, owner), Self::new(kind, owner));
        one.join(&other, owner);
        other.join(&one, owner);
        (one, other)
    }

    fn join(&self, peer: &Arc<Endpoint>, credentials: Ucred) {
        let mut inner = self.inner.lock();
        inner.role = Role::Connected { peer: Arc::downgrade(peer) };
        inner.peer_credentials = Some(credentials);
    }

    // ---- names ------------------------------------------------------------------------------

    /// Returns its name.
    pub fn name(&self) -> Option<Name> {
        self.inner.lock().name.clone()
    }

    /// Sets its name; EINVAL when it has one.
    pub fn set_name(&self, name: Name, node: Option<Arc<dyn Inode>>) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.name.is_some() {
            return Err(Errno::EINVAL);
        }
        inner.name = Some(name);
        inner.node = node;
        Ok(())
    }

    // ---- connecting -------------------------------------------------------------------------

    /// listen(2). EINVAL for a socket that has no name or is connected.
    pub fn listen(&self, backlog: usize, who: Ucred) -> Result<()> {
        if !self.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut inner = self.inner.lock();
        if inner.name.is_none() {
            return Err(Errno::EINVAL);
        }
        let most = backlog.min(MOST_BACKLOG);
        match &mut inner.role {
            Role::Connected { .. } => return Err(Errno::EINVAL),
            Role::Listening { backlog, .. } => *backlog = most,
            role @ Role::Idle => {
                *role = Role::Listening { backlog: most, waiting: VecDeque::new() };
                inner.peer_credentials = Some(who);
            }
        }
        let blocked = core::mem::take(&mut inner.blocked);
        drop(inner);
        wake(blocked);
        Ok(())
    }

    /// Connects a stream or packet socket to a listening one: makes the other end and puts it into
    /// the backlog. Returns [`Attempt::Wait`] when the backlog is full.
    pub fn connect(self: &Arc<Self>, listener: &Arc<Endpoint>, who: Ucred) -> Result<Attempt<()>> {
        if listener.kind != self.kind {
            return Err(Errno::EPROTOTYPE);
        }
        match self.inner.lock().role {
            Role::Idle => {}
            Role::Connected { .. } => return Err(Errno::EISCONN),
            Role::Listening { .. } => return Err(Errno::EINVAL),
        }
        {
            let mut inner = listener.inner.lock();
            let listening = inner.peer_credentials.unwrap_or(listener.owner);
            let name = inner.name.clone();
            let closed = inner.closed || inner.no_receive;
            let Role::Listening { backlog, waiting } = &mut inner.role else {
                return Err(Errno::ECONNREFUSED);
            };
            if closed {
                return Err(Errno::ECONNREFUSED);
            }
            if waiting.len() > *backlog {
                inner.block(self)?;
                return Ok(Attempt::Wait);
            }
            waiting.make_room(1).map_err(|_| Errno::ENOBUFS)?;
            // The other end is made only now that nothing can fail any more, because dropping an
            // endpoint hangs up on its peer; and it is complete before it can be accepted. These
            // are the only two locks that are taken while another endpoint's lock is held. That is
            // safe: no other thread knows `other` yet, and an idle endpoint is the peer of no
            // endpoint.
            let other = Endpoint::new(self.kind, listener.owner);
            other.join(self, who);
            other.inner.lock().name = name;
            {
                let mut own = self.inner.lock();
                own.role = Role::Connected { peer: Arc::downgrade(&other) };
                own.peer_credentials = Some(listening);
            }
            waiting.push_back(other);
        }
        listener.readers.wake_all();
        listener.signals.tell(Band::In);
        self.writers.wake_all();
        Ok(Attempt::Done(()))
    }

    /// accept(2). EINVAL when the socket does not listen.
    pub fn accept(&self) -> Result<Attempt<Arc<Endpoint>>> {
        let mut inner = self.inner.lock();
        let no_receive = inner.no_receive;
        let Role::Listening { waiting, .. } = &mut inner.role else { return Err(Errno::EINVAL) };
        let Some(endpoint) = waiting.pop_front() else {
            return if no_receive { Err(Errno::EINVAL) } else { Ok(Attempt::Wait) };
        };
        let blocked = core::mem::take(&mut inner.blocked);
        drop(inner);
        wake(blocked);
        Ok(Attempt::Done(endpoint))
    }

    /// Sets the default destination of a datagram socket, or takes it away.
    pub fn set_destination(&self, peer: Option<&Arc<Endpoint>>) -> Result<()> {
        if peer.is_some_and(|peer| peer.kind != Kind::Datagram) {
            return Err(Errno::EPROTOTYPE);
        }
        let mut inner = self.inner.lock();
        inner.role = match peer {
            Some(peer) => Role::Connected { peer: Arc::downgrade(peer) },
            None => Role::Idle,
        };
        inner.peer_credentials = peer.map(|peer| peer.owner);
        Ok(())
    }

    /// Returns the peer: ENOTCONN without one, and `None` when it existed but is gone.
    pub fn peer(&self) -> Result<Option<Arc<Endpoint>>> {
        // The own lock is released before the peer's is taken: otherwise two ends that ask for each
        // other at the same time would deadlock.
        let peer = match &self.inner.lock().role {
            Role::Connected { peer } => peer.clone(),
            _ => return Err(Errno::ENOTCONN),
        };
        Ok(peer.upgrade().filter(|peer| !peer.is_closed()))
    }

    /// SO_PEERCRED.
    pub fn peer_credentials(&self) -> Option<Ucred> {
        let inner = self.inner.lock();
        inner.peer_credentials
    }

    /// SO_ACCEPTCONN.
    pub fn listens(&self) -> bool {
        matches!(self.inner.lock().role, Role::Listening { .. })
    }

    fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }

    // ---- sending ----------------------------------------------------------------------------

    /// Whether this end may send at all: EPIPE after shutdown, or its pending error. A stream whose
    /// peer is gone returns EPIPE first and keeps the pending error for a read
    /// (`unix_stream_sendmsg`).
    pub fn check_send(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.no_send && self.kind == Kind::Stream {
            return Err(Errno::EPIPE);
        }
        if let Some(error) = inner.error.take() {
            return Err(error);
        }
        if inner.no_send { Err(Errno::EPIPE) } else { Ok(()) }
    }

    /// Puts a message from `sender` into this endpoint's queue. A message that does not fit stays
    /// in `message`, and the sender is woken when there may be room.
    ///
    /// EPIPE (stream, packet) or ECONNREFUSED (datagram) when nothing is received here any more;
    /// EPERM when this is a datagram socket that is connected to another endpoint.
    pub fn deliver(
        &self,
        sender: &Arc<Endpoint>,
        message: &mut Option<Message>,
    ) -> Result<Attempt<()>> {
        let mut inner = self.inner.lock();
        if inner.closed || inner.no_receive {
            let gone = inner.closed && self.kind == Kind::Datagram;
            return Err(if gone { Errno::ECONNREFUSED } else { Errno::EPIPE });
        }
        if let (Kind::Datagram, Role::Connected { peer }) = (self.kind, &inner.role)
            && !core::ptr::eq(peer.as_ptr(), Arc::as_ptr(sender))
        {
            // A connected datagram socket takes messages only from its peer.
            return Err(Errno::EPERM);
        }
        let Some(length) = message.as_ref().map(|message| message.bytes.len()) else {
            return Ok(Attempt::Done(()));
        };
        if inner.has_many_datagrams(self.kind, sender) {
            inner.block(sender)?;
            return Ok(Attempt::Wait);
        }
        if inner.queue.make_room(1).is_err() {
            return Err(Errno::ENOBUFS);
        }
        // The sender is woken when any of its messages in flight arrives, wherever that is.
        let Some(charge) = sender.account.charge(length) else {
            sender.space_wanted.store(true, Ordering::Relaxed);
            return Ok(Attempt::Wait);
        };
        let mut is_urgent = false;
        if let Some(mut message) = message.take() {
            message.charge = Some(charge);
            is_urgent = message.urgent;
            if is_urgent && core::mem::replace(&mut inner.urgent, true) {
                urgent::make_ordinary(&mut inner.queue);
            }
            inner.queued += length;
            inner.queue.push_back(message);
        }
        drop(inner);
        if is_urgent {
            self.tell_urgent();
        }
        self.readers.wake_all();
        self.signals.tell(Band::In);
        Ok(Attempt::Done(()))
    }

    /// Sends the signals of out-of-band data (`sk_send_sigurg`).
    fn tell_urgent(&self) {
        if let Some(owner) = self.file_owner.get() {
            owner.tell_urgent();
            self.signals.tell_urgent();
        }
    }

    /// Sets the owner of its open file, which gets SIGURG.
    pub fn set_file_owner(&self, owner: &Arc<Owner>) {
        self.file_owner.call_once(|| Arc::clone(owner));
    }

    /// Whether a message from `sender` would have to wait; if so, `sender` is woken later.
    fn is_full_for(&self, sender: &Arc<Endpoint>) -> bool {
        let mut inner = self.inner.lock();
        let full = inner.has_many_datagrams(self.kind, sender);
        if full {
            // Without memory for that the poller is not woken; it will ask again.
            let _ = inner.block(sender);
        }
        full
    }

    // ---- receiving --------------------------------------------------------------------------

    /// Calls `look` with the queue, under its lock, and with a list for messages that will never be
    /// read; these are dropped after the lock is released. If `look` returns `None`, there is no
    /// message for this reader, and the result is the pending error, [`Attempt::Wait`] when more
    /// may come, or `Ok(Done(None))` at the end of a connection.
    pub fn receive<T>(
        &self,
        look: impl FnOnce(&mut VecDeque<Message>, &mut VecDeque<Message>) -> Option<T>,
    ) -> Result<Attempt<Option<T>>> {
        let gone = match self.peer() {
            Ok(peer) => peer.is_none(),
            Err(error) if self.kind == Kind::Packet => return Err(error),
            Err(_) if self.kind == Kind::Stream => return Err(Errno::EINVAL),
            Err(_) => false,
        };
        let peer_silent = match self.peer() {
            Ok(Some(peer)) => self.kind.connects() && peer.inner.lock().no_send,
            _ => false,
        };
        let ended = self.kind.connects() && (gone || peer_silent);
        let mut inner = self.inner.lock();
        let count = inner.queue.len();
        let origin = inner.queue.front().map(|message| message.origin.clone());
        let mut unread = VecDeque::new();
        let found = match look(&mut inner.queue, &mut unread) {
            Some(found) => Ok(Attempt::Done(Some(found))),
            None => inner.nothing(ended),
        };
        inner.queued = inner.queue.iter().map(|message| message.rest().len()).sum();
        inner.urgent = inner.urgent && urgent::find(&inner.queue).is_some();
        let blocked = if inner.queue.len() <= QUEUE_DATAGRAMS {
            core::mem::take(&mut inner.blocked)
        } else {
            Vec::new()
        };
        let taken = inner.queue.len() < count;
        drop(inner);
        flight::bury(unread);
        if taken && let Some(origin) = origin.and_then(|origin| origin.upgrade()) {
            origin.arrived();
        }
        wake(blocked);
        found
    }

    /// Reads the byte of out-of-band data. Unless `peek`, the byte is taken out and leaves its mark
    /// behind. EINVAL when there is none, or the socket is not connected (`unix_stream_recv_urg`).
    pub fn receive_urgent(&self, peek: bool) -> Result<u8> {
        let mut inner = self.inner.lock();
        if !matches!(inner.role, Role::Connected { .. }) || !inner.urgent {
            return Err(Errno::EINVAL);
        }
        let at = urgent::find(&inner.queue).ok_or(Errno::EINVAL)?;
        let byte = inner.queue[at].rest().first().copied().ok_or(Errno::EINVAL)?;
        if peek {
            return Ok(byte);
        }
        let mut unread = VecDeque::new();
        urgent::leave_mark(&mut inner.queue, at, &mut unread);
        inner.urgent = false;
        inner.queued -= 1;
        drop(inner);
        flight::bury(unread);
        Ok(byte)
    }

    /// SIOCATMARK: whether the next byte to be read is the first after the mark.
    pub fn is_at_mark(&self) -> bool {
        urgent::is_at_mark(&self.inner.lock().queue)
    }

    /// FIONREAD: bytes of a stream, or the length of the first datagram.
    pub fn unread(&self) -> usize {
        let inner = self.inner.lock();
        match self.kind {
            Kind::Stream => inner.queued,
            _ => inner.queue.front().map_or(0, |message| message.bytes.len()),
        }
    }

    // ---- ending -----------------------------------------------------------------------------

    /// shutdown(2).
    pub fn shut_down(&self, receiving: bool, sending: bool) {
        let peer = self.peer().ok().flatten();
        {
            let mut inner = self.inner.lock();
            inner.no_receive |= receiving;
            inner.no_send |= sending;
        }
        if self.kind.connects()
            && let Some(peer) = &peer
        {
            let mut inner = peer.inner.lock();
            inner.no_receive |= sending;
            inner.no_send |= receiving;
        }
        self.wake();
        if let Some(peer) = peer {
            peer.wake();
            // As in `unix_shutdown`: signals what the peer can no longer do.
            match (self.kind.connects(), sending, receiving) {
                (true, true, true) => peer.signals.tell(Band::Hangup),
                (true, true, false) => peer.signals.tell(Band::In),
                _ => {}
            }
        }
    }

    /// The socket is closed: unread messages are dropped, the peer sees the end (ECONNRESET when
    /// something was left unread), connections that were not accepted are refused.
    pub fn close(&self) {
        flight::bury(self.end());
    }

    /// Does all of [`close`](Self::close) but drop the messages, which it returns. May be called
    /// twice.
    pub fn end(&self) -> VecDeque<Message> {
        let peer = self.peer().ok().flatten();
        let (mut queue, waiting, blocked, name, node) = {
            let mut inner = self.inner.lock();
            inner.closed = true;
            let waiting = match core::mem::replace(&mut inner.role, Role::Idle) {
                Role::Listening { waiting, .. } => waiting,
                _ => VecDeque::new(),
            };
            inner.queued = 0;
            inner.urgent = false;
            (
                core::mem::take(&mut inner.queue),
                waiting,
                core::mem::take(&mut inner.blocked),
                inner.name.take(),
                inner.node.take(),
            )
        };
        if let Some(name) = &name {
            // An accepted endpoint has the listener's name, but does not own it.
            if node.is_some() || matches!(name, Name::Abstract(_)) && address::owns(name, self) {
                address::release(name, node);
            }
        }
        if let Some(peer) = peer {
            if self.kind.connects() {
                let mut inner = peer.inner.lock();
                inner.no_send = true;
                // The peer gets an error if data was left unread; the mark of out-of-band data does
                // not count.
                let packets = self.kind == Kind::Packet;
                if queue.iter().any(|message| packets || !message.rest().is_empty()) {
                    inner.error = Some(Errno::ECONNRESET);
                }
            }
            peer.wake();
            if self.kind.connects() {
                peer.signals.tell(Band::Hangup);
            }
        }
        for endpoint in waiting {
            let mut more = endpoint.refuse();
            if queue.make_room(more.len()).is_ok() {
                queue.append(&mut more);
            } else {
                flight::bury(more);
            }
        }
        wake(blocked);
        queue
    }

    /// Ends a connection that was still waiting to be accepted when the listener was closed.
    fn refuse(&self) -> VecDeque<Message> {
        if let Ok(Some(peer)) = self.peer() {
            peer.inner.lock().error = Some(Errno::ECONNRESET);
            self.inner.lock().closed = true;
            peer.wake();
        }
        self.end()
    }

    // ---- collecting (see `flight`) ----------------------------------------------------------

    /// Calls `visit` with every file that waits in this endpoint's queue, or in the queue of a
    /// connection that waits to be accepted here.
    pub fn for_each_waiting(&self, visit: &mut dyn FnMut(&Arc<OpenFile>)) {
        let inner = self.inner.lock();
        inner.queue.iter().for_each(|message| message.descriptors.for_each(visit));
        if let Role::Listening { waiting, .. } = &inner.role {
            waiting.iter().for_each(|endpoint| endpoint.for_each_waiting(visit));
        }
    }

    /// Moves the messages that carry descriptors into `to`. A message for which `to` has no memory
    /// stays.
    pub fn take_messages(&self, to: &mut VecDeque<Message>) {
        let mut inner = self.inner.lock();
        let count = inner.queue.len();
        for _ in 0..count {
            let Some(message) = inner.queue.pop_front() else { break };
            if !message.descriptors.is_empty() && to.make_room(1).is_ok() {
                to.push_back(message);
            } else {
                inner.queue.push_back(message);
            }
        }
        if let Role::Listening { waiting, .. } = &inner.role {
            waiting.iter().for_each(|endpoint| endpoint.take_messages(to));
        }
    }

    /// SO_ERROR: returns the pending error and clears it.
    pub fn take_error(&self) -> Option<Errno> {
        self.inner.lock().error.take()
    }

    /// A message that it sent is no longer in flight.
    pub fn arrived(&self) {
        if self.account.is_writable() {
            self.writers.wake_all();
            if self.space_wanted.load(Ordering::Relaxed) {
                self.space_wanted.store(false, Ordering::Relaxed);
                self.signals.tell(Band::Out);
            }
        }
    }

    fn wake(&self) {
        self.readers.wake_all();
        self.writers.wake_all();
    }

    /// Returns the events that a poll finds.
    pub fn events(self: &Arc<Self>) -> Events {
        let peer = self.peer();
        let peer_silent = match &peer {
            Ok(Some(peer)) => self.kind.connects() && peer.inner.lock().no_send,
            Ok(None) => self.kind.connects(),
            Err(_) => false,
        };
        let full = match &peer {
            Ok(Some(peer)) => peer.is_full_for(self),
            _ => false,
        };
        let gone = self.kind.connects() && matches!(peer, Ok(None));
        let mut events = Events::empty();
        let inner = self.inner.lock();
        if let Role::Listening { waiting, .. } = &inner.role {
            return if waiting.is_empty() { events } else { Events::READABLE };
        }
        if !inner.queue.is_empty() || inner.no_receive || peer_silent {
            events |= Events::READABLE;
        }
        if inner.urgent {
            events |= Events::PRI;
        }
        if inner.no_receive || peer_silent {
            events |= Events::RDHUP;
        }
        if inner.error.is_some() {
            events |= Events::ERR;
        }
        if gone || (inner.no_receive && inner.no_send) {
            events |= Events::HUP;
        }
        if self.kind.connects() && peer.is_err() {
            // As in `unix_poll`: an unconnected stream socket is hung up and writable.
            events |= Events::HUP;
        }
        if !full && self.account.is_writable() {
            events |= Events::WRITABLE;
        } else {
            self.space_wanted.store(true, Ordering::Relaxed);
        }
        events
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // An endpoint that was never accepted, or whose socket could not be made.
        if !self.is_closed() {
            self.close();
        }
    }
}

fn wake(endpoints: Vec<Weak<Endpoint>>) {
    for endpoint in endpoints {
        if let Some(endpoint) = endpoint.upgrade() {
            endpoint.writers.wake_all();
        }
    }
}
