//! Listeners: listen(2), accept(2), and connections that begin.
//!
//! A SYN makes a connection at once, unless too many have begun and not been completed: then it is
//! answered with a SYN cookie and nothing is kept. One is not answered at all while as many
//! connections wait to be accepted as the listener's backlog allows, or as its user may have
//! (`vfs::unaccepted`).

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_ip::SocketAddress;
use hayate_ip::binding::Binding;
use hayate_tcp::{Connection, Events, Flags, SECOND, Segment, cookie};

use super::route::{Ends, Route};
use super::table;
use super::{Flow, Listener, PORTS, Phase, Socket, State, key};
use crate::net::slice::Slice;
use crate::net::statistics::TcpCounter;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::vfs::poll;
use crate::vfs::signal_owner::Band;
use crate::vfs::socket::{Attempt, until};
use crate::vfs::socket_options::{Buffer, Common};
use crate::vfs::unaccepted::Unaccepted;
use crate::vfs::users;

/// How long acknowledgements of cookies are looked for after the last one was sent.
const COOKIE_LIFE: u64 = 120 * SECOND;

impl Socket {
    /// listen(2).
    pub(super) fn begin_listening(&self, backlog: usize) -> Result<()> {
        let me = self.arc()?;
        let user = users::limited(self.user);
        let mut state = self.state.lock();
        match &mut state.phase {
            Phase::Listening(listener) => {
                listener.backlog = backlog;
                return Ok(());
            }
            Phase::Connected(_) => return Err(Errno::EINVAL),
            Phase::Idle => {}
        }
        self.bind_automatically(&mut state)?;
        let port = state.local.port;
        let old = state.binding.ok_or(Errno::EINVAL)?;
        let new = self.binding(old.address, true);
        PORTS.rebind(self.network().key, port, (&old, false), (new, true), &me)?;
        state.binding = Some(new);
        state.phase = Phase::Listening(Listener {
            backlog,
            ready: VecDeque::new(),
            begun: 0,
            cookie_sent: None,
            user,
        });
        state.no_receive = false;
        state.no_send = false;
        Ok(())
    }

    /// accept(2): returns a connection and the address of its peer.
    pub(super) fn accept_one(&self, nonblocking: bool) -> Result<(Arc<Socket>, SocketAddress)> {
        let attempt = || {
            let mut state = self.state.lock();
            let Phase::Listening(listener) = &mut state.phase else { return Err(Errno::EINVAL) };
            Ok(listener.ready.pop_front().map_or(Attempt::Wait, Attempt::Done))
        };
        let child = until(&self.common, Buffer::Receive, nonblocking, &self.readers, attempt)?;
        let remote =
            child.accepted().unwrap_or(SocketAddress::new(self.state.lock().local.address, 0));
        Ok((child, remote))
    }

    /// Handles a segment for a listener that belongs to no connection. Returns `false` if it has to
    /// be refused.
    pub(super) fn on_stranger(
        self: &Arc<Socket>,
        ends: Ends,
        segment: Segment<Slice>,
        first: Option<hayate_tcp::Seq>,
    ) -> bool {
        if segment.flags.contains(Flags::RST) {
            return true;
        }
        if segment.ack.is_some() {
            return self.on_cookie(ends, segment);
        }
        if !segment.flags.contains(Flags::SYN) {
            return true;
        }
        let (is_begun, unaccepted) = {
            let mut state = self.state.lock();
            let Phase::Listening(listener) = &mut state.phase else { return false };
            let unaccepted = listener.count_waiting().filter(|_| !listener.is_full());
            let Some(unaccepted) = unaccepted else {
                self.network().count_tcp(TcpCounter::Overflows);
                self.network().count_tcp(TcpCounter::NotTaken);
                return true;
            };
            let most_begun = self.network().settings.most_begun();
            let begins = listener.begun < listener.backlog.clamp(8, most_begun.max(8));
            if begins {
                listener.begun += 1;
            } else {
                listener.cookie_sent = Some(monotonic_ns());
            }
            (begins, unaccepted)
        };
        let marks = self.marks(ends.remote.address);
        let interface = self.level.interface();
        let Ok(route) = Route::find(self.network(), ends, interface, marks) else {
            if is_begun {
                self.count_begun(false);
            }
            self.network().count_tcp(TcpCounter::NotTaken);
            return true;
        };
        let mut config = self.config(&route);
        config.timestamp_offset = key().timestamp_offset(&ends.tuple()[..32]);
        let now = monotonic_ns();
        if !is_begun {
            let v6 = !ends.local.address.is_v4();
            self.network().count_tcp(TcpCounter::CookiesSent);
            route.send(cookie::answer(&key(), now, &ends.tuple(), v6, &config, &segment));
            return true;
        }
        let first = first.unwrap_or_else(|| key().isn(now, &ends.tuple()));
        let connection = || Connection::accept(now, &config, first, &segment);
        let Ok(child) = self.make_child(ends, route, unaccepted, connection) else {
            self.count_begun(false);
            self.network().count_tcp(TcpCounter::NotTaken);
            return true;
        };
        child.act(|connection, now, out| {
            connection.transmit(now, out);
            ((), Events::empty())
        });
        true
    }

