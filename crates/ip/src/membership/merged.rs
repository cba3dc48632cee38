//! The filters of all sockets that have joined a group on an interface, as one (RFC 3376, 3.2; RFC
//! 3810, 4.2), and what has yet to be said of its changes (RFC 3376, 5.1; RFC 3810, 6.1).
//!
//! Each source is counted in both modes, as on Linux (`struct ip_sf_list`). The filter excludes if
//! that of a socket does: then it has the sources that all of these exclude and no other socket
//! includes. Otherwise it includes what any socket does. A change is said some times, because a
//! report may be lost: each source has a count of its own, and the mode has one; while that runs,
//! what is said is the whole filter.

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use super::{Kind, NoMemory, Record};
use crate::Address;
use crate::source_filter::{Mode, SourceFilter};

/// A source that a socket names, or of which something has yet to be said.
#[derive(Debug)]
struct Source {
    address: Address,
    /// How many sockets include it, and exclude it.
    users: [u32; 2],
    /// It was in the filter when that was last looked at.
    was: bool,
    /// How often its change has yet to be said, and whether it was in this turn.
    changes: u8,
    is_said: bool,
}

/// The merged filter.
#[derive(Debug)]
pub(super) struct Merged {
    /// How many sockets include, and exclude.
    users: [usize; 2],
    /// In the order of their addresses.
    list: Vec<Source>,
    /// The mode when it was last looked at, and how often its change has yet to be said.
    was: Mode,
    changes: u8,
}

impl Merged {
    /// The filter of no socket.
    pub(super) const fn new() -> Self {
        Self { users: [0; 2], list: Vec::new(), was: Mode::Include, changes: 0 }
    }

    /// The number of sockets.
    pub(super) fn users(&self) -> usize {
        self.users[0] + self.users[1]
    }

