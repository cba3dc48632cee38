//! The node of a disk in `/dev`: reads, writes and maps the disk's page cache.
//!
//! * `fsync(2)` writes the changed pages and flushes the device's cache; then they are durable. It
//!   returns an error of writing once to each open file. `O_SYNC` and `O_DSYNC` do so after each
//!   write; a disk has no metadata, so the two are the same.
//! * `O_DIRECT` is checked for whole sectors. A read is the device's, and leaves no page in memory.
//!   A write returns when the device has it, with the error if it failed; its bytes still pass
//!   through the page cache, so that all open files agree.
//! * Discarding and zeroing (`BLKDISCARD`, `BLKZEROOUT`, `fallocate(2)`) first write the changed
//!   pages of the range and drop its pages afterwards, so that neither an old page comes back nor a
//!   neighbour in the same page is lost.
//!
//! Road not taken: transfers of `O_DIRECT` straight from the program's memory. They would save one
//! copy, and need pages that are pinned while the device has them.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;
use hayate_protocols::write_errors::Seen;

use super::{Claim, Disk, PAGE, disk};
use crate::credentials::Capability;
use crate::drivers::block::{SECTOR, Segment};
use crate::drivers::io::device::Counted;
use crate::reclaim;
use crate::vfs::content::mode::{
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_NO_HIDE_STALE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE,
};
use crate::vfs::inode::DeviceNumber;
use crate::vfs::open_file::flags::{O_DSYNC, O_EXCL};
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, OpenRequest, Traits, Whence};
use crate::vfs::transfer::{Input, Output};
use crate::vfs::{caller, content, device};

impl device::Device for Disk {
    fn open(&self, number: DeviceNumber, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        let disk = disk(number)?;
        if request.writes() && disk.is_read_only() {
            // As on Linux, where a file system would answer EROFS.
            return Err(Errno::EACCES);
        }
        let is_exclusive = request.flags & O_EXCL != 0;
        let claim = is_exclusive.then(|| Claim::exclusive(&disk)).transpose()?;
        disk.opened.fetch_add(1, Ordering::Relaxed);
        let seen = disk.page_cache.open_errors();
        Ok(Arc::new(DiskFile { disk, seen, _claim: claim }))
    }
}

/// An open node of a disk.
struct DiskFile {
    disk: Arc<Disk>,
    /// The errors of writing that it was told.
    seen: Option<Seen>,
    _claim: Option<Claim>,
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        if self.disk.opened.fetch_sub(1, Ordering::Relaxed) == 1 {
            // The next one that opens the node is told of an error.
            let _ = self.disk.settle();
        }
    }
}

/// ioctls of `linux/fs.h`.
mod ioctl {
    pub const BLKROSET: u32 = 0x125d;
    pub const BLKROGET: u32 = 0x125e;
    pub const BLKGETSIZE: u32 = 0x1260;
    pub const BLKFLSBUF: u32 = 0x1261;
    pub const BLKSSZGET: u32 = 0x1268;
    pub const BLKDISCARD: u32 = 0x1277;
    pub const BLKIOMIN: u32 = 0x1278;
    pub const BLKIOOPT: u32 = 0x1279;
    pub const BLKALIGNOFF: u32 = 0x127a;
    pub const BLKPBSZGET: u32 = 0x127b;
    pub const BLKDISCARDZEROES: u32 = 0x127c;
    pub const BLKZEROOUT: u32 = 0x127f;
    pub const BLKBSZGET: u32 = 0x8008_1270;
    pub const BLKGETSIZE64: u32 = 0x8008_1272;
}

/// A change of a range of sectors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clear {
    /// The content may be lost.
    Discard,
    /// Zeroes, and the host may have the room.
    Zero,
    /// Zeroes, by a device that gives the room back, or not at all.
    Punch,
}

