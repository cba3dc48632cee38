//! Membership in groups: the host's part of IGMP (RFC 1112, 2236 and 3376) and of MLD (RFC 2710 and
//! 3810), without a clock, a lock or a device.
//!
//! [`Memberships`] knows the groups of each interface, the sources that are wanted of each
//! ([`merged`]), and when something has to be said about one; [`query`] reads what a router asks,
//! [`report`] writes what a host says, as a whole packet.
//!
//! A host speaks the oldest dialect that a router of its link was heard to speak lately. Only the
//! newest has words for sources: in an older one a host is a member of a group or is not.
//!
//! Road not taken: records of several groups in one report. Each group has a time of its own, so
//! there would seldom be two.

mod merged;
mod message;

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use self::merged::Merged;
use crate::Address;
use crate::source_filter::SourceFilter;

pub use self::message::{QUERY, heard_report, query, report};

const SECOND: u64 = 1_000_000_000;
/// How long a router's older dialect is spoken after it was heard: twice the interval of its
/// queries and a time for answers (RFC 3376, 8.12; RFC 3810, 9.12).
const OLD_ROUTER: u64 = 260 * SECOND;
/// A change is said so many times, because a report may be lost (the robustness variable).
const TIMES: u8 = 2;
/// The most time between these: RFC 3376, 8.11; before that RFC 2236, 8.10 and RFC 2710, 7.10.
const REPEAT: u64 = SECOND;
const OLD_REPEAT: u64 = 10 * SECOND;

/// From so many memberships on a host says a change once: programs that join and leave many must
/// not fill the memory with what is to be said again.
const MANY: usize = 1024;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The dialect that it is in.
    pub dialect: Dialect,
    /// The group that is asked about; `None`: all.
    pub group: Option<Address>,
    /// The most time until an answer, in nanoseconds.
    pub patience: u64,
    /// The sources that are asked about; `None`: all.
    pub sources: Option<Vec<Address>>,
}

/// The kind of a record of the newest dialect, by its number (RFC 3376, 4.2.12; RFC 3810, 5.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// These sources are wanted.
    IsInclude = 1,
    /// All but these are.
    IsExclude = 2,
    /// From now on these are wanted.
    ToInclude = 3,
    /// From now on all but these are.
    ToExclude = 4,
    /// These are wanted now, too.
    Allow = 5,
    /// These are not wanted any more.
    Block = 6,
}

/// A record of the newest dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What it says of its sources.
    pub kind: Kind,
    /// The sources.
    pub sources: Vec<Address>,
}

/// What a host says about a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saying {
    /// It is a member; in an older dialect.
    IsMember,
    /// It has become one; in an older dialect.
    Joined,
    /// It is none any more; in an older dialect.
    Left,
    /// In the newest dialect.
    Records(ArrayVec<Record, 2>),
}

impl Saying {
    fn records(&self) -> &[Record] {
        if let Saying::Records(records) = self { records } else { &[] }
    }
}

/// Whether routers are told of a group: not of that of all hosts, nor of such as stay in a machine
/// (RFC 3376, 6; RFC 3810, 6).
pub fn is_told(group: Address) -> bool {
    const ALL_V4: Address = Address::v4(0xe000_0001);
    const ALL_V6: Address = Address::v6(0xff02_0000_0000_0000_0000_0000_0000_0001);
    let scope = group.bits() >> 112 & 15;
    group != ALL_V4 && group != ALL_V6 && (group.is_v4() || scope > 1)
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

/// An answer that is due to a router.
#[derive(Debug)]
struct Answer {
    at: u64,
    /// The sources that were asked about; `None`: all.
    asked: Option<Vec<Address>>,
    /// The sources that come next: a long answer is several messages.
    from: usize,
}

/// A group of an interface.
#[derive(Debug)]
struct Member {
    interface: u32,
    group: Address,
    filter: Merged,
    /// The host was a member when that was last looked at.
    was_member: bool,
    /// When the next report of a change is due.
    change_at: Option<u64>,
    /// How often it has yet to be said in an older dialect that the host has joined or left.
    turns: u8,
    answer: Option<Answer>,
}

/// A group of an interface, as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a>(&'a Member);

impl<'a> Listed<'a> {
    /// The interface.
    pub fn interface(self) -> u32 {
        self.0.interface
    }

    /// The group.
    pub fn group(self) -> Address {
        self.0.group
    }

    /// The number of sockets that have joined it.
    pub fn users(self) -> usize {
        self.0.filter.users()
    }

    /// When something is said of it next.
    pub fn next(self) -> Option<u64> {
        self.0.next()
    }

    /// The sources that sockets name, with the numbers of sockets that include and exclude each.
    pub fn sources(self) -> impl Iterator<Item = (Address, [u32; 2])> + 'a {
        self.0.filter.named()
    }
}

