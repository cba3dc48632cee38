//! The overlay and its nodes: which inode of which layer a node stands for, and how it is found.
//!
//! The files above add what nodes do: `merge.rs` enumerates, `copy_up.rs` copies up, `change.rs`
//! changes directories, `open.rs` opens, and `inode.rs` is the interface of all that.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_overlay_rules::{Merge, Outcome, Seen};

use crate::reclaim::growth::Grow;
use crate::schedule::Mutex;
use crate::vfs::filesystem::RootHandle;
use crate::vfs::inode::{DeviceNumber, FileKind, Inode, downcast_arc};
use crate::vfs::mount::Location;

/// The bit at which a number holds the layer.
const LAYER_SHIFT: u32 = 40;

/// The writable layer.
pub(super) struct Upper {
    pub(super) root: Arc<dyn Inode>,
    /// The directory where new entries are made before they are put in place.
    pub(super) work: Arc<dyn Inode>,
    /// Held over changes in `work`.
    pub(super) working: Mutex<()>,
    /// Keeps the mount in use.
    pub(super) location: Location,
}

/// A mounted overlay.
pub struct Overlay {
    pub(super) device: u64,
    pub(super) upper: Option<Upper>,
    /// Lower layers, topmost first; the references keep their mounts in use.
    pub(super) lowers: Vec<Location>,
    pub(super) options: String,
    pub(super) root: RootHandle<Node>,
    pub(super) next_name: AtomicU64,
    /// Nodes of upper files with several names, by upper number.
    pub(super) linked: SpinLock<BTreeMap<u64, Weak<Node>>>,
    /// The numbers that copied-up files show, by upper number.
    pub(super) origins: SpinLock<BTreeMap<u64, u64>>,
}

/// The attribute of a directory that hides everything below it; its value is `y`.
pub const OPAQUE: &[u8] = b"trusted.overlay.opaque";
/// Attributes with this prefix are private to the overlay and not shown.
pub const PRIVATE: &[u8] = b"trusted.overlay.";

/// The place where a file that is not in the upper layer yet will appear there.
pub struct UpperPlace {
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
    pub(super) this: Weak<Node>,
    /// The first inode it was made from: the upper one or the topmost lower one.
    pub(super) first: Arc<dyn Inode>,
    pub(super) upper: SpinLock<Option<Arc<dyn Inode>>>,
    /// The inodes in lower layers, topmost first, each with its layer; at most one unless this is a
    /// directory.
    pub lowers: Vec<(usize, Arc<dyn Inode>)>,
    /// Its place, while it is not in the upper layer; `None` for the root and for a node that was
    /// removed meanwhile.
    pub place: SpinLock<Option<UpperPlace>>,
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

impl Overlay {
    pub(super) fn upper(&self) -> Result<&Upper> {
        self.upper.as_ref().ok_or(Errno::EROFS)
    }

    /// Drops the cached `name` of an upper directory, because the overlay changed it: otherwise the
    /// upper layer's own mount would show the old file.
    pub(super) fn changed(&self, directory: &Arc<dyn Inode>, name: &[u8]) {
        if let Some(upper) = &self.upper {
            upper.location.dentry.forget_name(directory, name);
        }
    }

    /// Returns an unused name in the working directory.
    pub(super) fn temporary(&self) -> Vec<u8> {
        alloc::format!("#{:x}", self.next_name.fetch_add(1, Ordering::Relaxed)).into_bytes()
    }

    /// Returns the number that a file of lower layer `layer` shows.
    pub(super) fn lower_number(layer: usize, number: u64) -> u64 {
        number | (layer as u64 + 1) << LAYER_SHIFT
    }

    /// Returns the number that the upper file with this number shows.
    pub(super) fn upper_number(&self, number: u64) -> u64 {
        self.origins.lock().get(&number).copied().unwrap_or(number)
    }
}

impl Node {
    fn build(
        overlay: &Arc<Overlay>,
        upper: Option<Arc<dyn Inode>>,
        lowers: Vec<(usize, Arc<dyn Inode>)>,
        place: Option<UpperPlace>,
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

    pub(super) fn find(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>> {
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
                let place = UpperPlace { parent: Arc::clone(self), name: name.to_vec() };
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
