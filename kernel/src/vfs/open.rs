//! `open(2)`: from a path and flags to an open file.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_landlock::Access;

use super::dentry::{Dentry, DentryState, Name};
use super::device;
use super::directory::{check_directory, check_writable, new_owner, record};
use super::file_count::Counted;
use super::inode::{Attributes, Change, DirectorySink, FileKind, Inode};
use super::landlock;
use super::mount::flags::MS_NODEV;
use super::mount::{Location, Mount};
use super::notify;
use super::open_file::flags::*;
use super::open_file::{FileOps, OpenFile, OpenRequest, Traits, Whence};
use super::path::{Resolver, Walk, WalkFlags, lookup_locked, permitted};
use super::set_id;
use super::watch::Mask;
use crate::credentials::access;

/// How often an open begins anew that the host has overtaken.
const RETRIES: usize = 3;

/// Opens the file at `path`. `mode` is for a file that is made; the umask is applied to it.
///
/// # Errors
/// `ENFILE`, before anything is looked for or made, as `path_openat` has it; those of the path and
/// of the file.
#[inline]
pub fn open(
    resolver: &Resolver<'_>,
    path: &[u8],
    flags: u32,
    mode: u16,
    walk: WalkFlags,
) -> Result<Arc<OpenFile>> {
    match open_once(resolver, path, flags, mode, walk) {
        Err(Errno::ESTALE) => open_again(resolver, path, flags, mode, walk),
        other => other,
    }
}

/// Opens the file at `path` after a name led to another file than it did a moment ago, which only
/// happens where others change the tree as well (`do_filp_open`, fs/namei.c).
#[cold]
fn open_again(
    resolver: &Resolver<'_>,
    path: &[u8],
    flags: u32,
    mode: u16,
    walk: WalkFlags,
) -> Result<Arc<OpenFile>> {
    for _ in 1..RETRIES {
        match open_once(resolver, path, flags, mode, walk) {
            Err(Errno::ESTALE) => {}
            other => return other,
        }
    }
    open_once(resolver, path, flags, mode, walk)
}

fn open_once(
    resolver: &Resolver<'_>,
    path: &[u8],
    flags: u32,
    mode: u16,
    walk: WalkFlags,
) -> Result<Arc<OpenFile>> {
    let counted = Counted::new()?;
    let mut walk_flags = walk;
    if flags & O_NOFOLLOW != 0 {
        walk_flags |= WalkFlags::NOFOLLOW;
    }
    if flags & O_PATH != 0 {
        if flags & O_DIRECTORY != 0 {
            walk_flags |= WalkFlags::DIRECTORY;
        }
        let location = resolver.resolve(path, walk_flags)?;
        let kept = flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return OpenFile::counted(Arc::new(PlaceOnly), location, kept, None, counted);
    }
    let flags = flags | O_LARGEFILE;
    if flags & O_TMPFILE == O_TMPFILE {
        return open_unnamed(resolver, path, flags, mode, walk_flags, counted);
    }
    if flags & O_CREAT != 0 {
        return open_or_create(resolver, path, flags, mode, walk_flags, counted);
    }
    if flags & O_DIRECTORY != 0 {
        walk_flags |= WalkFlags::DIRECTORY;
    }
    let location = resolver.resolve(path, walk_flags)?;
    open_location(resolver, location, flags, false, counted)
}

/// [`open`] of what a walk found, with flags that make nothing. Errors as there.
pub fn open_found(
    resolver: &Resolver<'_>,
    found: Result<Location>,
    flags: u32,
) -> Result<Arc<OpenFile>> {
    let counted = Counted::new()?;
    open_location(resolver, found?, flags | O_LARGEFILE, false, counted)
}

/// [`open_found`] of a place that the caller has been given: it needs no right to the file
/// (`dentry_open`, fs/open.c).
pub fn open_given(resolver: &Resolver<'_>, given: Location, flags: u32) -> Result<Arc<OpenFile>> {
    open_location(resolver, given, flags | O_LARGEFILE, true, Counted::new()?)
}

