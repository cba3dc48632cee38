//! The socket operations of datagram sockets, and their options.

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::Address;

use super::control::{Marks, SOL_UDP, UDP_GRO, UDP_SEGMENT};
use super::raw_options::{CHECKSUM, SOL_ICMP_V6, SOL_RAW};
use super::{Protocol, Socket};
use crate::net::ip_options::{self, SOL_IP, SOL_IPV6, ip, ipv6};
use crate::net::{config, groups, path_mtu};
use crate::reclaim::growth::Grow;
use crate::vfs::poll::Events;
use crate::vfs::socket::{
    AddressBytes, Directions, IncomingMessage, OutgoingMessage, SocketOps, kinds,
};
use crate::vfs::socket_options::{Buffer, Common, OptionOutput, OptionValue, SOL_SOCKET, Switches};
use crate::vfs::transfer::{Input, Output};

const UDP_CORK: i32 = 1;

/// The most groups of a socket, and the error beyond. IPv4: the default of Linux'
/// `net.ipv4.igmp_max_memberships`. IPv6: as many as its `net.core.optmem_max` of 20 KiB holds
/// (`struct ipv6_mc_socklist`, 64 bytes each).
const MOST_V4: (usize, Errno) = (20, Errno::ENOBUFS);
const MOST_V6: (usize, Errno) = (320, Errno::ENOMEM);

impl Socket {
    /// Whether this socket has joined a group. A leaf lock is enough: packets that arrive ask.
    pub(super) fn groups_have(&self, group: Address, interface: u32) -> bool {
        self.groups.lock().contains(&(group, interface))
    }

    /// Reads `struct ip_mreq`, `ip_mreqn` or `ipv6_mreq`: group and interface.
    fn membership(&self, level: i32, value: OptionValue) -> Result<(Address, u32)> {
        let mut bytes = [0; 20];
        let bytes = value.bytes(&mut bytes)?;
        let config = config::current();
        if level == SOL_IPV6 {
            let (group, rest) = bytes.split_first_chunk().ok_or(Errno::EINVAL)?;
            let index = rest.first_chunk().ok_or(Errno::EINVAL)?;
            return Ok((Address::v6(u128::from_be_bytes(*group)), u32::from_ne_bytes(*index)));
        }
        let (group, rest) = bytes.split_first_chunk().ok_or(Errno::EINVAL)?;
        let (local, rest) = rest.split_first_chunk().ok_or(Errno::EINVAL)?;
        let group = Address::v4(u32::from_be_bytes(*group));
        let local = Address::v4(u32::from_be_bytes(*local));
        let index = rest.first_chunk().map_or(0, |index| u32::from_ne_bytes(*index));
        let of_address =
            || config.addresses.iter().find(|own| own.address == local).map(|own| own.interface);
        let index = match index {
            0 if local.is_any() => 0,
            0 => of_address().ok_or(Errno::ENODEV)?,
            index => index,
        };
        Ok((group, index))
    }

    fn change_membership(&self, level: i32, value: OptionValue, join: bool) -> Result<()> {
        let (group, index) = self.membership(level, value)?;
        if !group.is_multicast() || group.is_v4() != (level == SOL_IP) {
            return Err(Errno::EINVAL);
        }
        let config = config::current();
        let index = match index {
            0 => {
                config.path(group, 0).map(|path| path.interface.index).map_err(|_| Errno::ENODEV)?
            }
            index => config.interface(index).ok_or(Errno::ENODEV)?.index,
        };
        let entry = (group, index);
        let mut own = self.groups.lock();
        let place = own.iter().position(|&joined| joined == entry);
        match (join, place) {
            (true, Some(_)) => return Err(Errno::EADDRINUSE),
            (false, None) => return Err(Errno::EADDRNOTAVAIL),
            (true, None) => {
                let (most, lack) = if level == SOL_IP { MOST_V4 } else { MOST_V6 };
                if own.iter().filter(|(other, _)| other.is_v4() == group.is_v4()).count() >= most {
                    return Err(lack);
                }
                own.make_room(1)?;
                groups::join(group, index)?;
                own.push(entry);
            }
            (false, Some(place)) => {
                own.swap_remove(place);
                groups::leave(group, index);
            }
        }
        drop(own);
        groups::tell();
        Ok(())
    }

    /// Leaves all groups.
    pub(super) fn leave_groups(&self) {
        let left = core::mem::take(&mut *self.groups.lock());
        if left.is_empty() {
            return;
        }
        left.into_iter().for_each(|(group, interface)| groups::leave(group, interface));
        groups::tell();
    }
}

impl SocketOps for Socket {
    fn family(&self) -> u16 {
        self.family_number()
    }

