//! `/proc/sys/net`: the settings of the network namespace of the process that looks there
//! (Documentation/networking/ip-sysctl.rst of Linux 6.1; net/sysctl_net.c). An open file stays that
//! of its namespace, and holds it. They belong to the root of the user namespace that the namespace
//! belongs to.
//!
//! Constants, and bounds of the memory of all namespaces, are shown in each of them. Linux
//! shows that in the first alone.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_tcp::{Algorithm, Config, Keepalive, SECOND};

use super::text::line;
use super::tree::{self, Item, Listing, Node, ROOT_NUMBER, Subject, What};
use crate::namespace::Handle;
use crate::net::config::Network;
use crate::net::memory::{self, Pool};
use crate::process;
use crate::process::numbers;
use crate::vfs::inode::{DirectorySink, Inode};

/// A setting that shows what is compiled in.
macro_rules! constant {
    ($name:literal, $value:expr) => {
        Item { name: $name, what: What::Text(|_, out| line(out, format_args!("{}", $value))) }
    };
}

/// A namespace, as the subject of the files.
#[derive(Clone)]
struct Own(Handle<Network>);

impl Subject for Own {
    fn owner(&self, _: bool) -> (u32, u32) {
        let user = &self.0.owner;
        (user.user(0).unwrap_or(0), user.group(0).unwrap_or(0))
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn is_fixed(&self) -> bool {
        self.0.is_first()
    }

    fn seed(&self) -> u64 {
        self.0.key
    }
}

/// The directory.
pub struct Settings;

impl Listing<()> for Settings {
    fn lookup(&self, _: &(), device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let item = tree::find(ITEMS, name).ok_or(Errno::ENOENT)?;
        let own = Own(process::current().network());
        Ok(Node::entry(own, &item.what, device, ROOT_NUMBER, name))
    }

