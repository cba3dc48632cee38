//! A file of the tree, and the tree.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};
use hayate_ninep::reply;
use hayate_ninep::request;
use hayate_ninep::request::REMOVE_DIRECTORY;

use super::client::Fid;
use super::directory::{OpenDirectory, enumerate};
use super::file::{Opened, OpenedFile};
use super::pages::{Content, Pages};
use crate::page_cache::cache::PageCache;
use crate::reclaim;
use crate::schedule::Mutex;
use crate::vfs::anonymous::empty_root;
use crate::vfs::dentry::HeldNames;
use crate::vfs::filesystem::{Caching, FileSystem, RootHandle, Usage, anonymous_device};
use crate::vfs::inode::*;
use crate::vfs::open_file::flags::*;
use crate::vfs::open_file::{FileOps, OpenRequest};

/// `V9FS_MAGIC`.
const MAGIC: u64 = 0x0102_1997;

/// A file whose content changed less than so many seconds ago may change again without another
/// time: the host's clock of files ticks some hundred times a second.
const SETTLED: i64 = 2;

/// Flags of an open that are the server's concern. It makes no file by an open, does not empty one,
/// and its descriptor is no other program's.
const PASSED: u32 = O_ACCMODE | O_APPEND | O_DSYNC | O_SYNC | O_NOATIME | O_LARGEFILE;

/// The state of a file, as the server told it last.
#[derive(Clone, Copy)]
struct Known {
    attributes: reply::Attributes,
    /// Whether another change of the content would show in the attributes.
    is_settled: bool,
    /// Counts changes of the size that were made here.
    resizes: u64,
}

/// A file.
pub struct Node {
    pub(super) volume: Arc<Volume>,
    kind: FileKind,
    number: u64,
    /// The latest walk to it.
    fid: SpinLock<Arc<Fid>>,
    /// The fid by which it was made, open for both, until it is opened: its maker may write it even
    /// if its permissions let nobody do so.
    fresh: SpinLock<Option<Arc<Fid>>>,
    /// The latest fid that is open for reading.
    reader: SpinLock<Weak<Fid>>,
    known: SpinLock<Known>,
    /// Its pages, for mappings.
    pub(super) content: Once<Arc<PageCache>>,
    /// A fid that is open for writing, once a mapping could change pages.
    pub(super) writer: SpinLock<Option<Arc<Fid>>>,
    /// Held by a write to the end, from the question where that is.
    pub(super) appending: Mutex<()>,
    /// Itself, for the source of its pages.
    pub(super) this: Weak<Node>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.volume.forget(self.key());
    }
}

fn is_settled(attributes: &reply::Attributes) -> bool {
    let age = Timestamp::now().seconds.checked_sub_unsigned(attributes.changed.0);
    age.is_some_and(|age| age > SETTLED)
}

fn timestamp((seconds, nanoseconds): (u64, u64)) -> Timestamp {
    Timestamp { seconds: seconds as i64, nanoseconds: nanoseconds as u32 }
}

/// A time for the server; one before 1970 it takes as a negative number, as Linux sends it.
fn seconds(time: Timestamp) -> (u64, u64) {
    (time.seconds as u64, time.nanoseconds.into())
}

/// Returns the node that an inode of this type is.
fn own(inode: &Arc<dyn Inode>) -> Result<&Node> {
    downcast(inode).ok_or(Errno::EXDEV)
}

impl Node {
    fn new(
        volume: Arc<Volume>,
        kind: FileKind,
        fid: Arc<Fid>,
        attributes: reply::Attributes,
    ) -> Arc<Node> {
        let is_settled = is_settled(&attributes);
        Arc::new_cyclic(|this| Node {
            volume,
            kind,
            number: attributes.qid.path,
            fid: SpinLock::new(fid),
            fresh: SpinLock::new(None),
            reader: SpinLock::new(Weak::new()),
            known: SpinLock::new(Known { attributes, is_settled, resizes: 0 }),
            content: Once::new(),
            writer: SpinLock::new(None),
            appending: Mutex::new(()),
            this: this.clone(),
        })
    }