/// There was no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// A message that is due on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl Member {
    fn next(&self) -> Option<u64> {
        let answer = self.answer.as_ref().map(|answer| answer.at);
        [self.change_at, answer].into_iter().flatten().min()
    }

    /// After filters were counted: what has changed is said from `now` on, so many times.
    fn settle(&mut self, now: u64, times: u8) {
        let is_member = self.filter.is_member();
        if is_member != core::mem::replace(&mut self.was_member, is_member) {
            self.turns = times;
        }
        if self.filter.settle(times) && times > 0 {
            self.change_at = Some(now);
        }
    }

    /// Says a change in a dialect, and when it is said again. `None`: there is no word for it.
    fn say_change(
        &mut self,
        dialect: Dialect,
        now: u64,
        below: &mut impl FnMut(u64) -> u64,
    ) -> Option<Saying> {
        let mut again = |most| Some(now.saturating_add(1 + below(most)));
        self.change_at = None;
        if dialect == Dialect::Third {
            self.turns = self.turns.saturating_sub(1);
            let (records, is_over) = self.filter.say_changes(message::room(self.group.is_v4()));
            if !is_over {
                self.change_at = Some(now);
            } else if self.filter.is_pending() {
                self.change_at = again(REPEAT);
            }
            return (!records.is_empty()).then_some(Saying::Records(records));
        }
        self.filter.forget_changes();
        let turns = core::mem::take(&mut self.turns);
        if turns == 0 {
            return None;
        }
        // It is said once that a host leaves.
        if self.was_member && turns > 1 {
            self.turns = turns - 1;
            self.change_at = again(OLD_REPEAT);
        }
        Some(if self.was_member { Saying::Joined } else { Saying::Left })
    }

    /// Says a part of the answer that is due; the answer is over when there is no more.
    fn say_answer(&mut self, dialect: Dialect) -> Option<Saying> {
        let mut answer = self.answer.take()?;
        if !self.filter.is_member() {
            return None;
        }
        if dialect != Dialect::Third {
            return Some(Saying::IsMember);
        }
        let room = message::room(self.group.is_v4());
        let record = match &answer.asked {
            None => self.filter.say_state(&mut answer.from, room),
            Some(asked) => self.filter.say_wanted(asked, &mut answer.from, room),
        }?;
        self.answer = Some(answer);
        Some(Saying::Records([record].into_iter().collect()))
    }

    /// A router asks about this group; the answer is due at `at` at the latest (RFC 3376, 5.2).
    fn ask(&mut self, at: u64, sources: Option<&[Address]>) {
        let copy = |sources: &[Address], more: &[Address]| {
            let mut copy = Vec::new();
            let length = sources.len() + more.len();
            (length <= message::MOST_ASKED && copy.try_reserve(length).is_ok()).then(|| {
                copy.extend_from_slice(sources);
                copy.extend(more.iter().filter(|source| !sources.contains(source)));
                copy
            })
        };
        let before = self.answer.take();
        let at = before.as_ref().map_or(at, |before| at.min(before.at));
        let asked = match (before, sources) {
            (None, Some(sources)) => copy(sources, &[]),
            (Some(Answer { asked: Some(before), .. }), Some(sources)) => copy(&before, sources),
            _ => None,
        };
        self.answer = Some(Answer { at, asked, from: 0 });
    }
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

    /// Whether a socket wants what this host sends to a group.
    pub fn allows(&self, group: Address, interface: u32, source: Address) -> bool {
        self.find(group, interface).is_some_and(|at| self.members[at].filter.allows(source))
    }

    /// The filter of a socket for a group changes from `old` to `new`: the socket joins if it had
    /// none, and leaves if it has none. `tells`: routers are told, if they are of such groups.
    ///
    /// # Errors
    /// [`NoMemory`] if there is a new filter; then nothing has changed.
    pub fn change(
        &mut self,
        (group, interface): (Address, u32),
        (old, new): (Option<&SourceFilter>, Option<&SourceFilter>),
        now: u64,
        tells: bool,
    ) -> Result<(), NoMemory> {
        let at = match self.find(group, interface) {
            Some(at) => at,
            None if new.is_none() => return Ok(()),
            None => {
                self.members.try_reserve(1).map_err(|_| NoMemory)?;
                self.members.push(Member {
                    interface,
                    group,
                    filter: Merged::new(),
                    was_member: false,
                    change_at: None,
                    turns: 0,
                    answer: None,
                });
                self.members.len() - 1
            }
        };
        let is_full = self.members.len() > MANY;
        let member = &mut self.members[at];
        let added = new.map_or(Ok(()), |new| member.filter.add(new));
        if let (Ok(()), Some(old)) = (added, old) {
            member.filter.remove(old);
        }
        if added.is_ok() {
            let times = if is_full { 1 } else { TIMES };
            member.settle(now, if tells && is_told(group) { times } else { 0 });
        }
        self.sweep(at);
        added
    }

    /// Forgets a group that nobody has joined and of which nothing has to be said. Returns whether
    /// it did; another is in its place then.
    fn sweep(&mut self, at: usize) -> bool {
        let member = &self.members[at];
        let is_over = member.filter.users() == 0 && member.change_at.is_none();
        if is_over {
            self.members.swap_remove(at);
        }
        is_over
    }

    /// The groups that sockets have joined.
    pub fn listed(&self) -> impl Iterator<Item = Listed<'_>> {
        self.members.iter().filter(|member| member.filter.users() > 0).map(Listed)
    }

    /// The dialect that is spoken on an interface now.
    pub fn dialect(&self, interface: u32, is_v4: bool, now: u64) -> Dialect {
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
            if is_asked && is_here && member.filter.is_member() && is_told(member.group) {
                let at = now.saturating_add(below(query.patience.max(1)));
                member.ask(at, query.sources.as_deref());
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
        if let (true, Some(at)) = (dialect != Dialect::Third, self.find(group, interface)) {
            self.members[at].answer = None;
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
        loop {
            let is_due = |member: &Member| member.next().is_some_and(|at| at <= now);
            *from += self.members.get(*from..)?.iter().position(is_due)?;
            let at = *from;
            let Member { interface, group, .. } = self.members[at];
            let dialect = self.dialect(interface, group.is_v4(), now);
            let member = &mut self.members[at];
            let saying = match member.change_at {
                Some(change_at) if change_at <= now => member.say_change(dialect, now, &mut below),
                _ => member.say_answer(dialect),
            };
            if !self.sweep(at) && !is_due(&self.members[at]) {
                *from = at + 1;
            }
            if let Some(saying) = saying {
                return Some(Due { interface, dialect, saying, group });
            }
        }
    }

    /// When something is due next.
    pub fn deadline(&self) -> Option<u64> {
        self.members.iter().filter_map(Member::next).min()
    }
}

#[cfg(test)]
mod tests;
