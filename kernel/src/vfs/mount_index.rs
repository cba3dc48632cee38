//! All mounts as they are now, found by what they hang on and by the groups that they are tied to.
//! It is made for one change and takes as long as sorting them; so a change of a tree takes no
//! longer, however many mounts a program has made.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_mount_groups::Group;

use super::mount;
use super::mount::{Changes, Mount};
use crate::reclaim::growth;

/// What a mount is to a group.
pub(super) enum Tie {
    Member,
    Slave,
    /// A member of a group that is a slave of it.
    Below(Arc<Group>),
}

/// See the [module](self).
pub(super) struct Index {
    /// With the number of the mount that it hangs on; sorted.
    hanging: Vec<(u32, Arc<Mount>)>,
    /// With the address of the group; sorted.
    ties: Vec<(usize, Tie, Arc<Mount>)>,
}

fn address(group: &Arc<Group>) -> usize {
    Arc::as_ptr(group).addr()
}

impl Index {
    /// Of all mounts; they stay as they are while the caller has the lock.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(lock: &Changes) -> Result<Index> {
        let mut index = Index { hanging: Vec::new(), ties: Vec::new() };
        for mount in mount::all_with_root(lock)? {
            let (group, master) = (mount.group(), mount.master());
            if let Some(group) = &group {
                let member = (address(group), Tie::Member, Arc::clone(&mount));
                growth::push(&mut index.ties, member)?;
            }
            if let Some(master) = master {
                let tie = group.map_or(Tie::Slave, Tie::Below);
                growth::push(&mut index.ties, (address(&master), tie, Arc::clone(&mount)))?;
            }
            if let Some(place) = mount.attached() {
                growth::push(&mut index.hanging, (place.mount.id(), mount))?;
            }
        }
        index.hanging.sort_unstable_by_key(|(parent, mount)| (*parent, mount.id()));
        index.ties.sort_unstable_by_key(|(group, _, mount)| (*group, mount.id()));
        Ok(index)
    }

    /// The mounts that are attached to one, oldest first.
    pub fn on(&self, mount: &Mount) -> impl Iterator<Item = &Arc<Mount>> + use<'_> {
        let id = mount.id();
        let from = self.hanging.partition_point(|(parent, _)| *parent < id);
        let these = self.hanging.get(from..).unwrap_or_default();
        these.iter().take_while(move |(parent, _)| *parent == id).map(|(_, mount)| mount)
    }

    /// A mount and all below it, each behind that which it hangs on. `ENOMEM`.
    pub fn with_below(&self, top: &Arc<Mount>) -> Result<Vec<Arc<Mount>>> {
        let mut all = Vec::new();
        growth::push(&mut all, Arc::clone(top))?;
        let mut listed = 0;
        while let Some(mount) = all.get(listed).map(Arc::clone) {
            for child in self.on(&mount) {
                growth::push(&mut all, Arc::clone(child))?;
            }
            listed += 1;
        }
        Ok(all)
    }

    /// The mounts that are tied to a group.
    pub fn tied_to(&self, group: &Arc<Group>) -> impl Iterator<Item = (&Tie, &Arc<Mount>)> {
        let wanted = address(group);
        let from = self.ties.partition_point(|(group, ..)| *group < wanted);
        let these = self.ties.get(from..).unwrap_or_default();
        let these = these.iter().take_while(move |(group, ..)| *group == wanted);
        these.map(|(_, tie, mount)| (tie, mount))
    }
}

/// A mount and all below it, each behind that which it hangs on. `ENOMEM`.
pub(super) fn with_below(top: &Arc<Mount>, lock: &Changes) -> Result<Vec<Arc<Mount>>> {
    Index::new(lock)?.with_below(top)
}
