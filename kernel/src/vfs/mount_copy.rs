//! Copies of trees of mounts: for a place of one's own (`MS_BIND`, `open_tree(2)`), and for a
//! namespace.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::BuildHasherDefault;

use hashbrown::HashSet;
use hayate_abi::{Errno, Result};

use super::context::FsContext;
use super::dentry::Dentry;
use super::mount;
use super::mount::{Changes, Location, Mount, MountNamespace};
use super::mount_index::Index;
use super::mount_point::kept;
use super::users::Counted;
use crate::hash::IndexHasher;
use crate::namespace::Handle;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::user_namespace::UserNamespace;

/// The number of the mount namespace that a name is.
pub(super) fn namespace_at(dentry: &Dentry) -> Option<u64> {
    dentry.inode()?.mount_namespace()
}

/// Whether a name is a mount namespace that is not younger than `own`: bound there, the two, or one
/// alone, would keep each other for ever (`mnt_ns_loop`). Numbers tell the age.
pub(super) fn would_keep_itself(own: &MountNamespace, dentry: &Dentry) -> bool {
    namespace_at(dentry).is_some_and(|number| number <= own.number)
}

/// A copy of a mount, and the place where it belongs.
pub(super) struct Hanging {
    pub twin: Arc<Mount>,
    pub place: Location,
    pub original: Arc<Mount>,
}

/// What copies are made for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A place of one's own, which unbindable mounts are not shown at.
    Place,
    /// A namespace with all rights of the original.
    Namespace,
    /// One with fewer rights: shared mounts become slaves.
    NamespaceOfOthers,
}

/// Makes a mount namespace with a copy of every mount of `of`, and moves the places of `context` to
/// the copies (`copy_mnt_ns`): the caller enters both. It belongs to `owner`; if that is another
/// than the owner of `of`, the mounts are locked.
///
/// # Errors
/// `ENOMEM`.
pub fn copy_namespace(
    of: &MountNamespace,
    context: &FsContext,
    owner: Handle<UserNamespace>,
    counted: Counted,
) -> Result<Copied> {
    let lock = mount::lock();
    let root = of.root_mount().ok_or(Errno::EINVAL)?;
    let is_locked = owner != of.owner;
    let purpose = if is_locked { Purpose::NamespaceOfOthers } else { Purpose::Namespace };
    let (top, all) = copies(&root.root_location(), true, purpose, &lock)?;
    let mut below: Vec<Hanging> = Vec::new();
    let mut kept: HashSet<u32, BuildHasherDefault<IndexHasher>> = HashSet::default();
    for hanging in all {
        // Namespaces are not bound in younger ones, for the reason of `would_keep_itself`, and what
        // is mounted on such a file has no place then.
        let place = &hanging.place.mount;
        let has_place = Arc::ptr_eq(place, &top) || kept.contains(&place.id());
        if has_place && namespace_at(hanging.twin.root()).is_none() {
            kept.make_room(1)?;
            kept.insert(hanging.twin.id());
            growth::push(&mut below, hanging)?;
        }
    }
    let moved = |place: Location| {
        let twin = if Arc::ptr_eq(&place.mount, &root) {
            Some(&top)
        } else {
            let is_it = |hanging: &&Hanging| Arc::ptr_eq(&hanging.original, &place.mount);
            below.iter().find(is_it).map(|hanging| &hanging.twin)
        };
        match twin {
            Some(twin) => Location { mount: Arc::clone(twin), dentry: place.dentry },
            // It is in another tree, as that of a mount that was detached, and stays there.
            None => place,
        }
    };
    let (root, working) = (moved(context.root()), moved(context.working()));
    if is_locked {
        top.lock_flags();
    }
    for Hanging { twin, place, .. } in below {
        if is_locked {
            twin.lock_flags();
            twin.lock_place(true);
        }
        twin.attach(&place);
    }
    Ok(Copied { namespace: MountNamespace::with_root(top, owner, counted), root, working })
}

/// A namespace that was copied, and the places of the thread that enters it.
pub struct Copied {
    /// The namespace.
    pub namespace: Handle<MountNamespace>,
    /// The root directory.
    pub root: Location,
    /// The working directory.
    pub working: Location,
}

/// Like [`copies`], for a place of one's own: the new mount may be taken from there again
/// (`__do_loopback`). `EINVAL` without the mounts that hide what is under them, and of one that is
/// unbindable.
pub(super) fn copies_without_lock(
    source: &Location,
    deep: bool,
    lock: &Changes,
) -> Result<(Arc<Mount>, Vec<Hanging>)> {
    let source = &kept(source)?;
    if !deep && source.mount.hides_below(&source.dentry)? {
        return Err(Errno::EINVAL);
    }
    if source.mount.is_unbindable() {
        return Err(Errno::EINVAL);
    }
    let (top, below) = copies(source, deep, Purpose::Place, lock)?;
    top.lock_place(false);
    Ok((top, below))
}

/// Copies the tree at `source`, with the mounts below it if `deep`: returns the new mount, and
/// those that are to be attached to it and to each other, each behind that which it hangs on, and
/// for which there is room. The caller holds the lock of the tree. `EPERM`: one that is unbindable
/// hides something, and would not be there.
fn copies(
    source: &Location,
    deep: bool,
    purpose: Purpose,
    lock: &Changes,
) -> Result<(Arc<Mount>, Vec<Hanging>)> {
    let in_fewer_hands = purpose == Purpose::NamespaceOfOthers;
    let twin_of = |original: &Arc<Mount>, root: &Arc<Dentry>| {
        original.twin(Arc::clone(root), original.copied_propagation(in_fewer_hands))
    };
    let top = twin_of(&source.mount, &source.dentry)?;
    // All copies are made before the first is attached: after that nothing can fail. And the new
    // mount, which may lie below its own source, is not copied itself.
    let index = Index::new(lock)?;
    let mut pending = Vec::new();
    if deep {
        for child in index.on(&source.mount) {
            let below =
                child.attached().is_some_and(|place| place.dentry.is_within(&source.dentry));
            if below {
                growth::push(&mut pending, (Arc::clone(child), Arc::clone(&top)))?;
            }
        }
    }
    let mut made = Vec::new();
    while let Some((original, parent)) = pending.pop() {
        let Some(place) = original.attached() else { continue };
        if purpose == Purpose::Place && original.is_unbindable() {
            if original.is_place_locked() {
                return Err(Errno::EPERM);
            }
            continue;
        }
        let twin = twin_of(&original, original.root())?;
        for child in index.on(&original) {
            growth::push(&mut pending, (Arc::clone(child), Arc::clone(&twin)))?;
        }
        let place = Location { mount: parent, dentry: place.dentry };
        growth::push(&mut made, Hanging { twin, place, original })?;
    }
    mount::reserve(1 + made.len())?;
    Ok((top, made))
}