    /// The sources that sockets name, and how many include and exclude each.
    pub(super) fn named(&self) -> impl Iterator<Item = (Address, [u32; 2])> + '_ {
        let is_named = |source: &&Source| source.users != [0; 2];
        self.list.iter().filter(is_named).map(|source| (source.address, source.users))
    }

    fn mode(&self) -> Mode {
        if self.users[Mode::Exclude as usize] > 0 { Mode::Exclude } else { Mode::Include }
    }

    /// Whether a source is in the list of the filter.
    fn has(&self, source: &Source) -> bool {
        let [included, excluded] = source.users;
        match self.mode() {
            Mode::Include => included > 0,
            Mode::Exclude => included == 0 && excluded as usize == self.users[1],
        }
    }

    /// Whether anything is wanted: without a source that is included the host is no member.
    pub(super) fn is_member(&self) -> bool {
        self.mode() == Mode::Exclude || self.list.iter().any(|source| self.has(source))
    }

    /// Whether what this host sends is wanted.
    pub(super) fn allows(&self, source: Address) -> bool {
        let found = self.list.binary_search_by_key(&source, |source| source.address);
        let is_listed = found.is_ok_and(|at| self.has(&self.list[at]));
        is_listed == (self.mode() == Mode::Include)
    }

    /// Counts a socket's filter.
    ///
    /// # Errors
    /// [`NoMemory`]; then nothing has changed.
    pub(super) fn add(&mut self, filter: &SourceFilter) -> Result<(), NoMemory> {
        self.list.try_reserve(filter.sources().len()).map_err(|_| NoMemory)?;
        let mode = filter.mode() as usize;
        for &address in filter.sources() {
            let at = match self.list.binary_search_by_key(&address, |source| source.address) {
                Ok(at) => at,
                Err(at) => {
                    let fresh =
                        Source { address, users: [0; 2], was: false, changes: 0, is_said: false };
                    self.list.insert(at, fresh);
                    at
                }
            };
            self.list[at].users[mode] += 1;
        }
        self.users[mode] += 1;
        Ok(())
    }

    /// Counts it no more.
    pub(super) fn remove(&mut self, filter: &SourceFilter) {
        let mode = filter.mode() as usize;
        for address in filter.sources() {
            if let Ok(at) = self.list.binary_search_by_key(address, |source| source.address) {
                let users = &mut self.list[at].users[mode];
                *users = users.saturating_sub(1);
            }
        }
        self.users[mode] = self.users[mode].saturating_sub(1);
    }

    /// Looks at the filter after filters were counted. What has changed is to be said so many
    /// `times`. Returns whether something has.
    pub(super) fn settle(&mut self, times: u8) -> bool {
        let mode = self.mode();
        let has_turned = mode != core::mem::replace(&mut self.was, mode);
        let mut has_changed = has_turned;
        if has_turned {
            self.changes = times;
        }
        for at in 0..self.list.len() {
            let is = self.has(&self.list[at]);
            let source = &mut self.list[at];
            let has_moved = is != core::mem::replace(&mut source.was, is);
            if has_turned {
                source.changes = 0;
            } else if has_moved {
                source.changes = times;
                has_changed = true;
            }
            source.is_said = false;
        }
        self.clean();
        has_changed
    }

    /// Forgets the sources that nobody names and of which nothing has to be said.
    fn clean(&mut self) {
        self.list.retain(|source| source.users != [0; 2] || source.changes > 0);
        if self.list.is_empty() {
            self.list = Vec::new();
        }
    }

    /// Whether a change has yet to be said.
    pub(super) fn is_pending(&self) -> bool {
        self.changes > 0 || self.list.iter().any(|source| source.changes > 0)
    }

    /// Nothing has to be said any more.
    pub(super) fn forget_changes(&mut self) {
        self.changes = 0;
        self.list.iter_mut().for_each(|source| source.changes = 0);
        self.clean();
    }

    /// Says what has changed, with up to `room` sources. Returns whether that is all of this turn;
    /// otherwise the rest follows in another message.
    pub(super) fn say_changes(&mut self, room: usize) -> (ArrayVec<Record, 2>, bool) {
        let mut records = ArrayVec::new();
        let mode = self.mode();
        let has_turned = self.changes > 0;
        let kinds = match mode {
            _ if !has_turned => [Kind::Allow, Kind::Block],
            Mode::Include => [Kind::ToInclude; 2],
            Mode::Exclude => [Kind::ToExclude; 2],
        };
        let mut lists = [Vec::new(), Vec::new()];
        let mut left = room;
        let mut is_over = true;
        for at in 0..self.list.len() {
            let is = self.has(&self.list[at]);
            let source = &mut self.list[at];
            if source.is_said || if has_turned { !is } else { source.changes == 0 } {
                continue;
            }
            if left == 0 {
                is_over = false;
                break;
            }
            let opens = is == (mode == Mode::Include);
            let list = &mut lists[usize::from(!has_turned && !opens)];
            if list.try_reserve(1).is_ok() {
                list.push(source.address);
            }
            left -= 1;
            source.is_said = true;
            source.changes = source.changes.saturating_sub(1);
        }
        let [first, second] = lists;
        if has_turned || !first.is_empty() {
            records.push(Record { kind: kinds[0], sources: first });
        }
        if !second.is_empty() {
            records.push(Record { kind: kinds[1], sources: second });
        }
        // What does not fit into such a record is left out (RFC 3376, 4.2.16).
        is_over |= has_turned && mode == Mode::Exclude;
        if is_over {
            self.changes = self.changes.saturating_sub(1);
            self.list.iter_mut().for_each(|source| source.is_said = false);
            self.clean();
        }
        (records, is_over)
    }

    /// Says what the filter is, with up to `room` sources, from the place `from` of the list on,
    /// which moves. `None`: there is nothing to say, or nothing more.
    pub(super) fn say_state(&self, from: &mut usize, room: usize) -> Option<Record> {
        let is_first = *from == 0;
        let mut sources = Vec::new();
        for source in self.list.get(*from..).unwrap_or_default() {
            if sources.len() == room {
                break;
            }
            *from += 1;
            if self.has(source) && sources.try_reserve(1).is_ok() {
                sources.push(source.address);
            }
        }
        if self.mode() == Mode::Exclude {
            *from = usize::MAX;
            return is_first.then_some(Record { kind: Kind::IsExclude, sources });
        }
        (!sources.is_empty()).then_some(Record { kind: Kind::IsInclude, sources })
    }

    /// Says which of some sources are wanted, from the place `from` of these on, which moves.
    pub(super) fn say_wanted(
        &self,
        asked: &[Address],
        from: &mut usize,
        room: usize,
    ) -> Option<Record> {
        let mut sources = Vec::new();
        for &source in asked.get(*from..).unwrap_or_default() {
            if sources.len() == room {
                break;
            }
            *from += 1;
            if self.allows(source) && sources.try_reserve(1).is_ok() {
                sources.push(source);
            }
        }
        (!sources.is_empty()).then_some(Record { kind: Kind::IsInclude, sources })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn at(last: u32) -> Address {
        Address::v4(0x0a00_0000 | last)
    }

    fn filter(mode: Mode, sources: &[u32]) -> SourceFilter {
        SourceFilter::new(mode, sources.iter().map(|last| at(*last)).collect())
    }

    /// The change from one filter of the only socket to another.
    fn change(merged: &mut Merged, old: Option<&SourceFilter>, new: Option<&SourceFilter>) -> bool {
        if let Some(new) = new {
            merged.add(new).unwrap();
        }
        if let Some(old) = old {
            merged.remove(old);
        }
        merged.settle(2)
    }

    fn said(merged: &mut Merged) -> Vec<(Kind, Vec<Address>)> {
        let (records, is_over) = merged.say_changes(100);
        assert!(is_over);
        records.into_iter().map(|record| (record.kind, record.sources)).collect()
    }

    #[test]
    fn the_filter_is_that_of_all_sockets() {
        use Mode::{Exclude, Include};
        let mut merged = Merged::new();
        assert!(!merged.is_member() && !merged.allows(at(1)));
        let some = filter(Include, &[1, 2]);
        change(&mut merged, None, Some(&some));
        assert!(merged.allows(at(1)) && !merged.allows(at(3)) && merged.is_member());
        let (one, other) = (filter(Exclude, &[2, 3]), filter(Exclude, &[3, 4]));
        change(&mut merged, None, Some(&one));
        // 3 is excluded; 2 is included by another socket.
        assert!(merged.allows(at(2)) && !merged.allows(at(3)) && merged.allows(at(9)));
        change(&mut merged, None, Some(&other));
        assert!(!merged.allows(at(3)) && merged.allows(at(4)));
        change(&mut merged, Some(&one), None);
        change(&mut merged, Some(&other), None);
        assert!(merged.allows(at(2)) && !merged.allows(at(4)));
        change(&mut merged, Some(&some), None);
        assert!(!merged.is_member() && merged.users() == 0);
        merged.forget_changes();
        assert!(merged.list.is_empty());
    }

    #[test]
    fn sources_that_come_and_go_are_said_twice() {
        let mut merged = Merged::new();
        let one = filter(Mode::Include, &[1]);
        let two = filter(Mode::Include, &[2, 3]);
        assert!(change(&mut merged, None, Some(&one)));
        assert_eq!(said(&mut merged), [(Kind::Allow, vec![at(1)])]);
        assert!(change(&mut merged, Some(&one), Some(&two)));
        let both = [(Kind::Allow, vec![at(2), at(3)]), (Kind::Block, vec![at(1)])];
        assert_eq!(said(&mut merged), both);
        assert_eq!(said(&mut merged), both);
        assert!(!merged.is_pending());
        assert!(!change(&mut merged, Some(&two), Some(&two)));
        // Each has its own count.
        let three = filter(Mode::Include, &[2, 3, 4]);
        let four = filter(Mode::Include, &[2, 3, 4, 5]);
        change(&mut merged, Some(&two), Some(&three));
        assert_eq!(said(&mut merged), [(Kind::Allow, vec![at(4)])]);
        change(&mut merged, Some(&three), Some(&four));
        assert_eq!(said(&mut merged), [(Kind::Allow, vec![at(4), at(5)])]);
        assert_eq!(said(&mut merged), [(Kind::Allow, vec![at(5)])]);
        assert!(!merged.is_pending());
    }

    #[test]
    fn what_is_excluded_is_blocked() {
        let mut merged = Merged::new();
        let (all, some) = (filter(Mode::Exclude, &[]), filter(Mode::Exclude, &[7]));
        change(&mut merged, None, Some(&all));
        assert_eq!(said(&mut merged), [(Kind::ToExclude, vec![])]);
        // While the new mode is said it is said with all sources.
        change(&mut merged, Some(&all), Some(&some));
        assert_eq!(said(&mut merged), [(Kind::ToExclude, vec![at(7)])]);
        assert_eq!(said(&mut merged), [(Kind::Block, vec![at(7)])]);
        assert!(!merged.is_pending());
        change(&mut merged, Some(&some), Some(&all));
        assert_eq!(said(&mut merged), [(Kind::Allow, vec![at(7)])]);
        change(&mut merged, Some(&all), None);
        assert_eq!(said(&mut merged), [(Kind::ToInclude, vec![])]);
        assert_eq!(said(&mut merged), [(Kind::ToInclude, vec![])]);
        assert!(!merged.is_pending() && merged.list.is_empty());
    }

    #[test]
    fn long_lists_are_said_in_parts() {
        let mut merged = Merged::new();
        let many: Vec<u32> = (1..=25).collect();
        let many = filter(Mode::Include, &many);
        change(&mut merged, None, Some(&many));
        for _ in 0..2 {
            let lengths: Vec<_> = core::iter::from_fn(|| {
                let (records, is_over) = merged.say_changes(10);
                Some((records[0].sources.len(), is_over))
            })
            .take(3)
            .collect();
            assert_eq!(lengths, [(10, false), (10, false), (5, true)]);
        }
        assert!(!merged.is_pending());
        let (mut from, mut count) = (0, 0);
        while let Some(record) = merged.say_state(&mut from, 10) {
            assert_eq!(record.kind, Kind::IsInclude);
            count += record.sources.len();
        }
        assert_eq!(count, 25);
        // Of what is excluded the rest is left out.
        let mut merged = Merged::new();
        let many: Vec<u32> = (1..=25).collect();
        change(&mut merged, None, Some(&filter(Mode::Exclude, &many)));
        let (records, is_over) = merged.say_changes(10);
        assert!(is_over && records[0].sources.len() == 10);
        let mut from = 0;
        assert_eq!(merged.say_state(&mut from, 10).unwrap().sources.len(), 10);
        assert_eq!(merged.say_state(&mut from, 10), None);
    }

    #[test]
    fn a_question_about_sources_is_answered_with_those_that_are_wanted() {
        let asked = [at(1), at(2), at(3)];
        let wanted =
            |merged: &Merged| merged.say_wanted(&asked, &mut 0, 10).map(|record| record.sources);
        let mut merged = Merged::new();
        let one = filter(Mode::Include, &[2, 9]);
        change(&mut merged, None, Some(&one));
        assert_eq!(wanted(&merged), Some(vec![at(2)]));
        change(&mut merged, Some(&one), Some(&filter(Mode::Exclude, &[2])));
        assert_eq!(wanted(&merged), Some(vec![at(1), at(3)]));
        change(&mut merged, None, Some(&filter(Mode::Include, &[2])));
        assert_eq!(wanted(&merged).map(|list| list.len()), Some(3));
    }

    /// Against the definition of RFC 3376, 3.2.
    #[test]
    fn random_filters_are_merged_as_the_rfc_says() {
        let mut state = 3u64;
        let mut below = |most: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % most
        };
        for _ in 0..500 {
            let mut merged = Merged::new();
            let mut filters: Vec<SourceFilter> = Vec::new();
            for _ in 0..12 {
                if below(3) == 0 && !filters.is_empty() {
                    let gone = filters.remove(below(filters.len() as u64) as usize);
                    merged.remove(&gone);
                } else {
                    let mode = if below(2) == 0 { Mode::Include } else { Mode::Exclude };
                    let sources: Vec<u32> = (0..6).filter(|_| below(2) == 0).collect();
                    let fresh = filter(mode, &sources);
                    merged.add(&fresh).unwrap();
                    filters.push(fresh);
                }
                merged.settle(2);
                while below(2) == 0 && merged.is_pending() {
                    merged.say_changes(1 + below(4) as usize);
                }
                for source in 0..8 {
                    let wanted = filters.iter().any(|filter| filter.allows(at(source)));
                    assert_eq!(merged.allows(at(source)), wanted);
                }
            }
            while merged.is_pending() {
                merged.say_changes(1 + below(4) as usize);
            }
        }
    }
}
