//! `/proc/PID/net`: the parts of the network namespace of a process (proc_pid_net(5)). `/proc/net`
//! leads to that of the reader.
//!
//! The lists of sockets are in [`sockets`], what was counted is in [`network_counts`], groups are
//! in [`groups`].

use alloc::vec::Vec;

use hayate_abi::Result;

use super::target::Target;
use super::text::{line, put};
use super::tree::{Item, What};
use super::{groups, network_counts, sockets};
use crate::net::config::Network;
use crate::net::{neighbour, report};

/// The items of `/proc/PID/net`.
pub static ITEMS: &[Item<Target>] = &[
    Item { name: "arp", what: What::Text(|target, out| arp(&*target.network()?, out)) },
    Item { name: "dev", what: What::Text(|target, out| devices(&*target.network()?, out)) },
    Item { name: "icmp", what: What::Text(sockets::ICMP) },
    Item { name: "icmp6", what: What::Text(sockets::ICMP_V6) },
    Item {
        name: "if_inet6",
        what: What::Text(|target, out| addresses_v6(&*target.network()?, out)),
    },
    Item { name: "igmp", what: What::Text(groups::igmp) },
    Item { name: "igmp6", what: What::Text(groups::igmp_v6) },
    Item { name: "mcfilter", what: What::Text(groups::filters) },
    Item { name: "mcfilter6", what: What::Text(groups::filters_v6) },
    Item { name: "netlink", what: What::Text(sockets::netlink) },
    Item { name: "netstat", what: What::Text(network_counts::netstat) },
    Item { name: "packet", what: What::Text(sockets::packet) },
    Item { name: "protocols", what: What::Text(network_counts::protocols) },
    Item { name: "raw", what: What::Text(sockets::RAW) },
    Item { name: "raw6", what: What::Text(sockets::RAW_V6) },
    Item { name: "route", what: What::Text(|target, out| routes(&*target.network()?, out)) },
    Item { name: "snmp", what: What::Text(network_counts::snmp) },
    Item { name: "snmp6", what: What::Text(network_counts::snmp_v6) },
    Item { name: "sockstat", what: What::Text(network_counts::sockstat) },
    Item { name: "sockstat6", what: What::Text(network_counts::sockstat_v6) },
    Item { name: "tcp", what: What::Text(sockets::tcp_v4) },
    Item { name: "tcp6", what: What::Text(sockets::tcp_v6) },
    Item { name: "udp", what: What::Text(sockets::UDP) },
    Item { name: "udp6", what: What::Text(sockets::UDP_V6) },
    Item { name: "unix", what: What::Text(sockets::unix) },
];

fn addresses_v6(network: &Network, out: &mut Vec<u8>) -> Result<()> {
    let config = network.current();
    for own in config.addresses.iter().filter(|own| !own.address.is_v4()) {
        let Some(interface) = config.interface(own.interface) else { continue };
        // IPV6_ADDR_LOOPBACK, IPV6_ADDR_LINKLOCAL; IFA_F_PERMANENT.
        let scope = match own.address {
            address if address.is_loopback() => 0x10,
            address if address.is_link_local() => 0x20,
            _ => 0,
        };
        let (bits, prefix, index) = (own.address.bits(), own.prefix, own.interface);
        let name = &interface.name;
        line(out, format_args!("{bits:032x} {index:02x} {prefix:02x} {scope:02x} 80 {name:>8}"))?;
    }
    Ok(())
}

fn devices(network: &Network, out: &mut Vec<u8>) -> Result<()> {
    line(
        out,
        format_args!(
            "Inter-|   Receive                                                |  Transmit"
        ),
    )?;
    put(out, format_args!(" face |bytes    packets errs drop fifo frame compressed multicast|"))?;
    line(out, format_args!("bytes    packets errs drop fifo colls carrier compressed"))?;
    for interface in &network.current().interfaces {
        let passed = report::statistics_of(interface);
        let (bytes, packets, dropped) = (passed.bytes_in, passed.packets_in, passed.dropped_in);
        put(out, format_args!("{:>6}: {bytes:7} {packets:7}    0 {dropped:4}", interface.name))?;
        put(out, format_args!("    0     0          0         0 "))?;
        let (bytes, packets, dropped) = (passed.bytes_out, passed.packets_out, passed.dropped_out);
        put(out, format_args!("{bytes:8} {packets:7}    0 {dropped:4}"))?;
        line(out, format_args!("    0     0       0          0"))?;
    }
    Ok(())
}

fn routes(network: &Network, out: &mut Vec<u8>) -> Result<()> {
    put(out, format_args!("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\t"))?;
    line(
        out,
        format_args!("MTU\tWindow\tIRTT                                                       "),
    )?;
    let config = network.current();
    for route in config.routes.iter() {
        let Some(network) = route.network.to_v4() else { continue };
        // The route of 127.0.0.0/8 is in the local table, which is not shown.
        if route.network.is_loopback() {
            continue;
        }
        let Some(interface) = config.interface(route.interface) else { continue };
        let gateway = route.gateway.and_then(|gateway| gateway.to_v4()).unwrap_or(0);
        let mask = u32::MAX.checked_shl(32 - u32::from(route.prefix)).unwrap_or(0);
        // RTF_UP, RTF_GATEWAY. Addresses are shown as they lie in memory.
        let flags = if route.gateway.is_some() { 3 } else { 1 };
        let [network, gateway, mask] = [network, gateway, mask].map(u32::swap_bytes);
        let (name, metric) = (&interface.name, route.metric);
        put(
            out,
            format_args!("{name}\t{network:08X}\t{gateway:08X}\t{flags:04X}\t0\t0\t{metric}"),
        )?;
        line(out, format_args!("\t{mask:08X}\t0\t0\t0"))?;
    }
    Ok(())
}

fn arp(network: &Network, out: &mut Vec<u8>) -> Result<()> {
    line(
        out,
        format_args!(
            "IP address       HW type     Flags       HW address            Mask     Device"
        ),
    )?;
    // Only the first has links with neighbours.
    if !network.is_first() {
        return Ok(());
    }
    let mut result = Ok(());
    neighbour::for_each(|interface, address, hardware| {
        if address.is_v4() && result.is_ok() {
            let [a, b, c, d, e, f] = hardware.unwrap_or_default();
            let flags = if hardware.is_some() { 2 } else { 0 };
            result = line(
                out,
                format_args!(
                    "{address:<16} 0x1         {flags:#x}         \
                 {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}     *        {}",
                    interface.name,
                ),
            );
        }
    });
    result
}
