//! The segments that were sent and are not acknowledged, and which of them are lost: RACK-TLP (RFC
//! 8985) and the counts of RFC 6675.
//!
//! One record stands for one segment that was sent, which may be many times the MSS. A record is
//! split where a selective acknowledgement or a retransmission ends, at multiples of the MSS from
//! its start, so that a peer that acknowledges single bytes cannot make many (Linux:
//! `tcp_match_skb_to_sack`), and never beyond [`RECORDS`].

use alloc::collections::VecDeque;

use crate::seq::Position;
use crate::{MILLISECOND, Nanos};

/// The most records that splitting may lead to.
const RECORDS: usize = 1 << 14;
/// Segments that overtake a lost one before it counts as lost (RFC 5681, DupThresh).
pub(crate) const DUPLICATES: u64 = 3;

const SACKED: u8 = 1;
const LOST: u8 = 2;
/// A retransmission of it is in flight.
const OUT: u8 = 4;
/// It was sent more than once.
const AGAIN: u8 = 8;

#[derive(Debug, Clone, Copy)]
struct Record {
    start: Position,
    end: Position,
    /// When it was sent last.
    at: Nanos,
    flags: u8,
}

impl Record {
    fn len(&self) -> u64 {
        self.end - self.start
    }
    fn is(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// The report of one acknowledgement.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Bytes that are known to have arrived by it.
    pub delivered: u64,
    /// When the oldest of the segments acknowledged in order that were sent once was sent.
    pub sent_at: Option<Nanos>,
    /// A segment that had been sent again was acknowledged.
    pub retransmitted: bool,
    /// The peer received something twice (RFC 2883).
    pub duplicate: bool,
    /// Something was selectively acknowledged.
    pub sacked: bool,
}

/// The newest transmission that is known to have arrived (RFC 8985, 6).
#[derive(Debug, Default)]
pub(crate) struct Rack {
    at: Nanos,
    end: Position,
    rtt: Nanos,
    highest: Position,
    /// The network has reordered.
    pub reordering: bool,
    /// The reordering window in quarters of the least round-trip time.
    quarters: u64,
    /// Recoveries until `quarters` is 1 again.
    persist: u8,
}

#[derive(Debug)]
pub(crate) struct Scoreboard {
    records: VecDeque<Record>,
    /// Bytes selectively acknowledged, lost, sent again and in flight.
    pub sacked: u64,
    /// See `sacked`.
    pub lost: u64,
    /// See `sacked`.
    pub out: u64,
    /// Bytes lost and not sent again.
    pub pending: u64,
    /// No record before it is lost and not sent again.
    hint: Position,
    pub rack: Rack,
}

impl Scoreboard {
    pub(crate) const fn new() -> Scoreboard {
        Scoreboard {
            records: VecDeque::new(),
            sacked: 0,
            lost: 0,
            out: 0,
            pending: 0,
            hint: 0,
            rack: Rack {
                at: 0,
                end: 0,
                rtt: 0,
                highest: 0,
                reordering: false,
                quarters: 1,
                persist: 0,
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn clear(&mut self) {
        *self = Scoreboard::new();
    }

    /// Makes sure that the next [`Scoreboard::push`] works.
    #[inline]
    pub(crate) fn reserve(&mut self) -> bool {
        self.records.len() < self.records.capacity() || self.enlarge()
    }

    #[cold]
    fn enlarge(&mut self) -> bool {
        self.records.try_reserve(1).is_ok()
    }

    /// New data were sent, for which [`Scoreboard::reserve`] made room.
    #[inline]
    pub(crate) fn push(&mut self, start: Position, end: Position, at: Nanos) {
        self.records.push_back(Record { start, end, at, flags: 0 });
    }

    /// When the first record was sent.
    pub(crate) fn first_sent(&self) -> Option<Nanos> {
        self.records.front().map(|record| record.at)
    }

    fn change(&mut self, index: usize, set: u8, clear: u8) {
        let Some(record) = self.records.get_mut(index) else { return };
        let old = record.flags;
        record.flags = (old & !clear) | set;
        let (new, length) = (record.flags, record.len());
        self.account(old, length, false);
        self.account(new, length, true);
    }

    fn account(&mut self, flags: u8, length: u64, add: bool) {
        let count = |counter: &mut u64, counts: bool| {
            if counts {
                *counter = if add { *counter + length } else { counter.saturating_sub(length) };
            }
        };
        count(&mut self.sacked, flags & SACKED != 0);
        count(&mut self.lost, flags & LOST != 0);
        count(&mut self.out, flags & OUT != 0);
        count(&mut self.pending, flags & (LOST | OUT) == LOST);
    }

    /// Splits record `index` at `at`, which is inside it. False if there is no memory.
    fn split(&mut self, index: usize, at: Position) -> bool {
        if self.records.len() >= RECORDS || !self.reserve() {
            return false;
        }
        let Some(record) = self.records.get_mut(index) else { return false };
        let rest = Record { start: at, ..*record };
        record.end = at;
        self.records.insert(index + 1, rest);
        true
    }

    fn find(&self, at: Position) -> usize {
        self.records.partition_point(|record| record.end <= at)
    }

    /// Everything before `una` has arrived. `echoed` is as in [`arrived`](Self::arrived).
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        now: Nanos,
        una: Position,
        (least, echoed): (Nanos, Nanos),
        sample: &mut Sample,
    ) {
        while let Some(record) = self.records.front_mut() {
            if record.start >= una {
                break;
            }
            let part = Record { end: record.end.min(una), ..*record };
            if part.flags != 0 {
                self.account(part.flags, part.len(), false);
            }
            if part.is(AGAIN) {
                sample.retransmitted = true;
            } else if sample.sent_at.is_none() && !part.is(SACKED) {
                sample.sent_at = Some(part.at);
            }
            if !part.is(SACKED) {
                sample.delivered += part.len();
                self.arrived(now, part, least, echoed);
            }
            match self.records.front_mut() {
                Some(record) if record.end > una => {
                    record.start = una;
                    break;
                }
                _ => drop(self.records.pop_front()),
            }
        }
        if self.records.is_empty() && self.records.capacity() > 256 {
            self.records = VecDeque::new();
        }
    }

    /// Takes the only record, if it was sent once and ends at `una`, and tells when it was sent.
    #[inline]
    pub(crate) fn take_only(&mut self, una: Position, now: Nanos) -> Option<Nanos> {
        let record = *self.records.front()?;
        if self.records.len() != 1 || record.end != una || record.flags != 0 {
            return None;
        }
        self.records.pop_front();
        let rack = &mut self.rack;
        rack.highest = rack.highest.max(record.end);
        (rack.at, rack.end, rack.rtt) = (record.at, record.end, now.saturating_sub(record.at));
        Some(record.at)
    }

    /// Marks the data in `from..to` as arrived. `echoed` is as in [`arrived`](Self::arrived).
    pub(crate) fn sack(
        &mut self,
        now: Nanos,
        (from, to): (Position, Position),
        mss: u64,
        (least, echoed): (Nanos, Nanos),
        sample: &mut Sample,
    ) {
        let mut index = self.find(from);
        while let Some(record) = self.records.get(index).copied() {
            if record.start >= to {
                break;
            }
            if record.is(SACKED) {
                index += 1;
                continue;
            }
            if record.start < from {
                let cut = record.start + (from - record.start).next_multiple_of(mss);
                if cut < record.end && !self.split(index, cut) {
                    break;
                }
                index += 1;
                continue;
            }
            if record.end > to {
                let cut = record.start + (to - record.start) / mss * mss;
                if cut == record.start || !self.split(index, cut) {
                    break;
                }
                continue;
            }
            self.change(index, SACKED, LOST | OUT);
            sample.delivered += record.len();
            sample.sacked = true;
            self.arrived(now, record, least, echoed);
            index += 1;
        }
    }

    /// RFC 8985, 6.2 steps 2 and 3. What was sent again at `echoed` or later did not arrive, but
    /// what was sent before: the acknowledgement echoes an older timestamp. It must not make all
    /// that was sent in between late.
    fn arrived(&mut self, now: Nanos, record: Record, least: Nanos, echoed: Nanos) {
        let rack = &mut self.rack;
        if record.end > rack.highest {
            rack.highest = record.end;
        } else if !record.is(AGAIN) {
            rack.reordering = true;
        }
        let rtt = now.saturating_sub(record.at);
        if record.is(AGAIN) && (rtt < least || record.at >= echoed) {
            return;
        }
        if (record.at, record.end) > (rack.at, rack.end) {
            (rack.at, rack.end, rack.rtt) = (record.at, record.end, rtt);
        }
    }

    /// A duplicate was reported: the window for reordering grows (RFC 8985, 6.2 step 4).
    pub(crate) fn on_duplicate(&mut self) {
        self.rack.quarters = (self.rack.quarters + 1).min(64);
        self.rack.persist = 16;
    }

    /// A recovery is over.
    pub(crate) fn on_recovered(&mut self) {
        self.rack.persist = self.rack.persist.saturating_sub(1);
        if self.rack.persist == 0 {
            self.rack.quarters = 1;
        }
    }

    /// Finds what is lost by time (RFC 8985, 6.2 step 5). Returns how long to wait for more that
    /// may be lost, or `None`.
    pub(crate) fn detect(
        &mut self,
        now: Nanos,
        mss: u64,
        recovering: bool,
        (least, smoothed): (Nanos, Nanos),
    ) -> Option<Nanos> {
        let (at, end, rtt) = (self.rack.at, self.rack.end, self.rack.rtt);
        if at == 0 {
            return None;
        }
        let patient = self.rack.reordering || !recovering && self.sacked < DUPLICATES * mss;
        let window =
            if patient { (self.rack.quarters * least / 4).min(smoothed.max(least)) } else { 0 };
        let mut wait = None;
        for index in 0..self.records.len() {
            let record = self.records[index];
            let before = (record.at, record.end) < (at, end);
            if !before {
                if !record.is(AGAIN) {
                    break;
                }
                continue;
            }
            if record.is(SACKED) || record.flags & (LOST | OUT) == LOST {
                continue;
            }
            let due = record.at + rtt + window;
            if due <= now {
                self.lose(index);
            } else {
                wait = wait.max(Some((due - now).max(MILLISECOND / 4)));
            }
        }
        wait
    }

    fn lose(&mut self, index: usize) {
        self.hint = self.hint.min(self.records[index].start);
        self.change(index, LOST, OUT);
    }

    /// A timeout: all that has not arrived is lost. `reneged`: also the data that were selectively
    /// acknowledged, because the receiver has dropped it (RFC 2018, 8).
    pub(crate) fn lose_all(&mut self, reneged: bool) {
        for index in 0..self.records.len() {
            if reneged {
                self.change(index, 0, SACKED);
            }
            if !self.records[index].is(SACKED) {
                self.lose(index);
            }
        }
        self.hint = 0;
    }

    /// The first segment is selectively acknowledged, yet not acknowledged: reneging.
    pub(crate) fn reneged(&self) -> bool {
        self.records.front().is_some_and(|record| record.is(SACKED))
    }

    /// The first segment is lost (RFC 5681 and 6582: by duplicate acknowledgements).
    pub(crate) fn lose_first(&mut self, mss: u64) {
        if let Some(record) = self.records.front().copied()
            && record.flags & (LOST | OUT) != LOST
            && !record.is(SACKED)
        {
            if record.len() > mss {
                self.split(0, record.start + mss);
            }
            self.lose(0);
        }
    }

    /// The path takes no segment longer than `mss` any more: those were lost.
    pub(crate) fn lose_longer(&mut self, mss: u64) {
        for index in 0..self.records.len() {
            let record = self.records[index];
            if record.len() > mss && !record.is(SACKED) && record.flags & (LOST | OUT) != LOST {
                self.lose(index);
            }
        }
    }

    /// Nothing was lost after all.
    pub(crate) fn undo(&mut self) {
        for index in 0..self.records.len() {
            self.change(index, 0, LOST);
        }
    }

    /// The first lost segment that was not sent again.
    pub(crate) fn next_lost(&mut self) -> Option<(usize, Position, Position)> {
        if self.pending == 0 {
            return None;
        }
        let mut index = self.find(self.hint);
        while let Some(record) = self.records.get(index) {
            if record.flags & (LOST | OUT) == LOST {
                self.hint = record.start;
                return Some((index, record.start, record.end));
            }
            index += 1;
        }
        None
    }

    /// Cuts record `index` so that it ends at `end`, if it ends behind. False without memory.
    pub(crate) fn cut(&mut self, index: usize, end: Position) -> bool {
        self.records.get(index).is_some_and(|record| record.end <= end) || self.split(index, end)
    }

    /// The last record, cut so that it has at most `mss` bytes: for a tail loss probe.
    pub(crate) fn tail(&mut self, mss: u64) -> Option<(usize, Position, Position)> {
        let mut index = self.records.len().checked_sub(1)?;
        let record = self.records[index];
        if record.len() > mss {
            let cut = record.start + (record.len() - 1) / mss * mss;
            if !self.split(index, cut) {
                return None;
            }
            index += 1;
        }
        let record = self.records[index];
        Some((index, record.start, record.end))
    }

    /// Record `index` was sent again.
    pub(crate) fn sent_again(&mut self, index: usize, now: Nanos) {
        self.change(index, OUT | AGAIN, 0);
        if let Some(record) = self.records.get_mut(index) {
            record.at = now;
        }
    }

    #[cfg(test)]
    pub(crate) fn check(&self, una: Position, next: Position) {
        let count = |with: u8, of: u8| -> u64 {
            self.records.iter().filter(|r| r.flags & with == of).map(Record::len).sum()
        };
        assert_eq!(count(SACKED, SACKED), self.sacked);
        assert_eq!(count(LOST, LOST), self.lost);
        assert_eq!(count(OUT, OUT), self.out);
        assert_eq!(count(LOST | OUT, LOST), self.pending);
        let mut at = una;
        for record in &self.records {
            assert_eq!(record.start, at);
            assert!(record.end > at);
            at = record.end;
        }
        assert_eq!(at, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = MILLISECOND;

    fn board(records: u64, length: u64) -> Scoreboard {
        let mut board = Scoreboard::new();
        for index in 0..records {
            board.push(1000 + index * length, 1000 + (index + 1) * length, 100 * MS + index);
        }
        board
    }

    #[test]
    fn three_segments_behind_a_hole_lose_it() {
        let mut board = board(5, 100);
        let mut sample = Sample::default();
        board.sack(150 * MS, (1100, 1300), 100, (0, u64::MAX), &mut sample);
        board.detect(150 * MS, 100, false, (40 * MS, 40 * MS));
        assert_eq!(board.lost, 0);
        board.sack(150 * MS, (1300, 1400), 100, (0, u64::MAX), &mut sample);
        assert_eq!(sample.delivered, 300);
        board.detect(151 * MS, 100, false, (40 * MS, 40 * MS));
        assert_eq!((board.lost, board.pending), (100, 100));
        board.check(1000, 1500);
        let (index, start, end) = board.next_lost().unwrap();
        assert_eq!((index, start, end), (0, 1000, 1100));
        board.sent_again(index, 151 * MS);
        assert_eq!((board.pending, board.out), (0, 100));
        // The retransmission is lost as well: a segment that was sent later has arrived.
        board.push(1500, 1600, 152 * MS);
        board.sack(200 * MS, (1500, 1600), 100, (0, u64::MAX), &mut sample);
        board.detect(201 * MS, 100, true, (40 * MS, 40 * MS));
        assert_eq!(board.pending, 200, "the retransmission, and the segment at 1400");
        board.check(1000, 1600);
    }

    #[test]
    fn one_segment_behind_a_hole_waits_for_a_quarter_of_the_round_trip() {
        let mut board = board(2, 100);
        board.sack(140 * MS, (1100, 1200), 100, (0, u64::MAX), &mut Sample::default());
        let wait = board.detect(140 * MS, 100, false, (40 * MS, 40 * MS)).unwrap();
        assert!((9 * MS..=10 * MS).contains(&wait));
        assert_eq!(board.lost, 0);
        assert_eq!(board.detect(151 * MS, 100, false, (40 * MS, 40 * MS)), None);
        assert_eq!(board.lost, 100);
    }

    #[test]
    fn a_stamp_older_than_what_was_sent_again_makes_nothing_late() {
        for (echoed, lost) in [(101 * MS, 0), (u64::MAX, 100)] {
            let mut board = board(5, 100);
            let mut sample = Sample::default();
            board.sack(150 * MS, (1100, 1400), 100, (40 * MS, u64::MAX), &mut sample);
            board.detect(151 * MS, 100, false, (40 * MS, 40 * MS));
            board.sent_again(0, 151 * MS);
            // The first segment was not lost, but late: the acknowledgement is of what was sent
            // at 100 ms.
            board.acknowledge(200 * MS, 1400, (40 * MS, echoed), &mut sample);
            board.detect(200 * MS, 100, true, (40 * MS, 40 * MS));
            assert_eq!(board.lost, lost);
        }
    }

    #[test]
    fn large_records_split_at_multiples_of_the_mss() {
        let mut board = board(1, 1000);
        let mut sample = Sample::default();
        board.sack(150 * MS, (1150, 1790), 100, (0, u64::MAX), &mut sample);
        assert_eq!(board.sacked, 500);
        board.check(1000, 2000);
        for byte in 0..1000 {
            board.sack(150 * MS, (1000 + byte, 1001 + byte), 100, (0, u64::MAX), &mut sample);
        }
        assert!(board.len() <= 10);
        board.check(1000, 2000);
        board.acknowledge(150 * MS, 1250, (0, u64::MAX), &mut sample);
        board.check(1250, 2000);
    }
}
