//! The sums of an account.

use crate::{Fault, StartPart};

/// The readings of the clocks at an event, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub now: u64,
    /// The processor time of the new process.
    pub child: u64,
    /// The processor time of its parent.
    pub parent: u64,
    /// The idle time of the processor.
    pub idle: u64,
}

/// The process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// The new process.
    Child,
    /// Its parent.
    Parent,
}

/// An account; see the crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The time of each part.
    times: [u64; StartPart::COUNT],
    /// How often each part was entered.
    entered: [u64; StartPart::COUNT],
    /// How many faults of each kind there were, and their time.
    faults: [(u64, u64); Fault::COUNT],
    /// Time in which the processor was idle.
    idle: u64,
    /// Time that the accounting itself took.
    tracing: u64,
    /// The time at which the account began.
    begin: u64,
    /// The last readings of the clocks.
    at: Moment,
    /// The part the new process is in.
    part: StartPart,
    /// The part its parent is in.
    parent_part: StartPart,
}

impl Account {
    /// Begins with the parent about to make a process.
    pub fn begin(at: Moment) -> Account {
        Account {
            times: [0; StartPart::COUNT],
            entered: [0; StartPart::COUNT],
            faults: [(0, 0); Fault::COUNT],
            idle: 0,
            tracing: 0,
            begin: at.now,
            at,
            part: StartPart::Before,
            parent_part: StartPart::Fork,
        }
    }

    /// Restores an account from its sums: times, counts, faults with their times.
    pub(crate) fn from_sums(
        times: [u64; StartPart::COUNT],
        entered: [u64; StartPart::COUNT],
        faults: [(u64, u64); Fault::COUNT],
        idle: u64,
        tracing: u64,
        whole: u64,
    ) -> Account {
        let at = Moment { now: whole, ..Moment::default() };
        let begun = Account::begin(Moment::default());
        Account { times, entered, faults, idle, tracing, at, ..begun }
    }

    /// Adds the time since the last event to the parts that it belongs to.
    ///
    /// The clocks of two processors may differ slightly; the parts never get more than the time
    /// that passed.
    pub fn pass(&mut self, now: Moment) {
        let mut left = now.now.saturating_sub(self.at.now);
        let mut share = |spent: u64| {
            let spent = spent.min(left);
            left -= spent;
            spent
        };
        let child = share(now.child.saturating_sub(self.at.child));
        let parent = share(now.parent.saturating_sub(self.at.parent));
        let idle = share(now.idle.saturating_sub(self.at.idle));
        self.add(self.part, child);
        self.add(self.parent_part, parent);
        self.add(StartPart::Others, left);
        self.idle += idle;
        self.at = Moment { now: now.now.max(self.at.now), ..now };
    }

    fn add(&mut self, part: StartPart, time: u64) {
        if let Some(sum) = self.times.get_mut(part as usize) {
            *sum += time;
        }
    }

    /// Moves the new process to another part; returns the previous one. [`pass`](Self::pass) must
    /// be called first.
    pub fn enter(&mut self, part: StartPart) -> StartPart {
        if let Some(count) = self.entered.get_mut(part as usize) {
            *count += 1;
        }
        core::mem::replace(&mut self.part, part)
    }

    /// Moves the new process back to a part that it left for a moment.
    pub fn back(&mut self, part: StartPart) {
        self.part = part;
    }

    /// Moves the parent to another part.
    pub fn parent_enters(&mut self, part: StartPart) {
        self.parent_part = part;
    }

    /// Counts a fault that was served in this time.
    pub fn fault(&mut self, kind: Fault, time: u64) {
        if let Some((count, sum)) = self.faults.get_mut(kind as usize) {
            *count += 1;
            *sum += time;
        }
    }

    /// Counts the time until `now` as the accounting's own, while `runner` ran.
    pub fn skip(&mut self, now: u64, runner: Runner) {
        let spent = now.saturating_sub(self.at.now);
        self.tracing += spent;
        self.at.now += spent;
        match runner {
            Runner::Child => self.at.child += spent,
            Runner::Parent => self.at.parent += spent,
        }
    }

    /// The part the new process is in.
    pub fn part(&self) -> StartPart {
        self.part
    }

    /// The time of a part.
    pub fn time(&self, part: StartPart) -> u64 {
        self.times.get(part as usize).copied().unwrap_or(0)
    }

    /// How often a part was entered.
    pub fn entered(&self, part: StartPart) -> u64 {
        self.entered.get(part as usize).copied().unwrap_or(0)
    }

    /// How many faults of a kind there were, and their time.
    pub fn faults(&self, kind: Fault) -> (u64, u64) {
        self.faults.get(kind as usize).copied().unwrap_or((0, 0))
    }

    /// Returns the idle time: the process waited, and nothing else ran.
    pub fn idle(&self) -> u64 {
        self.idle
    }

    /// Returns the time that the accounting itself took.
    pub fn tracing(&self) -> u64 {
        self.tracing
    }

    /// Returns the time from the beginning to the last event, by the clock.
    pub fn whole(&self) -> u64 {
        self.at.now.saturating_sub(self.begin)
    }

    /// Returns the busy time: the whole without idle time and without the accounting.
    pub fn total(&self) -> u64 {
        self.whole().saturating_sub(self.idle).saturating_sub(self.tracing)
    }

    /// Whether the parts add up to the total.
    pub fn is_balanced(&self) -> bool {
        let sum = self.times.iter().try_fold(0u64, |sum, time| sum.checked_add(*time));
        let aside = self.idle.checked_add(self.tracing);
        let whole = sum.zip(aside).and_then(|(sum, aside)| sum.checked_add(aside));
        whole == Some(self.whole())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(now: u64, child: u64, parent: u64, idle: u64) -> Moment {
        Moment { now, child, parent, idle }
    }

    #[test]
    fn each_gets_its_own() {
        let mut account = Account::begin(at(1000, 0, 50, 7));
        // The parent needed 100 to make a process, 5 went to the switch, the child ran for 20.
        account.pass(at(1125, 20, 150, 7));
        assert_eq!(account.enter(StartPart::LookUp), StartPart::Before);
        account.skip(1135, Runner::Child);
        // The process waited for the disk.
        account.pass(at(1435, 130, 150, 207));
        assert_eq!(account.time(StartPart::Fork), 100);
        assert_eq!(account.time(StartPart::Before), 20);
        assert_eq!(account.time(StartPart::LookUp), 100);
        assert_eq!(account.time(StartPart::Others), 5);
        assert_eq!((account.idle(), account.tracing()), (200, 10));
        assert_eq!((account.whole(), account.total()), (435, 225));
        assert_eq!(account.entered(StartPart::LookUp), 1);
        assert!(account.is_balanced());
    }

    proptest! {
        /// Checks for any clock readings that no time is lost and none is counted twice.
        #[test]
        fn the_parts_are_the_whole(
            steps in prop::collection::vec((0u64..999, 0u64..999, 0u64..999, 0u64..999, 0usize..99), 0..50)
        ) {
            let mut now = at(5, 6, 7, 8);
            let mut account = Account::begin(now);
            for (wall, child, parent, idle, what) in steps {
                now = at(now.now + wall, now.child + child, now.parent + parent, now.idle + idle);
                account.pass(now);
                account.enter(StartPart::ALL[what % StartPart::COUNT]);
                if what % 3 == 0 {
                    now.now += 3;
                    now.child += 3;
                    account.skip(now.now, Runner::Child);
                }
                prop_assert!(account.is_balanced());
                prop_assert_eq!(account.whole(), now.now - 5);
            }
        }
    }
}
