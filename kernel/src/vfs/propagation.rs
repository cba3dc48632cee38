//! How mounts share what is mounted on them (mount_namespaces(7), "Shared subtrees"): the states of
//! mounts, and who gets a mount.
//!
//! The rules are in `crates/mount-groups`. The state of a mount changes under [`mount::lock`]
//! alone, and a spin lock of its own, a leaf, protects it against readers without that. Nobody
//! keeps a list of the members of a group: where something is mounted on a shared mount, all mounts
//! are asked ([`super::mount_index`]). A machine whose mounts are private, as at boot, pays one
//! look for that.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_mount_groups::{Group, Kind, Member, Propagation};

use super::mount;
use super::mount::flags::*;
use super::mount::{Location, Mount, MountNamespace};
use super::mount_index::{Index, Tie, with_below};
use crate::reclaim::growth;

/// The number of another group. (Linux uses the lowest free one.)
pub(super) fn next_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

/// The kind that flags of `mount(2)` ask for (`flags_to_propagation_type`): `EINVAL`.
pub fn kind_of(flags: u64) -> Result<Kind> {
    match flags {
        MS_PRIVATE => Ok(Kind::Private),
        MS_UNBINDABLE => Ok(Kind::Unbindable),
        MS_SLAVE => Ok(Kind::Slave),
        MS_SHARED => Ok(Kind::Shared),
        _ => Err(Errno::EINVAL),
    }
}

impl Mount {
    /// The group of mounts that it shares with.
    pub fn group(&self) -> Option<Arc<Group>> {
        self.propagation.lock().group().map(Arc::clone)
    }

    /// The group that it gets mounts from, and gives none.
    pub fn master(&self) -> Option<Arc<Group>> {
        self.propagation.lock().master()
    }

    /// Whether it shows its files nowhere else.
    pub fn is_unbindable(&self) -> bool {
        matches!(*self.propagation.lock(), Propagation::Unbindable)
    }

    /// The state of a copy: see [`Propagation::copied`].
    pub(super) fn copied_propagation(&self, in_fewer_hands: bool) -> Propagation {
        self.propagation.lock().copied(in_fewer_hands)
    }

    /// The group that it has or is to begin.
    pub(super) fn group_to_be(&self) -> Arc<Group> {
        self.propagation.lock().group_to_be(next_number)
    }

    /// Makes it a member of its [`group_to_be`](Self::group_to_be). The caller holds the lock.
    pub(super) fn join(&self, group: Arc<Group>) {
        let mut propagation = self.propagation.lock();
        if propagation.group().is_none() {
            *propagation = Propagation::Shared(Member::of(group));
        }
    }

    /// Changes how it shares. The caller holds the lock.
    pub(super) fn change_propagation(&self, kind: Kind) {
        self.propagation.lock().change(kind, next_number);
    }
}

/// A mount that gets what is mounted on another one.
pub(super) struct Receiver {
    pub mount: Arc<Mount>,
    /// The group of [`Reach::groups`] that it belongs to, or is a slave of.
    pub group: usize,
    /// Whether it belongs to the group.
    pub is_member: bool,
}

/// Where that goes which is mounted at a place of a shared mount: the other mounts of its group
/// that show the place, slaves, and slaves of slaves. A mount that hangs in no namespace gets
/// nothing (`propagation_next` and `propagate_one`, fs/pnode.c).
pub(super) struct Reach {
    /// The groups, the one of the shared mount first, each with the index of its master.
    pub groups: Vec<(Arc<Group>, usize)>,
    pub receivers: Vec<Receiver>,
}

impl Reach {
    /// Of a place on a mount of this group.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of(place: &Location, group: Arc<Group>, index: &Index) -> Result<Reach> {
        let mut reach = Reach { groups: Vec::new(), receivers: Vec::new() };
        growth::push(&mut reach.groups, (group, 0))?;
        let mut at = 0;
        while let Some((here, _)) = reach.groups.get(at) {
            let here = Arc::clone(here);
            let mut below: Option<&Arc<Group>> = None;
            for (tie, mount) in index.tied_to(&here) {
                match tie {
                    Tie::Below(group) => below = reach.note(group, at, below)?,
                    Tie::Member => reach.add(mount, at, true, place)?,
                    Tie::Slave => reach.add(mount, at, false, place)?,
                }
            }
            at += 1;
        }
        Ok(reach)
    }

    /// A group whose master is that at `master`; `last` was noted before it.
    fn note<'a>(
        &mut self,
        group: &'a Arc<Group>,
        master: usize,
        last: Option<&'a Arc<Group>>,
    ) -> Result<Option<&'a Arc<Group>>> {
        let is_it = |known: &Arc<Group>| Arc::ptr_eq(known, group);
        if !last.is_some_and(is_it) && !self.groups.iter().any(|(known, _)| is_it(known)) {
            growth::push(&mut self.groups, (Arc::clone(group), master))?;
        }
        Ok(Some(group))
    }

    fn add(
        &mut self,
        mount: &Arc<Mount>,
        group: usize,
        is_member: bool,
        place: &Location,
    ) -> Result<()> {
        let is_itself = Arc::ptr_eq(mount, &place.mount);
        if !is_itself && place.dentry.is_within(mount.root()) && mount.owner().is_some() {
            let receiver = Receiver { mount: Arc::clone(mount), group, is_member };
            growth::push(&mut self.receivers, receiver)?;
        }
        Ok(())
    }
}

/// Changes how the mount at `place` shares, and those below it if `deep` (`do_change_type`).
///
/// # Errors
/// `EINVAL` (no mount begins at the place, or it is another namespace's), `ENOMEM`.
pub fn set(own: &MountNamespace, place: &Location, deep: bool, kind: Kind) -> Result<()> {
    let lock = mount::lock();
    if !place.is_mount_root() || !own.has(&place.mount) {
        return Err(Errno::EINVAL);
    }
    if !deep {
        place.mount.change_propagation(kind);
        return Ok(());
    }
    for mount in with_below(&place.mount, &lock)? {
        mount.change_propagation(kind);
    }
    Ok(())
}

/// Makes the mount at `to`, which is private, share as the one at `from` does (`do_set_group`).
///
/// # Errors
/// `EINVAL`: no mount begins at a place; `from` is private, or shows less of the file system, or
/// has a locked mount where `to` begins; another file system; `to` is not private.
pub fn share_like(from: &Location, to: &Location) -> Result<()> {
    let _lock = mount::lock();
    let (from_mount, to_mount) = (&from.mount, &to.mount);
    let is_possible = from.is_mount_root()
        && to.is_mount_root()
        && from_mount.owner().is_some()
        && to_mount.owner().is_some()
        && Arc::ptr_eq(from_mount.filesystem(), to_mount.filesystem())
        && to_mount.root().is_within(from_mount.root())
        && !from_mount.hides_below(to_mount.root())?;
    let shared = from_mount.copied_propagation(false);
    let mut own = to_mount.propagation.lock();
    let is_free = own.group().is_none() && own.master().is_none();
    let is_private = shared.group().is_none() && shared.master().is_none();
    if !is_possible || !is_free || is_private {
        return Err(Errno::EINVAL);
    }
    *own = shared;
    Ok(())
}