fn open_or_create(
    resolver: &Resolver<'_>,
    path: &[u8],
    flags: u32,
    mode: u16,
    walk_flags: WalkFlags,
    counted: Counted,
) -> Result<Arc<OpenFile>> {
    let mut walk = Walk::begin(resolver, path, walk_flags)?;
    let mut text = None;
    loop {
        let parent = walk.parent(text.as_deref().unwrap_or(path))?;
        let directory = parent.directory;
        let Some(name) = parent.name else {
            // `/`, `.` and `..` exist and are directories (`do_open`).
            return Err(if flags & O_EXCL != 0 { Errno::EEXIST } else { Errno::EISDIR });
        };
        if parent.slash {
            return Err(Errno::EISDIR);
        }
        let inode = directory.inode()?;
        let found = super::path::lookup(&directory.dentry, &inode, &name)?;
        let (dentry, created) = match found.inode() {
            Some(_) => (found, false),
            None => match create(resolver, &directory, &inode, &name, mode) {
                // Others made it since it was looked for.
                Err(Errno::EEXIST) if flags & O_EXCL == 0 => return Err(Errno::ESTALE),
                made => made?,
            },
        };
        if created {
            notify::named(&inode, Mask::CREATE, &name, 0);
            let location = Location { mount: directory.mount, dentry };
            return open_location(resolver, location, flags, true, counted);
        }
        if flags & O_EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        let mount = Arc::clone(&directory.mount);
        let place = Location { mount, dentry }.into_topmost();
        let target = place.inode()?;
        if target.attributes().kind == FileKind::Symlink && flags & O_NOFOLLOW == 0 {
            match walk.enter_link(&place, &place.dentry, b"")? {
                Some(next) => text = Some(next),
                None => return open_location(resolver, walk.into_place(), flags, false, counted),
            }
            continue;
        }
        if flags & O_DIRECTORY != 0 && target.attributes().kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        return open_location(resolver, place, flags, false, counted);
    }
}

/// Makes the file `name` unless it exists by now; returns the file and whether it was made.
fn create(
    resolver: &Resolver<'_>,
    directory: &Location,
    inode: &Arc<dyn Inode>,
    name: &Name,
    mode: u16,
) -> Result<(Arc<Dentry>, bool)> {
    let _lock = directory.dentry.lock_directory();
    let found = lookup_locked(&directory.dentry, inode, name)?;
    if found.inode().is_some() {
        return Ok((found, false));
    }
    check_writable(directory)?;
    let attributes = inode.attributes();
    landlock::check(resolver.credentials, directory, Access::MAKE_REG)?;
    check_directory(directory, &attributes, resolver.credentials)?;
    let mode = set_id::of_new(&attributes, resolver, mode & 0o7777, false);
    directory.dentry.reserve(1)?;
    let made = inode.create(name, mode, new_owner(&attributes, resolver.credentials))?;
    Ok((record(&directory.dentry, found, name, made)?, true))
}

/// `O_TMPFILE`.
fn open_unnamed(
    resolver: &Resolver<'_>,
    path: &[u8],
    flags: u32,
    mode: u16,
    walk_flags: WalkFlags,
    counted: Counted,
) -> Result<Arc<OpenFile>> {
    if flags & O_ACCMODE == O_RDONLY || flags & O_CREAT != 0 {
        return Err(Errno::EINVAL);
    }
    let directory = resolver.resolve(path, walk_flags | WalkFlags::DIRECTORY)?;
    let inode = directory.inode()?;
    check_writable(&directory)?;
    let attributes = inode.attributes();
    check_directory(&directory, &attributes, resolver.credentials)?;
    let mode = set_id::of_new(&attributes, resolver, mode & 0o7777, false);
    let made = inode.create_unnamed(mode, new_owner(&attributes, resolver.credentials))?;
    // The name that `d_mark_tmpfile` gives.
    let name = alloc::format!("#{}", made.metadata()?.number);
    let dentry = Dentry::child(&directory.dentry, Name::from(name.as_bytes()), Some(made));
    dentry.set_state(DentryState::UNLINKED);
    if flags & O_EXCL == 0 {
        dentry.set_state(DentryState::LINKABLE);
    }
    let location = Location { mount: directory.mount, dentry };
    let flags = flags & !O_TMPFILE;
    open_location(resolver, location, flags, true, counted)
}

