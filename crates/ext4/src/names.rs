//! Names: creating, linking, removing, renaming. Each operation is whole or not done at all.
//!
//! The caller checks, as Linux' VFS does: permissions, sticky and immutable bits, that a
//! directory is not moved below itself, that no directory is linked.

use crate::directory::change::{Found, NewEntry, check_name};
use crate::error::{Error, Result};
use crate::extent_tree;
use crate::field::{put, put_u32};
use crate::inode::Time;
use crate::node::{MAP_LENGTH, Node, flag, kind};
use crate::volume::Device;
use crate::writer::Writer;

/// Linux' `EXT4_LINK_MAX`.
const MOST_LINKS: u16 = 65000;
/// Flags that a new inode takes from its directory: sync, no dump, no atime.
const INHERITED: u32 = 0x8 | 0x40 | 0x80;

/// The properties of a new inode.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Type and permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The part that depends on the type.
    pub content: Content<'a>,
}

/// The part of a new inode that depends on its type.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A regular file, a directory, a FIFO or a socket.
    Nothing,
    /// A device node: major and minor number.
    Device(u32, u32),
    /// The target of a symbolic link, one to 4095 bytes, and shorter than a block.
    Target(&'a [u8]),
}

/// An inode that lost a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// Its number.
    pub inode: u32,
    /// Names left. At 0 it is on the orphan list, and [`Writer::release`] frees it once nothing
    /// uses it any more.
    pub links: u16,
}

/// The kinds of `renameat2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// Replaces the target, if there is one.
    Replace,
    /// Fails with [`Error::Exists`] if there is a target.
    NoReplace,
    /// Exchanges both.
    Exchange,
    /// Replaces, and leaves a whiteout (character device 0:0) of this owner and group.
    Whiteout(u32, u32),
}

/// The directories of a rename, which may be one and the same.
struct Pair {
    from: Node,
    /// None if both are one.
    to: Option<Node>,
}

impl Pair {
    fn to(&self) -> &Node {
        self.to.as_ref().unwrap_or(&self.from)
    }

