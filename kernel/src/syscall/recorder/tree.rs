//! What a recorded program sees of the tree of files.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use hayate_abi::file::AT_FDCWD;
use hayate_abi::{Errno, Result};
use hayate_path_walk::{EntryKind, Hold, Target, Tree};

use crate::hash::hash_name;
use crate::process::images::depend::{Dependency, Part};
use crate::process::images::recording::Recording;
use crate::reclaim::growth::Grow;
use crate::syscall::file::View;
use crate::vfs::attributes::FileKind;
use crate::vfs::dentry::{Dentry, Name};
use crate::vfs::filesystem::Caching;
use crate::vfs::inode::Inode;
use crate::vfs::mount::Location;
use crate::vfs::path::{Resolver, WalkFlags};

/// A resolver that notes what a walk sees.
struct Walker<'a> {
    inner: Resolver<'a>,
    seen: RefCell<Vec<Dependency>>,
    /// Something was seen that cannot be depended on.
    foreign: Cell<bool>,
    lacking: Cell<bool>,
}

impl Walker<'_> {
    fn note(&self, inode: &Arc<dyn Inode>, part: Part) {
        let Ok(metadata) = inode.metadata() else { return self.foreign.set(true) };
        let mut seen = self.seen.borrow_mut();
        if seen.make_room(1).is_err() {
            return self.lacking.set(true);
        }
        seen.push(Dependency { file: metadata.identity(), part });
    }
}

impl Tree for Walker<'_> {
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
            self.foreign.set(true);
        }
        if let Ok(inode) = here.inode() {
            self.note(&inode, Part::Itself);
        }
        self.inner.search(here)
    }

    fn lookup(
        &self,
        here: &Location,
        directory: &Arc<dyn Inode>,
        name: &[u8],
    ) -> Result<(Arc<Dentry>, EntryKind)> {
        self.note(directory, Part::Name(hash_name(name)));
        let found = self.inner.lookup(here, directory, name);
        if found.is_err() && here.dentry.filesystem().caching() != Caching::All {
            // A driver may add the name at any time.
            self.foreign.set(true);
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
        self.inner.hold(here)
    }

    fn follow(&self, here: &Location, entry: &Arc<Dentry>) -> Result<Target<Location>> {
        let target = self.inner.follow(here, entry);
        if matches!(target, Ok(Target::Place(_))) {
            self.foreign.set(true);
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

/// Walks a path as a call is about to do, and notes all that the walk sees: `None` if what is seen
/// is still changing.
///
/// The walk is repeated until it sees nothing new, since only what was noted before it was seen
/// counts.
///
/// A directory that the program inherited is another one at each start: what is found from there
/// is foreign.
pub fn look(
    recording: &mut Recording,
    view: &View,
    (directory, path): (i32, &[u8]),
    flags: WalkFlags,
) -> Result<Found> {
    /// How often a walk is repeated.
    const PATIENCE: usize = 4;
    let is_known = directory == AT_FDCWD || path.starts_with(b"/") || recording.owns(directory);
    if !is_known {
        return Ok(Found::Foreign);
    }
    for _ in 0..PATIENCE {
        let walker = Walker {
            inner: match view.resolver(directory, path) {
                Ok(resolver) => resolver,
                Err(_) => return Ok(Found::Foreign),
            },
            seen: RefCell::new(Vec::new()),
            foreign: Cell::new(false),
            lacking: Cell::new(false),
        };
        let place = hayate_path_walk::resolve(&walker, path, flags);
        let mut found = Found::Nothing;
        if let Ok(place) = &place {
            found = last(&walker, place)?;
        }
        if walker.lacking.get() {
            return Err(Errno::ENOMEM);
        }
        if walker.foreign.get() || found == Found::Foreign {
            return Ok(Found::Foreign);
        }
        let seen = walker.seen.into_inner();
        if seen.iter().any(|on| recording.entry.is_volatile(*on)) {
            return Ok(Found::Foreign);
        }
        let mut new = false;
        for on in seen {
            new |= recording.depend(on)?;
        }
        if !new {
            return Ok(if is_written(place.ok().as_ref()) { Found::Foreign } else { found });
        }
    }
    Ok(Found::Foreign)
}

/// Notes the file at the end of a walk.
fn last(walker: &Walker<'_>, place: &Location) -> Result<Found> {
    let inode = place.inode()?;
    let kind = inode.attributes().kind;
    let known = match kind {
        FileKind::Regular | FileKind::Symlink => true,
        FileKind::Directory => place.dentry.filesystem().caching() == Caching::All,
        FileKind::CharDevice => {
            let device = inode.metadata()?.represents;
            match (device.major, device.minor) {
                // /dev/null and /dev/zero, which read the same whenever they are read.
                (1, 3 | 5) => true,
                // /dev/random and /dev/urandom
                (1, 8 | 9) => {
                    walker.note(&inode, Part::Itself);
                    return Ok(Found::Random);
                }
                _ => false,
            }
        }
        _ => false,
    };
    let caching = place.dentry.filesystem().caching();
    if !known || matches!(caching, Caching::Never | Caching::InUse) {
        return Ok(Found::Foreign);
    }
    walker.note(&inode, Part::Itself);
    if kind == FileKind::Directory {
        // Its times change with its entries.
        walker.note(&inode, Part::Entries);
    }
    Ok(Found::File(kind))
}

/// Whether the content of a file may be changing now.
fn is_written(place: Option<&Location>) -> bool {
    let inode = place.and_then(|place| place.inode().ok());
    inode
        .and_then(|inode| inode.page_cache())
        .is_some_and(|content| content.writers() != 0 || content.is_mapped_writable())
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
        let file = inode.metadata()?.identity();
        let part = Part::Name(hash_name(&here.dentry.name()));
        recording.depend(Dependency { file, part })?;
        here = Location { mount: Arc::clone(&here.mount), dentry: parent };
    }
    Ok(true)
}