/// Whether a device is not opened through a mount: that says so, or users mounted its file system,
/// in which numbers mean nothing.
fn has_no_devices(mount: &Mount, inode: &Arc<dyn Inode>) -> bool {
    mount.flags() & MS_NODEV != 0 || !mount.user().is_first() && !inode.opens_itself()
}

/// Opens the file at a place. `created`: the file was just made, so its permissions do not matter.
pub fn open_location(
    resolver: &Resolver<'_>,
    location: Location,
    flags: u32,
    created: bool,
    counted: Counted,
) -> Result<Arc<OpenFile>> {
    let inode = location.inode()?;
    let attributes = inode.attributes();
    open_known(resolver, location, (inode, attributes), flags, created, counted)
}

/// [`open_location`] for a caller that has just asked for the file there and its attributes.
#[inline(always)]
pub fn open_known(
    resolver: &Resolver<'_>,
    location: Location,
    (inode, attributes): (Arc<dyn Inode>, Attributes),
    flags: u32,
    created: bool,
    counted: Counted,
) -> Result<Arc<OpenFile>> {
    // Access mode 3 asks for both permissions and gives neither (`open(2)`, NOTES).
    let writes = flags & O_ACCMODE != O_RDONLY;
    let truncates = flags & O_TRUNC != 0 && !created;
    match attributes.kind {
        FileKind::Symlink => return Err(Errno::ELOOP),
        FileKind::Directory if writes || flags & O_CREAT != 0 => return Err(Errno::EISDIR),
        FileKind::CharDevice | FileKind::BlockDevice if has_no_devices(&location.mount, &inode) => {
            return Err(Errno::EACCES);
        }
        _ => {}
    }
    if !created {
        let mut wanted = 0;
        if flags & O_ACCMODE != O_WRONLY {
            wanted |= access::READ;
        }
        if writes || truncates {
            wanted |= access::WRITE;
        }
        if wanted & access::WRITE != 0
            && matches!(attributes.kind, FileKind::Regular | FileKind::Directory)
        {
            check_writable(&location)?;
        }
        permitted(resolver.credentials, &attributes, wanted)?;
        if matches!(attributes.kind, FileKind::CharDevice | FileKind::BlockDevice) {
            let number = || Ok(inode.metadata()?.represents);
            device::require_allowed(attributes.kind, number, wanted)?;
        }
        if flags & O_NOATIME != 0 && !resolver.credentials.owns(attributes.uid) {
            return Err(Errno::EPERM);
        }
    }
    landlock::check_open(resolver.credentials, &location, attributes.kind, flags)?;
    let access = match (attributes.kind, inode.page_cache()) {
        (FileKind::Regular, Some(page_cache)) if writes => Some(page_cache.open_for_writing()?),
        (FileKind::Regular, Some(page_cache)) => Some(page_cache.open_for_reading()),
        _ => None,
    };
    if writes && access.is_some() {
        notify::opened_to_write(&location);
    }
    super::lease::break_for(&inode, flags)?;
    let ops = operations(&inode, &attributes, resolver, &location, flags)?;
    if truncates && attributes.kind == FileKind::Regular {
        if set_id::are_there(&inode) {
            set_id::drop_for_write(&inode, resolver.credentials)?;
        }
        inode.set_metadata(&Change { size: Some(0), ..Change::default() })?;
        notify::place(&location, Mask::MODIFY);
    }
    let file = OpenFile::of(inode, ops, location, flags, access, counted);
    notify::file(&file, Mask::OPEN);
    Ok(file)
}

