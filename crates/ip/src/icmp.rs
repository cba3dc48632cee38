//! The errors that ICMP reports, as Linux tells programs of them (`icmp_err_convert` in
//! net/ipv4/icmp.c, `icmpv6_err_convert` in net/ipv6/icmp.c of Linux 6.1).

/// ICMP types.
pub mod v4 {
    #![allow(missing_docs, reason = "named as in RFC 792")]
    pub const ECHO_REPLY: u8 = 0;
    pub const UNREACHABLE: u8 = 3;
    pub const ECHO: u8 = 8;
    pub const TIME_EXCEEDED: u8 = 11;
    pub const PARAMETER_PROBLEM: u8 = 12;
    pub const TIMESTAMP: u8 = 13;
    pub const TIMESTAMP_REPLY: u8 = 14;
    /// Code of [`UNREACHABLE`].
    pub const PROTOCOL: u8 = 2;
    /// Code of [`UNREACHABLE`].
    pub const PORT: u8 = 3;
    /// Code of [`UNREACHABLE`].
    pub const TOO_BIG: u8 = 4;
}

/// ICMPv6 types.
pub mod v6 {
    #![allow(missing_docs, reason = "named as in RFC 4443")]
    pub const UNREACHABLE: u8 = 1;
    pub const TOO_BIG: u8 = 2;
    pub const TIME_EXCEEDED: u8 = 3;
    pub const PARAMETER_PROBLEM: u8 = 4;
    pub const ECHO: u8 = 128;
    pub const ECHO_REPLY: u8 = 129;
    /// Code of [`UNREACHABLE`].
    pub const PORT: u8 = 4;
    /// Code of [`PARAMETER_PROBLEM`]: the next header is not known.
    pub const NEXT_HEADER: u8 = 1;
}

/// Why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// `ENETUNREACH`.
    NetworkUnreachable,
    /// `EHOSTUNREACH`.
    HostUnreachable,
    /// `ENOPROTOOPT`.
    NoProtocol,
    /// `ECONNREFUSED`.
    Refused,
    /// `EMSGSIZE`: the packet is too big for the path, which takes this many bytes (0: unknown).
    TooBig(u32),
    /// `EOPNOTSUPP`: the source route failed.
    SourceRoute,
    /// `EHOSTDOWN`.
    HostDown,
    /// `ENONET`.
    Isolated,
    /// `EACCES`.
    Forbidden,
    /// `EPROTO`.
    Protocol,
}

/// Reads type, code and the rest of the header of an IPv4 error: the failure, and whether it is
/// final. `None`: the message is no error.
pub fn failure_v4(kind: u8, code: u8, rest: [u8; 4]) -> Option<(Failure, bool)> {
    use Failure::{
        HostDown, HostUnreachable, Isolated, NetworkUnreachable, NoProtocol, Protocol, Refused,
        SourceRoute, TooBig,
    };
    let mtu = u32::from(u16::from_be_bytes([rest[2], rest[3]]));
    Some(match (kind, code) {
        (v4::UNREACHABLE, 0 | 11) => (NetworkUnreachable, false),
        (v4::UNREACHABLE, 1 | 12) => (HostUnreachable, false),
        (v4::UNREACHABLE, v4::PROTOCOL) => (NoProtocol, true),
        (v4::UNREACHABLE, v4::PORT) => (Refused, true),
        (v4::UNREACHABLE, v4::TOO_BIG) => (TooBig(mtu), false),
        (v4::UNREACHABLE, 5) => (SourceRoute, false),
        (v4::UNREACHABLE, 6 | 9) => (NetworkUnreachable, true),
        (v4::UNREACHABLE, 7) => (HostDown, true),
        (v4::UNREACHABLE, 8) => (Isolated, true),
        (v4::UNREACHABLE, 10 | 13..=15) => (HostUnreachable, true),
        (v4::TIME_EXCEEDED, _) => (HostUnreachable, false),
        (v4::PARAMETER_PROBLEM, _) => (Protocol, true),
        _ => return None,
    })
}

/// The same for IPv6.
pub fn failure_v6(kind: u8, code: u8, rest: [u8; 4]) -> Option<(Failure, bool)> {
    use Failure::{Forbidden, HostUnreachable, NetworkUnreachable, Protocol, Refused, TooBig};
    Some(match (kind, code) {
        (v6::UNREACHABLE, 0) => (NetworkUnreachable, false),
        (v6::UNREACHABLE, 1 | 5 | 6) => (Forbidden, true),
        (v6::UNREACHABLE, 2 | 3) => (HostUnreachable, false),
        (v6::UNREACHABLE, v6::PORT) => (Refused, true),
        (v6::UNREACHABLE, _) => (Protocol, false),
        (v6::TOO_BIG, _) => (TooBig(u32::from_be_bytes(rest)), false),
        (v6::TIME_EXCEEDED, _) => (HostUnreachable, false),
        (v6::PARAMETER_PROBLEM, _) => (Protocol, true),
        _ => return None,
    })
}

/// Whether a type is one of an error, to which no error is sent (RFC 1122, 3.2.2; RFC 4443, 2.4).
pub fn is_error(v4: bool, kind: u8) -> bool {
    if v4 { matches!(kind, 3 | 4 | 5 | 11 | 12) } else { kind < 128 }
}