    fn kind(&self) -> i32 {
        if let Protocol::Raw(_) = self.protocol { kinds::RAW } else { kinds::DATAGRAM }
    }

    fn protocol(&self) -> i32 {
        match (self.protocol, self.v6) {
            (Protocol::Udp, _) => SOL_UDP,
            (Protocol::Echo, false) => 1,
            (Protocol::Echo, true) => 58,
            (Protocol::Raw(number), _) => i32::from(number),
        }
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn bind(&self, address: &[u8]) -> Result<()> {
        self.bind_to(address)
    }

    fn connect(&self, address: &[u8], _nonblocking: bool) -> Result<()> {
        self.connect_to(address)
    }

    fn name(&self) -> Result<AddressBytes> {
        Ok(self.address_bytes(self.local_name()))
    }

    fn peer_name(&self) -> Result<AddressBytes> {
        let remote = *self.remote.lock();
        remote.map(|remote| self.address_bytes(remote)).ok_or(Errno::ENOTCONN)
    }

    fn send(&self, input: &mut Input<'_>, message: OutgoingMessage<'_>) -> Result<usize> {
        self.send_message(input, &message)
    }

    fn receive(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<IncomingMessage> {
        self.receive_message(out, how, nonblocking)
    }

    fn shut_down(&self, which: Directions) -> Result<()> {
        let connected = self.remote.lock().is_some();
        if !connected {
            // As on Linux, it takes effect although the call fails (`inet_shutdown`).
            self.end_directions(which);
            return Err(Errno::ENOTCONN);
        }
        self.end_directions(which);
        Ok(())
    }

    fn set_option(&self, level: i32, option: i32, value: OptionValue) -> Result<()> {
        match (level, option) {
            (SOL_UDP, _) if self.protocol != Protocol::Udp => Err(Errno::ENOPROTOOPT),
            (SOL_UDP, UDP_CORK) => {
                let on = value.number()? != 0;
                let mut setup = self.setup.lock();
                setup.is_corked = on;
                if on { Ok(()) } else { self.uncork(setup, &Marks::default()) }
            }
            (SOL_UDP, UDP_SEGMENT) => {
                let size = value.number()?;
                let size = u16::try_from(size).map_err(|_| Errno::EINVAL)?;
                self.segment.store(size, Ordering::Relaxed);
                Ok(())
            }
            (SOL_UDP, UDP_GRO) => {
                self.takes_many.store(value.number()? != 0, Ordering::Relaxed);
                Ok(())
            }
            (SOL_IP, ip::HDRINCL) if self.is_raw() => {
                self.raw.include_header(ip_options::read(level, option, value)? != 0);
                Ok(())
            }
            (SOL_RAW | SOL_ICMP_V6, _) | (SOL_IPV6, CHECKSUM) if self.is_raw() => {
                self.set_raw(level, option, value)
            }
            (SOL_IP, ip::ADD_MEMBERSHIP) | (SOL_IPV6, ipv6::ADD_MEMBERSHIP) => {
                self.change_membership(level, value, true)
            }
            (SOL_IP, ip::DROP_MEMBERSHIP) | (SOL_IPV6, ipv6::DROP_MEMBERSHIP) => {
                self.change_membership(level, value, false)
            }
            (SOL_IP, ip::MULTICAST_IF) => self.set_multicast_interface(value),
            (SOL_IPV6, _) if !self.v6 => Err(Errno::ENOPROTOOPT),
            (SOL_IPV6, ipv6::V6ONLY) => {
                let value = ip_options::read(level, option, value)?;
                // Only before the socket is bound (`do_ipv6_setsockopt`).
                let setup = self.setup.lock();
                if setup.local.port != 0 {
                    return Err(Errno::EINVAL);
                }
                self.options.lock().set(level, option, value).map(drop)
            }
            (SOL_IP | SOL_IPV6, _) => {
                let value = ip_options::read(level, option, value)?;
                if !self.options.lock().set(level, option, value)? {
                    return Err(Errno::ENOPROTOOPT);
                }
                if (level, option) == (SOL_IP, ip::TOS) {
                    let priority = ip_options::priority_of_service(value);
                    self.common.priority.store(priority, Ordering::Relaxed);
                }
                let errors = [(SOL_IP, ip::RECVERR), (SOL_IPV6, ipv6::RECVERR)];
                if value == 0 && errors.contains(&(level, option)) {
                    let failures = self.queue.lock().take_failures();
                    drop(failures);
                }
                Ok(())
            }
            (SOL_SOCKET, _) => match self.filter.set(option, value) {
                Err(Errno::ENOPROTOOPT) => {
                    self.level.set_with(option, value, || self.binding_changed())
                }
                outcome => outcome,
            },
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn get_option(&self, level: i32, option: i32, out: OptionOutput) -> Result<()> {
        match (level, option) {
            (SOL_UDP, UDP_CORK) => out.put_number(i32::from(self.setup.lock().is_corked)),
            (SOL_UDP, UDP_SEGMENT) => {
                out.put_number(i32::from(self.segment.load(Ordering::Relaxed)))
            }
            (SOL_UDP, UDP_GRO) => {
                out.put_number(i32::from(self.takes_many.load(Ordering::Relaxed)))
            }
            (SOL_IP, ip::HDRINCL) if self.is_raw() => {
                ip_options::write(level, i32::from(self.raw.header_included()), out)
            }
            (SOL_RAW | SOL_ICMP_V6, _) | (SOL_IPV6, CHECKSUM) if self.is_raw() => {
                self.get_raw(level, option, out)
            }
            (SOL_IP, ip::MULTICAST_IF) => out.put(&self.multicast_address().to_be_bytes()),
            (SOL_IPV6, _) if !self.v6 => Err(Errno::EOPNOTSUPP),
            (SOL_IP | SOL_IPV6, _) if ip_options::is_mtu(level, option) => {
                let remote = self.remote.lock().ok_or(Errno::ENOTCONN)?;
                let path = self.path(&self.setup.lock(), remote).map_err(|_| Errno::ENOTCONN)?;
                let mtu = path_mtu::of(&path, remote.address).bytes;
                ip_options::write_mtu(level, option, mtu, out)
            }
            (SOL_IP | SOL_IPV6, _) => {
                let value = self.options.lock().get(level, option).ok_or(Errno::ENOPROTOOPT)?;
                ip_options::write(level, value, out)
            }
            (SOL_SOCKET, _) => match self.filter.get(option, out) {
                Err(Errno::ENOPROTOOPT) => self.level.get(option, out),
                outcome => outcome,
            },
            _ if self.v6 => Err(Errno::ENOPROTOOPT),
            // `do_ip_getsockopt`.
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn switched(&self, which: Switches) -> Result<()> {
        if which.contains(Switches::REUSE_ADDRESS) { self.binding_changed() } else { Ok(()) }
    }

    fn has_peek_offset(&self) -> bool {
        self.protocol == Protocol::Udp
    }

    fn take_error(&self) -> Option<Errno> {
        self.pending()
    }

    fn buffer_size(&self, which: Buffer) -> usize {
        match which {
            Buffer::Receive => self.receive_limit.load(Ordering::Relaxed),
            Buffer::Send => self.send_limit.load(Ordering::Relaxed),
        }
    }

    fn set_buffer_size(&self, which: Buffer, size: usize) {
        self.set_limit(which == Buffer::Receive, size);
    }
}

impl Socket {
    fn is_raw(&self) -> bool {
        matches!(self.protocol, Protocol::Raw(_))
    }

    fn end_directions(&self, which: Directions) {
        {
            let mut queue = self.queue.lock();
            queue.no_receive |= which.receiving;
            queue.no_send |= which.sending;
        }
        self.wake(Events::all());
    }

    /// IP_MULTICAST_IF: an address, `struct ip_mreq` or `ip_mreqn`.
    fn set_multicast_interface(&self, value: OptionValue) -> Result<()> {
        let mut bytes = [0; 12];
        let config = config::current();
        let bytes = value.bytes(&mut bytes)?;
        let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.first_chunk::<4>());
        let (address, index) = match bytes.len() {
            12 => (word(4), word(8)),
            8 => (word(4), None),
            4 => (word(0), None),
            _ => return Err(Errno::EINVAL),
        };
        let index = index.map_or(0, |index| u32::from_ne_bytes(*index));
        let address = Address::v4(address.map_or(0, |bits| u32::from_be_bytes(*bits)));
        let index = if index != 0 {
            config.interface(index).ok_or(Errno::EADDRNOTAVAIL)?.index
        } else if address.is_any() {
            0
        } else {
            let own = config.addresses.iter().find(|own| own.address == address);
            own.ok_or(Errno::EADDRNOTAVAIL)?.interface
        };
        self.options.lock().multicast_interface = index;
        Ok(())
    }

    /// Returns the IPv4 address of the interface for multicast packets.
    fn multicast_address(&self) -> u32 {
        let index = self.options.lock().multicast_interface;
        let config = config::current();
        let mut of_index = config.addresses.iter().filter(|own| own.interface == index);
        of_index.find_map(|own| own.address.to_v4()).unwrap_or(0)
    }
}
