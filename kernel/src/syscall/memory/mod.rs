//! System calls on memory: `mmap` and its family, advice, locks, barriers.
//!
//! Checks are made in the order of Linux 6.1, because which of two errors a bad call gets is part
//! of the interface. [`crate::memory`] does the work.

mod barrier;
mod foreign;
mod of_process;
mod policy;
pub mod userfaultfd;

pub use barrier::membarrier;
pub use foreign::{process_vm_readv, process_vm_writev};
pub use of_process::{process_madvise, process_mrelease};
pub use policy::{
    get_mempolicy, mbind, migrate_pages, move_pages, set_mempolicy, set_mempolicy_home_node,
};

use alloc::sync::Arc;

use hayate_abi::raw::general as raw;
use hayate_abi::{Errno, Result};
use machine::user;

use super::file::open_file;
use crate::memory;
use crate::memory::advise::Advice;
use crate::memory::remap::Move;
use crate::memory::{Backing, MapRequest, PAGE, Placement, Protection, RegionFlags};
use crate::page_cache::cache::PageCache;
use crate::vfs::mount;
use crate::vfs::open_file::{MapSource, OpenFile};

/// The protection in the low bits of an argument.
fn protection(bits: u32) -> Protection {
    Protection::from_bits_truncate(bits as u8)
}

/// `mmap(2)`.
pub fn mmap(
    address: usize,
    length: usize,
    protection_bits: u32,
    flags: u32,
    fd: i32,
    offset: usize,
) -> Result<usize> {
    if !offset.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let anonymous = flags & raw::MAP_ANONYMOUS != 0;
    let file = if anonymous { None } else { Some(open_file(fd)?) };
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & raw::MAP_HUGETLB != 0 {
        // There is no pool of huge pages (`nr_hugepages` is 0), and none for files at all.
        return Err(if anonymous { Errno::ENOMEM } else { Errno::EINVAL });
    }
    let protection = protection(protection_bits);
    let mut region = RegionFlags::MAY_WRITE | RegionFlags::MAY_EXECUTE;
    region.set(RegionFlags::GROWS_DOWN, flags & raw::MAP_GROWSDOWN != 0);
    region.set(RegionFlags::NO_RESERVE, flags & raw::MAP_NORESERVE != 0);
    region.set(RegionFlags::LOCKED, flags & raw::MAP_LOCKED != 0);
    let shared = is_shared(flags, anonymous)?;
    if region.contains(RegionFlags::GROWS_DOWN) && (shared || !anonymous) {
        return Err(Errno::EINVAL);
    }
    if region.contains(RegionFlags::LOCKED) && !memory::current().lets_lock() {
        return Err(Errno::EPERM);
    }
    region.set(RegionFlags::SHARED, shared);
    let (backing, offset) = match file {
        Some(file) => (map_file(file, protection, &mut region)?, offset as u64),
        None => (None, 0),
    };
    // Shared memory without a file, or of /dev/zero, is a memory object of its own.
    let (backing, offset) = match backing {
        None if shared => {
            let size = memory::page_up(length).ok_or(Errno::ENOMEM)?;
            (Some(Backing::nameless(PageCache::memory(size as u64), "/dev/zero (deleted)")?), 0)
        }
        other => (other, offset),
    };
    let populate = flags & (raw::MAP_POPULATE | raw::MAP_NONBLOCK) == raw::MAP_POPULATE;
    memory::current().map(MapRequest {
        address,
        place: placement(flags),
        length,
        protection,
        flags: region,
        backing,
        offset,
        populate,
    })
}

/// Where the flags of mmap put a mapping.
fn placement(flags: u32) -> Placement {
    if flags & raw::MAP_FIXED_NOREPLACE != 0 {
        Placement::FixedNoReplace
    } else if flags & raw::MAP_FIXED != 0 {
        Placement::Fixed
    } else if flags & raw::MAP_32BIT != 0 {
        Placement::Low
    } else {
        Placement::Hint
    }
}

