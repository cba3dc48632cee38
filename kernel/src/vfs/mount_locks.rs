//! Locks on a mount in a namespace with fewer rights than that it was copied from
//! (mount_namespaces(7), "Restrictions on mount namespaces"): on flags that protect, and on the
//! place, since the mount hides the files under it.
//!
//! Files that a mount hides stay hidden when it goes with all that it hangs in: a tree that is
//! unmounted lazily, one that an open file had, or a namespace that ends. The mount that it hung in
//! is sealed then. That needs no memory, so that nothing fails where a tree is taken apart.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_mount_groups::Propagation;

use super::dentry::{Dentry, Name};
use super::mount::{self, Location, Mount, MountNamespace, flags};
use crate::reclaim::growth;

impl Mount {
    /// Makes another mount of the same file system from `root` on, with what is locked of this one,
    /// which shares what is mounted on it as `propagation` says.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn twin(&self, root: Arc<Dentry>, propagation: Propagation) -> Result<Arc<Mount>> {
        let source = growth::text(self.source().as_bytes())?;
        let filesystem = Arc::clone(self.filesystem());
        let twin = Mount::new(filesystem, root, self.flags(), source, self.user().clone());
        twin.locked_flags.store(self.locked_flags.load(Ordering::Relaxed), Ordering::Relaxed);
        twin.lock_place(self.is_place_locked());
        *twin.propagation.lock() = propagation;
        Ok(twin)
    }

    /// Locks the flags that it has (`lock_mnt_tree`, fs/namespace.c of Linux 6.1): it is a copy in
    /// a namespace with fewer rights, which must not take away what protects the files.
    pub fn lock_flags(&self) {
        let locked = self.flags() & flags::PROTECTION | flags::ACCESS_TIMES;
        self.locked_flags.fetch_or(locked, Ordering::Relaxed);
    }

    /// Whether these flags have what is locked (`can_change_locked_flags`).
    pub fn may_get_flags(&self, new: u64) -> bool {
        const TIMES: u64 = flags::MS_NOATIME | flags::MS_NODIRATIME | flags::MS_RELATIME;
        let locked = self.locked_flags.load(Ordering::Relaxed);
        let times = if locked & flags::ACCESS_TIMES != 0 { TIMES } else { 0 };
        locked & flags::PROTECTION & !new == 0 && (new ^ self.flags()) & times == 0
    }

    /// Locks it in its place, or no more (`MNT_LOCKED`): it hides what is under it from those who
    /// did not mount it. The caller holds the lock of mounts, or nobody else knows the mount.
    pub fn lock_place(&self, locked: bool) {
        self.locked_place.store(locked, Ordering::Relaxed);
    }

    /// Whether a mount that hangs on it at `dentry` or below hides something
    /// (`has_locked_children`). `ENOMEM`.
    pub fn hides_below(self: &Arc<Mount>, dentry: &Arc<Dentry>) -> Result<bool> {
        let hides = |child: &Arc<Mount>| {
            let place = child.attached();
            child.is_place_locked() && place.is_some_and(|at| at.dentry.is_within(dentry))
        };
        Ok(self.children()?.iter().any(hides))
    }

    /// Whether it is locked in its place.
    pub fn is_place_locked(&self) -> bool {
        self.locked_place.load(Ordering::Relaxed)
    }
}

/// Whether nothing of a mounted file system of this kind is hidden in a namespace, so that another
/// mount of the kind, with the flags `new`, shows no more (`mnt_already_visible`, fs/namespace.c of
/// Linux 6.1). The caller holds the lock of mounts.
fn is_visible(own: &MountNamespace, kind: &str, new: u64) -> Result<bool> {
    let all = mount::all()?;
    // The numbers of those on which something is hidden, sorted: each mount is looked at once,
    // however many a program has made.
    let locked = all.iter().filter(|mount| mount.is_place_locked());
    let mut hiding =
        growth::collect(locked.filter_map(|mount| Some(mount.attached()?.mount.id())))?;
    hiding.sort_unstable();
    for mount in all {
        let is_whole = || mount.root().parent().is_none();
        if mount.filesystem().type_name() != kind || !is_whole() {
            continue;
        }
        let locked = mount.locked_flags.load(Ordering::Relaxed) & flags::MS_RDONLY;
        let is_open = locked & !new == 0 && hiding.binary_search(&mount.id()).is_err();
        if is_open && own.has(&mount) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Fails with `EPERM` if a new mount in a namespace of users would show what is hidden from them.
/// The caller holds the lock of mounts.
pub fn require_no_revelation(own: &MountNamespace, mount: &Mount) -> Result<()> {
    let filesystem = mount.filesystem();
    if own.owner.is_first() || !filesystem.shows_system() {
        return Ok(());
    }
    match is_visible(own, filesystem.type_name(), mount.flags())? {
        true => Ok(()),
        false => Err(Errno::EPERM),
    }
}

impl Location {
    /// Itself, or a name of nothing if what was mounted here was hiding it. An overlooked place
    /// would show what is under a mount; a superfluous name of nothing is one in a tree that was
    /// unmounted. The mark of the dentry is there as long as anybody has the mount that hides it.
    #[cold]
    pub(super) fn unless_sealed(self) -> Location {
        if !self.mount.sealed.load(Ordering::Acquire) {
            return self;
        }
        let dentry = Dentry::child(&self.dentry, Name::from(&b"unmounted"[..]), None);
        Location { mount: self.mount, dentry }
    }
}
