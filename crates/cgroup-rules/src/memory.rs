//! The memory that is charged to a group and to all groups around it, counted without a lock
//! (mm/page_counter.c and mm/memcontrol.c of Linux 6.1).
//!
//! An [`Account`] has the pages of a group and of all below it, its limits, and its events. A
//! charge goes up level by level and stops at a limit that it would pass ([`crate::meter`]): so a
//! limit is exact. Linux charges 64 pages at a time and keeps what is not used yet on the processor
//! (`memcg_stock`), which a limit then has to collect; here a charge is one locked instruction for
//! each level.
//!
//! An account is *closed* before it serves another group: a charge that is on its way to it finds
//! that out and is nobody's. It closes only while nothing is charged.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, AtomicUsize};

use crate::amount::NO_LIMIT;

/// The count of an account that is closed, or more.
const CLOSED: usize = 1 << 62;

/// Pages that are charged together between two looks at `memory.high` (`MEMCG_CHARGE_BATCH`).
pub const BATCH: usize = 64;

/// For what a page is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Memory of a program that shows no file.
    Anonymous,
    /// Content of a file that can be read again.
    File,
    /// Content of a file that exists in memory only, or memory that programs share.
    Shared,
    /// A page table.
    Table,
}

impl Use {
    /// All.
    pub const ALL: [Use; 4] = [Use::Anonymous, Use::File, Use::Shared, Use::Table];
}

/// An event of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Memory was reclaimed although `memory.low` protects it.
    Low,
    /// `memory.high` was passed.
    High,
    /// `memory.max` was about to be passed.
    Max,
    /// And nothing could be reclaimed.
    Oom,
    /// A process was killed for that.
    OomKill,
    /// All of a group was.
    OomGroupKill,
}

impl Event {
    /// All, in the order in which files list them.
    pub const ALL: [Event; 6] =
        [Event::Low, Event::High, Event::Max, Event::Oom, Event::OomKill, Event::OomGroupKill];

    /// Its name in `memory.events`.
    pub fn name(self) -> &'static str {
        match self {
            Event::Low => "low",
            Event::High => "high",
            Event::Max => "max",
            Event::Oom => "oom",
            Event::OomKill => "oom_kill",
            Event::OomGroupKill => "oom_group_kill",
        }
    }
}

/// The bounds of an account, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `memory.min`.
    Min,
    /// `memory.low`.
    Low,
    /// `memory.high`.
    High,
    /// `memory.max`.
    Max,
}

/// The memory of one group.
#[derive(Debug)]
pub struct Account {
    /// Pages here and below.
    count: AtomicUsize,
    /// The most that were charged.
    peak: AtomicUsize,
    /// [`Bound`]s.
    bounds: [AtomicUsize; 4],
    /// Charges that found `memory.high` passed.
    above: AtomicUsize,
    /// Pages of this very account, by [`Use`].
    own: [AtomicUsize; 4],
    /// Events here and below, and here.
    events: [[AtomicU64; 6]; 2],
}

impl Default for Account {
    fn default() -> Self {
        Account::closed()
    }
}

/// Why pages are not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<T> {
    /// They would pass the limit of this level.
    Limit(T),
    /// An account is closed: its group is gone.
    Gone,
}

impl Account {
    /// An account that serves nobody.
    pub const fn closed() -> Account {
        Account {
            count: AtomicUsize::new(CLOSED),
            peak: AtomicUsize::new(0),
            bounds: [const { AtomicUsize::new(0) }; 4],
            above: AtomicUsize::new(0),
            own: [const { AtomicUsize::new(0) }; 4],
            events: [const { [const { AtomicU64::new(0) }; 6] }; 2],
        }
    }

    /// Begins to serve a group: without limits, protection and events. It was closed.
    pub fn open(&self) {
        for (bound, pages) in
            [(Bound::Min, 0), (Bound::Low, 0), (Bound::High, NO_LIMIT), (Bound::Max, NO_LIMIT)]
        {
            self.set_bound(bound, pages);
        }
        self.peak.store(0, Relaxed);
        self.events.iter().flatten().for_each(|event| event.store(0, Relaxed));
        self.count.fetch_sub(CLOSED, SeqCst);
    }

    /// Closes it, unless something is charged. Returns whether it is closed now.
    pub fn close(&self) -> bool {
        self.count.compare_exchange(0, CLOSED, SeqCst, SeqCst).is_ok()
    }

    /// Pages here and below; 0 if it is closed.
    pub fn count(&self) -> usize {
        let count = self.count.load(SeqCst);
        if count >= CLOSED { 0 } else { count }
    }

    /// The most that there were.
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// A bound in pages; [`NO_LIMIT`]: none.
    pub fn bound(&self, bound: Bound) -> usize {
        self.bounds[bound as usize].load(Relaxed)
    }

    /// Changes it. What is charged stays.
    pub fn set_bound(&self, bound: Bound, pages: usize) {
        self.bounds[bound as usize].store(pages, SeqCst);
    }

    /// Whether so many more pages pass no limit here.
    pub fn has_room(&self, pages: usize) -> bool {
        self.count().saturating_add(pages) <= self.bound(Bound::Max)
    }

    /// Pages beyond a bound.
    pub fn beyond(&self, bound: Bound) -> usize {
        self.count().saturating_sub(self.bound(bound))
    }

    /// Pages of this very account that have this use.
    pub fn own(&self, what: Use) -> usize {
        self.own[what as usize].load(Relaxed)
    }

