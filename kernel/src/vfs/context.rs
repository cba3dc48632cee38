//! The place of a process in the tree: root, working directory and umask. `clone(CLONE_FS)` shares
//! it, fork copies it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_machine::sync::SpinLock;

use super::mount::Location;

/// Root, working directory and umask of a process.
pub struct FsContext {
    /// A leaf lock. Locations taken out are dropped after it is released.
    places: SpinLock<Places>,
    umask: AtomicU32,
}

#[derive(Clone)]
struct Places {
    root: Location,
    working: Location,
}

impl FsContext {
    /// Makes a context with this root, also as working directory, and umask 022.
    pub fn new(root: Location) -> FsContext {
        let places = Places { working: root.clone(), root };
        FsContext { places: SpinLock::new(places), umask: AtomicU32::new(0o022) }
    }

    /// Makes a copy for a child.
    pub fn fork(&self) -> FsContext {
        FsContext {
            places: SpinLock::new(self.places.lock().clone()),
            umask: AtomicU32::new(self.umask.load(Ordering::Relaxed)),
        }
    }

    /// Returns the root directory.
    pub fn root(&self) -> Location {
        self.places.lock().root.clone()
    }

    /// Returns the working directory.
    pub fn working(&self) -> Location {
        self.places.lock().working.clone()
    }

    /// Returns a number that names the working directory as long as it exists.
    pub fn working_address(&self) -> usize {
        Arc::as_ptr(&self.places.lock().working.dentry).addr()
    }

    /// Whether `location` is this context's root, where `..` stops.
    pub fn is_root(&self, location: &Location) -> bool {
        self.places.lock().root.is_same(location)
    }

    /// `chroot(2)`.
    pub fn set_root(&self, root: Location) {
        let old = core::mem::replace(&mut self.places.lock().root, root);
        drop(old);
    }

    /// `chdir(2)`.
    pub fn set_working(&self, working: Location) {
        let old = core::mem::replace(&mut self.places.lock().working, working);
        drop(old);
    }

    /// Replaces root and working directory where they are equal to `old` (`pivot_root(2)`).
    pub fn move_from(&self, old: &Location, new: &Location) {
        let mut places = self.places.lock();
        let before = places.clone();
        if places.root.is_same(old) {
            places.root = new.clone();
        }
        if places.working.is_same(old) {
            places.working = new.clone();
        }
        drop(places);
        drop(before);
    }

    /// Returns the umask.
    pub fn umask(&self) -> u16 {
        self.umask.load(Ordering::Relaxed) as u16
    }

    /// Sets the umask; returns the old one.
    pub fn set_umask(&self, mask: u16) -> u16 {
        self.umask.swap(u32::from(mask & 0o777), Ordering::Relaxed) as u16
    }
}
