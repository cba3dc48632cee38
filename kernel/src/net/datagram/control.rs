//! Control messages of datagrams: the wishes of a sender for one packet, and the facts that a
//! receiver gets with one.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ip::{Address, SocketAddress};
use smallvec::SmallVec;

use super::{Failure, ORIGIN_LOCAL, Received};
use crate::net::ip_options::{IpOptions, SOL_IP, SOL_IPV6, Wishes, ip, ipv6};
use crate::reclaim::growth;
use crate::vfs::socket::ControlMessage;
use crate::vfs::socket_options::{Common, SOL_SOCKET, Switches};

/// `SOL_UDP`.
pub(super) const SOL_UDP: i32 = 17;
/// `UDP_SEGMENT`.
pub(super) const UDP_SEGMENT: i32 = 103;
/// `UDP_GRO`.
pub(super) const UDP_GRO: i32 = 104;
const SO_RXQ_OVFL: i32 = 40;

/// The wishes of a sender for one packet.
#[derive(Default)]
pub(super) struct Marks {
    /// The source address (IP_PKTINFO).
    pub source: Option<Address>,
    /// The interface (IP_PKTINFO), 0 for none.
    interface: u32,
    pub hop_limit: Option<u8>,
    pub traffic_class: Option<u8>,
    /// UDP_SEGMENT.
    pub segment: Option<u16>,
    /// MSG_DONTROUTE.
    pub on_link: bool,
    /// IPV6_DONTFRAG.
    pub dont_fragment: Option<bool>,
}

fn int(message: &ControlMessage) -> Result<i32> {
    message.data.first_chunk().map(|number| i32::from_ne_bytes(*number)).ok_or(Errno::EINVAL)
}

impl Marks {
    /// Reads the control messages of a send. Those of other levels are not this socket's.
    pub(super) fn parse(v6: bool, control: &[ControlMessage]) -> Result<Marks> {
        let mut marks = Marks::default();
        for message in control {
            marks.take(v6, message)?;
        }
        Ok(marks)
    }

    /// Takes one control message.
    fn take(&mut self, v6: bool, message: &ControlMessage) -> Result<()> {
        match (message.level, message.kind) {
            (SOL_IP, ip::PKTINFO) => {
                // struct in_pktinfo: index, source (ipi_spec_dst), destination.
                let (index, rest) = message.data.split_first_chunk().ok_or(Errno::EINVAL)?;
                let source = rest.first_chunk().ok_or(Errno::EINVAL)?;
                if rest.len() < 8 {
                    return Err(Errno::EINVAL);
                }
                self.interface = u32::from_ne_bytes(*index);
                let source = Address::v4(u32::from_be_bytes(*source));
                self.source = (!source.is_any()).then_some(source);
            }
            (SOL_IPV6, ipv6::PKTINFO) if v6 => {
                // struct in6_pktinfo: source, index.
                let (source, rest) = message.data.split_first_chunk().ok_or(Errno::EINVAL)?;
                let index = rest.first_chunk().ok_or(Errno::EINVAL)?;
                self.interface = u32::from_ne_bytes(*index);
                let source = Address::v6(u128::from_be_bytes(*source));
                self.source = (!source.is_any()).then_some(source);
            }
            (SOL_IP, ip::TTL) => {
                let ttl = int(message)?;
                self.hop_limit = Some(u8::try_from(ttl).map_err(|_| Errno::EINVAL)?);
                if ttl == 0 {
                    return Err(Errno::EINVAL);
                }
            }
            (SOL_IP, ip::TOS) => {
                let tos = match message.data[..] {
                    [tos] => i32::from(tos),
                    _ => int(message)?,
                };
                self.traffic_class = Some(u8::try_from(tos).map_err(|_| Errno::EINVAL)?);
            }
            (SOL_IPV6, ipv6::HOPLIMIT) if v6 => {
                let limit = int(message)?;
                self.hop_limit = match limit {
                    -1 => None,
                    _ => Some(u8::try_from(limit).map_err(|_| Errno::EINVAL)?),
                };
            }
            (SOL_IPV6, ipv6::TCLASS) if v6 => {
                let class = int(message)?;
                self.traffic_class = match class {
                    -1 => None,
                    _ => Some(u8::try_from(class).map_err(|_| Errno::EINVAL)?),
                };
            }
            (SOL_IPV6, ipv6::DONTFRAG) if v6 => {
                self.dont_fragment = match int(message)? {
                    on @ (0 | 1) => Some(on == 1),
                    _ => return Err(Errno::EINVAL),
                };
            }
            (SOL_UDP, UDP_SEGMENT) => {
                let size = message.data.first_chunk().ok_or(Errno::EINVAL)?;
                self.segment = Some(u16::from_ne_bytes(*size)).filter(|&size| size != 0);
            }
            // `ip_cmsg_send` refuses what it does not know at its own level.
            (SOL_IP, _) => return Err(Errno::EINVAL),
            (SOL_IPV6, _) if v6 => return Err(Errno::EINVAL),
            _ => {}
        }
        Ok(())
    }

