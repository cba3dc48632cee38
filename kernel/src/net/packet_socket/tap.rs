//! Which packet sockets see a packet that passes an interface.
//!
//! Locks: that of the list is a leaf, held while a reference to the list is taken or replaced.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::endpoint::Endpoint;
use super::seen::{Kind, LINK, Seen, link_header};
use crate::net::config::Interface;
use crate::net::filter::protocol_of;
use crate::net::packet::Packet;
use crate::net::slice::Payload;
use crate::net::wire;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::time;

/// The number of packet sockets.
static COUNT: AtomicUsize = AtomicUsize::new(0);

type List = Arc<Vec<Arc<Endpoint>>>;

/// All packet sockets. The list never changes: another takes its place.
static ALL: SpinLock<Option<List>> = SpinLock::new(None);

fn change(change: impl FnOnce(&mut Vec<Arc<Endpoint>>) -> Result<()>) -> Result<()> {
    let old = {
        let mut all = ALL.lock();
        let mut list = Vec::new();
        let before = all.as_ref().map_or(0, |list| list.len());
        list.make_room(before + 1)?;
        list.extend(all.iter().flat_map(|list| list.iter().cloned()));
        change(&mut list)?;
        COUNT.store(list.len(), Ordering::Relaxed);
        all.replace(Arc::new(list))
    };
    drop(old);
    Ok(())
}

/// Shows packets to a socket from now on.
///
/// # Errors
/// `ENOMEM`.
pub fn add(endpoint: &Arc<Endpoint>) -> Result<()> {
    growth::relieved(|| {
        change(|list| {
            list.push(Arc::clone(endpoint));
            Ok(())
        })
    })
}

/// Shows a socket no more packets.
pub fn remove(endpoint: &Arc<Endpoint>) {
    // Without memory for a shorter list the socket hears nothing and stays in it.
    endpoint.bind(0, 0);
    let _ = growth::relieved(|| {
        change(|list| {
            list.retain(|other| !Arc::ptr_eq(other, endpoint));
            Ok(())
        })
    });
}

/// Calls `visit` with each packet socket.
pub fn for_each(visit: impl FnMut(&Arc<Endpoint>)) {
    let list = ALL.lock().clone();
    list.iter().flat_map(|list| list.iter()).for_each(visit);
}

/// Tells the sockets of an interface that it is down (`packet_notifier`).
pub fn went_down(interface: u32) {
    if is_used() {
        for_each(|endpoint| {
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
    is_good: bool,
    body: impl FnOnce() -> Result<Payload>,
    sender: Option<&Arc<Endpoint>>,
) {
    let Some(list) = ALL.lock().clone() else { return };
    let number = u16::from_be_bytes([link[12], link[13]]);
    // The protocol of a frame without one is only known with its body.
    let may_want = |endpoint: &Arc<Endpoint>| {
        number < super::seen::LEAST
            || kinds.iter().any(|&kind| endpoint.wants(interface.index, number, kind))
    };
    if !list.iter().any(may_want) {
        return;
    }
    let Ok(body) = body() else { return };
    let kind = Kind::Outgoing;
    let time = time::realtime_ns();
    let mut seen = Seen { interface, kind, link, body, is_good, time };
    let protocol = seen.protocol();
    for &kind in kinds {
        seen.kind = kind;
        for endpoint in list.iter() {
            let own = sender.is_some_and(|sender| Arc::ptr_eq(sender, endpoint));
            let hidden = own && kind == Kind::Outgoing;
            if !hidden && endpoint.wants(interface.index, protocol, kind) {
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
    is_good: bool,
    body: impl FnOnce() -> Result<Payload>,
    sender: Option<&Arc<Endpoint>>,
) {
    if is_used() {
        show(interface, &[kind], link, is_good, body, sender);
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
    let link = link_header(interface.hardware, interface.hardware, kind);
    let body = || wire::emit(packet);
    show(interface, &[Kind::Outgoing, Kind::Host], link, true, body, None);
}

/// Shows a frame that a packet socket sends by the loopback interface.
pub fn looped_frame(
    interface: &Interface,
    link: [u8; LINK],
    body: &Payload,
    sender: &Arc<Endpoint>,
) {
    let kinds = [Kind::Outgoing, Kind::of(interface, &link)];
    show(interface, &kinds, link, false, || body.share(), Some(sender));
}
