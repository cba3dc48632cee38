//! Membership in groups: the host's part of IGMP (RFC 1112, 2236 and 3376) and of MLD (RFC 2710 and
//! 3810), without a clock, a lock or a device.
//!
//! [`Memberships`] knows the groups of each interface and when something has to be said about one;
//! [`query`] reads what a router asks, [`report`] writes what a host says, as a whole packet.
//!
//! A host speaks the oldest dialect that a router of its link was heard to speak lately. It has no
//! filters of sources: it is a member of a group for all of them.
//!
//! Road not taken: several records in one report. Each group has a time of its own, so there would
//! seldom be two.

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use crate::Address;
use crate::checksum::Checksum;
use crate::header::{ICMP_V6, IGMP};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
/// How long a router's older dialect is spoken after it was heard: twice the interval of its
/// queries and a time for answers (RFC 3376, 8.12; RFC 3810, 9.12).
const OLD_ROUTER: u64 = 260 * SECOND;
/// A change is said so many times, because a report may be lost (the robustness variable).
const TIMES: u8 = 2;
/// The most time between these: RFC 3376, 8.11; before that RFC 2236, 8.10 and RFC 2710, 7.10.
const REPEAT: u64 = SECOND;
const OLD_REPEAT: u64 = 10 * SECOND;

/// From so many memberships on a host says once that it leaves a group: programs that join and
/// leave many must not fill the memory with what is to be said again.
const MANY: usize = 1024;

/// The longest packet of [`report`].
const LONGEST: usize = 40 + 8 + 28;

/// Whole packets of IP.
pub type Message = ArrayVec<u8, LONGEST>;

/// The dialect of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// IGMPv1: nobody says that it leaves.
    First,
    /// IGMPv2 and MLDv1.
    Second,
    /// IGMPv3 and MLDv2.
    Third,
}

/// A router's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The dialect that it is in.
    pub dialect: Dialect,
    /// The group that is asked about; `None`: all.
    pub group: Option<Address>,
    /// The most time until an answer, in nanoseconds.
    pub patience: u64,
}

/// What a host says about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saying {
    /// It is a member.
    IsMember,
    /// It has become one.
    Joined,
    /// It is none any more.
    Left,
}

/// Reads a query: the payload of IGMP, or a message of ICMPv6, of which `message` has at least the
/// first 28 bytes and which is `length` bytes long. `None` if it is none. The checksum, and that a
/// neighbour sent it, is for the caller to look at.
pub fn query(is_v4: bool, message: &[u8], length: usize) -> Option<Query> {
    if is_v4 { query_v4(message, length) } else { query_v6(message, length) }
}

/// A time that is a number below `limit` or has an exponent above it (RFC 3376, 4.1.1; RFC 3810,
/// 5.1.3): three bits, then `bits` of a mantissa with a one before it.
fn floating(code: u32, limit: u32, bits: u32) -> u64 {
    if code < limit {
        return code.into();
    }
    let mantissa = code & ((1 << bits) - 1) | 1 << bits;
    u64::from(mantissa) << ((code >> bits & 7) + 3)
}

fn query_v4(message: &[u8], length: usize) -> Option<Query> {
    let [0x11, code, _, _, group @ ..] = message else { return None };
    let group = Address::v4(u32::from_be_bytes(*group.first_chunk()?));
    let (dialect, patience) = match (length, *code) {
        (8, 0) => (Dialect::First, 10 * SECOND),
        (8, code) => (Dialect::Second, u64::from(code) * 100 * MILLISECOND),
        (12.., code) => (Dialect::Third, floating(code.into(), 128, 4) * 100 * MILLISECOND),
        _ => return None,
    };
    finish(dialect, group, patience)
}

fn query_v6(message: &[u8], length: usize) -> Option<Query> {
    let [130, _, _, _, high, low, _, _, group @ ..] = message else { return None };
    let code = u32::from(u16::from_be_bytes([*high, *low]));
    let group = Address::v6(u128::from_be_bytes(*group.first_chunk()?));
    let (dialect, patience) = match length {
        24 => (Dialect::Second, u64::from(code)),
        28.. => (Dialect::Third, floating(code, 32768, 12)),
        _ => return None,
    };
    finish(dialect, group, patience * MILLISECOND)
}

