//! The names of a stream socket: bind(2), connect(2), and the connect(2) that dissolves a
//! connection.

use hayate_abi::{Errno, Result};
use hayate_ip::binding::Binding;
use hayate_ip::socket_address::{INET, Refused, UNSPECIFIED};
use hayate_ip::{Address, SocketAddress};
use hayate_tcp::{Connection, State as TcpState};

use super::route::{Ends, Route};
use super::table;
use super::{After, Flow, PORTS, Phase, Socket, State, key};
use crate::credentials::Capability;
use crate::net::ip_options::Wishes;
use crate::net::statistics::TcpCounter;
use crate::schedule::time::monotonic_ns;
use crate::vfs::caller;
use crate::vfs::socket::{Attempt, until};
use crate::vfs::socket_options::{Buffer, Switches};

impl Socket {
    /// Describes how the socket is bound to an address.
    pub(super) fn binding(&self, address: Address, listens: bool) -> Binding {
        Binding {
            address,
            only_v6: self.options.lock().wishes.contains(Wishes::ONLY_V6),
            interface: self.level.interface(),
            reuse_address: self.common.has(Switches::REUSE_ADDRESS),
            reuse_port: self.level.shares_port(),
            automatic: false,
            user: self.user,
            listens,
        }
    }

    /// Tells the table of ports of options that were set since the socket was bound.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn binding_changed(&self) -> Result<()> {
        let me = self.arc()?;
        let mut state = self.state.lock();
        let Some(old) = state.binding else { return Ok(()) };
        let now = self.binding(old.address, old.listens);
        let new = Binding { only_v6: old.only_v6, automatic: old.automatic, ..now };
        if new != old {
            let (network, port) = (self.network().key, state.local.port);
            PORTS.change(network, port, &old, new, old.listens.then_some(&me))?;
            state.binding = Some(new);
        }
        Ok(())
    }

    /// bind(2).
    pub(super) fn bind_to(&self, bytes: &[u8]) -> Result<()> {
        let wanted = self.parse_local(bytes)?;
        let wishes = self.options.lock().wishes;
        if self.v6 && wanted.address.is_v4() && wishes.contains(Wishes::ONLY_V6) {
            return Err(Errno::EINVAL);
        }
        // No stream has a group of receivers (`__inet6_bind`).
        if !wanted.address.is_v4() && wanted.address.is_multicast() {
            return Err(Errno::EINVAL);
        }
        self.level.bind_on_link(self.network(), wanted, |wanted| {
            let network = self.network();
            let known = wanted.address.is_any() || network.current().takes(wanted);
            if !known && !wishes.may_bind_foreign() {
                return Err(Errno::EADDRNOTAVAIL);
            }
            if network.settings.is_privileged(wanted.port) {
                caller::require_in(&network.owner, Capability::NetBindService)
                    .map_err(|_| Errno::EACCES)?;
            }
            self.take_name(wanted, wishes)
        })
    }

    /// Binds the socket to a name that it may have.
    fn take_name(&self, wanted: SocketAddress, wishes: Wishes) -> Result<()> {
        let mut state = self.state.lock();
        if state.local.port != 0 || !matches!(state.phase, Phase::Idle) {
            return Err(Errno::EINVAL);
        }
        if wanted.port == 0 && wishes.contains(Wishes::BIND_NO_PORT) {
            // connect(2) or listen(2) chooses the port.
            state.local = wanted;
        } else {
            self.enter_port(&mut state, wanted)?;
        }
        state.address_given = !wanted.address.is_any();
        state.port_given = wanted.port != 0;
        Ok(())
    }

    fn parse_local(&self, bytes: &[u8]) -> Result<SocketAddress> {
        match SocketAddress::parse(bytes, self.v6) {
            Ok(address) => Ok(address),
            Err(Refused::Short) => Err(Errno::EINVAL),
            // `__inet_bind` takes AF_UNSPEC with the wildcard address, for old programs.
            Err(Refused::Family(UNSPECIFIED)) if !self.v6 => {
                let mut named = [0; 16];
                named.copy_from_slice(&bytes[..16]);
                named[..2].copy_from_slice(&INET.to_ne_bytes());
                match SocketAddress::parse(&named, false) {
                    Ok(address) if address.address.is_any() => Ok(address),
                    _ => Err(Errno::EAFNOSUPPORT),
                }
            }
            Err(Refused::Family(_)) => Err(Errno::EAFNOSUPPORT),
        }
    }

    fn enter_port(&self, state: &mut State, wanted: SocketAddress) -> Result<()> {
        let binding = self.binding(wanted.address, false);
        let network = self.network();
        let port = if wanted.port == 0 {
            PORTS.bind_any(network.key, network.settings.port_range(), binding, None)?
        } else {
            PORTS.bind(network.key, wanted.port, binding, None)?;
            wanted.port
        };
        state.local = SocketAddress { port, ..wanted };
        state.binding = Some(binding);
        Ok(())
    }

    /// Binds the socket to a free port if it has none: `EADDRINUSE`.
    pub(super) fn bind_automatically(&self, state: &mut State) -> Result<()> {
        if state.local.port != 0 {
            return Ok(());
        }
        let local = SocketAddress { port: 0, ..state.local };
        self.enter_port(state, local)
    }

    /// connect(2).
    pub(super) fn connect_to(&self, bytes: &[u8], nonblocking: bool) -> Result<()> {
        let family = SocketAddress::family(bytes).ok_or(Errno::EINVAL)?;
        if family == UNSPECIFIED {
            return self.disconnect();
        }
        let mut begun = false;
        let after = {
            let mut state = self.state.lock();
            match &state.phase {
                Phase::Listening(_) => return Err(Errno::EISCONN),
                Phase::Connected(_) if !state.connecting => return Err(Errno::EISCONN),
                Phase::Connected(_) => None,
                Phase::Idle if state.connecting => None,
                Phase::Idle => {
                    let to = self.parse_remote(bytes)?;
                    begun = true;
                    Some(self.begin(&mut state, to)?)
                }
            }
        };
        if let Some(after) = after {
            self.finish(after);
        }
        if begun && nonblocking {
            return Err(Errno::EINPROGRESS);
        }
        let attempt = || self.connected();
        match until(&self.common, Buffer::Send, nonblocking, &self.writers, attempt) {
            // A call that does not wait learns how it ended from the next one, even if the
            // connection is there already.
            Err(Errno::EAGAIN) if !begun => Err(Errno::EALREADY),
            Err(Errno::EAGAIN) => Err(Errno::EINPROGRESS),
            outcome => outcome,
        }
    }

    /// Whether the connection that began is established.
    ///
    /// # Errors
    /// The error with which it failed.
    fn connected(&self) -> Result<Attempt<()>> {
        let mut state = self.state.lock();
        if let Phase::Connected(flow) = &state.phase {
            match flow.connection.state() {
                TcpState::SynSent | TcpState::SynReceived => return Ok(Attempt::Wait),
                TcpState::Closed => {}
                _ => {
                    state.connecting = false;
                    return Ok(Attempt::Done(()));
                }
            }
        }
        state.connecting = false;
        state.phase = Phase::Idle;
        Err(state.error.take().unwrap_or(Errno::ECONNABORTED))
    }

    fn parse_remote(&self, bytes: &[u8]) -> Result<SocketAddress> {
        // An IPv6 socket takes no `struct sockaddr_in` here (`tcp_v6_connect`).
        let mut to = SocketAddress::parse(bytes, self.v6).map_err(|refused| match refused {
            Refused::Short => Errno::EINVAL,
            Refused::Family(_) => Errno::EAFNOSUPPORT,
        })?;
        // A connection to the wildcard address is one to this machine.
        match to.address {
            Address::ANY_V4 => to.address = Address::LOOPBACK_V4,
            Address::ANY_V6 => to.address = Address::LOOPBACK_V6,
            _ => {}
        }
        // An address of the link says nothing without the link (RFC 4007, 6).
        let scoped = to.scope != 0 || self.level.interface() != 0;
        if !to.address.is_v4() && to.address.is_link_local() && !scoped {
            return Err(Errno::EINVAL);
        }
        let only_v6 = self.options.lock().wishes.contains(Wishes::ONLY_V6);
        if self.v6 && to.address.is_v4() && only_v6 {
            return Err(Errno::ENETUNREACH);
        }
        if to.address.is_multicast() || self.network().current().is_broadcast(to.address) {
            return Err(Errno::ENETUNREACH);
        }
        Ok(to)
    }

    /// Begins a connection: chooses the local name, enters it, and makes the SYN.
    // Not part of its caller, as `Flow::new` is not of this.
    #[inline(never)]
    fn begin(&self, state: &mut State, remote: SocketAddress) -> Result<After> {
        let interface = match self.level.interface() {
            0 if remote.address.is_link_local() => remote.scope,
            interface => interface,
        };
        let network = self.network();
        let path = network.current().path(remote.address, interface)?;
        if self.common.has(Switches::ON_LINK) {
            path.check_link(remote.address)?;
        }
        let address = match state.local.address {
            any if any.is_any() => path.source,
            own if own.is_v4() != remote.address.is_v4() => return Err(Errno::ENETUNREACH),
            own => own,
        };
        self.options.lock().wishes.check_source(network, address)?;
        let plain = |address, port| SocketAddress::new(address, port);
        let remote = plain(remote.address, remote.port);
        let local = plain(address, state.local.port);
        let ends = Ends { network: network.key, local, remote };
        let ends = self.enter_ends(state, ends)?;
        let route = match Route::find(network, ends, interface, self.marks(remote.address)) {
            Ok(route) => route,
            Err(error) => {
                self.leave_ends(&ends);
                self.give_port_back(state);
                return Err(error);
            }
        };
        let mut config = self.config(&route);
        config.timestamp_offset = key().timestamp_offset(&ends.tuple()[..32]);
        let now = monotonic_ns();
        let connection = || Connection::connect(now, &config, key().isn(now, &ends.tuple()));
        let mut flow = Flow::new(connection, route, None, self.user);
        let mut after = After::new();
        flow.connection.transmit(now, &mut after.out);
        state.local = ends.local;
        state.error = None;
        (state.no_receive, state.no_send) = (false, false);
        state.connecting = true;
        network.count_tcp(TcpCounter::Called);
        state.phase = Phase::Connected(flow);
        self.settle(state, &mut after);
        Ok(after)
    }

    /// Enters the name of a connection. A socket without a port gets one with which the name is
    /// free: `EADDRNOTAVAIL` if there is none.
    fn enter_ends(&self, state: &mut State, ends: Ends) -> Result<Ends> {
        let me = self.arc()?;
        if ends.local.port != 0 {
            super::input::make_way(&ends);
            table::enter(ends, &me).map_err(|error| match error {
                Errno::EADDRINUSE => Errno::EADDRNOTAVAIL,
                other => other,
            })?;
            return Ok(ends);
        }
        let binding = Binding { automatic: true, ..self.binding(ends.local.address, false) };
        let range = self.network().settings.port_range();
        let named = |port| Ends { local: SocketAddress { port, ..ends.local }, ..ends };
        let port = PORTS.bind_with(ends.network, range, binding, |port| {
            match table::enter(named(port), &me) {
                Ok(()) => Ok(true),
                Err(Errno::EADDRINUSE) => Ok(false),
                Err(error) => Err(error),
            }
        })?;
        // Both at once: the port is given back by its number.
        (state.binding, state.local.port) = (Some(binding), port);
        Ok(named(port))
    }

    /// Takes the connection's name out of the table.
    pub(super) fn leave_ends(&self, ends: &Ends) {
        let removed = table::remove(ends, |entry| self.is(entry));
        drop(removed);
    }

    fn is(&self, entry: &table::ConnectionEntry) -> bool {
        matches!(entry, table::ConnectionEntry::Socket(other) if core::ptr::eq(&raw const **other, self))
    }

    /// Gives the port back that the kernel chose for a connection; one that bind(2) named stays
    /// (`tcp_set_state`).
    pub(super) fn give_port_back(&self, state: &mut State) {
        if state.port_given && !state.released {
            return;
        }
        if let Some(binding) = state.binding.take() {
            // It may have stopped to listen when there was no memory to tell the table.
            let found = if binding.listens { self.me.upgrade() } else { None };
            PORTS.unbind(self.network().key, state.local.port, &binding, found.as_ref());
            if !state.released {
                state.local.port = 0;
                if !state.address_given {
                    state.local.address = state.local.address.wildcard();
                }
            }
        }
    }

    /// connect(2) with AF_UNSPEC: ends the connection at once (`tcp_disconnect`).
    fn disconnect(&self) -> Result<()> {
        let was_connected = {
            let state = self.state.lock();
            let over = |flow: &Flow| flow.connection.state() == TcpState::Closed;
            matches!(&state.phase, Phase::Connected(flow) if !over(flow))
        };
        self.abort();
        let mut state = self.state.lock();
        if let Some(listener) = state.take_listener() {
            self.stop_listening(state, listener);
            return Ok(());
        }
        state.phase = Phase::Idle;
        state.connecting = false;
        // The socket's own reader learns it as well.
        state.error = was_connected.then_some(Errno::ECONNRESET);
        (state.no_receive, state.no_send) = (false, false);
        self.give_port_back(&mut state);
        Ok(())
    }
}
