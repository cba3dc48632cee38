//! Sending and receiving: messages go straight into the queue of the receiver.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};

use super::super::flight::Graves;
use super::super::message::Message;
use super::super::{flight, urgent};
use super::{Endpoint, EndpointKind, QUEUE_DATAGRAMS, Role, wake};
use crate::reclaim::growth::Grow;
use crate::vfs::signal_owner::{Band, SignalOwner};
use crate::vfs::socket::Attempt;

impl Endpoint {
    /// Whether this end may send at all: EPIPE after shutdown, or its pending error. A stream whose
    /// peer is gone returns EPIPE first and keeps the pending error for a read
    /// (`unix_stream_sendmsg`).
    pub fn check_send(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.no_send && self.kind == EndpointKind::Stream {
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
            let gone = inner.closed && self.kind == EndpointKind::Datagram;
            return Err(if gone { Errno::ECONNREFUSED } else { Errno::EPIPE });
        }
        if let (EndpointKind::Datagram, Role::Connected { peer }) = (self.kind, &inner.role)
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
        let Some(charge) = sender.account.charge(length)? else {
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
    pub fn set_file_owner(&self, owner: &Arc<SignalOwner>) {
        self.file_owner.call_once(|| Arc::clone(owner));
    }

    /// Whether a message from `sender` would have to wait; if so, `sender` is woken later.
    pub(super) fn is_full_for(&self, sender: &Arc<Endpoint>) -> bool {
        let mut inner = self.inner.lock();
        let full = inner.has_many_datagrams(self.kind, sender);
        if full {
            // Without memory for that the poller is not woken; it will ask again.
            let _ = inner.block(sender);
        }
        full
    }

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
            Err(error) if self.kind == EndpointKind::Packet => return Err(error),
            Err(_) if self.kind == EndpointKind::Stream => return Err(Errno::EINVAL),
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
        flight::bury(unread, Graves::default());
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
        flight::bury(unread, Graves::default());
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
            EndpointKind::Stream => inner.queued,
            _ => inner.queue.front().map_or(0, |message| message.bytes.len()),
        }
    }
}
