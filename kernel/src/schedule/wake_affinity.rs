//! Wake affinity for children: where the child of a parent that waits at once begins.
//!
//! A shell, a build or a server of requests makes a process and waits for its end: only one of the
//! two ever has work. Sending the child to an idle CPU then costs a wake-up of that CPU, and one of
//! the parent's CPU at the end, each dearer than a short program. So the scheduler notes for each
//! execution whether it called `wait` soon after it made its last child ([`WakeAffinity::waits`]).
//! If so, its next child begins on the parent's own CPU. After a vfork, the parent that the child
//! releases queues behind the child on the child's CPU: by its turn, a short program has ended.
//!
//! This is a guess. It is wrong if the parent has other work this time. Then whichever of the two
//! waits does so at most until the other's next tick (one slice), at which an idle CPU is called to
//! take it. The next child goes to an idle CPU again, until the parent has waited at once another
//! time. Of several children in a row only the first begins on the parent's CPU.
//!
//! With one CPU there is no choice, and this module does nothing.
//!
//! Road not taken: Linux always looks for the idlest CPU for a new child (`select_task_rq_fair`
//! with `SD_BALANCE_FORK`, 6.1), which is right for the children of a `make -j` and those alone.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hayate_machine::{cpu, time};

/// A parent that waits within this time of making a child (in nanoseconds) waits at once. The usual
/// work between the two calls, closing pipes and blocking signals, takes less.
const SOON_NS: u64 = 200_000;

/// The habits of one execution as a parent. Only the execution itself writes it, except `returns`.
#[derive(Default)]
pub struct WakeAffinity {
    /// When it made its last child, in monotonic nanoseconds; 0 if it made none since its last
    /// wait.
    made: AtomicU64,
    /// It is expected to wait for its next child at once.
    expected: AtomicBool,
    /// It sleeps until its vfork child releases it, and should then queue behind the child on the
    /// child's CPU.
    returns: AtomicBool,
}

impl WakeAffinity {
    /// Notes that it makes a child. Returns whether the child should begin on this CPU.
    #[inline]
    pub fn makes(&self) -> bool {
        if cpu::count() == 1 {
            return false;
        }
        self.made.store(time::monotonic_ns(), Relaxed);
        self.expected.swap(false, Relaxed)
    }

    /// Like [`makes`](Self::makes), for a child by vfork, which begins on this CPU in any case.
    #[inline]
    pub fn makes_and_sleeps(&self) {
        let here = self.makes();
        self.returns.store(here, Relaxed);
    }

    /// Notes that it continues, since the child by vfork does not need its space any more.
    #[inline]
    pub fn goes_on(&self) {
        if cpu::count() > 1 {
            self.returns.store(false, Relaxed);
            self.made.store(time::monotonic_ns(), Relaxed);
        }
    }

    /// Notes that it waits until a child ends.
    #[inline]
    pub fn waits(&self) {
        if cpu::count() > 1 {
            let made = self.made.swap(0, Relaxed);
            if made != 0 && time::monotonic_ns().saturating_sub(made) < SOON_NS {
                self.expected.store(true, Relaxed);
            }
        }
    }

    /// Returns, when it is woken, whether it should queue behind the execution that wakes it.
    pub fn returns_here(&self) -> bool {
        self.returns.load(Relaxed) && self.returns.swap(false, Relaxed)
    }
}
