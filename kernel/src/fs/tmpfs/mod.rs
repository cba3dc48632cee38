//! tmpfs: files in memory.
//!
//! A directory is a table of names; a regular file is a page cache without a backing file. Nothing
//! is stored elsewhere, so removing the last name and the last user frees everything. The same code
//! serves the initial root, `/dev` (`devtmpfs`), memfds and every `mount -t tmpfs`.
//!
//! The table of names is that of all directories in memory ([`crate::vfs::entries`]).
//!
//! Locks: an inode's `info` and a directory's `entries` are spin locks and leaves, never taken
//! together; the directory lock already serializes changes of a directory.

mod handles;
mod inode;
pub mod memfd;
mod search;
mod superblock;
pub mod xattr;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::{Errno, Result};

use self::handles::Handles;
use self::superblock::Superblock;
use crate::vfs::dentry::Name;
use crate::vfs::filesystem::{Caching, FileSystem, Usage};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, of_mounter};
use crate::vfs::handle::Handle;
use crate::vfs::inode::{Inode, Owner, downcast};

pub use inode::TmpInode;
pub use superblock::used_pages;

/// `TMPFS_MAGIC` of `include/uapi/linux/magic.h`.
const MAGIC: u64 = 0x0102_1994;

/// The type for `mount(2)`.
pub static TYPE: FileSystemType =
    FileSystemType { name: "tmpfs", needs_device: false, user: of_mounter, mount: mount_tmpfs };

/// tmpfs without a limit, under its other name.
pub static RAMFS: FileSystemType =
    FileSystemType { name: "ramfs", needs_device: false, user: of_mounter, mount: mount_ramfs };

/// An instance of tmpfs.
pub struct TmpFs {
    name: &'static str,
    caching: Caching,
    superblock: Arc<Superblock>,
    root: Arc<TmpInode>,
}

