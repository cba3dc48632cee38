//! Groups and their files as inodes, and open files (`cgroup_kf_ops`, and fs/kernfs, which Linux
//! builds them on).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hayate_abi::{Errno, Result};

use super::file::{File, Opening};
use super::files::FILES;
use super::options;
use crate::process::cgroup::accounts;
use crate::process::cgroup::events;
use crate::process::cgroup::group;
use crate::process::cgroup::group::Group;
use crate::process::thread::current;
use crate::reclaim::growth::{Grow, relieved};
use crate::schedule::Mutex;
use crate::vfs::inode::{
    Attributes, Change, DirectorySink, FileKind, Inode, Metadata, Owner, Timestamp, downcast,
};
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, OpenRequest, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::transfer::{Input, Output};

/// The longest text that is taken at once: what is longer is written in part
/// (`kernfs_fop_write_iter`).
const LONGEST_WRITE: usize = 4096;
/// The mode of a directory is changed by its maker alone.
const DIRECTORY: (u8, u16) = (0, 0o755);

fn attributes(group: &Group, (number, mode): (u8, u16), kind: FileKind) -> Attributes {
    let own = group.attributes(number, mode);
    Attributes { kind, mode: own.mode, uid: own.uid, gid: own.gid, capabilities: false }
}

fn metadata(group: &Group, (number, mode): (u8, u16), kind: FileKind, links: u32) -> Metadata {
    let own = group.attributes(number, mode);
    let (device, inode) = group.identity(number);
    let [accessed, modified, changed] = own.times;
    Metadata {
        number: inode,
        links,
        uid: own.uid,
        gid: own.gid,
        accessed,
        modified,
        changed,
        created: changed,
        ..Metadata::anonymous(device, kind, own.mode)
    }
}

/// A size is ignored: `O_TRUNC` changes nothing.
fn set_metadata(group: &Group, (number, mode): (u8, u16), change: &Change) {
    let mut own = group.attributes(number, mode);
    own.mode = change.mode.unwrap_or(own.mode);
    own.uid = change.uid.unwrap_or(own.uid);
    own.gid = change.gid.unwrap_or(own.gid);
    let [accessed, modified, _] = own.times;
    let now = Timestamp::now();
    own.times = [change.accessed.unwrap_or(accessed), change.modified.unwrap_or(modified), now];
    group.set_attributes(number, own);
}

/// A group is a directory.
impl Inode for Group {
    fn attributes(&self) -> Attributes {
        attributes(self, DIRECTORY, FileKind::Directory)
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok(Group::identity(self, 0))
    }

    fn metadata(&self) -> Result<Metadata> {
        let links = 2 + self.child_count() as u32;
        Ok(metadata(self, DIRECTORY, FileKind::Directory, links))
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        set_metadata(self, DIRECTORY, change);
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if self.is_removed() {
            return Err(Errno::ENOENT);
        }
        if let Some(child) = self.child(name) {
            return Ok(child);
        }
        let found = FILES.iter().find(|file| file.name.as_bytes() == name && file.is_in(self));
        let file = found.ok_or(Errno::ENOENT)?;
        let group = self.arc().ok_or(Errno::ENOENT)?;
        Ok(Arc::new(GroupFile { group, file }))
    }

    fn mkdir(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let lock = group::lock();
        let group = self.make(name, owner, mode, &lock)?;
        accounts::begin(&group, group.available(), &lock).inspect_err(|_| {
            let _ = self.remove(&group, &lock);
        })?;
        Ok(group)
    }

    fn rmdir(&self, _: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let group = downcast::<Group>(target).ok_or(Errno::ENOTDIR)?;
        let lock = group::lock();
        self.remove(group, &lock)?;
        accounts::end(group, &lock);
        Ok(())
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        /// Positions of files end here; those of children are their cookies beyond.
        const CHILDREN: u64 = 64;
        /// Children that are taken under the lock at a time: the sink may sleep.
        const BATCH: usize = 32;
        if self.is_removed() {
            return Err(Errno::ENOENT);
        }
        while let Some(file) = FILES.get((*position - 2) as usize) {
            let number = self.inode_number(file.number);
            let (name, next) = (file.name.as_bytes(), *position + 1);
            if file.is_in(self) && !sink.entry(number, FileKind::Regular, name, next) {
                return Ok(());
            }
            *position += 1;
        }
        loop {
            let from = position.saturating_sub(CHILDREN);
            let batch = self.children_from(from, BATCH);
            if batch.is_empty() {
                return Ok(());
            }
            for (cookie, name, child) in batch {
                let next = CHILDREN + cookie + 1;
                if !sink.entry(child.inode_number(0), FileKind::Directory, &name, next) {
                    return Ok(());
                }
                *position = next;
            }
        }
    }
}

