//! Bytes: send(2), recv(2) and their relatives.
//!
//! A program's bytes are copied to new slices without a lock, then queued; they are not copied
//! again. A reader looks at the pieces under the lock, copies them to its program without it, and
//! then drops them from the queue: so nothing is lost if the copy fails. Readers of one socket take
//! turns.

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_tcp::{Events, Pieces, Pressure, State as TcpState};

use super::{After, Phase, Socket, State, errno};
use crate::net::slice::{Payload, Slice};
use crate::schedule::time::monotonic_ns;
use crate::schedule::{self, Woken};
use crate::vfs::poll;
use crate::vfs::socket::{Attempt, ControlMessage, IncomingMessage, OutgoingMessage, flags, until};
use crate::vfs::socket_options::{Buffer, Switches};
use crate::vfs::transfer::{Input, Output};

/// `MSG_FASTOPEN`.
const FAST_OPEN: u32 = 0x2000_0000;
/// The most bytes that are copied from a program before they are queued.
const PIECE: usize = 64 * 1024;
/// The most bytes that are copied to a program at a time.
const READ: usize = 256 * 1024;

/// How long a writer waits before it looks again whether the sockets of all programs, or of its
/// user, hold less. Nothing wakes it: what is given back has no queue of writers (Linux waits up to
/// 200 ms, `sk_stream_wait_memory` of net/core/stream.c).
const LATER: u64 = 100_000_000;

/// Whether bytes can be queued.
enum Room {
    /// So many.
    Bytes(usize),
    /// When the connection has sent what it has, or has begun.
    Later,
    /// When sockets hold less memory.
    Exhausted,
}

impl State {
    /// Whether bytes can be queued now. `bound` is TCP_NOTSENT_LOWAT.
    ///
    /// # Errors
    /// The pending error; EPIPE.
    fn room(&mut self, bound: usize) -> Result<Room> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        if self.no_send {
            return Err(Errno::EPIPE);
        }
        let Phase::Connected(flow) = &mut self.phase else { return Err(Errno::EPIPE) };
        match flow.connection.state() {
            TcpState::SynSent | TcpState::SynReceived => return Ok(Room::Later),
            TcpState::Established | TcpState::CloseWait => {}
            _ => return Err(Errno::EPIPE),
        }
        if bound != 0 && flow.connection.unsent() >= bound {
            return Ok(Room::Later);
        }
        flow.press();
        if flow.connection.pressure() == Pressure::Exhausted {
            return Ok(Room::Exhausted);
        }
        let room = flow.connection.send_room();
        Ok(if room > 0 { Room::Bytes(room) } else { Room::Later })
    }
}

impl Socket {
    /// Sends bytes. Returns how many; fewer than asked if an error or a signal came after some.
    pub(super) fn send_bytes(
        &self,
        input: &mut Input<'_>,
        message: &OutgoingMessage<'_>,
    ) -> Result<usize> {
        // An address is ignored on a connection (`tcp_sendmsg`).
        if message.flags & FAST_OPEN != 0 {
            // As with `net.ipv4.tcp_fastopen` 0.
            return Err(Errno::EOPNOTSUPP);
        }
        let total = input.remaining();
        let urgent = message.flags & flags::OOB != 0;
        let more = message.flags & flags::MORE != 0;
        let mut sent = 0;
        loop {
            let queued = self.wait_for_room(message.nonblocking).and_then(|room| {
                let length = (total - sent).min(room.max(1)).min(PIECE);
                let payload = Payload::take(input, length)?;
                let last = sent + length == total;
                self.queue(payload, urgent && last, more && last, !last)
            });
            match queued {
                Ok(count) => sent += count,
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            }
            if sent >= total {
                return Ok(sent);
            }
        }
    }

    /// Waits until bytes can be queued; returns how many.
    ///
    /// # Errors
    /// As [`until`], and those of [`State::room`].
    #[inline]
    fn wait_for_room(&self, nonblocking: bool) -> Result<usize> {
        let attempt = || {
            let mut state = self.state.lock();
            Ok(match state.room(self.not_sent.load(Ordering::Relaxed))? {
                Room::Bytes(room) => Attempt::Done(Some(room)),
                Room::Exhausted => Attempt::Done(None),
                Room::Later => Attempt::Wait,
            })
        };
        let mut patience = None;
        loop {
            match until(&self.common, Buffer::Send, nonblocking, &self.writers, attempt)? {
                Some(room) => return Ok(room),
                None if nonblocking => return Err(Errno::EAGAIN),
                None => {
                    let end = || self.common.deadline(Buffer::Send);
                    self.wait_for_memory(*patience.get_or_insert_with(end))?;
                }
            }
        }
    }

