//! The way of a connection's segments, and the segments on it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hayate_abi::Result;
use hayate_ip::header::{self, Header};
use hayate_tcp::{Config, Flags, Segment};

pub use super::ends::Ends;
use super::resume;
use crate::drivers::net::Owner;
use crate::net::config::{Network, Path};
use crate::net::output;
use crate::net::packet::{Body, Packet, Ports};
use crate::net::path_mtu;
use crate::net::slice::Slice;
use crate::net::statistics::TcpCounter;

/// The bytes of an IP header and a TCP header without options.
const HEADERS_V4: u32 = (header::LENGTH_V4 + header::LENGTH_TCP) as u32;
const HEADERS_V6: u32 = (header::LENGTH_V6 + header::LENGTH_TCP) as u32;

/// The most data of a segment that is cut later: with the longest headers it is a packet of the
/// largest size.
const MOST_CUT: u32 = u16::MAX as u32 - header::LENGTH_V6 as u32 - 60;

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
    /// Bytes of frames that the device was given and has not sent, as far as is known.
    below: AtomicUsize,
    /// Whether the connection waits until they are `enough` or fewer.
    waits: AtomicBool,
    enough: AtomicUsize,
}

impl Owner for Route {
    fn given(&self, bytes: usize) {
        self.below.fetch_add(bytes, Ordering::Relaxed);
    }

    fn sent(&self, bytes: usize) {
        // The order of this and of what follows, and of those in `wait` and `hasten`, makes sure
        // that one of the two sees the other.
        self.below.fetch_sub(bytes, Ordering::SeqCst);
        if self.waits.load(Ordering::SeqCst) {
            self.go_on();
        }
    }
}

impl Route {
    /// Finds the way in a namespace, by an interface if that is not 0.
    ///
    /// # Errors
    /// `ENETUNREACH` and the other errors of [`Config::path`](crate::net::config::Config::path).
    pub fn find(
        network: &Network,
        ends: Ends,
        interface: u32,
        marks: (u8, u8),
    ) -> Result<Arc<Route>> {
        let generation = network.generation();
        let path = network.current().path(ends.remote.address, interface)?;
        Ok(Arc::new(Route::new(ends, path, generation, marks)))
    }

    /// Whether the configuration of its namespace has changed since it was found.
    #[inline]
    pub fn is_stale(&self, network: &Network) -> bool {
        self.generation != network.generation()
    }

    /// Returns the way with other marks.
    pub fn marked(&self, marks: (u8, u8)) -> Arc<Route> {
        let Route { ends, generation, .. } = *self;
        Arc::new(Route::new(ends, self.path.clone(), generation, marks))
    }

    fn new(ends: Ends, path: Path, generation: u64, marks: (u8, u8)) -> Route {
        Route {
            ends,
            path,
            generation,
            marks,
            below: AtomicUsize::new(0),
            waits: AtomicBool::new(false),
            enough: AtomicUsize::new(0),
        }
    }

    /// Bytes that the device was given by this way and has not sent. After another way was taken,
    /// those of the one before are no more counted.
    #[inline]
    pub fn below(&self) -> usize {
        self.below.load(Ordering::Relaxed)
    }

    /// The connection waits until no more than half of `bound` is below; under its lock.
    /// [`hasten`](Self::hasten) follows without the lock.
    #[cold]
    pub fn wait(&self, bound: usize) {
        self.enough.store(bound / 2, Ordering::Relaxed);
        self.waits.store(true, Ordering::SeqCst);
    }

    /// Whether the connection waits for the device.
    #[inline]
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Asks the device to tell when frames are sent.
    #[cold]
    pub fn hasten(&self) {
        if let Some(card) = &self.path.interface.device {
            card.hasten();
        }
        self.go_on();
    }

    /// Lets a connection go on that waited long enough.
    #[cold]
    fn go_on(&self) {
        let enough = self.below.load(Ordering::SeqCst) <= self.enough.load(Ordering::Relaxed);
        if enough && self.waits.swap(false, Ordering::SeqCst) {
            resume::add(self.ends);
        }
    }

    /// Returns the bytes of the headers of a segment without options.
    pub fn headers(&self) -> u32 {
        if self.ends.remote.address.is_v4() { HEADERS_V4 } else { HEADERS_V6 }
    }

    /// Returns the largest payload of a segment without options that the interface takes.
    pub fn mss(&self) -> u32 {
        self.mss_of(self.path.interface.mtu() as u32)
    }

    /// Returns the largest payload of one that is a packet of at most `mtu` bytes.
    pub fn mss_of(&self, mtu: u32) -> u32 {
        // No IP packet is longer than its length field says (`IP_MAX_MTU`).
        mtu.min(u16::MAX.into()).saturating_sub(self.headers())
    }

    /// Sets what a connection has to know of its way. Segments for a device are cut by it, or for
    /// it where they leave, so that the way down to there is gone once for several.
    pub fn configure(&self, config: &mut Config) {
        config.mss = self.mss_of(path_mtu::of(&self.path, self.ends.remote.address).bytes);
        let is_looped = self.path.interface.is_loopback();
        config.segment_limit = if is_looped { config.mss } else { MOST_CUT };
    }

    /// Sends a segment. The caller holds no lock of a socket. One that cannot be sent is lost, and
    /// sent again later, like every lost segment.
    #[inline]
    pub fn send(self: &Arc<Self>, segment: Segment<Slice>) {
        if let Some(network) = self.path.interface.network.get() {
            network.count_events(TcpCounter::Sent, segment.count());
            if segment.flags.contains(Flags::RST) {
                network.count_tcp(TcpCounter::Resets);
            }
        }
        let (hop_limit, traffic_class) = self.marks;
        let Ends { local, remote, .. } = self.ends;
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
        let is_counted = !self.path.interface.is_loopback() && !segment.payload.is_empty();
        let packet = Packet { header, body: Body::Tcp(ports, segment), interface: 0, segment: 0 };
        if is_counted {
            let owner: Arc<dyn Owner> = Arc::<Route>::clone(self);
            let _ = output::send_segment(&self.path, packet, Some(&owner));
        } else {
            let _ = output::send_segment(&self.path, packet, None);
        }
    }
}
