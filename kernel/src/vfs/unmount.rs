//! Unmounting: `umount2(2)`, and what goes with it from places that share.
//!
//! A mount that goes from a shared mount goes from all mounts that got it, unless something else is
//! mounted on it there (`propagate_umount`, fs/pnode.c of Linux 6.1). A mount that covers it
//! completely, as one that was at the place before, stays, and hangs where it hung.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasherDefault;
use core::sync::atomic::Ordering::Relaxed;

use hashbrown::HashSet;
use hayate_abi::{Errno, Result};

use super::mount;
use super::mount::{Location, Mount, MountNamespace};
use super::mount_index::Index;
use super::propagation::Reach;
use crate::hash::IndexHasher;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::recycle::{ResourceKind, pools};

/// References to an unused mount: the table's and the caller's.
const UNUSED: usize = 2;

/// `umount2(MNT_EXPIRE)`: unmounts if the mount was marked before and not used since; otherwise
/// marks it (`EAGAIN`). `root` is the caller's.
pub fn expire(own: &MountNamespace, place: Location, root: &Location) -> Result<()> {
    let is_roots = Arc::ptr_eq(&place.mount, &root.mount);
    let is_fixed = is_roots || place.mount.is_place_locked();
    if !place.is_mount_root() || is_fixed || !own.has(&place.mount) {
        return Err(Errno::EINVAL);
    }
    let Location { mount, dentry } = place;
    drop(dentry);
    pools::drop_all(Some(ResourceKind::Attachment));
    pools::drop_all(Some(ResourceKind::Image));
    if Arc::strong_count(&mount) > UNUSED {
        return Err(Errno::EBUSY);
    }
    if !mount.expire() {
        return Err(Errno::EAGAIN);
    }
    let place = mount.root_location();
    drop(mount);
    unmount(own, place, false)
}

/// `umount2(2)`: unmounts the mount whose root is `place`. Unless `lazily`, `EBUSY` while it is in
/// use here or where it goes with it.
pub fn unmount(own: &MountNamespace, place: Location, lazily: bool) -> Result<()> {
    let is_fixed = place.mount.is_place_locked();
    if !place.is_mount_root() || is_fixed || !own.has(&place.mount) {
        return Err(Errno::EINVAL);
    }
    let Location { mount, dentry } = place;
    drop(dentry);
    // Kept parts of ended programs must not keep the file system in use.
    pools::drop_all(Some(ResourceKind::Attachment));
    pools::drop_all(Some(ResourceKind::Image));
    let lock = mount::lock();
    if mount.attached().is_none() {
        // The first root cannot be unmounted.
        return Err(if lazily { Errno::EINVAL } else { Errno::EBUSY });
    }
    if !lazily && (Arc::strong_count(&mount) > UNUSED || !mount.children()?.is_empty()) {
        return Err(Errno::EBUSY);
    }
    // All that goes is known before the first is detached.
    let index = Index::new(&lock)?;
    let all = index.with_below(&mount)?;
    let elsewhere = Elsewhere::of(&all, lazily, &index)?;
    drop(index);
    let (_, below) = all.split_first().ok_or(Errno::EINVAL)?;
    for child in below.iter().rev() {
        child.unhang();
    }
    // Writes unwritten data back; no caller is left to get an error.
    let _ = mount.filesystem().sync();
    mount.unhang();
    elsewhere.carry_out();
    Ok(())
}

/// The states of [`Mount::mark`] while it is found out what goes.
mod mark {
    pub const NONE: u8 = 0;
    /// It goes if nothing else is mounted on it.
    pub const LISTED: u8 = 1;
    /// Nothing else is.
    pub const BARE: u8 = 2;
    /// It goes.
    pub const GOING: u8 = 3;
}

/// Mounts with a mark, which is taken from them at the end. The caller holds the lock.
struct Marked(Vec<Arc<Mount>>);

impl Marked {
    fn push(&mut self, mount: &Arc<Mount>, mark: u8) -> Result<()> {
        growth::push(&mut self.0, Arc::clone(mount))?;
        mount.mark.store(mark, Relaxed);
        Ok(())
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        for mount in &self.0 {
            mount.mark.store(mark::NONE, Relaxed);
        }
    }
}

fn is_going(mount: &Mount) -> bool {
    mount.mark.load(Relaxed) == mark::GOING
}

/// Whether `child`, which hangs on `mount`, covers all of it.
fn covers(child: &Mount, mount: &Mount) -> bool {
    child.attached().is_some_and(|place| Arc::ptr_eq(&place.dentry, mount.root()))
}

/// What happens elsewhere when mounts go.
struct Elsewhere {
    going: Vec<Arc<Mount>>,
    /// Mounts that stay and cover one that goes, with their new places.
    lifted: Vec<(Arc<Mount>, Location)>,
}