    fn kind(&self) -> FileKind {
        self.kind
    }

    /// Which file it is.
    pub(super) fn key(&self) -> Key {
        (self.number, self.kind as u8)
    }

    /// Returns the fid of the latest walk to it.
    pub(super) fn fid(&self) -> Arc<Fid> {
        Arc::clone(&self.fid.lock())
    }

    /// `ESTALE` if the server speaks of another file.
    fn check(&self, qid: hayate_ninep::Qid) -> Result<()> {
        if qid.path == self.number { Ok(()) } else { Err(Errno::ESTALE) }
    }

    /// Takes what a walk found.
    fn found(&self, fid: Arc<Fid>, attributes: reply::Attributes) {
        let old = core::mem::replace(&mut *self.fid.lock(), fid);
        drop(old);
        let known = *self.known.lock();
        if attributes.size < known.attributes.size {
            // It may be older than what a write here has added.
            if let Ok(attributes) = self.ask_server() {
                self.learn(attributes, true, known.resizes);
            }
            return;
        }
        self.learn(attributes, true, known.resizes);
    }

    /// Takes attributes. Pages that may not be those of the file any more are taken out; `by_name`:
    /// the file may be opened now, so that is the last moment. When the server was asked,
    /// `resizes` changes of the size had been made here.
    fn learn(&self, attributes: reply::Attributes, by_name: bool, resizes: u64) {
        let is_settled = is_settled(&attributes);
        let mut known = self.known.lock();
        if attributes.size < known.attributes.size && known.resizes != resizes {
            // The answer may be older than what a write here has added.
            return;
        }
        let old = *known;
        *known = Known { attributes, is_settled, ..old };
        drop(known);
        let stamp = |of: &reply::Attributes| (of.size, of.modified, of.changed, of.qid.version);
        let differs = stamp(&old.attributes) != stamp(&attributes);
        if let Some(content) = self.content.get()
            && (differs || by_name && !old.is_settled)
        {
            content.refresh(0, u64::MAX >> 12, || self.known_size());
            self.leave_changed();
        }
    }

    fn known_size(&self) -> u64 {
        self.known.lock().attributes.size
    }

    /// Takes the size that a change here has given it.
    pub(super) fn resized(&self, size: u64) {
        let mut known = self.known.lock();
        known.attributes.size = size;
        known.resizes += 1;
    }

    /// Notes that a write here reached to `end`. Returns the size.
    pub(super) fn grew(&self, end: u64) -> u64 {
        let mut known = self.known.lock();
        if end > known.attributes.size {
            known.attributes.size = end;
            known.resizes += 1;
        }
        known.attributes.size
    }

