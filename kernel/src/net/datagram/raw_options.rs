//! The options that only raw sockets have (raw(7), icmp(7), RFC 3542).

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use hayate_ip::header;
use hayate_machine::sync::SpinLock;

/// `SOL_RAW`.
pub(super) const SOL_RAW: i32 = 255;
/// `SOL_ICMPV6`.
pub(super) const SOL_ICMP_V6: i32 = 58;
/// `ICMP_FILTER` and `ICMPV6_FILTER`.
pub(super) const FILTER: i32 = 1;
/// `IPV6_CHECKSUM`, at the levels of IPv6 and of raw sockets.
pub(super) const CHECKSUM: i32 = 7;
/// Where ICMPv6 has its checksum.
const ICMP_CHECKSUM: i32 = 2;

/// The options that only raw sockets have.
pub(super) struct RawOptions {
    /// IP_HDRINCL: the program writes the IP header.
    header_included: AtomicBool,
    /// IPV6_CHECKSUM: where the kernel writes and checks a checksum; -1 for nowhere.
    pub(super) checksum: AtomicI32,
    /// The types of ICMP that the program does not want, a bit for each.
    pub(super) blocked: SpinLock<[u32; 8]>,
}

impl RawOptions {
    /// Returns those of a new socket of this raw protocol, or of one that is not raw.
    pub(super) fn new(protocol: Option<u8>, v6: bool) -> Self {
        let has_sum = v6 && protocol == Some(header::ICMP_V6);
        Self {
            header_included: AtomicBool::new(!v6 && protocol == Some(header::RAW)),
            checksum: AtomicI32::new(if has_sum { ICMP_CHECKSUM } else { -1 }),
            blocked: SpinLock::new([0; 8]),
        }
    }

    pub(super) fn header_included(&self) -> bool {
        self.header_included.load(Ordering::Relaxed)
    }

    pub(super) fn include_header(&self, on: bool) {
        self.header_included.store(on, Ordering::Relaxed);
    }

    pub(super) fn checksum(&self) -> i32 {
        self.checksum.load(Ordering::Relaxed)
    }

    /// Whether a message of ICMP has a type that the program wants.
    pub(super) fn passes(&self, kind: u8) -> bool {
        self.blocked.lock()[usize::from(kind / 32)] >> (kind % 32) & 1 == 0
    }
}
