//! Resolves a path's text to a place in a tree of files (path_resolution(7), openat2(2)).
//!
//! The walk handles names, slashes, dots, links and boundaries; the [`Tree`] defines directories,
//! mounts and permissions. So the kernel walks its dentries with the same code with which tests on
//! a host walk made-up trees, compared with a second, naive implementation of the manual page.
//!
//! A walk holds one place at a time and steps name by name. A symbolic link replaces the remaining
//! text by its content followed by the rest. So the walk is a loop over texts, needs no recursion,
//! ends after [`LINKS_MAX`] links, and allocates only when it meets a link.
//!
//! Road not taken: parsing a path into a list of names first, which allocates for each path.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

/// The longest path, in bytes with the terminating zero (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;
/// The longest name of an entry, in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// The most symbolic links that one walk follows (`MAXSYMLINKS`).
pub const LINKS_MAX: u32 = 40;

bitflags::bitflags! {
    /// How to walk. The first five are those of `openat2(2)`'s `resolve`, with the same numbers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WalkFlags: u32 {
        /// `RESOLVE_NO_XDEV`: do not cross mounts.
        const NO_XDEV = 1;
        /// `RESOLVE_NO_MAGICLINKS`: do not follow procfs's links to objects.
        const NO_MAGIC_LINKS = 2;
        /// `RESOLVE_NO_SYMLINKS`: do not follow any link.
        const NO_SYMLINKS = 4;
        /// `RESOLVE_BENEATH`: stay below the start.
        const BENEATH = 8;
        /// `RESOLVE_IN_ROOT`: the start is the root.
        const IN_ROOT = 16;
        /// Do not follow a link that is the last component.
        const NOFOLLOW = 0x100;
        /// The last component must be a directory.
        const DIRECTORY = 0x200;
        /// An empty path means the start (`AT_EMPTY_PATH`).
        const EMPTY = 0x400;
    }
}

/// The kind of an entry, as far as a walk needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

/// Where a symbolic link leads.
pub enum Target<P> {
    /// To the target of this path.
    Text(Vec<u8>),
    /// Directly to a place: the links of `/proc/PID/fd`.
    Place(P),
}

/// The parent of a place.
pub enum Hold<P> {
    /// A directory of the same mount; mounts on top of it are not considered.
    Directory(P),
    /// None in this mount: the place is the root of a mount, which is mounted on this place.
    Mount(P),
    /// None: the place is the root of a detached mount, or of a tree of its own.
    Nothing,
    /// None that may be reached: the directory was moved out of the part of a file system that the
    /// mount shows (`path_connected`, fs/namei.c of Linux).
    Lost,
}

/// The tree that is walked, as one user sees it.
///
/// A place is an entry and the way it was reached: with mounts, the same entry may be several
/// places.
pub trait Tree {
    /// A place.
    type Place: Clone;
    /// A directory that may be searched.
    type Directory;
    /// An entry that was found, but that the walk has not stepped onto yet.
    type Entry;
    /// A copy of a name for the caller.
    type Name: for<'a> From<&'a [u8]>;

    /// Returns where absolute paths start.
    fn root(&self) -> Self::Place;
    /// Returns where relative paths start.
    fn start(&self) -> Self::Place;
    /// Whether `..` stays here because this is the root.
    fn is_root(&self, place: &Self::Place) -> bool;
    /// Whether two are the same place.
    fn same(&self, one: &Self::Place, other: &Self::Place) -> bool;
    /// Whether two lie in the same mount.
    fn same_mount(&self, one: &Self::Place, other: &Self::Place) -> bool;
    /// Returns the directory at a place, to be searched. ENOTDIR, EACCES, ENOENT.
    fn search(&self, here: &Self::Place) -> Result<Self::Directory>;
    /// Returns the entry `name`, at most [`NAME_MAX`] bytes, neither `.` nor `..`. ENOENT; EIO and
    /// other errors of the file system.
    fn lookup(
        &self,
        here: &Self::Place,
        directory: &Self::Directory,
        name: &[u8],
    ) -> Result<(Self::Entry, EntryKind)>;
    /// Steps onto an entry of the directory at `here`, not onto mounts on it.
    fn step(&self, here: &mut Self::Place, entry: Self::Entry);
    /// Returns the root of the topmost mount on this place; `None` if there is none.
    fn covering(&self, here: &Self::Place) -> Option<Self::Place>;
    /// Returns the parent of this place.
    fn hold(&self, here: &Self::Place) -> Hold<Self::Place>;
    /// Returns the target of the link `entry`, which lies in the mount of `here`. ELOOP if the
    /// mount forbids links (`MS_NOSYMFOLLOW`), EACCES, and errors of the file system.
    fn follow(&self, here: &Self::Place, entry: &Self::Entry) -> Result<Target<Self::Place>>;
    /// Whether this place is a directory. ENOENT if it does not exist any more.
    fn is_directory(&self, here: &Self::Place) -> Result<bool>;
}

