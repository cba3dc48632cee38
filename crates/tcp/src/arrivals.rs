//! When data arrived, for programs that ask for it (Linux keeps the time in each `sk_buff`, and
//! `tcp_recvmsg` gives that of the last one that it reads from).
//!
//! Only segments that come while somebody asks are noted: the others, and connections of which
//! nobody asks, cost nothing. The list is bounded by [`MOST`]. Data beyond it that follow the last
//! stretch count as a part of it, with the newer time, as when Linux joins two `sk_buff`s
//! (`tcp_try_coalesce`); others have no time.

use alloc::collections::VecDeque;

use crate::seq::Position;

/// The most stretches that are kept.
const MOST: usize = 256;

/// Data that arrived at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    start: Position,
    end: Position,
    time: u64,
}

/// Stretches in order, which do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(VecDeque<Stretch>);

impl Arrivals {
    /// Index of the first stretch that ends behind `at`.
    fn find(&self, at: Position) -> usize {
        self.0.partition_point(|stretch| stretch.end <= at)
    }

    /// Notes that the data `from..to` came at `time`. Of what had come before the older time stays,
    /// unless all of a stretch came again. Without memory they have no time.
    pub(crate) fn note(&mut self, from: Position, to: Position, time: u64) {
        let at = self.find(from);
        let (mut from, mut to) = (from, to);
        let mut at = at;
        if let Some(old) = self.0.get(at)
            && old.start <= from
        {
            (from, at) = (old.end, at + 1);
        }
        while from < to && self.0.get(at).is_some_and(|old| old.end <= to) {
            self.0.remove(at);
        }
        if let Some(next) = self.0.get(at) {
            to = to.min(next.start);
        }
        if from >= to {
            return;
        }
        if self.0.len() < MOST && self.0.try_reserve(1).is_ok() {
            self.0.insert(at, Stretch { start: from, end: to, time });
        } else if let Some(last) = at.checked_sub(1).and_then(|before| self.0.get_mut(before))
            && last.end == from
        {
            (last.end, last.time) = (to, time);
        }
    }

    /// The time of the last data of `from..to` that have one.
    pub(crate) fn of(&self, from: Position, to: Position) -> Option<u64> {
        let behind = self.0.partition_point(|stretch| stretch.start < to);
        let last = self.0.get(behind.checked_sub(1)?)?;
        (last.end > from).then_some(last.time)
    }

    /// Forgets what is before `start`, which was read, and from `end` on, which was dropped.
    pub(crate) fn keep(&mut self, start: Position, end: Position) {
        while self.0.front().is_some_and(|first| first.end <= start) {
            self.0.pop_front();
        }
        while self.0.back().is_some_and(|last| last.start >= end) {
            self.0.pop_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn the_last_data_that_are_read_have_their_time() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.of(0, 100), None);
        arrivals.note(10, 20, 1);
        arrivals.note(20, 30, 2);
        assert_eq!(arrivals.of(10, 20), Some(1));
        assert_eq!(arrivals.of(10, 21), Some(2));
        assert_eq!(arrivals.of(15, 16), Some(1));
        assert_eq!((arrivals.of(0, 10), arrivals.of(30, 40)), (None, None));
        // Data without a time follow.
        assert_eq!(arrivals.of(25, 40), Some(2));
        arrivals.keep(25, 100);
        assert_eq!((arrivals.of(10, 20), arrivals.of(25, 30)), (None, Some(2)));
    }

    #[test]
    fn data_that_come_early_or_twice_keep_their_time() {
        let mut arrivals = Arrivals::default();
        arrivals.note(20, 30, 1);
        arrivals.note(40, 50, 2);
        // The gap, with a part of what is there.
        arrivals.note(25, 45, 3);
        let at = |arrivals: &Arrivals, place| arrivals.of(place, place + 1);
        assert_eq!(at(&arrivals, 25), Some(1));
        assert_eq!((at(&arrivals, 30), at(&arrivals, 39)), (Some(3), Some(3)));
        assert_eq!(at(&arrivals, 40), Some(2));
        // All of it again, from before it on.
        arrivals.note(0, 60, 4);
        assert_eq!(arrivals.0.len(), 1);
        assert_eq!(at(&arrivals, 45), Some(4));
        // All of it is there.
        arrivals.note(10, 20, 5);
        assert_eq!(at(&arrivals, 15), Some(4));
        // What came early was dropped.
        arrivals.note(80, 90, 6);
        arrivals.keep(0, 60);
        assert_eq!((at(&arrivals, 59), at(&arrivals, 85)), (Some(4), None));
    }

    #[test]
    fn the_list_is_bounded() {
        let mut arrivals = Arrivals::default();
        for part in 0..2 * MOST as u64 {
            arrivals.note(part * 10, part * 10 + 10, part);
        }
        assert_eq!(arrivals.0.len(), MOST);
        let end = 20 * MOST as u64;
        assert_eq!(arrivals.of(end - 10, end), Some(2 * MOST as u64 - 1));
        // Behind a gap nothing is kept.
        arrivals.note(end + 10, end + 20, 9);
        assert_eq!(arrivals.of(end, end + 20), None);
    }

    /// Against an array with the time of each byte.
    #[test]
    fn random_stretches_are_kept_as_in_an_array() {
        let mut state = 7u64;
        let mut below = |most: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % most
        };
        for _ in 0..300 {
            let mut arrivals = Arrivals::default();
            let mut times: Vec<Option<u64>> = std::vec![None; 64];
            for time in 0..20 {
                let from = below(60);
                let to = from + 1 + below(64 - from);
                arrivals.note(from, to, time);
                for place in from..to {
                    let place = place as usize;
                    let kept = arrivals.of(place as u64, place as u64 + 1);
                    // One of the two, and some time where there is data.
                    assert!(kept == Some(time) || kept.is_some() && kept == times[place]);
                    times[place] = kept;
                }
                for (place, kept) in times.iter().enumerate() {
                    let place = place as u64;
                    assert_eq!(arrivals.of(place, place + 1), *kept);
                }
                let ordered = arrivals.0.iter().zip(arrivals.0.iter().skip(1));
                assert!(ordered.clone().all(|(one, next)| one.end <= next.start));
            }
        }
    }
}
