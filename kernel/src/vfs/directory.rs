//! Changes of the tree: making, removing, linking and renaming names. The checks of
//! `path_resolution(7)` are made in Linux' order, so that of two possible errors the program gets
//! the same one.
//!
//! Lock order: see [`super::dentry`].

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_landlock::Access;

use super::dentry::{Dentry, DentryState, Name};
use super::device;
use super::filesystem::Caching;
use super::inode::{Attributes, DeviceNumber, FileKind, Inode, Owner, RenameFlags};
use super::landlock;
use super::mount::Location;
use super::notify;
use super::path::{Ending, Parent, Resolver, lookup_locked, permitted};
use super::set_id;
use super::watch::Mask;
use crate::credentials::{Capability, Credentials, access};
use crate::schedule;

/// Held while a directory can move, so that a check of ancestry stays true until it is acted on.
static RENAME: schedule::Mutex<()> = schedule::Mutex::new(());

const S_ISGID: u16 = 0o2000;
const S_ISVTX: u16 = 0o1000;

/// Fails with `EROFS` if this place's mount cannot be written.
pub fn check_writable(location: &Location) -> Result<()> {
    if location.mount.read_only() { Err(Errno::EROFS) } else { Ok(()) }
}

/// Returns the owner of a file made in `directory`.
pub fn new_owner(directory: &Attributes, credentials: &Credentials) -> Owner {
    let inherits = directory.mode & S_ISGID != 0;
    let gid = if inherits { directory.gid } else { credentials.fsgid };
    Owner { uid: credentials.fsuid, gid }
}

/// Checks that names can be added to or removed from a directory.
pub fn check_directory(
    location: &Location,
    attributes: &Attributes,
    credentials: &Credentials,
) -> Result<()> {
    if location.dentry.state().contains(DentryState::UNLINKED) {
        return Err(Errno::ENOENT);
    }
    permitted(credentials, attributes, access::WRITE | access::EXECUTE)
}

/// Adds a newly made file to the dentry cache. The caller holds the directory lock and has reserved
/// memory for a child ([`Dentry::reserve`]) before it made the file.
pub fn record(
    directory: &Arc<Dentry>,
    found: Arc<Dentry>,
    name: &Name,
    inode: Arc<dyn Inode>,
) -> Result<Arc<Dentry>> {
    let cached = directory.cached(name).is_some_and(|cached| Arc::ptr_eq(&cached, &found));
    if cached {
        found.set_inode(Some(inode));
        return Ok(found);
    }
    let child = Dentry::child(directory, Arc::clone(name), Some(inode));
    if directory.filesystem().caching() != Caching::Never {
        directory.adopt(&child)?;
    }
    Ok(child)
}

/// Makes a name with `make`, which gets the directory, the name and the directory's attributes.
fn make(
    resolver: &Resolver<'_>,
    path: &[u8],
    kind: FileKind,
    make: impl FnOnce(&Arc<dyn Inode>, &[u8], &Attributes) -> Result<Arc<dyn Inode>>,
) -> Result<Location> {
    let directory_wanted = kind == FileKind::Directory;
    let parent = resolver.resolve_parent(path)?;
    let Some(name) = parent.name else { return Err(Errno::EEXIST) };
    let inode = parent.directory.inode()?;
    let directory = &parent.directory;
    let lock = directory.dentry.lock_directory();
    let found = lookup_locked(&directory.dentry, &inode, &name)?;
    if found.inode().is_some() {
        return Err(Errno::EEXIST);
    }
    if parent.slash && !directory_wanted {
        return Err(Errno::ENOENT);
    }
    check_writable(directory)?;
    landlock::check(resolver.credentials, directory, landlock::right_to_make(kind))?;
    let attributes = inode.attributes();
    check_directory(directory, &attributes, resolver.credentials)?;
    directory.dentry.reserve(1)?;
    let made = make(&inode, &name, &attributes)?;
    let dentry = record(&directory.dentry, found, &name, made)?;
    drop(lock);
    let mask = if directory_wanted { Mask::CREATE | Mask::ISDIR } else { Mask::CREATE };
    notify::named(&inode, mask, &name, 0);
    Ok(Location { mount: Arc::clone(&directory.mount), dentry })
}

