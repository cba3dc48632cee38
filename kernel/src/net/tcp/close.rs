//! How a connection ends: shutdown(2), the last close(2), and the reports of the state machine.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinGuard;
use hayate_tcp::{Closing, Events, State as TcpState};

use super::table::{self, ConnectionEntry, Remnant};
use super::{After, KEY, Listener, PORTS, Phase, Socket, State, errno};
use crate::net::config::Network;
use crate::net::statistics::TcpCounter;
use crate::schedule::time::monotonic_ns;
use crate::vfs::socket::Directions;
use crate::vfs::socket_options::Switches;

/// Counts the end of a connection by the state in which it came (`tcp_done`, `tcp_set_state`).
fn count_end(network: &Network, last: TcpState) {
    match last {
        TcpState::SynSent | TcpState::SynReceived => network.count_tcp(TcpCounter::Failed),
        TcpState::Established | TcpState::CloseWait => network.count_tcp(TcpCounter::Broken),
        _ => {}
    }
}

/// Draws a new secret, and ends all connections and what is left of others.
///
/// # Errors
/// `ENOMEM`: some connections go on.
pub fn renew() -> Result<()> {
    *KEY.lock() = None;
    table::for_each(|entry| {
        match entry {
            ConnectionEntry::Socket(socket) => socket.destroy(),
            ConnectionEntry::Remnant(remnant) => remnant.end(),
        }
        Ok(())
    })
}

impl Socket {
    /// The connection is over, or all but TIME-WAIT: takes it out of the tables. The state machine
    /// stays for what can still be read.
    pub(super) fn conclude(&self, state: &mut State, after: &mut After) {
        let Phase::Connected(flow) = &mut state.phase else { return };
        if let Some(error) = flow.connection.error() {
            state.error = Some(errno(error));
        }
        if let Some(parent) = flow.parent.take() {
            // No program has it, and none will.
            state.released = true;
            after.parent = Some((parent, false));
        }
        if !core::mem::take(&mut flow.is_entered) {
            return;
        }
        if !after.events.contains(Events::TIME_WAIT) {
            count_end(self.network(), flow.connection.last_state());
        }
        // An armed timer keeps the memory of the socket until it expires.
        self.timer.cancel();
        self.armed.store(u64::MAX, Ordering::Relaxed);
        let ends = flow.route.ends;
        if after.events.contains(Events::TIME_WAIT)
            && let Some(rest) = flow.connection.time_wait(monotonic_ns())
        {
            let route = Arc::clone(&flow.route);
            self.network().note_trace();
            // The remnant holds the port. One that bind(2) named stays the socket's as well.
            let binding = if state.port_given && !state.released {
                let shared = state.binding;
                shared
                    .filter(|binding| PORTS.share(ends.network, ends.local.port, *binding).is_ok())
            } else {
                state.binding.take()
            };
            Remnant::leave(self.v6, rest, route, binding);
        } else {
            self.leave_ends(&ends);
            self.give_port_back(state);
        }
        (state.no_receive, state.no_send) = (true, true);
        if state.released {
            state.phase = Phase::Idle;
        }
    }

    /// Ends a connection that nobody accepted, without a word to the peer.
    pub(super) fn give_up(&self) {
        self.act(|_, _, _| ((), Events::CLOSED));
    }

    /// Ends the connection at once, with a reset.
    pub(super) fn abort(&self) {
        self.act(|connection, now, out| {
            connection.abort(now, out);
            ((), Events::CLOSED)
        });
    }

    /// Ends the socket from outside (SOCK_DESTROY; `tcp_abort`): the peer gets a reset, and the
    /// program's next call ECONNABORTED. A listener listens no more.
    pub fn destroy(&self) {
        let mut state = self.state.lock();
        state.error = Some(Errno::ECONNABORTED);
        (state.no_receive, state.no_send) = (true, true);
        if let Some(listener) = state.take_listener() {
            self.stop_listening(state, listener);
            self.give_port_back(&mut self.state.lock());
            self.wake(Events::CLOSED);
            return;
        }
        drop(state);
        self.act(|connection, now, out| {
            connection.destroy(now, out);
            ((), Events::CLOSED)
        });
    }

