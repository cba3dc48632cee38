//! The controller `memory`: which account a process charges, and what happens to processes when
//! their group is beyond its limits. The accounts are in [`crate::reclaim::charge`].
//!
//! A group to which its parent gives the controller has an account. Its members, and those of
//! groups below that have none, charge that. A space charges the account of the process that it
//! belongs to ([`settle`]); a change of a group's account comes before the search for members,
//! and a process that comes to a group settles when it is in its list and looks again afterwards.
//! So none stays with an old one.
//!
//! When a limit is reached and nothing can be reclaimed, the process in the group is killed that
//! holds most ([`memory::badness`]), and the caller waits for its memory. Processes are looked
//! for among all, without the lock of the tree, which the caller may hold.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::Result;
use hayate_cgroup_rules::memory::{self, Bound, Event};
use hayate_machine::sync::SpinLock;
use hayate_machine::{frames, warn};

use super::group::{Group, Lock, file};
use crate::memory::Space;
use crate::process::pids;
use crate::process::record::Process;
use crate::process::signal::send;
use crate::process::thread::{current, try_current};
use crate::reclaim::charge::{self, Groups, limit, records};
use crate::schedule;
use crate::schedule::{WaitQueue, time};

/// How long a killed process may take to end before another one is killed as well.
const PATIENCE_NS: u64 = 2_000_000_000;
const PAUSE_NS: u64 = 1_000_000;

/// Events count only where they are (`memory_localevents`).
pub static LOCAL_EVENTS: AtomicBool = AtomicBool::new(false);

/// The groups of the accounts.
static GROUPS: SpinLock<BTreeMap<u32, Weak<Group>>> = SpinLock::new(BTreeMap::new());

/// Registers what the accounts ask; boot calls it once.
pub fn init() {
    charge::register(Groups {
        current: || try_current().map_or(0, |thread| owner_of(&thread.process)),
        thread: || try_current().map_or(0, |thread| u64::from(thread.id())),
        tell,
        wait_for_kill,
        kill,
    });
}

/// The account that a process charges; 0: none.
pub fn owner_of(process: &Process) -> u32 {
    if process.is_grouped() { process.cgroup().charged() } else { 0 }
}

/// Lets the space of a process charge the account of its group. Call it without spin locks.
#[cold]
pub fn settle(process: &Process) {
    loop {
        let owner = owner_of(process);
        if let Some(space) = own_space(process) {
            space.charge_to(owner);
        }
        if owner_of(process) == owner {
            return;
        }
    }
}

/// The space of a process, unless it is its parent's (`vfork(2)`).
fn own_space(process: &Process) -> Option<Arc<Space>> {
    let mut found = None;
    process.for_each_thread(|thread| {
        if found.is_none() && !thread.borrows.load(Ordering::SeqCst) {
            found = thread.space();
        }
    });
    found
}

/// Gives a group an account of its own.
///
/// # Errors
/// `ENOMEM`; then it has none.
pub fn begin(group: &Group, _: &Lock) -> Result<()> {
    let around = group.parent().map_or(0, |parent| parent.charged());
    let account = records::open(around)?;
    if let Some(group) = group.arc() {
        GROUPS.lock().insert(account, Arc::downgrade(&group));
    }
    group.memory.oom_group.store(false, Ordering::Relaxed);
    group.memory.account.store(account, Ordering::SeqCst);
    Ok(())
}

/// Takes a group's account. What is charged to it stays so, and counts in the groups around it.
pub fn end(group: &Group, _: &Lock) {
    let account = group.memory.account.swap(0, Ordering::SeqCst);
    if account != 0 {
        GROUPS.lock().remove(&account);
        records::retire(account);
    }
}

