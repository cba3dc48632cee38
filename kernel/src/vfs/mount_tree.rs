//! Changes of the mount tree: `mount(2)`, `pivot_root(2)`, and trees that an open file has until
//! they are attached (`fsmount(2)`, `open_tree(2)`, `move_mount(2)`).
//!
//! A caller changes mounts of its own namespace alone (`check_mnt`, fs/namespace.c of Linux 6.1),
//! and its own is the first argument. A mount on a shared one appears in others, too
//! ([`super::graft`]).

use alloc::string::String;
use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Once;
use hayate_mount_groups::Kind;

use super::filesystem::FileSystem;
use super::filesystem_type;
use super::filesystem_type::MountRequest;
use super::graft::{Graft, Node};
use super::inode::FileKind;
use super::mount;
use super::mount::flags::*;
use super::mount::{Location, Mount, MountNamespace};
use super::mount_copy::{Hanging, copies_without_lock, would_keep_itself};
use super::mount_index::with_below;
use super::mount_locks::require_no_revelation;
use super::mount_point::keep_way;
use super::open_file::flags::O_PATH;
use super::open_file::{FileOps, OpenFile, Traits};
use super::path::{Resolver, WalkFlags, lookup};
use super::propagation;
use crate::credentials::{Capability, Credentials};
use crate::namespace::Handle;
use crate::reclaim::growth;
use crate::user_namespace::UserNamespace;

/// The type of the file system of namespaces.
pub const NSFS: &str = "nsfs";
/// The source of the first root file system, which is there before there is anything to mount.
pub const ROOTFS: &str = "rootfs";

/// Tells the mount namespace of the calling thread; the process layer is above.
static CALLERS: Once<fn() -> Handle<MountNamespace>> = Once::new();

/// Registers what tells the mount namespace of the calling thread; at boot.
pub fn register_callers(callers: fn() -> Handle<MountNamespace>) {
    CALLERS.call_once(|| callers);
}

/// The mount namespace of the calling thread; the first in the kernel itself.
pub fn of_caller() -> Handle<MountNamespace> {
    CALLERS.get().map_or(Handle::First(&mount::FIRST), |callers| callers())
}

fn is_directory(place: &Location) -> Result<bool> {
    Ok(place.inode()?.attributes().kind == FileKind::Directory)
}

/// `mount(2)` on `target`.
pub fn mount(
    own: &MountNamespace,
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
        return remount(own, resolver.credentials, &target, flags, data);
    }
    if flags & MS_BIND != 0 {
        let source = resolver.resolve(source, WalkFlags::empty())?;
        return bind(own, &source, &target, flags & MS_REC != 0);
    }
    if flags & (MS_SHARED | MS_SLAVE | MS_PRIVATE | MS_UNBINDABLE) != 0 {
        let kind = propagation::kind_of(flags & !(MS_REC | MS_SILENT))?;
        return propagation::set(own, &target, flags & MS_REC != 0, kind);
    }
    if flags & MS_MOVE != 0 {
        let source = resolver.resolve(source, WalkFlags::empty())?;
        return move_mount(own, &source, target);
    }
    if !is_directory(&target)? {
        return Err(Errno::ENOTDIR);
    }
    let kind = filesystem_type::find_type(kind)?;
    let user = (kind.user)(resolver.credentials);
    resolver.credentials.require_in(&user, Capability::SysAdmin)?;
    let request = MountRequest { source, flags, data, resolver };
    let name = growth::text(source)?;
    let filesystem = (kind.mount)(&request)?;
    let lock = mount::lock();
    // The mount is made first: with it goes the file system, whose root refers to it.
    let mount = beginning_of(filesystem, with_access_times(flags), name, user)?;
    if !own.has(&target.mount) {
        return Err(Errno::EINVAL);
    }
    require_no_revelation(own, &mount)?;
    let target = target.into_topmost();
    keep_way(&target)?;
    let graft = Graft::prepare(own, &Node::alone(&mount), &target, &lock)?;
    graft.carry_out(&mount, &target);
    Ok(())
}

/// Makes a mount of a file system that begins where that says; it is not attached yet.
///
/// # Errors
/// `ENOENT` (there is no such place any more), `ENOMEM`.
pub fn beginning_of(
    filesystem: Arc<dyn FileSystem>,
    flags: u64,
    source: String,
    user: Handle<UserNamespace>,
) -> Result<Arc<Mount>> {
    let names = filesystem.beginning()?;
    let whole = Mount::whole_of(filesystem, flags, source.clone(), user.clone());
    if names.is_empty() {
        return Ok(whole);
    }
    let mut root = whole.root().clone();
    for name in names {
        let inode = root.inode().ok_or(Errno::ENOENT)?;
        root = lookup(&root, &inode, &name)?;
    }
    root.inode().ok_or(Errno::ENOENT)?;
    Ok(Mount::new(whole.filesystem().clone(), root, flags, source, user))
}

