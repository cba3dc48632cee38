//! Attaching a tree of mounts at a place of a shared mount: it appears wherever the place is shown
//! (`attach_recursive_mnt` and `propagate_mnt`, fs/namespace.c and fs/pnode.c of Linux 6.1).
//!
//! The tree becomes shared, each mount of it with its copies. Copies at members of the group are
//! members, too; those at slaves are slaves of the original, and if these slaves share with each
//! other, so do the copies. Everything is made before the first is attached.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_mount_groups::{Group, Member, Propagation};

use super::mount;
use super::mount::{Changes, Location, Mount, MountNamespace};
use super::mount_copy::namespace_at;
use super::mount_index::{Index, with_below};
use super::propagation::{Reach, Receiver, next_number};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;

/// A mount of the tree that is attached, and where it hangs in it; `None`: its top.
pub(super) struct Node {
    pub mount: Arc<Mount>,
    pub place: Option<Location>,
}

impl Node {
    /// A tree of one.
    pub fn alone(mount: &Arc<Mount>) -> [Node; 1] {
        [Node { mount: Arc::clone(mount), place: None }]
    }

    /// A tree that hangs together.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn all_of(top: &Arc<Mount>, lock: &Changes) -> Result<Vec<Node>> {
        let nodes = with_below(top, lock)?.into_iter().enumerate().map(|(at, mount)| {
            let place = if at == 0 { None } else { mount.attached() };
            Node { mount, place }
        });
        growth::collect(nodes)
    }
}

/// A copy of a mount, and where it is attached.
struct Copy {
    twin: Arc<Mount>,
    place: Location,
    is_top: bool,
}

/// What happens elsewhere when a tree is attached.
pub(super) struct Graft {
    /// The mounts of the tree, and the groups that they are in then.
    shared: Vec<(Arc<Mount>, Arc<Group>)>,
    /// Each copy behind that which it hangs on.
    copies: Vec<Copy>,
}

/// The groups of the mounts of a tree, or of its copies in a group of receivers.
type Level = Vec<Arc<Group>>;

impl Graft {
    /// Makes what is needed to attach a tree, each mount behind that which it hangs on, at a place.
    /// There is room for as many mounts then. Nothing has changed.
    ///
    /// # Errors
    /// `EINVAL` (a file of a mount namespace is to be mounted where others would get it),
    /// `ENOSPC`, `ENOMEM`.
    pub fn prepare(
        own: &MountNamespace,
        tree: &[Node],
        place: &Location,
        lock: &Changes,
    ) -> Result<Graft> {
        let mut graft = Graft { shared: Vec::new(), copies: Vec::new() };
        let Some(group) = place.mount.group() else {
            mount::reserve(tree.len())?;
            return Ok(graft);
        };
        for node in tree {
            growth::push(&mut graft.shared, (Arc::clone(&node.mount), node.mount.group_to_be()))?;
        }
        let reach = Reach::of(place, group, &Index::new(lock)?)?;
        let is_namespace = tree.first().is_some_and(|top| namespace_at(top.mount.root()).is_some());
        if is_namespace && !reach.receivers.is_empty() {
            return Err(Errno::EINVAL);
        }
        // Before the copies are made, which may be many. A mount that is pushed up takes no place.
        mount::reserve(tree.len().saturating_mul(1 + reach.receivers.len()))?;
        let levels = graft.levels(&reach)?;
        for receiver in &reach.receivers {
            if let Some(level) = levels.get(receiver.group) {
                graft.copy(own, tree, place, receiver, level)?;
            }
        }
        Ok(graft)
    }

    /// The groups of the copies, for each group of receivers. Where no mount of a group of slaves
    /// shows the place, the slaves of that are slaves of its master's copies.
    fn levels(&self, reach: &Reach) -> Result<Vec<Level>> {
        let mut levels: Vec<Level> = Vec::new();
        for (at, &(_, master)) in reach.groups.iter().enumerate() {
            let has_members = reach.receivers.iter().any(|it| it.group == at && it.is_member);
            let level = match levels.get(master) {
                None => growth::collect(self.shared.iter().map(|(_, group)| Arc::clone(group)))?,
                Some(above) => growth::collect(above.iter().map(|group| {
                    let group = Arc::clone(group);
                    if has_members { Group::new(next_number(), Some(group)) } else { group }
                }))?,
            };
            growth::push(&mut levels, level)?;
        }
        Ok(levels)
    }

    /// Copies the tree for a receiver.
    fn copy(
        &mut self,
        own: &MountNamespace,
        tree: &[Node],
        place: &Location,
        receiver: &Receiver,
        level: &Level,
    ) -> Result<()> {
        let in_fewer_hands = receiver.mount.owner().is_some_and(|owner| owner != own.owner);
        // The originals' numbers and the copies.
        let mut twins: Vec<(u32, Arc<Mount>)> = Vec::new();
        for (node, group) in tree.iter().zip(level) {
            let at = match &node.place {
                None => Location {
                    mount: Arc::clone(&receiver.mount),
                    dentry: Arc::clone(&place.dentry),
                },
                Some(at) => {
                    // Namespaces are not copied, nor is what hangs on them (`copy_tree`).
                    let known = twins.binary_search_by_key(&at.mount.id(), |&(id, _)| id);
                    let twin = known.ok().and_then(|index| twins.get(index));
                    let Some((_, twin)) = twin else { continue };
                    if namespace_at(node.mount.root()).is_some() {
                        continue;
                    }
                    Location { mount: Arc::clone(twin), dentry: Arc::clone(&at.dentry) }
                }
            };
            let group = Arc::clone(group);
            let propagation = match receiver.is_member {
                true => Propagation::Shared(Member::of(group)),
                false => Propagation::Slave(group),
            };
            let is_top = node.place.is_none();
            let twin = node.mount.twin(Arc::clone(node.mount.root()), propagation)?;
            twin.lock_place(!is_top && (in_fewer_hands || node.mount.is_place_locked()));
            if in_fewer_hands {
                twin.lock_flags();
            }
            twins.make_room(1)?;
            let index = twins.partition_point(|&(id, _)| id < node.mount.id());
            twins.insert(index, (node.mount.id(), Arc::clone(&twin)));
            growth::push(&mut self.copies, Copy { twin, place: at, is_top })?;
        }
        Ok(())
    }

    /// Attaches the top of the tree, and the copies.
    pub fn carry_out(self, top: &Arc<Mount>, place: &Location) {
        for (mount, group) in self.shared {
            mount.join(group);
        }
        top.attach(place);
        for Copy { twin, place, is_top } in self.copies {
            // At one of several places that share something else may be mounted already: that
            // covers what comes.
            match mount::mounted_at(&place) {
                Some(there) if is_top => twin.attach_under(&there, &place),
                _ => twin.attach(&place),
            }
        }
    }
}