    fn list(&self, _: &(), position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        tree::list(ITEMS, 2, position, sink);
        Ok(())
    }
}

static ITEMS: &[Item<Own>] = &[
    Item { name: "core", what: What::Directory(CORE) },
    Item { name: "ipv4", what: What::Directory(IPV4) },
    Item { name: "ipv6", what: What::Directory(IPV6) },
    Item { name: "unix", what: What::Directory(UNIX) },
];

static CORE: &[Item<Own>] = &[
    constant!("rmem_default", crate::vfs::socket_options::RECEIVE_DEFAULT),
    constant!("rmem_max", crate::vfs::socket_options::RECEIVE_DEFAULT),
    Item { name: "somaxconn", what: What::Setting(backlog, set_backlog) },
    constant!("wmem_default", crate::vfs::socket_options::SEND_DEFAULT),
    constant!("wmem_max", crate::vfs::socket_options::SEND_DEFAULT),
];

static UNIX: &[Item<Own>] =
    &[constant!("max_dgram_qlen", crate::ipc::unix::endpoint::QUEUE_DATAGRAMS)];

/// The items of `/proc/sys/net/ipv4`.
static IPV4: &[Item<Own>] = &[
    constant!("icmp_echo_ignore_all", 0),
    constant!("icmp_echo_ignore_broadcasts", 1),
    Item {
        name: "igmp_max_msf",
        what: What::Setting(
            |own, out| line(out, format_args!("{}", own.0.settings.most_sources(true))),
            |own, text| set_most_sources(own, true, text),
        ),
    },
    Item {
        name: "ip_default_ttl",
        what: What::Setting(
            |own, out| line(out, format_args!("{}", own.0.settings.default_ttl())),
            |own, text| {
                let [ttl] = words(text)?;
                let ttl = u8::try_from(ttl).map_err(|_| Errno::EINVAL)?;
                if own.0.settings.set_default_ttl(ttl) { Ok(()) } else { Err(Errno::EINVAL) }
            },
        ),
    },
    constant!("ip_forward", 0),
    Item { name: "ip_local_port_range", what: What::Setting(port_range, set_port_range) },
    Item {
        name: "ip_unprivileged_port_start",
        what: What::Setting(
            |own, out| line(out, format_args!("{}", own.0.settings.unprivileged_start())),
            |own, text| {
                let [port] = words(text)?;
                let port = u16::try_from(port).map_err(|_| Errno::EINVAL)?;
                own.0.settings.set_unprivileged_start(port);
                Ok(())
            },
        ),
    },
    Item {
        name: "ipfrag_time",
        what: What::Setting(
            |own, out| line(out, format_args!("{}", own.0.settings.fragment_seconds(true))),
            |own, text| {
                let [seconds] = words(text)?;
                own.0.settings.set_fragment_seconds(true, seconds);
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
            |own, out| line(out, format_args!("{}", own.0.settings.algorithm().name())),
            |own, text| {
                let algorithm = Algorithm::from_name(text.trim_ascii()).ok_or(Errno::ENOENT)?;
                own.0.settings.set_algorithm(algorithm);
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
            |own, out| line(out, format_args!("{}", own.0.settings.most_begun())),
            |own, text| {
                let [most] = words(text)?;
                own.0.settings.set_most_begun(most);
                Ok(())
            },
        ),
    },
    Item {
        name: "tcp_mem",
        what: What::Setting(
            |_, out| bounds(&memory::TCP, out),
            |own, text| set_bounds(own, &memory::TCP, text),
        ),
    },
    Item { name: "tcp_rmem", what: What::Text(|_, out| receive_memory(out)) },
    constant!("tcp_sack", i32::from(Config::default().sack)),
    constant!("tcp_syn_retries", Config::default().syn_retries),
    constant!("tcp_synack_retries", Config::default().synack_retries),
    constant!("tcp_syncookies", 1),
    constant!("tcp_timestamps", i32::from(Config::default().timestamps)),
    constant!("tcp_window_scaling", i32::from(Config::default().window_scaling)),
    Item { name: "tcp_wmem", what: What::Text(|_, out| send_memory(out)) },
    Item {
        name: "udp_mem",
        what: What::Setting(
            |_, out| bounds(&memory::UDP, out),
            |own, text| set_bounds(own, &memory::UDP, text),
        ),
    },
];

/// The items of `/proc/sys/net/ipv6`.
static IPV6: &[Item<Own>] = &[
    constant!("bindv6only", 0),
    Item {
        name: "ip6frag_time",
        what: What::Setting(
            |own, out| line(out, format_args!("{}", own.0.settings.fragment_seconds(false))),
            |own, text| {
                let [seconds] = words(text)?;
                own.0.settings.set_fragment_seconds(false, seconds);
                Ok(())
            },
        ),
    },
    Item {
        name: "mld_max_msf",
        what: What::Setting(
            |own, out| line(out, format_args!("{}", own.0.settings.most_sources(false))),
            |own, text| set_most_sources(own, false, text),
        ),
    },
    Item { name: "route", what: What::Directory(ROUTE_V6) },
];

static ROUTE_V4: &[Item<Own>] = &[
    Item {
        name: "min_pmtu",
        what: What::Setting(
            |own, out| line(out, format_args!("{}", own.0.settings.least_path_mtu())),
            |own, text| {
                let [bytes] = words(text)?;
                if own.0.settings.set_least_path_mtu(bytes) { Ok(()) } else { Err(Errno::EINVAL) }
            },
        ),
    },
    Item {
        name: "mtu_expires",
        what: What::Setting(
            |own, out| line(out, format_args!("{}", own.0.settings.path_mtu_seconds(true))),
            |own, text| set_path_mtu_seconds(own, true, text),
        ),
    },
];

static ROUTE_V6: &[Item<Own>] = &[Item {
    name: "mtu_expires",
    what: What::Setting(
        |own, out| line(out, format_args!("{}", own.0.settings.path_mtu_seconds(false))),
        |own, text| set_path_mtu_seconds(own, false, text),
    ),
}];

fn set_most_sources(own: &Own, v4: bool, text: &[u8]) -> Result<()> {
    let [most] = words(text)?;
    // An `int` (`proc_dointvec`); below zero nothing would be bounded.
    i32::try_from(most).map_err(|_| Errno::EINVAL)?;
    own.0.settings.set_most_sources(v4, most);
    Ok(())
}

fn set_path_mtu_seconds(own: &Own, v4: bool, text: &[u8]) -> Result<()> {
    let [seconds] = words(text)?;
    own.0.settings.set_path_mtu_seconds(v4, seconds);
    Ok(())
}

/// `net.core.somaxconn`.
fn backlog(own: &Own, out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{}", own.0.settings.most_backlog()))
}

/// Sets it.
fn set_backlog(own: &Own, text: &[u8]) -> Result<()> {
    let [most] = words(text)?;
    // An `int` (`proc_dointvec_minmax`).
    if i32::try_from(most).is_err() {
        return Err(Errno::EINVAL);
    }
    own.0.settings.set_most_backlog(most);
    Ok(())
}

/// Splits a text into numbers.
fn words<const N: usize>(text: &[u8]) -> Result<[u32; N]> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let mut each = text.split_ascii_whitespace().map(|word| word.parse().ok());
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = each.next().flatten().ok_or(Errno::EINVAL)?;
    }
    if each.next().is_some() { Err(Errno::EINVAL) } else { Ok(numbers) }
}

fn bounds(pool: &Pool, out: &mut Vec<u8>) -> Result<()> {
    let [low, middle, most] = pool.bounds();
    line(out, format_args!("{low}\t{middle}\t{most}"))
}

/// Memory is bounded for all namespaces together: from another one nobody sets it.
fn set_bounds(own: &Own, pool: &Pool, text: &[u8]) -> Result<()> {
    if !own.0.is_first() {
        return Err(Errno::EPERM);
    }
    pool.set_bounds(words(text)?.map(|pages: u32| pages as usize));
    Ok(())
}

fn port_range(own: &Own, out: &mut Vec<u8>) -> Result<()> {
    let (low, high) = own.0.settings.port_range();
    line(out, format_args!("{low}\t{high}"))
}

fn set_port_range(own: &Own, text: &[u8]) -> Result<()> {
    let [low, high] = words(text)?.map(|port| u16::try_from(port).map_err(|_| Errno::EINVAL));
    if own.0.settings.set_port_range(low?, high?) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn ping_groups(own: &Own, out: &mut Vec<u8>) -> Result<()> {
    let (first, last) = own.0.settings.ping_groups();
    let (first, last) = (numbers::shown_group(first), numbers::shown_group(last));
    line(out, format_args!("{first}\t{last}"))
}

fn set_ping_groups(own: &Own, text: &[u8]) -> Result<()> {
    let [first, last] = words(text)?;
    let (first, last) = (numbers::group(first)?, numbers::group(last)?);
    // A range the wrong way round is nobody's (`set_ping_group_range`).
    let (first, last) = if first > last { (1, 0) } else { (first, last) };
    own.0.settings.set_ping_groups(first, last);
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
