//! Disks: block devices with a page cache, as file systems and the nodes in `/dev` use them.
//!
//! A [`Disk`] is a driver with a name, a number and a page cache: the node `/dev/NAME` reads,
//! writes and maps through this page cache ([`node`]), and file systems read their metadata through
//! it ([`Disk::read`]). File content goes from the driver to the file's own page cache and not
//! through the disk's, so that nothing is cached twice. What programs wrote to the node is on the
//! disk when a file system is mounted or the last open node is closed, as on Linux (`blkdev_put`).
//!
//! A disk that can be written has its pages written back (`page_cache::write_back`); one that
//! cannot costs nothing of that. Mounted disks are claimed ([`Claim`]): a program that opens a node
//! with `O_EXCL` (mkfs, fsck) learns that the disk is in use.
//!
//! Lock order: the content lock of the page cache, then the claims, a leaf.

pub mod node;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::{RwSpinLock, SpinLock};

use crate::drivers::block;
use crate::drivers::block::{BlockDevice, SECTOR, Segment};
use crate::drivers::io::device::Counted;
use crate::page_cache::cache::PageCache;
use crate::page_cache::source::PageSource;
use crate::page_cache::write_back;
use crate::reclaim::growth::Grow;
use crate::vfs::inode::{DeviceNumber, FileKind};
use crate::vfs::{caller, device};

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
    device: Arc<Counted>,
    page_cache: Arc<PageCache>,
    /// Set by `BLKROSET`.
    write_protected: AtomicBool,
    /// Open nodes.
    opened: AtomicUsize,
    claims: SpinLock<Claims>,
}

/// The claim on a disk.
enum Claims {
    /// So many file systems; none at first.
    Mounted(usize),
    /// An open node.
    Exclusive,
}

/// While it exists, the disk is in use.
pub struct Claim(Arc<Disk>);

impl Claim {
    /// Claims a disk for a file system.
    ///
    /// # Errors
    /// `EBUSY`: a program has opened it with `O_EXCL`.
    pub fn mount(disk: &Arc<Disk>) -> Result<Claim> {
        match &mut *disk.claims.lock() {
            Claims::Mounted(count) => *count += 1,
            Claims::Exclusive => return Err(Errno::EBUSY),
        }
        Ok(Claim(Arc::clone(disk)))
    }

    /// Claims a disk for one open node.
    ///
    /// # Errors
    /// `EBUSY`: it is mounted, or another node has it.
    fn exclusive(disk: &Arc<Disk>) -> Result<Claim> {
        let mut claims = disk.claims.lock();
        let Claims::Mounted(0) = *claims else { return Err(Errno::EBUSY) };
        *claims = Claims::Exclusive;
        drop(claims);
        Ok(Claim(Arc::clone(disk)))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.0.claims.lock();
        *claims = match *claims {
            Claims::Mounted(count) => Claims::Mounted(count.saturating_sub(1)),
            Claims::Exclusive => Claims::Mounted(0),
        };
    }
}

static DISKS: RwSpinLock<Vec<Arc<Disk>>> = RwSpinLock::new(Vec::new());

/// Makes a disk for every driver that was found: `vda`, `vdb` and so on.
///
/// # Errors
/// `ENOMEM`.
pub fn init() -> Result<()> {
    for (index, driver) in block::drivers().into_iter().enumerate() {
        // Disks beyond the 26th get a number instead of a letter.
        let name = match u8::try_from(index).ok().filter(|index| *index < 26) {
            Some(letter) => format!("vd{}", char::from(b'a' + letter)),
            None => format!("vd{index}"),
        };
        let number = DeviceNumber::new(MAJOR, index as u32 * MINORS);
        let size = driver.sectors().saturating_mul(SECTOR);
        let is_read_only = driver.read_only();
        let device = Counted::new(driver, (MAJOR, index as u32 * MINORS))?;
        let source = Arc::new(Pages { device: Arc::clone(&device) });
        let page_cache = if is_read_only {
            PageCache::cached(size, source, false)
        } else {
            PageCache::written_back(size, source)
        };
        let disk = Arc::new(Disk {
            name,
            number,
            device,
            page_cache,
            write_protected: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            claims: SpinLock::new(Claims::Mounted(0)),
        });
        DISKS.write().push(Arc::clone(&disk));
        device::register(FileKind::BlockDevice, number, "virtblk", disk);
    }
    if disks().iter().any(|disk| disk.page_cache.is_written_back()) {
        write_back::start()?;
    }
    Ok(())
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

/// Writes what programs wrote to nodes, and makes it durable (`sync(2)`). Errors are told to those
/// who have the nodes open.
pub fn sync_all() {
    for at in 0.. {
        let Some(disk) = DISKS.read().get(at).cloned() else { break };
        if disk.page_cache.is_written_back() {
            let _ = disk.page_cache.write_everything();
            let _ = disk.driver().flush();
        }
    }
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

    /// Whether it cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.driver().read_only() || self.write_protected.load(Ordering::Relaxed)
    }

    /// Writes what programs wrote to the node, before the disk is read around its page cache.
    ///
    /// # Errors
    /// `EIO`; `ENOMEM`.
    pub fn settle(&self) -> Result<()> {
        if self.page_cache.is_dirty() { self.page_cache.write_everything() } else { Ok(()) }
    }

    /// Returns the driver, for all but transfers.
    pub fn driver(&self) -> &dyn BlockDevice {
        self.device.driver()
    }

    /// Returns the device, for transfers that bypass the page cache.
    pub fn device(&self) -> &Counted {
        &self.device
    }

    /// Notes that `length` bytes of `frame` are on the disk now, at byte `offset`, inside one page.
    pub fn overwrite(&self, offset: u64, frame: &Frame, length: usize) {
        let (index, within) = (offset / PAGE, (offset % PAGE) as usize);
        let mut part = [0; 256];
        let mut at = 0;
        while at < length {
            let count = part.len().min(length - at);
            let part = part.get_mut(..count).unwrap_or_default();
            frame.read(at, part);
            self.page_cache.overwrite(index, within + at, part);
            at += count;
        }
    }

    /// Forgets what the page cache has, after a file system wrote past it.
    pub fn forget_pages(&self) {
        self.page_cache.take_all_out();
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
pub fn read_for_current(device: &Counted, sector: u64, segments: &[Segment<'_>]) -> Result<()> {
    caller::read_from_device(segments.iter().map(|segment| segment.length).sum());
    device.read(sector, segments)
}

/// The source of a disk's page cache.
struct Pages {
    device: Arc<Counted>,
}

impl PageSource for Pages {
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        let per_page = PAGE / SECTOR;
        let start = first.checked_mul(per_page).ok_or(Errno::EIO)?;
        let mut left = self.device.driver().sectors().saturating_sub(start).saturating_mul(SECTOR);
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
            read_for_current(&self.device, start, &segments)?;
        }
        Ok(frames.len())
    }

    fn write_pages(&self, pages: &[(u64, Frame)]) -> Result<()> {
        let sectors = self.device.driver().sectors();
        let per_page = PAGE / SECTOR;
        let mut pieces = pages.iter().filter_map(|(index, frame)| {
            let sector = index.checked_mul(per_page)?;
            let count = sectors.checked_sub(sector)?.min(per_page);
            let length = (count * SECTOR) as usize;
            (length > 0).then_some((sector, Segment { frame, offset: 0, length }))
        });
        self.device.write_content(&mut pieces)
    }

    fn device(&self) -> Option<usize> {
        Some(self.device.at())
    }
}
