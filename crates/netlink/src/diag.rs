//! NETLINK_SOCK_DIAG (sock_diag(7)): requests for lists of sockets of the Internet and of the Unix
//! domain are read, sockets are written (`include/uapi/linux/inet_diag.h`, `unix_diag.h`).

use core::net::IpAddr;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Full;
use crate::message::{Header, Request, Writer};

/// The type of requests and answers (`SOCK_DIAG_BY_FAMILY`).
pub const BY_FAMILY: u16 = 20;
/// A request to end a connection (`SOCK_DESTROY`).
pub const DESTROY: u16 = 21;

/// `INET_DIAG_REQ_BYTECODE`: a program that selects sockets.
const BYTECODE: u16 = 1;
/// `INET_DIAG_SHUTDOWN`, `INET_DIAG_PROTOCOL`, `INET_DIAG_SKV6ONLY`.
const INET_SHUTDOWN: u16 = 8;
const INET_PROTOCOL: u16 = 10;
const INET_ONLY_V6: u16 = 11;
/// `UNIX_DIAG_NAME` and others.
const UNIX_NAME: u16 = 0;
const UNIX_PEER: u16 = 2;
const UNIX_QUEUES: u16 = 4;
const UNIX_SHUTDOWN: u16 = 6;
const UNIX_USER: u16 = 7;

/// What a request for sockets of the Unix domain wants to see (`UDIAG_SHOW_*`).
pub mod show {
    #![allow(missing_docs, reason = "named as in sock_diag(7)")]
    pub const NAME: u32 = 1;
    pub const PEER: u32 = 4;
    pub const QUEUES: u32 = 0x10;
    pub const USER: u32 = 0x40;
}

/// `struct inet_diag_sockid`: ports and addresses are in the order of the network.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Names {
    local_port: [u8; 2],
    remote_port: [u8; 2],
    local: [u8; 16],
    remote: [u8; 16],
    interface: u32,
    cookie: [u32; 2],
}

/// `struct inet_diag_req_v2`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct InetFixed {
    family: u8,
    protocol: u8,
    extensions: u8,
    padding: u8,
    states: u32,
    names: Names,
}

/// `struct inet_diag_msg`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct InetMessage {
    family: u8,
    state: u8,
    timer: u8,
    retransmits: u8,
    names: Names,
    expires: u32,
    receiving: u32,
    sending: u32,
    user: u32,
    inode: u32,
}

/// A request for a list of sockets of the Internet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InetAsked {
    /// Their family; 0 for both.
    pub family: u8,
    /// Their protocol.
    pub protocol: u8,
    /// A bit for each state that is wanted.
    pub states: u32,
    /// Ports that are wanted; 0 for all.
    pub local_port: u16,
    /// See `local_port`.
    pub remote_port: u16,
    /// A program selects.
    pub has_program: bool,
}

impl InetAsked {
    /// Reads a request. `None` if it is too short.
    pub fn read(request: &Request<'_>) -> Option<Self> {
        let (fixed, attributes) = request.parts::<InetFixed>()?;
        Some(Self {
            family: fixed.family,
            protocol: fixed.protocol,
            states: fixed.states,
            local_port: u16::from_be_bytes(fixed.names.local_port),
            remote_port: u16::from_be_bytes(fixed.names.remote_port),
            has_program: attributes.into_iter().any(|attribute| attribute.kind == BYTECODE),
        })
    }

    /// Whether a socket is one that is wanted.
    pub fn wants(&self, family: u8, state: u8, local_port: u16, remote_port: u16) -> bool {
        let is = |asked: u16, port: u16| asked == 0 || asked == port;
        (self.family == 0 || self.family == family)
            && self.states >> state.min(31) & 1 != 0
            && is(self.local_port, local_port)
            && is(self.remote_port, remote_port)
    }
}

