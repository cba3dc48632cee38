//! Input and output of disks by control groups (the controller `io`; block/blk-cgroup.c and
//! block/blk-throttle.c of Linux 6.1): who asked a device for how much, and how groups are held to
//! their limits.
//!
//! | file | contents |
//! |---|---|
//! | [`groups`] | what groups have used, and their limits, found by number |
//! | [`device`] | a disk whose requests are counted |
//! | this one | whose request it is, and the rest of a thread whose group owes something |
//!
//! # Design
//!
//! Each request is counted for its device, and for the group of its *payer* and those around it.
//! The payer of a read is the group of the thread that reads, or on whose behalf a thread of the
//! kernel reads ahead ([`on_behalf`]). Content of files is written for the group whose page it is,
//! if memory is counted ([`charge::records`]), else for that of the thread that writes; so it is if
//! memory is counted for a group around that thread's. Metadata and journal are written for the
//! root, as by Linux' jbd2 thread: a transaction has changes of many.
//!
//! **Limits** are kept by debts ([`hayate_cgroup_rules::io`]). A read, and a request, is charged
//! when it is made. Bytes that are written are charged to the group of the thread that makes a page
//! dirty: so no group makes pages dirty faster than it may write, and neither fills memory nor
//! leaves more to the kernel's writer, which waits for nobody.
//!
//! **A thread rests without locks.** A charge beyond a limit marks the thread, which rests on its
//! way back to user mode; so do faults, and reads of metadata under a file system's locks.
//! `read(2)` and `write(2)` rest in between too, before a read asks the device and between the
//! parts of a write, where they have the position of the open file at most. Only the end of the
//! process, a change of the group's limits, or a move to another group end a rest early.
//!
//! **Others pay nothing**: while no group ever had the controller, one word says so
//! ([`groups::is_used`]); afterwards a process of the root pays a look at its marks for each
//! request. Nothing is added to a start, a fault without a device, or an end.
//!
//! # Locks
//!
//! A charge takes the spin lock of the place of the caller's process, a leaf: the lock of an
//! address space may be held. Groups come and go under a lock of their own.
//!
//! # Road not taken
//!
//! A queue of held-back requests at each device, as Linux has: a thread that waits for such a
//! request has locks that others want (a page that is being read, a transaction), so that they wait
//! as well.
//!
//! [`charge::records`]: crate::reclaim::charge::records

pub mod device;
pub mod groups;

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicUsize};

use hayate_cgroup_rules::io::{Direction, SLACK_NS};
use hayate_machine::sync::Once;
use hayate_machine::trap::{self, attention};

use crate::schedule::time::monotonic_ns;
use crate::schedule::{self, WaitQueue};

/// What the layers above know of threads.
#[derive(Clone, Copy)]
pub struct Threads {
    /// The group of the current thread of a program; 0: none. `None` for one of the kernel.
    pub current: fn() -> Option<u32>,
    /// Whether the current thread's process ends.
    pub is_ending: fn() -> bool,
}

static THREADS: Once<Threads> = Once::new();

/// Registers what is known of threads; boot calls it once.
pub fn register(threads: Threads) {
    THREADS.call_once(|| threads);
}

/// The attention bits of a thread whose group owes something that it read or wrote.
const READ: u64 = trap::FIRST_FREE;
const WRITTEN: u64 = trap::FIRST_FREE << 1;
/// Both: the thread rests on its way to user mode ([`owed`]).
pub const OWES: u64 = READ | WRITTEN;

fn bit(direction: Direction) -> u64 {
    match direction {
        Direction::Read => READ,
        Direction::Write => WRITTEN,
    }
}

/// Threads of the kernel that can read on behalf of others.
pub const READERS: usize = 2;

/// On whose behalf a thread of the kernel reads.
struct Behalf {
    /// The address of its execution; 0: nobody.
    execution: AtomicUsize,
    group: AtomicU32,
}

static BEHALF: [Behalf; READERS] =
    [const { Behalf { execution: AtomicUsize::new(0), group: AtomicU32::new(0) } }; READERS];

fn execution() -> usize {
    core::ptr::from_ref(&*schedule::current()).addr()
}