/// Adds the default: access times are kept relative, as since Linux 2.6.30. `MS_STRICTATIME`
/// overrides the other flags (`path_mount`, fs/namespace.c).
pub fn with_access_times(flags: u64) -> u64 {
    match flags {
        _ if flags & MS_STRICTATIME != 0 => flags & !(MS_NOATIME | MS_RELATIME),
        _ if flags & MS_NOATIME != 0 => flags,
        _ => flags | MS_RELATIME,
    }
}

fn remount(
    own: &MountNamespace,
    credentials: &Credentials,
    target: &Location,
    flags: u64,
    data: &[u8],
) -> Result<()> {
    let _lock = mount::lock();
    if !target.is_mount_root() || !own.has(&target.mount) {
        return Err(Errno::EINVAL);
    }
    let mount = &target.mount;
    // Without a request about access times they stay as they were.
    let asked = flags & ACCESS_TIMES != 0;
    let kept = mount.flags() & ACCESS_TIMES;
    let new = if asked { with_access_times(flags) } else { flags | kept };
    if !mount.may_get_flags(new) {
        return Err(Errno::EPERM);
    }
    if flags & MS_BIND == 0 {
        credentials.require_in(mount.user(), Capability::SysAdmin)?;
        mount.filesystem().reconfigure(flags & MS_RDONLY != 0, data)?;
    }
    if flags & MS_RDONLY == 0 && mount.filesystem().read_only() {
        return Err(Errno::EROFS);
    }
    mount.set_flags(new);
    Ok(())
}

/// Whether a mount may be copied into `own`: one of it, or that which has the files of namespaces
/// (`__do_loopback`).
fn may_be_copied(own: &MountNamespace, source: &Arc<Mount>) -> bool {
    own.has(source) || source.filesystem().type_name() == NSFS
}

/// Attaches the tree at `source` also at `target`; with the mounts below it if `deep`.
fn bind(own: &MountNamespace, source: &Location, target: &Location, deep: bool) -> Result<()> {
    if is_directory(source)? != is_directory(target)? {
        return Err(Errno::ENOTDIR);
    }
    let lock = mount::lock();
    let keeps = would_keep_itself(own, &source.dentry);
    if !own.has(&target.mount) || !may_be_copied(own, &source.mount) || keeps {
        return Err(Errno::EINVAL);
    }
    let target = target.clone().into_topmost();
    keep_way(&target)?;
    let (top, below) = copies_without_lock(source, deep, &lock)?;
    let hanging = below.iter().map(|it| (&it.twin, Some(it.place.clone())));
    let tree = [(&top, None)].into_iter().chain(hanging);
    let tree = tree.map(|(mount, place)| Node { mount: Arc::clone(mount), place });
    let graft = Graft::prepare(own, &growth::collect(tree)?, &target, &lock)?;
    for Hanging { twin, place, .. } in below {
        twin.attach(&place);
    }
    graft.carry_out(&top, &target);
    Ok(())
}

/// Opens a copy of the tree at `source` that is attached nowhere (`OPEN_TREE_CLONE`), with the
/// mounts below it if `deep`.
///
/// # Errors
/// `EINVAL` (the place is not in the tree), `ENOMEM`, `ENFILE`.
pub fn open_copy(own: &MountNamespace, source: &Location, deep: bool) -> Result<Arc<OpenFile>> {
    let lock = mount::lock();
    if !may_be_copied(own, &source.mount) {
        return Err(Errno::EINVAL);
    }
    let (top, below) = copies_without_lock(source, deep, &lock)?;
    for Hanging { twin, place, .. } in below {
        twin.attach(&place);
    }
    top.loosen();
    drop(lock);
    open_loose(top)
}

/// Opens a mount that is attached nowhere. Unless it is attached before the open file ends, it ends
/// with it.
///
/// # Errors
/// `ENOMEM`, `ENFILE`: then it has ended.
pub fn open_loose(mount: Arc<Mount>) -> Result<Arc<OpenFile>> {
    mount.loosen();
    let place = mount.root_location();
    let file = OpenFile::new(Arc::new(Loose(Arc::clone(&mount))), place, O_PATH);
    file.inspect_err(|_| dissolve(&mount))
}

/// Lets go of a mount that is still attached nowhere, with all below it (`dissolve_on_fput`).
fn dissolve(mount: &Arc<Mount>) {
    let _lock = mount::lock();
    if mount.take_loose() {
        mount.detach_below();
    }
}

/// The operations of a file that has a loose mount: none, as with `O_PATH`.
struct Loose(Arc<Mount>);

impl FileOps for Loose {
    fn traits(&self) -> Traits {
        Traits::empty()
    }

    fn release(&self, _: &OpenFile) {
        dissolve(&self.0);
    }
}

