//! A file as the kernel's [`Inode`]: names, metadata and attributes.
//!
//! Each operation reads the inodes that it changed again, inside the writer's lock, so that nodes
//! and inodes agree when the lock is free.
//!
//! Executables in two files (docs/off2f.md) are shown as they are: their mark is for volumes that
//! are only read.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Condition, Content, Device, DirEntry, Error, New, Rename, Unlinked, Writer};

use super::file::File;
use super::state::{Node, time_now};
use crate::fs::ext4::directory::kind;
use crate::fs::tmpfs::xattr::flags::{XATTR_CREATE, XATTR_REPLACE};
use crate::in_place::view;
use crate::page_cache::cache::PageCache;
use crate::reclaim::growth::{Grow, append};
use crate::vfs::inode::{
    Attributes, Change, DeviceNumber, DirectorySink, FileKind, Inode, Metadata, Owner, RenameFlags,
    downcast,
};
use crate::vfs::open_file::{FileOps, OpenRequest};
use crate::vfs::set_id::CAPABILITIES;

/// Positions 0 and 1 of an enumeration are `.` and `..`, which the caller makes.
const FIRST: u64 = 2;

fn own(inode: &Arc<dyn Inode>) -> Result<&Node> {
    downcast(inode).ok_or(Errno::EXDEV)
}

impl Node {
    fn check_directory(&self) -> Result<()> {
        if self.kind == FileKind::Directory { Ok(()) } else { Err(Errno::ENOTDIR) }
    }

    /// Makes a file here, and its node.
    fn add(
        &self,
        name: &[u8],
        kind: FileKind,
        new: (u16, Owner),
        content: Content<'_>,
    ) -> Result<Arc<dyn Inode>> {
        self.check_directory()?;
        let (mode, owner) = new;
        let mode = kind.mode_bits() as u16 | mode;
        let new = New { mode, uid: owner.uid, gid: owner.gid, content };
        let (live, number) = (&self.live, self.number);
        // A retry after the inode was made only makes the node.
        let mut made = None;
        let inode = live.change(|writer, device| {
            let inode = match made {
                Some(inode) => inode,
                None => writer.create(device, number, name, &new, time_now())?,
            };
            made = Some(inode);
            self.refresh(writer, device)?;
            writer.inode(device, inode)
        })?;
        let node = live.enter(&live.writer.read(), &inode)?;
        Ok(node)
    }

    /// Removes a name of `target`, which may have been its last one.
    fn remove(
        &self,
        target: &Arc<dyn Inode>,
        mut remove: impl FnMut(&mut Writer, &dyn Device) -> hayate_ext4::Result<Unlinked>,
    ) -> Result<()> {
        let target = own(target)?;
        let live = &self.live;
        live.doomed.lock().expect()?;
        let mut removed = false;
        let outcome = live.change(|writer, device| {
            if !removed {
                let unlinked = remove(writer, device)?;
                if unlinked.inode != target.number {
                    return Err(Error::Corrupt("a directory"));
                }
                removed = true;
            }
            target.refresh(writer, device)?;
            self.refresh(writer, device)
        });
        target.settle_names();
        outcome
    }

    /// After an operation that may have taken the last name: one that did not makes room again.
    fn settle_names(&self) {
        if self.info.lock().links == 0 {
            self.live.let_go(self);
        } else {
            self.live.doomed.lock().spare();
        }
    }

    /// Enumerates a part at a time: the program's memory is written without the lock.
    fn enumerate(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        loop {
            let mut batch = Batch::default();
            let from = position.saturating_sub(FIRST);
            let listed = self.live.read(|writer, device| {
                writer.list(device, self.number, from, &mut |entry, next| batch.take(entry, next))
            })?;
            if batch.entries.is_empty() {
                return if batch.is_refused { Err(Errno::ENOMEM) } else { Ok(()) };
            }
            for Listed { number, kind, name, next } in &batch.entries {
                let name = batch.names.get(name.clone()).unwrap_or_default();
                if !sink.entry((*number).into(), *kind, name, next + FIRST) {
                    return Ok(());
                }
                *position = next + FIRST;
            }
            *position = listed + FIRST;
        }
    }
}

/// An entry of a directory, with its name in a [`Batch`].
struct Listed {
    number: u32,
    kind: FileKind,
    name: Range<usize>,
    next: u64,
}

