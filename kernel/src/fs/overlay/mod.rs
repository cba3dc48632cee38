//! overlayfs: a writable tree above read-only ones.
//!
//! The semantics are those of Linux (`Documentation/filesystems/overlayfs.rst`) with
//! `redirect_dir=off,index=off,metacopy=off`: whiteouts are character devices 0:0, and opaque
//! directories carry the attribute `trusted.overlay.opaque`, so an upper directory made here means
//! the same on Linux. A file of a lower layer is copied up as a whole when it is first changed. A
//! directory that exists in a lower layer cannot be renamed (`EXDEV`; `mv` then copies it).
//!
//! The overlay works on inodes of the layers, not on names in mounts: each [`node::Node`] knows its
//! inode in the upper layer, if it has one, and those in the lower layers. A new entry is made in
//! the working directory and put in place by one rename, so a name is never visible without its
//! whiteout, nor a file without its content.
//!
//! | file | what |
//! |---|---|
//! | `node` | inodes of the overlay: look-up, metadata |
//! | `copy_up` | from the lower layer to the upper one |
//! | `change` | making, removing, renaming |
//! | `merge` | enumerating directories of several layers |
//! | `open` | open files |
//!
//! # Locks
//!
//! Each directory node has a sleeping lock `changes`, held over every change of its upper
//! directory; two (renames) are taken by address. Inside of it come the lock of a node's copy-up
//! (`copying`), the overlay's `work`, then spin locks, one at a time. A copy-up holds the `copying`
//! of a file, then `changes` of its parent. A thread that holds a `changes` never waits for a
//! `copying`: all that a change needs in the upper layer is copied up before.
//!
//! # Numbers
//!
//! A file keeps its inode number through a copy-up: the number in the lower layer, with the layer
//! in the bits from 40 on. `origins` maps the upper number of a copied file to that number.

mod change;
mod copy_up;
mod inode;
mod merge;
mod node;
mod open;
mod options;

#[cfg(feature = "tests")]
pub use node::is_whiteout;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::warn;

use self::node::{Node, Overlay, Upper};
use self::options::Options;
use crate::reclaim::growth::Grow;
use crate::schedule::Mutex;
use crate::vfs::anonymous::empty_root;
use crate::vfs::filesystem::{Caching, FileSystem, RootHandle, Usage, anonymous_device};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, of_machine, register_type};
use crate::vfs::inode::{FileKind, Inode, Owner};
use crate::vfs::mount::Location;
use crate::vfs::path::WalkFlags;

/// `OVERLAYFS_SUPER_MAGIC`.
const MAGIC: u64 = 0x794c_7630;
/// Registers the type for `mount(2)`.
pub fn register() {
    register_type(&FileSystemType {
        name: "overlay",
        needs_device: false,
        user: of_machine,
        mount,
    });
}

fn mount(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    let options = Options::parse(request.data)?;
    let directory = |path: &[u8]| request.resolver.resolve(path, WalkFlags::DIRECTORY);
    let mut lowers = Vec::new();
    for path in &options.lower {
        lowers.push(directory(path)?);
    }
    let upper = match (&options.upper, &options.work) {
        (Some(upper), Some(work)) => Some((directory(upper)?, directory(work)?)),
        (None, None) => None,
        _ => {
            warn!("overlay: upperdir and workdir go together");
            return Err(Errno::EINVAL);
        }
    };
    let parts = upper.iter().flat_map(|(upper, work)| [upper, work]);
    if lowers.iter().chain(parts).any(|part| part.dentry.filesystem().caching() == Caching::InUse) {
        warn!("overlay: a layer is a tree that others change as well; an overlay would not see it");
        return Err(Errno::EINVAL);
    }
    assemble(lowers, upper, options.shown)
}

/// Makes an overlay of lower directories, topmost first, and of an upper and a working directory if
/// it is to be writable. `shown` are its options for `/proc/mounts`.
pub fn assemble(
    lowers: Vec<Location>,
    upper: Option<(Location, Location)>,
    shown: String,
) -> Result<Arc<dyn FileSystem>> {
    let upper = upper.map(|(upper, work)| open_upper(upper, work)).transpose()?;
    let mut layers = Vec::new();
    for (layer, location) in lowers.iter().enumerate() {
        layers.make_room(1)?;
        layers.push((layer, location.inode()?));
    }
    let overlay = Arc::new(Overlay {
        device: anonymous_device(),
        upper,
        lowers,
        options: shown,
        root: RootHandle::empty(),
        next_name: AtomicU64::new(0),
        linked: SpinLock::new(BTreeMap::new()),
        origins: SpinLock::new(BTreeMap::new()),
    });
    let top = overlay.upper.as_ref().map(|upper| Arc::clone(&upper.root));
    let root = Node::root(&overlay, top, layers)?;
    overlay.root.set(root);
    Ok(overlay)
}

/// Checks the two directories of the writable layer and prepares the working directory.
fn open_upper(location: Location, work_location: Location) -> Result<Upper> {
    let (root, work) = (location.inode()?, work_location.inode()?);
    if location.mount.read_only() {
        warn!("overlay: upperdir is on a read-only mount");
        return Err(Errno::EINVAL);
    }
    if !Arc::ptr_eq(&location.mount, &work_location.mount) {
        warn!("overlay: workdir and upperdir must be on one mount");
        return Err(Errno::EINVAL);
    }
    if location.dentry.is_within(&work_location.dentry)
        || work_location.dentry.is_within(&location.dentry)
    {
        warn!("overlay: workdir and upperdir must be apart");
        return Err(Errno::EINVAL);
    }
    let _lock = work_location.dentry.lock_directory();
    let inner = match work.lookup(b"work") {
        Ok(inner) if inner.attributes().kind == FileKind::Directory => inner,
        Ok(_) => return Err(Errno::EINVAL),
        Err(Errno::ENOENT) => work.mkdir(b"work", 0, Owner::default())?,
        Err(error) => return Err(error),
    };
    Ok(Upper { root, work: inner, working: Mutex::new(()), location })
}

impl FileSystem for Overlay {
    fn type_name(&self) -> &'static str {
        "overlay"
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
        let top = self.upper.as_ref().map(|upper| &upper.location).or(self.lowers.first());
        let usage = top.map(|location| location.mount.filesystem().usage()).unwrap_or_default();
        Usage { magic: MAGIC, name_length: 255, ..usage }
    }

    fn read_only(&self) -> bool {
        self.upper.is_none()
    }

    fn options(&self) -> String {
        self.options.clone()
    }

    fn reconfigure(&self, read_only: bool, _: &[u8]) -> Result<()> {
        if !read_only && self.upper.is_none() { Err(Errno::EROFS) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        match &self.upper {
            Some(upper) => upper.location.mount.filesystem().sync(),
            None => Ok(()),
        }
    }
}