/// Whether the flags of mmap make a shared mapping. `EINVAL` without a type, `EOPNOTSUPP` for flags
/// that `MAP_SHARED_VALIDATE` does not know.
fn is_shared(flags: u32, anonymous: bool) -> Result<bool> {
    const KNOWN: u32 = raw::MAP_TYPE
        | raw::MAP_FIXED
        | raw::MAP_32BIT
        | raw::MAP_GROWSDOWN
        | raw::MAP_DENYWRITE
        | raw::MAP_EXECUTABLE
        | raw::MAP_LOCKED
        | raw::MAP_NORESERVE
        | raw::MAP_POPULATE
        | raw::MAP_NONBLOCK
        | raw::MAP_STACK
        | raw::MAP_FIXED_NOREPLACE;
    match flags & raw::MAP_TYPE {
        raw::MAP_PRIVATE => Ok(false),
        raw::MAP_SHARED => Ok(true),
        raw::MAP_SHARED_VALIDATE if !anonymous && flags & !KNOWN == 0 => Ok(true),
        raw::MAP_SHARED_VALIDATE if !anonymous => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

/// The backing for a mapping of a file, after the checks of the file's mode; `None` if the file is
/// a source of zeroes.
fn map_file(
    file: Arc<OpenFile>,
    protection: Protection,
    flags: &mut RegionFlags,
) -> Result<Option<Arc<Backing>>> {
    let shared = flags.contains(RegionFlags::SHARED);
    let write = protection.contains(Protection::WRITE);
    if shared && write && !file.writable() {
        return Err(Errno::EACCES);
    }
    if !file.readable() {
        return Err(Errno::EACCES);
    }
    if file.location().mount.flags() & mount::flags::MS_NOEXEC != 0 {
        if protection.contains(Protection::EXECUTE) {
            return Err(Errno::EPERM);
        }
        flags.remove(RegionFlags::MAY_EXECUTE);
    }
    if shared && !file.writable() {
        flags.remove(RegionFlags::MAY_WRITE);
    }
    let MapSource::PageCache(page_cache) = file.ops().map(&file)? else { return Ok(None) };
    let counted = shared && file.writable();
    match Backing::file(page_cache.clone(), file.clone(), counted) {
        // It is sealed against writing: reading through a shared mapping is still allowed.
        Err(Errno::EPERM) if counted && !write => {
            flags.remove(RegionFlags::MAY_WRITE);
            Backing::file(page_cache, file, false).map(Some)
        }
        other => other.map(Some),
    }
}

/// `munmap(2)`.
pub fn munmap(address: usize, length: usize) -> Result<()> {
    memory::current().unmap(address, length)
}

/// `mprotect(2)`.
pub fn mprotect(address: usize, length: usize, bits: u32) -> Result<()> {
    const SEMAPHORE: u32 = 8;
    let grows = bits & (raw::PROT_GROWSDOWN | raw::PROT_GROWSUP);
    let known = raw::PROT_READ | raw::PROT_WRITE | raw::PROT_EXEC | SEMAPHORE;
    if bits & !grows & !known != 0 || grows == raw::PROT_GROWSDOWN | raw::PROT_GROWSUP {
        return Err(Errno::EINVAL);
    }
    if grows == raw::PROT_GROWSUP {
        // No mapping grows upwards on x86.
        return Err(Errno::EINVAL);
    }
    memory::current().protect(address, length, protection(bits), grows != 0)
}

/// `pkey_mprotect(2)`: without protection keys, key -1 is `mprotect`, any other does not exist.
pub fn pkey_mprotect(address: usize, length: usize, bits: u32, key: i32) -> Result<()> {
    if key == -1 { mprotect(address, length, bits) } else { Err(Errno::EINVAL) }
}

/// `pkey_alloc(2)`: `ENOSPC`, since there are no keys, as on a processor without them.
pub fn pkey_alloc(flags: u32, rights: u32) -> Result<()> {
    const RIGHTS: u32 = 3;
    if flags != 0 || rights & !RIGHTS != 0 { Err(Errno::EINVAL) } else { Err(Errno::ENOSPC) }
}

/// `pkey_free(2)`: fails, since no key was ever allocated.
pub fn pkey_free(key: i32) -> Result<()> {
    let _ = key;
    Err(Errno::EINVAL)
}

/// `brk(2)`, in the form of the system call: returns the new end of the heap.
pub fn brk(end: usize) -> usize {
    memory::current().brk(end)
}

/// `mremap(2)`.
pub fn mremap(address: usize, old: usize, new: usize, flags: u32, to: usize) -> Result<usize> {
    let may_move = flags & raw::MREMAP_MAYMOVE != 0;
    let fixed = flags & raw::MREMAP_FIXED != 0;
    let keep = flags & raw::MREMAP_DONTUNMAP != 0;
    let known = raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED | raw::MREMAP_DONTUNMAP;
    if flags & !known != 0 || (fixed && !may_move) || (keep && (!may_move || old != new)) {
        return Err(Errno::EINVAL);
    }
    let place = match (may_move, fixed) {
        (_, true) => Move::To(to),
        (true, false) => Move::Anywhere,
        (false, false) => Move::Never,
    };
    memory::current().remap(address, old, new, place, keep)
}

/// `madvise(2)`.
pub fn madvise(address: usize, length: usize, advice: i32) -> Result<()> {
    let empty = RegionFlags::empty();
    let advice = match advice as u32 {
        raw::MADV_NORMAL => Advice::Normal,
        raw::MADV_RANDOM => Advice::Random,
        raw::MADV_SEQUENTIAL => Advice::Sequential,
        raw::MADV_WILLNEED => Advice::WillNeed,
        raw::MADV_DONTNEED => Advice::DontNeed,
        raw::MADV_DONTNEED_LOCKED => Advice::DontNeedLocked,
        raw::MADV_FREE => Advice::Free,
        raw::MADV_REMOVE => Advice::Remove,
        raw::MADV_DONTFORK => Advice::Flags(RegionFlags::NO_FORK, empty),
        raw::MADV_DOFORK => Advice::Flags(empty, RegionFlags::NO_FORK),
        raw::MADV_HUGEPAGE => Advice::Flags(RegionFlags::LARGE, RegionFlags::NO_LARGE),
        raw::MADV_NOHUGEPAGE => Advice::Flags(RegionFlags::NO_LARGE, RegionFlags::LARGE),
        raw::MADV_DONTDUMP => Advice::Flags(RegionFlags::NO_DUMP, empty),
        raw::MADV_DODUMP => Advice::Flags(empty, RegionFlags::NO_DUMP),
        raw::MADV_WIPEONFORK => Advice::Flags(RegionFlags::WIPE_ON_FORK, empty),
        raw::MADV_KEEPONFORK => Advice::Flags(empty, RegionFlags::WIPE_ON_FORK),
        raw::MADV_COLD | raw::MADV_PAGEOUT => Advice::Nothing,
        raw::MADV_POPULATE_READ => Advice::PopulateRead,
        raw::MADV_POPULATE_WRITE => Advice::PopulateWrite,
        // Including MADV_MERGEABLE and MADV_COLLAPSE, as in a Linux built without KSM and THP.
        _ => return Err(Errno::EINVAL),
    };
    memory::current().advise(address, length, advice)
}

/// `mincore(2)`.
pub fn mincore(address: usize, length: usize, vector: usize) -> Result<()> {
    if !address.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    if !user::in_user_half(address, length) {
        return Err(Errno::ENOMEM);
    }
    if !user::in_user_half(vector, length.div_ceil(PAGE)) {
        return Err(Errno::EFAULT);
    }
    let mut buffer = [0u8; 256];
    let (mut filled, mut done) = (0, 0);
    let result = memory::current().residency(address, length, |resident| {
        buffer[filled] = u8::from(resident);
        filled += 1;
        if filled == buffer.len() {
            user::copy_out(vector + done, &buffer)?;
            done += filled;
            filled = 0;
        }
        Ok(())
    });
    user::copy_out(vector + done, &buffer[..filled])?;
    result
}

/// `msync(2)`.
pub fn msync(address: usize, length: usize, flags: u32) -> Result<()> {
    let (wait, later) = (flags & raw::MS_SYNC != 0, flags & raw::MS_ASYNC != 0);
    let known = raw::MS_SYNC | raw::MS_ASYNC | raw::MS_INVALIDATE;
    if flags & !known != 0 || (wait && later) {
        return Err(Errno::EINVAL);
    }
    memory::current().sync(address, length, wait, flags & raw::MS_INVALIDATE != 0)
}

/// `mlock(2)`.
pub fn mlock(address: usize, length: usize) -> Result<()> {
    memory::current().lock_memory(address, length, false)
}

/// `mlock2(2)`.
pub fn mlock2(address: usize, length: usize, flags: u32) -> Result<()> {
    if flags & !raw::MLOCK_ONFAULT != 0 {
        return Err(Errno::EINVAL);
    }
    memory::current().lock_memory(address, length, flags != 0)
}

/// `munlock(2)`.
pub fn munlock(address: usize, length: usize) -> Result<()> {
    memory::current().unlock_memory(address, length)
}

/// `mlockall(2)`.
pub fn mlockall(flags: u32) -> Result<()> {
    let (current, future) = (flags & raw::MCL_CURRENT != 0, flags & raw::MCL_FUTURE != 0);
    let on_fault = flags & raw::MCL_ONFAULT != 0;
    let known = raw::MCL_CURRENT | raw::MCL_FUTURE | raw::MCL_ONFAULT;
    if flags & !known != 0 || !(current || future) {
        return Err(Errno::EINVAL);
    }
    memory::current().lock_all(current, future, on_fault)
}

/// `munlockall(2)`.
pub fn munlockall() -> Result<()> {
    memory::current().lock_all(false, false, false)
}
