//! The groups that sockets of this machine have joined, and what routers are told of them: IGMP and
//! MLD (`hayate_ip::membership` has the rules and the formats).
//!
//! A join and a leave are told at once and a second time within a second (ten in older dialects); a
//! query is answered at a random moment of the time that it gives. One timer is armed for the next
//! of these, and for nothing else. It waits at least [`PAUSE`], so that a query about very many
//! groups is answered in few turns.
//!
//! Not there: reports about the groups of neighbour discovery, which every host of a link has.
//!
//! Each network namespace has its own; only the first has links with routers, which are told of
//! them.
//!
//! Locks: [`Network::groups`] is a leaf; nothing is sent with it held.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use arrayvec::ArrayVec;
use hayate_abi::{Errno, Result};
use hayate_ip::membership::{self, Dialect, Due};
use hayate_ip::source_filter::SourceFilter;
use hayate_ip::{Address, header};
use hayate_machine::sync::Once;

use super::config::{LOOPBACK, Network};
use super::packet::{Body, Packet};
use super::statistics::Counter;
use super::{config, link};
use crate::random;
use crate::reclaim::growth::Grow;
use crate::schedule::time::monotonic_ns;
use crate::schedule::{Timer, TimerTarget};

/// The least time between two turns of the timer, in nanoseconds.
const PAUSE: u64 = 10_000_000;
/// How many reports are gathered before they are sent.
const BATCH: usize = 4;

/// Whether a socket of a network namespace wants what a host sends to a group (`ip_check_mc_rcu` of
/// Linux).
pub fn allows(network: &Network, group: Address, interface: u32, source: Address) -> bool {
    network.groups.lock().allows(group, interface, source)
}

/// The filter of a socket of `network` for a group changes from `old` to `new`: the socket joins if
/// it had none. [`tell`] has to be called then, without a lock.
///
/// # Errors
/// `ENOMEM`; then nothing has changed.
pub fn change(
    network: &Network,
    group: Address,
    interface: u32,
    old: Option<&SourceFilter>,
    new: &SourceFilter,
) -> Result<()> {
    let is_told = interface != LOOPBACK;
    let mut groups = network.groups.lock();
    let changed = groups.change((group, interface), (old, Some(new)), monotonic_ns(), is_told);
    changed.map_err(|membership::NoMemory| Errno::ENOMEM)
}

/// A socket of `network` leaves a group. [`tell`] has to be called then, without a lock.
pub fn leave(network: &Network, group: Address, interface: u32, old: &SourceFilter) {
    let is_told = interface != LOOPBACK;
    let mut groups = network.groups.lock();
    // Only a new filter may lack memory.
    let _ = groups.change((group, interface), (Some(old), None), monotonic_ns(), is_told);
}

/// A group of an interface, as it is shown.
pub struct Shown {
    /// The interface.
    pub interface: u32,
    /// The group.
    pub group: Address,
    /// How many sockets have joined it.
    pub users: usize,
    /// The nanoseconds until something is said of it.
    pub says_in: Option<u64>,
    /// The sources that sockets name, and how many include and exclude each.
    pub sources: Vec<(Address, [u32; 2])>,
}

/// The groups that sockets of a namespace have joined, of one version of IP.
///
/// # Errors
/// `ENOMEM`.
pub fn shown(network: &Network, is_v4: bool) -> Result<Vec<Shown>> {
    let now = monotonic_ns();
    let mut list = Vec::new();
    let groups = network.groups.lock();
    for member in groups.listed().filter(|member| member.group().is_v4() == is_v4) {
        let mut sources = Vec::new();
        sources.make_room_exact(member.sources().count())?;
        sources.extend(member.sources());
        list.make_room(1)?;
        list.push(Shown {
            interface: member.interface(),
            group: member.group(),
            users: member.users(),
            says_in: member.next().map(|at| at.saturating_sub(now)),
            sources,
        });
    }
    Ok(list)
}

/// The dialect that is spoken on an interface: 1 to 3 for IGMP.
pub fn dialect(network: &Network, interface: u32, is_v4: bool) -> u8 {
    match network.groups.lock().dialect(interface, is_v4, monotonic_ns()) {
        Dialect::First => 1,
        Dialect::Second => 2,
        Dialect::Third => 3,
    }
}

