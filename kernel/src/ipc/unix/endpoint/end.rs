//! The end of an endpoint: shutdown(2), close(2), and connections that nobody accepted.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use hayate_abi::Errno;

use super::super::address::Name;
use super::super::flight::Graves;
use super::super::message::Message;
use super::super::{flight, names};
use super::{Endpoint, EndpointKind, Role, wake};
use crate::vfs::signal_owner::Band;

impl Endpoint {
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

    /// The socket is closed: the endpoint, too, and what only its descriptors led to.
    pub fn release(&self) {
        self.close();
        flight::closed();
    }

    /// The endpoint is closed: unread messages are dropped, the peer sees the end (ECONNRESET when
    /// something was left unread), connections that were not accepted are refused.
    pub fn close(&self) {
        let mut graves = Graves::default();
        flight::bury(self.end(&mut graves), graves);
    }

    /// Does all of [`close`](Self::close) but drop messages: returns its own, and adds the
    /// connections that were not accepted to `graves`. May be called twice.
    pub fn end(&self, graves: &mut Graves) -> VecDeque<Message> {
        let peer = self.peer().ok().flatten();
        let (queue, waiting, blocked, name, node) = {
            let mut inner = self.inner.lock();
            inner.closed = true;
            let waiting = match core::mem::replace(&mut inner.role, Role::Idle) {
                Role::Listening { waiting, .. } => waiting,
                _ => VecDeque::new(),
            };
            inner.queued = 0;
            inner.urgent = false;
            (
                if inner.is_buried { VecDeque::new() } else { core::mem::take(&mut inner.queue) },
                waiting,
                core::mem::take(&mut inner.blocked),
                inner.name.take(),
                inner.node.take(),
            )
        };
        if let Some(name) = &name {
            // An accepted endpoint has the listener's name, but does not own it.
            if node.is_some() || matches!(name, Name::Abstract(_)) && names::owns(name, self) {
                names::release(&self.network, name, node);
            }
        }
        if let Some(peer) = peer {
            if self.kind.connects() {
                let mut inner = peer.inner.lock();
                inner.no_send = true;
                // The peer gets an error if data was left unread; the mark of out-of-band data does
                // not count.
                let packets = self.kind == EndpointKind::Packet;
                if queue.iter().any(|message| packets || !message.rest().is_empty()) {
                    inner.error = Some(Errno::ECONNRESET);
                }
            }
            peer.wake();
            if self.kind.connects() {
                peer.signals.tell(Band::Hangup);
            }
        }
        for (endpoint, _) in waiting {
            let more = endpoint.refuse(graves);
            graves.add(&endpoint, more);
        }
        wake(blocked);
        queue
    }

    /// Ends a connection that was still waiting to be accepted when the listener was closed.
    fn refuse(&self, graves: &mut Graves) -> VecDeque<Message> {
        if let Ok(Some(peer)) = self.peer() {
            peer.inner.lock().error = Some(Errno::ECONNRESET);
            self.inner.lock().closed = true;
            peer.wake();
        }
        self.end(graves)
    }

    /// Keeps the messages that it had until [`exhume`](Self::exhume); it is closed. `next`: the
    /// endpoint for which that was done before.
    pub fn inter(&self, messages: VecDeque<Message>, next: Option<Arc<Endpoint>>) {
        let mut inner = self.inner.lock();
        inner.queue = messages;
        inner.next_buried = next;
        inner.is_buried = true;
    }

    /// Undoes [`inter`](Self::inter).
    pub fn exhume(&self) -> (VecDeque<Message>, Option<Arc<Endpoint>>) {
        let mut inner = self.inner.lock();
        inner.is_buried = false;
        (core::mem::take(&mut inner.queue), inner.next_buried.take())
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        super::ALL.remove(self);
        // An endpoint that was never accepted, or whose socket could not be made.
        if !self.is_closed() {
            self.close();
        }
    }
}
