//! What the restrictions of a thread say about places (`landlock(7)`, security/landlock/fs.c of
//! Linux 6.1).
//!
//! A thread without restrictions pays one test at each check. For another, the rules are asked
//! about the file and each directory above, through mounts, up to the real root: the file's number
//! is asked of its file system each time, because only that names it for certain. No lock is held
//! over the walk but the caller's; a directory that is moved meanwhile counts as it was met.
//!
//! Files without a place in the tree (pipes, sockets, memory files) are not restricted.
//!
//! Road not taken: releasing the files of rules when their file system is unmounted, as Linux does.
//! It stays until the last thread with such a rule has ended.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_landlock::{Access, Child, Failure, Key, Move, Refused};

use super::dentry::{Dentry, DentryState};
use super::inode::{FileKind, Inode};
use super::mount::Location;
use super::open_file::flags::{O_ACCMODE, O_RDONLY, O_RDWR, O_WRONLY};
use crate::confinement::{Confinement, Pin, Rules};
use crate::credentials::Credentials;

/// The file of a rule.
struct Pinned {
    _inode: Arc<dyn Inode>,
}

impl Pin for Pinned {}

/// Allows rights at and below a place.
///
/// # Errors
/// `EINVAL`: the file is no directory, and one of the rights makes sense for directories alone;
/// `EBADFD`: it has no place in the tree; `ENOMEM`.
pub fn allow(rules: &mut Rules, place: &Location, allowed: Access) -> Result<()> {
    if place.dentry.state().contains(DentryState::ANONYMOUS) {
        return Err(Errno::EBADFD);
    }
    let inode = place.inode()?;
    let is_directory = inode.attributes().kind == FileKind::Directory;
    if !is_directory && !Access::OF_FILES.contains(allowed) {
        return Err(Errno::EINVAL);
    }
    let key = inode.identity()?;
    let pin = Arc::new(Pinned { _inode: inode });
    rules.allow(key, pin, allowed).map_err(errno)
}

/// The error of something that cannot be made: `E2BIG` or `ENOMEM`.
pub fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::TooManyLayers => Errno::E2BIG,
        Failure::Memory => Errno::ENOMEM,
    }
}

/// Checks that rights are allowed at a place: `EACCES`.
#[inline]
pub fn check(credentials: &Credentials, place: &Location, wanted: Access) -> Result<()> {
    match &credentials.confinement {
        None => Ok(()),
        Some(confinement) => check_confined(confinement, place, wanted),
    }
}

#[cold]
fn check_confined(confinement: &Confinement, place: &Location, wanted: Access) -> Result<()> {
    let is_free = place.dentry.state().contains(DentryState::ANONYMOUS);
    let may = is_free || confinement.allows(wanted, Way::from(place));
    if may { Ok(()) } else { Err(Errno::EACCES) }
}

/// Checks that a place may be opened with these flags (`hook_file_open`): `EACCES`. Access mode 3
/// neither reads nor writes.
#[inline]
pub fn check_open(
    credentials: &Credentials,
    place: &Location,
    kind: FileKind,
    flags: u32,
) -> Result<()> {
    if credentials.confinement.is_none() {
        return Ok(());
    }
    let mode = flags & O_ACCMODE;
    let reads = matches!(mode, O_RDONLY | O_RDWR);
    let wanted = match (kind, reads) {
        (FileKind::Directory, true) => Access::READ_DIR,
        (_, true) => Access::READ_FILE,
        (_, false) => Access::NONE,
    };
    let writes = matches!(mode, O_WRONLY | O_RDWR);
    let wanted = if writes { wanted.with(Access::WRITE_FILE) } else { wanted };
    check(credentials, place, wanted)
}

/// The right to make a file of a kind (`get_mode_access`).
pub fn right_to_make(kind: FileKind) -> Access {
    match kind {
        FileKind::Symlink => Access::MAKE_SYM,
        FileKind::Directory => Access::MAKE_DIR,
        FileKind::CharDevice => Access::MAKE_CHAR,
        FileKind::BlockDevice => Access::MAKE_BLOCK,
        FileKind::Fifo => Access::MAKE_FIFO,
        FileKind::Socket => Access::MAKE_SOCK,
        FileKind::Regular | FileKind::Anonymous => Access::MAKE_REG,
    }
}

/// The right to remove a file of a kind (`maybe_remove`).
pub fn right_to_remove(kind: FileKind) -> Access {
    if kind == FileKind::Directory { Access::REMOVE_DIR } else { Access::REMOVE_FILE }
}