fn finish(dialect: Dialect, group: Address, patience: u64) -> Option<Query> {
    match group.is_any() {
        true => Some(Query { dialect, group: None, patience }),
        false if group.is_multicast() => Some(Query { dialect, group: Some(group), patience }),
        false => None,
    }
}

/// Reads the report of another host in an older dialect: the group.
pub fn heard_report(is_v4: bool, message: &[u8]) -> Option<Address> {
    let group = match (is_v4, message) {
        (true, [0x12 | 0x16, _, _, _, group @ ..]) => {
            Address::v4(u32::from_be_bytes(*group.first_chunk()?))
        }
        (false, [131, _, _, _, _, _, _, _, group @ ..]) => {
            Address::v6(u128::from_be_bytes(*group.first_chunk()?))
        }
        _ => return None,
    };
    group.is_multicast().then_some(group)
}

/// Whether routers are told of a group: not of that of all hosts, nor of such as stay in a machine
/// (RFC 3376, 6; RFC 3810, 6).
pub fn is_told(group: Address) -> bool {
    const ALL_V4: Address = Address::v4(0xe000_0001);
    const ALL_V6: Address = Address::v6(0xff02_0000_0000_0000_0000_0000_0000_0001);
    let scope = group.bits() >> 112 & 15;
    group != ALL_V4 && group != ALL_V6 && (group.is_v4() || scope > 1)
}

/// Writes what a host at `source` says about a group, with the Router Alert option (RFC 2113, RFC
/// 2711). `None` if the dialect has no word for it.
pub fn report(
    dialect: Dialect,
    saying: Saying,
    group: Address,
    source: Address,
) -> Option<(Address, Message)> {
    let to = |v4: u32, v6: u128| if group.is_v4() { Address::v4(v4) } else { Address::v6(v6) };
    const LINK: u128 = 0xff02 << 112;
    let (destination, kind) = match (dialect, saying) {
        (Dialect::First, Saying::Left) => return None,
        (Dialect::First, _) => (group, 0x12),
        (Dialect::Second, Saying::Left) => {
            (to(0xe000_0002, LINK | 2), if group.is_v4() { 0x17 } else { 132 })
        }
        (Dialect::Second, _) => (group, if group.is_v4() { 0x16 } else { 131 }),
        (Dialect::Third, _) => {
            (to(0xe000_0016, LINK | 0x16), if group.is_v4() { 0x22 } else { 143 })
        }
    };
    let mut body: ArrayVec<u8, 28> = ArrayVec::new();
    body.extend([kind, 0, 0, 0]);
    if dialect == Dialect::Third {
        // One record: MODE_IS_EXCLUDE, CHANGE_TO_EXCLUDE_MODE or CHANGE_TO_INCLUDE_MODE, each with
        // no sources.
        let record = match saying {
            Saying::IsMember => 2,
            Saying::Joined => 4,
            Saying::Left => 3,
        };
        body.extend([0, 0, 0, 1, record, 0, 0, 0]);
    } else if !group.is_v4() {
        body.extend([0; 4]);
    }
    let octets = group.octets();
    let address = if group.is_v4() { &octets[12..] } else { &octets[..] };
    body.extend(address.iter().copied());
    let mut sum = Checksum::new();
    if !group.is_v4() {
        sum.add_pseudo(source, destination, ICMP_V6, body.len());
    }
    sum.add(&body);
    body[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    let mut message = Message::new();
    let head = if group.is_v4() { head_v4 } else { head_v6 };
    head(&mut message, source, destination, body.len());
    message.extend(body);
    Some((destination, message))
}

/// Writes a header of IPv4 with Router Alert.
fn head_v4(to: &mut Message, source: Address, destination: Address, length: usize) {
    to.extend([0x46, 0xc0, 0, (24 + length) as u8, 0, 0, 0x40, 0, 1, IGMP, 0, 0]);
    to.extend(source.octets().into_iter().skip(12));
    to.extend(destination.octets().into_iter().skip(12));
    to.extend([0x94, 4, 0, 0]);
    let mut sum = Checksum::new();
    sum.add(to);
    to[10..12].copy_from_slice(&sum.finish().to_be_bytes());
}

/// Writes a header of IPv6, and that of the options of each hop with Router Alert.
fn head_v6(to: &mut Message, source: Address, destination: Address, length: usize) {
    to.extend([0x60, 0, 0, 0, 0, (8 + length) as u8, 0, 1]);
    to.extend(source.octets());
    to.extend(destination.octets());
    to.extend([ICMP_V6, 0, 5, 2, 0, 0, 1, 0]);
}

/// An interface, of which queries were heard, by one version of IP.
#[derive(Debug)]
struct Link {
    interface: u32,
    is_v4: bool,
    /// Until when each older dialect is spoken.
    first_until: u64,
    second_until: u64,
}

/// A group of an interface.
#[derive(Debug)]
struct Member {
    interface: u32,
    group: Address,
    /// The number of sockets that have joined it.
    users: usize,
    /// The next report, its time, and how many follow it.
    next: Option<(u64, Saying)>,
    repeats: u8,
}

/// There was no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// A message that is due on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// The interface.
    pub interface: u32,
    /// The dialect.
    pub dialect: Dialect,
    /// The message.
    pub saying: Saying,
    /// Of which group.
    pub group: Address,
}

