//! The settings of a network namespace that `/proc/sys/net` shows and lets its administrator
//! change. Defaults are those of Linux 6.1 (Documentation/networking/ip-sysctl.rst).

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use hayate_tcp::Algorithm;

/// The ports that a program gets if it does not ask for one (Linux' default).
const PORTS: (u16, u16) = (32768, 60999);

/// The settings of a namespace.
pub struct Settings {
    /// `net.ipv4.ip_local_port_range`: the two ports, in one word so that they are read together.
    port_range: AtomicU32,
    /// `net.ipv4.ip_unprivileged_port_start`.
    unprivileged: AtomicU32,
    /// `net.ipv4.ping_group_range`: first and last group. The default, 1 and 0, means nobody.
    ping_groups: AtomicU64,
    /// `net.core.somaxconn`.
    backlog: AtomicU32,
    /// `net.ipv4.ip_default_ttl`.
    ttl: AtomicU8,
    /// `net.ipv4.tcp_max_syn_backlog`.
    begun: AtomicU32,
    /// `net.ipv4.tcp_congestion_control`: whether it is reno and not cubic.
    reno: AtomicBool,
    /// `net.ipv4.ipfrag_time` and `net.ipv6.ip6frag_time`, in seconds.
    fragment_times: [AtomicU32; 2],
    /// `net.ipv4.route.mtu_expires` and `net.ipv6.route.mtu_expires`, in seconds.
    path_mtu_times: [AtomicU32; 2],
    /// `net.ipv4.route.min_pmtu`.
    least_path_mtu: AtomicU32,
    /// `net.ipv4.igmp_max_msf` and `net.ipv6.mld_max_msf`: the most sources of a group's filter.
    most_sources: [AtomicU32; 2],
}

impl Settings {
    /// Those that a machine boots with.
    #[allow(clippy::new_without_default, reason = "a static is made of it")]
    pub const fn new() -> Settings {
        Settings {
            port_range: AtomicU32::new((PORTS.0 as u32) << 16 | PORTS.1 as u32),
            unprivileged: AtomicU32::new(1024),
            ping_groups: AtomicU64::new(1 << 32),
            backlog: AtomicU32::new(4096),
            ttl: AtomicU8::new(64),
            begun: AtomicU32::new(4096),
            reno: AtomicBool::new(false),
            fragment_times: [AtomicU32::new(30), AtomicU32::new(60)],
            path_mtu_times: [const { AtomicU32::new(600) }; 2],
            least_path_mtu: AtomicU32::new(552),
            most_sources: [AtomicU32::new(10), AtomicU32::new(64)],
        }
    }

    /// Returns the most sources that a socket's filter of a group may have.
    pub fn most_sources(&self, v4: bool) -> u32 {
        self.most_sources[usize::from(!v4)].load(Ordering::Relaxed)
    }

    /// Sets it for changes from now on.
    pub fn set_most_sources(&self, v4: bool, most: u32) {
        self.most_sources[usize::from(!v4)].store(most, Ordering::Relaxed);
    }

    /// Returns the nanoseconds for which the MTU of a path is remembered.
    pub fn path_mtu_time(&self, v4: bool) -> u64 {
        u64::from(self.path_mtu_seconds(v4)) * 1_000_000_000
    }

    /// Returns them in seconds.
    pub fn path_mtu_seconds(&self, v4: bool) -> u32 {
        self.path_mtu_times[usize::from(!v4)].load(Ordering::Relaxed)
    }

    /// Sets them for what routers tell from now on.
    pub fn set_path_mtu_seconds(&self, v4: bool, seconds: u32) {
        self.path_mtu_times[usize::from(!v4)].store(seconds, Ordering::Relaxed);
    }

    /// Returns the least MTU of a path of IPv4 that a router is believed.
    pub fn least_path_mtu(&self) -> u32 {
        self.least_path_mtu.load(Ordering::Relaxed)
    }