    /// Waits until sockets may hold less memory, at most until `end`.
    #[cold]
    fn wait_for_memory(&self, end: Option<u64>) -> Result<()> {
        let later = monotonic_ns() + LATER;
        let again = end.map_or(later, |end| end.min(later));
        match self.writers.wait_interruptible(Some(again), || None::<()>) {
            Err(Woken::Interrupted) if end.is_some() => Err(Errno::EINTR),
            Err(Woken::Interrupted) => Err(Errno::ERESTARTSYS),
            Err(Woken::TimedOut) if again != later => Err(Errno::EAGAIN),
            Err(Woken::TimedOut) | Ok(()) => Ok(()),
        }
    }

    /// Queues bytes and sends what may be sent. `follows`: the call has more of them. Returns how
    /// many were queued.
    fn queue(&self, payload: Payload, urgent: bool, more: bool, follows: bool) -> Result<usize> {
        let length = payload.len();
        let mut after = After::new();
        let queued = {
            let mut state = self.state.lock();
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            let Phase::Connected(flow) = &mut state.phase else { return Err(Errno::EPIPE) };
            flow.press();
            let mut queued = 0;
            for slice in payload.into_slices() {
                let count = slice.len();
                match flow.connection.send(slice) {
                    Ok(()) => queued += count,
                    Err(error) if queued == 0 => return Err(errno(error)),
                    Err(_) => break,
                }
            }
            if urgent && queued == length {
                flow.connection.mark_urgent();
            }
            flow.connection.set_more(more || follows);
            flow.connection.transmit(monotonic_ns(), &mut after.out);
            self.settle(&mut state, &mut after);
            queued
        };
        let to_device = after.leads;
        self.finish(after);
        if to_device && follows {
            // What arrives meanwhile has its turn (Linux: in an interrupt).
            schedule::breathe();
        }
        Ok(queued)
    }

