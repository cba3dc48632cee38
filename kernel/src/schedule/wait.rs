//! Wait queues: sleep until a condition holds.
//!
//! The protocol that loses no wake-up: the sleeper marks itself PREPARED, enters the queue, and
//! only *then* checks the condition; the waker makes the condition true *before* it looks at the
//! queue (with a full barrier between). A woken sleeper checks again and may sleep again, so
//! spurious wake-ups are harmless. The words are those of `hayate_protocols`, whose models try
//! every order of these steps.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_machine::sync::SpinLock;
use hayate_machine::time;
use hayate_machine::trap::{self, attention};
use hayate_protocols::presence::Presence;
use intrusive_collections::LinkedList;

use super::execution::{Execution, current};
use super::statistics::BLOCKED;
use super::switch;
use super::timer::{Timer, TimerTarget};

#[allow(unsafe_code)]
mod adapter {
    use alloc::sync::Arc;

    use crate::schedule::execution::Execution;
    use intrusive_collections::{LinkedListAtomicLink, intrusive_adapter};
    intrusive_adapter!(pub WaitAdapter = Arc<Execution>: Execution { wait_link => LinkedListAtomicLink });
}
use crate::reclaim::growth::Grow;
use adapter::WaitAdapter;

/// Why an interruptible wait ended without its condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The execution was interrupted (a signal).
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

/// A listener (poll, epoll) that is notified when a queue is woken.
pub trait Listener: Send + Sync {
    /// `events` (POLLIN etc., or all ones if the waker did not say) may be true now. Called with
    /// the queue's lock held: must not sleep nor touch the queue it came from.
    fn notify(&self, events: u32);
}

struct Inner {
    waiters: LinkedList<WaitAdapter>,
    listeners: Vec<Arc<dyn Listener>>,
}

/// Executions that wait for a condition, and listeners that are notified of it.
pub struct WaitQueue {
    /// Counts waiters and listeners, so that waking an empty queue takes no lock.
    presence: Presence,
    inner: SpinLock<Inner>,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> WaitQueue {
        WaitQueue {
            presence: Presence::new(),
            inner: SpinLock::new(Inner {
                waiters: LinkedList::new(WaitAdapter::NEW),
                listeners: Vec::new(),
            }),
        }
    }

    /// Sleeps, not interruptibly, until `condition` gives a value. No spin lock may be held; the
    /// condition may take spin locks but not sleep.
    pub fn wait<T>(&self, condition: impl FnMut() -> Option<T>) -> T {
        match self.wait_until(None, false, condition) {
            Ok(value) => value,
            Err(_) => panic!("a wait without end has ended"),
        }
    }

