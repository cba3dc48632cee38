//! Listening, connecting and accepting; the peer of an endpoint.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};

use super::super::account::Account;
use super::{Endpoint, EndpointKind, Role, wake};
use crate::reclaim::growth::Grow;
use crate::vfs::signal_owner::Band;
use crate::vfs::socket::Attempt;

/// The memory of the two ends of a connection.
const BOTH_ENDS: usize = 2 * (size_of::<Endpoint>() + size_of::<Account>());

impl Endpoint {
    /// listen(2). EINVAL for a socket that has no name or is connected.
    pub fn listen(&self, backlog: usize, who: Ucred) -> Result<()> {
        if !self.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        let mut inner = self.inner.lock();
        if inner.name.is_none() {
            return Err(Errno::EINVAL);
        }
        match &mut inner.role {
            Role::Connected { .. } => return Err(Errno::EINVAL),
            Role::Listening { backlog: most, .. } => *most = backlog,
            role @ Role::Idle => {
                *role = Role::Listening { backlog, waiting: VecDeque::new() };
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
    ///
    /// # Errors
    /// Among others `ENFILE` when the listener's user has too many connections that wait, as on
    /// Linux when there are too many Unix-domain sockets (`unix_create1`).
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
            let counted = listener.account.count_waiting(BOTH_ENDS).ok_or(Errno::ENFILE)?;
            // The other end is made only now that nothing can fail any more, because dropping an
            // endpoint hangs up on its peer; and it is complete before it can be accepted. These
            // are the only two locks that are taken while another endpoint's lock is held. That is
            // safe: no other thread knows `other` yet, and an idle endpoint is the peer of no
            // endpoint.
            let network = self.network.clone();
            let other = Endpoint::new(self.kind, listener.owner, network);
            other.join(self, who);
            other.inner.lock().name = name;
            {
                let mut own = self.inner.lock();
                own.role = Role::Connected { peer: Arc::downgrade(&other) };
                own.peer_credentials = Some(listening);
            }
            waiting.push_back((other, counted));
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
        let Some((endpoint, _)) = waiting.pop_front() else {
            return if no_receive { Err(Errno::EINVAL) } else { Ok(Attempt::Wait) };
        };
        let blocked = core::mem::take(&mut inner.blocked);
        drop(inner);
        wake(blocked);
        Ok(Attempt::Done(endpoint))
    }

    /// Sets the default destination of a datagram socket, or takes it away.
    pub fn set_destination(&self, peer: Option<&Arc<Endpoint>>) -> Result<()> {
        if peer.is_some_and(|peer| peer.kind != EndpointKind::Datagram) {
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

    pub(super) fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }
}
