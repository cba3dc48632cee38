//! Kernel timers: one tree per CPU, ordered by deadline.
//!
//! A timer expires on the CPU that armed it, from the timer interrupt, with no lock held. Lock
//! order: the timer's own lock, then its CPU's tree.
//!
//! A program may ask for a period shorter than the interrupt handler takes. So one interrupt runs
//! only the timers that were due when it began. Where periods are that short, no timer interrupts
//! the CPU for [`RESPITE`] times as long as the handler took: timers cost at most a fraction of the
//! CPU, and count the periods they missed. (Linux restarts such a timer only when its signal or
//! count is taken; with one queue for all kinds of timers, this rule bounds them all.)

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_machine::cpu::{self, PerCpu};
use hayate_machine::per_cpu;
use hayate_machine::sync::SpinLock;
use hayate_machine::time;
use intrusive_collections::{KeyAdapter, RBTree};

#[allow(unsafe_code)]
mod adapter {
    use alloc::sync::Arc;

    use crate::schedule::timer::Timer;
    use intrusive_collections::{RBTreeAtomicLink, intrusive_adapter};
    intrusive_adapter!(pub TimerAdapter = Arc<Timer>: Timer { link => RBTreeAtomicLink });
}
use adapter::TimerAdapter;
use intrusive_collections::RBTreeAtomicLink;

/// The action of a timer when it expires.
pub trait TimerTarget: Send + Sync {
    /// Called at `now` (monotonic ns) on the CPU that armed the timer, with interrupts off and no
    /// lock held; must not sleep. Returns the next deadline of a periodic timer.
    fn expire(&self, now: u64) -> Option<u64>;
}

/// A timer; not armed when new.
pub struct Timer {
    link: RBTreeAtomicLink,
    number: u64,
    /// Only changed while not linked.
    deadline: AtomicU64,
    /// The CPU whose tree it is in, under the timer's lock.
    place: SpinLock<usize>,
    target: Weak<dyn TimerTarget>,
}

impl<'a> KeyAdapter<'a> for TimerAdapter {
    type Key = (u64, u64);
    fn get_key(&self, timer: &'a Timer) -> (u64, u64) {
        (timer.deadline.load(Ordering::Relaxed), timer.number)
    }
}

struct Queue {
    tree: SpinLock<RBTree<TimerAdapter>>,
    /// The first deadline in the tree.
    first: AtomicU64,
    /// No timer expires before this time, because timers have taken too much of this CPU.
    quiet: AtomicU64,
}

/// After an interrupt at whose end timers were due again, none follows for this many times as long
/// as the handler took.
const RESPITE: u64 = 15;

per_cpu! {
    static QUEUE: PerCpu<Queue> = PerCpu::new(Queue {
        tree: SpinLock::new(RBTree::new(TimerAdapter::NEW)),
        first: AtomicU64::new(u64::MAX),
        quiet: AtomicU64::new(0),
    });
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Queue {
    fn note_first(&self, tree: &RBTree<TimerAdapter>) {
        let first = tree.front().get().map_or(u64::MAX, |t| t.deadline.load(Ordering::Relaxed));
        self.first.store(first, Ordering::Relaxed);
    }
}

impl Timer {
    /// A timer that calls `target` when it expires, as long as the target exists.
    pub fn new(target: Weak<dyn TimerTarget>) -> Arc<Timer> {
        Arc::new(Timer {
            link: RBTreeAtomicLink::new(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            deadline: AtomicU64::new(u64::MAX),
            place: SpinLock::new(0),
            target,
        })
    }

    /// Arms it for `deadline` (monotonic ns), replacing an earlier deadline.
    pub fn arm(self: &Arc<Self>, deadline: u64) {
        if self.put(deadline) {
            time::set_timer_before(first_deadline());
        }
    }

    /// Puts it into this CPU's tree. Returns whether it is the first there.
    fn put(self: &Arc<Self>, deadline: u64) -> bool {
        let mut place = self.place.lock();
        self.unlink(*place);
        *place = cpu::id();
        self.deadline.store(deadline, Ordering::Relaxed);
        let queue = QUEUE.here();
        let mut tree = queue.tree.lock();
        tree.insert(self.clone());
        let first = deadline < queue.first.load(Ordering::Relaxed);
        if first {
            queue.first.store(deadline, Ordering::Relaxed);
        }
        first
    }

    /// Disarms it; returns whether it was armed. Its target may still be running on another CPU.
    pub fn cancel(&self) -> bool {
        let place = self.place.lock();
        self.unlink(*place)
    }

    /// The deadline, if it is armed.
    pub fn deadline(&self) -> Option<u64> {
        let place = self.place.lock();
        let queue = QUEUE.of(*place)?;
        let _tree = queue.tree.lock();
        self.link.is_linked().then(|| self.deadline.load(Ordering::Relaxed))
    }

    fn unlink(&self, place: usize) -> bool {
        let Some(queue) = QUEUE.of(place) else { return false };
        let mut tree = queue.tree.lock();
        // Check under the tree's lock only: while another CPU balances the tree, a link in it may
        // look free for a moment (a red root is 0).
        if !self.link.is_linked() {
            return false;
        }
        let key = (self.deadline.load(Ordering::Relaxed), self.number);
        let mut cursor = tree.find_mut(&key);
        let found = cursor.remove().is_some();
        queue.note_first(&tree);
        found
    }
}

/// When this CPU must next look at its timers (`u64::MAX`: never).
#[inline]
pub(super) fn first_deadline() -> u64 {
    let queue = QUEUE.here();
    queue.first.load(Ordering::Relaxed).max(queue.quiet.load(Ordering::Relaxed))
}

/// Runs the timers that have expired on this CPU. The caller sets the next interrupt.
pub(super) fn run_expired() {
    let queue = QUEUE.here();
    let began = time::monotonic_ns();
    if first_deadline() > began {
        return;
    }
    let mut now = began;
    let mut periodic = false;
    loop {
        let expired = {
            let mut tree = queue.tree.lock();
            let mut cursor = tree.front_mut();
            let due = cursor.get().is_some_and(|t| t.deadline.load(Ordering::Relaxed) <= began);
            let expired = if due { cursor.remove() } else { None };
            queue.note_first(&tree);
            expired
        };
        let Some(timer) = expired else { break };
        if let Some(target) = timer.target.upgrade()
            && let Some(next) = target.expire(now)
        {
            timer.put(next.max(now + 1));
            periodic = true;
        }
        now = time::monotonic_ns();
    }
    // A timer is due again already: its period is shorter than this handler took.
    let storm = periodic && queue.first.load(Ordering::Relaxed) <= now;
    let quiet = if storm { now + RESPITE * (now - began) } else { 0 };
    queue.quiet.store(quiet, Ordering::Relaxed);
}