/// Entries that are listed together.
#[derive(Default)]
struct Batch {
    entries: Vec<Listed>,
    names: Vec<u8>,
    /// There was no memory for an entry.
    is_refused: bool,
}

impl Batch {
    const MOST: usize = 64;

    /// Takes an entry, if there is room.
    fn take(&mut self, entry: &DirEntry<'_>, next: u64) -> bool {
        if self.entries.len() >= Self::MOST {
            return false;
        }
        let start = self.names.len();
        let made = self.entries.make_room(1).and_then(|()| append(&mut self.names, entry.name));
        if made.is_err() {
            self.is_refused = true;
            return false;
        }
        let (number, kind) = (entry.inode, kind(entry.kind));
        self.entries.push(Listed { number, kind, name: start..self.names.len(), next });
        true
    }
}

impl Inode for Node {
    fn attributes(&self) -> Attributes {
        let info = self.info.lock();
        let (mode, uid, gid, capabilities) = (info.mode, info.uid, info.gid, info.capabilities);
        Attributes { kind: self.kind, mode, uid, gid, capabilities }
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok((self.live.disk.number().encode(), self.number.into()))
    }

    fn metadata(&self) -> Result<Metadata> {
        // Blocks come with each write, and are seldom asked for.
        let sectors = self
            .live
            .read(|writer, device| writer.inode(device, self.number).map(|inode| inode.sectors))?;
        let info = *self.info.lock();
        Ok(Metadata {
            device: self.live.disk.number().encode(),
            number: self.number.into(),
            kind: self.kind,
            mode: info.mode,
            links: info.links,
            uid: info.uid,
            gid: info.gid,
            represents: self.represents,
            size: self.size(),
            blocks: sectors,
            block_size: 1 << self.live.shift,
            accessed: info.accessed,
            modified: info.modified,
            changed: info.changed,
            created: info.created,
        })
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        self.live.check_writable()?;
        if let Some(size) = change.size {
            self.truncate(size)?;
        }
        let others = Change { size: None, ..*change };
        let is_all = others.mode.is_none()
            && others.uid.is_none()
            && others.gid.is_none()
            && others.accessed.is_none()
            && others.modified.is_none();
        if change.size.is_some() && is_all { Ok(()) } else { self.change(&others) }
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        self.check_directory()?;
        let found = self.live.read(|writer, device| writer.lookup(device, self.number, name))?;
        Ok(self.live.node(found.ok_or(Errno::ENOENT)?)?)
    }

    fn create(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        self.add(name, FileKind::Regular, (mode, owner), Content::Nothing)
    }

    fn create_unnamed(&self, mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        self.check_directory()?;
        let mode = FileKind::Regular.mode_bits() as u16 | mode;
        let new = New { mode, uid: owner.uid, gid: owner.gid, content: Content::Nothing };
        let (live, directory) = (&self.live, self.number);
        live.doomed.lock().expect()?;
        let mut made = None;
        let made = live.change(|writer, device| {
            let number = match made {
                Some(number) => number,
                None => writer.create_unnamed(device, directory, &new, time_now())?,
            };
            made = Some(number);
            writer.inode(device, number)
        });
        let node = made.and_then(|inode| live.enter(&live.writer.read(), &inode));
        match node {
            Ok(node) => Ok(node),
            Err(error) => {
                live.doomed.lock().spare();
                Err(error)
            }
        }
    }

    fn mkdir(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        self.add(name, FileKind::Directory, (mode, owner), Content::Nothing)
    }

    fn mknod(
        &self,
        name: &[u8],
        kind: FileKind,
        mode: u16,
        device: DeviceNumber,
        owner: Owner,
    ) -> Result<Arc<dyn Inode>> {
        let content = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => {
                Content::Device(device.major, device.minor)
            }
            _ => Content::Nothing,
        };
        self.add(name, kind, (mode, owner), content)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<Arc<dyn Inode>> {
        self.add(name, FileKind::Symlink, (0o777, owner), Content::Target(target))
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let target = own(target)?;
        let was_nameless = target.info.lock().links == 0;
        let mut linked = false;
        self.live.change(|writer, device| {
            if !linked {
                writer.link(device, target.number, self.number, name, time_now())?;
                linked = true;
            }
            target.refresh(writer, device)?;
            self.refresh(writer, device)
        })?;
        if was_nameless {
            self.live.doomed.lock().spare();
            // Its content must stay from now on.
            target.keep();
        }
        Ok(())
    }

