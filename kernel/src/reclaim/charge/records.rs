//! The accounts of groups, found by their numbers without a lock.
//!
//! The table only grows; an account serves another group when its own one is removed and nothing is
//! charged to it, nor to the accounts below it. It is closed in between, so that a charge that is
//! on its way to it finds out ([`hayate_cgroup_rules::memory`]).

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32};

use hayate_abi::Result;
use hayate_cgroup_rules::memory::{self, Account, Use};
use machine::sync::SpinLock;

use crate::reclaim::numbered::Numbered;

/// The bits of a number.
pub const BITS: u32 = 16;

struct Record {
    account: Account,
    /// The account of the group around it; 0: none.
    parent: AtomicU32,
    /// Accounts below that serve a group, or wait until nothing is charged to them.
    children: AtomicU32,
    is_taken: AtomicBool,
    /// Its group is removed.
    is_dying: AtomicBool,
    /// For whom its pages of files are written to a disk (`drivers::io`); 0: for nobody.
    io: AtomicU32,
}

static RECORDS: Numbered<Record, 1024> = Numbered::new();

/// One past the largest number that was ever given, and who gives them.
static LAST: AtomicU32 = AtomicU32::new(1);
static CHANGES: SpinLock<()> = SpinLock::new(());

/// Whether there ever was an account.
#[inline]
pub fn is_used() -> bool {
    LAST.load(Relaxed) != 1
}

/// One past the largest number that was ever given.
pub fn end() -> u32 {
    LAST.load(Relaxed)
}

fn record(number: u32) -> Option<&'static Record> {
    RECORDS.get(number)
}

/// The account with a number.
#[inline]
pub fn account(number: u32) -> Option<&'static Account> {
    if number == 0 { None } else { record(number).map(|record| &record.account) }
}

/// The number of the account around another one, if there is any.
#[inline]
pub fn parent(number: u32) -> Option<u32> {
    record(number).map(|record| record.parent.load(SeqCst)).filter(|&parent| parent != 0)
}

/// A number and those around it.
pub fn levels(number: u32) -> impl Iterator<Item = u32> + Clone {
    core::iter::successors(Some(number).filter(|&number| number != 0), |&number| parent(number))
}

fn fresh() -> Record {
    Record {
        account: Account::closed(),
        parent: AtomicU32::new(0),
        children: AtomicU32::new(0),
        is_taken: AtomicBool::new(false),
        is_dying: AtomicBool::new(false),
        io: AtomicU32::new(0),
    }
}

/// For whom a frame with this owner is written to a disk (`drivers::io`); 0: for nobody.
pub fn io_of(owner: u32) -> u32 {
    record(parts(owner).0).map_or(0, |record| record.io.load(SeqCst))
}

/// Sets for whom the pages of an account are written.
pub fn set_io(account: u32, io: u32) {
    if let Some(record) = record(account) {
        record.io.store(io, SeqCst);
    }
}

/// Pages that were written for `from` are written for `to` from now on.
pub fn move_io(from: u32, to: u32) {
    for record in (1..end()).filter_map(record) {
        let _ = record.io.compare_exchange(from, to, SeqCst, SeqCst);
    }
}

/// Lets accounts of removed groups to which nothing is charged serve others. The caller has the
/// lock.
fn sweep() {
    // Those below come first: most have larger numbers.
    for number in (1..end()).rev() {
        let Some(record) = record(number) else { continue };
        if record.is_dying.load(Relaxed)
            && record.children.load(Relaxed) == 0
            && record.account.close()
        {
            record.is_dying.store(false, Relaxed);
            record.is_taken.store(false, Relaxed);
            if let Some(around) = parent(number).and_then(self::record) {
                around.children.fetch_sub(1, Relaxed);
            }
        }
    }
}

/// Opens an account in that with the number `parent`; 0: in none.
///
/// # Errors
/// `ENOMEM`, also if there are too many.
pub fn open(parent: u32) -> Result<u32> {
    let _lock = CHANGES.lock();
    sweep();
    let is_free =
        |number: &u32| record(*number).is_some_and(|record| !record.is_taken.load(Relaxed));
    let number = (1..end()).find(is_free).unwrap_or(end());
    let record = RECORDS.make(number, fresh)?;
    record.is_taken.store(true, Relaxed);
    record.parent.store(parent, SeqCst);
    if let Some(around) = self::record(parent).filter(|_| parent != 0) {
        around.children.fetch_add(1, Relaxed);
    }
    record.io.store(0, SeqCst);
    record.account.open();
    LAST.fetch_max(number + 1, SeqCst);
    Ok(number)
}

/// The group of an account is removed. What is charged to it stays so.
pub fn retire(number: u32) {
    let _lock = CHANGES.lock();
    if let Some(record) = record(number) {
        record.is_dying.store(true, Relaxed);
    }
}

/// The number of the owner of a frame: an account, and what the frame is used for.
pub(super) fn number(account: u32, what: Use) -> u32 {
    account | (what as u32) << BITS
}

/// The account and the use in the number of a frame's owner.
pub(super) fn parts(number: u32) -> (u32, Use) {
    let what = Use::ALL.get((number >> BITS) as usize).copied();
    (number & ((1 << BITS) - 1), what.unwrap_or(Use::Anonymous))
}

/// Whether a frame is charged to a group or to one below it. `owner` is the frame's.
pub fn is_charged_within(owner: u32, group: u32) -> bool {
    owner != 0 && levels(parts(owner).0).any(|level| level == group)
}

/// How a frame is protected against reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not at all.
    None,
    /// By `memory.low`: others come first.
    Low,
    /// By `memory.min`: it is not reclaimed.
    Min,
}

/// How a frame with this owner is protected.
pub fn protection(owner: u32) -> Protection {
    if owner == 0 {
        return Protection::None;
    }
    let is = |bound| {
        let levels = levels(parts(owner).0);
        memory::is_protected(levels.filter_map(account), bound)
    };
    if is(memory::Bound::Min) {
        Protection::Min
    } else if is(memory::Bound::Low) {
        Protection::Low
    } else {
        Protection::None
    }
}

/// Pages of a use that are charged to a group and all below it, removed ones too.
pub fn used(group: u32, what: Use) -> usize {
    let within = (1..end()).filter(|&other| levels(other).any(|level| level == group));
    within.filter_map(account).map(|account| account.own(what)).sum()
}
