//! `/proc/PID/net` and `/proc/sys/net`: the parts of the network, and its settings
//! (`proc_pid_net(5)`, Documentation/networking/ip-sysctl.rst of Linux 6.1).
//!
//! There is one network, so every process sees the same. The lists of sockets are in
//! [`sockets`], what was counted is in [`network_counts`], groups are in [`groups`].

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_tcp::{Algorithm, Config, Keepalive, SECOND};

use super::target::Target;
use super::text::{line, put};
use super::tree::{Item, What};
use super::{groups, network_counts, sockets};
use crate::net::memory::{self, Pool};
use crate::net::{config, neighbour, report, settings};

/// The items of `/proc/PID/net`.
pub static ITEMS: &[Item<Target>] = &[
    Item { name: "arp", what: What::Text(|_, out| arp(out)) },
    Item { name: "dev", what: What::Text(|_, out| devices(out)) },
    Item { name: "icmp", what: What::Text(sockets::ICMP) },
    Item { name: "icmp6", what: What::Text(sockets::ICMP_V6) },
    Item { name: "if_inet6", what: What::Text(|_, out| addresses_v6(out)) },
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
    Item { name: "route", what: What::Text(|_, out| routes(out)) },
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

/// A setting that shows what is compiled in.
macro_rules! constant {
    ($name:literal, $value:expr) => {
        Item { name: $name, what: What::Text(|(), out| line(out, format_args!("{}", $value))) }
    };
}

/// The items of `/proc/sys/net/ipv4`.
pub static IPV4: &[Item<()>] = &[
    constant!("icmp_echo_ignore_all", 0),
    constant!("icmp_echo_ignore_broadcasts", 1),
    Item {
        name: "igmp_max_msf",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::most_sources(true))),
            |(), text| set_most_sources(true, text),
        ),
    },
    Item {
        name: "ip_default_ttl",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::default_ttl())),
            |(), text| {
                let [ttl] = numbers(text)?;
                let ttl = u8::try_from(ttl).map_err(|_| Errno::EINVAL)?;
                if settings::set_default_ttl(ttl) { Ok(()) } else { Err(Errno::EINVAL) }
            },
        ),
    },
    constant!("ip_forward", 0),
    Item { name: "ip_local_port_range", what: What::Setting(port_range, set_port_range) },
    Item {
        name: "ip_unprivileged_port_start",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::unprivileged_start())),
            |(), text| {
                let [port] = numbers(text)?;
                let port = u16::try_from(port).map_err(|_| Errno::EINVAL)?;
                settings::set_unprivileged_start(port);
                Ok(())
            },
        ),
    },
    Item {
        name: "ipfrag_time",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::fragment_seconds(true))),
            |(), text| {
                let [seconds] = numbers(text)?;
                settings::set_fragment_seconds(true, seconds);
                Ok(())
            },
        ),
    },
    Item { name: "ping_group_range", what: What::Setting(ping_groups, set_ping_groups) },
    Item { name: "route", what: What::Directory(ROUTE_V4) },
    constant!("tcp_allowed_congestion_control", "cubic reno"),
    constant!("tcp_available_congestion_control", "cubic reno"),
    Item {
        name: "tcp_congestion_control",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::algorithm().name())),
            |(), text| {
                let algorithm = Algorithm::from_name(text.trim_ascii()).ok_or(Errno::ENOENT)?;
                settings::set_algorithm(algorithm);
                Ok(())
            },
        ),
    },
    constant!("tcp_fastopen", 0),
    constant!("tcp_fin_timeout", Config::default().fin_timeout / SECOND),
    constant!("tcp_keepalive_intvl", Keepalive::default().interval / SECOND),
    constant!("tcp_keepalive_probes", Keepalive::default().count),
    constant!("tcp_keepalive_time", Keepalive::default().idle / SECOND),
    constant!("tcp_retries2", Config::default().retries),
    Item {
        name: "tcp_max_syn_backlog",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::most_begun())),
            |(), text| {
                let [most] = numbers(text)?;
                settings::set_most_begun(most);
                Ok(())
            },
        ),
    },
    Item {
        name: "tcp_mem",
        what: What::Setting(
            |(), out| bounds(&memory::TCP, out),
            |(), text| set_bounds(&memory::TCP, text),
        ),
    },
    Item { name: "tcp_rmem", what: What::Text(|(), out| receive_memory(out)) },
    constant!("tcp_sack", i32::from(Config::default().sack)),
    constant!("tcp_syn_retries", Config::default().syn_retries),
    constant!("tcp_synack_retries", Config::default().synack_retries),
    constant!("tcp_syncookies", 1),
    constant!("tcp_timestamps", i32::from(Config::default().timestamps)),
    constant!("tcp_window_scaling", i32::from(Config::default().window_scaling)),
    Item { name: "tcp_wmem", what: What::Text(|(), out| send_memory(out)) },
    Item {
        name: "udp_mem",
        what: What::Setting(
            |(), out| bounds(&memory::UDP, out),
            |(), text| set_bounds(&memory::UDP, text),
        ),
    },
];

