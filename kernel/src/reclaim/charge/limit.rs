//! What is done when a limit does not allow a charge: pages of files that are charged to the group
//! are reclaimed, and if there are none, a process in it is killed.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use hayate_cgroup_rules::memory::{Bound, Event, Use};
use machine::cpu::PerCpu;
use machine::paging::teardown;
use machine::per_cpu;

use super::groups::GROUPS;
use super::records::{account, is_charged_within, levels, used};
use crate::reclaim::caches;

/// How many pages are reclaimed at a time (`SWAP_CLUSTER_MAX`).
const BATCH: usize = 32;

/// The last refusal on a processor: of which account, and to which thread. Nothing of it is of use
/// when the thread has slept.
struct Noted {
    level: AtomicU32,
    thread: AtomicU64,
    /// The thread that was told that nothing can be done.
    hopeless: AtomicU64,
}

per_cpu! {
    static NOTED: PerCpu<Noted> = PerCpu::new(Noted {
        level: AtomicU32::new(0),
        thread: AtomicU64::new(0),
        hopeless: AtomicU64::new(0),
    });
}

/// Notes that a charge was refused by a limit of an account. Any lock may be held.
pub(super) fn note(level: u32) {
    let noted = NOTED.here();
    noted.level.store(level, Relaxed);
    noted.thread.store(thread(), Relaxed);
}

/// Forgets the last refusal: its caller does without.
pub(super) fn forget() {
    NOTED.here().level.store(0, Relaxed);
}

/// A number of the thread.
fn thread() -> u64 {
    GROUPS.get().map_or(0, |groups| (groups.thread)())
}

/// Makes room if the last charge of this thread was refused by a limit. `None`: it was not. False:
/// there is nothing more to be done. Call it without spin locks.
pub(crate) fn answer() -> Option<bool> {
    let noted = NOTED.here();
    let level = noted.level.swap(0, Relaxed);
    let own = thread();
    if level == 0 || noted.thread.load(Relaxed) != own {
        return None;
    }
    let room = make_room(level);
    if !room {
        // Perhaps another processor's by now.
        NOTED.here().hopeless.store(own, Relaxed);
    }
    Some(room)
}

/// Whether the last lack of memory of this thread was a limit's, against which nothing could be
/// done.
pub fn was_hopeless() -> bool {
    let own = thread();
    own != 0 && NOTED.here().hopeless.swap(0, Relaxed) == own
}

/// Makes room for a page below the limit of an account. False: nothing can be done.
fn make_room(level: u32) -> bool {
    let Some(own) = account(level) else { return true };
    if own.has_room(1) {
        return true;
    }
    // Many may wait, and their searches would only keep the one from its end that is killed.
    if let Some(goes_on) = GROUPS.get().and_then(|groups| (groups.wait_for_kill)()) {
        return goes_on;
    }
    tell(level, Event::Max);
    if reclaim(level, BATCH) > 0 || own.has_room(1) {
        return true;
    }
    GROUPS.get().is_some_and(|groups| (groups.kill)(level))
}

/// Counts an event in a group and in those around it, and tells of it. Call it without spin locks.
pub fn tell(level: u32, event: Event) {
    if let Some(groups) = GROUPS.get() {
        (groups.tell)(level, event);
    }
}

/// Reclaims up to `most` pages that are charged to a group and all below it; returns how many. Call
/// it without spin locks.
pub fn reclaim(level: u32, most: usize) -> usize {
    let before = account(level).map_or(0, |account| account.count());
    let is_meant = |owner| is_charged_within(owner, level);
    let has_files = used(level, Use::File) != 0;
    let freed = if has_files { caches::shrink_within(&is_meant, most) } else { 0 };
    if freed != 0 || !teardown::free_now() {
        return freed;
    }
    before.saturating_sub(account(level).map_or(0, |account| account.count()))
}

/// Reclaims until a group is not beyond a bound, as far as possible.
pub fn reclaim_beyond(level: u32, bound: Bound) {
    let Some(own) = account(level) else { return };
    loop {
        let beyond = own.beyond(bound);
        if beyond == 0 || reclaim(level, beyond.clamp(BATCH, 1024)) == 0 {
            return;
        }
    }
}

/// The accounts of a group and of those around it that are beyond `memory.high`.
pub fn high(owner: u32) -> impl Iterator<Item = u32> {
    let is_high = |level: &u32| account(*level).is_some_and(|own| own.beyond(Bound::High) != 0);
    levels(owner).filter(is_high)
}