/// Counts an event and tells of it. Call it without spin locks.
fn tell(account: u32, event: Event) {
    for (at, level) in records::levels(account).enumerate() {
        let Some(own) = records::account(level) else { return };
        own.note(event, at == 0);
        let group = GROUPS.lock().get(&level).and_then(Weak::upgrade);
        if let Some(group) = group {
            let memory = &group.memory;
            let tell = |number| {
                let (changes, name) = match number {
                    file::MEMORY_EVENTS => (&memory.events, "memory.events"),
                    _ => (&memory.local_events, "memory.events.local"),
                };
                changes.tell(group.identity(0), group.identity(number), name);
            };
            tell(file::MEMORY_EVENTS);
            if at == 0 {
                tell(file::MEMORY_EVENTS_LOCAL);
            }
        }
        if LOCAL_EVENTS.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Counts an event in the account of a group.
fn tell_in(group: &Group, event: Event) {
    match group.charged() {
        0 => {}
        account => tell(account, event),
    }
}

/// Counts a process that is killed because memory lacks, in the account of its group: the machine's
/// memory, too (`memcg_memory_event_mm` in `__oom_kill_process`, mm/oom_kill.c).
pub fn note_kill(victim: &Process) {
    tell_in(&victim.cgroup(), Event::OomKill);
}

/// Whether a process charges an account or one below it.
fn charges(process: &Process, account: u32) -> bool {
    records::levels(owner_of(process)).any(|level| level == account)
}

/// What a process holds, in pages; `None` if it has given up its memory.
fn held(process: &Process) -> Option<usize> {
    // Not while the list of threads is locked: this may be the last reference to the space.
    let resident = own_space(process)?.resident();
    Some(resident.pages() + resident.tables)
}

/// Whether a thread of a process is in a space.
fn uses(process: &Process, space: &Arc<Space>) -> bool {
    let mut found = false;
    process.for_each_thread(|thread| found |= thread.is_in(space));
    found
}

/// One thread at a time looks for a process to kill, and waits for its memory.
static KILLING: AtomicBool = AtomicBool::new(false);
/// Others that wait for that.
static WAITING: WaitQueue = WaitQueue::new();

/// Whether the current thread's process is to end.
fn is_ending() -> bool {
    try_current().is_some_and(|thread| thread.process.is_exiting())
}

/// See [`Groups::wait_for_kill`].
fn wait_for_kill() -> Option<bool> {
    if !KILLING.load(Ordering::Acquire) {
        return None;
    }
    // It may be this process that is killed, and its memory that is waited for: then it goes on to
    // its end. No other signal ends the wait, which is a few seconds at most.
    let is_over = || (!KILLING.load(Ordering::Acquire) || is_ending()).then_some(());
    WAITING.wait_through(None, is_over);
    Some(!is_ending())
}

/// Kills a process in the group with an account, and waits for its memory; see [`Groups::kill`].
#[cold]
fn kill(account: u32) -> bool {
    if is_ending() {
        return false;
    }
    if KILLING.swap(true, Ordering::Acquire) {
        wait_for_kill();
        return !is_ending();
    }
    let killed = kill_one(account);
    KILLING.store(false, Ordering::Release);
    WAITING.wake_all();
    killed && !is_ending()
}

/// A short pause. No signal ends it: who is told to end finds out behind it.
fn pause() {
    let _ = schedule::sleep_until(time::monotonic_ns() + PAUSE_NS, false);
}

fn kill_one(account: u32) -> bool {
    // One that ends already frees its memory soon.
    if wait_for_ending(account) {
        return true;
    }
    limit::tell(account, Event::Oom);
    let Some(victim) = choose(account) else { return false };
    let group = victim.cgroup();
    let around = group.levels().filter(|level| level.memory.oom_group.load(Ordering::Relaxed));
    let whole = around.filter(|level| records::levels(level.charged()).any(|at| at == account));
    match whole.last() {
        Some(whole) => kill_group(whole, &victim),
        None => end(&victim),
    }
    fn end(victim: &Arc<Process>) {
        report(victim);
        note_kill(victim);
        // Others have its memory as long as they live: a child of vfork(2), say.
        let space = own_space(victim);
        send::kill(victim);
        let Some(space) = space else { return };
        for other in pids::processes().unwrap_or_default() {
            if other.id() != 1 && !other.is_exiting() && uses(&other, &space) {
                send::kill(&other);
            }
        }
    }
    /// All but those that must not be killed (`oom_kill_memcg_member`).
    fn kill_group(whole: &Group, victim: &Arc<Process>) {
        const NEVER: i32 = -1000;
        end(victim);
        tell_in(whole, Event::OomGroupKill);
        let path = whole.path().unwrap_or_default();
        warn!(
            "Tasks in {} are going to be killed due to memory.oom.group set",
            path.escape_ascii()
        );
        let Ok(all) = pids::processes() else { return };
        for process in all {
            if process.is_grouped()
                && !process.is_exiting()
                && process.id() != 1
                && process.oom_score_adjust.load(Ordering::Relaxed) != NEVER
                && process.cgroup().is_within(whole)
            {
                end(&process);
            }
        }
    }
    if !is_ending() {
        wait_for_ending(account);
    }
    true
}

/// Waits for processes of a group that end already, until there is room. Returns whether there is;
/// not if none of them ends, or it takes too long.
fn wait_for_ending(account: u32) -> bool {
    let Some(own) = records::account(account) else { return true };
    let deadline = time::monotonic_ns() + PATIENCE_NS;
    let own_process = try_current().map_or(0, |thread| thread.process.id());
    loop {
        if own.has_room(1) {
            return true;
        }
        let Ok(all) = pids::processes() else { return false };
        let ends = |process: &Arc<Process>| {
            process.is_exiting()
                && process.id() != own_process
                && charges(process, account)
                && held(process).is_some()
        };
        let Some(ending) = all.iter().find(|process| ends(process)) else { return false };
        ending.cut_dump();
        drop(all);
        if time::monotonic_ns() > deadline {
            return false;
        }
        pause();
        if is_ending() {
            return true;
        }
    }
}

/// The process of a group that is to be killed.
fn choose(account: u32) -> Option<Arc<Process>> {
    let most = records::account(account)?.bound(Bound::Max).min(frames::total());
    let all = pids::processes().ok()?;
    let mut worst: Option<(i64, &Arc<Process>)> = None;
    for process in &all {
        if process.id() == 1 || process.is_exiting() || !charges(process, account) {
            continue;
        }
        let adjust = process.oom_score_adjust.load(Ordering::Relaxed);
        let badness = held(process).and_then(|held| memory::badness(held, adjust, most));
        if let Some(badness) = badness
            && worst.is_none_or(|(other, _)| badness > other)
        {
            worst = Some((badness, process));
        }
    }
    worst.map(|(_, process)| process.clone())
}

/// One line about a process that is killed, as `__oom_kill_process` writes it.
fn report(victim: &Process) {
    let Some(thread) = victim.first_thread() else { return };
    let space = own_space(victim);
    let resident = space.as_ref().map(|space| space.resident()).unwrap_or_default();
    let total = space.map_or(0, |space| space.size()) >> 10;
    warn!(
        "Memory cgroup out of memory: Killed process {} ({}) total-vm:{total}kB, anon-rss:{}kB, \
         file-rss:{}kB, shmem-rss:{}kB, UID:{} pgtables:{}kB oom_score_adj:{}",
        victim.id(),
        thread.shown_name().escape_ascii(),
        resident.anonymous * 4,
        resident.file * 4,
        resident.shared * 4,
        thread.credentials().uid,
        resident.tables * 4,
        victim.oom_score_adjust.load(Ordering::Relaxed)
    );
}

/// Makes a thread that has charged pages beyond `memory.high` reclaim and wait, on its way to user
/// mode (`mem_cgroup_handle_over_high`). Call it without locks.
#[cold]
pub fn throttle() {
    if !records::is_used() {
        return;
    }
    let Some(thread) = try_current() else { return };
    let owner = owner_of(&thread.process);

    let mut delay = 0;
    for level in limit::high(owner) {
        let Some(own) = records::account(level) else { continue };
        limit::tell(level, Event::High);
        limit::reclaim(level, memory::BATCH);
        delay = delay.max(memory::high_delay_ms(own.count(), own.bound(Bound::High)));
    }
    if delay != 0 {
        let _ = schedule::sleep_until(time::monotonic_ns() + delay * 1_000_000, true);
    }
}

/// Sets `memory.max`, and makes the group obey it: by reclaim, then by killing processes
/// (`memory_max_write`). A signal ends that early.
pub fn set_most(account: u32, pages: usize) {
    let Some(own) = records::account(account) else { return };
    own.set_bound(Bound::Max, pages);
    limit::reclaim_beyond(account, Bound::Max);
    while own.beyond(Bound::Max) != 0 && !current().has_signals() {
        if !kill(account) {
            return;
        }
    }
}

/// What a process finds that is refused memory by a limit for good, at a fault in user mode: it
/// ends if it was told so, and otherwise tries again a little later, until others give something
/// up.
#[cold]
pub fn refused() {
    if !current().process.is_exiting() {
        pause();
    }
}
