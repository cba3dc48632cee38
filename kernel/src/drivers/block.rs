//! The interface of a disk driver.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::sync::SpinLock;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// A part of a frame to be filled or written.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    /// The frame.
    pub frame: &'a Frame,
    /// First byte in it; a multiple of [`SECTOR`].
    pub offset: usize,
    /// Bytes; a multiple of [`SECTOR`], at least one.
    pub length: usize,
}

/// A disk driver. All calls sleep, if they have to wait for the device.
pub trait BlockDevice: Send + Sync {
    /// Returns the size in sectors.
    fn sectors(&self) -> u64;

    /// Whether it cannot be written.
    fn read_only(&self) -> bool;

    /// Fills the segments, in order, from `sector` on. The caller stays inside the size. `EIO` when
    /// the device fails; then the content of the segments is undefined.
    fn read(&self, sector: u64, segments: &[Segment<'_>]) -> Result<()>;

    /// Writes each segment at its sector. Neighbours in the list that are neighbours on the disk
    /// are written together. The caller stays inside the size, and writes no sector twice. `EIO`:
    /// some were not written. `ENOMEM`: some were not tried, and none failed.
    fn write(&self, pieces: &mut dyn Iterator<Item = (u64, Segment<'_>)>) -> Result<()>;

    /// Makes everything written so far persistent.
    fn flush(&self) -> Result<()>;

    /// Gives sectors back to the host, whose content is undefined then; `EOPNOTSUPP` for a disk
    /// that cannot. The caller stays inside the size.
    fn discard(&self, sector: u64, sectors: u64) -> Result<()> {
        let _ = (sector, sectors);
        Err(Errno::EOPNOTSUPP)
    }

    /// Fills sectors with zeroes, and gives them back to the host if `unmap`; `EOPNOTSUPP` for a
    /// disk that can only write them. The caller stays inside the size.
    fn write_zeroes(&self, sector: u64, sectors: u64, unmap: bool) -> Result<()> {
        let _ = (sector, sectors, unmap);
        Err(Errno::EOPNOTSUPP)
    }

    /// Returns the serial number that the host gave the disk, if it was asked for.
    fn serial(&self) -> &str {
        ""
    }

    /// Returns how the disk wants to be used.
    fn shape(&self) -> Shape {
        Shape::default()
    }
}

/// How a disk wants to be used, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The unit of transfers.
    pub logical: u32,
    /// The unit that the medium writes.
    pub physical: u32,
    /// The least transfer that costs nothing extra.
    pub least: u32,
    /// The best size of transfers; 0: any.
    pub best: u32,
}

impl Default for Shape {
    fn default() -> Self {
        let sector = SECTOR as u32;
        Self { logical: sector, physical: sector, least: sector, best: 0 }
    }
}

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts a read that a driver is about to make.
pub(super) fn count_read(segments: &[Segment<'_>]) {
    REQUESTS.fetch_add(1, Relaxed);
    let bytes: usize = segments.iter().map(|segment| segment.length).sum();
    BYTES.fetch_add(bytes as u64, Relaxed);
}

/// Returns the reads from all disks since boot: requests and bytes.
pub fn reads() -> (u64, u64) {
    (REQUESTS.load(Relaxed), BYTES.load(Relaxed))
}

static DRIVERS: SpinLock<Vec<Arc<dyn BlockDevice>>> = SpinLock::new(Vec::new());

/// Registers a driver; returns its index among all.
pub fn register(driver: Arc<dyn BlockDevice>) -> usize {
    let mut drivers = DRIVERS.lock();
    drivers.push(driver);
    drivers.len() - 1
}

/// Returns all drivers, in the order in which their devices were found.
pub fn drivers() -> Vec<Arc<dyn BlockDevice>> {
    DRIVERS.lock().clone()
}
