//! Anonymous files in memory with seals (`memfd_create(2)`).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Lazy;

use super::TmpFs;
use crate::credentials::Credentials;
use crate::page_cache::cache::PageCache;
use crate::page_cache::seals;
use crate::reclaim::growth;
use crate::vfs::anonymous;
use crate::vfs::filesystem::Caching;
use crate::vfs::inode::Owner;
use crate::vfs::mount::Mount;
use crate::vfs::open_file::OpenFile;
use crate::vfs::open_file::flags::{O_LARGEFILE, O_RDWR};

const MFD_CLOEXEC: u32 = 1;
const MFD_ALLOW_SEALING: u32 = 2;

static FILES: Lazy<Arc<TmpFs>> =
    Lazy::new(|| TmpFs::new("tmpfs", 0o777, Owner::default(), None, Caching::All));
static MOUNT: Lazy<Arc<Mount>> = Lazy::new(|| Mount::whole(FILES.clone(), 0, "tmpfs".into()));

/// Makes the file system that memfds are in; boot calls it once.
pub fn init() {
    Lazy::force(&MOUNT);
}

/// Makes an open memfd; also returns whether exec closes it. `EINVAL` for unknown flags (huge pages
/// among them).
pub fn create(name: &[u8], flags: u32, credentials: &Credentials) -> Result<(Arc<OpenFile>, bool)> {
    if flags & !(MFD_CLOEXEC | MFD_ALLOW_SEALING) != 0 {
        return Err(Errno::EINVAL);
    }
    let owner = Owner { uid: credentials.fsuid, gid: credentials.fsgid };
    let inode = FILES.unnamed(0o777, owner);
    if flags & MFD_ALLOW_SEALING != 0 {
        use crate::vfs::inode::Inode;
        inode.page_cache().ok_or(Errno::ENOMEM)?.allow_sealing();
    }
    let mut shown = Vec::new();
    for part in [b"/memfd:", name, b" (deleted)"] {
        growth::append(&mut shown, part)?;
    }
    let location = anonymous::location(&MOUNT, &shown, inode.clone());
    let file = OpenFile::new(inode, location, O_RDWR | O_LARGEFILE)?;
    Ok((file, flags & MFD_CLOEXEC != 0))
}

/// Returns the page cache of a file that can have seals: a file in memory.
fn sealable(file: &OpenFile) -> Result<Arc<PageCache>> {
    file.inode().page_cache().filter(|page_cache| page_cache.is_memory()).ok_or(Errno::EINVAL)
}

/// `F_ADD_SEALS`
pub fn add_seals(file: &OpenFile, new: u32) -> Result<()> {
    use seals::*;
    let known = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
    if new & !known != 0 {
        return Err(Errno::EINVAL);
    }
    sealable(file)?.add_seals(new)
}

/// `F_GET_SEALS`
pub fn seals(file: &OpenFile) -> Result<u32> {
    Ok(sealable(file)?.seals())
}