/// `mkdir(2)`; applies the umask to `mode`.
pub fn mkdir(resolver: &Resolver<'_>, path: &[u8], mode: u16) -> Result<Location> {
    make(resolver, path, FileKind::Directory, |inode, name, attributes| {
        let mode = set_id::of_new(attributes, resolver, mode & 0o1777, true);
        inode.mkdir(name, mode, new_owner(attributes, resolver.credentials))
    })
}

/// `mknod(2)`; applies the umask to `mode`.
pub fn mknod(
    resolver: &Resolver<'_>,
    path: &[u8],
    kind: FileKind,
    mode: u16,
    number: DeviceNumber,
) -> Result<Location> {
    if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice)
        && !(kind == FileKind::CharDevice && number == DeviceNumber::NONE)
    {
        resolver.credentials.require(Capability::Mknod)?;
        device::require_allowed(kind, || Ok(number), device::MAKE)?;
    }
    make(resolver, path, kind, |inode, name, attributes| {
        let owner = new_owner(attributes, resolver.credentials);
        let mode = set_id::of_new(attributes, resolver, mode & 0o7777, false);
        match kind {
            FileKind::Regular => inode.create(name, mode, owner),
            _ => inode.mknod(name, kind, mode, number, owner),
        }
    })
}

/// `symlink(2)`.
pub fn symlink(resolver: &Resolver<'_>, target: &[u8], path: &[u8]) -> Result<Location> {
    if target.is_empty() {
        return Err(Errno::ENOENT);
    }
    make(resolver, path, FileKind::Symlink, |inode, name, attributes| {
        inode.symlink(name, target, new_owner(attributes, resolver.credentials))
    })
}

/// `link(2)`: gives the file at `old` the additional name `path`.
pub fn link(resolver: &Resolver<'_>, old: &Location, path: &[u8]) -> Result<()> {
    let target = old.inode()?;
    let parent = resolver.resolve_parent(path)?;
    let Some(name) = parent.name else { return Err(Errno::EEXIST) };
    let directory = &parent.directory;
    let inode = directory.inode()?;
    let lock = directory.dentry.lock_directory();
    let found = lookup_locked(&directory.dentry, &inode, &name)?;
    if found.inode().is_some() {
        return Err(Errno::EEXIST);
    }
    if parent.slash {
        return Err(Errno::ENOENT);
    }
    check_writable(directory)?;
    if !Arc::ptr_eq(&old.mount, &directory.mount) {
        return Err(Errno::EXDEV);
    }
    landlock::check_move(resolver.credentials, &old.dentry, directory, None, (false, false))?;
    let attributes = inode.attributes();
    check_directory(directory, &attributes, resolver.credentials)?;
    let is_directory = target.attributes().kind == FileKind::Directory;
    if is_directory {
        return Err(Errno::EPERM);
    }
    let unlinked = target.metadata()?.links == 0;
    if unlinked && !old.dentry.state().contains(DentryState::LINKABLE) {
        return Err(Errno::ENOENT);
    }
    directory.dentry.reserve(1)?;
    inode.link(&name, &target)?;
    record(&directory.dentry, found, &name, target.clone())?;
    drop(lock);
    notify::inode(&target, Mask::ATTRIB);
    notify::named(&inode, Mask::CREATE, &name, 0);
    Ok(())
}

