//! NETLINK_SOCK_DIAG (sock_diag(7)): requests for sockets of the Internet and of the Unix domain
//! are read, sockets are written (`include/uapi/linux/inet_diag.h`, `unix_diag.h`).

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Full;
use crate::filter::Subject;
use crate::message::{Body, Header, Request, Writer};

/// The type of requests and answers (`SOCK_DIAG_BY_FAMILY`).
pub const BY_FAMILY: u16 = 20;
/// A request to end a connection (`SOCK_DESTROY`).
pub const DESTROY: u16 = 21;

/// A cookie that every socket has (`INET_DIAG_NOCOOKIE`, twice).
pub const ANY_COOKIE: u64 = u64::MAX;

/// `INET_DIAG_REQ_BYTECODE`: a program that selects sockets.
const BYTECODE: u16 = 1;
/// `INET_DIAG_REQ_PROTOCOL`: a protocol whose number is no byte.
const PROTOCOL: u16 = 3;
/// The attributes of answers (`INET_DIAG_*`).
mod inet {
    pub const MEMORY: u16 = 1;
    pub const INFORMATION: u16 = 2;
    pub const CONGESTION: u16 = 4;
    pub const TOS: u16 = 5;
    pub const TRAFFIC_CLASS: u16 = 6;
    pub const SOCKET_MEMORY: u16 = 7;
    pub const SHUTDOWN: u16 = 8;
    pub const PROTOCOL: u16 = 10;
    pub const ONLY_V6: u16 = 11;
    pub const MARK: u16 = 15;
    pub const CLASS: u16 = 17;
    pub const OPTIONS: u16 = 22;
}
/// `UNIX_DIAG_NAME` and others.
const UNIX_NAME: u16 = 0;
const UNIX_PEER: u16 = 2;
const UNIX_QUEUES: u16 = 4;
const UNIX_MEMORY: u16 = 5;
const UNIX_SHUTDOWN: u16 = 6;
const UNIX_USER: u16 = 7;

/// What a request for sockets of the Unix domain wants to see (`UDIAG_SHOW_*`).
pub mod show {
    #![allow(missing_docs, reason = "named as in sock_diag(7)")]
    pub const NAME: u32 = 1;
    pub const PEER: u32 = 4;
    pub const QUEUES: u32 = 0x10;
    pub const MEMORY: u32 = 0x20;
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

/// A request for sockets of the Internet: for a list, or for one by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InetAsked<'a> {
    /// Their family; 0 for both.
    pub family: u8,
    /// Their protocol.
    pub protocol: u8,
    /// A bit for each state that is wanted.
    pub states: u32,
    /// The name that is wanted. Of a list only the ports select, 0 for all.
    pub local: (IpAddr, u16),
    /// See `local`.
    pub remote: (IpAddr, u16),
    /// The interface of the one that is wanted.
    pub interface: u32,
    /// Its SO_COOKIE, or [`ANY_COOKIE`].
    pub cookie: u64,
    /// The number of a raw socket's protocol.
    pub raw: u8,
    /// A bit for each extension, from `INET_DIAG_MEMINFO` on.
    extensions: u8,
    /// The program that selects, not yet checked.
    pub program: Option<&'a [u8]>,
}

impl<'a> InetAsked<'a> {
    /// Reads a request. `None` if it is too short, or an attribute is.
    pub fn read(request: &Request<'a>) -> Option<Self> {
        let (fixed, attributes) = request.parts::<InetFixed>()?;
        let names = fixed.names;
        let address = |bytes: [u8; 16]| match (fixed.family, bytes) {
            (INET6, bytes) => IpAddr::from(Ipv6Addr::from(bytes)).to_canonical(),
            (_, [a, b, c, d, ..]) => Ipv4Addr::new(a, b, c, d).into(),
        };
        let mut asked = Self {
            family: fixed.family,
            protocol: fixed.protocol,
            states: fixed.states,
            local: (address(names.local), u16::from_be_bytes(names.local_port)),
            remote: (address(names.remote), u16::from_be_bytes(names.remote_port)),
            interface: names.interface,
            cookie: u64::from(names.cookie[1]) << 32 | u64::from(names.cookie[0]),
            raw: fixed.padding,
            extensions: fixed.extensions,
            program: None,
        };
        for attribute in attributes {
            match attribute.kind {
                BYTECODE => asked.program = Some(attribute.value),
                // One that is no byte is of no protocol here: Linux finds no handler.
                PROTOCOL => {
                    let number = u32::from_ne_bytes(attribute.value.try_into().ok()?);
                    asked.protocol = u8::try_from(number).unwrap_or(0);
                }
                _ => {}
            }
        }
        Some(asked)
    }

