//! What namespaces of all kinds have (namespaces(7)): the handle by which they are held, and a
//! number that no other has.
//!
//! A leaf module: it knows no kind. The first namespace of a kind is a static, and nobody counts
//! references to it: threads that use no other share no cache line on their account. Each further
//! one is counted, and goes with its last handle.

use alloc::sync::{Arc, Weak};
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};

/// A reference to a namespace, or to a part of one.
pub enum Handle<T: 'static> {
    /// To the first.
    First(&'static T),
    /// To another one.
    Other(Arc<T>),
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        match self {
            Handle::First(first) => Handle::First(first),
            Handle::Other(other) => Handle::Other(other.clone()),
        }
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Handle::First(first) => first,
            Handle::Other(other) => other,
        }
    }
}

/// Handles are the same if they are to the same namespace.
impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq::<T>(&**self, &**other)
    }
}

impl<T> Eq for Handle<T> {}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(if matches!(self, Handle::First(_)) { "first" } else { "other" })
    }
}

impl<T> Handle<T> {
    /// A reference that does not keep it.
    pub fn home(&self) -> Home<T> {
        match self {
            Handle::First(first) => Home::First(first),
            Handle::Other(other) => Home::Other(Arc::downgrade(other)),
        }
    }
}

/// A reference that does not keep what it refers to: an object's to the namespace it is in.
pub enum Home<T: 'static> {
    /// To the first, which stays.
    First(&'static T),
    /// To another one.
    Other(Weak<T>),
}

impl<T> Clone for Home<T> {
    fn clone(&self) -> Self {
        match self {
            Home::First(first) => Home::First(first),
            Home::Other(other) => Home::Other(other.clone()),
        }
    }
}

impl<T> Home<T> {
    /// A handle; `None` if it is gone.
    pub fn get(&self) -> Option<Handle<T>> {
        match self {
            Home::First(first) => Some(Handle::First(first)),
            Home::Other(other) => other.upgrade().map(Handle::Other),
        }
    }

    /// Whether it is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, Home::Other(other) if other.strong_count() == 0)
    }

    /// Whether both refer to the same.
    pub fn is(&self, other: &Home<T>) -> bool {
        let place = |home: &Home<T>| match home {
            Home::First(first) => core::ptr::from_ref::<T>(first),
            Home::Other(other) => other.as_ptr(),
        };
        core::ptr::eq(place(self), place(other))
    }
}

/// The numbers of the first namespaces, as on Linux (`PROC_*_INIT_INO`, include/linux/proc_ns.h;
/// those of the last two are given at boot, the first there are).
pub mod first {
    /// `ipc`
    pub const IPC: u64 = 0xefff_ffff;
    /// `uts`
    pub const UTS: u64 = 0xefff_fffe;
    /// `user`
    pub const USER: u64 = 0xefff_fffd;
    /// `pid`
    pub const PID: u64 = 0xefff_fffc;
    /// `cgroup`
    pub const CGROUP: u64 = 0xefff_fffb;
    /// `mnt`
    pub const MNT: u64 = 0xf000_0000;
    /// `net`
    pub const NET: u64 = 0xf000_0001;
}

/// A number for a new namespace. It is never given again: in 64 bits there is no end of them.
pub fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(first::NET + 1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