    /// shutdown(2).
    pub(super) fn end_directions(&self, which: Directions) -> Result<()> {
        {
            let mut state = self.state.lock();
            match &state.phase {
                // Only receiving: the socket is bound, but listens no more (`inet_shutdown`).
                Phase::Listening(_) if which.receiving => {
                    let Some(listener) = state.take_listener() else { return Ok(()) };
                    self.stop_listening(state, listener);
                    self.wake(Events::CLOSED);
                    return Ok(());
                }
                Phase::Listening(_) => return Ok(()),
                // It fails, and takes effect all the same (`inet_shutdown`).
                Phase::Idle => {
                    state.no_receive |= which.receiving;
                    state.no_send |= which.sending;
                    drop(state);
                    self.wake(Events::CLOSED);
                    return Err(Errno::ENOTCONN);
                }
                Phase::Connected(flow) => match flow.connection.state() {
                    TcpState::Closed => return Err(Errno::ENOTCONN),
                    // An attempt to connect is given up.
                    TcpState::SynSent => {
                        drop(state);
                        self.abort();
                        return Ok(());
                    }
                    _ => {}
                },
            }
            state.no_receive |= which.receiving;
            state.no_send |= which.sending;
        }
        self.act(|connection, now, out| {
            if which.receiving {
                connection.shutdown_read();
            }
            if which.sending {
                // A second FIN is none; other states were refused above.
                let _ = connection.shutdown_write(now, out);
            }
            ((), Events::empty())
        });
        self.wake(Events::CLOSED);
        Ok(())
    }

    /// Ends a listener: its port is bound as before, its connections that were not accepted end.
    pub(super) fn stop_listening(&self, mut state: SpinGuard<'_, State>, listener: Listener) {
        if let (Some(old), Ok(me)) = (state.binding, self.arc()) {
            let new = hayate_ip::binding::Binding { listens: false, ..old };
            // A binding that listens no more conflicts with fewer others, so only memory can fail;
            // then the socket stays in the table, and refuses what it gets.
            let (network, port) = (self.network().key, state.local.port);
            if PORTS.rebind(network, port, (&old, true), (new, false), &me).is_ok() {
                state.binding = Some(new);
            }
        }
        drop(state);
        for child in listener.into_ready() {
            child.abort();
            child.released();
        }
    }

    /// SO_LINGER: the time in seconds if it is on.
    fn linger(&self) -> Option<u32> {
        let seconds = || self.common.linger.load(Ordering::Relaxed);
        self.common.has(Switches::LINGER).then(seconds)
    }

    /// The open file is gone: the rest of the connection ends by itself.
    pub(super) fn released(&self) {
        let linger = self.linger();
        let mut state = self.state.lock();
        state.released = true;
        if let Some(listener) = state.take_listener() {
            let (binding, port) = (state.binding.take(), state.local.port);
            drop(state);
            let me = self.me.upgrade();
            if let Some(binding) = binding {
                PORTS.unbind(self.network().key, port, &binding, me.as_ref());
            }
            for child in listener.into_ready() {
                child.abort();
                child.released();
            }
            return;
        }
        let Phase::Connected(flow) = &mut state.phase else {
            self.give_port_back(&mut state);
            return;
        };
        let mut after = After::new();
        let now = monotonic_ns();
        let closing = if linger == Some(0) {
            flow.connection.abort(now, &mut after.out);
            Closing::Done
        } else {
            flow.connection.close(now, &mut after.out)
        };
        after.events = match closing {
            Closing::Done => Events::CLOSED,
            Closing::Lingering => Events::empty(),
        };
        let over = !flow.is_entered;
        self.settle(&mut state, &mut after);
        if over {
            // It ended before: the port that bind(2) named is still held.
            state.phase = Phase::Idle;
            self.give_port_back(&mut state);
        }
        drop(state);
        self.finish(after);
    }

    /// The last close(2): with SO_LINGER it waits until everything is acknowledged, the time is
    /// over or a signal comes.
    pub(super) fn close(&self) {
        let deadline = match self.linger() {
            Some(seconds) if seconds > 0 => {
                monotonic_ns().saturating_add(u64::from(seconds) * 1_000_000_000)
            }
            _ => return self.released(),
        };
        self.released();
        let drained = || {
            let state = self.state.lock();
            match &state.phase {
                Phase::Connected(flow) => {
                    let lingering = matches!(
                        flow.connection.state(),
                        TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck
                    );
                    (!lingering).then_some(())
                }
                _ => Some(()),
            }
        };
        // However it ends, the connection goes on by itself.
        let _ = self.writers.wait_interruptible(Some(deadline), drained);
    }
}