/// The directory in which the last name of a path must be found or created.
pub struct Parent<T: Tree + ?Sized> {
    /// The directory.
    pub directory: T::Place,
    /// The name, of any length; `None` when the path ends in the root `/`, `.` or `..`: see
    /// `ending`.
    pub name: Option<T::Name>,
    /// How the path ended when there is no name.
    pub ending: Ending,
    /// Whether slashes followed: then the entry must be (or become) a directory.
    pub slash: bool,
}

/// How a path without a last name ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// An ordinary name.
    Name,
    /// `/` itself.
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
}

impl Ending {
    /// The ending of a path whose last name is `name`.
    #[inline(always)]
    fn of(name: &[u8]) -> Self {
        match name {
            b"." => Ending::Dot,
            b".." => Ending::DotDot,
            _ => Ending::Name,
        }
    }
}

/// A walk in progress: its place, and how many links it has followed.
pub struct Walk<'a, T: Tree> {
    tree: &'a T,
    flags: WalkFlags,
    here: T::Place,
    /// The boundary for `BENEATH` and `IN_ROOT`.
    fence: Option<T::Place>,
    links: u32,
}

/// How far a text was walked.
enum Step<T: Tree> {
    /// To its end; the walk is there.
    Arrived,
    /// To the parent of its last name.
    Last(Parent<T>),
    /// To a link: continue with this text.
    Link(Vec<u8>),
}

/// Splits a text that begins with a name: returns the name, the rest, and whether the rest consists
/// of slashes only.
#[inline(always)]
fn first_name(text: &[u8]) -> Option<(&[u8], &[u8], bool)> {
    let start = text.iter().position(|&byte| byte != b'/')?;
    let rest = text.get(start..)?;
    let length = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (name, after) = rest.split_at(length);
    Some((name, after, after.iter().all(|&byte| byte == b'/')))
}

/// Returns the existing place that `path` leads to. ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG,
/// EXDEV (openat2(2)), ENOMEM, and errors of the tree.
#[inline]
pub fn resolve<T: Tree>(tree: &T, path: &[u8], flags: WalkFlags) -> Result<T::Place> {
    if path.is_empty() && flags.contains(WalkFlags::EMPTY) {
        return Ok(tree.start());
    }
    let mut walk = Walk::begin(tree, path, flags)?;
    walk.finish(path)?;
    Ok(walk.here)
}