    /// Receives bytes.
    pub(super) fn receive_bytes(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<IncomingMessage> {
        if how & flags::ERRQUEUE != 0 {
            return Err(Errno::EAGAIN);
        }
        if how & flags::OOB != 0 {
            return self.receive_urgent(out, how & flags::PEEK != 0);
        }
        let wanted = out.remaining();
        let peek = how & flags::PEEK != 0;
        let all = how & flags::WAITALL != 0;
        let least = self.common.target(wanted, all);
        let mut done = 0;
        let mut time = None;
        loop {
            let offset = if peek { done } else { 0 };
            let nonblocking = nonblocking || done > 0 && done >= least;
            let attempt = || self.arrived(offset);
            let arrived = until(&self.common, Buffer::Receive, nonblocking, &self.readers, attempt);
            let limit = (wanted - done).min(READ);
            let moved = arrived.and_then(|arrived| match arrived {
                false => Ok(0),
                true => self.copy(out, limit, offset, how, &mut time),
            });
            match moved {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            // Fewer bytes than there was room for: the queue is empty, or the urgent mark is next.
            let drained = moved.unwrap_or(0) < limit;
            if done >= wanted || drained && (done >= least || self.is_at_mark()) {
                break;
            }
        }
        let mut message = IncomingMessage { count: done, full: done, ..IncomingMessage::default() };
        if let Some(time) = time {
            // The bytes are there, with or without memory for their time.
            let told = ControlMessage::report_time(&self.common, time, &mut message.control);
            message.flags |= if told.is_err() { flags::CTRUNC } else { 0 };
        }
        Ok(message)
    }

    fn is_at_mark(&self) -> bool {
        matches!(&self.state.lock().phase, Phase::Connected(flow) if flow.connection.at_mark())
    }

    /// Whether there are bytes behind `offset` (true) or no more will come (false).
    ///
    /// # Errors
    /// The pending error, ENOTCONN.
    fn arrived(&self, offset: usize) -> Result<Attempt<bool>> {
        let mut state = self.state.lock();
        let Phase::Connected(flow) = &state.phase else {
            if let Some(error) = state.error.take() {
                return Err(error);
            }
            return if state.no_receive { Ok(Attempt::Done(false)) } else { Err(Errno::ENOTCONN) };
        };
        let connection = &flow.connection;
        if connection.readable() > offset {
            return Ok(Attempt::Done(true));
        }
        let over = state.no_receive
            || connection.is_peer_closed()
            || matches!(connection.state(), TcpState::Closed | TcpState::TimeWait);
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        Ok(if over { Attempt::Done(false) } else { Attempt::Wait })
    }

    /// Copies up to `limit` bytes from `offset` on to the program; drops them unless it peeks.
    /// `time`: when the last of them came of which that is known.
    fn copy(
        &self,
        out: &mut Output<'_>,
        limit: usize,
        offset: usize,
        how: u32,
        time: &mut Option<u64>,
    ) -> Result<usize> {
        let peek = how & flags::PEEK != 0;
        let _turn = self.reader.lock();
        let mut pieces: Pieces<Slice> = Pieces::new();
        {
            let state = self.state.lock();
            let Phase::Connected(flow) = &state.phase else { return Ok(0) };
            flow.connection.peek(offset, limit, &mut pieces).map_err(errno)?;
        }
        // MSG_TRUNC throws the bytes away (tcp(7)).
        let discard = how & flags::TRUNC != 0;
        let mut copied = 0;
        let mut failed = None;
        for piece in &pieces {
            let length = piece.len();
            let count = if discard {
                Ok(length)
            } else {
                let (memory, at, length) = piece.parts();
                out.put_run(memory, at, length)
            };
            match count {
                Ok(count) => copied += count,
                Err(error) => failed = Some(error),
            }
            if count.unwrap_or(0) < length {
                break;
            }
        }
        if let Some(error) = failed.filter(|_| copied == 0) {
            return Err(error);
        }
        drop(pieces);
        if self.common.keeps_times() {
            *time = self.arrival(offset, copied).or(*time);
        }
        if !peek {
            self.act(|connection, now, out| {
                connection.consume(copied);
                connection.after_read(now, copied, out);
                ((), Events::empty())
            });
        }
        Ok(copied)
    }

    /// When the last of `count` bytes from `offset` on came of which that is known.
    #[cold]
    fn arrival(&self, offset: usize, count: usize) -> Option<u64> {
        let state = self.state.lock();
        let Phase::Connected(flow) = &state.phase else { return None };
        flow.connection.arrival(offset, count)
    }

    /// recv(2) with MSG_OOB.
    fn receive_urgent(&self, out: &mut Output<'_>, peek: bool) -> Result<IncomingMessage> {
        let byte = {
            let mut state = self.state.lock();
            let Phase::Connected(flow) = &mut state.phase else { return Err(Errno::EINVAL) };
            if flow.connection.state() == TcpState::Closed {
                return Err(Errno::EINVAL);
            }
            flow.connection.receive_urgent(peek).map_err(errno)?
        };
        if out.remaining() > 0 && out.put(&[byte])? == 0 {
            return Err(Errno::EFAULT);
        }
        Ok(IncomingMessage { count: 1, full: 1, flags: flags::OOB, ..IncomingMessage::default() })
    }

    /// Returns the events of poll(2) (`tcp_poll`, net/ipv4/tcp.c of Linux 6.1).
    pub(super) fn events(&self) -> poll::Events {
        use poll::Events as E;
        let low_water = self.common.target(usize::MAX, false);
        let state = self.state.lock();
        let mut events = E::empty();
        if state.error.is_some() {
            events |= E::ERR;
        }
        let flow = match &state.phase {
            Phase::Listening(listener) => {
                return if listener.ready() > 0 { E::READABLE } else { E::empty() };
            }
            Phase::Idle => {
                events |= E::HUP | E::WRITABLE;
                if state.no_receive {
                    events |= E::READABLE | E::RDHUP;
                }
                return events;
            }
            Phase::Connected(flow) => flow,
        };
        let connection = &flow.connection;
        let over = matches!(connection.state(), TcpState::Closed | TcpState::TimeWait);
        let no_receive = state.no_receive || connection.is_peer_closed();
        if over || no_receive && state.no_send {
            events |= E::HUP;
        }
        if over || no_receive {
            events |= E::READABLE | E::RDHUP;
        }
        if matches!(connection.state(), TcpState::SynSent | TcpState::SynReceived) {
            return events;
        }
        if connection.readable() >= low_water {
            events |= E::READABLE;
        }
        // At least a third of the buffer is free (`sk_stream_is_writeable`).
        let bound = self.not_sent.load(Ordering::Relaxed);
        let few = bound == 0 || connection.unsent() * 2 < bound;
        let room = few && connection.is_writable();
        if over || state.no_send || room {
            events |= E::WRITABLE;
        }
        if connection.has_urgent() {
            events |= E::PRI;
        }
        events
    }

    /// Whether out-of-band data are read with the rest (SO_OOBINLINE).
    pub(super) fn reads_urgent_inline(&self) -> bool {
        self.common.has(Switches::URGENT_INLINE)
    }

    /// SO_SNDBUF and SO_RCVBUF as the program has set them, 0 if it has not.
    pub(super) fn sizes(&self) -> (usize, usize) {
        let send = self.send_size.load(Ordering::Relaxed);
        (send, self.receive_size.load(Ordering::Relaxed))
    }
}