    /// Whether the numbers of TCP_INFO are wanted.
    pub fn wants_information(&self) -> bool {
        self.has_extension(inet::INFORMATION)
    }

    fn has_extension(&self, number: u16) -> bool {
        self.extensions >> (number - 1) & 1 != 0
    }

    /// Whether a socket is the one with the cookie that is wanted.
    pub fn is_cookie(&self, cookie: u64) -> bool {
        self.cookie == ANY_COOKIE || self.cookie == cookie
    }

    /// Whether a socket is one that is wanted.
    pub fn wants(&self, family: u8, state: u8, local_port: u16, remote_port: u16) -> bool {
        let is = |asked: u16, port: u16| asked == 0 || asked == port;
        (self.family == 0 || self.family == family)
            && self.states >> state.min(31) & 1 != 0
            && is(self.local.1, local_port)
            && is(self.remote.1, remote_port)
    }
}

/// The memory of a socket, in the order of `SK_MEMINFO_*` (`include/uapi/linux/sock_diag.h`), in
/// bytes; the last is a number of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub struct Memory {
    /// Bytes that wait to be read.
    pub receiving: u32,
    /// SO_RCVBUF.
    pub receive_limit: u32,
    /// Bytes on their way out.
    pub leaving: u32,
    /// SO_SNDBUF.
    pub send_limit: u32,
    /// Bytes that are counted for the socket and not used.
    pub spare: u32,
    /// Bytes that wait to be sent or acknowledged.
    pub sending: u32,
    /// Bytes that its options take.
    pub options: u32,
    /// Bytes that wait for the socket's lock.
    pub backlog: u32,
    /// Messages that were dropped.
    pub drops: u32,
}

/// More about a socket that has an open file or is connected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InetDetails {
    /// The directions that are shut down: 1 receiving, 2 sending.
    pub shut_down: u8,
    /// IPV6_V6ONLY.
    pub only_v6: bool,
    /// Its memory.
    pub memory: Memory,
    /// IP_TOS and IPV6_TCLASS.
    pub tos: u8,
    /// See `tos`.
    pub traffic_class: u8,
    /// SO_MARK.
    pub mark: u32,
    /// SO_PRIORITY.
    pub priority: u32,
    /// Options that are on: the bits of `struct inet_diag_sockopt`.
    pub options: u16,
    /// The kernel chose its port, not bind(2).
    pub is_automatic: bool,
    /// TCP_CONGESTION.
    pub algorithm: Option<&'static str>,
    /// TCP_INFO, if it is wanted.
    pub information: Option<Box<[u8; INFORMATION]>>,
}

/// The bits of [`InetDetails::options`].
pub mod option {
    #![allow(missing_docs, reason = "named as in struct inet_diag_sockopt")]
    pub const RECVERR: u16 = 1;
    pub const IS_ICSK: u16 = 1 << 1;
    pub const FREEBIND: u16 = 1 << 2;
    pub const HDRINCL: u16 = 1 << 3;
    pub const MC_LOOP: u16 = 1 << 4;
    pub const TRANSPARENT: u16 = 1 << 5;
    pub const MC_ALL: u16 = 1 << 6;
    pub const BIND_ADDRESS_NO_PORT: u16 = 1 << 8;
}

/// The length of `struct tcp_info` of Linux 6.1.
pub const INFORMATION: usize = 232;

