//! The caches that can free memory.

use arrayvec::ArrayVec;
use machine::sync::SpinLock;

/// A cache that can free memory. Called without spin locks.
pub trait Cache: Send + Sync {
    /// Frees at most about `most` pages. Zero: there is nothing to free.
    fn shrink(&self, most: usize) -> usize;

    /// Frees at most about `most` pages, of those whose owner ([`super::charge`]) is `meant`;
    /// returns how many.
    fn shrink_within(&self, meant: &dyn Fn(u32) -> bool, most: usize) -> usize {
        let _ = (meant, most);
        0
    }

    /// Frees what nobody used since the last call; in an idle machine also that of which nobody
    /// knows when it was used. Sleeps in between if that is much. Returns whether something was
    /// used, so that a later call may free it.
    fn age(&self, is_idle: bool) -> bool {
        let _ = is_idle;
        false
    }
}

/// The most caches.
const MOST: usize = 4;

static CACHES: SpinLock<ArrayVec<&'static dyn Cache, MOST>> = SpinLock::new(ArrayVec::new_const());

/// Adds a cache; at boot, once each.
///
/// # Panics
/// If there are more caches than the list has places: a mistake in the kernel.
pub fn register(cache: &'static dyn Cache) {
    if CACHES.lock().try_push(cache).is_err() {
        panic!("more caches than the list of them has places");
    }
}

/// All of them, in the order of registration.
pub fn all() -> ArrayVec<&'static dyn Cache, MOST> {
    CACHES.lock().clone()
}

/// Frees up to `most` pages of caches whose owner ([`super::charge`]) is `meant`; returns how many.
/// Call it without spin locks.
pub fn shrink_within(meant: &dyn Fn(u32) -> bool, most: usize) -> usize {
    all()
        .iter()
        .map(|cache| cache.shrink_within(meant, most))
        .find(|&freed| freed != 0)
        .unwrap_or(0)
}
