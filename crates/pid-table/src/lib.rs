//! The numbers of the processes and threads of one PID namespace (pid_namespaces(7)).
//!
//! Each has an outer number, by which the kernel knows it everywhere, and an inner one, by which
//! the programs of the namespace do. A [`Table`] gives the inner numbers, one after the other from
//! 1 on, and finds one by the other.
//!
//! **Past numbers.** A message, a segment or a signal may tell of a process that is gone, and a
//! program that knew its number expects that one. So the last [`MOST_PAST`] are remembered, each
//! until its outer number is drawn again: outer numbers are drawn in a circle, so that the
//! [`Moment`] of a draw tells when that may be.
//!
//! **Held numbers.** The number of a process group outlives the process that it was of. As long as
//! it is held, neither the outer nor the inner number is given again.
//!
//! Both directions are sorted lists: numbers come in rising order mostly, so that one is appended,
//! and a namespace has few. Road not taken: trees, which allocate for each process.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Where the numbers start again after the last (`RESERVED_PIDS`).
const RESERVED: u32 = 300;

/// The most past numbers that are remembered.
pub const MOST_PAST: usize = 1024;

/// Why there is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All are taken (`EAGAIN`).
    Full,
    /// Memory is exhausted (`ENOMEM`).
    NoMemory,
}

/// A place in the sequence of outer numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// How often the sequence has started again.
    pub round: u32,
    /// The next number.
    pub next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    outer: u32,
    inner: u32,
    /// The round in which the outer number was drawn.
    round: u32,
    held: bool,
}

/// The numbers of a namespace.
#[derive(Debug)]
pub struct Table {
    /// The next inner number.
    next: u32,
    /// By outer number.
    entries: Vec<Entry>,
    /// Pairs of inner and outer number, by the inner one.
    inner: Vec<(u32, u32)>,
    /// How many are held and nobody's.
    held: usize,
    past: VecDeque<Entry>,
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// A table without numbers; allocates nothing.
    pub const fn new() -> Table {
        Table { next: 1, entries: Vec::new(), inner: Vec::new(), held: 0, past: VecDeque::new() }
    }