    /// The interface by which a packet for `to` leaves.
    pub(super) fn interface(&self, to: SocketAddress) -> u32 {
        if self.interface == 0 { to.scope } else { self.interface }
    }
}

fn add(list: &mut Vec<ControlMessage>, level: i32, kind: i32, parts: &[&[u8]]) -> Result<()> {
    let mut data = SmallVec::new();
    parts.iter().for_each(|part| data.extend_from_slice(part));
    growth::push(list, ControlMessage { level, kind, data })
}

/// The control messages that come with a datagram.
pub(super) fn report(
    datagram: &Received,
    options: &IpOptions,
    common: &Common,
    drops: u32,
) -> Result<Vec<ControlMessage>> {
    let mut list = Vec::new();
    ControlMessage::report_time(common, datagram.time, &mut list)?;
    if common.has(Switches::LOST) && drops != 0 {
        add(&mut list, SOL_SOCKET, SO_RXQ_OVFL, &[&drops.to_ne_bytes()])?;
    }
    if datagram.segment != 0 && !datagram.payload.is_empty() {
        add(&mut list, SOL_UDP, UDP_GRO, &[&i32::from(datagram.segment).to_ne_bytes()])?;
    }
    let wishes = options.wishes;
    let hop_limit = i32::from(datagram.hop_limit).to_ne_bytes();
    match datagram.to.to_v4() {
        Some(to) => {
            let to = to.to_be_bytes();
            if wishes.contains(Wishes::PACKET_INFO) {
                let index = datagram.interface.to_ne_bytes();
                add(&mut list, SOL_IP, ip::PKTINFO, &[&index, &to, &to])?;
            }
            if wishes.contains(Wishes::TTL) {
                add(&mut list, SOL_IP, ip::TTL, &[&hop_limit])?;
            }
            if wishes.contains(Wishes::TOS) {
                add(&mut list, SOL_IP, ip::TOS, &[&[datagram.traffic_class]])?;
            }
            // An IPv6 socket tells of IPv4 packets as of mapped ones
            // (`ip6_datagram_recv_common_ctl`).
            if wishes.contains(Wishes::PACKET_INFO_V6) {
                let index = datagram.interface.to_ne_bytes();
                add(&mut list, SOL_IPV6, ipv6::PKTINFO, &[&datagram.to.octets(), &index])?;
            }
        }
        None => {
            if wishes.contains(Wishes::PACKET_INFO_V6) {
                let index = datagram.interface.to_ne_bytes();
                add(&mut list, SOL_IPV6, ipv6::PKTINFO, &[&datagram.to.octets(), &index])?;
            }
            if wishes.contains(Wishes::HOP_LIMIT_V6) {
                add(&mut list, SOL_IPV6, ipv6::HOPLIMIT, &[&hop_limit])?;
            }
            if wishes.contains(Wishes::TRAFFIC_CLASS_V6) {
                let class = i32::from(datagram.traffic_class).to_ne_bytes();
                add(&mut list, SOL_IPV6, ipv6::TCLASS, &[&class])?;
            }
        }
    }
    Ok(list)
}

/// The control message about the MTU of a path: `struct ip6_mtuinfo`.
pub(super) fn report_path_mtu(to: SocketAddress, mtu: u32) -> Result<Vec<ControlMessage>> {
    let mut list = Vec::new();
    add(&mut list, SOL_IPV6, ipv6::PATHMTU, &[&to.to_bytes(true), &mtu.to_ne_bytes()])?;
    Ok(list)
}

/// The control message of an error: `struct sock_extended_err` and the reporter's address (ip(7),
/// IP_RECVERR).
pub(super) fn report_failure(failure: &Failure, v6: bool) -> Result<Vec<ControlMessage>> {
    let mut list = Vec::new();
    let head = (failure.errno.number() as u32).to_ne_bytes();
    let bytes = [failure.origin, failure.kind, failure.code, 0];
    let information = failure.information.to_ne_bytes();
    let mut reporter = SocketAddress::new(failure.reporter, 0).to_bytes(v6);
    if failure.origin == ORIGIN_LOCAL {
        // No host reported it.
        reporter.fill(0);
    }
    let parts: [&[u8]; 5] = [&head, &bytes, &information, &[0; 4], &reporter];
    let (level, kind) = if v6 { (SOL_IPV6, ipv6::RECVERR) } else { (SOL_IP, ip::RECVERR) };
    add(&mut list, level, kind, &parts)?;
    Ok(list)
}
