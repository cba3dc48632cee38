//! Inodes of the overlay: the inodes of each layer, look-up, metadata.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_overlay_rules::{Merge, Outcome, Seen};

use super::Overlay;
use super::change::New;
use super::copy_up::Content;
use crate::page_cache::cache::PageCache;
use crate::reclaim::growth::Grow;
use crate::schedule::Mutex;
use crate::vfs::inode::{
    Attributes, Change, DeviceNumber, DirectorySink, FileKind, Inode, Metadata, Owner, RenameFlags,
    downcast_arc,
};
use crate::vfs::open_file::{FileOps, OpenRequest};

/// The attribute of a directory that hides everything below it; its value is `y`.
pub const OPAQUE: &[u8] = b"trusted.overlay.opaque";
/// Attributes with this prefix are private to the overlay and not shown.
pub const PRIVATE: &[u8] = b"trusted.overlay.";

/// The place where a file that is not in the upper layer yet will appear there.
pub struct Place {
    pub parent: Arc<Node>,
    pub name: Vec<u8>,
}

/// A file, directory, link or device of the overlay.
pub struct Node {
    pub overlay: Arc<Overlay>,
    pub kind: FileKind,
    /// The number that it shows.
    pub number: u64,
    /// Itself, for operations that keep a node.
    this: Weak<Node>,
    /// The first inode it was made from: the upper one or the topmost lower one.
    first: Arc<dyn Inode>,
    upper: SpinLock<Option<Arc<dyn Inode>>>,
    /// The inodes in lower layers, topmost first, each with its layer; at most one unless this is a
    /// directory.
    pub lowers: Vec<(usize, Arc<dyn Inode>)>,
    /// Its place, while it is not in the upper layer; `None` for the root and for a node that was
    /// removed meanwhile.
    pub place: SpinLock<Option<Place>>,
    /// Held over changes of this directory's entries.
    pub changes: Mutex<()>,
    /// Held over the copy-up of this node.
    pub copying: Mutex<()>,
}

/// Whether this is a whiteout.
pub fn is_whiteout(inode: &Arc<dyn Inode>) -> bool {
    inode.attributes().kind == FileKind::CharDevice
        && inode.metadata().is_ok_and(|metadata| metadata.represents == DeviceNumber::NONE)
}