/// The items of `/proc/sys/net/ipv6`.
pub static IPV6: &[Item<()>] = &[
    constant!("bindv6only", 0),
    Item {
        name: "ip6frag_time",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::fragment_seconds(false))),
            |(), text| {
                let [seconds] = numbers(text)?;
                settings::set_fragment_seconds(false, seconds);
                Ok(())
            },
        ),
    },
    Item {
        name: "mld_max_msf",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::most_sources(false))),
            |(), text| set_most_sources(false, text),
        ),
    },
    Item { name: "route", what: What::Directory(ROUTE_V6) },
];

static ROUTE_V4: &[Item<()>] = &[
    Item {
        name: "min_pmtu",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::least_path_mtu())),
            |(), text| {
                let [bytes] = numbers(text)?;
                if settings::set_least_path_mtu(bytes) { Ok(()) } else { Err(Errno::EINVAL) }
            },
        ),
    },
    Item {
        name: "mtu_expires",
        what: What::Setting(
            |(), out| line(out, format_args!("{}", settings::path_mtu_seconds(true))),
            |(), text| set_path_mtu_seconds(true, text),
        ),
    },
];

static ROUTE_V6: &[Item<()>] = &[Item {
    name: "mtu_expires",
    what: What::Setting(
        |(), out| line(out, format_args!("{}", settings::path_mtu_seconds(false))),
        |(), text| set_path_mtu_seconds(false, text),
    ),
}];

fn set_most_sources(v4: bool, text: &[u8]) -> Result<()> {
    let [most] = numbers(text)?;
    // An `int` (`proc_dointvec`); below zero nothing would be bounded.
    i32::try_from(most).map_err(|_| Errno::EINVAL)?;
    settings::set_most_sources(v4, most);
    Ok(())
}

fn set_path_mtu_seconds(v4: bool, text: &[u8]) -> Result<()> {
    let [seconds] = numbers(text)?;
    settings::set_path_mtu_seconds(v4, seconds);
    Ok(())
}

/// `net.core.somaxconn`.
pub fn backlog((): &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{}", settings::most_backlog()))
}

/// Sets it.
pub fn set_backlog((): &(), text: &[u8]) -> Result<()> {
    let [most] = numbers(text)?;
    // An `int` (`proc_dointvec_minmax`).
    if i32::try_from(most).is_err() {
        return Err(Errno::EINVAL);
    }
    settings::set_most_backlog(most);
    Ok(())
}

/// Splits a text into numbers.
fn numbers<const N: usize>(text: &[u8]) -> Result<[u32; N]> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let mut words = text.split_ascii_whitespace().map(|word| word.parse().ok());
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = words.next().flatten().ok_or(Errno::EINVAL)?;
    }
    if words.next().is_some() { Err(Errno::EINVAL) } else { Ok(numbers) }
}

fn bounds(pool: &Pool, out: &mut Vec<u8>) -> Result<()> {
    let [low, middle, most] = pool.bounds();
    line(out, format_args!("{low}\t{middle}\t{most}"))
}

fn set_bounds(pool: &Pool, text: &[u8]) -> Result<()> {
    pool.set_bounds(numbers(text)?.map(|pages: u32| pages as usize));
    Ok(())
}

fn port_range((): &(), out: &mut Vec<u8>) -> Result<()> {
    let (low, high) = settings::port_range();
    line(out, format_args!("{low}\t{high}"))
}

fn set_port_range((): &(), text: &[u8]) -> Result<()> {
    let [low, high] = numbers(text)?.map(|port| u16::try_from(port).map_err(|_| Errno::EINVAL));
    if settings::set_port_range(low?, high?) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn ping_groups((): &(), out: &mut Vec<u8>) -> Result<()> {
    let (first, last) = settings::ping_groups();
    line(out, format_args!("{first}\t{last}"))
}

fn set_ping_groups((): &(), text: &[u8]) -> Result<()> {
    let [first, last] = numbers(text)?;
    // A range the wrong way round is nobody's (`set_ping_group_range`).
    let (first, last) = if first > last { (1, 0) } else { (first, last) };
    settings::set_ping_groups(first, last);
    Ok(())
}

fn receive_memory(out: &mut Vec<u8>) -> Result<()> {
    let config = Config::default();
    let (first, most) = (config.receive_limit * 2, config.receive_limit_max * 2);
    line(out, format_args!("4096\t{first}\t{most}"))
}

fn send_memory(out: &mut Vec<u8>) -> Result<()> {
    let most = Config::default().send_limit_max;
    line(out, format_args!("4096\t{}\t{most}", crate::net::tcp::SEND_DEFAULT))
}

fn addresses_v6(out: &mut Vec<u8>) -> Result<()> {
    let config = config::current();
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

fn devices(out: &mut Vec<u8>) -> Result<()> {
    line(
        out,
        format_args!(
            "Inter-|   Receive                                                |  Transmit"
        ),
    )?;
    put(out, format_args!(" face |bytes    packets errs drop fifo frame compressed multicast|"))?;
    line(out, format_args!("bytes    packets errs drop fifo colls carrier compressed"))?;
    for interface in &config::current().interfaces {
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

fn routes(out: &mut Vec<u8>) -> Result<()> {
    put(out, format_args!("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\t"))?;
    line(
        out,
        format_args!("MTU\tWindow\tIRTT                                                       "),
    )?;
    let config = config::current();
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

fn arp(out: &mut Vec<u8>) -> Result<()> {
    line(
        out,
        format_args!(
            "IP address       HW type     Flags       HW address            Mask     Device"
        ),
    )?;
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
