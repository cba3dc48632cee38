//! The way of a connection's segments, and the segments on it.

use alloc::sync::Arc;
use core::hash::{Hash, Hasher};

use hayate_abi::Result;
use hayate_ip::SocketAddress;
use hayate_ip::header::{self, Header};
use hayate_tcp::{Config, Flags, Segment};

use crate::net::config;
use crate::net::config::Path;
use crate::net::output;
use crate::net::packet::{Body, Packet, Ports};
use crate::net::slice::Slice;
use crate::net::statistics::{TcpCounter, count_sent, count_tcp};

/// The bytes of an IP header and a TCP header without options.
const HEADERS_V4: usize = header::LENGTH_V4 + header::LENGTH_TCP;
const HEADERS_V6: usize = header::LENGTH_V6 + header::LENGTH_TCP;

/// The most data of a segment that is cut later: with the longest headers it is a packet of the
/// largest size.
const MOST_CUT: u32 = u16::MAX as u32 - header::LENGTH_V6 as u32 - 60;

/// The name of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// This machine's end.
    pub local: SocketAddress,
    /// The other one.
    pub remote: SocketAddress,
}

impl Hash for Ends {
    #[inline]
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let (local, remote) = (self.local.address.bits(), self.remote.address.bits());
        hasher.write_u64(remote as u64);
        let ports = u64::from(self.local.port) << 16 | u64::from(self.remote.port);
        hasher.write_u64(local as u64 ^ ports << 32);
        if !self.local.address.is_v4() {
            hasher.write_u64((remote >> 64) as u64);
            hasher.write_u64((local >> 64) as u64);
            // The ports again: above they are mixed with bits of the address.
            hasher.write_u64(ports);
        }
    }
}

impl Ends {
    /// Returns the bytes that a connection's secret numbers are made of: first the addresses.
    pub fn tuple(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.local.address.octets());
        bytes[16..32].copy_from_slice(&self.remote.address.octets());
        bytes[32..34].copy_from_slice(&self.local.port.to_be_bytes());
        bytes[34..].copy_from_slice(&self.remote.port.to_be_bytes());
        bytes
    }
}

/// The way from one end of a connection to the other.
pub struct Route {
    /// The ends.
    pub ends: Ends,
    /// The way.
    pub path: Path,
    /// The configuration that it is from.
    generation: u64,
    /// TTL and TOS.
    marks: (u8, u8),
}

impl Route {
    /// Finds the way, by an interface if that is not 0.
    ///
    /// # Errors
    /// `ENETUNREACH` and the other errors of [`config::Config::path`].
    pub fn find(ends: Ends, interface: u32, marks: (u8, u8)) -> Result<Arc<Route>> {
        let generation = config::generation();
        let path = config::current().path(ends.remote.address, interface)?;
        Ok(Arc::new(Route { ends, path, generation, marks }))
    }

    /// Whether the configuration has changed since it was found.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.generation != config::generation()
    }

    /// Returns the way with other marks.
    pub fn marked(&self, marks: (u8, u8)) -> Arc<Route> {
        let Route { ends, generation, .. } = *self;
        Arc::new(Route { ends, path: self.path.clone(), generation, marks })
    }

    /// Returns the largest payload of a segment without options.
    pub fn mss(&self) -> u32 {
        let headers = if self.ends.remote.address.is_v4() { HEADERS_V4 } else { HEADERS_V6 };
        // No IP packet is longer than its length field says (`IP_MAX_MTU`).
        self.path.interface.mtu().min(usize::from(u16::MAX)).saturating_sub(headers) as u32
    }

    /// Sets what a connection has to know of its way. Segments for a device are cut by it, or for
    /// it where they leave, so that the way down to there is gone once for several.
    pub fn configure(&self, config: &mut Config) {
        config.mss = self.mss();
        let is_looped = self.path.interface.is_loopback();
        config.segment_limit = if is_looped { config.mss } else { MOST_CUT };
    }

    /// Sends a segment. The caller holds no lock of a socket. One that cannot be sent is lost, and
    /// sent again later, like every lost segment.
    #[inline]
    pub fn send(&self, segment: Segment<Slice>) {
        count_sent(segment.count());
        if segment.flags.contains(Flags::RST) {
            count_tcp(TcpCounter::Resets);
        }
        let (hop_limit, traffic_class) = self.marks;
        let Ends { local, remote } = self.ends;
        let header = Header {
            source: local.address,
            destination: remote.address,
            protocol: header::TCP,
            hop_limit,
            traffic_class,
            dont_fragment: true,
            fragment: None,
        };
        let ports = Ports { source: local.port, destination: remote.port };
        let packet = Packet { header, body: Body::Tcp(ports, segment), interface: 0, segment: 0 };
        let _ = output::send(&self.path, packet);
    }
}