/// A socket of the Internet.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The protocol of a raw socket.
    pub raw: Option<u8>,
    /// More; `None` of a connection that begins or is in TIME-WAIT.
    pub details: Option<InetDetails>,
}

/// `AF_INET6`.
const INET6: u8 = 10;
/// Linux' states TCP_CLOSE and TCP_LISTEN.
const CLOSE: u8 = 7;
const LISTEN: u8 = 10;

/// What a request wants to be told of each socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    extensions: u8,
    /// The asker may see marks (CAP_NET_ADMIN).
    is_administrator: bool,
}

impl Extent {
    /// The extent of the answers to a request.
    pub fn of(asked: &InetAsked<'_>, is_administrator: bool) -> Self {
        Self { extensions: asked.extensions, is_administrator }
    }

    fn has(self, number: u16) -> bool {
        self.extensions >> (number - 1) & 1 != 0
    }
}

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
    pub fn write(&self, to: &mut Writer<'_>, header: Header, extent: Extent) -> Result<(), Full> {
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
            if let Some(details) = &self.details {
                self.write_details(body, details, extent)?;
            }
            if let Some(protocol) = self.raw {
                body.attribute(inet::PROTOCOL, &[protocol])?;
            }
            Ok(())
        })
    }

    /// Writes the attributes in the order of `inet_sk_diag_fill`.
    fn write_details(
        &self,
        body: &mut Body<'_>,
        details: &InetDetails,
        extent: Extent,
    ) -> Result<(), Full> {
        body.attribute(inet::SHUTDOWN, &[details.shut_down])?;
        if extent.has(inet::TOS) {
            body.attribute(inet::TOS, &[details.tos])?;
        }
        if self.family == INET6 {
            if extent.has(inet::TRAFFIC_CLASS) {
                body.attribute(inet::TRAFFIC_CLASS, &[details.traffic_class])?;
            }
            if matches!(self.state, CLOSE | LISTEN) {
                body.attribute(inet::ONLY_V6, &[u8::from(details.only_v6)])?;
            }
        }
        if extent.is_administrator {
            body.number(inet::MARK, details.mark)?;
        }
        // Its bit is that of no extension: who asks for the one class gets the other.
        if extent.has(inet::TRAFFIC_CLASS) {
            body.number(inet::CLASS, details.priority)?;
        }
        body.attribute(inet::OPTIONS, &details.options.to_ne_bytes())?;
        let memory = &details.memory;
        if extent.has(inet::MEMORY) {
            let four = [memory.receiving, memory.sending, memory.spare, memory.leaving];
            body.attribute(inet::MEMORY, four.as_bytes())?;
        }
        if extent.has(inet::SOCKET_MEMORY) {
            body.attribute(inet::SOCKET_MEMORY, memory.as_bytes())?;
        }
        if let Some(information) = &details.information {
            body.attribute(inet::INFORMATION, &information[..])?;
        }
        if extent.has(inet::CONGESTION)
            && let Some(name) = details.algorithm
        {
            body.text(inet::CONGESTION, name.as_bytes())?;
        }
        Ok(())
    }

    /// The socket as a program sees it that selects.
    pub fn subject(&self) -> Subject {
        let details = self.details.as_ref();
        Subject {
            family: self.family,
            local: self.local,
            remote: self.remote,
            interface: self.interface,
            mark: details.map_or(0, |details| details.mark),
            is_automatic: details.is_none_or(|details| details.is_automatic),
        }
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

/// A request for sockets of the Unix domain: for a list, or for one by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixAsked {
    /// The protocol, which is 0.
    pub protocol: u8,
    /// A bit for each state that is wanted.
    pub states: u32,
    /// The number of the inode of the one that is wanted.
    pub inode: u32,
    /// What is wanted of each ([`show`]).
    pub show: u32,
    /// The SO_COOKIE of the one that is wanted, or [`ANY_COOKIE`].
    pub cookie: u64,
}

