//! The endpoints by their ports, and messages to all that hear a group.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::endpoint::{Datagram, Endpoint};
use crate::net::config::Network;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

type Place = (u64, i32, u32);

struct Table {
    /// By the keys of their network namespaces, their protocols and ports.
    endpoints: BTreeMap<Place, Weak<Endpoint>>,
    /// Where the search for a port that is no process's begins.
    next: u32,
}

/// The first of these ports; the next ones are below (`netlink_autobind`).
const FIRST_AUTOMATIC: u32 = -4097i32 as u32;

static PORTS: SpinLock<Table> =
    SpinLock::new(Table { endpoints: BTreeMap::new(), next: FIRST_AUTOMATIC });
/// The groups that any endpoint has ever heard: a change that none hears of is not written.
static HEARD: AtomicU64 = AtomicU64::new(0);

/// Gives an endpoint a port; one that it has already stays. EADDRINUSE.
pub fn bind(endpoint: &Arc<Endpoint>, port: u32) -> Result<u32> {
    PORTS.lock().enter(endpoint, port)
}

/// Gives an endpoint the number of its process as port, or another if that is taken.
pub fn bind_automatic(endpoint: &Arc<Endpoint>, process: u32) -> Result<u32> {
    let mut table = PORTS.lock();
    let mut port = process;
    loop {
        match table.enter(endpoint, port) {
            Err(Errno::EADDRINUSE) => {
                port = table.next;
                // Down to the least negative number, then from the beginning again.
                table.next = if port as i32 == i32::MIN { FIRST_AUTOMATIC } else { port - 1 };
            }
            outcome => return outcome,
        }
    }
}

impl Table {
    fn enter(&mut self, endpoint: &Arc<Endpoint>, port: u32) -> Result<u32> {
        if let Some(own) = endpoint.port() {
            return Ok(own);
        }
        let place = (endpoint.network.key, endpoint.protocol, port);
        if self.endpoints.get(&place).is_some_and(|held| held.strong_count() > 0) {
            return Err(Errno::EADDRINUSE);
        }
        self.endpoints.insert(place, Arc::downgrade(endpoint));
        Ok(endpoint.set_port(port))
    }
}

/// Removes an endpoint that ends.
pub fn leave(endpoint: &Arc<Endpoint>) {
    let Some(port) = endpoint.port() else { return };
    let mut table = PORTS.lock();
    let is_own = |held: &Weak<Endpoint>| core::ptr::eq(held.as_ptr(), Arc::as_ptr(endpoint));
    let place = (endpoint.network.key, endpoint.protocol, port);
    if table.endpoints.get(&place).is_some_and(is_own) {
        table.endpoints.remove(&place);
    }
}

/// Notes that endpoints hear these groups.
pub fn note_groups(groups: u64) {
    HEARD.fetch_or(groups, Ordering::Relaxed);
}

/// Whether any endpoint may hear a group.
pub fn is_heard(group: u32) -> bool {
    HEARD.load(Ordering::Relaxed) >> group.wrapping_sub(1).min(63) & 1 != 0
}

/// Finds the endpoint of a namespace and a protocol with a port: ECONNREFUSED.
pub fn find(network: &Network, protocol: i32, port: u32) -> Result<Arc<Endpoint>> {
    let place = (network.key, protocol, port);
    PORTS.lock().endpoints.get(&place).and_then(Weak::upgrade).ok_or(Errno::ECONNREFUSED)
}

/// The places of a namespace.
fn of(network: &Network) -> core::ops::RangeInclusive<Place> {
    (network.key, i32::MIN, 0)..=(network.key, i32::MAX, u32::MAX)
}

/// Calls `visit` with each endpoint of a namespace that has a port; without a lock.
///
/// # Errors
/// `ENOMEM`, those of `visit`.
pub fn for_each(network: &Network, visit: impl FnMut(&Arc<Endpoint>) -> Result<()>) -> Result<()> {
    let mut found = Vec::new();
    {
        let table = PORTS.lock();
        let own = || table.endpoints.range(of(network));
        found.make_room(own().count())?;
        found.extend(own().filter_map(|(_, endpoint)| endpoint.upgrade()));
    }
    found.iter().try_for_each(visit)
}

/// Delivers a message to all of a namespace and a protocol that hear a group, but not to the
/// sender's port. An endpoint without room learns that it lost one.
pub fn broadcast(
    network: &Network,
    protocol: i32,
    bytes: &[u8],
    group: u32,
    sender: Ucred,
    port: u32,
) {
    let mut hearing = Vec::new();
    for (_, endpoint) in PORTS.lock().endpoints.range(of(network)) {
        let Some(endpoint) = endpoint.upgrade() else { continue };
        let hears = endpoint.protocol == protocol
            && endpoint.hears(group)
            && (port == 0 || endpoint.port() != Some(port));
        if hears && growth::push(&mut hearing, Arc::clone(&endpoint)).is_err() {
            endpoint.overrun();
        }
    }
    for endpoint in hearing {
        let delivered = growth::copy(bytes)
            .and_then(|bytes| endpoint.deliver(Datagram { bytes, port, group, sender }));
        if delivered.is_err() {
            endpoint.overrun();
        }
    }
}
