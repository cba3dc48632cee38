//! Which packet sockets see a packet that passes an interface.
//!
//! Locks: that of the list is a leaf, held while a reference to the list is taken or replaced.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::endpoint::Endpoint;
use super::seen::{Kind, LINK, Seen, Sum, link_header};
use crate::net::config::Interface;
use crate::net::filter::protocol_of;
use crate::net::packet::Packet;
use crate::net::slice::Payload;
use crate::net::wire;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::time;

/// The number of packet sockets in all network namespaces.
static COUNT: AtomicUsize = AtomicUsize::new(0);

type List = Arc<Vec<Arc<Endpoint>>>;

/// All packet sockets. While somebody reads the list, it does not change: another takes its place.
static ALL: SpinLock<Option<List>> = SpinLock::new(None);

/// Puts a list without closed sockets, and with one more, in the place of the present one.
/// `ENOMEM`.
fn replace(more: Option<&Arc<Endpoint>>) -> Result<()> {
    let old = {
        let mut all = ALL.lock();
        let mut list = Vec::new();
        let before = all.as_ref().map_or(0, |list| list.len());
        list.make_room(before + 1)?;
        let open = |endpoint: &&Arc<Endpoint>| !endpoint.is_closed();
        list.extend(all.iter().flat_map(|list| list.iter()).filter(open).cloned());
        list.extend(more.cloned());
        COUNT.store(list.len(), Ordering::Relaxed);
        if list.is_empty() { all.take() } else { all.replace(Arc::new(list)) }
    };
    drop(old);
    Ok(())
}

/// Shows packets to a socket from now on.
///
/// # Errors
/// `ENOMEM`.
pub fn add(endpoint: &Arc<Endpoint>) -> Result<()> {
    growth::relieved(|| replace(Some(endpoint)))
}

/// Shows a socket, which is closed, no more packets.
pub fn remove(endpoint: &Arc<Endpoint>) {
    endpoint.bind(0, 0);
    let is_left = loop {
        let (taken, list) = take_closed();
        if taken.is_none() {
            break is_listed(endpoint);
        }
        drop((taken, list));
    };
    if is_left {
        // Somebody reads the list. Without memory for another one the socket, which hears nothing
        // any more, stays until the next one is closed or made.
        let _ = growth::relieved(|| replace(None));
    }
}

/// Takes a closed socket out of the list if nobody reads that now, and the list itself if it is
/// empty then. Needs no memory.
fn take_closed() -> (Option<Arc<Endpoint>>, Option<List>) {
    let mut all = ALL.lock();
    let Some(list) = all.as_mut().and_then(Arc::get_mut) else { return (None, None) };
    let at = list.iter().position(|endpoint| endpoint.is_closed());
    let taken = at.map(|at| list.remove(at));
    COUNT.store(list.len(), Ordering::Relaxed);
    let emptied = if list.is_empty() { all.take() } else { None };
    (taken, emptied)
}

fn is_listed(endpoint: &Arc<Endpoint>) -> bool {
    let list = ALL.lock();
    list.iter().flat_map(|list| list.iter()).any(|other| Arc::ptr_eq(other, endpoint))
}

/// Calls `visit` with each packet socket of the namespace with the key `network`.
pub fn for_each(network: u64, visit: impl FnMut(&Arc<Endpoint>)) {
    let list = ALL.lock().clone();
    let all = list.iter().flat_map(|list| list.iter());
    all.filter(|endpoint| endpoint.network.key == network).for_each(visit);
}

/// Tells the sockets of an interface of the namespace with the key `network` that it is down
/// (`packet_notifier`).
pub fn went_down(network: u64, interface: u32) {
    if is_used() {
        for_each(network, |endpoint| {
            if endpoint.bound().0 == interface {
                endpoint.fail(Errno::ENETDOWN);
            }
        });
    }
}

/// Whether there are packet sockets.
#[inline]
pub fn is_used() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Shows a packet that passes an interface. `body` makes its bytes after the link's header, and is
/// called only for a socket that wants it; `sender` is the socket that sent it, which is not shown
/// it as it leaves. Without memory it is lost for packet sockets, as it is when their queues are
/// full.
#[inline(never)]
fn show(
    interface: &Interface,
    kinds: &[Kind],
    link: [u8; LINK],
    sum: Sum,
    body: impl FnOnce() -> Result<Payload>,
    sender: Option<&Arc<Endpoint>>,
) {
    let Some(list) = ALL.lock().clone() else { return };
    let number = u16::from_be_bytes([link[12], link[13]]);
    // The protocol of a frame without one is only known with its body.
    let may_want = |endpoint: &Arc<Endpoint>| {
        number < super::seen::LEAST && endpoint.network.key == interface.key
            || kinds.iter().any(|&kind| endpoint.wants(interface, number, kind))
    };
    if !list.iter().any(may_want) {
        return;
    }
    let Ok(body) = body() else { return };
    let kind = Kind::Outgoing;
    let time = time::realtime_ns();
    let mut seen = Seen { interface, kind, link, body, sum, time };
    let protocol = seen.protocol();
    for &kind in kinds {
        seen.kind = kind;
        for endpoint in list.iter() {
            let own = sender.is_some_and(|sender| Arc::ptr_eq(sender, endpoint));
            let hidden = own && kind == Kind::Outgoing;
            if !hidden && endpoint.wants(interface, protocol, kind) {
                endpoint.deliver(&seen);
            }
        }
    }
}

/// Shows a frame that leaves by an interface, or arrived on it.
pub fn frame(
    interface: &Interface,
    kind: Kind,
    link: [u8; LINK],
    sum: Sum,
    body: impl FnOnce() -> Result<Payload>,
    sender: Option<&Arc<Endpoint>>,
) {
    if is_used() {
        show(interface, &[kind], link, sum, body, sender);
    }
}

/// Shows a packet to this machine, which leaves by the loopback interface and arrives there.
#[inline]
pub fn looped(interface: &Interface, packet: &Packet) {
    if is_used() {
        show_looped(interface, packet);
    }
}

#[cold]
fn show_looped(interface: &Interface, packet: &Packet) {
    // All of its addresses are zero, those of groups too.
    let kind = protocol_of(packet.header.destination);
    let link = link_header(interface.hardware(), interface.hardware(), kind);
    let body = || wire::emit(packet);
    show(interface, &[Kind::Outgoing, Kind::Host], link, Sum::Good, body, None);
}

/// Shows a frame that a packet socket sends by the loopback interface.
pub fn looped_frame(
    interface: &Interface,
    link: [u8; LINK],
    body: &Payload,
    sender: &Arc<Endpoint>,
) {
    let kinds = [Kind::Outgoing, Kind::of(interface, &link)];
    show(interface, &kinds, link, Sum::Unchecked, || body.share(), Some(sender));
}