    /// Sets it; every link takes 68 bytes (RFC 791). Returns `false` for less.
    pub fn set_least_path_mtu(&self, bytes: u32) -> bool {
        if bytes >= 68 {
            self.least_path_mtu.store(bytes, Ordering::Relaxed);
        }
        bytes >= 68
    }

    /// Returns the nanoseconds until a packet of which fragments are missing is dropped.
    pub fn fragment_time(&self, v4: bool) -> u64 {
        u64::from(self.fragment_seconds(v4)) * 1_000_000_000
    }

    /// Returns them in seconds.
    pub fn fragment_seconds(&self, v4: bool) -> u32 {
        self.fragment_times[usize::from(!v4)].load(Ordering::Relaxed)
    }

    /// Sets them for packets that begin from now on.
    pub fn set_fragment_seconds(&self, v4: bool, seconds: u32) {
        self.fragment_times[usize::from(!v4)].store(seconds, Ordering::Relaxed);
    }

    /// Returns the TTL of packets of IPv4 whose socket has none of its own.
    #[inline]
    pub fn default_ttl(&self) -> u8 {
        self.ttl.load(Ordering::Relaxed)
    }

    /// Sets it; 0 is none. Returns `false` then.
    pub fn set_default_ttl(&self, ttl: u8) -> bool {
        if ttl != 0 {
            self.ttl.store(ttl, Ordering::Relaxed);
        }
        ttl != 0
    }

    /// Returns how many connections of a listener may have begun; others get SYN cookies.
    pub fn most_begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed) as usize
    }

    /// Sets it.
    pub fn set_most_begun(&self, most: u32) {
        self.begun.store(most, Ordering::Relaxed);
    }

    /// Returns the congestion control of sockets that do not choose one.
    pub fn algorithm(&self) -> Algorithm {
        if self.reno.load(Ordering::Relaxed) { Algorithm::Reno } else { Algorithm::Cubic }
    }

    /// Sets it for sockets that are made from now on.
    pub fn set_algorithm(&self, algorithm: Algorithm) {
        self.reno.store(algorithm == Algorithm::Reno, Ordering::Relaxed);
    }

    /// Returns the first and the last port for sockets that do not ask for one.
    pub fn port_range(&self) -> (u16, u16) {
        let both = self.port_range.load(Ordering::Relaxed);
        ((both >> 16) as u16, both as u16)
    }

    /// Sets them. Returns `false` if they are not a range of ports.
    pub fn set_port_range(&self, low: u16, high: u16) -> bool {
        let good = low > 0 && low <= high;
        if good {
            self.port_range.store(u32::from(low) << 16 | u32::from(high), Ordering::Relaxed);
        }
        good
    }

    /// Whether binding to a port takes CAP_NET_BIND_SERVICE.
    pub fn is_privileged(&self, port: u16) -> bool {
        port != 0 && u32::from(port) < self.unprivileged.load(Ordering::Relaxed)
    }

    /// Returns the first port that anybody may bind to.
    pub fn unprivileged_start(&self) -> u32 {
        self.unprivileged.load(Ordering::Relaxed)
    }

    /// Sets it; at most 65535.
    pub fn set_unprivileged_start(&self, port: u16) {
        self.unprivileged.store(u32::from(port), Ordering::Relaxed);
    }

    /// Returns the first and the last group whose members may send ICMP echo requests.
    pub fn ping_groups(&self) -> (u32, u32) {
        let both = self.ping_groups.load(Ordering::Relaxed);
        ((both >> 32) as u32, both as u32)
    }

    /// Sets them.
    pub fn set_ping_groups(&self, first: u32, last: u32) {
        self.ping_groups.store(u64::from(first) << 32 | u64::from(last), Ordering::Relaxed);
    }

    /// Returns the largest backlog of a listening socket.
    pub fn most_backlog(&self) -> usize {
        self.backlog.load(Ordering::Relaxed) as usize
    }

    /// Sets it.
    pub fn set_most_backlog(&self, most: u32) {
        self.backlog.store(most, Ordering::Relaxed);
    }
}
