//! From the text of a path to a place in a tree of files (path_resolution(7), openat2(2)).
//!
//! The walk knows names, slashes, dots, links and fences; what a directory, a mount or a
//! permission is, the [`Tree`] knows. So the kernel walks its dentries with the code that tests
//! on a host walk made-up trees with, against a second, naive reading of the manual page.
//!
//! A walk holds one place at a time and steps name by name. A symbolic link replaces the rest of
//! the text: what it holds, and what was still to go. So the walk is a loop over texts, needs no
//! recursion, ends after [`LINKS_MAX`] links, and allocates only when it meets one.
//!
//! The road not taken: parsing a path into a list of names first, which allocates for each path.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

/// The longest path, in bytes with the terminating zero (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;
/// The longest name of an entry, in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;
/// How many symbolic links one walk follows (`MAXSYMLINKS`).
pub const LINKS_MAX: u32 = 40;

bitflags::bitflags! {
    /// How to walk. The lower ones are those of `openat2(2)`'s `resolve`, same numbers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WalkFlags: u32 {
        /// `RESOLVE_NO_XDEV`: do not cross mounts.
        const NO_XDEV = 1;
        /// `RESOLVE_NO_MAGICLINKS`: do not follow procfs's links to things.
        const NO_MAGIC_LINKS = 2;
        /// `RESOLVE_NO_SYMLINKS`: do not follow any link.
        const NO_SYMLINKS = 4;
        /// `RESOLVE_BENEATH`: stay below the start.
        const BENEATH = 8;
        /// `RESOLVE_IN_ROOT`: the start is the root.
        const IN_ROOT = 16;
        /// Do not follow a link in the last place.
        const NOFOLLOW = 0x100;
        /// The last place must be a directory.
        const DIRECTORY = 0x200;
        /// An empty path means the start (`AT_EMPTY_PATH`).
        const EMPTY = 0x400;
    }
}

/// What kind of file an entry is, as far as a walk asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

/// Where a symbolic link leads.
pub enum Target<P> {
    /// To what this path names.
    Text(Vec<u8>),
    /// Straight to a place: the links of `/proc/PID/fd`.
    Place(P),
}

/// What holds a place.
pub enum Hold<P> {
    /// A directory of the same mount, below whatever is mounted on it.
    Directory(P),
    /// It is the root of a mount, which hangs there.
    Mount(P),
    /// It is the root of a mount that hangs nowhere, or of a tree of its own.
    Nothing,
}

/// The tree that is walked, as one user sees it.
///
/// A place is an entry as reached: with mounts, the same entry may be several places.
pub trait Tree {
    /// A place.
    type Place: Clone;
    /// A directory that may be searched.
    type Directory;
    /// An entry that was found and not yet stepped onto.
    type Entry;
    /// A name kept for the caller.
    type Name: for<'a> From<&'a [u8]>;

    /// Where absolute paths start.
    fn root(&self) -> Self::Place;
    /// Where relative paths start.
    fn start(&self) -> Self::Place;
    /// Whether `..` leads nowhere from here because it is the root.
    fn is_root(&self, place: &Self::Place) -> bool;
    /// Whether two are the same place.
    fn same(&self, one: &Self::Place, other: &Self::Place) -> bool;
    /// Whether two lie in the same mount.
    fn same_mount(&self, one: &Self::Place, other: &Self::Place) -> bool;
    /// The directory at a place, to be searched. ENOTDIR, EACCES, ENOENT.
    fn search(&self, here: &Self::Place) -> Result<Self::Directory>;
    /// The entry `name`, at most [`NAME_MAX`] bytes, neither `.` nor `..`. ENOENT; EIO and others
    /// of the file system's.
    fn lookup(
        &self,
        here: &Self::Place,
        directory: &Self::Directory,
        name: &[u8],
    ) -> Result<(Self::Entry, Kind)>;
    /// Steps onto an entry of the directory at `here`, below whatever is mounted on it.
    fn step(&self, here: &mut Self::Place, entry: Self::Entry);
    /// The root of what is mounted here, the topmost of all layers; `None` if nothing is.
    fn covering(&self, here: &Self::Place) -> Option<Self::Place>;
    /// What holds this place.
    fn hold(&self, here: &Self::Place) -> Hold<Self::Place>;
    /// Where the link `entry` leads, which lies in the mount of `here`. ELOOP if the mount forbids
    /// links (`MS_NOSYMFOLLOW`), EACCES, and the file system's.
    fn follow(&self, here: &Self::Place, entry: &Self::Entry) -> Result<Target<Self::Place>>;
    /// Whether a directory is here. ENOENT if nothing is.
    fn is_directory(&self, here: &Self::Place) -> Result<bool>;
}

/// Where the last name of a path is to be found or made.
pub struct Parent<T: Tree + ?Sized> {
    /// The directory.
    pub directory: T::Place,
    /// The name, of any length; `None` when the path ends in `/`'s root, `.` or `..`: see `ending`.
    pub name: Option<T::Name>,
    /// What the path ended in when there is no name.
    pub ending: Ending,
    /// Whether slashes followed: then it must be (or become) a directory.
    pub slash: bool,
}

/// What a path without a last name ended in.
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

/// One walk under way: where it is and how many links it has followed.
pub struct Walk<'a, T: Tree> {
    tree: &'a T,
    flags: WalkFlags,
    here: T::Place,
    /// The limit for `BENEATH` and `IN_ROOT`.
    fence: Option<T::Place>,
    links: u32,
}

/// How far a text led.
enum Step<T: Tree> {
    /// To its end; the walk stands there.
    Arrived,
    /// To the parent of its last name.
    Last(Parent<T>),
    /// To a link: go on with this text.
    Link(Vec<u8>),
}

/// A text that begins with a name: that name, what follows it, and whether nothing but slashes does.
#[inline(always)]
fn first_name(text: &[u8]) -> Option<(&[u8], &[u8], bool)> {
    let start = text.iter().position(|&byte| byte != b'/')?;
    let rest = text.get(start..)?;
    let length = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (name, after) = rest.split_at(length);
    Some((name, after, after.iter().all(|&byte| byte == b'/')))
}

/// The place that `path` leads to; it exists. ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG, EXDEV
/// (openat2(2)), ENOMEM, and what the tree says.
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
    /// A walk that stands where `path` begins. ENOENT if it is empty, EXDEV if it is absolute and
    /// must stay beneath the start.
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

    /// Where the walk stands.
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

    /// Goes through the link `entry` of the mount of `place`, standing in its directory; gives the
    /// text to walk on with, `rest` behind it, or `None` when the link led straight to a place.
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

    /// `..`: as `follow_dotdot` and `choose_mountpoint` of Linux 6.1's fs/namei.c.
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
            }
            crossed = true;
        }
    }

    /// `..` at the root: the same place, or what has been mounted on it meanwhile.
    fn step_nowhere(&mut self) -> Result<()> {
        if self.flags.contains(WalkFlags::BENEATH) {
            return Err(Errno::EXDEV);
        }
        self.step_onto_mounts().map(|_| ())
    }

    /// From the place here to the root of what is mounted on it, if anything is: whether it was.
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
            ending = match name {
                b"." => Ending::Dot,
                b".." => Ending::DotDot,
                _ => Ending::Name,
            };
            if last && want_parent {
                // Its length is looked at where it is looked up, after other errors.
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
            if kind == Kind::Link {
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
            if !mounted && last && kind != Kind::Directory && to_directory {
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