/// Changes the flags of the mount at `place`, and of those below it if `deep`, all or none
/// (`mount_setattr(2)`): `change` gives the new `MS_*` flags for the old ones. And changes how they
/// share what is mounted on them.
///
/// # Errors
/// `EINVAL` (no mount begins at the place, or it is another namespace's), `EPERM` (a flag is
/// locked), `ENOMEM`.
pub fn set_attributes(
    own: &MountNamespace,
    place: &Location,
    deep: bool,
    change: impl Fn(u64) -> u64,
    propagation: Option<Kind>,
) -> Result<()> {
    let lock = mount::lock();
    let is_changeable = own.has(&place.mount) || place.mount.top().is_loose();
    if !place.is_mount_root() || !is_changeable {
        return Err(Errno::EINVAL);
    }
    let mut all = with_below(&place.mount, &lock)?;
    if !deep {
        all.truncate(1);
    }
    if all.iter().any(|mount| !mount.may_get_flags(change(mount.flags()))) {
        return Err(Errno::EPERM);
    }
    for mount in all {
        mount.set_flags(change(mount.flags()));
        if let Some(kind) = propagation {
            mount.change_propagation(kind);
        }
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

/// Moves a mount, or attaches one that is loose (`do_move_mount`, fs/namespace.c).
///
/// # Errors
/// `EINVAL` (no mount begins at the source; it is the root, or was unmounted, or hangs on a shared
/// mount; one is a directory and the other is none; the target is not in the namespace, or is
/// shared while something that moves is unbindable), `ELOOP` (into itself, or into a namespace that
/// it holds), `ENOMEM`.
pub fn move_mount(own: &MountNamespace, source: &Location, target: Location) -> Result<()> {
    if !source.is_mount_root() || is_directory(source)? != is_directory(&target)? {
        return Err(Errno::EINVAL);
    }
    let lock = mount::lock();
    let target = target.into_topmost();
    let top = &source.mount;
    let is_movable = match top.attached() {
        Some(place) => own.has(top) && place.mount.group().is_none(),
        None => top.is_loose(),
    };
    if !is_movable || top.is_place_locked() || !own.has(&target.mount) {
        return Err(Errno::EINVAL);
    }
    let tree = Node::all_of(top, &lock)?;
    let is_shared = target.mount.group().is_some();
    if is_shared && tree.iter().any(|node| node.mount.is_unbindable()) {
        return Err(Errno::EINVAL);
    }
    let keeps_own = tree.iter().any(|node| would_keep_itself(own, node.mount.root()));
    if hangs_below(&target, top) || keeps_own {
        return Err(Errno::ELOOP);
    }
    keep_way(&target)?;
    let graft = Graft::prepare(own, &tree, &target, &lock)?;
    if !top.take_loose() {
        top.detach();
    }
    graft.carry_out(top, &target);
    Ok(())
}

/// `pivot_root(2)`: makes the mount at `new_root` the root and attaches the old root at `put_old`.
///
/// The root of a namespace that is the first root file system, or a copy of it, stays where it is
/// (pivot_root(2), NOTES); another one gives its place to the new root.
///
/// # Errors
/// `EBUSY`, `EINVAL`, `ENOMEM`.
pub fn pivot(
    own: &MountNamespace,
    old_root: &Location,
    new_root: &Location,
    put_old: &Location,
) -> Result<()> {
    let _lock = mount::lock();
    let is_fixed = new_root.mount.is_place_locked();
    if is_fixed || !own.has(&old_root.mount) || !own.has(&new_root.mount) {
        return Err(Errno::EINVAL);
    }
    // Nothing of this appears elsewhere.
    let is_shared = |mount: &Mount| mount.group().is_some();
    let on_shared = |mount: &Mount| mount.attached().is_some_and(|at| is_shared(&at.mount));
    let old_on_shared = match old_root.mount.attached() {
        Some(place) => is_shared(&place.mount),
        None => is_shared(&old_root.mount),
    };
    if is_shared(&put_old.mount) || on_shared(&new_root.mount) || old_on_shared {
        return Err(Errno::EINVAL);
    }
    if Arc::ptr_eq(&new_root.mount, &old_root.mount) || Arc::ptr_eq(&put_old.mount, &old_root.mount)
    {
        return Err(Errno::EBUSY);
    }
    if !new_root.is_mount_root() || !old_root.is_mount_root() {
        return Err(Errno::EINVAL);
    }
    let below_old = old_root.mount.attached();
    if below_old.is_none() && old_root.mount.source() == ROOTFS {
        return Err(Errno::EINVAL);
    }
    // put_old must lie at or below the new root.
    if new_root.mount.attached().is_none() || !hangs_below(put_old, &new_root.mount) {
        return Err(Errno::EINVAL);
    }
    if Arc::ptr_eq(&put_old.mount, &new_root.mount) && !put_old.dentry.is_within(&new_root.dentry) {
        return Err(Errno::EINVAL);
    }
    keep_way(put_old)?;
    mount::reserve(2)?;
    // The lock is the place's, which the new root gets.
    let is_locked = old_root.mount.is_place_locked();
    old_root.mount.lock_place(false);
    new_root.mount.detach();
    old_root.mount.detach();
    new_root.mount.lock_place(is_locked);
    match below_old {
        Some(place) => new_root.mount.attach(&place),
        None => own.set_root(Arc::clone(&new_root.mount)),
    }
    old_root.mount.attach(put_old);
    Ok(())
}