impl UnixAsked {
    /// Reads a request. `None` if it is too short.
    pub fn read(request: &Request<'_>) -> Option<Self> {
        let (fixed, _) = request.parts::<UnixFixed>()?;
        Some(Self {
            protocol: fixed.protocol,
            states: fixed.states,
            inode: fixed.inode,
            show: fixed.show,
            cookie: u64::from(fixed.cookie[1]) << 32 | u64::from(fixed.cookie[0]),
        })
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
    /// Its memory.
    pub memory: Option<Memory>,
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
            if let Some(memory) = &self.memory {
                body.attribute(UNIX_MEMORY, memory.as_bytes())?;
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
        bytes[72..76].copy_from_slice(&[4, 0, 1, 0]);
        bytes[76..80].copy_from_slice(&[4, 0, 99, 0]);
        let asked = InetAsked::read(&Requests::new(&bytes).next().unwrap()).unwrap();
        assert!(asked.program == Some(&[]) && asked.protocol == 6);
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
            raw: None,
            details: None,
        };
        let mut buffer = [0; 128];
        let mut writer = Writer::new(&mut buffer);
        socket.write(&mut writer, Header::default(), Extent::default()).unwrap();
        assert_eq!(writer.length(), 16 + 72);
        assert_eq!(buffer[20..24], [0, 80, 0, 80]);
        assert_eq!(buffer[34..40], [0xff, 0xff, 127, 0, 0, 1]);
        assert_eq!(buffer[60..68], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(buffer[84..88], [6, 0, 0, 0]);
    }

    #[test]
    fn extensions_are_told_if_they_are_wanted() {
        let details = InetDetails {
            memory: Memory { receiving: 7, ..Memory::default() },
            algorithm: Some("cubic"),
            information: Some(Box::new([5; INFORMATION])),
            ..InetDetails::default()
        };
        let name = (IpAddr::V4(Ipv4Addr::LOCALHOST), 80);
        let socket = InetSocket {
            family: 2,
            state: 1,
            timer: 0,
            expires: 0,
            retransmits: 0,
            local: name,
            remote: name,
            interface: 0,
            cookie: 1,
            receiving: 0,
            sending: 0,
            user: 0,
            inode: 0,
            raw: None,
            details: Some(details),
        };
        let written = |extensions, is_administrator| {
            let mut buffer = [0; 1024];
            let mut writer = Writer::new(&mut buffer);
            let extent = Extent { extensions, is_administrator };
            socket.write(&mut writer, Header::default(), extent).unwrap();
            let length = writer.length();
            let attributes = crate::attribute::Attributes::new(&buffer[16 + 72..length]);
            attributes.map(|one| (one.kind, one.value.len())).collect::<alloc::vec::Vec<_>>()
        };
        assert_eq!(written(0, false), [(8, 1), (22, 2), (2, INFORMATION)]);
        assert_eq!(written(0, true)[1], (15, 4));
        let all = written(0xff, false);
        let kinds: alloc::vec::Vec<u16> = all.iter().map(|one| one.0).collect();
        assert_eq!(kinds, [8, 5, 17, 22, 1, 7, 2, 4]);
        assert_eq!(all[4..6], [(1, 16), (7, 36)]);
        assert_eq!(all[7], (4, 6));
    }

    #[test]
    fn a_request_names_a_socket() {
        let mut bytes = request(16 + 56);
        bytes[16..20].copy_from_slice(&[10, 6, 0, 0]);
        bytes[24..28].copy_from_slice(&[0, 80, 0, 90]);
        bytes[28 + 10..28 + 16].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        bytes[28 + 31] = 1;
        bytes[64..72].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        let asked = InetAsked::read(&Requests::new(&bytes).next().unwrap()).unwrap();
        assert_eq!(asked.local, ("127.0.0.1".parse().unwrap(), 80));
        assert_eq!(asked.remote, ("::1".parse().unwrap(), 90));
        assert!(asked.is_cookie(2 << 32 | 1) && !asked.is_cookie(1));
    }
}
