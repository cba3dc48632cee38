//! What a recorded program sees of the tree of files.

use alloc::sync::Arc;
use core::cell::{Cell, RefCell};

use hayate_abi::file::AT_FDCWD;
use hayate_abi::{Errno, Result};
use hayate_path_walk::{EntryKind, Hold, Target, Tree};

use crate::hash::hash_name;
use crate::process::images::depend::{Dependency, Part};
use crate::process::images::recording::Recording;
use crate::syscall::file::View;
use crate::vfs::attributes::FileKind;
use crate::vfs::dentry::{Dentry, Name};
use crate::vfs::filesystem::Caching;
use crate::vfs::inode::Inode;
use crate::vfs::mount::Location;
use crate::vfs::path::{Resolver, WalkFlags};

/// A resolver that notes what a walk sees, before the walk looks at it.
struct Walker<'a, 'r> {
    inner: Resolver<'a>,
    recording: RefCell<&'r mut Recording>,
    /// Something is on the way that cannot be depended on, or that the command's recordings must
    /// not touch. The walk ends before it.
    foreign: Cell<bool>,
    lacking: Cell<bool>,
}

impl Walker<'_, '_> {
    /// Notes a part of a file that is about to be looked at. The error ends the walk.
    fn note(&self, inode: &Arc<dyn Inode>, part: Part) -> Result<()> {
        let mut recording = self.recording.borrow_mut();
        let on = inode.identity().map(|file| Dependency { file, part });
        let Some(on) = on.ok().filter(|on| !recording.is_volatile(*on)) else {
            return self.end();
        };
        recording.depend(on).inspect_err(|_| self.lacking.set(true))
    }

    /// Ends the walk before something that cannot be depended on.
    fn end(&self) -> Result<()> {
        self.foreign.set(true);
        Err(Errno::EACCES)
    }
}

impl Tree for Walker<'_, '_> {
    type Place = Location;
    type Directory = Arc<dyn Inode>;
    type Entry = Arc<Dentry>;
    type Name = Name;

    fn root(&self) -> Location {
        self.inner.root()
    }

    fn start(&self) -> Location {
        self.inner.start()
    }

    fn is_root(&self, place: &Location) -> bool {
        self.inner.is_root(place)
    }

    fn same(&self, one: &Location, other: &Location) -> bool {
        self.inner.same(one, other)
    }

    fn same_mount(&self, one: &Location, other: &Location) -> bool {
        self.inner.same_mount(one, other)
    }

    fn search(&self, here: &Location) -> Result<Arc<dyn Inode>> {
        if matches!(here.dentry.filesystem().caching(), Caching::Never | Caching::InUse) {
            self.end()?;
        }
        self.note(&here.inode()?, Part::Itself)?;
        self.inner.search(here)
    }

    fn lookup(
        &self,
        here: &Location,
        directory: &Arc<dyn Inode>,
        name: &[u8],
    ) -> Result<(Arc<Dentry>, EntryKind)> {
        self.note(directory, Part::Name(hash_name(name)))?;
        let found = self.inner.lookup(here, directory, name);
        if found.is_err() && here.dentry.filesystem().caching() != Caching::All {
            // A driver may add the name at any time.
            self.end()?;
        }
        found
    }

    fn step(&self, here: &mut Location, entry: Arc<Dentry>) {
        self.inner.step(here, entry);
    }

    fn covering(&self, here: &Location) -> Option<Location> {
        self.inner.covering(here)
    }

    fn hold(&self, here: &Location) -> Hold<Location> {
        let hold = self.inner.hold(here);
        if matches!(hold, Hold::Lost) {
            // It may be moved back at any time.
            self.foreign.set(true);
        }
        hold
    }

    fn follow(&self, here: &Location, entry: &Arc<Dentry>) -> Result<Target<Location>> {
        let target = self.inner.follow(here, entry);
        if matches!(target, Ok(Target::Place(_))) {
            self.end()?;
        }
        target
    }

    fn is_directory(&self, here: &Location) -> Result<bool> {
        self.inner.is_directory(here)
    }
}

/// What a look at the tree found.
#[derive(PartialEq, Eq)]
pub enum Found {
    /// A file or directory that is depended on now.
    File(FileKind),
    /// A device of random bytes.
    Random,
    /// Nothing, for a reason that is depended on.
    Nothing,
    /// Something that cannot be depended on, or that the command's recordings must not touch.
    Foreign,
}