    fn unlink(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let number = self.number;
        self.remove(target, |writer, device| writer.unlink(device, number, name, time_now()))
    }

    fn rmdir(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let number = self.number;
        self.remove(target, |writer, device| writer.rmdir(device, number, name, time_now()))
    }

    fn rename(
        &self,
        name: &[u8],
        moved: &Arc<dyn Inode>,
        new_directory: &Arc<dyn Inode>,
        new_name: &[u8],
        replaced: Option<&Arc<dyn Inode>>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (moved, target) = (own(moved)?, own(new_directory)?);
        let replaced = replaced.map(own).transpose()?;
        let rename = if flags.contains(RenameFlags::EXCHANGE) {
            Rename::Exchange
        } else if flags.contains(RenameFlags::WHITEOUT) {
            let info = moved.info.lock();
            Rename::Whiteout(info.uid, info.gid)
        } else {
            Rename::Replace
        };
        let loses = replaced.filter(|_| rename != Rename::Exchange);
        let live = &self.live;
        if loses.is_some() {
            live.doomed.lock().expect()?;
        }
        let (from, to) = ((self.number, name), (target.number, new_name));
        let mut renamed = false;
        let outcome = live.change(|writer, device| {
            if !renamed {
                writer.rename(device, from, to, rename, time_now())?;
                renamed = true;
            }
            for node in [Some(self), Some(target), Some(moved), replaced].into_iter().flatten() {
                node.refresh(writer, device)?;
            }
            Ok(())
        });
        if let Some(node) = loses {
            node.settle_names();
        }
        outcome
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        self.check_directory()?;
        self.enumerate(position, sink)
    }

    fn note_access(&self, always: bool) {
        self.accessed(always);
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        if self.target.get().is_none() {
            let target = self.live.read(|writer, device| {
                let inode = writer.inode(device, self.number)?;
                writer.volume().link_target(&writer.view(device), &inode)
            })?;
            self.target.call_once(|| target);
        }
        crate::reclaim::growth::copy(self.target.get().ok_or(Errno::EIO)?)
    }

    fn open(self: Arc<Self>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        if self.kind != FileKind::Regular {
            return Err(Errno::ENXIO);
        }
        let writes = request.writes();
        Ok(Arc::new(File::new(self, writes)?))
    }

    fn page_cache(&self) -> Option<Arc<PageCache>> {
        self.content().ok().map(|(page_cache, _)| Arc::clone(page_cache))
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if name == view::ATTRIBUTE {
            return Err(Errno::ENODATA);
        }
        check_name(name)?;
        let found = self.live.read(|writer, device| {
            let inode = writer.inode(device, self.number)?;
            if !inode.has_attributes() {
                return Ok(None);
            }
            writer.volume().attribute(&writer.view(device), &inode, name)
        })?;
        found.ok_or(Errno::ENODATA)
    }

    fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, flags: u32) -> Result<()> {
        check_name(name)?;
        let condition = match flags {
            _ if value.is_none() => Condition::Any,
            _ if flags & XATTR_CREATE != 0 => Condition::Absent,
            _ if flags & XATTR_REPLACE != 0 => Condition::Present,
            _ => Condition::Any,
        };
        let set = self.live.change(|writer, device| {
            writer.set_attribute(device, self.number, name, value, condition, time_now())?;
            Ok(())
        });
        match set {
            Err(Errno::ENOENT) => return Err(Errno::ENODATA),
            Err(Errno::EFBIG) => return Err(Errno::ENOSPC),
            set => set?,
        }
        self.live.read(|writer, device| self.refresh(writer, device))?;
        if name == CAPABILITIES {
            self.info.lock().capabilities = value.is_some();
        }
        Ok(())
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        self.live.read(|writer, device| {
            let inode = writer.inode(device, self.number)?;
            writer.volume().attributes(&writer.view(device), &inode)
        })
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.make_durable(data_only)
    }
}

/// Accepts the attributes that are kept.
fn check_name(name: &[u8]) -> Result<()> {
    let kept = [&b"user."[..], b"trusted.", b"security."];
    match kept.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP),
    }
}