/// Checks that `credentials` may remove or rename `victim` in a directory: the directory's
/// permissions and the sticky bit (`may_delete`, fs/namei.c).
fn check_removal(
    location: &Location,
    directory: &Attributes,
    victim: &Attributes,
    credentials: &Credentials,
) -> Result<()> {
    check_directory(location, directory, credentials)?;
    if directory.mode & S_ISVTX != 0
        && credentials.fsuid != victim.uid
        && credentials.fsuid != directory.uid
        && !credentials.has_over(victim.uid, victim.gid, Capability::Fowner)
    {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// Updates the cache after a removal: the name is free, and remaining references to the dentry see
/// the file as deleted.
fn removed(directory: &Arc<Dentry>, name: &[u8], dentry: &Arc<Dentry>) {
    dentry.remove();
    drop(directory.disown(name));
}

/// `unlink(2)`.
pub fn unlink(resolver: &Resolver<'_>, path: &[u8]) -> Result<()> {
    let parent = resolver.resolve_parent(path)?;
    let Some(name) = parent.name else { return Err(Errno::EISDIR) };
    let directory = &parent.directory;
    check_writable(directory)?;
    let inode = directory.inode()?;
    let lock = directory.dentry.lock_directory();
    let dentry = lookup_locked(&directory.dentry, &inode, &name)?;
    let victim = dentry.inode().ok_or(Errno::ENOENT)?;
    let attributes = victim.attributes();
    if parent.slash {
        let is_directory = attributes.kind == FileKind::Directory;
        return Err(if is_directory { Errno::EISDIR } else { Errno::ENOTDIR });
    }
    landlock::check(resolver.credentials, directory, Access::REMOVE_FILE)?;
    check_removal(directory, &inode.attributes(), &attributes, resolver.credentials)?;
    if attributes.kind == FileKind::Directory {
        return Err(Errno::EISDIR);
    }
    if dentry.state().contains(DentryState::MOUNTED) {
        return Err(Errno::EBUSY);
    }
    inode.unlink(&name, &victim)?;
    removed(&directory.dentry, &name, &dentry);
    drop(lock);
    notify::inode(&victim, Mask::ATTRIB);
    notify::named(&inode, Mask::DELETE, &name, 0);
    forget_content(&victim);
    Ok(())
}

/// Drops what is kept of ended programs and refers to a file that has lost a name.
fn forget_content(inode: &Arc<dyn Inode>) {
    if let Some(page_cache) = inode.page_cache() {
        page_cache.forget();
    }
}

/// `rmdir(2)`.
pub fn rmdir(resolver: &Resolver<'_>, path: &[u8]) -> Result<()> {
    let parent = resolver.resolve_parent(path)?;
    let Some(name) = parent.name else {
        return Err(match parent.ending {
            Ending::DotDot => Errno::ENOTEMPTY,
            Ending::Dot => Errno::EINVAL,
            _ => Errno::EBUSY,
        });
    };
    let directory = &parent.directory;
    check_writable(directory)?;
    let inode = directory.inode()?;
    let lock = directory.dentry.lock_directory();
    let dentry = lookup_locked(&directory.dentry, &inode, &name)?;
    let victim = dentry.inode().ok_or(Errno::ENOENT)?;
    let attributes = victim.attributes();
    landlock::check(resolver.credentials, directory, Access::REMOVE_DIR)?;
    check_removal(directory, &inode.attributes(), &attributes, resolver.credentials)?;
    if attributes.kind != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    if dentry.state().contains(DentryState::MOUNTED) {
        return Err(Errno::EBUSY);
    }
    // Nothing may be made in the directory between the check that it is empty and its removal.
    let inner = dentry.lock_directory();
    inode.rmdir(&name, &victim)?;
    removed(&directory.dentry, &name, &dentry);
    drop(inner);
    drop(lock);
    notify::named(&inode, Mask::DELETE | Mask::ISDIR, &name, 0);
    Ok(())
}

/// One side of a rename.
struct Side<'a> {
    directory: &'a Location,
    inode: Arc<dyn Inode>,
    name: Name,
    slash: bool,
}

fn side<'a>(parent: &'a Parent) -> Result<Side<'a>> {
    Ok(Side {
        inode: parent.directory.inode()?,
        directory: &parent.directory,
        name: parent.name.clone().ok_or(Errno::EBUSY)?,
        slash: parent.slash,
    })
}

