//! The first root: the content of the initramfs, or the disk that `root=` names under an overlay in
//! memory.

use alloc::sync::Arc;
use core::fmt;

use hayate_abi::Errno;
use hayate_machine::{boot, info};

use super::tmpfs::TmpFs;
use super::{devfs, disk, ext4, initramfs, overlay};
use crate::vfs::filesystem::{Caching, FileSystem};
use crate::vfs::inode::{Inode, Owner};
use crate::vfs::mount;
use crate::vfs::mount::flags::MS_RDONLY;
use crate::vfs::mount::{Location, Mount};
use crate::vfs::path::lookup;

/// Why there is no root.
pub enum Error {
    /// The initramfs could not be unpacked.
    Initramfs(initramfs::Error),
    /// `root=` names a disk that does not exist.
    NoDisk(&'static str),
    /// The disk could not be mounted.
    Mount(&'static str, Errno),
    /// There is neither an initramfs nor `root=`.
    Nothing,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Initramfs(error) => write!(f, "initramfs: {error}"),
            Self::NoDisk(name) => {
                write!(f, "root={name}: there is no such disk; the disks are")?;
                for disk in disk::disks() {
                    write!(f, " /dev/{}", disk.name())?;
                }
                Ok(())
            }
            Self::Mount(name, error) => write!(f, "root={name}: cannot be mounted: {error}"),
            Self::Nothing => {
                f.write_str("no root: give an initramfs (-initrd) or a disk and root=/dev/vda")
            }
        }
    }
}

/// Fills the first root, an empty tmpfs, or replaces it by a disk.
pub fn prepare() -> Result<(), Error> {
    let modules = boot::take_modules();
    if !modules.is_empty() {
        let root = mount::root().and_then(|root| root.inode().ok()).ok_or(Error::Nothing)?;
        for module in modules {
            // Each archive's memory is freed once it is unpacked.
            let summary = initramfs::unpack(&module, &root).map_err(Error::Initramfs)?;
            info!("initramfs: {} entries, {} KiB", summary.entries, summary.bytes >> 10);
        }
        return Ok(());
    }
    let name = boot::option("root").ok_or(Error::Nothing)?;
    let disks = disk::disks();
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    let disk = disks.iter().find(|disk| disk.name() == short).ok_or(Error::NoDisk(name))?;
    mount_disk(Arc::clone(disk)).map_err(|error| Error::Mount(name, error))
}

/// Makes a disk the root, read-only under an overlay in memory, with `/dev` where it has one.
fn mount_disk(disk: Arc<disk::Disk>) -> hayate_abi::Result<()> {
    let source = alloc::format!("/dev/{}", disk.name());
    let lower = Mount::whole(ext4::open(disk, "ext4")?, MS_RDONLY, source);
    let owner = Owner::default();
    let memory = TmpFs::new("tmpfs", 0o755, owner, None, Caching::All);
    let top: Arc<dyn Inode> = memory.root();
    let layer = Mount::whole(memory, 0, "tmpfs".into());
    let part = |name: &[u8]| {
        top.mkdir(name, 0o755, owner)?;
        let dentry = lookup(layer.root(), &top, name)?;
        Ok::<_, Errno>(Location { mount: Arc::clone(&layer), dentry })
    };
    let tree = overlay::assemble(
        [lower.root_location()].into(),
        Some((part(b"upper")?, part(b"work")?)),
        ",lowerdir=/,upperdir=/upper,workdir=/work".into(),
    )?;
    let root = Mount::whole(tree, 0, "overlay".into());
    let inode = root.filesystem().root();
    match inode.lookup(b"dev") {
        Ok(_) => {
            let dentry = lookup(root.root(), &inode, b"dev")?;
            let place = Location { mount: Arc::clone(&root), dentry };
            let devices = Mount::whole(devfs::tree(), 0, "devtmpfs".into());
            let _changes = mount::lock();
            mount::reserve(1)?;
            devices.attach(&place);
        }
        Err(Errno::ENOENT) => {}
        Err(error) => return Err(error),
    }
    mount::set_root(root);
    Ok(())
}