impl TmpFs {
    /// Makes an instance of the kernel's own at boot.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(
        name: &'static str,
        mode: u16,
        owner: Owner,
        limit: Option<u64>,
        caching: Caching,
    ) -> Arc<TmpFs> {
        match TmpFs::make(name, mode, owner, limit, caching) {
            Ok(made) => made,
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// A new instance with a root directory of this mode; `limit` in pages. `ENOMEM`.
    pub fn make(
        name: &'static str,
        mode: u16,
        owner: Owner,
        limit: Option<u64>,
        caching: Caching,
    ) -> Result<Arc<TmpFs>> {
        let superblock = Arc::new(Superblock {
            device: crate::vfs::filesystem::anonymous_device(),
            next_number: AtomicU64::new(1),
            limit: AtomicU64::new(limit.unwrap_or(u64::MAX)),
            used: AtomicU64::new(0),
            // Linux' default: one for every two frames (mm/shmem.c, shmem_default_max_inodes).
            inode_limit: AtomicU64::new(match limit {
                Some(_) => hayate_machine::frames::total() as u64 / 2,
                None => u64::MAX,
            }),
            inodes: AtomicU64::new(0),
            handles: Handles::default(),
        });
        superblock::enter(&superblock)?;
        let root = TmpInode::directory(&superblock, mode, owner);
        Ok(Arc::new(TmpFs { name, caching, superblock, root }))
    }

    /// Makes a regular file without a name (memfd).
    pub fn unnamed(&self, mode: u16, owner: Owner) -> Arc<TmpInode> {
        TmpInode::nameless(&self.superblock, mode, owner)
    }
}

impl FileSystem for TmpFs {
    fn type_name(&self) -> &'static str {
        self.name
    }

    fn device(&self) -> u64 {
        self.superblock.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn usage(&self) -> Usage {
        let limit = self.superblock.limit.load(Ordering::Relaxed);
        let used = self.superblock.used.load(Ordering::Relaxed);
        let blocks = if limit == u64::MAX { 0 } else { limit };
        let free = blocks.saturating_sub(used);
        let files = match self.superblock.inode_limit.load(Ordering::Relaxed) {
            u64::MAX => 0,
            limit => limit,
        };
        Usage {
            magic: MAGIC,
            block_size: 4096,
            blocks,
            free,
            available: free,
            files,
            files_free: files.saturating_sub(self.superblock.inodes.load(Ordering::Relaxed)),
            id: self.superblock.device,
            name_length: 255,
        }
    }

    fn caching(&self) -> Caching {
        self.caching
    }

    fn handle(&self, inode: &Arc<dyn Inode>) -> Result<Handle> {
        let own = downcast::<TmpInode>(inode).filter(|_| self.name != RAMFS.name);
        let number = own.ok_or(Errno::EOPNOTSUPP)?.number();
        Ok(self.superblock.handles.make(number, inode))
    }

    fn by_handle(&self, handle: &Handle) -> Result<Arc<dyn Inode>> {
        self.superblock.handles.find(handle)
    }

    fn way_to(&self, directory: &Arc<dyn Inode>) -> Result<Vec<Name>> {
        self.search(directory)
    }

    fn options(&self) -> String {
        match self.superblock.limit.load(Ordering::Relaxed) {
            u64::MAX => String::new(),
            limit => format!(",size={}k", limit.saturating_mul(4)),
        }
    }

    fn reconfigure(&self, _: bool, data: &[u8]) -> Result<()> {
        let options = Options::parse(data.split(|&byte| byte == b','))?;
        if let Some(limit) = options.limit {
            self.superblock.limit.store(limit, Ordering::Relaxed);
        }
        if let Some(inodes) = options.inodes {
            self.superblock.inode_limit.store(inodes, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The options of `mount -t tmpfs` (`tmpfs(5)`).
#[derive(Default)]
struct Options {
    limit: Option<u64>,
    inodes: Option<u64>,
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(text).ok()?, radix).ok()
}

/// Parses a size with suffix: bytes, `k`, `m`, `g`, or `%` of memory. Returns bytes.
fn size(text: &[u8]) -> Option<u64> {
    let (digits, shift) = match text.split_last()? {
        (b'%', digits) => {
            let total = hayate_machine::frames::counts().total as u64 * 4096;
            return Some(total / 100 * number(digits, 10)?.min(100_000));
        }
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) => (digits, 30),
        _ => (text, 0),
    };
    number(digits, 10)?.checked_mul(1 << shift)
}

impl Options {
    fn parse<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Options> {
        let mut options = Options::default();
        for word in words.filter(|word| !word.is_empty()) {
            let at = word.iter().position(|&byte| byte == b'=').unwrap_or(word.len());
            let (key, value) = (&word[..at], word.get(at + 1..).unwrap_or_default());
            let valid = match key {
                b"size" => {
                    size(value).map(|bytes| options.limit = Some(bytes.div_ceil(4096))).is_some()
                }
                b"nr_blocks" => size(value).map(|pages| options.limit = Some(pages)).is_some(),
                b"mode" => {
                    number(value, 8).map(|mode| options.mode = Some(mode as u16 & 0o7777)).is_some()
                }
                b"uid" => number(value, 10).map(|uid| options.uid = Some(uid as u32)).is_some(),
                b"gid" => number(value, 10).map(|gid| options.gid = Some(gid as u32)).is_some(),
                b"nr_inodes" => size(value).map(|count| options.inodes = Some(count)).is_some(),
                // There is one memory node, and there are no large pages in files.
                b"mpol" | b"inode64" | b"inode32" | b"huge" => true,
                _ => false,
            };
            if !valid {
                return Err(Errno::EINVAL);
            }
        }
        // `size=0` means no limit.
        let or_none = |limit| if limit == 0 { u64::MAX } else { limit };
        options.limit = options.limit.map(or_none);
        options.inodes = options.inodes.map(or_none);
        Ok(options)
    }

    /// The owner of the root directory: that of the options, with numbers of the mounter's user
    /// namespace, or the mounter. `EINVAL` for a number that is not mapped there.
    fn owner(&self, request: &MountRequest<'_>) -> Result<Owner> {
        let by = request.resolver.credentials;
        let uid = self.uid.map_or(Some(by.fsuid), |number| by.user.user(number));
        let gid = self.gid.map_or(Some(by.fsgid), |number| by.user.group(number));
        Ok(Owner { uid: uid.ok_or(Errno::EINVAL)?, gid: gid.ok_or(Errno::EINVAL)? })
    }
}

fn mount_tmpfs(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    let options = Options::parse(request.data.split(|&byte| byte == b','))?;
    let half = hayate_machine::frames::counts().total as u64 / 2;
    let limit = options.limit.unwrap_or(half);
    let owner = options.owner(request)?;
    let mode = options.mode.unwrap_or(0o1777);
    let fs = TmpFs::make("tmpfs", mode, owner, Some(limit), Caching::All)?;
    if let Some(inodes) = options.inodes {
        fs.superblock.inode_limit.store(inodes, Ordering::Relaxed);
    }
    Ok(fs)
}

fn mount_ramfs(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    let options = Options::parse(request.data.split(|&byte| byte == b','))?;
    let mode = options.mode.unwrap_or(0o755);
    let by = request.resolver.credentials;
    let owner = Owner { uid: by.fsuid, gid: by.fsgid };
    Ok(TmpFs::make("ramfs", mode, owner, None, Caching::All)?)
}
