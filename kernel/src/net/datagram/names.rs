//! The names of a datagram socket: bind(2), connect(2), getsockname(2), getpeername(2).

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::binding::Binding;
use hayate_ip::socket_address::{INET, Refused, UNSPECIFIED};
use hayate_ip::{Address, SocketAddress};

use super::{Protocol, Setup, Socket};
use crate::credentials::Capability;
use crate::net::config::Path;
use crate::net::ip_options::Wishes;
use crate::vfs::caller;
use crate::vfs::poll::Events;
use crate::vfs::socket_options::Switches;

/// Reads the address that a program gives a socket to send to: EINVAL, EAFNOSUPPORT. An IPv6 socket
/// takes an IPv4 address as well (`udpv6_sendmsg`); an IPv4 socket takes AF_UNSPEC for AF_INET
/// (`udp_sendmsg`).
pub(super) fn destination(bytes: &[u8], v6: bool) -> Result<SocketAddress> {
    let family = SocketAddress::family(bytes).ok_or(Errno::EINVAL)?;
    let read = match (v6, family) {
        (true, INET) => SocketAddress::parse(bytes, false),
        (false, UNSPECIFIED) => {
            let mut named = [0; 16];
            let length = bytes.len().min(16);
            named[..length].copy_from_slice(&bytes[..length]);
            named[..2].copy_from_slice(&INET.to_ne_bytes());
            SocketAddress::parse(&named[..length], false)
        }
        _ => SocketAddress::parse(bytes, v6),
    };
    read.map_err(|refused| match refused {
        Refused::Short => Errno::EINVAL,
        Refused::Family(_) => Errno::EAFNOSUPPORT,
    })
}

impl Socket {
    /// Describes how the socket is bound to an address.
    fn binding(&self, address: Address) -> Binding {
        Binding {
            address,
            only_v6: self.options.lock().wishes.contains(Wishes::ONLY_V6),
            interface: self.level.interface(),
            reuse_address: self.common.has(Switches::REUSE_ADDRESS),
            reuse_port: self.level.shares_port(),
            automatic: false,
            user: self.user,
            listens: false,
        }
    }

    /// bind(2).
    pub(super) fn bind_to(&self, bytes: &[u8]) -> Result<()> {
        let wanted = self.parse_local(bytes)?;
        let wishes = self.options.lock().wishes;
        if self.v6 && wanted.address.is_v4() && wishes.contains(Wishes::ONLY_V6) {
            return Err(Errno::EINVAL);
        }
        self.level.bind_on_link(self.network(), wanted, |wanted| {
            let network = self.network();
            let config = network.current();
            let known = wanted.address.is_any()
                || config.takes(wanted)
                || wanted.address.is_multicast()
                || config.is_broadcast(wanted.address);
            if !known && !wishes.may_bind_foreign() {
                return Err(Errno::EADDRNOTAVAIL);
            }
            if self.protocol == Protocol::Udp && network.settings.is_privileged(wanted.port) {
                caller::require_in(&network.owner, Capability::NetBindService)
                    .map_err(|_| Errno::EACCES)?;
            }
            self.take_name(wanted, wishes)?;
            self.setup.lock().is_foreign = !known;
            Ok(())
        })
    }

    /// Binds the socket to a name that it may have.
    fn take_name(&self, wanted: SocketAddress, wishes: Wishes) -> Result<()> {
        let mut setup = self.setup.lock();
        if let Protocol::Raw(_) = self.protocol {
            // Its port is its protocol; only the address is chosen.
            self.move_to(&mut setup, wanted.address)?;
            setup.local.scope = wanted.scope;
            setup.address_given = !wanted.address.is_any();
            return Ok(());
        }
        if setup.local.port != 0 {
            return Err(Errno::EINVAL);
        }
        if wanted.port == 0 && wishes.contains(Wishes::BIND_NO_PORT) {
            // connect(2) or the first send chooses the port.
            setup.local = wanted;
        } else {
            self.enter_port(&mut setup, wanted.address, wanted.port)?;
        }
        setup.local.scope = wanted.scope;
        setup.address_given = !wanted.address.is_any();
        setup.port_given = wanted.port != 0;
        Ok(())
    }

    /// Reads the address of bind(2), as `inet_bind` and `inet6_bind` do: an IPv4 socket takes
    /// AF_UNSPEC with the wildcard address.
    fn parse_local(&self, bytes: &[u8]) -> Result<SocketAddress> {
        match SocketAddress::parse(bytes, self.v6) {
            Ok(address) => Ok(address),
            Err(Refused::Short) => Err(Errno::EINVAL),
            Err(Refused::Family(UNSPECIFIED)) if !self.v6 => {
                let address = destination(bytes, false)?;
                if address.address.is_any() { Ok(address) } else { Err(Errno::EAFNOSUPPORT) }
            }
            Err(Refused::Family(_)) => Err(Errno::EAFNOSUPPORT),
        }
    }

    pub(super) fn enter_port(&self, setup: &mut Setup, address: Address, port: u16) -> Result<()> {
        let me = self.me.upgrade().ok_or(Errno::EINVAL)?;
        let binding = self.binding(address);
        let network = self.network();
        let port = if port == 0 {
            let range = network.settings.port_range();
            self.ports().bind_any(network.key, range, binding, Some(&me))?
        } else {
            self.ports().bind(network.key, port, binding, Some(me))?;
            port
        };
        setup.local = SocketAddress::new(address, port);
        setup.binding = Some(binding);
        Ok(())
    }