    fn to_mut(&mut self) -> &mut Node {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

impl Writer {
    /// Takes a directory that may get names.
    fn directory(&self, device: &dyn Device, number: u32) -> Result<Node> {
        let node = self.node(device, number)?;
        if !node.is(kind::DIRECTORY) {
            return Err(Error::NotDirectory);
        }
        // It was removed while the caller had it open.
        if node.links() == 0 { Err(Error::NotFound) } else { Ok(node) }
    }

    /// Counts a directory more in `directory`.
    fn add_subdirectory(&self, directory: &mut Node) -> Result<()> {
        match directory.links() {
            // More than can be counted: the format's mark of that.
            1 if self.format.dir_nlink => {}
            links if links < MOST_LINKS - 1 => directory.set_links(links + 1),
            _ if self.format.dir_nlink => directory.set_links(1),
            _ => return Err(Error::TooManyLinks),
        }
        Ok(())
    }

    fn drop_subdirectory(directory: &mut Node) {
        let links = directory.links();
        if links > 2 {
            directory.set_links(links - 1);
        }
    }

    /// Makes the inode's record, without a name; `links` are those it will have.
    fn make_inode(
        &mut self,
        device: &dyn Device,
        parent: &Node,
        new: &New<'_>,
        now: Time,
        links: u16,
    ) -> Result<Node> {
        let is_directory = new.mode & kind::MASK == kind::DIRECTORY;
        let number = self.allocate_inode(device, parent.number, is_directory)?;
        let mut node = self.new_node(number)?;
        node.set_mode(new.mode);
        node.set_owner(Some(new.uid), Some(new.gid));
        node.set_links(links);
        node.set_flags(parent.flags() & INHERITED);
        node.set_accessed(now);
        node.set_modified(now);
        node.set_changed(now);
        node.set_created(now);
        match (new.mode & kind::MASK, new.content) {
            (kind::REGULAR | kind::DIRECTORY, Content::Nothing) => self.init_map(&mut node),
            (kind::FIFO | kind::SOCKET, Content::Nothing) => {}
            (kind::CHARACTER | kind::BLOCK, Content::Device(major, minor)) => {
                set_device(&mut node, major, minor)?;
            }
            (kind::LINK, Content::Target(target)) => self.set_target(device, &mut node, target)?,
            _ => return Err(Error::Invalid),
        }
        if is_directory {
            self.init_directory(device, &mut node, parent.number)?;
        }
        Ok(node)
    }

    fn init_map(&self, node: &mut Node) {
        if self.format.extents {
            node.set_flags(node.flags() | flag::EXTENTS);
            extent_tree::empty(node.map_mut());
        }
    }

    fn set_target(&mut self, device: &dyn Device, node: &mut Node, target: &[u8]) -> Result<()> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid);
        }
        if target.len() >= self.volume.block_size() {
            return Err(Error::NameTooLong);
        }
        if target.len() < MAP_LENGTH {
            Self::fill_map(node, target);
        } else {
            self.init_map(node);
            let piece = self.provide(device, node, 0, 1, true)?;
            put(self.fresh(piece.place)?, 0, target);
        }
        node.set_size(target.len() as u64);
        Ok(())
    }

    /// Makes an inode with a name; returns its number.
    pub fn create(
        &mut self,
        device: &dyn Device,
        directory: u32,
        name: &[u8],
        new: &New<'_>,
        now: Time,
    ) -> Result<u32> {
        check_name(name)?;
        self.operate(|writer| {
            let mut parent = writer.directory(device, directory)?;
            if writer.find(device, &parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            let is_directory = new.mode & kind::MASK == kind::DIRECTORY;
            let links = if is_directory { 2 } else { 1 };
            let mut node = writer.make_inode(device, &parent, new, now, links)?;
            let entry = NewEntry { name, inode: node.number, mode: new.mode };
            writer.add_entry(device, &mut parent, entry)?;
            if is_directory {
                writer.add_subdirectory(&mut parent)?;
            }
            touch(&mut parent, now);
            writer.put_node(device, &mut parent)?;
            writer.put_node(device, &mut node)?;
            Ok(node.number)
        })
    }

    /// Makes a regular file without a name (`O_TMPFILE`), on the orphan list, in the directory's
    /// neighbourhood.
    pub fn create_unnamed(
        &mut self,
        device: &dyn Device,
        directory: u32,
        new: &New<'_>,
        now: Time,
    ) -> Result<u32> {
        if new.mode & kind::MASK != kind::REGULAR {
            return Err(Error::Invalid);
        }
        self.operate(|writer| {
            let parent = writer.directory(device, directory)?;
            let mut node = writer.make_inode(device, &parent, new, now, 0)?;
            writer.add_orphan(device, &mut node)?;
            writer.put_node(device, &mut node)?;
            Ok(node.number)
        })
    }

    /// Gives the inode another name.
    pub fn link(
        &mut self,
        device: &dyn Device,
        inode: u32,
        directory: u32,
        name: &[u8],
        now: Time,
    ) -> Result<()> {
        check_name(name)?;
        self.operate(|writer| {
            let mut parent = writer.directory(device, directory)?;
            let mut node = writer.node(device, inode)?;
            if node.is(kind::DIRECTORY) {
                return Err(Error::IsDirectory);
            }
            if node.links() >= MOST_LINKS {
                return Err(Error::TooManyLinks);
            }
            if writer.find(device, &parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            if node.links() == 0 {
                writer.remove_orphan(device, &mut node)?;
            }
            let entry = NewEntry { name, inode, mode: node.mode() };
            writer.add_entry(device, &mut parent, entry)?;
            node.set_links(node.links() + 1);
            node.set_changed(now);
            touch(&mut parent, now);
            writer.put_node(device, &mut parent)?;
            writer.put_node(device, &mut node)
        })
    }

    /// Takes a name from an inode, whose entry is gone or names another one now.
    fn drop_link(&mut self, device: &dyn Device, node: &mut Node, now: Time) -> Result<Unlinked> {
        let links = match node.links() {
            _ if node.is(kind::DIRECTORY) => 0,
            0 => return Err(Error::Corrupt("the number of names of an inode")),
            links => links - 1,
        };
        node.set_links(links);
        node.set_changed(now);
        if links == 0 {
            self.add_orphan(device, node)?;
        }
        self.put_node(device, node)?;
        Ok(Unlinked { inode: node.number, links })
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(
        &mut self,
        device: &dyn Device,
        directory: u32,
        name: &[u8],
        now: Time,
    ) -> Result<Unlinked> {
        check_name(name)?;
        self.operate(|writer| {
            let mut parent = writer.directory(device, directory)?;
            let found = writer.find_existing(device, &parent, name)?;
            let mut node = writer.node(device, found.inode)?;
            if node.is(kind::DIRECTORY) {
                return Err(Error::IsDirectory);
            }
            writer.remove_entry(device, &parent, found)?;
            touch(&mut parent, now);
            writer.put_node(device, &mut parent)?;
            writer.drop_link(device, &mut node, now)
        })
    }

    /// Removes an empty directory.
    pub fn rmdir(
        &mut self,
        device: &dyn Device,
        directory: u32,
        name: &[u8],
        now: Time,
    ) -> Result<Unlinked> {
        check_name(name)?;
        if name == b"." || name == b".." {
            return Err(Error::Invalid);
        }
        self.operate(|writer| {
            let mut parent = writer.directory(device, directory)?;
            let found = writer.find_existing(device, &parent, name)?;
            let mut node = writer.empty_directory(device, found.inode)?;
            writer.remove_entry(device, &parent, found)?;
            Self::drop_subdirectory(&mut parent);
            touch(&mut parent, now);
            writer.put_node(device, &mut parent)?;
            writer.drop_link(device, &mut node, now)
        })
    }

    /// Takes a directory that may be removed.
    fn empty_directory(&self, device: &dyn Device, number: u32) -> Result<Node> {
        let node = self.node(device, number)?;
        if !node.is(kind::DIRECTORY) {
            return Err(Error::NotDirectory);
        }
        if number < self.format.first_inode {
            return Err(Error::Corrupt("a directory entry (it names a reserved inode)"));
        }
        if self.is_empty(device, &node)? { Ok(node) } else { Err(Error::NotEmpty) }
    }

    /// Renames; returns what the target's name named before, if it was replaced. That a directory
    /// is not moved below itself is the caller's check.
    pub fn rename(
        &mut self,
        device: &dyn Device,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        kind: Rename,
        now: Time,
    ) -> Result<Option<Unlinked>> {
        check_name(from.1)?;
        check_name(to.1)?;
        if [from.1, to.1].iter().any(|name| *name == b"." || *name == b"..") {
            return Err(Error::Invalid);
        }
        self.operate(|writer| {
            let mut pair = Pair {
                from: writer.directory(device, from.0)?,
                to: if from.0 == to.0 { None } else { Some(writer.directory(device, to.0)?) },
            };
            let source = writer.find_existing(device, &pair.from, from.1)?;
            let target = writer.find(device, pair.to(), to.1)?;
            let result = match (kind, target) {
                (Rename::Exchange, None) => return Err(Error::NotFound),
                (Rename::NoReplace, Some(_)) => return Err(Error::Exists),
                // Two names of one inode: nothing is done, as POSIX says.
                (_, Some(target)) if target.inode == source.inode => return Ok(None),
                (Rename::Exchange, Some(target)) => {
                    writer.exchange(device, &mut pair, source, target, now)?;
                    None
                }
                (Rename::Whiteout(uid, gid), target) => {
                    let owner = Some((uid, gid));
                    writer.replace(
                        device,
                        &mut pair,
                        (from.1, source),
                        (to.1, target),
                        owner,
                        now,
                    )?
                }
                (_, target) => writer.replace(
                    device,
                    &mut pair,
                    (from.1, source),
                    (to.1, target),
                    None,
                    now,
                )?,
            };
            touch(&mut pair.from, now);
            writer.put_node(device, &mut pair.from)?;
            if let Some(to) = &mut pair.to {
                touch(to, now);
                writer.put_node(device, to)?;
            }
            Ok(result)
        })
    }

    /// Lets a moved directory name its new parent.
    fn set_parent(&mut self, device: &dyn Device, moved: &Node, parent: u32) -> Result<()> {
        let entry = self.parent_entry(device, moved)?;
        self.redirect_entry(device, moved, entry, parent, kind::DIRECTORY)
    }

    fn exchange(
        &mut self,
        device: &dyn Device,
        pair: &mut Pair,
        source: Found,
        target: Found,
        now: Time,
    ) -> Result<()> {
        let mut one = self.node(device, source.inode)?;
        let mut other = self.node(device, target.inode)?;
        self.redirect_entry(device, &pair.from, source, other.number, other.mode())?;
        self.redirect_entry(device, pair.to(), target, one.number, one.mode())?;
        if let Some(to) = &mut pair.to {
            let (down, up) = (one.is(kind::DIRECTORY), other.is(kind::DIRECTORY));
            if down {
                self.set_parent(device, &one, to.number)?;
            }
            if up {
                self.set_parent(device, &other, pair.from.number)?;
            }
            if down && !up {
                self.add_subdirectory(to)?;
                Self::drop_subdirectory(&mut pair.from);
            } else if up && !down {
                self.add_subdirectory(&mut pair.from)?;
                Self::drop_subdirectory(to);
            }
        }
        one.set_changed(now);
        other.set_changed(now);
        self.put_node(device, &mut one)?;
        self.put_node(device, &mut other)
    }

    fn replace(
        &mut self,
        device: &dyn Device,
        pair: &mut Pair,
        (from, source): (&[u8], Found),
        (to, target): (&[u8], Option<Found>),
        whiteout: Option<(u32, u32)>,
        now: Time,
    ) -> Result<Option<Unlinked>> {
        let mut moved = self.node(device, source.inode)?;
        let is_directory = moved.is(kind::DIRECTORY);
        let mut replaced = None;
        match target {
            Some(target) => {
                let node = if is_directory {
                    self.empty_directory(device, target.inode)?
                } else {
                    self.node(device, target.inode)?
                };
                if node.is(kind::DIRECTORY) && !is_directory {
                    return Err(Error::IsDirectory);
                }
                self.redirect_entry(device, pair.to(), target, moved.number, moved.mode())?;
                replaced = Some(node);
            }
            None => {
                let entry = NewEntry { name: to, inode: moved.number, mode: moved.mode() };
                self.add_entry(device, pair.to_mut(), entry)?;
            }
        }
        // The insertion may have moved it.
        let source = self.find_existing(device, &pair.from, from)?;
        match whiteout {
            Some((uid, gid)) => {
                let content = Content::Device(0, 0);
                let new = New { mode: kind::CHARACTER, uid, gid, content };
                let mut node = self.make_inode(device, &pair.from, &new, now, 1)?;
                self.redirect_entry(device, &pair.from, source, node.number, node.mode())?;
                self.put_node(device, &mut node)?;
            }
            None => self.remove_entry(device, &pair.from, source)?,
        }
        if is_directory {
            Self::drop_subdirectory(&mut pair.from);
            if replaced.is_none() {
                self.add_subdirectory(pair.to_mut())?;
            }
            if let Some(to) = &pair.to {
                self.set_parent(device, &moved, to.number)?;
            }
        }
        moved.set_changed(now);
        self.put_node(device, &mut moved)?;
        replaced.map(|mut node| self.drop_link(device, &mut node, now)).transpose()
    }
}

fn touch(directory: &mut Node, now: Time) {
    directory.set_modified(now);
    directory.set_changed(now);
}

/// Linux' two encodings: the old one where both numbers are small.
fn set_device(node: &mut Node, major: u32, minor: u32) -> Result<()> {
    if major >= 1 << 12 || minor >= 1 << 20 {
        return Err(Error::Invalid);
    }
    let map = node.map_mut();
    if major < 256 && minor < 256 {
        put_u32(map, 0, major << 8 | minor);
    } else {
        put_u32(map, 4, (minor & 0xff) | major << 8 | (minor & !0xff) << 12);
    }
    Ok(())
}