/// Lets a thread of the kernel, the one with number `reader` of [`READERS`], read on behalf of a
/// group.
pub fn on_behalf(reader: usize, group: u32, read: impl FnOnce()) {
    let Some(behalf) = BEHALF.get(reader).filter(|_| group != 0) else { return read() };
    behalf.group.store(group, Relaxed);
    behalf.execution.store(execution(), SeqCst);
    read();
    behalf.execution.store(0, SeqCst);
}

/// The group that pays for what the current thread asks for, 0: none; and whether it is its own.
fn payer() -> (u32, bool) {
    if !groups::is_used() {
        return (0, false);
    }
    if let Some(group) = THREADS.get().and_then(|threads| (threads.current)()) {
        return (group, true);
    }
    let own = execution();
    let behalf = BEHALF.iter().find(|behalf| behalf.execution.load(SeqCst) == own);
    (behalf.map_or(0, |behalf| behalf.group.load(Relaxed)), false)
}

/// The group on whose behalf the current thread may let others read; 0: none.
pub fn current() -> u32 {
    payer().0
}

fn is_ending() -> bool {
    THREADS.get().is_some_and(|threads| (threads.is_ending)())
}

/// Charges the limits of a group. Its own thread rests if it owes too much. Any lock may be held.
fn charge(group: u32, device: usize, direction: Direction, bytes: u64, requests: u64) {
    if !groups::is_limited() || group == 0 {
        return;
    }
    let now = monotonic_ns();
    groups::charge(group, device, direction, now, bytes, requests);
    let (own, is_own) = payer();
    if is_own && own == group && owes(own, Some(device), direction, now).is_some() {
        attention::raise(bit(direction));
    }
}

/// A page of a device's content is dirty that was not before: the thread that changed it is charged
/// for its bytes.
#[inline]
pub fn made_dirty(device: usize, bytes: u64) {
    if groups::is_limited() {
        charge(payer().0, device, Direction::Write, bytes, 0);
    }
}

/// Until when a group has to rest, if it owes more than is overlooked.
fn owes(group: u32, device: Option<usize>, direction: Direction, now: u64) -> Option<u64> {
    groups::due(group, device, direction, now).filter(|&due| due > now.saturating_add(SLACK_NS))
}

/// Whether the current thread's group, or one around it, has a limit for a device and direction.
#[inline]
pub fn is_held(device: usize, direction: Direction) -> bool {
    groups::is_limited() && groups::has_limit(payer().0, device, direction)
}

/// Whether the current thread's group owes something that it read.
pub fn reads_too_much(device: usize) -> bool {
    groups::is_limited() && owes(payer().0, Some(device), Direction::Read, monotonic_ns()).is_some()
}

/// Where threads rest. One queue for all: a superfluous wake-up does no harm.
static RESTING: WaitQueue = WaitQueue::new();

/// Lets all that rest look again: limits have changed, or somebody has another group.
pub fn wake() {
    RESTING.wake_all();
}

/// Rests as the current thread while its group owes something to a device, or any. `note` is called
/// meanwhile, under a spin lock. Returns false if its process ends. The caller has no lock for
/// which others wait.
#[cold]
fn rest_for(device: Option<usize>, direction: Direction, mut note: impl FnMut()) -> bool {
    let (group, is_own) = payer();
    if is_own
        && group != 0
        && let Some(until) = owes(group, device, direction, monotonic_ns())
    {
        // Charges of others of the group meanwhile are theirs, so none starves.
        RESTING.wait_through(Some(until), || {
            note();
            let is_over = is_ending()
                || payer().0 != group
                || groups::due(group, device, direction, monotonic_ns())
                    .is_none_or(|now| now < until);
            is_over.then_some(())
        });
    }
    !is_ending()
}

/// Rests before a transfer while the current thread's group owes something to the device. Returns
/// false if its process ends. The caller has no lock for which others wait.
#[inline]
pub fn rest(device: usize, direction: Direction) -> bool {
    !groups::is_limited() || rest_for(Some(device), direction, || {})
}

/// Rests on the way to user mode, for what was charged since the last time.
#[cold]
pub fn owed(mut note: impl FnMut()) {
    let marks = attention::get() & OWES;
    attention::clear(OWES);
    for direction in [Direction::Read, Direction::Write] {
        if marks & bit(direction) != 0 && !rest_for(None, direction, &mut note) {
            return;
        }
    }
}