/// Returns the entry `name` of a layer's directory.
pub fn entry(directory: &Arc<dyn Inode>, name: &[u8]) -> Result<Option<Arc<dyn Inode>>> {
    match directory.lookup(name) {
        Ok(inode) => Ok(Some(inode)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Classifies a layer's entry for the rules.
pub fn seen(found: Option<&Arc<dyn Inode>>) -> Seen {
    match found {
        None => Seen::Absent,
        Some(inode) if is_whiteout(inode) => Seen::Whiteout,
        Some(inode) if inode.attributes().kind == FileKind::Directory => {
            Seen::Directory { opaque: inode.get_xattr(OPAQUE).is_ok_and(|value| value == b"y") }
        }
        Some(_) => Seen::Other,
    }
}

impl Node {
    fn build(
        overlay: &Arc<Overlay>,
        upper: Option<Arc<dyn Inode>>,
        lowers: Vec<(usize, Arc<dyn Inode>)>,
        place: Option<Place>,
    ) -> Result<Arc<Self>> {
        let lower = lowers.first().map(|(_, inode)| inode);
        let first = Arc::clone(upper.as_ref().or(lower).ok_or(Errno::ENOENT)?);
        let number = match lowers.first() {
            Some((layer, inode)) => Overlay::lower_number(*layer, inode.metadata()?.number),
            None => overlay.upper_number(first.metadata()?.number),
        };
        Ok(Arc::new_cyclic(|this| Self {
            overlay: Arc::clone(overlay),
            kind: first.attributes().kind,
            number,
            this: this.clone(),
            first,
            place: SpinLock::new(if upper.is_some() { None } else { place }),
            upper: SpinLock::new(upper),
            lowers,
            changes: Mutex::new(()),
            copying: Mutex::new(()),
        }))
    }

    /// Makes the root directory.
    pub fn root(
        overlay: &Arc<Overlay>,
        upper: Option<Arc<dyn Inode>>,
        lowers: Vec<(usize, Arc<dyn Inode>)>,
    ) -> Result<Arc<Self>> {
        Self::build(overlay, upper, lowers, None)
    }

    /// Returns the node of a file that is only in the upper layer. All names of one file share one
    /// node.
    pub fn of_upper(overlay: &Arc<Overlay>, upper: Arc<dyn Inode>) -> Result<Arc<Self>> {
        let metadata = upper.metadata()?;
        let shared = metadata.links > 1 && metadata.kind != FileKind::Directory;
        if shared
            && let Some(node) =
                overlay.linked.lock().get(&metadata.number).and_then(|node| node.upgrade())
        {
            return Ok(node);
        }
        let node = Self::build(overlay, Some(upper), Vec::new(), None)?;
        if shared { node.share(metadata.number) } else { Ok(node) }
    }

    /// Makes this the node of an upper file with several names; if the file has a node already,
    /// returns that one.
    pub fn share(self: Arc<Self>, upper_number: u64) -> Result<Arc<Self>> {
        let mut linked = self.overlay.linked.lock();
        if let Some(other) = linked.get(&upper_number).and_then(|node| node.upgrade()) {
            drop(linked);
            return Ok(other);
        }
        linked.insert(upper_number, Arc::downgrade(&self));
        drop(linked);
        Ok(self)
    }

    /// Returns the inode in the upper layer, if there is one.
    pub fn upper(&self) -> Option<Arc<dyn Inode>> {
        self.upper.lock().clone()
    }

    /// Notes that it is in the upper layer now.
    pub fn set_upper(&self, inode: Arc<dyn Inode>) {
        let old = self.upper.lock().replace(inode);
        let place = self.place.lock().take();
        drop((old, place));
    }

    /// Returns the inode that counts: the upper one, or the topmost lower one.
    pub fn real(&self) -> Arc<dyn Inode> {
        self.upper().unwrap_or_else(|| Arc::clone(&self.first))
    }

    /// Whether a lower layer has a visible entry `name` in this directory.
    pub fn lower_has(&self, name: &[u8]) -> Result<bool> {
        for (_, lower) in &self.lowers {
            match seen(entry(lower, name)?.as_ref()) {
                Seen::Absent => {}
                Seen::Whiteout => return Ok(false),
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    fn find(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>> {
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let mut merge = Merge::new();
        let mut upper = None;
        if let Some(directory) = self.upper() {
            let found = entry(&directory, name)?;
            if merge.see(seen(found.as_ref())) {
                upper = found;
            }
        }
        let mut lowers = Vec::new();
        for (layer, directory) in &self.lowers {
            if !merge.goes_on() {
                break;
            }
            let found = entry(directory, name)?;
            if merge.see(seen(found.as_ref()))
                && let Some(inode) = found
            {
                lowers.make_room(1)?;
                lowers.push((*layer, inode));
            }
        }
        if merge.outcome() == Outcome::Absent {
            return Err(Errno::ENOENT);
        }
        match (upper, lowers.is_empty()) {
            (Some(upper), true) => Self::of_upper(&self.overlay, upper),
            (upper, _) => {
                let place = Place { parent: Arc::clone(self), name: name.to_vec() };
                Self::build(&self.overlay, upper, lowers, Some(place))
            }
        }
    }

    /// Returns the node behind an inode of the file layer.
    pub fn from_inode(inode: &Arc<dyn Inode>) -> Result<Arc<Self>> {
        downcast_arc::<Self>(inode).ok_or(Errno::EXDEV)
    }

    /// Returns an `Arc` of this node; the file layer calls with a plain reference.
    pub fn this(&self) -> Result<Arc<Self>> {
        self.this.upgrade().ok_or(Errno::EIO)
    }
}

impl Inode for Node {
    fn attributes(&self) -> Attributes {
        self.real().attributes()
    }

    fn metadata(&self) -> Result<Metadata> {
        let mut metadata = self.real().metadata()?;
        metadata.device = self.overlay.device;
        metadata.number = self.number;
        if self.kind == FileKind::Directory
            && self.lowers.len() + usize::from(self.upper().is_some()) > 1
        {
            // As on Linux: the number of directories in a merged directory is unknown, which a
            // count of 1 says.
            metadata.links = 1;
        }
        Ok(metadata)
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        let content = if change.size == Some(0) { Content::Drop } else { Content::Keep };
        self.copy_up(content)?.set_metadata(change)
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        Ok(self.this()?.find(name)?)
    }

    fn create(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        self.make(name, New::File { mode }, owner)
    }

    fn create_unnamed(&self, mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        let upper = self.copy_up(Content::Keep)?;
        Ok(Node::of_upper(&self.overlay, upper.create_unnamed(mode, owner)?)?)
    }

    fn mkdir(&self, name: &[u8], mode: u16, owner: Owner) -> Result<Arc<dyn Inode>> {
        self.make(name, New::Directory { mode }, owner)
    }

    fn mknod(
        &self,
        name: &[u8],
        kind: FileKind,
        mode: u16,
        device: DeviceNumber,
        owner: Owner,
    ) -> Result<Arc<dyn Inode>> {
        if kind == FileKind::CharDevice && device == DeviceNumber::NONE {
            // Such a node would be a whiteout.
            return Err(Errno::EPERM);
        }
        self.make(name, New::Node { kind, mode, device }, owner)
    }

    fn symlink(&self, name: &[u8], target: &[u8], owner: Owner) -> Result<Arc<dyn Inode>> {
        self.make(name, New::Symlink { target }, owner)
    }

    fn link(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.link_to(name, &Node::from_inode(target)?)
    }

    fn unlink(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.remove(name, &Node::from_inode(target)?)
    }

    fn rmdir(&self, name: &[u8], target: &Arc<dyn Inode>) -> Result<()> {
        self.remove(name, &Node::from_inode(target)?)
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
        let replaced = replaced.map(Node::from_inode).transpose()?;
        let (moved, target) = (Node::from_inode(moved)?, Node::from_inode(new_directory)?);
        self.move_entry((name, &moved), (&target, new_name, replaced.as_ref()), flags)
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        if self.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.enumerate(position, sink)
    }

    fn note_access(&self, always: bool) {
        // Lower layers are only read.
        let upper = self.upper.lock().clone();
        if let Some(upper) = upper {
            upper.note_access(always);
        }
    }

    fn read_link(&self) -> Result<Vec<u8>> {
        self.real().read_link()
    }

    fn open(self: Arc<Self>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        super::open::open(self, request)
    }

    fn page_cache(&self) -> Option<Arc<PageCache>> {
        self.real().page_cache()
    }

    fn earlier_page_cache(&self) -> Option<Arc<PageCache>> {
        let (first, now) = (self.first.page_cache()?, self.upper()?.page_cache()?);
        (!Arc::ptr_eq(&first, &now)).then_some(first)
    }

    fn get_xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        if name.starts_with(PRIVATE) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.real().get_xattr(name)
    }

    fn set_xattr(&self, name: &[u8], value: Option<&[u8]>, flags: u32) -> Result<()> {
        if name.starts_with(PRIVATE) {
            return Err(Errno::EOPNOTSUPP);
        }
        self.copy_up(Content::Keep)?.set_xattr(name, value, flags)
    }

    fn list_xattr(&self) -> Result<Vec<u8>> {
        let all = self.real().list_xattr()?;
        let mut shown = Vec::new();
        for name in all.split_inclusive(|&byte| byte == 0) {
            if !name.starts_with(PRIVATE) {
                shown.make_room(name.len())?;
                shown.extend_from_slice(name);
            }
        }
        Ok(shown)
    }

    fn sync(&self, data_only: bool) -> Result<()> {
        self.upper().map_or(Ok(()), |upper| upper.sync(data_only))
    }
}