    /// Like [`wait`](Self::wait), for a device's work: the execution counts in
    /// [`count_blocked`](super::count_blocked) meanwhile.
    pub fn wait_for_device<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        if let Some(value) = condition() {
            return value;
        }
        BLOCKED.fetch_add(1, Ordering::Relaxed);
        let value = self.wait(condition);
        BLOCKED.fetch_sub(1, Ordering::Relaxed);
        value
    }

    /// Sleeps until `condition` gives a value, the execution is interrupted, or the monotonic clock
    /// reaches `deadline` (ns).
    pub fn wait_interruptible<T>(
        &self,
        deadline: Option<u64>,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<T, Woken> {
        self.wait_until(deadline, true, condition)
    }

    /// Like [`wait_interruptible`](Self::wait_interruptible) without an end, for a caller that has
    /// just found out that `condition` gives no value yet: it is not asked before the queue is
    /// entered.
    pub fn sleep_interruptible<T>(&self, condition: impl FnMut() -> Option<T>) -> Result<T, Woken> {
        self.sleep_until(None, true, condition)
    }

    /// Like [`wait_interruptible`](Self::wait_interruptible), but an interruption only makes it ask
    /// `condition` again, and is kept for afterwards. `None`: the deadline has come.
    pub fn wait_through<T>(
        &self,
        deadline: Option<u64>,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let me = current();
        let mut interrupted = false;
        let found = loop {
            match self.wait_interruptible(deadline, &mut condition) {
                Ok(value) => break Some(value),
                Err(Woken::TimedOut) => break None,
                Err(Woken::Interrupted) => {
                    interrupted = true;
                    me.clear_interrupt();
                }
            }
        };
        if interrupted {
            me.interrupt();
        }
        found
    }

    #[inline]
    fn wait_until<T>(
        &self,
        deadline: Option<u64>,
        interruptible: bool,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T, Woken> {
        match condition() {
            Some(value) => Ok(value),
            None => self.sleep_until(deadline, interruptible, condition),
        }
    }

    #[inline]
    fn sleep_until<T>(
        &self,
        deadline: Option<u64>,
        interruptible: bool,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<T, Woken> {
        let me = current();
        let mut alarm = None;
        let result = loop {
            // PREPARED first: a waker that takes this execution out of the queue from here on
            // leaves it WOKEN, so that it does not park without being in the queue.
            me.interruptible.store(interruptible, Ordering::Relaxed);
            me.sleep.prepare();
            self.enter(&me);
            if let Some(value) = condition() {
                me.sleep.run();
                break Ok(value);
            }
            if interruptible && me.is_interrupted() {
                me.sleep.run();
                break Err(Woken::Interrupted);
            }
            if let Some(deadline) = deadline {
                if time::monotonic_ns() >= deadline {
                    me.sleep.run();
                    break Err(Woken::TimedOut);
                }
                if alarm.is_none() {
                    alarm = Some(arm_alarm(&me, deadline));
                }
            }
            switch::park();
        };
        me.interruptible.store(false, Ordering::Relaxed);
        self.remove(&me);
        // An interrupt that came while it was PREPARED or WOKEN found nothing to interrupt.
        if me.is_interrupted() {
            attention::raise(trap::INTERRUPTED);
        }
        if let Some(alarm) = alarm {
            alarm.cancel();
        }
        // No wake-up is lost if it was meant for one waiter and reached this one after it gave up
        // (interrupted, timed out): the condition was checked after the wake-up.
        result
    }

    fn enter(&self, me: &Execution) {
        if !me.wait_link.is_linked() {
            let arc = me.arc();
            let mut inner = self.inner.lock();
            inner.waiters.push_back(arc);
            self.presence.enter();
        }
    }

    fn remove(&self, me: &Execution) {
        // A waker unlinks the waiters it takes under the lock, and an unlinked waiter stays
        // unlinked.
        if !me.wait_link.is_linked() {
            return;
        }
        let mut inner = self.inner.lock();
        let mut cursor = inner.waiters.front_mut();
        while let Some(waiter) = cursor.get() {
            if waiter.id() == me.id() {
                cursor.remove();
                self.presence.leave();
                return;
            }
            cursor.move_next();
        }
    }

    /// Whether there is a waiter or a listener. A full barrier precedes the check.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.presence.is_any()
    }

    /// Wakes the longest waiting execution and tells all listeners.
    #[inline]
    pub fn wake_one(&self) {
        if self.is_wanted() {
            self.wake_some(1, u32::MAX);
        }
    }

    /// Wakes up to `most` executions, tells all listeners, and returns how many were woken.
    pub fn wake_many(&self, most: usize) -> usize {
        if self.is_wanted() { self.wake_some(most, u32::MAX) } else { 0 }
    }

    /// Wakes all waiting executions and tells all listeners.
    #[inline]
    pub fn wake_all(&self) {
        if self.is_wanted() {
            self.wake_some(usize::MAX, u32::MAX);
        }
    }

    /// Wakes all waiting executions and tells the listeners that `events` may be true.
    #[inline]
    pub fn wake_events(&self, events: u32) {
        if self.is_wanted() {
            self.wake_some(usize::MAX, events);
        }
    }

    fn wake_some(&self, most: usize, events: u32) -> usize {
        let mut inner = self.inner.lock();
        for listener in &inner.listeners {
            listener.notify(events);
        }
        let mut woken = 0;
        while woken < most
            && let Some(waiter) = inner.waiters.pop_front()
        {
            self.presence.leave();
            woken += 1;
            waiter.wake();
        }
        woken
    }

    /// Notifies `listener` whenever the queue is woken, until [`unlisten`](Self::unlisten). Returns
    /// false if memory for the registration is exhausted.
    #[must_use]
    pub fn listen(&self, listener: Arc<dyn Listener>) -> bool {
        let mut inner = self.inner.lock();
        if inner.listeners.make_room(1).is_err() {
            return false;
        }
        inner.listeners.push(listener);
        self.presence.enter();
        true
    }

    /// Forgets one registration of `listener`.
    pub fn unlisten(&self, listener: &Arc<dyn Listener>) {
        let mut inner = self.inner.lock();
        if let Some(at) = inner.listeners.iter().position(|known| Arc::ptr_eq(known, listener)) {
            inner.listeners.swap_remove(at);
            self.presence.leave();
        }
    }
}

impl TimerTarget for Execution {
    fn expire(&self, _now: u64) -> Option<u64> {
        self.wake();
        None
    }
}

fn arm_alarm(me: &Execution, deadline: u64) -> &Arc<Timer> {
    let alarm = me.alarm.call_once(|| {
        let target: Arc<dyn TimerTarget> = me.arc();
        Timer::new(Arc::downgrade(&target))
    });
    alarm.arm(deadline);
    alarm
}

/// Sleeps until the monotonic clock reaches `deadline` (ns) or, if `interruptible`, a signal
/// arrives.
pub fn sleep_until(deadline: u64, interruptible: bool) -> Result<(), Woken> {
    let queue = WaitQueue::new();
    match queue.wait_until(Some(deadline), interruptible, || None::<()>) {
        Err(Woken::Interrupted) => Err(Woken::Interrupted),
        _ => Ok(()),
    }
}
