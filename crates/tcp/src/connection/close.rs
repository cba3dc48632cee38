//! How a connection ends.

use super::Connection;
use crate::timers::{NEVER, Timers};
use crate::{Bytes, Error, Events, Nanos, Sink, State, TimeWait};

/// The part that the caller keeps after [`Connection::close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Nothing: the connection is over.
    Done,
    /// The connection, without a program, until [`Events::CLOSED`] or [`Events::TIME_WAIT`].
    Lingering,
}

impl<B: Bytes> Connection<B> {
    /// shutdown(2) with SHUT_WR: a FIN follows what is queued.
    ///
    /// # Errors
    ///
    /// `NotConnected` when there is no connection. A second call does nothing.
    pub fn shutdown_write(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Result<(), Error> {
        match self.state {
            State::Established | State::SynReceived => self.state_after_fin(State::FinWait1),
            State::CloseWait => self.state_after_fin(State::LastAck),
            State::Closed | State::SynSent => return Err(Error::NotConnected),
            _ => return Ok(()),
        }
        self.transmit(now, out);
        Ok(())
    }

    fn state_after_fin(&mut self, state: State) {
        self.send.fin = true;
        self.send.more = false;
        // In SYN-RECEIVED the FIN waits for the handshake.
        if self.state != State::SynReceived {
            self.state = state;
        }
    }

    /// shutdown(2) with SHUT_RD: [`Connection::at_end`] is true once what has come was read. As on
    /// Linux, the peer learns nothing and may go on.
    pub fn shutdown_read(&mut self) {
        self.receive.shut = true;
    }

    /// The last close(2). If data were not read, the peer learns by a reset that they are lost (RFC
    /// 2525, 2.17; Linux: `__tcp_close`). SO_LINGER: with time 0 the caller calls
    /// [`Connection::abort`]; else it waits for [`Events::DRAINED`].
    pub fn close(&mut self, now: Nanos, out: &mut impl Sink<B>) -> Closing {
        self.orphan = true;
        self.receive.shut = true;
        let lost = !self.receive.queue.is_empty();
        match self.state {
            State::Closed | State::TimeWait => return Closing::Done,
            State::SynSent => {
                self.finish_quietly();
                return Closing::Done;
            }
            _ if lost => {
                self.abort(now, out);
                return Closing::Done;
            }
            State::FinWait2 => self.start_linger(now),
            _ => {}
        }
        let _ = self.shutdown_write(now, out);
        if self.state == State::Closed { Closing::Done } else { Closing::Lingering }
    }

    /// Ends the connection at once, with a reset if the peer must know (RFC 9293, 3.10.5).
    pub fn abort(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        self.receive.queue.clear();
        self.destroy(now, out);
    }

    /// The same from outside: the program may still read what came (Linux: `tcp_abort`).
    pub fn destroy(&mut self, now: Nanos, out: &mut impl Sink<B>) {
        let tell = match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => true,
            State::CloseWait | State::SynReceived => true,
            State::Closing | State::LastAck => self.send.unsent(),
            _ => false,
        };
        if tell {
            self.send_reset(now, out);
        }
        self.finish_quietly();
    }

    /// The state is CLOSED, and only data that the program may still read are kept.
    pub(super) fn finish_quietly(&mut self) -> Events {
        if self.state != State::Closed {
            self.last_state = self.state;
        }
        self.state = State::Closed;
        self.timers = Timers::new();
        self.send.sent.clear();
        self.send.queue.clear();
        self.receive.holes.clear();
        Events::CLOSED
    }

    /// The state that the connection was in before it was CLOSED.
    pub fn last_state(&self) -> State {
        self.last_state
    }

    /// The connection failed.
    pub(super) fn fail(&mut self, error: Error) -> Events {
        self.error = Some(error);
        self.finish_quietly() | Events::FAILED | Events::READABLE | Events::WRITABLE
    }

    /// FIN-WAIT-2 without a program does not last.
    pub(super) fn start_linger(&mut self, now: Nanos) {
        if self.orphan && self.state == State::FinWait2 {
            self.timers.linger = now.saturating_add(self.limits.fin_timeout).min(NEVER - 1);
        }
    }

    /// The remnant of a connection in TIME-WAIT; `None` in another state. Data that have not been
    /// read stay in the connection.
    pub fn time_wait(&self, now: Nanos) -> Option<TimeWait> {
        (self.state == State::TimeWait).then(|| TimeWait::new(now, self))
    }
}
