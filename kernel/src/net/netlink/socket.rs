//! The open file of a netlink socket, and its operations (net/netlink/af_netlink.c of Linux 6.1).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use smallvec::SmallVec;

use super::asking::Asking;
use super::endpoint::{Datagram, Destination, Endpoint};
use super::options::{KeptOptions, NETLINK_PKTINFO, Options, SOL_NETLINK};
use super::{ROUTE, SOCK_DIAG, letter, ports, request};
use crate::credentials::Capability;
use crate::net::config::Network;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::caller;
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::socket::{
    AddressBytes, Ancillary, ControlMessage, IncomingMessage, Letter, OutgoingMessage, SocketOps,
    flags, kinds, until,
};
use crate::vfs::socket_family::{Family, interface_request, no_pair, register as register_family};
use crate::vfs::socket_options::{Buffer, Common, OptionOutput, OptionValue, SEND_DEFAULT};
use crate::vfs::transfer::{Input, Output};

/// `AF_NETLINK`.
const FAMILY: u16 = 16;
/// `sizeof(struct sockaddr_nl)`.
const ADDRESS: usize = 12;

/// Registers the family; at boot.
pub fn register() {
    register_family(Family { number: FAMILY, create, pair: no_pair });
}

fn create(kind: i32, protocol: i32) -> Result<Arc<dyn FileOps>> {
    if !matches!(kind, kinds::RAW | kinds::DATAGRAM) {
        return Err(Errno::ESOCKTNOSUPPORT);
    }
    if !matches!(protocol, ROUTE | SOCK_DIAG) {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let common = Common::new();
    Ok(Arc::new(Socket {
        endpoint: Endpoint::new(protocol, common.network().clone()),
        kind,
        common,
        options: KeptOptions::default(),
        send_size: AtomicUsize::new(SEND_DEFAULT),
    }))
}

/// An open netlink socket.
pub struct Socket {
    endpoint: Arc<Endpoint>,
    /// SOCK_RAW or SOCK_DGRAM, between which netlink makes no difference.
    kind: i32,
    common: Common,
    options: KeptOptions,
    /// SO_SNDBUF.
    send_size: AtomicUsize,
}

/// A `struct sockaddr_nl`: a port, and a set of groups.
#[derive(Clone, Copy, Debug, Default)]
struct Address {
    port: u32,
    groups: u32,
}

impl Address {
    /// Reads one: EINVAL if it is too short or of another family.
    fn parse(bytes: &[u8]) -> Result<Self> {
        let (fixed, _) = bytes.split_first_chunk::<ADDRESS>().ok_or(Errno::EINVAL)?;
        if u16::from_ne_bytes([fixed[0], fixed[1]]) != FAMILY {
            return Err(Errno::EINVAL);
        }
        let word = |at: usize| {
            let bytes = fixed.get(at..).and_then(<[u8]>::first_chunk);
            bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
        };
        Ok(Self { port: word(4), groups: word(8) })
    }

    /// Reads the destination of a message. Only a privileged program sends to others than the
    /// kernel (`netlink_allowed`): EPERM. Of a set of groups the first is meant.
    fn parse_destination(network: &Network, bytes: &[u8]) -> Result<Destination> {
        let Self { port, groups } = Self::parse(bytes)?;
        if port != 0 || groups != 0 {
            caller::require_in(&network.owner, Capability::NetAdmin)?;
        }
        let group = if groups == 0 { 0 } else { groups.trailing_zeros() + 1 };
        Ok(Destination { port, group })
    }

    /// The address of a port and one group, which only the first 32 groups show in.
    fn of(port: u32, group: u32) -> Self {
        let bit = group.checked_sub(1).and_then(|shift| 1u32.checked_shl(shift));
        Self { port, groups: bit.unwrap_or(0) }
    }

    fn to_bytes(self) -> AddressBytes {
        let mut bytes = AddressBytes::new();
        bytes.extend(FAMILY.to_ne_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.port.to_ne_bytes());
        bytes.extend(self.groups.to_ne_bytes());
        bytes
    }
}

impl Socket {
    /// Returns its port; one without gets the number of its process.
    fn port(&self) -> Result<u32> {
        match self.endpoint.port() {
            Some(port) => Ok(port),
            None => ports::bind_automatic(&self.endpoint, caller::identity().pid as u32),
        }
    }

    /// Delivers a message to another socket, which it waits for (`netlink_attachskb`).
    fn send_to(&self, to: u32, datagram: Datagram, nonblocking: bool) -> Result<()> {
        let target = ports::find(&self.endpoint.network, self.endpoint.protocol, to)?;
        let mut datagram = Some(datagram);
        let queue = &target.senders;
        until(&self.common, Buffer::Send, nonblocking, queue, || target.try_deliver(&mut datagram))
    }
}

impl SocketOps for Socket {
    fn family(&self) -> u16 {
        FAMILY
    }

    fn kind(&self) -> i32 {
        self.kind
    }

    fn protocol(&self) -> i32 {
        self.endpoint.protocol
    }

    fn common(&self) -> &Common {
        &self.common
    }

    fn opened(&self, inode: u64) {
        self.endpoint.inode.store(inode, Ordering::Relaxed);
    }

    fn ancillary(&self) -> Ancillary {
        Ancillary::Credentials
    }

    fn bind(&self, address: &[u8]) -> Result<()> {
        let address = Address::parse(address)?;
        match self.endpoint.port() {
            Some(port) if port != address.port => return Err(Errno::EINVAL),
            Some(_) => {}
            None if address.port == 0 => {
                self.port()?;
            }
            None => {
                ports::bind(&self.endpoint, address.port)?;
            }
        }
        // Groups beyond 32 stay as they are.
        self.endpoint.set_groups(u64::from(u32::MAX), u64::from(address.groups));
        ports::note_groups(u64::from(address.groups));
        Ok(())
    }

    fn connect(&self, address: &[u8], _nonblocking: bool) -> Result<()> {
        let family = address.first_chunk().ok_or(Errno::EINVAL)?;
        // AF_UNSPEC dissolves the association.
        if u16::from_ne_bytes(*family) == 0 {
            self.endpoint.set_destination(Destination::default());
            return Ok(());
        }
        let to = Address::parse_destination(self.common.network(), address)?;
        self.port()?;
        self.endpoint.set_destination(to);
        Ok(())
    }

    fn name(&self) -> Result<AddressBytes> {
        let groups = self.endpoint.groups() as u32;
        Ok(Address { port: self.endpoint.port().unwrap_or(0), groups }.to_bytes())
    }

    fn peer_name(&self) -> Result<AddressBytes> {
        let Destination { port, group } = self.endpoint.destination();
        Ok(Address::of(port, group).to_bytes())
    }

    fn send(&self, input: &mut Input<'_>, message: OutgoingMessage<'_>) -> Result<usize> {
        if message.flags & flags::OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let length = input.remaining();
        if length == 0 {
            return Err(Errno::ENODATA);
        }
        let to = match message.to {
            Some(address) => Address::parse_destination(self.common.network(), address)?,
            None => self.endpoint.destination(),
        };
        let port = self.port()?;
        if length > self.buffer_size(Buffer::Send).saturating_sub(32) {
            return Err(Errno::EMSGSIZE);
        }
        let mut bytes = Vec::new();
        growth::relieved(|| bytes.make_room_exact(length)).map_err(|_| Errno::ENOBUFS)?;
        bytes.resize(length, 0);
        if input.take(&mut bytes)? < length {
            return Err(Errno::EFAULT);
        }
        let sender = message.claimed.unwrap_or_else(caller::identity);
        if to.group != 0 {
            let Endpoint { network, protocol, .. } = &*self.endpoint;
            ports::broadcast(network, *protocol, &bytes, to.group, sender, port);
        }
        if to.port != 0 {
            let datagram = Datagram { bytes, port, group: 0, sender };
            self.send_to(to.port, datagram, message.nonblocking)?;
        } else {
            let options = self.options.now();
            request::receive(&Asking { endpoint: &self.endpoint, port, options }, &bytes);
        }
        Ok(length)
    }

    fn receive(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<IncomingMessage> {
        if how & flags::OOB != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let room = out.remaining();
        let peek = how & flags::PEEK != 0;
        let (datagram, full) =
            until(&self.common, Buffer::Receive, nonblocking, &self.endpoint.readers, || {
                self.endpoint.receive(room, peek)
            })?;
        self.endpoint.taken();
        let count = full.min(room);
        let bytes = datagram.bytes.get(..count).unwrap_or(&datagram.bytes);
        if out.put(bytes)? < bytes.len() {
            return Err(Errno::EFAULT);
        }
        let mut message = IncomingMessage {
            count,
            full,
            flags: if full > count { flags::TRUNC } else { 0 },
            from: Address::of(datagram.port, datagram.group).to_bytes(),
            credentials: Some(datagram.sender),
            ..IncomingMessage::default()
        };
        if self.options.now().contains(Options::PACKET_INFO) {
            let data = SmallVec::from_slice(&datagram.group.to_ne_bytes());
            let info = ControlMessage { level: SOL_NETLINK, kind: NETLINK_PKTINFO, data };
            message.control = Vec::from([info]);
        }
        Ok(message)
    }

    fn letter(&self, bytes: Vec<u8>) -> Result<Box<dyn Letter>> {
        letter::promise(&self.endpoint, bytes)
    }

    fn set_option(&self, level: i32, option: i32, value: OptionValue) -> Result<()> {
        if level != SOL_NETLINK {
            return Err(Errno::ENOPROTOOPT);
        }
        self.options.set(&self.endpoint, option, value)
    }

    fn get_option(&self, level: i32, option: i32, out: OptionOutput) -> Result<()> {
        if level != SOL_NETLINK {
            return Err(Errno::ENOPROTOOPT);
        }
        self.options.get(&self.endpoint, option, out)
    }

    fn take_error(&self) -> Option<Errno> {
        self.endpoint.take_error()
    }

    fn buffer_size(&self, which: Buffer) -> usize {
        match which {
            Buffer::Send => self.send_size.load(Ordering::Relaxed),
            Buffer::Receive => self.endpoint.receive_size.load(Ordering::Relaxed),
        }
    }

    fn set_buffer_size(&self, which: Buffer, size: usize) {
        match which {
            Buffer::Send => self.send_size.store(size, Ordering::Relaxed),
            Buffer::Receive => self.endpoint.receive_size.store(size, Ordering::Relaxed),
        }
    }
}

impl FileOps for Socket {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _offset: u64, out: &mut Output<'_>) -> Result<usize> {
        Ok(SocketOps::receive(self, out, 0, file.nonblocking())?.count)
    }

    fn write(&self, file: &OpenFile, _offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let nonblocking = file.nonblocking();
        SocketOps::send(self, input, OutgoingMessage { nonblocking, ..OutgoingMessage::default() })
    }

    fn poll(&self, _file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.endpoint.readers);
        let (is_readable, has_error) = self.endpoint.readiness();
        let mut events = Events::WRITABLE;
        events.set(Events::READABLE, is_readable);
        events.set(Events::ERR, has_error);
        events
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        interface_request(&self.endpoint.network, command, arg as usize)
    }

    fn signals(&self, _file: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.endpoint.signals, Interest::BOTH))
    }

    fn as_socket(&self) -> Option<&dyn SocketOps> {
        Some(self)
    }

    fn release(&self, _file: &OpenFile) {
        ports::leave(&self.endpoint);
        self.endpoint.close();
    }
}
