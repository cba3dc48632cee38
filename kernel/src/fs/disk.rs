//! Disks: block devices with a page cache, as file systems and the nodes in `/dev` use them.
//!
//! A [`Disk`] is a driver with a name, a number and a page cache: the node `/dev/NAME` reads and
//! maps through this page cache, and file systems read their metadata through it ([`Disk::read`]).
//! File content goes from the driver to the file's own page cache and not through the disk's, so
//! that nothing is cached twice.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::RwSpinLock;

use crate::drivers::block;
use crate::drivers::block::{BlockDevice, SECTOR, Segment};
use crate::page_cache::cache::PageCache;
use crate::page_cache::source::PageSource;
use crate::reclaim::growth::Grow;
use crate::vfs::inode::{DeviceNumber, FileKind};
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, OpenRequest, Traits, Whence};
use crate::vfs::transfer::Output;
use crate::vfs::{caller, content, device};

/// Bytes of a page in the page cache.
const PAGE: u64 = 4096;
/// The major number of Linux' virtio disks, and how many minors each takes.
const MAJOR: u32 = 254;
const MINORS: u32 = 16;
/// Pages that are read together when metadata is missing.
const AROUND: u64 = 16;

/// A disk.
pub struct Disk {
    name: String,
    number: DeviceNumber,
    driver: Arc<dyn BlockDevice>,
    page_cache: Arc<PageCache>,
}

static DISKS: RwSpinLock<Vec<Arc<Disk>>> = RwSpinLock::new(Vec::new());

/// Makes a disk for every driver that was found: `vda`, `vdb` and so on.
pub fn init() {
    for (index, driver) in block::drivers().into_iter().enumerate() {
        // Disks beyond the 26th get a number instead of a letter.
        let name = match u8::try_from(index).ok().filter(|index| *index < 26) {
            Some(letter) => format!("vd{}", char::from(b'a' + letter)),
            None => format!("vd{index}"),
        };
        let number = DeviceNumber::new(MAJOR, index as u32 * MINORS);
        let size = driver.sectors().saturating_mul(SECTOR);
        let source = Arc::new(Pages { driver: Arc::clone(&driver) });
        let page_cache = PageCache::cached(size, source, false);
        let disk = Arc::new(Disk { name, number, driver, page_cache });
        DISKS.write().push(Arc::clone(&disk));
        device::register(FileKind::BlockDevice, number, "virtblk", disk);
    }
}

/// Returns the disk with a device number; `ENXIO` when there is none.
pub fn disk(number: DeviceNumber) -> Result<Arc<Disk>> {
    let disks = DISKS.read();
    disks.iter().find(|disk| disk.number == number).cloned().ok_or(Errno::ENXIO)
}

/// Returns all disks, for `/proc/partitions`.
pub fn disks() -> Vec<Arc<Disk>> {
    DISKS.read().clone()
}

impl Disk {
    /// Returns the name in `/dev`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the device number.
    pub fn number(&self) -> DeviceNumber {
        self.number
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.page_cache.size()
    }

    /// Returns the driver, for transfers that bypass the page cache.
    pub fn driver(&self) -> &dyn BlockDevice {
        &*self.driver
    }

    /// Fills `into` from byte `offset` through the page cache. `EIO` beyond the end.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len() as u64).ok_or(Errno::EIO)?;
        if end > self.size() {
            return Err(Errno::EIO);
        }
        let (mut offset, mut into) = (offset, into);
        while !into.is_empty() {
            let index = offset / PAGE;
            if self.page_cache.peek(index).is_none() {
                // Nearby metadata is needed soon: tables of inodes, blocks of a directory.
                self.page_cache.readahead(index - index % AROUND, AROUND);
            }
            let frame = self.page_cache.page(index)?;
            let within = (offset % PAGE) as usize;
            let count = frame.read(within, into);
            into = into.get_mut(count..).unwrap_or_default();
            offset += count as u64;
        }
        Ok(())
    }
}

/// Reads from a device and charges the bytes to the current thread (`task_io_account_read`,
/// block/blk-core.c).
pub fn read_for_current(
    driver: &dyn BlockDevice,
    sector: u64,
    segments: &[Segment<'_>],
) -> Result<()> {
    caller::read_from_device(segments.iter().map(|segment| segment.length).sum());
    driver.read(sector, segments)
}

/// The source of a disk's page cache.
struct Pages {
    driver: Arc<dyn BlockDevice>,
}

impl PageSource for Pages {
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        let per_page = PAGE / SECTOR;
        let start = first.checked_mul(per_page).ok_or(Errno::EIO)?;
        let mut left = self.driver.sectors().saturating_sub(start).saturating_mul(SECTOR);
        let mut segments = Vec::new();
        segments.make_room_exact(frames.len())?;
        for frame in frames {
            let length = left.min(PAGE) as usize;
            left -= length as u64;
            if length < PAGE as usize {
                frame.zero_range(length, PAGE as usize - length);
            }
            if length > 0 {
                segments.push(Segment { frame, offset: 0, length });
            }
        }
        if !segments.is_empty() {
            read_for_current(&*self.driver, start, &segments)?;
        }
        Ok(frames.len())
    }
}

impl device::Device for Disk {
    fn open(&self, number: DeviceNumber, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        if request.writes() {
            // As on Linux: EACCES when a read-only disk is opened for writing.
            return Err(if self.driver.read_only() { Errno::EACCES } else { Errno::EPERM });
        }
        Ok(Arc::new(DiskFile(disk(number)?)))
    }
}

/// An open node of a disk.
struct DiskFile(Arc<Disk>);

/// ioctls of `linux/fs.h`.
mod ioctl {
    pub const BLKROGET: u32 = 0x125e;
    pub const BLKGETSIZE: u32 = 0x1260;
    pub const BLKFLSBUF: u32 = 0x1261;
    pub const BLKSSZGET: u32 = 0x1268;
    pub const BLKBSZGET: u32 = 0x8008_1270;
    pub const BLKGETSIZE64: u32 = 0x8008_1272;
}

impl FileOps for DiskFile {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, _: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        content::read_cached(&self.0.page_cache, offset, out)
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Ok(MapSource::PageCache(Arc::clone(&self.0.page_cache)))
    }

    fn seek(&self, _: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        let base = match whence {
            Whence::Set => 0,
            Whence::Current => position,
            Whence::End => self.0.size(),
            Whence::Data | Whence::Hole => return Err(Errno::EINVAL),
        };
        base.checked_add_signed(offset).ok_or(Errno::EINVAL)
    }

    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        let sectors = self.0.driver.sectors();
        let put = |bytes: &[u8]| {
            Output::user(arg as usize, bytes.len())
                .put(bytes)
                .and_then(|count| if count == bytes.len() { Ok(0) } else { Err(Errno::EFAULT) })
        };
        match command {
            ioctl::BLKGETSIZE64 => put(&(sectors * SECTOR).to_le_bytes()),
            ioctl::BLKGETSIZE => put(&sectors.to_le_bytes()),
            ioctl::BLKSSZGET => put(&(SECTOR as i32).to_le_bytes()),
            ioctl::BLKBSZGET => put(&(PAGE as i32).to_le_bytes()),
            ioctl::BLKROGET => put(&i32::from(self.0.driver.read_only()).to_le_bytes()),
            ioctl::BLKFLSBUF => self.0.driver.flush().map(|()| 0),
            _ => Err(Errno::ENOTTY),
        }
    }
}
