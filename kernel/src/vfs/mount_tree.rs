//! Changes of the mount tree: `mount(2)`, `umount2(2)`, `pivot_root(2)`, and trees that an open
//! file has until they are attached (`fsmount(2)`, `open_tree(2)`, `move_mount(2)`).
//!
//! Mounts do not propagate: every mount is private, and a request for anything else is refused. A
//! caller changes mounts of its own namespace alone (`check_mnt`, fs/namespace.c of Linux 6.1), and
//! its own is the first argument.

use alloc::string::String;
use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Once;

use super::context::FsContext;
use super::dentry::Dentry;
use super::filesystem::FileSystem;
use super::filesystem_type;
use super::filesystem_type::MountRequest;
use super::inode::FileKind;
use super::mount;
use super::mount::flags::*;
use super::mount::{Location, Mount, MountNamespace};
use super::mount_locks::require_no_revelation;
use super::mount_point::keep_way;
use super::open_file::flags::O_PATH;
use super::open_file::{FileOps, OpenFile, Traits};
use super::path::{Resolver, WalkFlags, lookup};
use super::users::Counted;
use crate::credentials::{Capability, Credentials};
use crate::namespace::Handle;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::recycle::{ResourceKind, pools};
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

/// Whether a place is the root of its mount.
pub fn is_mount_root(place: &Location) -> bool {
    Arc::ptr_eq(&place.dentry, place.mount.root())
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
        if !is_mount_root(&target) || flags & (MS_SHARED | MS_UNBINDABLE) != 0 {
            return Err(Errno::EINVAL);
        }
        // Every mount is private already, and a slave without a master is a private mount.
        return Ok(());
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
    let _lock = mount::lock();
    // The mount is made first: with it goes the file system, whose root refers to it.
    let mount = beginning_of(filesystem, with_access_times(flags), name, user)?;
    if !own.has(&target.mount) {
        return Err(Errno::EINVAL);
    }
    require_no_revelation(own, &mount)?;
    let target = target.into_topmost();
    keep_way(&target)?;
    mount::reserve(1)?;
    mount.attach(&target);
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
    if !is_mount_root(target) || !own.has(&target.mount) {
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
    let _lock = mount::lock();
    let keeps = would_keep_itself(own, &source.dentry);
    if !own.has(&target.mount) || !may_be_copied(own, &source.mount) || keeps {
        return Err(Errno::EINVAL);
    }
    let target = target.clone().into_topmost();
    keep_way(&target)?;
    let (top, below) = copies_without_lock(source, deep)?;
    top.attach(&target);
    for Hanging { twin, place, .. } in below {
        twin.attach(&place);
    }
    Ok(())
}

/// The number of the mount namespace that a name is.
fn namespace_at(dentry: &Dentry) -> Option<u64> {
    dentry.inode()?.mount_namespace()
}

/// Whether a name is a mount namespace that is not younger than `own`: bound there, the two, or one
/// alone, would keep each other for ever (`mnt_ns_loop`). Numbers tell the age.
fn would_keep_itself(own: &MountNamespace, dentry: &Dentry) -> bool {
    namespace_at(dentry).is_some_and(|number| number <= own.number)
}

/// A copy of a mount, and the place where it belongs.
struct Hanging {
    twin: Arc<Mount>,
    place: Location,
    original: Arc<Mount>,
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
    let _lock = mount::lock();
    let root = of.root_mount().ok_or(Errno::EINVAL)?;
    let (top, all) = copies(&root.root_location(), true)?;
    let mut below: alloc::vec::Vec<Hanging> = alloc::vec::Vec::new();
    for hanging in all {
        // Namespaces are not bound in younger ones, for the reason of `would_keep_itself`, and what
        // is mounted on such a file has no place then.
        let place = &hanging.place.mount;
        let has_place =
            Arc::ptr_eq(place, &top) || below.iter().any(|other| Arc::ptr_eq(&other.twin, place));
        if has_place && namespace_at(hanging.twin.root()).is_none() {
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
    let is_locked = owner != of.owner;
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
/// (`__do_loopback`). `EINVAL` without the mounts that hide what is under them.
fn copies_without_lock(
    source: &Location,
    deep: bool,
) -> Result<(Arc<Mount>, alloc::vec::Vec<Hanging>)> {
    let hides = |child: &Arc<Mount>| {
        let place = child.attached();
        child.is_place_locked() && place.is_some_and(|at| at.dentry.is_within(&source.dentry))
    };
    if !deep && source.mount.children()?.iter().any(hides) {
        return Err(Errno::EINVAL);
    }
    let (top, below) = copies(source, deep)?;
    top.lock_place(false);
    Ok((top, below))
}

/// Copies the tree at `source`, with the mounts below it if `deep`: returns the new mount, and
/// those that are to be attached to it and to each other, for which there is room. The caller holds
/// the lock of the tree.
fn copies(source: &Location, deep: bool) -> Result<(Arc<Mount>, alloc::vec::Vec<Hanging>)> {
    let top = source.mount.twin(Arc::clone(&source.dentry))?;
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
        let twin = original.twin(Arc::clone(original.root()))?;
        for child in original.children()? {
            growth::push(&mut pending, (child, Arc::clone(&twin)))?;
        }
        let place = Location { mount: parent, dentry: place.dentry };
        growth::push(&mut made, Hanging { twin, place, original })?;
    }
    mount::reserve(1 + made.len())?;
    Ok((top, made))
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
    let (top, below) = copies_without_lock(source, deep)?;
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
/// (`mount_setattr(2)`): `change` gives the new `MS_*` flags for the old ones.
///
/// # Errors
/// `EINVAL` (no mount begins at the place, or it is another namespace's), `EPERM` (a flag is
/// locked), `ENOMEM`.
pub fn set_attributes(
    own: &MountNamespace,
    place: &Location,
    deep: bool,
    change: impl Fn(u64) -> u64,
) -> Result<()> {
    let _lock = mount::lock();
    let is_changeable = own.has(&place.mount) || place.mount.top().is_loose();
    if !is_mount_root(place) || !is_changeable {
        return Err(Errno::EINVAL);
    }
    let mut all = alloc::vec::Vec::new();
    growth::push(&mut all, Arc::clone(&place.mount))?;
    let mut listed = 0;
    while deep && let Some(mount) = all.get(listed) {
        for child in mount.children()? {
            growth::push(&mut all, child)?;
        }
        listed += 1;
    }
    if all.iter().any(|mount| !mount.may_get_flags(change(mount.flags()))) {
        return Err(Errno::EPERM);
    }
    for mount in all {
        mount.set_flags(change(mount.flags()));
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

/// Whether a mount, or one below it, is a namespace that would keep `own`. `ENOMEM`.
fn holds_namespace(own: &MountNamespace, top: &Arc<Mount>) -> Result<bool> {
    let mut all = alloc::vec::Vec::new();
    growth::push(&mut all, Arc::clone(top))?;
    let mut listed = 0;
    while let Some(mount) = all.get(listed) {
        if would_keep_itself(own, mount.root()) {
            return Ok(true);
        }
        for child in mount.children()? {
            growth::push(&mut all, child)?;
        }
        listed += 1;
    }
    Ok(false)
}

/// Moves a mount, or attaches one that is loose (`do_move_mount`, fs/namespace.c).
///
/// # Errors
/// `EINVAL` (no mount begins at the source; it is the root, or was unmounted; one is a directory
/// and the other is none; the target is not in the namespace), `ELOOP` (into itself, or into a
/// namespace that it holds), `ENOMEM`.
pub fn move_mount(own: &MountNamespace, source: &Location, target: Location) -> Result<()> {
    if !is_mount_root(source) || is_directory(source)? != is_directory(&target)? {
        return Err(Errno::EINVAL);
    }
    let _lock = mount::lock();
    let is_loose = source.mount.is_loose();
    let is_movable = is_loose || source.mount.attached().is_some() && own.has(&source.mount);
    if !is_movable || source.mount.is_place_locked() || !own.has(&target.mount) {
        return Err(Errno::EINVAL);
    }
    if hangs_below(&target, &source.mount) || holds_namespace(own, &source.mount)? {
        return Err(Errno::ELOOP);
    }
    keep_way(&target.clone().into_topmost())?;
    mount::reserve(1)?;
    if !source.mount.take_loose() {
        source.mount.detach();
    }
    source.mount.attach(&target.into_topmost());
    Ok(())
}

/// References to an unused mount: the table's and the caller's.
const UNUSED: usize = 2;

/// `umount2(MNT_EXPIRE)`: unmounts if the mount was marked before and not used since; otherwise
/// marks it (`EAGAIN`). `root` is the caller's.
pub fn expire(own: &MountNamespace, place: Location, root: &Location) -> Result<()> {
    let is_roots = Arc::ptr_eq(&place.mount, &root.mount);
    let is_fixed = is_roots || place.mount.is_place_locked();
    if !is_mount_root(&place) || is_fixed || !own.has(&place.mount) {
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
/// use.
pub fn unmount(own: &MountNamespace, place: Location, lazily: bool) -> Result<()> {
    let is_fixed = place.mount.is_place_locked();
    if !is_mount_root(&place) || is_fixed || !own.has(&place.mount) {
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
    if Arc::ptr_eq(&new_root.mount, &old_root.mount) || Arc::ptr_eq(&put_old.mount, &old_root.mount)
    {
        return Err(Errno::EBUSY);
    }
    if !is_mount_root(new_root) || !is_mount_root(old_root) {
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