impl Elsewhere {
    /// Finds the mounts that go with all of `doomed`. Nothing has changed.
    ///
    /// # Errors
    /// `EBUSY` (unless `lazily`: one that would go is in use), `ENOMEM`.
    fn of(doomed: &[Arc<Mount>], lazily: bool, index: &Index) -> Result<Elsewhere> {
        let mut marked = Marked(Vec::new());
        for mount in doomed {
            marked.push(mount, mark::GOING)?;
        }
        // Places that share are asked for once, whichever of them a mount goes from.
        let mut asked: HashSet<(usize, usize), BuildHasherDefault<IndexHasher>> =
            HashSet::default();
        let mut candidates: Vec<Arc<Mount>> = Vec::new();
        for mount in doomed {
            let Some(place) = mount.attached() else { continue };
            let Some(group) = place.mount.group() else { continue };
            let place_of_group = (Arc::as_ptr(&group).addr(), Arc::as_ptr(&place.dentry).addr());
            asked.make_room(1)?;
            if !asked.insert(place_of_group) {
                continue;
            }
            for receiver in Reach::of(&place, group, index)?.receivers {
                let dentry = Arc::clone(&place.dentry);
                let there = Location { mount: receiver.mount, dentry };
                let Some(twin) = mount::mounted_at(&there) else { continue };
                drop(there);
                if twin.mark.load(Relaxed) == mark::NONE {
                    marked.push(&twin, mark::LISTED)?;
                    growth::push(&mut candidates, twin)?;
                }
            }
        }
        if !lazily && candidates.iter().any(|mount| is_busy(mount, index)) {
            return Err(Errno::EBUSY);
        }
        strip(&candidates, index);
        Elsewhere::from(&candidates, &mut marked, index)
    }

    /// Takes from the candidates those that go, with all that hangs on them, but for what covers
    /// them.
    fn from(candidates: &[Arc<Mount>], marked: &mut Marked, index: &Index) -> Result<Elsewhere> {
        let mut going: Vec<Arc<Mount>> = Vec::new();
        for mount in candidates {
            if mount.mark.load(Relaxed) == mark::BARE && !mount.is_place_locked() {
                mount.mark.store(mark::GOING, Relaxed);
                growth::push(&mut going, Arc::clone(mount))?;
            }
        }
        let mut covering = Vec::new();
        let mut at = 0;
        while let Some(mount) = going.get(at).map(Arc::clone) {
            for child in index.on(&mount) {
                if covers(child, &mount) {
                    growth::push(&mut covering, Arc::clone(child))?;
                } else if !is_going(child) {
                    marked.push(child, mark::GOING)?;
                    growth::push(&mut going, Arc::clone(child))?;
                }
            }
            at += 1;
        }
        let mut lifted = Vec::new();
        for mount in covering {
            if is_going(&mount) {
                continue;
            }
            let mut place = mount.attached();
            while let Some(at) = &place
                && is_going(&at.mount)
            {
                place = at.mount.attached();
            }
            if let Some(place) = place {
                growth::push(&mut lifted, (mount, place))?;
            }
        }
        mount::make_room(lifted.len())?;
        Ok(Elsewhere { going, lifted })
    }

    fn carry_out(self) {
        for mount in self.going.iter().rev() {
            mount.unhang();
        }
        for (mount, place) in self.lifted {
            mount.lift(&place);
        }
    }
}

/// References to a candidate that nobody uses: those of the table, the list of candidates, the
/// marks, and the index.
const UNUSED_CANDIDATE: usize = 4;

/// Whether a mount that would go is in use; one that has others on it does not go anyway
/// (`propagate_mount_busy`).
fn is_busy(mount: &Arc<Mount>, index: &Index) -> bool {
    let mut children = index.on(mount);
    let covered = match (children.next(), children.next()) {
        (None, _) => 0,
        (Some(child), None) if covers(child, mount) => 1,
        _ => return false,
    };
    // The index has one more for each group that it is tied to.
    let ties = usize::from(mount.group().is_some()) + usize::from(mount.master().is_some());
    Arc::strong_count(mount) > UNUSED_CANDIDATE + ties + covered
}

/// Marks the candidates that have nothing on them but what covers them and others so marked
/// (`__propagate_umount`).
fn strip(candidates: &[Arc<Mount>], index: &Index) {
    loop {
        let mut has_changed = false;
        for mount in candidates.iter().rev() {
            let is_nothing =
                |child: &Arc<Mount>| covers(child, mount) || child.mark.load(Relaxed) >= mark::BARE;
            let is_listed = mount.mark.load(Relaxed) == mark::LISTED;
            if is_listed && index.on(mount).all(is_nothing) {
                mount.mark.store(mark::BARE, Relaxed);
                has_changed = true;
            }
        }
        if !has_changed {
            return;
        }
    }
}
