//! Changes of the mount tree: `mount(2)`, `umount2(2)`, `pivot_root(2)`.
//!
//! There is one namespace, and mounts do not propagate: every mount is private, and a request for
//! anything else is refused.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::filesystem_type;
use super::filesystem_type::MountRequest;
use super::inode::FileKind;
use super::mount;
use super::mount::flags::*;
use super::mount::{Location, Mount};
use super::path::{Resolver, WalkFlags};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::recycle::{ResourceKind, pools};

fn is_mount_root(place: &Location) -> bool {
    Arc::ptr_eq(&place.dentry, place.mount.root())
}

fn is_directory(place: &Location) -> Result<bool> {
    Ok(place.inode()?.attributes().kind == FileKind::Directory)
}

/// `mount(2)` on `target`.
pub fn mount(
    resolver: &Resolver<'_>,
    source: &[u8],
    target: Location,
    kind: &[u8],
    flags: u64,
    data: &[u8],
) -> Result<()> {
    const MAGIC: u64 = 0xc0ed_0000;
    let flags = if flags & 0xffff_0000 == MAGIC { flags & 0xffff } else { flags };
    if flags & MS_REMOUNT != 0 {
        return remount(&target, flags, data);
    }
    if flags & MS_BIND != 0 {
        let source = resolver.resolve(source, WalkFlags::empty())?;
        return bind(&source, &target, flags & MS_REC != 0);
    }
    if flags & (MS_SHARED | MS_SLAVE | MS_PRIVATE | MS_UNBINDABLE) != 0 {
        if !is_mount_root(&target) || flags & (MS_SHARED | MS_UNBINDABLE) != 0 {
            return Err(Errno::EINVAL);
        }
        // Every mount is private already, and a slave without a master is a private mount.
        return Ok(());
    }
    if flags & MS_MOVE != 0 {
        let source = resolver.resolve(source, WalkFlags::empty())?;
        return move_mount(&source, target);
    }
    if !is_directory(&target)? {
        return Err(Errno::ENOTDIR);
    }
    let kind = filesystem_type::find_type(kind)?;
    let request = MountRequest { source, flags, data, resolver };
    let name = growth::text(source)?;
    let filesystem = (kind.mount)(&request)?;
    let _lock = mount::lock();
    // The mount is made first: with it goes the file system, whose root refers to it.
    let mount = Mount::whole(filesystem, with_access_times(flags), name);
    mount::reserve(1)?;
    mount.attach(&target.into_topmost());
    Ok(())
}

/// Adds the default: access times are kept relative, as since Linux 2.6.30. `MS_STRICTATIME`
/// overrides the other flags (`path_mount`, fs/namespace.c).
fn with_access_times(flags: u64) -> u64 {
    match flags {
        _ if flags & MS_STRICTATIME != 0 => flags & !(MS_NOATIME | MS_RELATIME),
        _ if flags & MS_NOATIME != 0 => flags,
        _ => flags | MS_RELATIME,
    }
}

fn remount(target: &Location, flags: u64, data: &[u8]) -> Result<()> {
    if !is_mount_root(target) {
        return Err(Errno::EINVAL);
    }
    let _lock = mount::lock();
    let mount = &target.mount;
    if flags & MS_BIND == 0 {
        mount.filesystem().reconfigure(flags & MS_RDONLY != 0, data)?;
    }
    if flags & MS_RDONLY == 0 && mount.filesystem().read_only() {
        return Err(Errno::EROFS);
    }
    // Without a request about access times they stay as they were.
    let asked = flags & ACCESS_TIMES != 0;
    let kept = mount.flags() & ACCESS_TIMES;
    mount.set_flags(if asked { with_access_times(flags) } else { flags | kept });
    Ok(())
}

/// Attaches the tree at `source` also at `target`; with the mounts below it if `deep`.
fn bind(source: &Location, target: &Location, deep: bool) -> Result<()> {
    if is_directory(source)? != is_directory(target)? {
        return Err(Errno::ENOTDIR);
    }
    let _lock = mount::lock();
    let copy = |of: &Arc<Mount>, root| -> Result<Arc<Mount>> {
        let source = growth::text(of.source().as_bytes())?;
        Ok(Mount::new(Arc::clone(of.filesystem()), root, of.flags(), source))
    };
    let top = copy(&source.mount, Arc::clone(&source.dentry))?;
    let target = target.clone().into_topmost();
    // All copies are made before the first is attached: after that nothing can fail. And the new
    // mount, which may lie below its own source, is not copied itself.
    let mut pending = alloc::vec::Vec::new();
    if deep {
        for child in source.mount.children()? {
            let below =
                child.attached().is_some_and(|place| place.dentry.is_within(&source.dentry));
            if below {
                growth::push(&mut pending, (child, Arc::clone(&top)))?;
            }
        }
    }
    let mut made = alloc::vec::Vec::new();
    while let Some((original, parent)) = pending.pop() {
        let Some(place) = original.attached() else { continue };
        let twin = copy(&original, Arc::clone(original.root()))?;
        for child in original.children()? {
            growth::push(&mut pending, (child, Arc::clone(&twin)))?;
        }
        growth::push(&mut made, (twin, Location { mount: parent, dentry: place.dentry }))?;
    }
    mount::reserve(1 + made.len())?;
    top.attach(&target);
    for (twin, place) in made {
        twin.attach(&place);
    }
    Ok(())
}