    /// Binds the socket to a free port if it has none. `EAGAIN` if none is free, as
    /// `inet_autobind`.
    pub(super) fn bind_automatically(&self, setup: &mut Setup) -> Result<()> {
        if setup.local.port != 0 {
            return Ok(());
        }
        let address = setup.local.address;
        self.enter_port(setup, address, 0).map_err(|error| match error {
            Errno::EADDRINUSE => Errno::EAGAIN,
            other => other,
        })
    }

    /// Gives the port back.
    pub(super) fn unbind(&self, setup: &mut Setup) {
        let Some(binding) = setup.binding.take() else { return };
        let me = self.me.upgrade();
        self.ports().unbind(self.network().key, setup.local.port, &binding, me.as_ref());
        setup.local.port = 0;
    }

    /// Changes the local address of a bound socket.
    fn move_to(&self, setup: &mut Setup, address: Address) -> Result<()> {
        let (Some(me), Some(old)) = (self.me.upgrade(), setup.binding) else { return Ok(()) };
        let new = Binding { address, ..old };
        if new != old {
            let (network, port) = (self.network().key, setup.local.port);
            self.ports().rebind(network, port, (&old, true), (new, true), &me)?;
            setup.binding = Some(new);
        }
        setup.local.address = address;
        Ok(())
    }

    /// Tells the table of ports of options that were set since the socket was bound, and forgets
    /// the way to the peer, which may lead over another interface now.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn binding_changed(&self) -> Result<()> {
        let Some(me) = self.me.upgrade() else { return Ok(()) };
        let mut setup = self.setup.lock();
        let Some(old) = setup.binding else { return Ok(()) };
        let new = Binding { only_v6: old.only_v6, ..self.binding(old.address) };
        if new != old {
            self.ports().change(self.network().key, setup.local.port, &old, new, Some(&me))?;
            setup.binding = Some(new);
            setup.path = None;
        }
        Ok(())
    }

    /// connect(2): sets the peer, or dissolves the association with AF_UNSPEC.
    pub(super) fn connect_to(&self, bytes: &[u8]) -> Result<()> {
        let family = SocketAddress::family(bytes).ok_or(Errno::EINVAL)?;
        let mut setup = self.setup.lock();
        if family == UNSPECIFIED {
            return self.disconnect(&mut setup);
        }
        let mut to = match (self.v6, SocketAddress::parse(bytes, self.v6)) {
            (_, Ok(to)) => to,
            (true, Err(Refused::Family(INET))) => destination(bytes, true)?,
            (_, Err(Refused::Short)) => return Err(Errno::EINVAL),
            (_, Err(Refused::Family(_))) => return Err(Errno::EAFNOSUPPORT),
        };
        self.check_version(to.address)?;
        // The wildcard address is this machine (`ip4_datagram_connect`).
        let path = self.path(&setup, to)?;
        if setup.is_foreign {
            self.options.lock().wishes.check_source(self.network(), setup.local.address)?;
        }
        if to.address.is_any() {
            to.address = path.next_hop;
        }
        if path.is_broadcast && !self.common.has(Switches::BROADCAST) {
            return Err(Errno::EACCES);
        }
        if self.common.has(Switches::ON_LINK) {
            path.check_link(to.address)?;
        }
        self.bind_automatically(&mut setup)?;
        if !setup.address_given {
            self.move_to(&mut setup, path.source)?;
        }
        setup.path = Some((self.network().generation(), path));
        drop(setup);
        *self.remote.lock() = Some(to);
        Ok(())
    }

    fn disconnect(&self, setup: &mut Setup) -> Result<()> {
        *self.remote.lock() = None;
        setup.path = None;
        if !setup.address_given {
            let any = if self.v6 { Address::ANY_V6 } else { Address::ANY_V4 };
            self.move_to(setup, any)?;
            setup.local.address = any;
        }
        // The kernel's own choice of a port is given back (`__udp_disconnect`).
        if !setup.port_given {
            self.unbind(setup);
        }
        Ok(())
    }

    /// Ends the socket from outside (SOCK_DESTROY; `udp_abort`): the program's next call fails with
    /// ECONNABORTED, and the socket is connected no more.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn destroy(&self) -> Result<()> {
        self.queue.lock().error = Some(Errno::ECONNABORTED);
        self.wake(Events::READABLE | Events::ERR);
        self.disconnect(&mut self.setup.lock())
    }

    /// Checks that a socket can reach an address of this version: ENETUNREACH.
    pub(super) fn check_version(&self, to: Address) -> Result<()> {
        let only_v6 = self.options.lock().wishes.contains(Wishes::ONLY_V6);
        if to.is_v4() && self.v6 && only_v6 { Err(Errno::ENETUNREACH) } else { Ok(()) }
    }

    /// Finds the way to a destination, by the socket's interface.
    pub(super) fn path(&self, setup: &Setup, to: SocketAddress) -> Result<Path> {
        let mut interface = self.level.interface();
        if interface == 0 && to.address.is_multicast() {
            interface = self.options.lock().multicast_interface;
        }
        if interface == 0 {
            interface = to.scope;
        }
        let path = self.network().current().path(to.address, interface)?;
        // A socket that is bound to an address of the other version reaches nothing.
        if !setup.local.address.is_any() && setup.local.address.is_v4() != path.source.is_v4() {
            return Err(Errno::ENETUNREACH);
        }
        Ok(path)
    }

    /// getsockname(2).
    pub(super) fn local_name(&self) -> SocketAddress {
        self.setup.lock().local
    }

    /// Sets the size of a buffer.
    pub(super) fn set_limit(&self, receive: bool, size: usize) {
        let limit = if receive { &self.receive_limit } else { &self.send_limit };
        limit.store(size, Ordering::Relaxed);
    }
}