/// Returns the operations of an open file, by the kind of the file.
fn operations(
    inode: &Arc<dyn Inode>,
    attributes: &Attributes,
    resolver: &Resolver<'_>,
    location: &Location,
    flags: u32,
) -> Result<Arc<dyn FileOps>> {
    let request = OpenRequest { flags, credentials: resolver.credentials, location };
    match attributes.kind {
        FileKind::Directory => match Arc::clone(inode).open_directory()? {
            Some(opened) => Ok(opened),
            None => Ok(Arc::new(Directory)),
        },
        FileKind::Regular => Arc::clone(inode).open(&request),
        _ if inode.opens_itself() => Arc::clone(inode).open(&request),
        FileKind::CharDevice | FileKind::BlockDevice => {
            let number = inode.metadata()?.represents;
            device::find(attributes.kind, number)?.open(number, &request)
        }
        FileKind::Fifo => device::open_fifo(inode, &request),
        FileKind::Socket | FileKind::Anonymous => Err(Errno::ENXIO),
        FileKind::Symlink => Err(Errno::ELOOP),
    }
}

/// Opens a place as `O_PATH` does; `flags` has that flag.
pub fn place_only(location: Location, flags: u32) -> Result<Arc<OpenFile>> {
    OpenFile::new(Arc::new(PlaceOnly), location, flags)
}

/// The operations of a file opened with `O_PATH`: none. The calls that may use such a file do not
/// need operations; all others refuse it before.
struct PlaceOnly;

impl FileOps for PlaceOnly {
    fn traits(&self) -> Traits {
        Traits::empty()
    }
}

/// The operations of an open directory.
pub struct Directory;

impl FileOps for Directory {
    fn traits(&self) -> Traits {
        Traits::POSITIONED.union(Traits::ADDRESSABLE)
    }

    fn read(&self, _: &OpenFile, _: u64, _: &mut super::transfer::Output<'_>) -> Result<usize> {
        Err(Errno::EISDIR)
    }

    fn seek(&self, _: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        let base = match whence {
            Whence::Set => 0,
            Whence::Current => position as i64,
            Whence::End => i64::MAX,
            Whence::Data | Whence::Hole => return Err(Errno::EINVAL),
        };
        let new = base.checked_add(offset).ok_or(Errno::EINVAL)?;
        u64::try_from(new).map_err(|_| Errno::EINVAL)
    }
}

/// Enumerates an open directory from its position on, beginning with `.` and `..`
/// (`getdents64(2)`).
pub fn read_directory(file: &OpenFile, sink: &mut dyn DirectorySink) -> Result<()> {
    let inode = file.inode();
    if inode.attributes().kind != FileKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    let mut position = file.lock_position();
    if file.location().dentry.state().contains(DentryState::UNLINKED) {
        return Err(Errno::ENOENT);
    }
    if *position == 0 {
        if !sink.entry(inode.metadata()?.number, FileKind::Directory, b".", 1) {
            return Ok(());
        }
        *position = 1;
    }
    if *position == 1 {
        let up = file.location().clone().into_mount_point();
        let parent = up.dentry.parent().and_then(|parent| parent.inode());
        let number = parent.as_ref().unwrap_or(inode).metadata()?.number;
        if !sink.entry(number, FileKind::Directory, b"..", 2) {
            return Ok(());
        }
        *position = 2;
    }
    let outcome = file.ops().read_dir(file, &mut position, sink);
    let mount = &file.location().mount;
    if file.flags() & O_NOATIME == 0 && mount.notes_access(true) {
        inode.note_access(mount.notes_every_access());
    }
    outcome
}
