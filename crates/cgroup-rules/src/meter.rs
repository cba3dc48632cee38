//! Counts that rise and fall in a group and in all groups around it, without a lock.
//!
//! A charge goes up level by level. At a level whose limit it would pass it stops, and what was
//! charged below is given back: a count is above its limit for a moment, but nobody who was refused
//! has anything. (`pids_try_charge`, kernel/cgroup/pids.c.)

use core::sync::atomic::{AtomicUsize, Ordering};

/// No limit.
pub const UNLIMITED: usize = usize::MAX;

/// A count of one group, itself and all below, and its limit.
#[derive(Debug)]
pub struct Meter {
    count: AtomicUsize,
    most: AtomicUsize,
}

impl Default for Meter {
    fn default() -> Self {
        Meter::new()
    }
}

impl Meter {
    /// Nothing, without a limit.
    pub const fn new() -> Meter {
        Meter { count: AtomicUsize::new(0), most: AtomicUsize::new(UNLIMITED) }
    }

    /// The count.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// The limit.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Changes the limit. A count that is above it stays.
    pub fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// Adds `more`, whatever the limit. Returns whether it was 0 before.
    pub fn add(&self, more: usize) -> bool {
        self.count.fetch_add(more, Ordering::SeqCst) == 0
    }

    /// Subtracts `less`. Returns whether it is 0 now.
    pub fn give(&self, less: usize) -> bool {
        self.count.fetch_sub(less, Ordering::SeqCst) == less
    }
}

/// Adds `more` at every level, the innermost first, unless one has a limit that it would pass.
///
/// # Errors
/// The number of that level, counted from 0; then nothing is charged.
pub fn charge<'a>(
    levels: impl Iterator<Item = &'a Meter> + Clone,
    more: usize,
) -> Result<(), usize> {
    for (at, level) in levels.clone().enumerate() {
        let new = level.count.fetch_add(more, Ordering::SeqCst).saturating_add(more);
        if new > level.most() {
            for charged in levels.take(at + 1) {
                charged.give(more);
            }
            return Err(at);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::sync::Arc;
    use std::thread;
    use std::vec::Vec;

    #[test]
    fn the_first_level_that_is_full_refuses_and_nothing_stays() {
        let levels = [Meter::new(), Meter::new(), Meter::new()];
        levels[1].set_most(2);
        assert_eq!(charge(levels.iter(), 1), Ok(()));
        assert_eq!(charge(levels.iter(), 1), Ok(()));
        assert_eq!(charge(levels.iter(), 1), Err(1));
        assert_eq!(levels.each_ref().map(Meter::count), [2, 2, 2]);
        levels[0].set_most(0);
        assert_eq!(charge(levels.iter(), 1), Err(0));
        assert_eq!(levels.each_ref().map(Meter::count), [2, 2, 2]);
        // A limit below the count refuses only what is new.
        assert!(!levels[0].give(1));
        assert!(levels[0].give(1));
        assert!(levels[0].add(3));
    }

    #[test]
    fn processors_that_charge_together_never_hold_more_than_the_limit() {
        const MOST: usize = 5;
        let levels: Arc<[Meter; 2]> = Arc::new([Meter::new(), Meter::new()]);
        levels[1].set_most(MOST);
        let held = Arc::new(AtomicUsize::new(0));
        let charge_often = |_| {
            let (levels, held) = (levels.clone(), held.clone());
            thread::spawn(move || {
                for _ in 0..2000 {
                    if charge(levels.iter(), 1).is_ok() {
                        assert!(held.fetch_add(1, Ordering::SeqCst) < MOST);
                        held.fetch_sub(1, Ordering::SeqCst);
                        levels.iter().for_each(|level| {
                            level.give(1);
                        });
                    }
                }
            })
        };
        let threads: Vec<_> = (0..4).map(charge_often).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(levels.each_ref().map(Meter::count), [0, 0]);
    }
}
