//! netlink-packet-route reads the messages that this crate writes, and this crate reads its.

use std::net::IpAddr;

use hayate_netlink::message::{Header, Request, Requests, Writer, flag, kind as kinds};
use hayate_netlink::route::{self, Address, Link, Neighbour, Route, kind};
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage as Theirs;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use proptest::prelude::*;

fn header(kind: u16) -> Header {
    Header { kind, flags: flag::MULTI, sequence: 7, port: 99, length: 0 }
}

/// Lets the other crate read the one message that `write` writes.
fn read_by_them(
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), hayate_netlink::Full>,
) -> NetlinkMessage<Theirs> {
    let mut buffer = [0xaa; 4096];
    let mut writer = Writer::new(&mut buffer);
    write(&mut writer).unwrap();
    let length = writer.length();
    assert_eq!(length % 4, 0);
    let message = NetlinkMessage::<Theirs>::deserialize(&buffer[..length]).unwrap();
    assert_eq!(message.header.sequence_number, 7);
    assert_eq!(message.header.port_number, 99);
    message
}

fn inner(message: NetlinkMessage<Theirs>) -> Theirs {
    match message.payload {
        NetlinkPayload::InnerMessage(inner) => inner,
        other => panic!("{other:?}"),
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

proptest! {
    #[test]
    fn links(index in 1..i32::MAX as u32, name in "[a-z]{1,15}", mtu: u32, hardware: [u8; 6], passed: u64) {
        let mut link = Link {
            index, mtu, hardware, hardware_type: 1, flags: 0x1043,
            name: route::link::Name::try_from(name.as_bytes()).unwrap(),
            state: route::link::state::UP, queue: "noqueue", queue_length: 1000,
            ..Link::default()
        };
        link.statistics.bytes_in = passed;
        let Theirs::NewLink(read) =
            inner(read_by_them(|writer| link.write(writer, header(kind::NEWLINK), 0)))
        else { panic!("not a link") };
        prop_assert_eq!(read.header.index, index);
        prop_assert_eq!(read.header.flags.bits(), 0x1043);
        prop_assert!(read.attributes.contains(&LinkAttribute::IfName(name)));
        prop_assert!(read.attributes.contains(&LinkAttribute::Mtu(mtu)));
        prop_assert!(read.attributes.contains(&LinkAttribute::TxQueueLen(1000)));
        prop_assert!(read.attributes.contains(&LinkAttribute::Carrier(1)));
        prop_assert!(read.attributes.contains(&LinkAttribute::Qdisc("noqueue".into())));
        prop_assert!(read.attributes.contains(&LinkAttribute::Address(hardware.to_vec())));
        let stats = read.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats.rx_bytes),
            _ => None,
        });
        prop_assert_eq!(stats, Some(passed));
        let stats = read.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats(stats) => Some(stats.rx_bytes),
            _ => None,
        });
        prop_assert_eq!(stats, Some(passed as u32));
    }

    #[test]
    fn addresses(index: u32, ip in address(), prefix in 0..=32u8, flags: u32, valid: u32) {
        let own = Address {
            index, address: ip, prefix, scope: 253, flags, broadcast: Some([10, 0, 0, 255].into()),
            label: Some(route::link::Name::try_from(&b"eth0"[..]).unwrap()),
            preferred: 5, valid, made: 1, changed: 2,
        };
        let Theirs::NewAddress(read) =
            inner(read_by_them(|writer| own.write(writer, header(kind::NEWADDR))))
        else { panic!("not an address") };
        prop_assert_eq!(read.header.index, index);
        prop_assert_eq!(read.header.prefix_len, prefix);
        prop_assert!(read.attributes.contains(&AddressAttribute::Address(ip)));
        prop_assert_eq!(read.attributes.contains(&AddressAttribute::Local(ip)), ip.is_ipv4());
        prop_assert!(read.attributes.contains(&AddressAttribute::Broadcast([10, 0, 0, 255].into())));
        prop_assert!(read.attributes.contains(&AddressAttribute::Label("eth0".into())));
        let times = read.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::CacheInfo(info) => Some((info.ifa_preferred, info.ifa_valid)),
            _ => None,
        });
        prop_assert_eq!(times, Some((5, valid)));
    }

    #[test]
    fn routes(to in address(), prefix in 1..=32u8, next in address(), interface in 1..u32::MAX, table: u32, metric in 1..u32::MAX) {
        let way = Route {
            destination: to, prefix, gateway: Some(next), interface, table,
            protocol: route::route::protocol::STATIC, scope: 0, kind: 1, flags: 0,
            source: None, metric, user: None,
        };
        // The other crate reads an address in the family of the message.
        prop_assume!(to.is_ipv4() == next.is_ipv4());
        let Theirs::NewRoute(read) =
            inner(read_by_them(|writer| way.write(writer, header(kind::NEWROUTE))))
        else { panic!("not a route") };
        let ip = |ip| match ip {
            IpAddr::V4(v4) => RouteAddress::Inet(v4),
            IpAddr::V6(v6) => RouteAddress::Inet6(v6),
        };
        prop_assert_eq!(read.header.destination_prefix_length, prefix);
        prop_assert_eq!(u32::from(read.header.table), if table < 256 { table } else { 252 });
        prop_assert!(read.attributes.contains(&RouteAttribute::Destination(ip(to))));
        prop_assert!(read.attributes.contains(&RouteAttribute::Gateway(ip(next))));
        prop_assert!(read.attributes.contains(&RouteAttribute::Oif(interface)));
        prop_assert!(read.attributes.contains(&RouteAttribute::Priority(metric)));
        prop_assert!(read.attributes.contains(&RouteAttribute::Table(table)));
    }

    #[test]
    fn neighbours(index in 1..i32::MAX as u32, ip in address(), hardware: [u8; 6]) {
        let neighbour = Neighbour {
            index, address: ip, hardware: Some(hardware), state: 2, flags: 0, kind: 1, probes: 3,
            ages: [4, 5, 6],
        };
        let Theirs::NewNeighbour(read) =
            inner(read_by_them(|writer| neighbour.write(writer, header(kind::NEWNEIGH))))
        else { panic!("not a neighbour") };
        let theirs = match ip {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        };
        prop_assert_eq!(read.header.ifindex, index);
        prop_assert!(read.attributes.contains(&NeighbourAttribute::Destination(theirs)));
        prop_assert!(read.attributes.contains(&NeighbourAttribute::LinkLayerAddress(hardware.to_vec())));
        prop_assert!(read.attributes.contains(&NeighbourAttribute::Probes(3)));
    }

    #[test]
    fn requests_are_read(index in 1..i32::MAX as u32, name in "[a-z]{1,15}", mtu: u32, to: [u8; 4], oif: u32, table: u32) {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.attributes.push(LinkAttribute::IfName(name.clone()));
        link.attributes.push(LinkAttribute::Mtu(mtu));
        let mut way = RouteMessage::default();
        way.header.destination_prefix_length = 24;
        way.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(to.into())));
        way.attributes.push(RouteAttribute::Oif(oif));
        way.attributes.push(RouteAttribute::Table(table));
        let mut bytes = Vec::new();
        for (sequence, message) in [Theirs::SetLink(link), Theirs::NewRoute(way)].into_iter().enumerate() {
            let mut message = NetlinkMessage::from(message);
            message.header.sequence_number = sequence as u32;
            message.finalize();
            let mut buffer = vec![0; message.buffer_len()];
            message.serialize(&mut buffer);
            bytes.append(&mut buffer);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let requests: Vec<Request<'_>> = Requests::new(&bytes).collect();
        prop_assert_eq!(requests.len(), 2);
        prop_assert_eq!(requests[0].header.kind, kind::SETLINK);
        let asked = route::link::Asked::read(&requests[0]).unwrap();
        prop_assert_eq!(asked.fixed.index as u32, index);
        prop_assert_eq!(asked.name.as_deref(), Some(name.as_bytes()));
        prop_assert_eq!(asked.mtu, Some(mtu));
        prop_assert_eq!(requests[1].header.sequence, 1);
        let asked = route::route::Asked::read(&requests[1]).unwrap();
        prop_assert_eq!(asked.destination, Some(IpAddr::from(to)));
        prop_assert_eq!(asked.fixed.destination_prefix, 24);
        prop_assert_eq!(asked.interface, Some(oif));
        prop_assert_eq!(asked.table, table);
    }
}