/// Checks that the tree of mounts may be changed (`hook_sb_mount` and its kin): a confined thread
/// may not, whatever its rules say, because they are about files and not about paths. `EPERM`.
pub fn check_mounts(credentials: &Credentials) -> Result<()> {
    if credentials.confinement.is_some() { Err(Errno::EPERM) } else { Ok(()) }
}

/// Checks that a file may get a name in the directory `to` (`current_check_refer_path`).
///
/// * `file` - the file, by the name that it has.
/// * `replaced` - the file that has the new name now.
/// * `is_rename` - the old name goes, and with it what is replaced.
/// * `exchanges` - `replaced` gets the old name.
///
/// # Errors
/// `EACCES`: a right is missing; `EXDEV`: only the move to another directory is not allowed.
#[inline]
pub fn check_move(
    credentials: &Credentials,
    file: &Dentry,
    to: &Location,
    replaced: Option<&Arc<dyn Inode>>,
    (is_rename, exchanges): (bool, bool),
) -> Result<()> {
    match &credentials.confinement {
        None => Ok(()),
        Some(confinement) => {
            check_confined_move(confinement, file, to, replaced, (is_rename, exchanges))
        }
    }
}

#[cold]
fn check_confined_move(
    confinement: &Confinement,
    file: &Dentry,
    to: &Location,
    replaced: Option<&Arc<dyn Inode>>,
    (is_rename, exchanges): (bool, bool),
) -> Result<()> {
    let inode = file.inode().ok_or(Errno::ENOENT)?;
    // A file that was opened by its handle has none.
    let directory = file.parent();
    let kind = inode.attributes().kind;
    let other = replaced.map(|inode| inode.attributes().kind);
    let mut wanted_from = match other.filter(|_| exchanges) {
        Some(kind) => right_to_make(kind),
        None => Access::NONE,
    };
    let mut wanted_to = right_to_make(kind);
    if is_rename {
        wanted_from = wanted_from.with(right_to_remove(kind));
        wanted_to = wanted_to.with(other.map_or(Access::NONE, right_to_remove));
    }
    if directory.as_ref().is_some_and(|directory| Arc::ptr_eq(directory, &to.dentry)) {
        return check_confined(confinement, to, wanted_from.with(wanted_to));
    }
    let child = |inode: &Arc<dyn Inode>, kind| {
        let key = inode.identity()?;
        Ok::<_, Errno>(Child { key, is_directory: kind == FileKind::Directory })
    };
    let exchanged = match (replaced, other) {
        (Some(inode), Some(kind)) if exchanges => Some(child(inode, kind)?),
        _ => None,
    };
    let root = to.mount.root();
    let asked = Move {
        from: Below { here: directory, root },
        to: Below { here: Some(Arc::clone(&to.dentry)), root },
        above: Way::from(&to.mount.root_location()),
        wanted_from,
        wanted_to,
        child: child(&inode, kind)?,
        exchanged,
    };
    confinement.may_move(asked).map_err(|refused| match refused {
        Refused::Denied => Errno::EACCES,
        Refused::OtherDevice => Errno::EXDEV,
    })
}

/// The number of a file for the rules. A file that cannot tell has no rule.
fn key(dentry: &Dentry) -> Key {
    const NONE: Key = (u64::MAX, u64::MAX);
    dentry.inode().and_then(|inode| inode.identity().ok()).unwrap_or(NONE)
}

/// The keys of a place and of all directories above, up to the real root. Mount points below other
/// mounts do not count.
struct Way(Option<Location>);

impl Way {
    fn from(place: &Location) -> Way {
        Way(Some(place.clone()))
    }
}

impl Iterator for Way {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        let here = self.0.take()?;
        let key = key(&here.dentry);
        let mut up = here.into_mount_point();
        if !up.is_mount_root()
            && let Some(parent) = up.dentry.parent()
        {
            up.dentry = parent;
            self.0 = Some(up);
        }
        Some(key)
    }
}

/// The keys of a directory and of those above, up to the root of a mount.
struct Below<'a> {
    here: Option<Arc<Dentry>>,
    root: &'a Arc<Dentry>,
}

impl Iterator for Below<'_> {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        let here = self.here.take()?;
        if !Arc::ptr_eq(&here, self.root) {
            self.here = here.parent();
        }
        Some(key(&here))
    }
}
