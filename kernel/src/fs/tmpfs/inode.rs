//! A file of tmpfs: its metadata and its content (a directory's names, a page cache, a link's text
//! or a device number).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_off2f::MARK;
use smallvec::SmallVec;

use super::superblock::Superblock;
use super::xattr::Xattrs;
use crate::in_place::view;
use crate::page_cache::cache::PageCache;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::content;
use crate::vfs::dentry::Name;
use crate::vfs::entries;
use crate::vfs::inode::*;
use crate::vfs::open_file::flags::O_TRUNC;
use crate::vfs::open_file::{FileOps, OpenFile, OpenRequest, Traits, Whence};
use crate::vfs::set_id::CAPABILITIES;
use crate::vfs::transfer::{Input, Output};

/// The metadata of an inode that can change.
#[derive(Clone, Copy)]
struct Info {
    mode: u16,
    /// Whether there are file capabilities among the attributes.
    capabilities: bool,
    uid: u32,
    gid: u32,
    links: u32,
    accessed: Timestamp,
    modified: Timestamp,
    changed: Timestamp,
    created: Timestamp,
}

/// In seconds: a day before the last change of any directory or metadata of a tmpfs. A read need
/// not ask for the current time: an access time before this is older than a day.
static DAY_AGO: AtomicI64 = AtomicI64::new(i64::MIN);

fn note_day(now: Timestamp) {
    const DAY: i64 = 24 * 60 * 60;
    DAY_AGO.store(now.seconds - DAY, Ordering::Relaxed);
}

type Entries = entries::Entries<Arc<TmpInode>>;

enum Content {
    Directory(SpinLock<Entries>),
    Regular(Arc<PageCache>),
    Symlink(Vec<u8>),
    Special(DeviceNumber),
}

/// A file.
pub struct TmpInode {
    superblock: Arc<Superblock>,
    number: u64,
    kind: FileKind,
    info: SpinLock<Info>,
    content: Content,
    xattrs: Xattrs,
    /// Whether it has the mark of a converted executable; a copy of the bit in `info`.
    marked: AtomicBool,
    /// Whether it holds the table of the directory above, while both are taken apart.
    is_way: AtomicBool,
    /// The content that a converted executable shows, and the version of the header file's content
    /// from which it was made.
    shown: SpinLock<Option<(u64, Arc<PageCache>)>>,
}

impl Drop for TmpInode {
    fn drop(&mut self) {
        self.superblock.inodes.fetch_sub(1, Ordering::Relaxed);
        if self.superblock.handles.is_any() {
            self.superblock.handles.forget(self.number);
        }
        let Content::Directory(entries) = &mut self.content else { return };
        // Trees may be deeper than the kernel's stack, so each directory is emptied before it is
        // dropped. One that does not fit into the list is taken apart without memory; a chain of
        // directories needs one place, which is on the stack.
        let mut pending: SmallVec<[Entries; 1]> = SmallVec::new();
        let mut next = Some(core::mem::take(entries.get_mut()));
        while let Some(entries) = next {
            for inode in entries.into_values() {
                let Some(mut last) = Arc::into_inner(inode) else { continue };
                let Content::Directory(entries) = &mut last.content else { continue };
                let entries = core::mem::take(entries.get_mut());
                if pending.make_room(1).is_ok() {
                    pending.push(entries);
                } else {
                    dismantle(entries);
                }
            }
            next = pending.pop();
        }
    }
}

