//! Spinning locks and once-initialised statics.
//!
//! The kernel runs with interrupts off, so a spin lock never has to save the interrupt flag: no
//! handler of this CPU can run while it is held. Instead, a waiting CPU must answer other CPUs'
//! requests (TLB shootdowns): every spin loop calls [`mailbox::poll`](crate::mailbox::poll), so a
//! shootdown's initiator may hold a lock that its target is spinning on.
//!
//! Rules: never sleep, switch, or touch user memory while a spin lock is held.
//!
//! Road not taken: ticket or MCS locks. They are fair, but a locked section here is tens of
//! instructions long and virtual CPUs get descheduled by the host, which turns fairness into
//! convoys.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lock_api::{GuardNoSend, RawMutex, RawRwLock};

/// One round of waiting: answers other CPUs' requests, then pauses.
#[inline]
pub fn relax() {
    crate::mailbox::poll();
    core::hint::spin_loop();
}

/// The raw lock under [`SpinLock`]: test-and-test-and-set.
pub struct RawSpin(AtomicBool);

// SAFETY: `lock` returns only after the false-to-true exchange with Acquire succeeded and `unlock`
// stores false with Release, so exactly one holder exists at a time.
unsafe impl RawMutex for RawSpin {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawSpin = RawSpin(AtomicBool::new(false));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        while self.0.swap(true, Ordering::Acquire) {
            while self.0.load(Ordering::Relaxed) {
                relax();
            }
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

const WRITER: u32 = 1 << 31;

/// The raw lock under [`RwSpinLock`]: a count of readers and a writer bit.
pub struct RawRwSpin(AtomicU32);

// SAFETY: a writer holds the lock only after exchanging 0 for WRITER; readers add one only while
// the writer bit is clear. Both use Acquire on entry and Release on exit.
unsafe impl RawRwLock for RawRwSpin {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: RawRwSpin = RawRwSpin(AtomicU32::new(0));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        while !self.try_lock_shared() {
            relax();
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        now & WRITER == 0
            && self
                .0
                .compare_exchange_weak(now, now + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    #[inline]
    fn lock_exclusive(&self) {
        while !self.try_lock_exclusive() {
            relax();
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.0.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A mutual-exclusion lock that spins; see the module for its rules.
pub type SpinLock<T> = lock_api::Mutex<RawSpin, T>;
/// The guard that [`SpinLock::lock`] returns.
pub type SpinGuard<'a, T> = lock_api::MutexGuard<'a, RawSpin, T>;
/// A readers-writer lock that spins; writers can be starved, so keep readers short.
pub type RwSpinLock<T> = lock_api::RwLock<RawRwSpin, T>;
/// The guard that [`RwSpinLock::read`] returns.
pub type RwSpinReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwSpin, T>;
/// The guard that [`RwSpinLock::write`] returns.
pub type RwSpinWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwSpin, T>;

/// How [`Once`] and [`Lazy`] wait for another CPU's initialisation.
pub struct Polling;

impl spin::relax::RelaxStrategy for Polling {
    fn relax() {
        relax();
    }
}

/// A cell that is written once, at run time.
pub type Once<T> = spin::once::Once<T, Polling>;
/// A value that is made at its first use.
pub type Lazy<T, F = fn() -> T> = spin::lazylock::LazyLock<T, F, Polling>;
