//! Parents that wait for a child at once: where the child begins.
//!
//! A shell, a build or a server of requests makes a process and waits for its end: only one of the two
//! ever has anything to do. Sending the child to an idle CPU then costs a wake-up of that CPU, and one of
//! the parent's CPU at the end, each dearer than a short program. So it is noted for each execution
//! whether it called `wait` soon after it had made its last child ([`Haste::waits`]); if so, its next child
//! begins on the parent's own CPU, and a parent that a vfork's child lets go on queues behind the child
//! on the child's CPU: when its turn comes, a short program has ended.
//!
//! It is a guess. Where it is wrong, because the parent has something else to do this time, the one of the
//! two that waits does so until the other's next tick at most, a slice, which calls an idle CPU to take
//! it; and the next child goes to an idle CPU again, until the parent has shown once more that it waits.
//! Of several children in a row only the first begins with the parent.
//!
//! With one CPU there is nothing to choose, and nothing of this is done.
//!
//! Road not taken: Linux always looks for the idlest CPU for a new child (`select_task_rq_fair` with
//! `SD_BALANCE_FORK`, 6.1), which is right for the children of a `make -j` and those alone.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use hayate_machine::{cpu, time};

/// Who waits within this time of making a child waits at once. What a parent does between the two, to
/// close pipes and to block signals, takes less.
const SOON_NS: u64 = 200_000;

/// What is known of one execution as a parent. Only itself writes it, but for `returns`.
#[derive(Default)]
pub(super) struct Haste {
    /// When it made its last child, if it has not waited since; 0: none.
    made: AtomicU64,
    /// It is expected to wait for its next child at once.
    expected: AtomicBool,
    /// It sleeps until its child lets it go on, and is to go on behind the child, where that is.
    returns: AtomicBool,
}

impl Haste {
    /// It makes a child: whether that shall begin on this CPU.
    #[inline]
    pub fn makes(&self) -> bool {
        if cpu::count() == 1 {
            return false;
        }
        self.made.store(time::monotonic_ns(), Relaxed);
        self.expected.swap(false, Relaxed)
    }

    /// The same for a child by vfork, which begins here in any case.
    #[inline]
    pub fn makes_and_sleeps(&self) {
        let here = self.makes();
        self.returns.store(here, Relaxed);
    }

    /// It goes on, as the child by vfork does not need its space any more.
    #[inline]
    pub fn goes_on(&self) {
        if cpu::count() > 1 {
            self.returns.store(false, Relaxed);
            self.made.store(time::monotonic_ns(), Relaxed);
        }
    }

    /// It waits until a child ends.
    #[inline]
    pub fn waits(&self) {
        if cpu::count() > 1 {
            let made = self.made.swap(0, Relaxed);
            if made != 0 && time::monotonic_ns().saturating_sub(made) < SOON_NS {
                self.expected.store(true, Relaxed);
            }
        }
    }

    /// It is woken: whether it is to go on behind who wakes it.
    pub fn returns_here(&self) -> bool {
        self.returns.load(Relaxed) && self.returns.swap(false, Relaxed)
    }
}