/// Drops entries, and all that is in them, without memory and without recursion: the table of a
/// directory above is kept in the directory below it, whose own table is the one at hand, and in the
/// place of that directory stands the way on from there (`is_way`).
#[cold]
fn dismantle(mut here: Entries) {
    let has_names = |inode: &Arc<TmpInode>| Arc::strong_count(inode) == 1 && !inode.is_empty();
    let mut way: Option<Arc<TmpInode>> = None;
    here.retain(has_names);
    loop {
        let Some(any) = here.any_mut() else {
            let Some(below) = way.take() else { return };
            here = below.exchange(Entries::default());
            continue;
        };
        if any.is_way.load(Ordering::Relaxed) {
            way = here.remove_any();
            continue;
        }
        let inner = any.exchange(Entries::default());
        let below = match way.take() {
            Some(on) => Some(core::mem::replace(any, on)),
            None => here.remove_any(),
        };
        let Some(below) = below else { return };
        below.is_way.store(true, Ordering::Relaxed);
        below.exchange(here);
        here = inner;
        here.retain(has_names);
        way = Some(below);
    }
}

impl TmpInode {
    /// Makes a directory without a parent.
    pub(super) fn directory(
        superblock: &Arc<Superblock>,
        mode: u16,
        owner: Owner,
    ) -> Arc<TmpInode> {
        let content = Content::Directory(SpinLock::new(Entries::default()));
        TmpInode::build(superblock, FileKind::Directory, mode, owner, content)
    }

    /// Makes a regular file without a name.
    pub(super) fn nameless(superblock: &Arc<Superblock>, mode: u16, owner: Owner) -> Arc<TmpInode> {
        let content = Content::Regular(PageCache::memory_counted(0, superblock.clone()));
        let inode = TmpInode::build(superblock, FileKind::Regular, mode, owner, content);
        inode.info.lock().links = 0;
        inode
    }

    fn build(
        superblock: &Arc<Superblock>,
        kind: FileKind,
        mode: u16,
        owner: Owner,
        content: Content,
    ) -> Arc<TmpInode> {
        let now = Timestamp::now();
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let info = Info {
            mode,
            capabilities: false,
            uid: owner.uid,
            gid: owner.gid,
            links,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
        };
        superblock.inodes.fetch_add(1, Ordering::Relaxed);
        Arc::new(TmpInode {
            superblock: Arc::clone(superblock),
            number: superblock.next_number.fetch_add(1, Ordering::Relaxed),
            kind,
            info: SpinLock::new(info),
            content,
            xattrs: Xattrs::default(),
            marked: AtomicBool::new(u32::from(mode) & MARK != 0),
            is_way: AtomicBool::new(false),
            shown: SpinLock::new(None),
        })
    }

    /// Its number in the file system, which no other file ever has.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The directories in this one, with their names. `ENOMEM`.
    pub(super) fn directories(&self) -> Result<Vec<(Name, Arc<TmpInode>)>> {
        let entries = self.entries()?;
        let mut found = Vec::new();
        growth::relieved(|| {
            found.clear();
            let entries = entries.lock();
            found.make_room(entries.len())?;
            let directories = entries.from(0).filter(|(_, _, inode)| inode.is_directory());
            found.extend(directories.map(|(_, name, inode)| (Name::clone(name), inode.clone())));
            Ok(())
        })?;
        Ok(found)
    }

