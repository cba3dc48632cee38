//! The MTUs of paths, as routers told of them: "fragmentation needed" and "packet too big" (RFC
//! 1191, RFC 8201). `hayate_ip::path_mtu` has the table and the rules.
//!
//! A message returns the beginning of a packet. It is believed if a socket of this machine may have
//! sent that: the protocols look for the socket, then call [`told`]. What it says holds for the
//! packet's destination by the interface of its path, for `net.ipv4.route.mtu_expires` (of IPv6,
//! `net.ipv6.route.mtu_expires`). Datagrams heed it as IP_MTU_DISCOVER says; connections begin with
//! it, and keep what they are told themselves.
//!
//! All network namespaces share the table; an interface of each has an identity of its own there.
//!
//! While no path has an MTU of its own, a packet pays one relaxed load.
//!
//! Locks: one for each of [`PARTS`] parts of the table, a leaf.

use core::hash::{BuildHasher, BuildHasherDefault};
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_ip::Address;
use hayate_ip::path_mtu::{Destination, PathMtu, Table, lowered};
use hayate_machine::sync::SpinLock;

use super::config::{Network, Path};
use crate::hash::IndexHasher;
use crate::schedule::time::monotonic_ns;

const PARTS: usize = 64;
/// The most paths of a part.
const MOST: usize = 16;
/// The longest packet of IPv4 (`IP_MAX_MTU`).
const MOST_V4: usize = u16::MAX as usize;

static TABLE: [SpinLock<Table<MOST>>; PARTS] = [const { SpinLock::new(Table::new()) }; PARTS];
/// How many paths all parts have.
static KNOWN: AtomicUsize = AtomicUsize::new(0);

/// Returns the MTU of a path to a destination: what a router told, or that of the interface.
#[inline]
pub fn of(path: &Path, to: Address) -> PathMtu {
    let own = of_interface(path, to);
    if KNOWN.load(Ordering::Relaxed) == 0 { own } else { known(path, to, own) }
}

/// Returns the longest packet to a destination that the interface of a path takes.
#[inline]
pub fn of_interface(path: &Path, to: Address) -> PathMtu {
    let mtu = path.interface.mtu();
    let bytes = if to.is_v4() { mtu.min(MOST_V4) } else { mtu };
    PathMtu { bytes: bytes as u32, is_locked: false }
}

#[cold]
fn known(path: &Path, to: Address, own: PathMtu) -> PathMtu {
    let destination = Destination { to, interface: path.interface.identity() };
    let found = change(destination, |paths| paths.find(destination, monotonic_ns()));
    found.filter(|found| found.bytes <= own.bytes).unwrap_or(own)
}

/// A router told `network` that a packet to a destination on its path was longer than `bytes`.
/// Returns the MTU of the path.
pub fn told(network: &Network, path: &Path, to: Address, bytes: u32) -> PathMtu {
    let old = of(path, to);
    let settings = &network.settings;
    let is_v4 = to.is_v4();
    let Some(mtu) = lowered(is_v4, old.bytes, bytes, settings.least_path_mtu()) else {
        return old;
    };
    let end = monotonic_ns().saturating_add(settings.path_mtu_time(is_v4));
    let destination = Destination { to, interface: path.interface.identity() };
    change(destination, |paths| paths.note(destination, mtu, end));
    of(path, to)
}

/// Lets `change` look at the paths of a destination's part, and change them.
fn change<T>(destination: Destination, change: impl FnOnce(&mut Table<MOST>) -> T) -> T {
    let hash = BuildHasherDefault::<IndexHasher>::default().hash_one(destination.to);
    let mut part = TABLE[(hash >> 40) as usize % PARTS].lock();
    let before = part.len();
    let value = change(&mut part);
    // Never below nothing: each part's are added before they are taken away.
    KNOWN.fetch_add(part.len(), Ordering::Relaxed);
    KNOWN.fetch_sub(before, Ordering::Relaxed);
    value
}
