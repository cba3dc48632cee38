//! A program writes and reads bytes.

use super::Connection;
use crate::receive::{Due, Mark};
use crate::{Bytes, Error, Nanos, Pieces, Pressure, Sink, State};

impl<B: Bytes> Connection<B> {
    /// Bytes that the send buffer still takes. A program may write while this is not zero; the last
    /// piece may exceed it.
    #[inline]
    pub fn send_room(&self) -> usize {
        self.send.room()
    }

    /// Whether at least a third of the send buffer is free (Linux: `sk_stream_is_writeable`).
    pub fn is_writable(&self) -> bool {
        self.send.room() * 3 >= self.send.bound()
    }

    /// Bytes of memory that the queues hold, if each piece pins at least `least`.
    #[inline]
    pub fn memory(&self, least: usize) -> usize {
        let receive = &self.receive;
        self.send.queue.pinned(least) + receive.queue.pinned(least) + receive.holes.cost()
    }

    /// The same of the bytes that came and of those that are to be sent.
    pub fn memory_parts(&self, least: usize) -> (usize, usize) {
        let receive = &self.receive;
        let came = receive.queue.pinned(least) + receive.holes.cost();
        (came, self.send.queue.pinned(least))
    }

    /// Says how scarce the memory of all connections is. Returns true if that bounded the send
    /// buffer until now: there may be a writer that waits.
    #[inline]
    pub fn set_pressure(&mut self, pressure: Pressure) -> bool {
        if self.send.pressure == pressure {
            return false;
        }
        (self.send.pressure, self.receive.pressure) = (pressure, pressure);
        pressure == Pressure::None
    }

    /// The pressure that was set.
    #[inline]
    pub fn pressure(&self) -> Pressure {
        self.send.pressure
    }

    /// Bytes that wait or are not acknowledged (SIOCOUTQ).
    pub fn unacknowledged(&self) -> usize {
        self.send.queue.len()
    }

    /// Bytes that were never sent (SIOCOUTQNSD).
    pub fn unsent(&self) -> usize {
        self.send.queue.end().saturating_sub(self.send.next) as usize
    }

    /// Appends a piece to what is to be sent; [`Connection::transmit`] then sends. The caller minds
    /// [`Connection::send_room`], so that a write is not cut by a limit that this call found.
    ///
    /// # Errors
    ///
    /// `Pipe` when this side is closed, `NotConnected` before a connection, `NoMemory`. Before the
    /// handshake is done, data are kept for its end.
    #[inline]
    pub fn send(&mut self, piece: B) -> Result<(), Error> {
        match self.state {
            State::Established | State::CloseWait if !self.send.fin => {}
            State::SynSent | State::SynReceived if !self.send.fin => {}
            _ => return Err(Error::Pipe),
        }
        if self.send.sent.is_empty() || self.send.queue.end() > self.send.next {
            return self.send.queue.push_joined(piece);
        }
        self.send.queue.push(piece)
    }

    /// MSG_OOB: the last byte that was given to [`Connection::send`] is urgent. Call it before
    /// [`Connection::transmit`].
    pub fn mark_urgent(&mut self) {
        if !self.send.queue.is_empty() {
            self.send.urgent = Some(self.send.queue.end());
        }
    }

    /// Bytes that can be read, up to the urgent mark (SIOCINQ).
    #[inline]
    pub fn available(&self) -> usize {
        self.receive.available()
    }

    /// Bytes that one read can return: those before the urgent mark, or behind it if it is next.
    #[inline]
    pub fn readable(&self) -> usize {
        let queue = &self.receive.queue;
        let (from, to) = self.receive.stretch(queue.start(), queue.len());
        (to - from) as usize
    }

    /// True when the peer has closed and everything was read, or the program reads no more: a read
    /// returns 0.
    pub fn at_end(&self) -> bool {
        self.receive.queue.is_empty()
            && (self.receive.shut || self.is_peer_closed() || self.state == State::Closed)
    }

    /// The peer's FIN came.
    pub fn is_peer_closed(&self) -> bool {
        self.receive.fin.is_some_and(|fin| fin < self.receive.next)
    }