    fn place(&self, outer: u32) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&outer, |entry| entry.outer)
    }

    fn inner_place(&self, inner: u32) -> Result<usize, usize> {
        self.inner.binary_search_by_key(&inner, |pair| pair.0)
    }

    /// Gives the process or thread with this outer number, which was drawn in this round, an inner
    /// one below `end`.
    ///
    /// # Errors
    /// `Full` if all below `end` are taken, `NoMemory`.
    pub fn draw(&mut self, outer: u32, round: u32, end: u32) -> Result<u32, Refusal> {
        self.entries.try_reserve(1).map_err(|_| Refusal::NoMemory)?;
        self.inner.try_reserve(1).map_err(|_| Refusal::NoMemory)?;
        let (inner, at) = self.free(end).ok_or(Refusal::Full)?;
        let place = match self.place(outer) {
            Err(place) => place,
            Ok(_) => return Err(Refusal::Full),
        };
        self.entries.insert(place, Entry { outer, inner, round, held: false });
        self.inner.insert(at, (inner, outer));
        self.next = inner + 1;
        Ok(inner)
    }

    /// The next free number, and its place in the list.
    fn free(&self, end: u32) -> Option<(u32, usize)> {
        let from = if self.next < end { self.next } else { RESERVED.min(end) };
        self.free_between(from, end).or_else(|| self.free_between(RESERVED.min(end), from))
    }

    fn free_between(&self, from: u32, end: u32) -> Option<(u32, usize)> {
        let (mut wanted, mut at) = (from, self.inner.partition_point(|pair| pair.0 < from));
        while self.inner.get(at).is_some_and(|pair| pair.0 == wanted) {
            (wanted, at) = (wanted + 1, at + 1);
        }
        (wanted < end).then_some((wanted, at))
    }

    /// The inner number of a process or thread that is there, or of a held number.
    pub fn inner(&self, outer: u32) -> Option<u32> {
        self.entries.get(self.place(outer).ok()?).map(|entry| entry.inner)
    }

    /// The same, or that of one that was there; `now` is the present place in the sequence.
    pub fn known(&self, outer: u32, now: Moment) -> Option<u32> {
        let was_it = |entry: &&Entry| {
            entry.outer == outer && now <= Moment { round: entry.round + 1, next: outer }
        };
        self.inner(outer).or_else(|| self.past.iter().rev().find(was_it).map(|entry| entry.inner))
    }

    /// The outer number of the process, thread or held number with this inner one.
    pub fn outer(&self, inner: u32) -> Option<u32> {
        self.inner.get(self.inner_place(inner).ok()?).map(|pair| pair.1)
    }

    /// The process or thread is gone; its number is free, unless it is to be held.
    pub fn release(&mut self, outer: u32, hold: bool) {
        let Ok(place) = self.place(outer) else { return };
        if hold {
            if let Some(entry) = self.entries.get_mut(place) {
                self.held += usize::from(!entry.held);
                entry.held = true;
            }
            return;
        }
        let entry = self.entries.remove(place);
        self.held -= usize::from(entry.held);
        if let Ok(at) = self.inner_place(entry.inner) {
            self.inner.remove(at);
        }
        while self.past.len() >= MOST_PAST {
            self.past.pop_front();
        }
        // Without memory it is not remembered.
        if self.past.try_reserve(1).is_ok() {
            self.past.push_back(entry);
        }
    }

    /// A number was given to nobody: it is free, and if it was the first, the next is that again.
    pub fn undo(&mut self, outer: u32) {
        let Ok(place) = self.place(outer) else { return };
        let entry = self.entries.remove(place);
        if let Ok(at) = self.inner_place(entry.inner) {
            self.inner.remove(at);
        }
        if self.entries.is_empty() && entry.inner == 1 {
            self.next = 1;
        }
    }

    /// The number that was given last; 0 before the first.
    pub fn last(&self) -> u32 {
        self.next - 1
    }

    /// How many processes and threads there are.
    pub fn count(&self) -> usize {
        self.entries.len() - self.held
    }

    /// The first inner number above this one, and its outer number: a walk that needs no memory.
    pub fn after(&self, inner: u32) -> Option<(u32, u32)> {
        self.inner.get(self.inner.partition_point(|pair| pair.0 <= inner)).copied()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::BTreeMap;

    const END: u32 = 32768;

    /// The outer numbers in the order of the inner ones.
    fn outers(table: &Table) -> Vec<u32> {
        let walk = core::iter::successors(table.after(0), |pair| table.after(pair.0));
        walk.map(|pair| pair.1).collect()
    }

    #[test]
    fn numbers_begin_at_one_and_rise() {
        let mut table = Table::new();
        assert_eq!(table.last(), 0);
        assert_eq!(table.draw(70, 0, END), Ok(1));
        assert_eq!(table.draw(71, 0, END), Ok(2));
        assert_eq!(table.draw(20, 1, END), Ok(3));
        table.release(71, false);
        assert_eq!(table.draw(90, 1, END), Ok(4));
        assert_eq!((table.inner(20), table.outer(3)), (Some(3), Some(20)));
        assert_eq!((table.inner(71), table.outer(2)), (None, None));
        assert_eq!(outers(&table), [70, 20, 90]);
        assert_eq!((table.after(0), table.after(1)), (Some((1, 70)), Some((3, 20))));
        assert_eq!(table.after(4), None);
        assert_eq!((table.last(), table.count()), (4, 3));
    }

    #[test]
    fn after_the_last_number_those_that_are_not_reserved_come_again() {
        let mut table = Table::new();
        for outer in 1..310 {
            assert_eq!(table.draw(outer, 0, 310), Ok(outer));
        }
        assert_eq!(table.draw(1000, 0, 310), Err(Refusal::Full));
        table.release(5, false);
        assert_eq!(table.draw(1000, 0, 310), Err(Refusal::Full));
        table.release(305, false);
        table.release(302, false);
        assert_eq!(table.draw(1000, 0, 310), Ok(302));
        assert_eq!(table.draw(1001, 0, 310), Ok(305));
        assert_eq!(table.draw(1002, 0, 310), Err(Refusal::Full));
    }

    #[test]
    fn a_first_number_that_was_given_to_nobody_is_given_again() {
        let mut table = Table::new();
        assert_eq!(table.draw(7, 0, END), Ok(1));
        table.undo(7);
        assert_eq!(table.draw(8, 0, END), Ok(1));
        assert_eq!(table.draw(9, 0, END), Ok(2));
        table.undo(9);
        assert_eq!(table.draw(10, 0, END), Ok(3));
    }

    #[test]
    fn a_past_number_is_known_until_the_outer_one_is_drawn_again() {
        let mut table = Table::new();
        table.draw(70, 0, END).unwrap();
        table.draw(71, 0, END).unwrap();
        table.release(71, false);
        assert_eq!(table.inner(71), None);
        let at = |round, next| Moment { round, next };
        assert_eq!(table.known(71, at(0, 80)), Some(2));
        assert_eq!(table.known(71, at(1, 71)), Some(2));
        assert_eq!(table.known(71, at(1, 72)), None);
        assert_eq!(table.known(70, at(9, 9)), Some(1));
        for outer in 100..100 + MOST_PAST as u32 {
            table.draw(outer, 0, END).unwrap();
            table.release(outer, false);
        }
        assert_eq!(table.known(71, at(0, 80)), None);
    }

    #[test]
    fn a_held_number_is_nobodys_and_not_given_again() {
        let mut table = Table::new();
        for outer in 1..305 {
            table.draw(outer, 0, 305).unwrap();
        }
        table.release(303, true);
        assert_eq!((table.inner(303), table.outer(303)), (Some(303), Some(303)));
        assert_eq!((table.count(), table.held), (303, 1));
        assert_eq!(table.draw(400, 0, 305), Err(Refusal::Full));
        table.release(303, false);
        assert_eq!((table.count(), table.held), (303, 0));
        assert_eq!(table.draw(400, 0, 305), Ok(303));
    }

    /// Random operations against a model.
    #[test]
    fn both_directions_agree_whatever_happens() {
        let mut random = 1_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..200 {
            let (mut table, mut model) = (Table::new(), BTreeMap::new());
            for _ in 0..400 {
                let outer = (next() % 40) as u32;
                match next() % 4 {
                    0 | 1 if !model.contains_key(&outer) => {
                        let end = 301 + (next() % 30) as u32;
                        match table.draw(outer, 0, end) {
                            Ok(inner) => {
                                assert!(inner != 0 && inner < end);
                                assert!(model.values().all(|&(other, _)| other != inner));
                                model.insert(outer, (inner, false));
                            }
                            Err(refusal) => assert_eq!(refusal, Refusal::Full),
                        }
                    }
                    2 => {
                        table.release(outer, false);
                        model.remove(&outer);
                    }
                    _ => {
                        table.release(outer, true);
                        model.entry(outer).and_modify(|entry: &mut (u32, bool)| entry.1 = true);
                    }
                }
                let held = model.values().filter(|entry| entry.1).count();
                assert_eq!((table.count(), table.held), (model.len() - held, held));
                for outer in 0..40 {
                    let inner = model.get(&outer).map(|entry| entry.0);
                    assert_eq!(table.inner(outer), inner);
                    if let Some(inner) = inner {
                        assert_eq!(table.outer(inner), Some(outer));
                    }
                }
                let mut all: std::vec::Vec<_> = model.iter().map(|(o, e)| (e.0, *o)).collect();
                all.sort_unstable();
                assert!(outers(&table).into_iter().eq(all.into_iter().map(|pair| pair.1)));
            }
        }
    }
}