    fn entries(&self) -> Result<&SpinLock<Entries>> {
        match &self.content {
            Content::Directory(entries) => Ok(entries),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn regular(&self) -> Result<&Arc<PageCache>> {
        match &self.content {
            Content::Regular(page_cache) => Ok(page_cache),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the content that is shown: the original's, if this is a converted executable.
    #[inline]
    fn shown(&self) -> Result<Arc<PageCache>> {
        let raw = self.regular()?;
        if self.marked.load(Ordering::Relaxed) { self.converted(raw) } else { Ok(raw.clone()) }
    }

    #[cold]
    fn converted(&self, raw: &Arc<PageCache>) -> Result<Arc<PageCache>> {
        let version = raw.version();
        if let Some((of, page_cache)) = &*self.shown.lock()
            && *of == version
        {
            return Ok(page_cache.clone());
        }
        let source = Arc::new(view::InMemory(raw.clone()));
        let page_cache = view::view(source, raw.size())?.unwrap_or_else(|| raw.clone());
        let old = self.shown.lock().replace((version, page_cache.clone()));
        drop(old);
        Ok(page_cache)
    }

    /// Whether it shows other content than it holds; then it cannot be written.
    fn is_shown_converted(&self) -> bool {
        self.marked.load(Ordering::Relaxed)
            && match (self.regular(), self.shown()) {
                (Ok(raw), Ok(shown)) => !Arc::ptr_eq(raw, &shown),
                _ => false,
            }
    }

    /// Updates the times after a change of the directory.
    fn touch(&self, links: i32) {
        let now = Timestamp::now();
        note_day(now);
        let mut info = self.info.lock();
        info.modified = now;
        info.changed = now;
        info.links = info.links.saturating_add_signed(links);
    }

    /// Updates count and times after the inode gained or lost names.
    fn relinked(&self, links: i32) {
        let now = Timestamp::now();
        let mut info = self.info.lock();
        info.changed = now;
        info.links = info.links.saturating_add_signed(links);
    }

    /// Room for `more` names, which stays as long as the caller has the directory to itself.
    /// `ENOMEM`.
    fn make_room(&self, more: usize) -> Result<()> {
        let entries = self.entries()?;
        growth::relieved(|| entries.lock().make_room(more))
    }

    fn add(
        &self,
        name: &[u8],
        kind: FileKind,
        mode: u16,
        owner: Owner,
        content: Content,
    ) -> Result<Arc<dyn Inode>> {
        self.superblock.may_grow()?;
        self.make_room(1)?;
        let inode = TmpInode::build(&self.superblock, kind, mode, owner, content);
        self.entries()?.lock().insert(name, inode.clone())?;
        self.touch(if kind == FileKind::Directory { 1 } else { 0 });
        Ok(inode)
    }

    /// Puts other entries into a directory; returns those that were there.
    fn exchange(&self, entries: Entries) -> Entries {
        match &self.content {
            Content::Directory(own) => core::mem::replace(&mut *own.lock(), entries),
            _ => entries,
        }
    }

    fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether a directory has no entries; true for other files.
    fn is_empty(&self) -> bool {
        self.entries().map_or(true, |entries| entries.lock().is_empty())
    }
}

fn own(inode: &Arc<dyn Inode>) -> Result<Arc<TmpInode>> {
    downcast_arc(inode).ok_or(Errno::EXDEV)
}

impl Inode for TmpInode {
    fn attributes(&self) -> Attributes {
        let info = self.info.lock();
        let Info { mode, uid, gid, capabilities, .. } = *info;
        Attributes { kind: self.kind, mode, uid, gid, capabilities }
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok((self.superblock.device, self.number))
    }

    fn metadata(&self) -> Result<Metadata> {
        let (size, blocks, represents) = match &self.content {
            Content::Directory(entries) => {
                (entries.lock().len() as u64 * 20 + 40, 0, DeviceNumber::NONE)
            }
            Content::Regular(page_cache) => {
                let marked = self.marked.load(Ordering::Relaxed);
                let shown = if marked { self.shown().ok() } else { None };
                (
                    shown.as_ref().unwrap_or(page_cache).size(),
                    page_cache.resident() * 8,
                    DeviceNumber::NONE,
                )
            }
            Content::Symlink(text) => (text.len() as u64, 0, DeviceNumber::NONE),
            Content::Special(device) => (0, 0, *device),
        };
        let info = *self.info.lock();
        Ok(Metadata {
            device: self.superblock.device,
            number: self.number,
            kind: self.kind,
            mode: info.mode,
            links: info.links,
            uid: info.uid,
            gid: info.gid,
            represents,
            size,
            blocks,
            block_size: 4096,
            accessed: info.accessed,
            modified: info.modified,
            changed: info.changed,
            created: info.created,
        })
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        if let Some(size) = change.size {
            if size != 0 && self.is_shown_converted() {
                return Err(Errno::ETXTBSY);
            }
            content::truncate(self.regular()?, size)?;
        }
        let now = Timestamp::now();
        note_day(now);
        let mut info = self.info.lock();
        info.mode = change.mode.unwrap_or(info.mode);
        self.marked.store(u32::from(info.mode) & MARK != 0, Ordering::Relaxed);
        info.uid = change.uid.unwrap_or(info.uid);
        info.gid = change.gid.unwrap_or(info.gid);
        if change.size.is_some() {
            info.modified = now;
        }
        info.accessed = change.accessed.unwrap_or(info.accessed);
        info.modified = change.modified.unwrap_or(info.modified);
        info.changed = now;
        Ok(())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let entries = self.entries()?.lock();
        let inode = entries.get(name).ok_or(Errno::ENOENT)?;
        Ok(inode.clone())
    }

    fn create(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let page_cache = PageCache::memory_counted(0, self.superblock.clone());
        self.add(name, FileKind::Regular, mode, owner, Content::Regular(page_cache))
    }

    fn create_unnamed(&self, mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        Ok(TmpInode::nameless(&self.superblock, mode, owner))
    }

    fn mkdir(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let content = Content::Directory(SpinLock::new(Entries::default()));
        self.add(name, FileKind::Directory, mode, owner, content)
    }

    fn mknod(
        &self,
        name: &[u8],
        kind: FileKind,
        mode: u16,
        device: DeviceNumber,
        owner: Owner,
    ) -> Result<Arc<dyn Inode>> {
        self.add(name, kind, mode, owner, Content::Special(device))
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<Arc<dyn Inode>> {
        let content = Content::Symlink(target.to_vec());
        self.add(name, FileKind::Symlink, 0o777, owner, content)
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        let target = own(target)?;
        self.make_room(1)?;
        self.entries()?.lock().insert(name, target.clone())?;
        target.relinked(1);
        self.touch(0);
        Ok(())
    }

    fn unlink(&self, name: &[u8], _: &Arc<dyn Inode>) -> Result<()> {
        let removed = self.entries()?.lock().remove(name).ok_or(Errno::ENOENT)?;
        removed.relinked(-1);
        self.touch(0);
        Ok(())
    }

    fn rmdir(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        if !own(target)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        let removed = self.entries()?.lock().remove(name).ok_or(Errno::ENOENT)?;
        removed.relinked(-2);
        self.touch(-1);
        Ok(())
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
        if flags.contains(RenameFlags::EXCHANGE) {
            let other = replaced.ok_or(Errno::ENOENT)?;
            for (directory, name, inode) in [(self, name, &other), (&*target, new_name, &moved)] {
                if let Some(entry) = directory.entries()?.lock().get_mut(name) {
                    *entry = Arc::clone(inode);
                }
                inode.relinked(0);
            }
            let balance = i32::from(other.is_directory()) - i32::from(moved.is_directory());
            self.touch(balance);
            target.touch(-balance);
            return Ok(());
        }
        if replaced.as_ref().is_some_and(|replaced| !replaced.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        // All that can fail comes before the first change: the new name, and a whiteout in place of
        // the old one.
        if flags.contains(RenameFlags::WHITEOUT) {
            self.superblock.may_grow()?;
        }
        self.make_room(2)?;
        target.make_room(2)?;
        if let Some(replaced) = &replaced {
            target.entries()?.lock().remove(new_name);
            let directory = replaced.is_directory();
            replaced.relinked(if directory { -2 } else { -1 });
            target.touch(if directory { -1 } else { 0 });
        }
        target.entries()?.lock().insert(new_name, moved.clone())?;
        self.entries()?.lock().remove(name);
        let directory = i32::from(moved.is_directory());
        self.touch(-directory);
        target.touch(directory);
        moved.relinked(0);
        if flags.contains(RenameFlags::WHITEOUT) {
            let info = *moved.info.lock();
            let owner = Owner { uid: info.uid, gid: info.gid };
            self.mknod(name, FileKind::CharDevice, 0, DeviceNumber::NONE, owner)?;
        }
        Ok(())
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        /// Entries taken under the lock at a time; the sink copies to the program, which may sleep.
        const BATCH: usize = 32;
        let entries = self.entries()?;
        loop {
            let mut batch: Vec<(u64, u64, FileKind, Name)> = Vec::with_capacity(BATCH);
            {
                let entries = entries.lock();
                for (cookie, name, inode) in entries.from(*position).take(BATCH) {
                    batch.push((cookie, inode.number, inode.kind, Arc::clone(name)));
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            for (cookie, number, kind, name) in batch {
                if !sink.entry(number, kind, &name, cookie + 1) {
                    return Ok(());
                }
                *position = cookie + 1;
            }
        }
    }

    #[inline]
    fn note_access(&self, always: bool) {
        let mut info = self.info.lock();
        // relatime: if the access time is not after the last change, or is older than a day.
        if always
            || info.accessed <= info.modified
            || info.accessed <= info.changed
            || info.accessed.seconds < DAY_AGO.load(Ordering::Relaxed)
        {
            info.accessed = Timestamp::now();
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        match &self.content {
            Content::Symlink(text) => Ok(text.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn open(self: Arc<Self>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        self.regular()?;
        if self.marked.load(Ordering::Relaxed) {
            // If the text is missing, the open fails here. A converted executable can be replaced,
            // by another file or by truncating it, but not changed in place.
            let shown = self.shown()?;
            let keeps = request.writes() && request.flags & O_TRUNC == 0;
            if keeps && !Arc::ptr_eq(&shown, self.regular()?) {
                return Err(Errno::ETXTBSY);
            }
        }
        Ok(self)
    }

    fn page_cache(&self) -> Option<Arc<PageCache>> {
        self.shown().ok()
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if name == view::ATTRIBUTE {
            let raw = self.regular().map_err(|_| Errno::ENODATA)?;
            if !self.marked.load(Ordering::Relaxed) {
                return Err(Errno::ENODATA);
            }
            return view::first_page(&view::InMemory(raw.clone()), raw.size());
        }
        kept_xattr(name)?;
        self.xattrs.get(name)
    }

    fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, flags: u32) -> Result<()> {
        kept_xattr(name)?;
        self.xattrs.set(name, value, flags)?;
        let mut info = self.info.lock();
        info.changed = Timestamp::now();
        if name == CAPABILITIES {
            // Of two changes at once, the second one to come here finds what both left.
            info.capabilities = self.xattrs.has(name);
        }
        Ok(())
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        self.xattrs.list()
    }
}

/// Accepts the attributes that Linux 6.1's tmpfs keeps: `trusted.` and `security.`, but not
/// `user.`. `EINVAL` for a prefix without a name after it.
fn kept_xattr(name: &[u8]) -> Result<()> {
    let suffix = name.strip_prefix(b"trusted.").or_else(|| name.strip_prefix(b"security."));
    match suffix {
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP),
    }
}

impl FileOps for TmpInode {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, file: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let count = if self.marked.load(Ordering::Relaxed) {
            content::read(&*self.shown()?, offset, out)?
        } else {
            content::read(self.regular()?, offset, out)?
        };
        if file.updates_access_time() {
            self.note_access(file.location().mount.notes_every_access());
        }
        Ok(count)
    }

    fn write(&self, file: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let count = content::write(self.regular()?, file, offset, input)?;
        if count != 0 {
            let now = Timestamp::now();
            let mut info = self.info.lock();
            info.modified = now;
            info.changed = now;
        }
        Ok(count)
    }

    fn seek(&self, file: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        content::seek(self.regular()?, file, position, offset, whence)
    }

    fn allocate(&self, _: &OpenFile, mode: u32, offset: u64, length: u64) -> Result<()> {
        content::allocate(self.regular()?, mode, offset, length)?;
        self.touch(0);
        Ok(())
    }
}