impl DiskFile {
    /// Writes the changed pages of a range of bytes, makes them durable, and tells an error.
    fn sync_range(&self, offset: u64, length: u64) -> Result<()> {
        let page_cache = &self.disk.page_cache;
        if !page_cache.is_written_back() {
            return Ok(());
        }
        let last = offset.saturating_add(length.saturating_sub(1)) / PAGE;
        let written = page_cache.write_range(offset / PAGE, last);
        let told = page_cache.tell_errors(self.seen.as_ref());
        if written == Err(Errno::ENOMEM) {
            return written;
        }
        told.and_then(|()| self.disk.driver().flush())
    }

    /// Clears a range: `EINVAL` if it is not of whole sectors inside the disk.
    fn clear(&self, file: &OpenFile, how: Clear, offset: u64, length: u64) -> Result<()> {
        let disk = &self.disk;
        if !file.writable() {
            return Err(Errno::EBADF);
        }
        if disk.is_read_only() {
            return Err(Errno::EPERM);
        }
        let end = offset.checked_add(length).ok_or(Errno::EINVAL)?;
        if !(offset | length).is_multiple_of(SECTOR) || end > disk.size() {
            return Err(Errno::EINVAL);
        }
        if length == 0 {
            return Ok(());
        }
        let page_cache = &disk.page_cache;
        let _content = page_cache.lock_content();
        page_cache.write_range(offset / PAGE, (end - 1) / PAGE)?;
        let (sector, sectors) = (offset / SECTOR, length / SECTOR);
        match how {
            Clear::Discard => disk.device.discard(sector, sectors)?,
            Clear::Punch => disk.device.write_zeroes(sector, sectors, true)?,
            Clear::Zero => match disk.device.write_zeroes(sector, sectors, true) {
                Err(Errno::EOPNOTSUPP) => write_zeroes(&disk.device, sector, sectors)?,
                outcome => outcome?,
            },
        }
        page_cache.punch(offset, length);
        Ok(())
    }

    /// The range of an ioctl: offset and length.
    fn range(arg: u64) -> Result<(u64, u64)> {
        let range = UserPtr::<[u64; 2]>::new(arg as usize).read()?;
        Ok((range[0], range[1]))
    }
}

/// Writes zeroes to a disk that cannot make them itself.
fn write_zeroes(device: &Counted, sector: u64, sectors: u64) -> Result<()> {
    /// Sectors that are under way together.
    const PART: u64 = 8192;
    let zero = reclaim::zeroed_frame()?;
    let (mut at, end) = (sector, sector + sectors);
    while at < end {
        let stop = end.min(at + PART);
        let mut next = at;
        device.write_content(&mut core::iter::from_fn(|| {
            let start = next;
            let count = (stop - start).min(PAGE / SECTOR);
            next += count;
            let length = (count * SECTOR) as usize;
            (count > 0).then_some((start, Segment { frame: &zero, offset: 0, length }))
        }))?;
        at = stop;
    }
    Ok(())
}

fn put(arg: u64, bytes: &[u8]) -> Result<i64> {
    match Output::user(arg as usize, bytes.len()).put(bytes)? {
        count if count == bytes.len() => Ok(0),
        _ => Err(Errno::EFAULT),
    }
}

fn put_int(arg: u64, number: u32) -> Result<i64> {
    put(arg, &number.to_le_bytes())
}