impl<'a, T: Tree> Walk<'a, T> {
    /// Starts a walk at the place where `path` begins. ENOENT if the path is empty, EXDEV if it is
    /// absolute and must stay beneath the start.
    #[inline]
    pub fn begin(tree: &'a T, path: &[u8], flags: WalkFlags) -> Result<Walk<'a, T>> {
        let fenced = flags.intersects(WalkFlags::BENEATH | WalkFlags::IN_ROOT);
        let absolute = path.first() == Some(&b'/');
        if absolute && flags.contains(WalkFlags::BENEATH) {
            return Err(Errno::EXDEV);
        }
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let here = if absolute && !fenced { tree.root() } else { tree.start() };
        let fence = fenced.then(|| here.clone());
        Ok(Walk { tree, flags, here, fence, links: 0 })
    }

    /// Returns the walk's place.
    pub fn into_place(self) -> T::Place {
        self.here
    }

    /// Walks all of `path`.
    pub fn finish(&mut self, path: &[u8]) -> Result<()> {
        let mut step = self.run(path, false)?;
        while let Step::Link(text) = step {
            step = self.run(&text, false)?;
        }
        Ok(())
    }

    /// Walks to the directory of the last name of `path`.
    pub fn parent(&mut self, path: &[u8]) -> Result<Parent<T>> {
        let mut step = self.run(path, true)?;
        loop {
            match step {
                Step::Link(text) => step = self.run(&text, true)?,
                Step::Last(parent) => return Ok(parent),
                Step::Arrived => return Err(Errno::ENOENT),
            }
        }
    }

    /// Goes through the link `entry` of the mount of `place`, with the walk at its directory.
    /// Returns the text to continue with, followed by `rest`, or `None` when the link led directly
    /// to a place.
    pub fn enter_link(
        &mut self,
        place: &T::Place,
        entry: &T::Entry,
        rest: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.links += 1;
        if self.links > LINKS_MAX || self.flags.contains(WalkFlags::NO_SYMLINKS) {
            return Err(Errno::ELOOP);
        }
        let no_crossing = self.flags.contains(WalkFlags::NO_XDEV);
        let mut text = match self.tree.follow(place, entry)? {
            Target::Text(text) => text,
            Target::Place(target) => {
                if self.flags.contains(WalkFlags::NO_MAGIC_LINKS) {
                    return Err(Errno::ELOOP);
                }
                if self.fence.is_some() || no_crossing && !self.tree.same_mount(&target, place) {
                    return Err(Errno::EXDEV);
                }
                self.here = target;
                return Ok(None);
            }
        };
        if text.is_empty() {
            return Err(Errno::ENOENT);
        }
        if text.first() == Some(&b'/') {
            if self.flags.contains(WalkFlags::BENEATH) {
                return Err(Errno::EXDEV);
            }
            let root = match &self.fence {
                Some(fence) => fence.clone(),
                None => self.tree.root(),
            };
            if no_crossing && !self.tree.same_mount(&root, place) {
                return Err(Errno::EXDEV);
            }
            self.here = root;
        }
        text.try_reserve(rest.len()).map_err(|_| Errno::ENOMEM)?;
        text.extend_from_slice(rest);
        Ok(Some(text))
    }

    /// Handles `..`, as `follow_dotdot` and `choose_mountpoint` of Linux 6.1's fs/namei.c do.
    fn step_up(&mut self) -> Result<()> {
        let tree = self.tree;
        let mut up = self.here.clone();
        let mut crossed = false;
        loop {
            let stop = match &self.fence {
                Some(fence) => tree.same(&up, fence),
                None => tree.is_root(&up),
            };
            if stop {
                return self.step_nowhere();
            }
            match tree.hold(&up) {
                Hold::Directory(parent) => {
                    if crossed && self.flags.contains(WalkFlags::NO_XDEV) {
                        return Err(Errno::EXDEV);
                    }
                    self.here = parent;
                    return self.step_onto_mounts().map(|_| ());
                }
                Hold::Mount(at) => up = at,
                Hold::Nothing => return self.step_nowhere(),
                Hold::Lost => return Err(Errno::ENOENT),
            }
            crossed = true;
        }
    }

    /// Handles `..` at the root: the same place, or the root of a mount that was mounted on it
    /// meanwhile.
    fn step_nowhere(&mut self) -> Result<()> {
        if self.flags.contains(WalkFlags::BENEATH) {
            return Err(Errno::EXDEV);
        }
        self.step_onto_mounts().map(|_| ())
    }

    /// Steps from this place to the root of the topmost mount on it, if any; returns whether there
    /// was one.
    #[inline(always)]
    fn step_onto_mounts(&mut self) -> Result<bool> {
        let Some(root) = self.tree.covering(&self.here) else { return Ok(false) };
        if self.flags.contains(WalkFlags::NO_XDEV) {
            return Err(Errno::EXDEV);
        }
        self.here = root;
        Ok(true)
    }

    /// Walks a text to its end, to its last name's parent, or to a link.
    #[inline(always)]
    fn run(&mut self, text: &[u8], want_parent: bool) -> Result<Step<T>> {
        let tree = self.tree;
        let mut rest = text;
        let mut ending = Ending::Root;
        while let Some((name, after, last)) = first_name(rest) {
            let slash = last && !after.is_empty();
            rest = after;
            let directory = tree.search(&self.here)?;
            ending = Ending::of(name);
            if last && want_parent {
                // The length is checked at the look-up, after other errors.
                let name = (ending == Ending::Name).then(|| T::Name::from(name));
                if ending == Ending::DotDot {
                    self.step_up()?;
                }
                let directory = self.here.clone();
                return Ok(Step::Last(Parent { directory, name, ending, slash }));
            }
            match ending {
                Ending::Dot => continue,
                Ending::DotDot => {
                    self.step_up()?;
                    continue;
                }
                _ => {}
            }
            if name.len() > NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let (entry, kind) = tree.lookup(&self.here, &directory, name)?;
            let to_directory = slash || self.flags.contains(WalkFlags::DIRECTORY);
            if kind == EntryKind::Link {
                if !last || slash || !self.flags.contains(WalkFlags::NOFOLLOW) {
                    let place = self.here.clone();
                    if let Some(text) = self.enter_link(&place, &entry, after)? {
                        return Ok(Step::Link(text));
                    }
                    if last && to_directory && !tree.is_directory(&self.here)? {
                        return Err(Errno::ENOTDIR);
                    }
                    continue;
                }
                if self.flags.contains(WalkFlags::DIRECTORY) {
                    return Err(Errno::ENOTDIR);
                }
            }
            tree.step(&mut self.here, entry);
            let mounted = self.step_onto_mounts()?;
            if !mounted && last && kind != EntryKind::Directory && to_directory {
                return Err(Errno::ENOTDIR);
            }
        }
        if want_parent {
            let directory = self.here.clone();
            return Ok(Step::Last(Parent { directory, name: None, ending, slash: true }));
        }
        Ok(Step::Arrived)
    }
}