/// The groups of a machine's interfaces.
#[derive(Debug, Default)]
pub struct Memberships {
    links: Vec<Link>,
    members: Vec<Member>,
}

impl Memberships {
    /// No memberships.
    pub const fn new() -> Self {
        Self { links: Vec::new(), members: Vec::new() }
    }

    fn find(&self, group: Address, interface: u32) -> Option<usize> {
        let is_it = |member: &Member| member.group == group && member.interface == interface;
        self.members.iter().position(is_it)
    }

    /// Whether a socket has joined a group.
    pub fn has(&self, group: Address, interface: u32) -> bool {
        self.find(group, interface).is_some_and(|at| self.members[at].users > 0)
    }

    /// A socket joins a group. `tells`: routers are told, if they are of such groups.
    ///
    /// # Errors
    /// [`NoMemory`]; then nothing has changed.
    pub fn join(
        &mut self,
        group: Address,
        interface: u32,
        now: u64,
        tells: bool,
    ) -> Result<(), NoMemory> {
        let at = match self.find(group, interface) {
            Some(at) => at,
            None => {
                self.members.try_reserve(1).map_err(|_| NoMemory)?;
                self.members.push(Member { interface, group, users: 0, next: None, repeats: 0 });
                self.members.len() - 1
            }
        };
        let member = &mut self.members[at];
        member.users += 1;
        if member.users == 1 && tells && is_told(group) {
            (member.next, member.repeats) = (Some((now, Saying::Joined)), TIMES - 1);
        }
        Ok(())
    }

    /// A socket leaves a group.
    pub fn leave(&mut self, group: Address, interface: u32, now: u64, tells: bool) {
        let Some(at) = self.find(group, interface) else { return };
        let is_full = self.members.len() > MANY;
        let member = &mut self.members[at];
        member.users = member.users.saturating_sub(1);
        if member.users > 0 {
            return;
        }
        if tells && is_told(group) {
            let repeats = if is_full { 0 } else { TIMES - 1 };
            (member.next, member.repeats) = (Some((now, Saying::Left)), repeats);
        } else {
            self.members.swap_remove(at);
        }
    }

    fn dialect(&self, interface: u32, is_v4: bool, now: u64) -> Dialect {
        let is_it = |link: &&Link| link.interface == interface && link.is_v4 == is_v4;
        match self.links.iter().find(is_it) {
            Some(link) if now < link.first_until => Dialect::First,
            Some(link) if now < link.second_until => Dialect::Second,
            _ => Dialect::Third,
        }
    }

    /// A router asks. `below` returns a random number below its argument. Without memory for the
    /// link the query is answered in the newest dialect.
    pub fn on_query(
        &mut self,
        interface: u32,
        is_v4: bool,
        query: &Query,
        now: u64,
        mut below: impl FnMut(u64) -> u64,
    ) {
        if query.dialect != Dialect::Third {
            self.note_router(interface, is_v4, query.dialect, now);
        }
        for member in &mut self.members {
            let is_asked = query.group.is_none_or(|group| group == member.group);
            let is_here = member.interface == interface && member.group.is_v4() == is_v4;
            if !is_asked || !is_here || member.users == 0 || !is_told(member.group) {
                continue;
            }
            let at = now.saturating_add(below(query.patience.max(1)));
            match member.next {
                // It is said soon enough.
                Some((soon, _)) if soon <= at => {}
                Some((_, saying)) => member.next = Some((at, saying)),
                None => member.next = Some((at, Saying::IsMember)),
            }
        }
    }

