//! Charges of memory to control groups (the controller `memory`; mm/memcontrol.c of Linux 6.1).
//!
//! | file | contents |
//! |---|---|
//! | [`Groups`] | what the layers above know of groups |
//! | [`records`] | the accounts of groups, found by number |
//! | [`limit`] | what is done when a limit does not allow a charge |
//!
//! # Design
//!
//! Each frame that is charged has the number of an account and what it is used for in its own
//! record (`machine::frames::owner`), in a word that only free frames and large pages used. So a
//! charge belongs to the group whose process brought the page in, it stays there when that process
//! moves or the page is shared, and it ends when the last reference is dropped, whoever drops it:
//! exactly as in Linux, where `struct page` has a `memcg_data`. A bit of the count of references
//! says whether anybody is charged, so that a frame of nobody is freed after the same comparison as
//! without charges.
//!
//! A space knows whom it charges ([`PageTable::owner`]): 0 is nobody, and a fault looks at that
//! once. It is the group of the process whose space it is; a child of vfork(2) charges its parent's
//! group until it has a space of its own (`mm->owner` in Linux). Pages of files are charged to the
//! group of the calling thread ([`current_owner`]).
//!
//! A charge adds to one word at each level up the tree, and a limit is exact
//! ([`hayate_cgroup_rules::memory`]).
//!
//! A refusal is the same to callers as a lack of frames: `None`, or `ENOMEM`. The refusal is noted
//! for the thread, and [`super::relieve`], which every such caller asks before it tries again, does
//! for that group what it otherwise does for the machine. So all paths that can lack memory obey
//! limits, and none of them knows of limits.
//!
//! What ended processes leave is kept for nobody if it is charged: spaces that charge somebody go
//! into no pool (`Space::charge_to`), and take none from there.
//!
//! # Locks
//!
//! None while a page is charged or given up: an account is found by its number in a table that only
//! grows. The lock in [`records`] is a leaf, for groups that come and go.
//!
//! # Roads not taken
//!
//! * A count for each space, given back at its end: a page that a child has from its parent has two
//!   spaces, and the one that ends last would have to know who paid.
//! * Stocks on each processor, as Linux has: at a limit they have to be collected from all, and
//!   `memory.current` counts pages that nobody has. A charge here is two locked instructions.
//! * Charges that go to the parent when a group is removed (reparenting): each frame would have to
//!   be found. The parent counts them already; the removed group's account stays until the last is
//!   given up.
//!
//! [`PageTable::owner`]: machine::paging::PageTable::owner

mod groups;
pub mod limit;
pub mod records;

use hayate_cgroup_rules::memory::{self, Event, Refusal, Use};
use machine::frames::Frame;
use machine::frames::owner::{self, Charging};
use machine::trap::{self, attention};

use groups::GROUPS;
use records::{account, number, parent, parts};

pub use groups::Groups;
pub use records::{Protection, protection, used};

/// Registers what is known of groups; boot calls it once.
pub fn register(groups: Groups) {
    GROUPS.call_once(|| groups);
    owner::register(Charging { table: |owner| take(owner, Use::Table), gone });
}

/// The account of the current thread's group; 0: nobody. Takes spin locks of the process.
#[inline]
pub fn current_owner() -> u32 {
    if records::is_used() { GROUPS.get().map_or(0, |groups| (groups.current)()) } else { 0 }
}

/// Charges a page; returns the owner that its frame is to have, 0 if the group is gone. `None`: a
/// limit does not allow it, which is noted.
fn take(owner: u32, what: Use) -> Option<u32> {
    match memory::charge(owner, 1, false, account, parent) {
        Ok(high) => {
            if high {
                // On its way to user mode it reclaims, and waits.
                attention::raise(trap::MEMORY);
            }
            if let Some(account) = account(owner) {
                account.gain(what, 1);
            }
            Some(number(owner, what))
        }
        Err(Refusal::Gone) => Some(0),
        Err(Refusal::Limit(level)) => {
            limit::note(level);
            None
        }
    }
}

/// A frame with this owner is free.
fn gone(number: u32) {
    let (owner, what) = parts(number);
    if let Some(account) = account(owner) {
        account.lose(what, 1);
        memory::give_up_to(owner, None, 1, records::account, parent);
    }
}

/// Charges a frame, to which nobody else refers, to an account; 0: nobody. `None`: a limit does not
/// allow it. Any lock may be held.
#[inline(always)]
pub fn frame(owner: u32, what: Use, mut frame: Frame) -> Option<Frame> {
    if owner != 0 && !charge(owner, what, &mut frame) {
        return None;
    }
    Some(frame)
}

/// Like [`frame`], for one that the caller can do without: a refusal is not noted.
pub fn spare_frame(owner: u32, what: Use, new: Frame) -> Option<Frame> {
    let new = frame(owner, what, new);
    if new.is_none() {
        limit::forget();
    }
    new
}

#[cold]
#[inline(never)]
fn charge(owner: u32, what: Use, frame: &mut Frame) -> bool {
    let Some(number) = take(owner, what) else { return false };
    if number != 0 && !frame.belong(number) {
        gone(number);
    }
    true
}

/// Tells that memory was reclaimed that `memory.low` protects. `owner` is a frame's. Call it
/// without spin locks.
pub fn tell_low(owner: u32) {
    limit::tell(parts(owner).0, Event::Low);
}