/// A socket of the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InetSocket {
    /// Its family.
    pub family: u8,
    /// Linux' number of its state.
    pub state: u8,
    /// Its timer: 0 none, 1 retransmission, 2 keepalive, 3 TIME-WAIT, 4 window probe; and in how
    /// many milliseconds it is due.
    pub timer: u8,
    /// See `timer`.
    pub expires: u32,
    /// Timeouts without progress.
    pub retransmits: u8,
    /// Its name; an address of IPv4 is mapped in a socket of IPv6.
    pub local: (IpAddr, u16),
    /// Its peer.
    pub remote: (IpAddr, u16),
    /// The interface that it is bound to.
    pub interface: u32,
    /// SO_COOKIE; all ones for none.
    pub cookie: u64,
    /// Bytes that wait to be read, or connections to be accepted.
    pub receiving: u32,
    /// Bytes that are not acknowledged, or the backlog of a listener.
    pub sending: u32,
    /// The user who made it.
    pub user: u32,
    /// The number of its inode.
    pub inode: u32,
    /// The directions that are shut down: 1 receiving, 2 sending; `None` without a socket.
    pub shut_down: Option<u8>,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// The protocol of a raw socket.
    pub raw: Option<u8>,
}

/// `AF_INET6`.
const INET6: u8 = 10;

impl InetSocket {
    /// Returns an address as it lies in a message.
    fn bytes_of(&self, address: IpAddr) -> [u8; 16] {
        match address {
            IpAddr::V4(v4) if self.family == INET6 => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                bytes
            }
        }
    }

    /// Writes a message about it.
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    pub fn write(&self, to: &mut Writer<'_>, header: Header) -> Result<(), Full> {
        to.message(header, |body| {
            let message = InetMessage {
                family: self.family,
                state: self.state,
                timer: self.timer,
                retransmits: self.retransmits,
                names: Names {
                    local_port: self.local.1.to_be_bytes(),
                    remote_port: self.remote.1.to_be_bytes(),
                    local: self.bytes_of(self.local.0),
                    remote: self.bytes_of(self.remote.0),
                    interface: self.interface,
                    cookie: [self.cookie as u32, (self.cookie >> 32) as u32],
                },
                expires: self.expires,
                receiving: self.receiving,
                sending: self.sending,
                user: self.user,
                inode: self.inode,
            };
            body.put(message.as_bytes())?;
            if let Some(directions) = self.shut_down {
                body.attribute(INET_SHUTDOWN, &[directions])?;
            }
            if self.family == INET6 && self.shut_down.is_some() {
                body.attribute(INET_ONLY_V6, &[u8::from(self.only_v6)])?;
            }
            if let Some(protocol) = self.raw {
                body.attribute(INET_PROTOCOL, &[protocol])?;
            }
            Ok(())
        })
    }
}

/// `struct unix_diag_req`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct UnixFixed {
    family: u8,
    protocol: u8,
    padding: u16,
    states: u32,
    inode: u32,
    show: u32,
    cookie: [u32; 2],
}

/// `struct unix_diag_msg`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct UnixMessage {
    family: u8,
    kind: u8,
    state: u8,
    padding: u8,
    inode: u32,
    cookie: [u32; 2],
}

/// A request for a list of sockets of the Unix domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixAsked {
    /// The protocol, which is 0.
    pub protocol: u8,
    /// A bit for each state that is wanted.
    pub states: u32,
    /// What is wanted of each ([`show`]).
    pub show: u32,
}

impl UnixAsked {
    /// Reads a request. `None` if it is too short.
    pub fn read(request: &Request<'_>) -> Option<Self> {
        let (fixed, _) = request.parts::<UnixFixed>()?;
        Some(Self { protocol: fixed.protocol, states: fixed.states, show: fixed.show })
    }
}

/// The bytes of a name: of the abstract name space with a zero before.
pub type Name = arrayvec::ArrayVec<u8, 108>;