/// Tells routers what has changed.
pub fn tell() {
    speak(monotonic_ns());
}

/// A random number below `most`.
fn below(most: u64) -> u64 {
    random::word() % most.max(1)
}

/// Says what is due, and arms the timer for what is next.
fn speak(now: u64) {
    if let Some(next) = say(now) {
        let timer = timer();
        if timer.deadline().is_none_or(|armed| armed > next) {
            timer.arm(next);
        }
    }
}

/// Says what is due. Returns when something is due next.
fn say(now: u64) -> Option<u64> {
    let mut from = 0;
    loop {
        let mut batch: ArrayVec<Due, BATCH> = ArrayVec::new();
        let next = {
            let mut groups = config::FIRST.groups.lock();
            while !batch.is_full()
                && let Some(due) = groups.due(&mut from, now, below)
            {
                batch.push(due);
            }
            groups.deadline()
        };
        let is_over = !batch.is_full();
        batch.iter().for_each(send);
        if is_over {
            return next.map(|next| next.max(now + PAUSE));
        }
    }
}

/// Sends a report. One that cannot be sent is lost, as any packet may be.
fn send(due: &Due) {
    let config = config::FIRST.current();
    let Some(interface) = config.interface(due.interface).filter(|interface| interface.is_up())
    else {
        return;
    };
    let is_v4 = due.group.is_v4();
    let mut own = config.addresses.iter().filter(|own| own.interface == due.interface);
    // MLD is spoken from an address of the link, or from none (RFC 3590, 4).
    let source = own
        .find(|own| own.address.is_v4() == is_v4 && (is_v4 || own.address.is_link_local()))
        .map_or(due.group.wildcard(), |own| own.address);
    if let Some((to, message)) = membership::report(due, source)
        && link::send_packet(interface, to, &message).is_some()
    {
        config::FIRST.count(Counter::Sent, is_v4);
        if !is_v4 {
            config::FIRST.count(Counter::IcmpSent, false);
        }
    }
}

/// Handles a message of IGMP, or of MLD (which comes by ICMPv6, its checksum is right): a query, or
/// the report of another host. Others, and bad ones, are dropped.
// Not part of its callers, which go on to receive other packets on the same stack.
#[inline(never)]
pub fn receive(packet: &Packet) {
    let Body::Bytes(payload) = &packet.body else { return };
    let header = &packet.header;
    let is_v4 = header.destination.is_v4();
    // It comes from the link (RFC 3376, 4; RFC 3810, 5): a router passes no such packet on.
    let is_near = header.hop_limit == 1 && (is_v4 || header.source.is_link_local());
    if packet.interface == LOOPBACK || !is_near {
        return;
    }
    if is_v4 {
        let mut sum = hayate_ip::checksum::Checksum::new();
        payload.add_to(&mut sum);
        if header.protocol != header::IGMP || !sum.is_good() {
            return;
        }
    }
    let mut head = [0; membership::QUERY];
    let length = payload.read(0, &mut head);
    let head = &head[..length];
    let now = monotonic_ns();
    if let Some(query) = membership::query(is_v4, head, payload.len()) {
        config::FIRST.groups.lock().on_query(packet.interface, is_v4, &query, now, below);
        speak(now);
    } else if let Some(group) = membership::heard_report(is_v4, head) {
        config::FIRST.groups.lock().on_report(packet.interface, group, now);
    }
}

/// Speaks when the time has come.
struct Speaker;

static SPEAKER: Once<(Arc<Speaker>, Arc<Timer>)> = Once::new();

fn timer() -> &'static Arc<Timer> {
    let (_, timer) = SPEAKER.call_once(|| {
        let speaker = Arc::new(Speaker);
        let target: Weak<dyn TimerTarget> = Arc::<Speaker>::downgrade(&speaker);
        (speaker, Timer::new(target))
    });
    timer
}

impl TimerTarget for Speaker {
    fn expire(&self, now: u64) -> Option<u64> {
        say(now)
    }
}