/// `renameat2(2)`.
pub fn rename(
    from: &Resolver<'_>,
    old_path: &[u8],
    to: &Resolver<'_>,
    new_path: &[u8],
    flags: RenameFlags,
) -> Result<()> {
    if flags.contains(RenameFlags::EXCHANGE)
        && flags.intersects(RenameFlags::NOREPLACE | RenameFlags::WHITEOUT)
    {
        return Err(Errno::EINVAL);
    }
    let (old_parent, new_parent) = (from.resolve_parent(old_path)?, to.resolve_parent(new_path)?);
    if !Arc::ptr_eq(&old_parent.directory.mount, &new_parent.directory.mount) {
        return Err(Errno::EXDEV);
    }
    if new_parent.name.is_none() && flags.contains(RenameFlags::NOREPLACE) {
        return Err(if old_parent.name.is_none() { Errno::EBUSY } else { Errno::EEXIST });
    }
    let (old, new) = (side(&old_parent)?, side(&new_parent)?);
    check_writable(old.directory)?;
    let one = Arc::ptr_eq(&old.directory.dentry, &new.directory.dentry);
    let _rename = RENAME.lock();
    // Locks the ancestor first; unrelated directories by address.
    let (first, second) = (&old.directory.dentry, &new.directory.dentry);
    let swap = first.is_within(second)
        || !second.is_within(first) && Arc::as_ptr(first).addr() > Arc::as_ptr(second).addr();
    let (first, second) = if swap { (second, first) } else { (first, second) };
    let first_lock = first.lock_directory();
    let second_lock = (!one).then(|| second.lock_directory());
    let outcome = rename_locked(&old, &new, from.credentials, flags);
    drop(second_lock);
    drop(first_lock);
    if let Some((moved, target)) = outcome? {
        notify::renamed(&old.inode, &old.name, &new.inode, &new.name, &moved);
        let target = target.as_ref().and_then(|name| name.inode());
        if let Some(other) = target.as_ref().filter(|_| flags.contains(RenameFlags::EXCHANGE)) {
            // The other half of an exchange, as `vfs_rename` (fs/namei.c) reports it.
            notify::renamed(&new.inode, &new.name, &old.inode, &old.name, other);
        } else if let Some(replaced) = target {
            notify::inode(&replaced, Mask::ATTRIB);
            forget_content(&replaced);
        }
    }
    Ok(())
}

/// Checks the rights to take a file from `old` and to put it into `new`, and that a directory
/// replaces a directory only.
fn check_rename(
    old: &Side<'_>,
    new: &Side<'_>,
    credentials: &Credentials,
    exchange: bool,
    moved: &Attributes,
    replaced: Option<&Attributes>,
) -> Result<()> {
    let moves_directory = is_directory(moved);
    let replaces_directory = replaced.is_some_and(is_directory);
    let old_attributes = old.inode.attributes();
    let new_attributes = new.inode.attributes();
    check_removal(old.directory, &old_attributes, moved, credentials)?;
    match replaced {
        Some(attributes) => {
            check_removal(new.directory, &new_attributes, attributes, credentials)?;
            if !exchange && moves_directory && !replaces_directory {
                return Err(Errno::ENOTDIR);
            }
            if !exchange && !moves_directory && replaces_directory {
                return Err(Errno::EISDIR);
            }
        }
        None => check_directory(new.directory, &new_attributes, credentials)?,
    }
    // Moving a directory elsewhere changes its `..`.
    let elsewhere = !Arc::ptr_eq(&old.directory.dentry, &new.directory.dentry);
    if elsewhere && moves_directory {
        permitted(credentials, moved, access::WRITE)?;
    }
    if elsewhere
        && exchange
        && let Some(attributes) = replaced.filter(|attributes| is_directory(attributes))
    {
        permitted(credentials, attributes, access::WRITE)?;
    }
    Ok(())
}