/// A socket of the Unix domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its type (`SOCK_*`).
    pub kind: u8,
    /// Linux' number of its state: 1 connected, 7 neither, 10 listens.
    pub state: u8,
    /// The number of its inode.
    pub inode: u32,
    /// SO_COOKIE.
    pub cookie: u64,
    /// Its name, if it has one and is asked for it.
    pub name: Option<Name>,
    /// The number of its peer's inode.
    pub peer: Option<u32>,
    /// Bytes that wait to be read and such as it sent, or for a listener connections that wait and
    /// the backlog.
    pub queues: Option<[u32; 2]>,
    /// The user who made it.
    pub user: Option<u32>,
    /// The directions that are shut down: 1 receiving, 2 sending.
    pub shut_down: u8,
}

impl UnixSocket {
    /// Writes a message about it.
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    pub fn write(&self, to: &mut Writer<'_>, header: Header) -> Result<(), Full> {
        to.message(header, |body| {
            let message = UnixMessage {
                family: 1,
                kind: self.kind,
                state: self.state,
                padding: 0,
                inode: self.inode,
                cookie: [self.cookie as u32, (self.cookie >> 32) as u32],
            };
            body.put(message.as_bytes())?;
            if let Some(name) = &self.name {
                body.attribute(UNIX_NAME, name)?;
            }
            if let Some(peer) = self.peer {
                body.number(UNIX_PEER, peer)?;
            }
            if let Some(queues) = self.queues {
                body.attribute(UNIX_QUEUES, queues.as_bytes())?;
            }
            if let Some(user) = self.user {
                body.number(UNIX_USER, user)?;
            }
            body.attribute(UNIX_SHUTDOWN, &[self.shut_down])
        })
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;
    use crate::message::Requests;

    fn request(length: usize) -> [u8; 256] {
        let mut bytes = [0; 256];
        bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        bytes
    }

    #[test]
    fn requests_of_any_length_are_read_or_refused() {
        for length in 16..256 {
            let bytes = request(length);
            let asked = Requests::new(&bytes).next().unwrap();
            assert_eq!(InetAsked::read(&asked).is_some(), length >= 16 + 56);
            assert_eq!(UnixAsked::read(&asked).is_some(), length >= 16 + 24);
        }
    }

    #[test]
    fn a_request_selects_by_family_state_and_ports() {
        let mut bytes = request(16 + 56 + 8);
        bytes[16..20].copy_from_slice(&[2, 6, 0, 0]);
        bytes[20..24].copy_from_slice(&(1u32 << 10).to_ne_bytes());
        bytes[24..26].copy_from_slice(&80u16.to_be_bytes());
        bytes[72..76].copy_from_slice(&[8, 0, 1, 0]);
        let asked = InetAsked::read(&Requests::new(&bytes).next().unwrap()).unwrap();
        assert!(asked.has_program && asked.protocol == 6);
        assert!(asked.wants(2, 10, 80, 7));
        assert!(!asked.wants(10, 10, 80, 7) && !asked.wants(2, 1, 80, 7));
        assert!(!asked.wants(2, 10, 81, 7) && !asked.wants(2, 255, 80, 7));
    }

    #[test]
    fn sockets_have_the_layout_of_linux() {
        let local = (IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
        let socket = InetSocket {
            family: INET6,
            state: 1,
            timer: 0,
            expires: 0,
            retransmits: 0,
            local,
            remote: local,
            interface: 0,
            cookie: 1 << 32 | 2,
            receiving: 3,
            sending: 4,
            user: 5,
            inode: 6,
            shut_down: None,
            only_v6: false,
            raw: None,
        };
        let mut buffer = [0; 128];
        let mut writer = Writer::new(&mut buffer);
        socket.write(&mut writer, Header::default()).unwrap();
        assert_eq!(writer.length(), 16 + 72);
        assert_eq!(buffer[20..24], [0, 80, 0, 80]);
        assert_eq!(buffer[34..40], [0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(buffer[60..68], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(buffer[84..88], [6, 0, 0, 0]);
    }
}