    /// Takes up to `limit` bytes out of the receive queue, as pieces behind those of `into`, and
    /// returns how many. It stops before the urgent mark, and skips the urgent byte if that is not
    /// inline. [`Connection::after_read`] must follow.
    ///
    /// # Errors
    ///
    /// `NoMemory`; the pieces taken until then are in `into`.
    #[inline]
    pub fn take(&mut self, limit: usize, into: &mut Pieces<B>) -> Result<usize, Error> {
        let receive = &mut self.receive;
        let (from, to) = receive.stretch(receive.queue.start(), limit);
        receive.queue.advance(from);
        let result = receive.queue.take(to, into);
        receive.pass_mark();
        result.map(|()| (to - from) as usize)
    }

    /// Like [`Connection::take`], from `offset` on, and leaves the bytes in the queue (MSG_PEEK, or
    /// before a copy to memory that may fail). The offset counts bytes that a read returns.
    ///
    /// # Errors
    ///
    /// `NoMemory`.
    pub fn peek(&self, offset: usize, limit: usize, into: &mut Pieces<B>) -> Result<usize, Error> {
        let receive = &self.receive;
        let mut start = receive.queue.start();
        if offset > 0 {
            let (from, to) = receive.stretch(start, offset);
            if to - from < offset as u64 {
                return Ok(0);
            }
            start = to;
        }
        let (from, to) = receive.stretch(start, limit);
        receive.queue.range(from, to, into)?;
        Ok((to - from) as usize)
    }

    /// When the last of `count` bytes came that a read from `offset` on returns and of which that
    /// is known ([`Connection::on_segment_at`]).
    pub fn arrival(&self, offset: usize, count: usize) -> Option<u64> {
        let receive = &self.receive;
        let mut start = receive.queue.start();
        if offset > 0 {
            (_, start) = receive.stretch(start, offset);
        }
        let (from, to) = receive.stretch(start, count);
        self.arrivals.of(from, to)
    }

    /// Drops `count` bytes that were peeked at. [`Connection::after_read`] must follow.
    pub fn consume(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let receive = &mut self.receive;
        let (_, to) = receive.stretch(receive.queue.start(), count);
        receive.queue.advance(to);
        receive.pass_mark();
    }

    /// A program has read `count` bytes: tells the peer about the window where that matters, and
    /// lets the buffer grow (Linux: `tcp_cleanup_rbuf`, `tcp_rcv_space_adjust`).
    #[inline]
    pub fn after_read(&mut self, now: Nanos, count: usize, out: &mut impl Sink<B>) {
        if count == 0 || self.state == State::Closed {
            return;
        }
        let smoothed = self.rtt.smoothed;
        let receive = &mut self.receive;
        receive.adjust(now, count as u64, smoothed);
        let empty = receive.queue.is_empty();
        let acknowledge = receive.due == Due::Delayed
            && (receive.next - receive.acked > u64::from(receive.segment)
                || empty && receive.pushed && !receive.interactive);
        if empty {
            receive.pushed = false;
        }
        let open = !self.receive.shut && !self.is_peer_closed();
        if acknowledge || open && (self.receive.window_has_doubled() || self.receive.recovered()) {
            if acknowledge {
                self.receive.due = Due::Now;
            }
            self.send_ack(now, out);
        }
    }

    /// recv(2) with MSG_OOB: the urgent byte; `peek` leaves it.
    ///
    /// # Errors
    ///
    /// `Invalid` when there is none, it was read or stands in line; `Again` when it has not come.
    pub fn receive_urgent(&mut self, peek: bool) -> Result<u8, Error> {
        if self.receive.inline {
            return Err(Error::Invalid);
        }
        match self.receive.mark {
            Mark::None | Mark::Read => Err(Error::Invalid),
            Mark::Awaited => Err(Error::Again),
            Mark::Byte(byte) => {
                if !peek {
                    self.receive.mark = Mark::Read;
                }
                Ok(byte)
            }
        }
    }

    /// An urgent byte can be read (POLLPRI).
    pub fn has_urgent(&self) -> bool {
        matches!(self.receive.mark, Mark::Byte(_))
    }

    /// The next byte to read is the urgent one (SIOCATMARK).
    pub fn at_mark(&self) -> bool {
        self.receive.mark != Mark::None && self.receive.mark_at == self.receive.queue.start()
    }
}
