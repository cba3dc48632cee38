//! Sockets of the Unix domain as the socket calls see them.
//!
//! The operations are here and not beside [`Socket`], because the name of a Unix-domain socket may
//! be a path: finding a socket, or making its node, walks from the caller's root and working
//! directory ([`View`]), which `ipc` knows nothing of.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::file::AT_FDCWD;
use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_machine::time::realtime_ns;

use super::super::file::{View, descriptor_limit};
use crate::credentials::{Capability, access};
use crate::ipc::unix::address::{Address, Name};
use crate::ipc::unix::endpoint::{Endpoint, EndpointKind};
use crate::ipc::unix::flight::MOST_OF_USER;
use crate::ipc::unix::socket::{Incoming, Outgoing, Socket};
use crate::ipc::unix::{address, names};
use crate::net::config::Network;
use crate::process;
use crate::vfs::directory;
use crate::vfs::inode::{DeviceNumber, FileKind, Inode};
use crate::vfs::open_file::FileOps;
use crate::vfs::path::{WalkFlags, permitted};
use crate::vfs::socket::{
    Accepted, AddressBytes, Ancillary, ControlMessage, Directions, IncomingMessage,
    OutgoingMessage, SocketOps, flags, kinds,
};
use crate::vfs::socket_family::{Family, Pair, register};
use crate::vfs::socket_options::{Buffer, Common, Switches};
use crate::vfs::transfer::{Input, Output};

/// Registers the family.
pub(super) fn init() {
    register(Family { number: address::FAMILY, create, pair });
}