    fn note_router(&mut self, interface: u32, is_v4: bool, dialect: Dialect, now: u64) {
        let is_it = |link: &Link| link.interface == interface && link.is_v4 == is_v4;
        let at = match self.links.iter().position(is_it) {
            Some(at) => at,
            None if self.links.try_reserve(1).is_ok() => {
                self.links.push(Link { interface, is_v4, first_until: 0, second_until: 0 });
                self.links.len() - 1
            }
            None => return,
        };
        let link = &mut self.links[at];
        let until =
            if dialect == Dialect::First { &mut link.first_until } else { &mut link.second_until };
        *until = now.saturating_add(OLD_ROUTER);
    }

    /// Another host has said in an older dialect that it is a member: one is enough (RFC 2236, 3;
    /// RFC 2710, 4).
    pub fn on_report(&mut self, interface: u32, group: Address, now: u64) {
        let dialect = self.dialect(interface, group.is_v4(), now);
        if let (true, Some(at)) = (dialect != Dialect::Third, self.find(group, interface))
            && let member = &mut self.members[at]
            && member.next.is_some_and(|(_, saying)| saying == Saying::IsMember)
        {
            member.next = None;
        }
    }

    /// Takes one thing that is due, from the place `from` of the list on, which moves: all are
    /// looked at once, however many are due. Call it until there is none.
    pub fn due(
        &mut self,
        from: &mut usize,
        now: u64,
        mut below: impl FnMut(u64) -> u64,
    ) -> Option<Due> {
        let is_due = |member: &Member| member.next.is_some_and(|(at, _)| at <= now);
        let at = *from + self.members.get(*from..)?.iter().position(is_due)?;
        *from = at + 1;
        let Member { interface, group, .. } = self.members[at];
        let dialect = self.dialect(interface, group.is_v4(), now);
        let member = &mut self.members[at];
        let (_, saying) = member.next.take()?;
        let mut again = member.repeats > 0 && saying != Saying::IsMember;
        // In older dialects it is said once that a host leaves.
        again &= dialect == Dialect::Third || saying == Saying::Joined;
        if again {
            member.repeats -= 1;
            let most = if dialect == Dialect::Third { REPEAT } else { OLD_REPEAT };
            member.next = Some((now.saturating_add(1 + below(most)), saying));
        } else if member.users == 0 {
            self.members.swap_remove(at);
            *from = at;
        }
        Some(Due { interface, dialect, saying, group })
    }