/// Walks a path as a call is about to do, with the rights of `view`, and notes all that the walk
/// sees. Each part is noted before the walk looks at it, so one walk is enough: what changes behind
/// it, before the call sees it, spoils the recording.
///
/// A directory that the program inherited is another one at each start: what is found from there
/// is foreign.
///
/// `is_usual`: the rights are those with which the program walks mostly, so that a directory may
/// be known from an earlier walk.
///
/// Returns what was found, and where or why not: the call need not walk again.
///
/// # Errors
/// `ENOMEM`.
pub fn look(
    recording: &mut Recording,
    (view, is_usual): (&View, bool),
    (directory, path): (i32, &[u8]),
    flags: WalkFlags,
) -> Result<(Found, Result<Location>)> {
    let is_known = directory == AT_FDCWD || path.starts_with(b"/") || recording.owns(directory);
    let Some(inner) = view.resolver(directory, path).ok().filter(|_| is_known) else {
        return Ok((Found::Foreign, Err(Errno::EACCES)));
    };
    let noted = recording.dependencies.len();
    let (foreign, lacking) = (Cell::new(false), Cell::new(false));
    let mut walker = Walker { inner, recording: RefCell::new(recording), foreign, lacking };
    let place = match split(path).filter(|_| is_usual) {
        Some(parts) => walk_on(&mut walker, parts, flags),
        None => hayate_path_walk::resolve(&walker, path, flags),
    };
    let found = match &place {
        Ok(place) => last(&walker, place),
        Err(error) => Err(*error),
    };
    let Walker { recording, foreign, lacking, .. } = walker;
    if lacking.get() {
        return Err(Errno::ENOMEM);
    }
    let found = match found {
        _ if foreign.get() => Found::Foreign,
        Ok(found) => found,
        Err(error) if follows_from_tree(error) => Found::Nothing,
        Err(_) => Found::Foreign,
    };
    if found == Found::Foreign {
        // The call is not made in this recording, so nothing of its way counts.
        recording.into_inner().forget_from(noted);
    }
    Ok((found, place))
}

/// Cuts a path from the root before its last name. `None`: it has no directory but the root, or
/// ends in a slash or dots, which mean more than a name.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|&letter| letter == b'/')?;
    let (directory, name) = (path.get(..at)?, path.get(at + 1..)?);
    (directory.starts_with(b"/") && !matches!(name, b"" | b"." | b".."))
        .then_some((directory, name))
}

/// Walks to a name in a directory from where the directory was found, at an earlier walk or now.
fn walk_on(
    walker: &mut Walker<'_, '_>,
    (directory, name): (&[u8], &[u8]),
    flags: WalkFlags,
) -> Result<Location> {
    let known = walker.recording.borrow().reached(directory);
    let place = match known {
        Some(place) => place,
        None => {
            let place = hayate_path_walk::resolve(walker, directory, WalkFlags::DIRECTORY);
            let is_noted = !walker.foreign.get() && !walker.lacking.get();
            if is_noted && place.as_ref().err().is_none_or(|error| follows_from_tree(*error)) {
                walker.recording.borrow_mut().note_reached(directory, &place);
            }
            place
        }
    };
    walker.inner.start = Some(place?);
    hayate_path_walk::resolve(walker, name, flags)
}

/// Whether a walk always fails so while the tree is as it is.
fn follows_from_tree(error: Errno) -> bool {
    matches!(
        error,
        Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP | Errno::ENAMETOOLONG
    )
}

/// Notes the file at the end of a walk.
fn last(walker: &Walker<'_, '_>, place: &Location) -> Result<Found> {
    let inode = place.inode()?;
    let attributes = inode.attributes();
    let kind = attributes.kind;
    let found = match kind {
        FileKind::Regular | FileKind::Symlink => Found::File(kind),
        FileKind::Directory if place.dentry.filesystem().caching() == Caching::All => {
            Found::File(kind)
        }
        FileKind::CharDevice => {
            let device = inode.metadata()?.represents;
            match (device.major, device.minor) {
                // /dev/null and /dev/zero, which read the same whenever they are read.
                (1, 3 | 5) => Found::File(kind),
                // /dev/random and /dev/urandom
                (1, 8 | 9) => Found::Random,
                _ => Found::Foreign,
            }
        }
        _ => Found::Foreign,
    };
    let caching = place.dentry.filesystem().caching();
    let reads_alike = found == Found::Random || !matches!(caching, Caching::Never | Caching::InUse);
    if found == Found::Foreign || !reads_alike {
        return Ok(Found::Foreign);
    }
    walker.note(&inode, Part::Itself)?;
    if kind == FileKind::Directory {
        // Its times change with its entries.
        walker.note(&inode, Part::Entries)?;
    }
    Ok(if is_written(&inode) { Found::Foreign } else { found })
}

/// Whether the content of a file may be changing now.
fn is_written(inode: &Arc<dyn Inode>) -> bool {
    inode.page_cache().is_some_and(|content| content.writers() != 0 || content.is_mapped_writable())
}

/// Notes the names on the way from a place up to the root, for calls that return its path. Returns
/// false if they cannot be depended on.
pub fn note_above(recording: &mut Recording, place: Location) -> Result<bool> {
    let view = View::current()?;
    let mut here = place;
    while !view.context().is_root(&here) {
        if here.dentry.filesystem().caching() != Caching::All {
            return Ok(false);
        }
        if Arc::ptr_eq(&here.dentry, here.mount.root()) {
            let Some(above) = here.mount.attached() else { return Ok(false) };
            here = above;
            continue;
        }
        let Some(parent) = here.dentry.parent() else { return Ok(false) };
        let Some(inode) = parent.inode() else { return Ok(false) };
        let file = inode.identity()?;
        let part = Part::Name(hash_name(&here.dentry.name()));
        recording.depend(Dependency { file, part })?;
        here = Location { mount: Arc::clone(&here.mount), dentry: parent };
    }
    Ok(true)
}
