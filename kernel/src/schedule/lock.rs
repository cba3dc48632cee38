//! Locks that sleep: for data held across I/O, user copies or other sleeps.
//!
//! Each is a spin lock that is only ever tried, with a wait queue for the executions that failed to
//! take it. The spin lock's own guard is held across sleeps, which is sound because no CPU spins on
//! it. The locks are not fair: a running thread may take the lock before the waiter that was woken
//! for it.

use core::ops::{Deref, DerefMut};

use hayate_machine::sync::{RwSpinLock, RwSpinReadGuard, RwSpinWriteGuard, SpinGuard, SpinLock};

use super::wait::{WaitQueue, Woken};

/// A mutual-exclusion lock whose waiters sleep.
pub struct Mutex<T> {
    data: SpinLock<T>,
    queue: WaitQueue,
}

/// Access to a [`Mutex`]'s data.
pub struct MutexGuard<'a, T> {
    guard: Option<SpinGuard<'a, T>>,
    queue: &'a WaitQueue,
}

impl<T> Mutex<T> {
    /// An unlocked lock.
    pub const fn new(data: T) -> Mutex<T> {
        Mutex { data: SpinLock::new(data), queue: WaitQueue::new() }
    }

    /// Takes the lock, sleeping (not interruptibly) while it is held.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let guard = match self.data.try_lock() {
            Some(guard) => guard,
            None => self.queue.wait(|| self.data.try_lock()),
        };
        MutexGuard { guard: Some(guard), queue: &self.queue }
    }

    /// Takes the lock, or gives up when the execution is interrupted while it waits.
    pub fn lock_interruptible(&self) -> Result<MutexGuard<'_, T>, Woken> {
        let guard = match self.data.try_lock() {
            Some(guard) => guard,
            None => self.queue.wait_interruptible(None, || self.data.try_lock())?,
        };
        Ok(MutexGuard { guard: Some(guard), queue: &self.queue })
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.data.try_lock().map(|guard| MutexGuard { guard: Some(guard), queue: &self.queue })
    }

    /// The data, by exclusive reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// The data; consumes the lock.
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.guard = None;
        self.queue.wake_one();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held until dropped")
    }
}

/// A readers-writer lock whose waiters sleep.
pub struct RwMutex<T> {
    data: RwSpinLock<T>,
    queue: WaitQueue,
}

/// Shared access to a [`RwMutex`]'s data.
pub struct RwMutexReadGuard<'a, T> {
    guard: Option<RwSpinReadGuard<'a, T>>,
    queue: &'a WaitQueue,
}

/// Exclusive access to a [`RwMutex`]'s data.
pub struct RwMutexWriteGuard<'a, T> {
    guard: Option<RwSpinWriteGuard<'a, T>>,
    queue: &'a WaitQueue,
}

impl<T> RwMutex<T> {
    /// An unlocked lock.
    pub const fn new(data: T) -> RwMutex<T> {
        RwMutex { data: RwSpinLock::new(data), queue: WaitQueue::new() }
    }

    /// Takes the lock for reading, sleeping while a writer has it.
    #[inline]
    pub fn read(&self) -> RwMutexReadGuard<'_, T> {
        let guard = match self.data.try_read() {
            Some(guard) => guard,
            None => self.queue.wait(|| self.data.try_read()),
        };
        RwMutexReadGuard { guard: Some(guard), queue: &self.queue }
    }

    /// Takes the lock for writing, sleeping while a reader or writer has it.
    #[inline]
    pub fn write(&self) -> RwMutexWriteGuard<'_, T> {
        let guard = match self.data.try_write() {
            Some(guard) => guard,
            None => self.queue.wait(|| self.data.try_write()),
        };
        RwMutexWriteGuard { guard: Some(guard), queue: &self.queue }
    }
}

impl<T: Default> Default for RwMutex<T> {
    fn default() -> Self {
        RwMutex::new(T::default())
    }
}

impl<T> Drop for RwMutexReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.guard = None;
        self.queue.wake_all();
    }
}

impl<T> Drop for RwMutexWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.guard = None;
        self.queue.wake_all();
    }
}

impl<T> Deref for RwMutexReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl<T> Deref for RwMutexWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.guard.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for RwMutexWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("held until dropped")
    }
}
