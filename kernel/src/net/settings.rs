//! The settings of the network that `/proc/sys/net` shows and lets root change. Defaults are those
//! of Linux 6.1 (Documentation/networking/ip-sysctl.rst).

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use hayate_tcp::Algorithm;

use super::ports::DEFAULT_RANGE;

/// `net.ipv4.ip_local_port_range`: the two ports, in one word so that they are read together.
static PORT_RANGE: AtomicU32 =
    AtomicU32::new((DEFAULT_RANGE.0 as u32) << 16 | DEFAULT_RANGE.1 as u32);
/// `net.ipv4.ip_unprivileged_port_start`.
static UNPRIVILEGED: AtomicU32 = AtomicU32::new(1024);
/// `net.ipv4.ping_group_range`: first and last group. The default, 1 and 0, means nobody.
static PING_GROUPS: AtomicU64 = AtomicU64::new(1 << 32);
/// `net.core.somaxconn`.
static BACKLOG: AtomicU32 = AtomicU32::new(4096);

/// `net.ipv4.ip_default_ttl`.
static TTL: AtomicU8 = AtomicU8::new(64);
/// `net.ipv4.tcp_max_syn_backlog`.
static BEGUN: AtomicU32 = AtomicU32::new(4096);
/// `net.ipv4.tcp_congestion_control`: whether it is reno and not cubic.
static RENO: AtomicBool = AtomicBool::new(false);
/// `net.ipv4.ipfrag_time` and `net.ipv6.ip6frag_time`, in seconds.
static FRAGMENT_TIMES: [AtomicU32; 2] = [AtomicU32::new(30), AtomicU32::new(60)];

/// `net.ipv4.route.mtu_expires` and `net.ipv6.route.mtu_expires`, in seconds.
static PATH_MTU_TIMES: [AtomicU32; 2] = [const { AtomicU32::new(600) }; 2];
/// `net.ipv4.route.min_pmtu`.
static LEAST_PATH_MTU: AtomicU32 = AtomicU32::new(552);

/// `net.ipv4.igmp_max_msf` and `net.ipv6.mld_max_msf`: the most sources of a group's filter.
static MOST_SOURCES: [AtomicU32; 2] = [AtomicU32::new(10), AtomicU32::new(64)];

/// Returns the most sources that a socket's filter of a group may have.
pub fn most_sources(v4: bool) -> u32 {
    MOST_SOURCES[usize::from(!v4)].load(Ordering::Relaxed)
}

/// Sets it for changes from now on.
pub fn set_most_sources(v4: bool, most: u32) {
    MOST_SOURCES[usize::from(!v4)].store(most, Ordering::Relaxed);
}

/// Returns the nanoseconds for which the MTU of a path is remembered.
pub fn path_mtu_time(v4: bool) -> u64 {
    u64::from(path_mtu_seconds(v4)) * 1_000_000_000
}

/// Returns them in seconds.
pub fn path_mtu_seconds(v4: bool) -> u32 {
    PATH_MTU_TIMES[usize::from(!v4)].load(Ordering::Relaxed)
}

/// Sets them for what routers tell from now on.
pub fn set_path_mtu_seconds(v4: bool, seconds: u32) {
    PATH_MTU_TIMES[usize::from(!v4)].store(seconds, Ordering::Relaxed);
}

/// Returns the least MTU of a path of IPv4 that a router is believed.
pub fn least_path_mtu() -> u32 {
    LEAST_PATH_MTU.load(Ordering::Relaxed)
}

/// Sets it; every link takes 68 bytes (RFC 791). Returns `false` for less.
pub fn set_least_path_mtu(bytes: u32) -> bool {
    if bytes >= 68 {
        LEAST_PATH_MTU.store(bytes, Ordering::Relaxed);
    }
    bytes >= 68
}

/// Returns the nanoseconds until a packet of which fragments are missing is dropped.
pub fn fragment_time(v4: bool) -> u64 {
    u64::from(fragment_seconds(v4)) * 1_000_000_000
}

/// Returns them in seconds.
pub fn fragment_seconds(v4: bool) -> u32 {
    FRAGMENT_TIMES[usize::from(!v4)].load(Ordering::Relaxed)
}

/// Sets them for packets that begin from now on.
pub fn set_fragment_seconds(v4: bool, seconds: u32) {
    FRAGMENT_TIMES[usize::from(!v4)].store(seconds, Ordering::Relaxed);
}

/// Returns the TTL of packets of IPv4 whose socket has none of its own.
#[inline]
pub fn default_ttl() -> u8 {
    TTL.load(Ordering::Relaxed)
}

/// Sets it; 0 is none. Returns `false` then.
pub fn set_default_ttl(ttl: u8) -> bool {
    if ttl != 0 {
        TTL.store(ttl, Ordering::Relaxed);
    }
    ttl != 0
}

/// Returns how many connections of a listener may have begun; others get SYN cookies.
pub fn most_begun() -> usize {
    BEGUN.load(Ordering::Relaxed) as usize
}

/// Sets it.
pub fn set_most_begun(most: u32) {
    BEGUN.store(most, Ordering::Relaxed);
}

/// Returns the congestion control of sockets that do not choose one.
pub fn algorithm() -> Algorithm {
    if RENO.load(Ordering::Relaxed) { Algorithm::Reno } else { Algorithm::Cubic }
}

/// Sets it for sockets that are made from now on.
pub fn set_algorithm(algorithm: Algorithm) {
    RENO.store(algorithm == Algorithm::Reno, Ordering::Relaxed);
}

/// Returns the first and the last port for sockets that do not ask for one.
pub fn port_range() -> (u16, u16) {
    let both = PORT_RANGE.load(Ordering::Relaxed);
    ((both >> 16) as u16, both as u16)
}

/// Sets them. Returns `false` if they are not a range of ports.
pub fn set_port_range(low: u16, high: u16) -> bool {
    let good = low > 0 && low <= high;
    if good {
        PORT_RANGE.store(u32::from(low) << 16 | u32::from(high), Ordering::Relaxed);
    }
    good
}

/// Whether binding to a port takes CAP_NET_BIND_SERVICE.
pub fn is_privileged(port: u16) -> bool {
    port != 0 && u32::from(port) < UNPRIVILEGED.load(Ordering::Relaxed)
}

/// Returns the first port that anybody may bind to.
pub fn unprivileged_start() -> u32 {
    UNPRIVILEGED.load(Ordering::Relaxed)
}

/// Sets it; at most 65535.
pub fn set_unprivileged_start(port: u16) {
    UNPRIVILEGED.store(u32::from(port), Ordering::Relaxed);
}

/// Returns the first and the last group whose members may send ICMP echo requests.
pub fn ping_groups() -> (u32, u32) {
    let both = PING_GROUPS.load(Ordering::Relaxed);
    ((both >> 32) as u32, both as u32)
}

/// Sets them.
pub fn set_ping_groups(first: u32, last: u32) {
    PING_GROUPS.store(u64::from(first) << 32 | u64::from(last), Ordering::Relaxed);
}

/// Returns the largest backlog of a listening socket.
pub fn most_backlog() -> usize {
    BACKLOG.load(Ordering::Relaxed) as usize
}

/// Sets it.
pub fn set_most_backlog(most: u32) {
    BACKLOG.store(most, Ordering::Relaxed);
}