    /// Counts pages of this very account among those of a use.
    pub fn gain(&self, what: Use, pages: usize) {
        self.own[what as usize].fetch_add(pages, Relaxed);
    }

    /// Counts fewer.
    pub fn lose(&self, what: Use, pages: usize) {
        self.own[what as usize].fetch_sub(pages, Relaxed);
    }

    /// Counts an event: here, or, unless `here`, as one of a group below.
    pub fn note(&self, event: Event, here: bool) {
        self.events[0][event as usize].fetch_add(1, Relaxed);
        if here {
            self.events[1][event as usize].fetch_add(1, Relaxed);
        }
    }

    /// How often an event was here and below, or, if `here`, only here.
    pub fn noted(&self, event: Event, here: bool) -> u64 {
        self.events[usize::from(here)][event as usize].load(Relaxed)
    }

    /// Takes pages back. The last thing that the caller does with this account.
    pub fn give(&self, pages: usize) {
        self.count.fetch_sub(pages, SeqCst);
    }

    /// Whether a batch of charges above `memory.high` is complete.
    fn is_high(&self, new: usize) -> bool {
        new > self.bound(Bound::High) && self.above.fetch_add(1, Relaxed) % BATCH == BATCH - 1
    }
}

/// Charges pages at every level, the innermost first, whatever the limits if `freely`. Returns
/// whether `memory.high` of a level is passed by a whole batch.
///
/// A level is named by `T`, which `account` finds and `next` follows upwards; `next` is called
/// while the level is charged, so that it stays what it is.
///
/// # Errors
/// [`Refusal`]; then nothing is charged.
pub fn charge<'a, T: Copy + PartialEq>(
    innermost: T,
    pages: usize,
    freely: bool,
    account: impl Fn(T) -> Option<&'a Account>,
    next: impl Fn(T) -> Option<T>,
) -> Result<bool, Refusal<T>> {
    let mut high = false;
    let mut level = Some(innermost);
    while let Some(here) = level {
        let Some(own) = account(here) else { break };
        let new = own.count.fetch_add(pages, SeqCst) + pages;
        let refusal = if new >= CLOSED {
            Some(Refusal::Gone)
        } else if !freely && new > own.bound(Bound::Max) {
            Some(Refusal::Limit(here))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            give_up_to(innermost, Some(here), pages, &account, &next);
            return Err(refusal);
        }
        if new > own.peak.load(Relaxed) {
            own.peak.fetch_max(new, Relaxed);
        }
        high |= own.is_high(new);
        level = next(here);
    }
    Ok(high)
}

/// Takes back what was charged from a level up to `last`, or to the outermost one.
pub fn give_up_to<'a, T: Copy + PartialEq>(
    innermost: T,
    last: Option<T>,
    pages: usize,
    account: impl Fn(T) -> Option<&'a Account>,
    next: impl Fn(T) -> Option<T>,
) {
    let mut level = Some(innermost);
    while let Some(here) = level {
        let Some(own) = account(here) else { return };
        // Before the charge is gone: the level may serve another group afterwards. What is around
        // it stays, because it has the same charge.
        level = if last == Some(here) { None } else { next(here) };
        own.give(pages);
    }
}

/// Whether a group's memory is protected by `bound` (`memory.min` or `memory.low`): it is not above
/// that, in itself and in each group around it, the innermost first. What a group around it
/// protects is not divided among its children in proportion, as Linux does.
pub fn is_protected<'a>(levels: impl Iterator<Item = &'a Account>, bound: Bound) -> bool {
    let mut any = false;
    for level in levels {
        if level.count() > level.bound(bound) {
            return false;
        }
        any = true;
    }
    any
}

/// How bad it would be to let a process live, in pages (`oom_badness`, mm/oom_kill.c): what it
/// holds, adjusted by its `oom_score_adj` in thousandths of `total`. `None`: it must not be killed.
pub fn badness(held: usize, adjust: i32, total: usize) -> Option<i64> {
    /// `OOM_SCORE_ADJ_MIN`.
    const NEVER: i32 = -1000;
    let thousandth = total.min(NO_LIMIT) as i64 / 1000;
    (adjust > NEVER).then(|| (held as i64).saturating_add(i64::from(adjust) * thousandth))
}

/// How long a thread waits that charged a batch above `memory.high`, in milliseconds
/// (`calculate_high_delay`): with the square of what the count is above the bound, at most two
/// seconds, and not at all for less than ten milliseconds.
pub fn high_delay_ms(count: usize, high: usize) -> u64 {
    /// `MEMCG_DELAY_PRECISION_SHIFT`, `MEMCG_DELAY_SCALING_SHIFT`, `MEMCG_MAX_HIGH_DELAY_JIFFIES`.
    const PRECISION: u32 = 20;
    const SCALING: u32 = 14;
    const MOST: u64 = 2000;
    let above = count.saturating_sub(high) as u64;
    if above == 0 {
        return 0;
    }
    let share = (above.min(1 << 40) << PRECISION) / (high.max(1) as u64);
    let share = u128::from(share.min(1 << 32));
    let square = (share * share * 1000) >> (PRECISION + SCALING);
    // For so many batches of 32 pages.
    let delay = u64::try_from(square).unwrap_or(MOST).min(MOST) * (BATCH as u64 / 32);
    if delay < 10 { 0 } else { delay.min(MOST) }
}

#[cfg(test)]
mod tests;