/// Whether `place` lies in `mount` or in something mounted below it.
fn hangs_below(place: &Location, mount: &Arc<Mount>) -> bool {
    let mut here = Arc::clone(&place.mount);
    loop {
        if Arc::ptr_eq(&here, mount) {
            return true;
        }
        match here.attached() {
            Some(up) => here = up.mount,
            None => return false,
        }
    }
}

fn move_mount(source: &Location, target: Location) -> Result<()> {
    if !is_mount_root(source) || source.mount.attached().is_none() {
        return Err(Errno::EINVAL);
    }
    if is_directory(source)? != is_directory(&target)? {
        return Err(Errno::ENOTDIR);
    }
    let _lock = mount::lock();
    if hangs_below(&target, &source.mount) {
        return Err(Errno::ELOOP);
    }
    mount::reserve(1)?;
    source.mount.detach();
    source.mount.attach(&target.into_topmost());
    Ok(())
}

/// References to an unused mount: the table's and the caller's.
const UNUSED: usize = 2;

/// `umount2(MNT_EXPIRE)`: unmounts if the mount was marked before and not used since; otherwise
/// marks it (`EAGAIN`). `root` is the caller's.
pub fn expire(place: Location, root: &Location) -> Result<()> {
    if !is_mount_root(&place) || Arc::ptr_eq(&place.mount, &root.mount) {
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
    unmount(place, false)
}

/// `umount2(2)`: unmounts the mount whose root is `place`. Unless `lazily`, `EBUSY` while it is in
/// use.
pub fn unmount(place: Location, lazily: bool) -> Result<()> {
    if !is_mount_root(&place) {
        return Err(Errno::EINVAL);
    }
    let Location { mount, dentry } = place;
    drop(dentry);
    // Kept parts of ended programs must not keep the file system in use.
    pools::drop_all(Some(ResourceKind::Attachment));
    pools::drop_all(Some(ResourceKind::Image));
    let _lock = mount::lock();
    if mount.attached().is_none() {
        // The first root cannot be unmounted.
        return Err(if lazily { Errno::EINVAL } else { Errno::EBUSY });
    }
    let children = mount.children()?;
    if !lazily && (!children.is_empty() || Arc::strong_count(&mount) > UNUSED) {
        return Err(Errno::EBUSY);
    }
    // All mounts below are listed before the first is detached.
    let mut below = children;
    let mut listed = 0;
    while let Some(child) = below.get(listed) {
        let more = child.children()?;
        below.make_room(more.len())?;
        below.extend(more);
        listed += 1;
    }
    for child in below.into_iter().rev() {
        child.detach();
    }
    // Writes unwritten data back; no caller is left to get an error.
    let _ = mount.filesystem().sync();
    mount.detach();
    Ok(())
}

/// `pivot_root(2)`: makes the mount at `new_root` the root and attaches the old root at `put_old`.
pub fn pivot(old_root: &Location, new_root: &Location, put_old: &Location) -> Result<()> {
    let _lock = mount::lock();
    if Arc::ptr_eq(&new_root.mount, &old_root.mount) || Arc::ptr_eq(&put_old.mount, &old_root.mount)
    {
        return Err(Errno::EBUSY);
    }
    if !is_mount_root(new_root) || !is_mount_root(old_root) {
        return Err(Errno::EINVAL);
    }
    // The first root stays where it is, and put_old must lie at or below the new root.
    let Some(below_old) = old_root.mount.attached() else { return Err(Errno::EINVAL) };
    if new_root.mount.attached().is_none() || !hangs_below(put_old, &new_root.mount) {
        return Err(Errno::EINVAL);
    }
    if Arc::ptr_eq(&put_old.mount, &new_root.mount) && !put_old.dentry.is_within(&new_root.dentry) {
        return Err(Errno::EINVAL);
    }
    mount::reserve(2)?;
    new_root.mount.detach();
    old_root.mount.detach();
    new_root.mount.attach(&below_old);
    old_root.mount.attach(put_old);
    Ok(())
}
