//! The socket operations of datagram sockets, and their options.

use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ip::Address;

use super::control::{Marks, SOL_UDP, UDP_GRO, UDP_SEGMENT};
use super::groups::{self, MCAST_MSFILTER};
use super::raw_options::{CHECKSUM, SOL_ICMP_V6, SOL_RAW};
use super::{Protocol, Socket};
use crate::net::ip_options::{self, SOL_IP, SOL_IPV6, ip, ipv6};
use crate::net::path_mtu;
use crate::vfs::poll::Events;
use crate::vfs::socket::{
    AddressBytes, Directions, IncomingMessage, OutgoingMessage, SocketOps, kinds,
};
use crate::vfs::socket_options::{Buffer, Common, OptionOutput, OptionValue, SOL_SOCKET, Switches};
use crate::vfs::transfer::{Input, Output};

const UDP_CORK: i32 = 1;

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
                self.raw
                    .include_header(ip_options::read(self.network(), level, option, value)? != 0);
                Ok(())
            }
            (SOL_RAW | SOL_ICMP_V6, _) | (SOL_IPV6, CHECKSUM) if self.is_raw() => {
                self.set_raw(level, option, value)
            }
            (SOL_IP, ip::MULTICAST_IF) => self.set_multicast_interface(value),
            (SOL_IPV6, _) if !self.v6 => Err(Errno::ENOPROTOOPT),
            (SOL_IP | SOL_IPV6, _) if groups::is_option(level, option) => {
                self.set_group(level, option, value)
            }
            (SOL_IPV6, ipv6::V6ONLY) => {
                let value = ip_options::read(self.network(), level, option, value)?;
                // Only before the socket is bound (`do_ipv6_setsockopt`).
                let setup = self.setup.lock();
                if setup.local.port != 0 {
                    return Err(Errno::EINVAL);
                }
                self.options.lock().set(self.network(), level, option, value).map(drop)
            }
            (SOL_IP | SOL_IPV6, _) => {
                let value = ip_options::read(self.network(), level, option, value)?;
                if !self.options.lock().set(self.network(), level, option, value)? {
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
                    let changed = || self.binding_changed();
                    self.level.set_with(self.network(), option, value, changed)
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
            (SOL_IP, ip::MSFILTER) => self.get_filter_v4(out),
            (SOL_IP | SOL_IPV6, MCAST_MSFILTER) => self.get_filter(level == SOL_IP, out),
            (SOL_IP | SOL_IPV6, _) if ip_options::is_mtu(level, option) => {
                let remote = self.remote.lock().ok_or(Errno::ENOTCONN)?;
                let path = self.path(&self.setup.lock(), remote).map_err(|_| Errno::ENOTCONN)?;
                let mtu = path_mtu::of(&path, remote.address).bytes;
                ip_options::write_mtu(level, option, mtu, out)
            }
            (SOL_IP | SOL_IPV6, _) => {
                let settings = &self.network().settings;
                let value = self.options.lock().get(settings, level, option);
                let value = value.ok_or(Errno::ENOPROTOOPT)?;
                ip_options::write(level, value, out)
            }
            (SOL_SOCKET, _) => match self.filter.get(option, out) {
                Err(Errno::ENOPROTOOPT) => self.level.get(self.network(), option, out),
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
        let config = self.network().current();
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
        let config = self.network().current();
        let mut of_index = config.addresses.iter().filter(|own| own.interface == index);
        of_index.find_map(|own| own.address.to_v4()).unwrap_or(0)
    }
}