/// A file of a group.
pub struct GroupFile {
    group: Arc<Group>,
    file: &'static File,
}

impl GroupFile {
    /// The file with a number, if the group has it.
    pub fn numbered(group: Arc<Group>, number: u8) -> Option<GroupFile> {
        let file = FILES.iter().find(|file| file.number == number && file.is_in(&group))?;
        Some(GroupFile { group, file })
    }

    fn key(&self) -> (u8, u16) {
        (self.file.number, self.file.mode)
    }

    /// Fails with `ENODEV` if the group was removed, or has lost the controller.
    fn check(&self) -> Result<()> {
        let is_there = !self.group.is_removed() && self.file.is_in(&self.group);
        if is_there { Ok(()) } else { Err(Errno::ENODEV) }
    }
}

impl Inode for GroupFile {
    fn attributes(&self) -> Attributes {
        attributes(&self.group, self.key(), FileKind::Regular)
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok(self.group.identity(self.file.number))
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(metadata(&self.group, self.key(), FileKind::Regular, 1))
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        set_metadata(&self.group, self.key(), change);
        Ok(())
    }

    fn open(self: Arc<Self>, _: &OpenRequest) -> Result<Arc<dyn FileOps>> {
        self.check()?;
        let thread = current();
        let opening = Opening {
            group: self.group.clone(),
            credentials: thread.credentials(),
            namespace: thread.cgroups(),
        };
        Ok(Arc::new(OpenGroupFile {
            node: self,
            opening,
            seen: AtomicU32::new(0),
            text: Mutex::new(None),
        }))
    }
}

/// An open file of a group.
struct OpenGroupFile {
    node: Arc<GroupFile>,
    opening: Opening,
    /// The changes that the reader has seen ([`events::Changes::seen`]); 0: it has not read yet.
    seen: AtomicU32,
    /// What it showed when it was read from the beginning.
    text: Mutex<Option<Vec<u8>>>,
}

impl FileOps for OpenGroupFile {
    fn traits(&self) -> Traits {
        Traits::REGULAR | Traits::POLLABLE
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        self.node.check()?;
        let GroupFile { group, file } = &*self.node;
        let show = file.show.ok_or(Errno::EINVAL)?;
        let mut text = self.text.lock();
        if offset == 0 || text.is_none() {
            // Before the text is made: a change meanwhile is news.
            let seen = file.changes.map_or(1, |changes| changes(group).seen());
            self.seen.store(seen, Ordering::Relaxed);
            *text = Some(relieved(|| {
                let mut fresh = Vec::new();
                show(group, &mut fresh)?;
                Ok(fresh)
            })?);
        }
        let text = text.as_deref().unwrap_or_default();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let rest = &text[start..];
        out.put(&rest[..rest.len().min(out.remaining())])
    }

    /// `cgroup_file_write`.
    fn write(&self, _: &OpenFile, _: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let mut text = Vec::new();
        let length = input.remaining().min(LONGEST_WRITE);
        text.make_room_exact(length)?;
        text.resize(length, 0);
        let count = input.take(&mut text)?;
        text.truncate(count);
        self.node.check()?;
        if count == 0 {
            return Ok(0);
        }
        let Opening { group, namespace, .. } = &self.opening;
        let is_border = !namespace.is_first() && namespace.root().is(group);
        if options::namespaces_delegate() && is_border && !self.node.file.is_delegated {
            return Err(Errno::EPERM);
        }
        // The kernel's texts end at the first zero byte.
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(count);
        let store = self.node.file.store.ok_or(Errno::EINVAL)?;
        store(&self.opening, &text[..end])?;
        Ok(count)
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        let seen = self.seen.load(Ordering::Relaxed);
        match self.node.file.changes {
            Some(changes) => changes(&self.node.group).poll(seen, registrar),
            None => events::news(seen == 0),
        }
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Err(Errno::ENODEV)
    }
}