fn is_directory(attributes: &Attributes) -> bool {
    attributes.kind == FileKind::Directory
}

/// The moved file, and the name that it replaced or was exchanged with.
type Renamed = Option<(Arc<dyn Inode>, Option<Arc<Dentry>>)>;

fn rename_locked(
    old: &Side<'_>,
    new: &Side<'_>,
    credentials: &Credentials,
    flags: RenameFlags,
) -> Result<Renamed> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    let source = lookup_locked(&old.directory.dentry, &old.inode, &old.name)?;
    let moved = source.inode().ok_or(Errno::ENOENT)?;
    let target = lookup_locked(&new.directory.dentry, &new.inode, &new.name)?;
    let replaced = target.inode();
    if flags.contains(RenameFlags::NOREPLACE) && replaced.is_some() {
        return Err(Errno::EEXIST);
    }
    if exchange && replaced.is_none() {
        return Err(Errno::ENOENT);
    }
    let moved_attributes = moved.attributes();
    let moves_directory = is_directory(&moved_attributes);
    let replaced_attributes = replaced.as_ref().map(|inode| inode.attributes());
    let replaces_directory = replaced_attributes.as_ref().is_some_and(is_directory);
    // A slash after a name asks for a directory.
    if !moves_directory && (old.slash || !exchange && new.slash)
        || exchange && new.slash && !replaces_directory
    {
        return Err(Errno::ENOTDIR);
    }
    // A directory cannot become its own descendant, nor replace its ancestor.
    if moves_directory && new.directory.dentry.is_within(&source) {
        return Err(Errno::EINVAL);
    }
    if replaced.is_some() && old.directory.dentry.is_within(&target) {
        return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    let how = (true, exchange);
    landlock::check_move(credentials, &source, new.directory, replaced.as_ref(), how)?;
    if let Some(replaced) = &replaced
        && Arc::ptr_eq(replaced, &moved)
    {
        // Two names of one file: POSIX requires that nothing happens.
        return Ok(None);
    }
    check_rename(old, new, credentials, exchange, &moved_attributes, replaced_attributes.as_ref())?;
    if source.state().contains(DentryState::MOUNTED)
        || target.state().contains(DentryState::MOUNTED)
    {
        return Err(Errno::EBUSY);
    }
    // Nothing may be made in a directory that is about to be replaced.
    let victim = (!exchange && replaces_directory).then(|| target.lock_directory());
    let (old_dir, new_dir) = (&old.directory.dentry, &new.directory.dentry);
    // With memory reserved, the tables of names take the renamed entries without fail.
    old_dir.reserve(2)?;
    new_dir.reserve(2)?;
    old.inode.rename(&old.name, &moved, &new.inode, &new.name, replaced.as_ref(), flags)?;
    rename_cached(old, new, &source, &target, exchange)?;
    drop(victim);
    Ok(Some((moved, (exchange || replaced.is_some()).then_some(target))))
}

/// Renames in the tables of names what the file system has renamed.
fn rename_cached(
    old: &Side<'_>,
    new: &Side<'_>,
    source: &Arc<Dentry>,
    target: &Arc<Dentry>,
    exchange: bool,
) -> Result<()> {
    let (old_dir, new_dir) = (&old.directory.dentry, &new.directory.dentry);
    drop(old_dir.disown(&old.name));
    drop(new_dir.disown(&new.name));
    let caches = new_dir.filesystem().caching() != Caching::Never;
    source.relink(Arc::clone(new_dir), Arc::clone(&new.name));
    if caches {
        new_dir.adopt(source)?;
    }
    if exchange {
        target.relink(Arc::clone(old_dir), Arc::clone(&old.name));
        if caches {
            old_dir.adopt(target)?;
        }
    } else {
        target.remove();
    }
    Ok(())
}
