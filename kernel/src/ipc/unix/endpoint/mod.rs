//! One end of a Unix-domain connection, or an unconnected socket.
//!
//! | file | contents |
//! |---|---|
//! | this | an endpoint's state, making one, what a poll and the collector of cycles see of it |
//! | `connect` | listening, connecting, accepting |
//! | `messages` | sending and receiving |
//! | `end` | shutdown, and the end of an endpoint |

mod connect;
mod end;
mod messages;

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};

use super::account::Account;
use super::address::Name;
use super::message::{Message, Sender};
use crate::namespace::Handle;
use crate::net::config::Network;
use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;
use crate::vfs::fasync::Signals;
use crate::vfs::inode::Inode;
use crate::vfs::open_file::OpenFile;
use crate::vfs::poll::Events;
use crate::vfs::signal_owner::{Band, SignalOwner};
use crate::vfs::socket::{Attempt, kinds};
use crate::vfs::socket_count::{Counted, Kind};
use crate::vfs::socket_list::SocketList;
use crate::vfs::socket_options::cookie_in;
use crate::vfs::unaccepted::Unaccepted;

/// The number of datagrams from senders other than its peer that may wait in one queue:
/// net.unix.max_dgram_qlen.
pub const QUEUE_DATAGRAMS: usize = 10;

/// All endpoints.
pub static ALL: SocketList<Endpoint> = SocketList::new();

/// The kinds of Unix-domain socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Datagram,
    /// SOCK_SEQPACKET.
    Packet,
}

impl EndpointKind {
    /// Returns the `SOCK_*` of this kind.
    pub fn number(self) -> i32 {
        match self {
            EndpointKind::Stream => kinds::STREAM,
            EndpointKind::Datagram => kinds::DATAGRAM,
            EndpointKind::Packet => kinds::PACKET,
        }
    }

    /// Whether sockets of this kind listen and accept.
    pub fn connects(self) -> bool {
        self != EndpointKind::Datagram
    }
}

/// The state of an endpoint.
enum Role {
    Idle,
    /// listen(2) was called. `waiting`: connections that wait to be accepted.
    Listening {
        backlog: usize,
        waiting: VecDeque<(Arc<Endpoint>, Unaccepted)>,
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
    /// Its messages are about to be dropped, and after them those of another endpoint
    /// ([`super::flight::Graves`]).
    is_buried: bool,
    next_buried: Option<Arc<Endpoint>>,
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
    pub kind: EndpointKind,
    /// Credentials of the process that made it.
    pub owner: Ucred,
    /// Its network namespace.
    pub network: Handle<Network>,
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
    file_owner: Once<Arc<SignalOwner>>,
    /// There was no room when a send or a poll last looked.
    space_wanted: AtomicBool,
    /// The number of its socket's inode; 0 while it has no socket.
    pub inode: AtomicU64,
    /// SO_COOKIE; 0 until somebody asks. It is the endpoint's, for one that waits to be accepted
    /// has no socket yet.
    cookie: AtomicU64,
    _counted: Counted,
}

/// The state of an endpoint as `/proc/net/unix` shows it.
pub struct Shown {
    /// listen(2) was called.
    pub listens: bool,
    /// It has a peer.
    pub is_connected: bool,
    /// Its name.
    pub name: Option<Name>,
    /// The number of its peer's inode, if it is connected.
    pub peer: Option<u64>,
    /// Bytes that wait to be read, or connections to be accepted.
    pub receiving: usize,
    /// Bytes that it sent and that are not read yet, or the backlog.
    pub sending: usize,
    /// The directions that are shut down: 1 receiving, 2 sending.
    pub shut_down: u8,
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
    fn has_many_datagrams(&self, kind: EndpointKind, sender: &Arc<Endpoint>) -> bool {
        let peer = match &self.role {
            Role::Connected { peer } => peer.as_ptr(),
            _ => core::ptr::null(),
        };
        kind == EndpointKind::Datagram
            && self.queue.len() > QUEUE_DATAGRAMS
            && !core::ptr::eq(peer, Arc::as_ptr(sender))
    }
}

impl Endpoint {
    /// Makes an unconnected endpoint.
    pub fn new(kind: EndpointKind, owner: Ucred, network: Handle<Network>) -> Arc<Self> {
        let endpoint = Arc::new(Self {
            kind,
            owner,
            network,
            account: Account::new(owner.uid),
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
                is_buried: false,
                next_buried: None,
                error: None,
                peer_credentials: None,
                blocked: Vec::new(),
            }),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            signals: Signals::new(),
            file_owner: Once::new(),
            space_wanted: AtomicBool::new(false),
            inode: AtomicU64::new(0),
            cookie: AtomicU64::new(0),
            _counted: Counted::new(Kind::Unix),
        });
        ALL.add(&endpoint);
        endpoint
    }

    /// SO_COOKIE: returns a number that no other socket has.
    pub fn cookie(&self) -> u64 {
        cookie_in(&self.cookie)
    }

    /// Returns what is shown of it.
    pub fn shown(&self) -> Shown {
        let inner = self.inner.lock();
        let (receiving, sending) = match &inner.role {
            Role::Listening { backlog, waiting } => (waiting.len(), *backlog),
            _ => (inner.queued, self.account.in_flight()),
        };
        let peer = match &inner.role {
            Role::Connected { peer } => peer.upgrade(),
            _ => None,
        };
        let shown = Shown {
            peer: peer.as_ref().map(|peer| peer.inode.load(Ordering::Relaxed)),
            receiving,
            sending,
            shut_down: u8::from(inner.no_receive) | u8::from(inner.no_send) << 1,
            listens: matches!(inner.role, Role::Listening { .. }),
            is_connected: self.kind.connects() && matches!(inner.role, Role::Connected { .. }),
            name: inner.name.clone(),
        };
        drop(inner);
        // Outside of the lock: this may be the last reference.
        drop(peer);
        shown
    }

    /// Makes two endpoints connected to each other: socketpair(2).
    pub fn pair(
        kind: EndpointKind,
        owner: Ucred,
        network: Handle<Network>,
    ) -> (Arc<Self>, Arc<Self>) {
        let one = Self::new(kind, owner, network.clone());
        let other = Self::new(kind, owner, network);
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

    /// Calls `visit` with every file that waits in this endpoint's queue, or in the queue of a
    /// connection that waits to be accepted here.
    pub fn for_each_waiting(&self, visit: &mut dyn FnMut(&Arc<OpenFile>)) {
        let inner = self.inner.lock();
        inner.queue.iter().for_each(|message| message.descriptors.for_each(visit));
        if let Role::Listening { waiting, .. } = &inner.role {
            waiting.iter().for_each(|(endpoint, _)| endpoint.for_each_waiting(visit));
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
            waiting.iter().for_each(|(endpoint, _)| endpoint.take_messages(to));
        }
    }

    /// SO_ERROR: returns the pending error and clears it.
    pub fn take_error(&self) -> Option<Errno> {
        self.inner.lock().error.take()
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

impl Sender for Endpoint {
    fn arrived(&self) {
        if self.account.is_writable() {
            self.writers.wake_all();
            if self.space_wanted.load(Ordering::Relaxed) {
                self.space_wanted.store(false, Ordering::Relaxed);
                self.signals.tell(Band::Out);
            }
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