    /// When something is due next.
    pub fn deadline(&self) -> Option<u64> {
        self.members.iter().filter_map(|member| member.next.map(|(at, _)| at)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Address = Address::v4(0xefff_0102);
    const HOST: Address = Address::v4(0x0a00_020f);

    fn general(dialect: Dialect) -> Query {
        Query { dialect, group: None, patience: 10 * SECOND }
    }

    fn all_due(memberships: &mut Memberships, now: u64) -> Vec<Saying> {
        let mut from = 0;
        let mut next = || memberships.due(&mut from, now, |most| most / 2);
        core::iter::from_fn(|| next().map(|due| due.saying)).collect()
    }

    #[test]
    fn queries_of_all_dialects_are_read() {
        let read = |bytes: &[u8]| query(true, bytes, bytes.len());
        let v1 = read(&[0x11, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!((v1.dialect, v1.group, v1.patience), (Dialect::First, None, 10 * SECOND));
        let v2 = read(&[0x11, 20, 0, 0, 239, 255, 1, 2]).unwrap();
        assert_eq!((v2.dialect, v2.group), (Dialect::Second, Some(GROUP)));
        assert_eq!(v2.patience, 2 * SECOND);
        let v3 = read(&[0x11, 0x8f, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]).unwrap();
        // Mantissa 15, exponent 0: 31 << 3 tenths of a second.
        assert_eq!((v3.dialect, v3.patience), (Dialect::Third, 248 * SECOND / 10));
        assert_eq!(read(&[0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(read(&[0x11, 1, 0, 0, 10, 0, 0, 1]), None);
        assert_eq!(read(&[0x16, 1, 0, 0, 239, 0, 0, 1]), None);
        assert_eq!(read(&[0x11, 1, 0]), None);
        let mut mld = [0; 28];
        (mld[0], mld[4], mld[5]) = (130, 0x27, 0x10);
        assert_eq!(query(false, &mld[..24], 24).unwrap().patience, 10 * SECOND);
        assert_eq!(query(false, &mld, 28).unwrap().dialect, Dialect::Third);
        assert_eq!(query(false, &mld[..26], 26), None);
        (mld[8], mld[9], mld[23]) = (0xff, 5, 1);
        assert!(query(false, &mld, 28).unwrap().group.is_some());
    }

    #[test]
    fn random_messages_are_read_within_their_bounds() {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        for _ in 0..100_000 {
            let length = usize::from(byte()) % 40;
            let mut message: Vec<u8> = (0..length).map(|_| byte()).collect();
            if let Some(first) = message.first_mut() {
                *first = [0x11, 0x12, 0x16, 130, 131, *first][usize::from(byte()) % 6];
            }
            for is_v4 in [true, false] {
                if let Some(query) = query(is_v4, &message, length) {
                    assert!(query.group.is_none_or(Address::is_multicast));
                    assert!(query.patience <= 9_000 * SECOND);
                }
                assert!(heard_report(is_v4, &message).is_none_or(Address::is_multicast));
            }
        }
    }

    #[test]
    fn reports_are_good_packets() {
        for (dialect, saying, to, kind) in [
            (Dialect::First, Saying::Joined, GROUP, 0x12),
            (Dialect::Second, Saying::IsMember, GROUP, 0x16),
            (Dialect::Second, Saying::Left, Address::v4(0xe000_0002), 0x17),
            (Dialect::Third, Saying::Joined, Address::v4(0xe000_0016), 0x22),
        ] {
            let (destination, message) = report(dialect, saying, GROUP, HOST).unwrap();
            assert_eq!(destination, to);
            let (header, extent) = crate::header::parse(&message, message.len()).unwrap();
            assert_eq!((header.source, header.destination, header.hop_limit), (HOST, to, 1));
            assert_eq!((header.protocol, extent.offset), (IGMP, 24));
            let body = &message[24..];
            assert_eq!(body.len(), extent.length);
            let mut sum = Checksum::new();
            sum.add(body);
            assert!(sum.is_good());
            assert_eq!(body[0], kind);
            assert_eq!(body[body.len() - 4..], [239, 255, 1, 2]);
        }
        assert_eq!(report(Dialect::First, Saying::Left, GROUP, HOST), None);
        let (_, message) = report(Dialect::Third, Saying::Left, GROUP, HOST).unwrap();
        assert_eq!(message[24 + 8], 3);
    }

    #[test]
    fn reports_of_ipv6_are_good_packets() {
        let group: Address = Address::v6(0xff05 << 112 | 7);
        for (dialect, saying, kind) in [
            (Dialect::Second, Saying::Joined, 131),
            (Dialect::Second, Saying::Left, 132),
            (Dialect::Third, Saying::IsMember, 143),
        ] {
            let source = Address::v6(0xfe80 << 112 | 1);
            let (destination, message) = report(dialect, saying, group, source).unwrap();
            let (header, extent) = crate::header::parse(&message, message.len()).unwrap();
            assert_eq!((header.destination, header.protocol), (destination, ICMP_V6));
            assert_eq!((header.hop_limit, extent.offset), (1, 48));
            let body = &message[48..];
            let mut sum = Checksum::new();
            sum.add_pseudo(source, destination, ICMP_V6, body.len());
            sum.add(body);
            assert!(sum.is_good() && body[0] == kind);
        }
    }

    #[test]
    fn some_groups_are_not_told() {
        let v6 = |high: u128, low| Address::v6(high << 112 | low);
        assert!(!is_told(Address::v4(0xe000_0001)) && is_told(Address::v4(0xe000_00fb)));
        assert!(!is_told(v6(0xff02, 1)) && !is_told(v6(0xff01, 5)) && !is_told(v6(0xff00, 5)));
        assert!(is_told(v6(0xff02, 0xfb)));
    }

    #[test]
    fn a_change_is_said_twice_and_then_nothing_is_due() {
        let mut groups = Memberships::new();
        groups.join(GROUP, 2, 100, true).unwrap();
        groups.join(GROUP, 2, 100, true).unwrap();
        assert!(groups.has(GROUP, 2) && !groups.has(GROUP, 3));
        assert_eq!(all_due(&mut groups, 100), [Saying::Joined]);
        let again = groups.deadline().unwrap();
        assert!(again > 100 && again <= 101 + REPEAT);
        assert_eq!(all_due(&mut groups, again), [Saying::Joined]);
        assert_eq!(groups.deadline(), None);
        groups.leave(GROUP, 2, again, true);
        assert_eq!(groups.deadline(), None);
        groups.leave(GROUP, 2, again, true);
        assert!(!groups.has(GROUP, 2));
        assert_eq!(all_due(&mut groups, again), [Saying::Left]);
        // Joined again, before it was said twice.
        groups.join(GROUP, 2, again, true).unwrap();
        assert_eq!(all_due(&mut groups, again), [Saying::Joined]);
        groups.leave(GROUP, 2, again, true);
        while let Some(at) = groups.deadline() {
            all_due(&mut groups, at);
        }
        assert!(groups.members.is_empty());
        groups.join(GROUP, 1, 0, false).unwrap();
        assert_eq!(groups.deadline(), None);
        groups.leave(GROUP, 1, 0, false);
        assert!(groups.members.is_empty());
    }

    #[test]
    fn queries_are_answered_in_their_dialect_and_in_time() {
        let mut groups = Memberships::new();
        groups.join(GROUP, 2, 0, true).unwrap();
        groups.join(Address::v4(0xe000_0001), 2, 0, true).unwrap();
        while let Some(at) = groups.deadline() {
            all_due(&mut groups, at);
        }
        let now = 100 * SECOND;
        groups.on_query(2, true, &general(Dialect::Second), now, |most| most - 1);
        assert_eq!(groups.deadline(), Some(now + 10 * SECOND - 1));
        // A query that is more urgent.
        let soon = Query { group: Some(GROUP), patience: SECOND, ..general(Dialect::Second) };
        groups.on_query(2, true, &soon, now, |most| most - 1);
        let at = groups.deadline().unwrap();
        assert_eq!(at, now + SECOND - 1);
        let due = groups.due(&mut 0, at, |_| 0).unwrap();
        assert_eq!(
            (due.dialect, due.saying, due.group),
            (Dialect::Second, Saying::IsMember, GROUP)
        );
        assert_eq!(groups.deadline(), None);
        // Another host is quicker.
        groups.on_query(2, true, &soon, at, |most| most - 1);
        groups.on_report(2, GROUP, at);
        assert_eq!(groups.deadline(), None);
        // When the old router is gone the newest dialect is spoken, and nobody is quicker.
        let later = at + OLD_ROUTER;
        groups.on_query(2, true, &general(Dialect::Third), later, |_| 5);
        groups.on_report(2, GROUP, later);
        assert_eq!(groups.due(&mut 0, later + 5, |_| 0).unwrap().dialect, Dialect::Third);
        // Other interfaces, other versions, other groups.
        groups.on_query(3, true, &general(Dialect::Third), later, |_| 0);
        groups.on_query(2, false, &general(Dialect::Third), later, |_| 0);
        let other = Query { group: Some(Address::v4(0xefff_0103)), ..general(Dialect::Third) };
        groups.on_query(2, true, &other, later, |_| 0);
        assert_eq!(groups.deadline(), None);
    }

    #[test]
    fn an_old_router_is_not_told_of_leaving() {
        let mut groups = Memberships::new();
        groups.on_query(2, true, &general(Dialect::First), 0, |_| 0);
        groups.join(GROUP, 2, 0, true).unwrap();
        let due = groups.due(&mut 0, 0, |_| 0).unwrap();
        assert_eq!(due.dialect, Dialect::First);
        groups.leave(GROUP, 2, 0, true);
        let due = groups.due(&mut 0, 0, |_| 0).unwrap();
        assert_eq!(report(due.dialect, due.saying, due.group, HOST), None);
        assert!(groups.members.is_empty());
    }
}
