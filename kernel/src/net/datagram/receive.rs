//! Receiving datagrams.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::SocketAddress;

use super::control::{report, report_failure, report_path_mtu};
use super::{Failure, ORIGIN_LOCAL, Protocol, Queue, Received, Socket};
use crate::net::ip_options::Wishes;
use crate::net::statistics::Counter;
use crate::vfs::socket::{AddressBytes, Attempt, IncomingMessage, flags, message_at, until};
use crate::vfs::socket_options::Buffer;
use crate::vfs::transfer::Output;

impl Socket {
    /// Writes an address for a program.
    pub(super) fn address_bytes(&self, address: SocketAddress) -> AddressBytes {
        let mut bytes = AddressBytes::new();
        // An address of a socket is shorter than the longest.
        let _ = bytes.try_extend_from_slice(&address.to_bytes(self.v6));
        bytes
    }

    /// Receives a datagram, or with MSG_ERRQUEUE an error.
    pub(super) fn receive_message(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<IncomingMessage> {
        if how & flags::ERRQUEUE != 0 {
            return self.receive_failure(out);
        }
        if self.has_too_long.load(Ordering::Relaxed)
            && let Some(told) = self.receive_path_mtu()?
        {
            return Ok(told);
        }
        if how & flags::PEEK != 0 {
            return self.peek_message(out, how, nonblocking);
        }
        // The datagram goes to its place at once: as the result of each step it would be copied.
        let mut next = None;
        let attempt = || {
            let is_done = self.queue.lock().next(&mut next)?;
            Ok(if is_done { Attempt::Done(()) } else { Attempt::Wait })
        };
        until(&self.common, Buffer::Receive, nonblocking, &self.readers, attempt)?;
        let Some((datagram, drops)) = next else { return Ok(IncomingMessage::default()) };
        let full = datagram.payload.len();
        let wanted = full.min(out.remaining());
        if datagram.payload.put(0, wanted, out)? < wanted {
            return Err(Errno::EFAULT);
        }
        self.common.note_read(if how & flags::TRUNC != 0 { full } else { wanted }, false);
        if self.protocol == Protocol::Udp {
            self.network().count(Counter::DatagramsRead, datagram.to.is_v4());
        }
        let truncated = if wanted < full { flags::TRUNC } else { 0 };
        self.describe(&datagram, (wanted, full), truncated, drops)
    }

    /// MSG_PEEK: shows a datagram, which stays.
    #[cold]
    fn peek_message(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<IncomingMessage> {
        let offset = self.common.passed_over(true);
        let attempt = || Ok(self.queue.lock().look(offset)?.map_or(Attempt::Wait, Attempt::Done));
        let next = until(&self.common, Buffer::Receive, nonblocking, &self.readers, attempt)?;
        let Some((datagram, passed, drops)) = next else { return Ok(IncomingMessage::default()) };
        let full = datagram.payload.len();
        let room = out.remaining();
        let wanted = room.min(full - passed);
        if datagram.payload.put(passed, wanted, out)? < wanted {
            return Err(Errno::EFAULT);
        }
        self.common.note_read(if how & flags::TRUNC != 0 { full } else { wanted }, true);
        // Also where it ends with the bytes that are left (`udp_recvmsg`).
        let is_truncated = room <= full - passed && room < full;
        let truncated = if is_truncated { flags::TRUNC } else { 0 };
        self.describe(&datagram, (wanted, full), truncated, drops)
    }

    /// Says where a datagram comes from; `lengths`: that of what was given, and its own.
    #[inline]
    fn describe(
        &self,
        datagram: &Received,
        (count, full): (usize, usize),
        flags: u32,
        drops: u32,
    ) -> Result<IncomingMessage> {
        self.stamp.note(datagram.time);
        let options = *self.options.lock();
        Ok(IncomingMessage {
            count,
            full,
            flags,
            from: self.address_bytes(datagram.from),
            descriptors: Vec::new(),
            credentials: None,
            control: report(datagram, &options, &self.common, drops)?,
        })
    }

    /// Tells of the MTU of the path of a datagram that was too long (IPV6_RECVPATHMTU;
    /// `ipv6_recv_rxpmtu`), if there is one and the program wants that.
    #[cold]
    fn receive_path_mtu(&self) -> Result<Option<IncomingMessage>> {
        let told = self.queue.lock().too_long;
        let wants = |_: &_| self.options.lock().wishes.contains(Wishes::PATH_MTU_V6);
        let Some((to, mtu)) = told.filter(wants) else { return Ok(None) };
        let control = report_path_mtu(to, mtu)?;
        self.has_too_long.store(false, Ordering::Relaxed);
        self.queue.lock().too_long = None;
        Ok(Some(IncomingMessage {
            from: self.address_bytes(to),
            control,
            ..IncomingMessage::default()
        }))
    }

    /// Takes an error that ICMP reported, with the datagram that it concerns.
    fn receive_failure(&self, out: &mut Output<'_>) -> Result<IncomingMessage> {
        let failure = {
            let mut queue = self.queue.lock();
            let failure = queue.failures.pop_front().ok_or(Errno::EAGAIN)?;
            queue.let_go(&failure.payload);
            // The pending error is that of the next one that a router reported
            // (`sock_dequeue_err_skb`).
            let is_remote = |failure: &&Failure| failure.origin != ORIGIN_LOCAL;
            let next = queue.failures.front().filter(is_remote).map(|next| next.errno);
            if next.is_some() || is_remote(&&failure) {
                queue.error = next;
            }
            failure
        };
        let full = failure.payload.len();
        let wanted = full.min(out.remaining());
        let count = failure.payload.put(0, wanted, out)?;
        Ok(IncomingMessage {
            count,
            full,
            flags: flags::ERRQUEUE | if count < full { flags::TRUNC } else { 0 },
            from: self.address_bytes(failure.to),
            descriptors: Vec::new(),
            credentials: None,
            control: report_failure(&failure, self.v6)?,
        })
    }
}

impl Queue {
    /// Takes the first datagram, with the number of dropped ones, to `to`. Returns whether there is
    /// one, or nothing will come any more; otherwise wait.
    ///
    /// # Errors
    /// The pending error.
    fn next(&mut self, to: &mut Option<(Received, u32)>) -> Result<bool> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        *to = self.datagrams.pop_front().map(|first| (first, self.dropped));
        if let Some((first, _)) = to {
            self.let_go(&first.payload);
            return Ok(true);
        }
        Ok(self.no_receive)
    }

    /// Shows the datagram that a peek sees that passes over `offset` bytes, with the number of
    /// bytes of it that are passed over, and of dropped datagrams. `Some(None)`: nothing will come
    /// any more. `None`: wait.
    ///
    /// # Errors
    /// The pending error; `ENOMEM`.
    #[allow(clippy::option_option, reason = "three outcomes, as described")]
    fn look(&mut self, offset: Option<usize>) -> Result<Option<Option<(Received, usize, u32)>>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let length = |datagram: &Received| (datagram.payload.len(), datagram.segment != 0);
        if let Some((at, passed)) = message_at(&self.datagrams, offset, length)
            && let Some(datagram) = self.datagrams.get_mut(at)
        {
            let shown = datagram.share()?;
            if datagram.payload.is_empty() {
                datagram.segment = 1;
            }
            return Ok(Some(Some((shown, passed, self.dropped))));
        }
        Ok(if self.no_receive { Some(None) } else { None })
    }
}

impl Received {
    /// Another reference to the same bytes. `ENOMEM`.
    fn share(&self) -> Result<Received> {
        Ok(Received { payload: self.payload.share()?, ..*self })
    }
}
