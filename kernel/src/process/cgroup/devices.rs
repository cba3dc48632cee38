//! Which devices the members of a group may use: programs of `bpf(2)` that are attached to groups
//! (`BPF_CGROUP_DEVICE`; kernel/bpf/cgroup.c of Linux 6.1, Documentation/admin-guide/cgroup-v2.rst,
//! "Device controller").
//!
//! A program is asked when a device is opened or a node of one is made. All that are in force for
//! the group of the caller must say yes: those of the group itself, and of each one around it that
//! has several or whose member has none of its own. While none was ever attached, one word says so.
//!
//! Lock order: the tree ([`group::lock`]) before the programs of a group, a leaf, as is the list of
//! all programs.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_device_programs::{Access, BLOCK, CHARACTER, MAKE, READ, WRITE};

use super::filters::{Filter, MOST, flags};
use super::group;
use super::group::Group;
use crate::credentials::access;
use crate::process;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::device;
use crate::vfs::inode::{DeviceNumber, FileKind};

/// Whether the groups around one let it have programs of its own (`hierarchy_allows_attach`).
fn may_have_own(group: &Group) -> bool {
    for around in group.around() {
        let attached = around.devices.lock();
        if attached.has_several() {
            return true;
        }
        if !attached.filters.is_empty() {
            return attached.flags & flags::ALLOW_OVERRIDE != 0;
        }
    }
    true
}

/// Attaches a program to a group; if `replaced` is given, in the place of that
/// (`__cgroup_bpf_attach`).
///
/// # Errors
/// `EINVAL` (flags that do not go together; it is attached already), `EPERM` (a group around it
/// does not allow it, or those that are attached have other flags), `E2BIG`, `ENOENT` (`replaced`
/// is not attached, or the group was removed), `ENOMEM`.
pub fn attach(
    group: &Group,
    filter: Arc<Filter>,
    wanted: u32,
    replaced: Option<&Arc<Filter>>,
) -> Result<()> {
    let kept = wanted & (flags::ALLOW_OVERRIDE | flags::ALLOW_MULTI);
    let is_several = wanted & flags::ALLOW_MULTI != 0;
    let is_both = kept == flags::ALLOW_OVERRIDE | flags::ALLOW_MULTI;
    if is_both || wanted & flags::REPLACE != 0 && !is_several {
        return Err(Errno::EINVAL);
    }
    let lock = group::lock();
    group.live(&lock)?;
    if !may_have_own(group) {
        return Err(Errno::EPERM);
    }
    growth::relieved(|| group.devices.lock().filters.make_room(1))?;
    let mut attached = group.devices.lock();
    if !attached.filters.is_empty() && attached.flags != kept {
        return Err(Errno::EPERM);
    }
    if attached.filters.len() >= MOST {
        return Err(Errno::E2BIG);
    }
    if is_several && attached.place_of(&filter).is_some() {
        return Err(Errno::EINVAL);
    }
    let place = match replaced {
        Some(replaced) => Some(attached.place_of(replaced).ok_or(Errno::ENOENT)?),
        None if is_several || attached.filters.is_empty() => None,
        None => Some(0),
    };
    let before = match place.and_then(|place| attached.filters.get_mut(place)) {
        Some(place) => Some(core::mem::replace(place, filter)),
        None => {
            attached.filters.push(filter);
            None
        }
    };
    attached.flags = kept;
    drop(attached);
    drop(before);
    device::register_rules(check_use);
    Ok(())
}

/// Detaches a program from a group, or without a name the only one (`__cgroup_bpf_detach`).
///
/// # Errors
/// `EINVAL` (of several it must be said which), `ENOENT`.
pub fn detach(group: &Group, filter: Option<&Arc<Filter>>) -> Result<()> {
    let _lock = group::lock();
    let mut attached = group.devices.lock();
    let place = match filter {
        None if attached.has_several() => return Err(Errno::EINVAL),
        Some(filter) if attached.has_several() => attached.place_of(filter),
        _ => (!attached.filters.is_empty()).then_some(0),
    };
    let removed = attached.filters.remove(place.ok_or(Errno::ENOENT)?);
    if attached.filters.is_empty() {
        attached.flags = 0;
    }
    drop(attached);
    drop(removed);
    Ok(())
}

/// Calls `each` with the programs that are in force in a group until that says no; whether it did
/// not (`compute_effective_progs`).
fn in_force(group: &Group, mut each: impl FnMut(&Arc<Filter>) -> bool) -> bool {
    let mut has_some = false;
    for level in group.levels() {
        let attached = level.devices.lock();
        if has_some && !attached.has_several() {
            continue;
        }
        has_some |= !attached.filters.is_empty();
        if !attached.filters.iter().all(&mut each) {
            return false;
        }
    }
    true
}

/// The numbers of the programs of a group, or of all that are in force in it, and its flags.
/// `ENOMEM`.
pub fn list(group: &Group, all: bool) -> Result<(Vec<u32>, u32)> {
    let _lock = group::lock();
    let mut numbers = Vec::new();
    let attached = group.devices.lock();
    let (flags, own) = (attached.flags, attached.filters.len());
    drop(attached);
    // As many as there can be at most, so that nothing is asked for under a spin lock.
    let levels = if all { group.levels().count() } else { 1 };
    numbers.make_room(if all { levels * MOST } else { own })?;
    if all {
        in_force(group, |filter| {
            numbers.push(filter.id);
            true
        });
        return Ok((numbers, 0));
    }
    numbers.extend(group.devices.lock().filters.iter().map(|filter| filter.id));
    Ok((numbers, flags))
}

/// Fails with `EPERM` if the caller's group may not use a device so
/// ([`device::require_allowed`]; `devcgroup_inode_permission`).
fn check_use(kind: FileKind, number: DeviceNumber, wanted: u32) -> Result<()> {
    let Some(thread) = process::try_current() else { return Ok(()) };
    let kind = if kind == FileKind::BlockDevice { BLOCK } else { CHARACTER };
    let rights = [(access::READ, READ), (access::WRITE, WRITE), (device::MAKE, MAKE)];
    let has = |(right, how): (u32, u16)| if wanted & right != 0 { how } else { 0 };
    let how = rights.into_iter().map(has).fold(0, |all, how| all | how);
    let access = Access { kind, how, major: number.major, minor: number.minor };
    let group = thread.process().cgroup();
    if in_force(&group, |filter| filter.program.allows(access)) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}