fn kind_of(kind: i32, protocol: i32) -> Result<EndpointKind> {
    if protocol != 0 && protocol != i32::from(address::FAMILY) {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match kind {
        kinds::STREAM => Ok(EndpointKind::Stream),
        // SOCK_RAW is a datagram socket in the Unix domain (unix_create).
        kinds::DATAGRAM | kinds::RAW => Ok(EndpointKind::Datagram),
        kinds::PACKET => Ok(EndpointKind::Packet),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

fn create(kind: i32, protocol: i32) -> Result<Arc<dyn FileOps>> {
    let endpoint = Endpoint::new(
        kind_of(kind, protocol)?,
        process::current().identity(),
        process::current().network(),
    );
    Ok(Socket::new(endpoint))
}

fn pair(kind: i32, protocol: i32) -> Result<Pair> {
    let kind = kind_of(kind, protocol)?;
    let (one, other) =
        Endpoint::pair(kind, process::current().identity(), process::current().network());
    Ok([Socket::new(one), Socket::new(other)])
}

/// Finds the endpoint bound to an address, whose name counts in a network namespace if it is
/// abstract: ECONNREFUSED, or the errors of the path walk.
fn find(network: &Network, address: Address) -> Result<Arc<Endpoint>> {
    match address {
        Address::Unnamed => Err(Errno::EINVAL),
        Address::Named(Name::Abstract(name)) => names::find_abstract(network, &name),
        Address::Named(Name::Path(path)) => {
            let view = View::current()?;
            let inode = view.resolve(AT_FDCWD, &path, WalkFlags::empty())?.inode()?;
            permitted(view.credentials(), &inode.attributes(), access::WRITE)?;
            if inode.attributes().kind != FileKind::Socket {
                return Err(Errno::ECONNREFUSED);
            }
            names::find_inode(&inode)
        }
    }
}

/// Makes the node of a named socket; EADDRINUSE if the name exists.
fn make_node(path: &[u8]) -> Result<Arc<dyn Inode>> {
    let view = View::current()?;
    let resolver = view.resolver(AT_FDCWD, path)?;
    let made = directory::mknod(&resolver, path, FileKind::Socket, 0o777, DeviceNumber::NONE);
    match made {
        Ok(location) => location.inode(),
        Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
        Err(error) => Err(error),
    }
}

/// Sets the name that an endpoint has in the abstract name space. `EINVAL` if another thread gave
/// it one meanwhile.
fn take_name(endpoint: &Endpoint, name: Name) -> Result<()> {
    endpoint
        .set_name(name.clone(), None)
        .inspect_err(|_| names::release(&endpoint.network, &name, None))
}

/// Gives a socket that wants credentials a name before it speaks to another, which can then answer
/// (`unix_autobind` in `unix_stream_connect` and its relatives).
#[inline]
fn name_if_it_wants_credentials(socket: &Socket) -> Result<()> {
    let endpoint = socket.endpoint();
    if !socket.options().has(Switches::PASS_CREDENTIALS) || endpoint.name().is_some() {
        return Ok(());
    }
    let name = names::bind_automatic(endpoint)?;
    match take_name(endpoint, name) {
        // Another thread gave it one.
        Err(Errno::EINVAL) => Ok(()),
        other => other,
    }
}

/// Returns the calling user, and how many descriptors that user may have in flight
/// (`too_many_unix_fds`).
fn flight_limit() -> (u32, usize) {
    let credentials = process::current().credentials();
    let is_privileged = |right| credentials.has(right);
    let most = if [Capability::SysResource, Capability::SysAdmin].into_iter().any(is_privileged) {
        usize::MAX
    } else {
        descriptor_limit().min(MOST_OF_USER as u64) as usize
    };
    (credentials.uid, most)
}

impl SocketOps for Socket {
    fn family(&self) -> u16 {
        address::FAMILY
    }

    fn kind(&self) -> i32 {
        self.endpoint().kind.number()
    }

    fn common(&self) -> &Common {
        self.options()
    }

    fn cookie(&self) -> u64 {
        self.endpoint().cookie()
    }

    fn has_peek_offset(&self) -> bool {
        true
    }

    fn opened(&self, inode: u64) {
        self.endpoint().inode.store(inode, Ordering::Relaxed);
    }

    fn ancillary(&self) -> Ancillary {
        Ancillary::Files
    }

    fn bind(&self, address: &[u8]) -> Result<()> {
        let endpoint = self.endpoint();
        let address = Address::parse(address)?;
        if endpoint.name().is_some() {
            return Err(Errno::EINVAL);
        }
        match address {
            Address::Unnamed => {
                let name = names::bind_automatic(endpoint)?;
                take_name(endpoint, name)
            }
            Address::Named(Name::Abstract(name)) => {
                names::bind_abstract(&name, endpoint)?;
                take_name(endpoint, Name::Abstract(name))
            }
            Address::Named(Name::Path(path)) => {
                let inode = make_node(&path)?;
                endpoint.set_name(Name::Path(path), Some(inode.clone()))?;
                names::bind_inode(inode, endpoint);
                Ok(())
            }
        }
    }

    fn listen(&self, backlog: usize) -> Result<()> {
        self.endpoint().listen(backlog, process::current().identity())
    }

    fn connect(&self, address: &[u8], nonblocking: bool) -> Result<()> {
        let endpoint = self.endpoint();
        if endpoint.kind == EndpointKind::Datagram {
            // AF_UNSPEC dissolves the association.
            if address.get(..2).is_some_and(|family| family == [0, 0]) {
                return endpoint.set_destination(None);
            }
            let address = Address::parse(address)?;
            name_if_it_wants_credentials(self)?;
            let destination = find(self.options().network(), address)?;
            return endpoint.set_destination(Some(&destination));
        }
        let who = process::current().identity();
        let address = Address::parse(address)?;
        name_if_it_wants_credentials(self)?;
        let target = find(self.options().network(), address)?;
        self.until(Buffer::Send, nonblocking, || endpoint.connect(&target, who))
    }

    fn accept(&self, nonblocking: bool) -> Result<Accepted> {
        let endpoint = self.endpoint();
        if !endpoint.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        let accepted = self.until(Buffer::Receive, nonblocking, || endpoint.accept())?;
        let peer = accepted.peer().ok().flatten().and_then(|peer| peer.name());
        Ok(Accepted { peer: address::to_bytes(peer.as_ref()), ops: Socket::new(accepted) })
    }

    fn name(&self) -> Result<AddressBytes> {
        Ok(address::to_bytes(self.endpoint().name().as_ref()))
    }

    fn peer_name(&self) -> Result<AddressBytes> {
        let peer = self.endpoint().peer()?.ok_or(Errno::ENOTCONN)?;
        Ok(address::to_bytes(peer.name().as_ref()))
    }

    fn send(&self, input: &mut Input<'_>, message: OutgoingMessage<'_>) -> Result<usize> {
        let urgent = message.flags & flags::OOB != 0;
        if urgent {
            self.check_urgent(input.remaining())?;
        }
        let to = match (self.endpoint().kind, message.to) {
            // An address of a packet is ignored (`unix_seqpacket_sendmsg`).
            (EndpointKind::Stream, None) => None,
            (_, None) | (EndpointKind::Packet, _) => {
                if self.endpoint().peer().is_ok_and(|peer| peer.is_some()) {
                    name_if_it_wants_credentials(self)?;
                }
                None
            }
            (EndpointKind::Stream, Some(_)) => {
                return Err(match self.endpoint().peer() {
                    Ok(_) => Errno::EISCONN,
                    Err(_) => Errno::EOPNOTSUPP,
                });
            }
            (EndpointKind::Datagram, Some(address)) => {
                let address = Address::parse(address)?;
                name_if_it_wants_credentials(self)?;
                Some(find(self.options().network(), address)?)
            }
        };
        let has_files = !message.descriptors.is_empty();
        let outgoing = Outgoing {
            to,
            descriptors: message.descriptors,
            flight: if has_files { flight_limit() } else { (0, 0) },
            sender: message.claimed.unwrap_or_else(|| process::current().identity()),
            nonblocking: message.nonblocking,
            urgent,
        };
        Socket::send(self, input, outgoing)
    }

    fn receive(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<IncomingMessage> {
        let Incoming { count, full, truncated, urgent, descriptors, sender, from } =
            Socket::receive(self, out, how, nonblocking)?;
        let truncated = if truncated { flags::TRUNC } else { 0 };
        let urgent = if urgent { flags::OOB } else { 0 };
        let mut message = IncomingMessage {
            count,
            full,
            flags: truncated | urgent,
            descriptors,
            credentials: sender,
            ..IncomingMessage::default()
        };
        let is_whole = self.endpoint().kind != EndpointKind::Stream && sender.is_some();
        // Not by SO_TIMESTAMPING alone (`__unix_dgram_recvmsg`).
        let asks = self.options().has(Switches::TIMESTAMP.union(Switches::TIMESTAMP_NS));
        if is_whole && asks {
            ControlMessage::report_time(self.options(), realtime_ns(), &mut message.control)?;
        }
        // A sender without a name has no address, not one that is empty (unix_copy_addr).
        if let Some(name) = from {
            message.from = address::to_bytes(Some(&name));
        }
        Ok(message)
    }

    fn shut_down(&self, which: Directions) -> Result<()> {
        self.endpoint().shut_down(which.receiving, which.sending);
        Ok(())
    }

    fn take_error(&self) -> Option<Errno> {
        self.endpoint().take_error()
    }

    fn listens(&self) -> bool {
        self.endpoint().listens()
    }

    fn peer_credentials(&self) -> Option<Ucred> {
        self.endpoint().peer_credentials()
    }

    fn buffer_size(&self, which: Buffer) -> usize {
        let account = &self.endpoint().account;
        match which {
            Buffer::Send => account.send_size(),
            Buffer::Receive => account.receive_size(),
        }
    }

    fn set_buffer_size(&self, which: Buffer, size: usize) {
        let endpoint = self.endpoint();
        match which {
            Buffer::Send => {
                endpoint.account.set_send_size(size);
                endpoint.writers.wake_all();
            }
            Buffer::Receive => endpoint.account.set_receive_size(size),
        }
    }
}