impl FileOps for DiskFile {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, file: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        content::read_on_disk(&self.disk.page_cache, file, offset, out)
    }

    fn write(&self, file: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let disk = &self.disk;
        if disk.is_read_only() {
            return Err(Errno::EPERM);
        }
        let is_direct = content::is_direct(file, *offset, input.remaining())?;
        if file.appends() {
            *offset = disk.size();
        }
        if input.remaining() == 0 {
            return Ok(0);
        }
        // A disk does not grow.
        let room = disk.size().checked_sub(*offset).filter(|room| *room > 0);
        let room = room.ok_or(Errno::ENOSPC)?;
        input.limit(usize::try_from(room).unwrap_or(usize::MAX));
        let mut at = *offset;
        let count = content::in_parts(&disk.page_cache, input, |input| {
            let before = input.done();
            let written = content::write_cached(&disk.page_cache, at, input);
            at += (input.done() - before) as u64;
            written
        })?;
        if file.flags() & O_DSYNC != 0 {
            self.sync_range(*offset, count as u64)?;
        } else if is_direct {
            let last = (*offset + count as u64 - 1) / PAGE;
            disk.page_cache.write_range(*offset / PAGE, last)?;
        }
        Ok(count)
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Ok(MapSource::PageCache(Arc::clone(&self.disk.page_cache)))
    }

    fn seek(&self, _: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        let base = match whence {
            Whence::Set => 0,
            Whence::Current => position,
            Whence::End => self.disk.size(),
            Whence::Data | Whence::Hole => return Err(Errno::EINVAL),
        };
        base.checked_add_signed(offset).ok_or(Errno::EINVAL)
    }

    /// `blkdev_fallocate` (block/fops.c).
    fn allocate(&self, file: &OpenFile, mode: u32, offset: u64, length: u64) -> Result<()> {
        const ZERO_KEEP: u32 = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
        const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        const DISCARD: u32 = PUNCH | FALLOC_FL_NO_HIDE_STALE;
        let how = match mode {
            FALLOC_FL_ZERO_RANGE | ZERO_KEEP => Clear::Zero,
            PUNCH => Clear::Punch,
            DISCARD => Clear::Discard,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let size = self.disk.size();
        let keeps = mode & FALLOC_FL_KEEP_SIZE != 0;
        if offset >= size {
            return Err(Errno::EINVAL);
        }
        let length = if keeps { length.min(size - offset) } else { length };
        self.clear(file, how, offset, length)
    }

    fn sync(&self, _: &OpenFile, _: bool) -> Result<()> {
        self.sync_range(0, u64::MAX)
    }

    fn ioctl(&self, file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        let disk = &self.disk;
        let shape = disk.driver().shape();
        match command {
            ioctl::BLKGETSIZE64 => put(arg, &disk.size().to_le_bytes()),
            ioctl::BLKGETSIZE => put(arg, &(disk.size() / SECTOR).to_le_bytes()),
            ioctl::BLKSSZGET => put_int(arg, shape.logical),
            ioctl::BLKPBSZGET => put_int(arg, shape.physical),
            ioctl::BLKIOMIN => put_int(arg, shape.least),
            ioctl::BLKIOOPT => put_int(arg, shape.best),
            ioctl::BLKALIGNOFF | ioctl::BLKDISCARDZEROES => put_int(arg, 0),
            ioctl::BLKBSZGET => put_int(arg, PAGE as u32),
            ioctl::BLKROGET => put_int(arg, disk.is_read_only().into()),
            ioctl::BLKROSET => {
                administrator()?;
                let on = UserPtr::<i32>::new(arg as usize).read()? != 0;
                disk.write_protected.store(on, Ordering::Relaxed);
                Ok(0)
            }
            ioctl::BLKFLSBUF => {
                administrator()?;
                // Errors are told by fsync(2).
                let _ = disk.settle();
                while disk.page_cache.reclaim(AT_ONCE) == AT_ONCE {}
                Ok(0)
            }
            ioctl::BLKDISCARD => {
                let (offset, length) = Self::range(arg)?;
                self.clear(file, Clear::Discard, offset, length).map(|()| 0)
            }
            ioctl::BLKZEROOUT => {
                let (offset, length) = Self::range(arg)?;
                self.clear(file, Clear::Zero, offset, length).map(|()| 0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }
}

/// Pages that `BLKFLSBUF` drops under one lock.
const AT_ONCE: usize = 1024;

/// `EACCES` for others than an administrator, as these ioctls have it (block/ioctl.c).
fn administrator() -> Result<()> {
    if caller::has(Capability::SysAdmin) { Ok(()) } else { Err(Errno::EACCES) }
}