    /// Handles an acknowledgement that may be of a cookie.
    fn on_cookie(self: &Arc<Socket>, ends: Ends, segment: Segment<Slice>) -> bool {
        let now = monotonic_ns();
        let unaccepted = {
            let mut state = self.state.lock();
            let Phase::Listening(listener) = &mut state.phase else { return false };
            // Another processor may have sent one since `now`.
            let age = |sent| now.saturating_sub(sent);
            let recent = listener.cookie_sent.is_some_and(|sent| age(sent) < COOKIE_LIFE);
            if !recent {
                return false;
            }
            let unaccepted = listener.count_waiting().filter(|_| !listener.is_full());
            let Some(unaccepted) = unaccepted else {
                self.network().count_tcp(TcpCounter::Overflows);
                self.network().count_tcp(TcpCounter::NotTaken);
                return true;
            };
            listener.begun += 1;
            unaccepted
        };
        let marks = self.marks(ends.remote.address);
        let route = Route::find(self.network(), ends, self.level.interface(), marks);
        let child = route.ok().and_then(|route| {
            let mut config = self.config(&route);
            config.timestamp_offset = key().timestamp_offset(&ends.tuple()[..32]);
            let v6 = !ends.local.address.is_v4();
            let checked = cookie::check(&key(), now, &ends.tuple(), v6, &config, &segment);
            let is_right = checked.is_some();
            self.network().count_tcp(match is_right {
                true => TcpCounter::CookiesTaken,
                false => TcpCounter::CookiesWrong,
            });
            let accepted = checked?;
            let connection = || Connection::resume(now, &config, &accepted, &segment);
            self.make_child(ends, route, unaccepted, connection).ok()
        });
        let Some(child) = child else {
            self.count_begun(false);
            return false;
        };
        child.act(|connection, now, out| {
            ((), connection.on_segment(now, segment, out) | Events::CONNECTED)
        });
        true
    }

    /// Makes the socket of a connection that begins.
    ///
    /// # Errors
    /// `ENOMEM`.
    // Not part of its callers, as `Flow::new` is not of this.
    #[inline(never)]
    fn make_child(
        self: &Arc<Socket>,
        ends: Ends,
        route: Arc<Route>,
        unaccepted: Unaccepted,
        connection: impl FnOnce() -> Connection<Slice>,
    ) -> Result<Arc<Socket>> {
        let child = Socket::make(self.v6, self.user, Common::of(self.network()));
        child.inherit(self);
        let binding = Binding { listens: false, ..self.state.lock().binding.ok_or(Errno::EINVAL)? };
        PORTS.share(ends.network, ends.local.port, binding)?;
        {
            let mut state = child.state.lock();
            state.local = ends.local;
            state.binding = Some(binding);
            state.address_given = true;
            state.port_given = true;
            let parent = Some(Arc::clone(self));
            let mut flow = Flow::new(connection, route, parent, self.user);
            flow.unaccepted = Some(unaccepted);
            state.phase = Phase::Connected(flow);
        }
        if let Err(error) = table::enter(ends, &child) {
            PORTS.unbind(ends.network, ends.local.port, &binding, None);
            return Err(error);
        }
        Ok(child)
    }

    /// One connection less has begun; `ready`: it is established.
    fn count_begun(&self, ready: bool) {
        if let Phase::Listening(listener) = &mut self.state.lock().phase {
            listener.begun = listener.begun.saturating_sub(1);
        }
        if ready {
            self.readers.wake_events(poll::Events::READABLE.bits());
            self.signals.tell(Band::In);
        }
    }

    /// Tells the listener of this connection that it is established, or that it failed before.
    pub(super) fn report_to(&self, parent: &Socket, established: bool) {
        if !established {
            parent.count_begun(false);
            return;
        }
        let Ok(me) = self.arc() else { return };
        let taken = match &mut parent.state.lock().phase {
            Phase::Listening(listener) => {
                let taken = listener.ready.make_room(1).is_ok();
                if taken {
                    listener.ready.push_back(me);
                }
                taken
            }
            _ => false,
        };
        parent.count_begun(taken);
        if !taken {
            // The listener is closed, or there is no memory: the peer learns it by a reset.
            self.abort();
            self.released();
        }
    }

    /// The connection is accepted. Returns its peer.
    fn accepted(&self) -> Option<SocketAddress> {
        match &mut self.state.lock().phase {
            Phase::Connected(flow) => {
                flow.unaccepted = None;
                Some(flow.route.ends.remote)
            }
            _ => None,
        }
    }
}

impl State {
    /// Takes the listener out.
    pub(super) fn take_listener(&mut self) -> Option<Listener> {
        match core::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Listening(listener) => Some(listener),
            other => {
                self.phase = other;
                None
            }
        }
    }
}