#[test]
fn acknowledgements_show_the_request() {
    let mut request = Vec::from([0; 20]);
    request[..4].copy_from_slice(&20u32.to_ne_bytes());
    request[4..6].copy_from_slice(&kind::GETLINK.to_ne_bytes());
    request[8..12].copy_from_slice(&7u32.to_ne_bytes());
    let read = Requests::new(&request).next().unwrap();
    for (error, capped, length) in [(-19, false, 40), (-19, true, 36), (0, false, 36)] {
        let mut buffer = [0xaa; 64];
        let mut writer = Writer::new(&mut buffer);
        writer.acknowledge(&read, 99, error, capped).unwrap();
        assert_eq!(writer.length(), length);
        let message = NetlinkMessage::<Theirs>::deserialize(&buffer[..length]).unwrap();
        assert_eq!(message.header.port_number, 99);
        match message.payload {
            NetlinkPayload::Error(told) => {
                assert_eq!(told.code.map_or(0, i32::from), error);
                assert_eq!(told.header[..16], request[..16]);
            }
            other => panic!("{other:?}"),
        }
    }
    let mut buffer = [0; 20];
    Writer::new(&mut buffer).done(header(0), 0).unwrap();
    assert_eq!(buffer[4..6], kinds::DONE.to_ne_bytes());
}