    /// Asks for the attributes. A file that the server does not find any more by the path of its
    /// fid, but that is open, has the last ones, and no name.
    pub(super) fn ask(&self) -> Result<reply::Attributes> {
        let resizes = self.known.lock().resizes;
        match self.ask_server() {
            Ok(attributes) => {
                self.learn(attributes, false, resizes);
                Ok(attributes)
            }
            Err(error @ (Errno::ENOENT | Errno::ESTALE)) => {
                let mut known = self.known.lock();
                // A directory that was removed here may be somebody's working directory.
                if self.kind != FileKind::Regular && known.attributes.links != 0 {
                    return Err(error);
                }
                known.attributes.links = 0;
                Ok(known.attributes)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks for the attributes, by an open fid too if there is no file with the path of the other.
    fn ask_server(&self) -> Result<reply::Attributes> {
        let opened = self.reader.lock().upgrade();
        let asked = self.fid().attributes().and_then(|found| self.check(found.qid).map(|()| found));
        match (asked, &opened) {
            // A server that asks its own descriptor still finds it.
            (Err(Errno::ENOENT | Errno::ESTALE), Some(opened)) => {
                opened.attributes().and_then(|found| self.check(found.qid).map(|()| found))
            }
            (asked, _) => asked,
        }
    }

    /// Returns the node of a file that was just made here.
    fn made(&self, name: &[u8], owner: Owner) -> Result<Arc<Node>> {
        let fid = self.fid().walk(name)?;
        let mut attributes = fid.attributes()?;
        let may_give = &self.volume.may_give_away;
        if attributes.uid != owner.uid && may_give.load(Ordering::Relaxed) {
            // The server makes files for the user that it runs as. A server that may give them away
            // does; one that may not has said by `security_model=none` that they stay its user's.
            let change = request::Change { uid: Some(owner.uid), ..request::Change::default() };
            match fid.change(change) {
                Ok(()) => attributes = fid.attributes()?,
                Err(Errno::EPERM) => may_give.store(false, Ordering::Relaxed),
                Err(error) => return Err(error),
            }
        }
        self.volume.node(fid, attributes)
    }

    fn open_anew(&self, flags: u32) -> Result<Arc<Fid>> {
        let fid = Arc::new(self.fid().again()?);
        let flags = match flags & O_ACCMODE {
            // Asks for both rights, and gives neither.
            O_ACCMODE => flags & !O_ACCMODE | O_RDWR,
            _ => flags,
        };
        let opened = fid.open(flags & PASSED | O_LARGEFILE);
        // The name leads elsewhere by now: the open begins anew.
        let opened =
            opened.map_err(|error| if error == Errno::ENOENT { Errno::ESTALE } else { error });
        self.check(opened?)?;
        Ok(fid)
    }
}

impl Content for Node {
    fn reader(&self) -> Result<Arc<Fid>> {
        if let Some(fid) = self.reader.lock().upgrade() {
            return Ok(fid);
        }
        let fid = Arc::new(self.fid().again()?);
        self.check(fid.open(O_RDONLY | O_LARGEFILE)?)?;
        *self.reader.lock() = Arc::downgrade(&fid);
        Ok(fid)
    }

    fn writer(&self) -> Result<Arc<Fid>> {
        self.writer.lock().clone().ok_or(Errno::EIO)
    }

    fn end_of_pages(&self) -> u64 {
        self.content.get().map_or(0, |content| content.size())
    }

    fn prepare(&self, index: u64) -> Result<()> {
        self.prepare_page(index)
    }

    fn let_go(&self) {
        self.leave_changed();
    }
}

impl Node {
    /// Opens it with flags of `open(2)`.
    pub(super) fn open_at_server(&self, flags: u32) -> Result<Arc<Fid>> {
        let fresh = self.fresh.lock().take();
        let special = flags & PASSED & !(O_ACCMODE | O_LARGEFILE);
        let opened = match fresh {
            Some(fid) if special == 0 => Ok(fid),
            fresh => match (self.open_anew(flags), fresh) {
                (Err(Errno::EACCES), Some(fid)) => Ok(fid),
                (opened, _) => opened,
            },
        };
        let fid = opened?;
        if flags & O_ACCMODE != O_WRONLY {
            *self.reader.lock() = Arc::downgrade(&fid);
        }
        Ok(fid)
    }
}

impl Inode for Node {
    fn attributes(&self) -> Attributes {
        let known = self.known.lock();
        let of = &known.attributes;
        let mode = (of.mode & 0o7777) as u16;
        Attributes { kind: self.kind, mode, uid: of.uid, gid: of.gid, capabilities: false }
    }

    fn metadata(&self) -> Result<Metadata> {
        let of = self.ask()?;
        let is_device = matches!(self.kind, FileKind::CharDevice | FileKind::BlockDevice);
        Ok(Metadata {
            device: self.volume.device,
            number: self.number,
            kind: self.kind,
            mode: (of.mode & 0o7777) as u16,
            links: of.links.try_into().unwrap_or(u32::MAX),
            uid: of.uid,
            gid: of.gid,
            represents: if is_device { host_device(of.device) } else { DeviceNumber::NONE },
            size: of.size,
            blocks: of.blocks,
            block_size: of.block_size.clamp(512, 1 << 20) as u32,
            accessed: timestamp(of.accessed),
            modified: timestamp(of.modified),
            changed: timestamp(of.changed),
            created: Timestamp::default(),
        })
    }

    fn identity(&self) -> Result<(u64, u64)> {
        Ok((self.volume.device, self.number))
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        let asked = request::Change {
            mode: change.mode.map(u32::from),
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            accessed: change.accessed.map(seconds),
            modified: change.modified.map(seconds),
        };
        self.change(asked)?;
        self.ask().map(drop)
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let fid = self.fid().walk(name)?;
        let attributes = fid.attributes()?;
        Ok(self.volume.node(fid, attributes)?)
    }

    fn create(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let flags = O_CREAT | O_EXCL | O_RDWR | O_LARGEFILE;
        let opened = Arc::new(self.fid().again()?);
        opened.create(name, flags, FileKind::Regular.mode_bits() | u32::from(mode), owner.gid)?;
        let made = self.made(name, owner)?;
        let old = made.fresh.lock().replace(opened);
        drop(old);
        Ok(made)
    }

    fn mkdir(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        self.fid().mkdir(name, FileKind::Directory.mode_bits() | u32::from(mode), owner.gid)?;
        Ok(self.made(name, owner)?)
    }

    fn mknod(
        &self,
        name: &[u8],
        kind: FileKind,
        mode: u16,
        device: DeviceNumber,
        owner: Owner,
    ) -> Result<Arc<dyn Inode>> {
        let mode = kind.mode_bits() | u32::from(mode);
        self.fid().mknod(name, mode, (device.major, device.minor), owner.gid)?;
        Ok(self.made(name, owner)?)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<Arc<dyn Inode>> {
        self.fid().symlink(name, target, owner.gid)?;
        Ok(self.made(name, owner)?)
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.fid().link(&own(target)?.fid(), name)
    }

    fn unlink(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.fid().unlink(name, 0)?;
        own(target)?.lose_name();
        Ok(())
    }

    fn rmdir(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.fid().unlink(name, REMOVE_DIRECTORY)?;
        own(target)?.lose_name();
        Ok(())
    }

    fn rename(
        &self,
        name: &[u8],
        _: &Arc<dyn Inode>,
        new_directory: &Arc<dyn Inode>,
        new_name: &[u8],
        replaced: Option<&Arc<dyn Inode>>,
        flags: RenameFlags,
    ) -> Result<()> {
        // The protocol knows no flags (`v9fs_vfs_rename`); that the new name is free was seen, but
        // may have changed.
        if !flags.is_empty() {
            return Err(Errno::EINVAL);
        }
        self.fid().rename(name, &own(new_directory)?.fid(), new_name)?;
        if let Some(replaced) = replaced {
            own(replaced)?.lose_name();
        }
        Ok(())
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        let fid = self.open_directory_fid()?;
        enumerate(&fid, position, sink)
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        if self.kind != FileKind::Symlink {
            return Err(Errno::EINVAL);
        }
        let frame = reclaim::frame()?;
        self.fid().read_link(&frame)
    }

    fn open(self: Arc<Self>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        if self.kind != FileKind::Regular {
            return Err(Errno::ENXIO);
        }
        let fid = self.open_at_server(request.flags)?;
        Ok(Arc::new(OpenedFile::new(self, fid, request.flags)))
    }

    fn open_directory(self: Arc<Self>) -> Result<Option<Arc<dyn FileOps>>> {
        let fid = self.open_directory_fid()?;
        Ok(Some(Arc::new(OpenDirectory::new(fid))))
    }

    fn page_cache(&self) -> Option<Arc<PageCache>> {
        if self.kind != FileKind::Regular {
            return None;
        }
        Some(Arc::clone(self.content.call_once(|| {
            let pages = Pages(self.this.clone() as Weak<dyn Content>);
            PageCache::written_back(self.known_size(), Arc::new(pages))
        })))
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        match self.kind {
            FileKind::Directory => self.open_directory_fid()?.sync(data_only),
            FileKind::Regular => {
                self.settle_all()?;
                self.reader()?.sync(data_only)
            }
            _ => Ok(()),
        }
    }
}

impl Node {
    fn open_directory_fid(&self) -> Result<Fid> {
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let fid = self.fid().again()?;
        self.check(fid.open(O_RDONLY | O_DIRECTORY | O_LARGEFILE)?)?;
        Ok(fid)
    }

    /// Notes that a name of it was removed here: with the last one, the server finds it no more.
    fn lose_name(&self) {
        let mut known = self.known.lock();
        let links = &mut known.attributes.links;
        *links = if self.kind == FileKind::Directory { 0 } else { links.saturating_sub(1) };
    }
}

/// Returns the number of a device from the host's encoding (`makedev(3)` of glibc).
fn host_device(device: u64) -> DeviceNumber {
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff);
    DeviceNumber::new(major as u32, minor as u32)
}

/// Which file it is: the server's number, and the kind, which a number that is used again may
/// change.
pub type Key = (u64, u8);

/// A mounted tree.
pub struct Volume {
    device: u64,
    nodes: SpinLock<BTreeMap<Key, Weak<Node>>>,
    held: HeldNames,
    /// The files with pages that the server does not have yet.
    pub(super) changed: SpinLock<BTreeMap<Key, Arc<Node>>>,
    /// Whether the server may give files to another user, as far as is known.
    may_give_away: AtomicBool,
    root: RootHandle<Node>,
    /// Itself; nodes keep a reference.
    this: Weak<Volume>,
}

impl Volume {
    pub fn new(root: Fid) -> Result<Arc<Volume>> {
        let volume = Arc::new_cyclic(|this| Volume {
            device: anonymous_device(),
            nodes: SpinLock::new(BTreeMap::new()),
            held: HeldNames::default(),
            changed: SpinLock::new(BTreeMap::new()),
            may_give_away: AtomicBool::new(true),
            root: RootHandle::empty(),
            this: this.clone(),
        });
        let attributes = root.attributes()?;
        let root = volume.node(root, attributes)?;
        if root.kind() != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        volume.root.set(root);
        Ok(volume)
    }

    /// Returns the node of a file that was walked to.
    fn node(&self, fid: Fid, attributes: reply::Attributes) -> Result<Arc<Node>> {
        let kind = FileKind::from_mode(attributes.mode).ok_or(Errno::EIO)?;
        let key = (attributes.qid.path, kind as u8);
        let fid = Arc::new(fid);
        let find = || self.nodes.lock().get(&key).and_then(Weak::upgrade);
        let known = find();
        if let Some(node) = known {
            node.found(fid, attributes);
            return Ok(node);
        }
        let volume = self.this.upgrade().ok_or(Errno::EIO)?;
        let node = Node::new(volume, kind, Arc::clone(&fid), attributes);
        let mut nodes = self.nodes.lock();
        // Another processor may have inserted it meanwhile.
        if let Some(other) = nodes.get(&key).and_then(Weak::upgrade) {
            drop(nodes);
            other.found(fid, attributes);
            return Ok(other);
        }
        nodes.insert(key, Arc::downgrade(&node));
        Ok(node)
    }

    /// Removes the entry of a node that ends.
    fn forget(&self, key: Key) {
        let mut nodes = self.nodes.lock();
        // A new node may have taken its place already.
        if nodes.get(&key).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&key);
        }
    }
}

impl FileSystem for Volume {
    fn type_name(&self) -> &'static str {
        "9p"
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        match self.root.get() {
            Some(root) => root,
            None => empty_root(),
        }
    }

    fn usage(&self) -> Usage {
        let known = Usage { magic: MAGIC, block_size: 4096, name_length: 255, ..Usage::default() };
        let Some(Ok(numbers)) = self.root.get().map(|root| root.fid().numbers()) else {
            return known;
        };
        Usage {
            block_size: numbers.block_size.into(),
            blocks: numbers.blocks,
            free: numbers.free,
            available: numbers.available,
            files: numbers.files,
            files_free: numbers.files_free,
            id: numbers.id,
            name_length: numbers.name_length.into(),
            ..known
        }
    }

    fn caching(&self) -> Caching {
        Caching::InUse
    }

    fn held(&self) -> Option<&HeldNames> {
        Some(&self.held)
    }

    fn sync(&self) -> Result<()> {
        self.sync_changed()
    }

    fn options(&self) -> String {
        String::from(",access=any,trans=virtio")
    }
}
