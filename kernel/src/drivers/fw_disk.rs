//! Disks that the hypervisor holds in its own memory: files of QEMU's `fw_cfg` with the names
//! `opt/hayate/disk0`, `disk1` and so on.
//!
//! Reading such a disk never waits, so it takes the same number of instructions in every run. The
//! root file system lies here when guest time must repeat exactly (`./hayate run --deterministic`).
//! With a virtio disk the guest idles until the host has read, and QEMU, which counts instructions,
//! lets the clock jump meanwhile. These disks are looked for only if the command line has the word
//! `fw_cfg_disks`.

use alloc::format;
use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::fw_cfg::{self, File};
use hayate_machine::{boot, info};

use super::block::{BlockDevice, SECTOR, Segment, count_read, register};

struct Disk(File);

/// Registers all of them, in the order of their numbers.
pub fn start() {
    if !boot::flag("fw_cfg_disks") {
        return;
    }
    let mut number = 0;
    while let Some(file) = fw_cfg::file(&format!("opt/hayate/disk{number}")) {
        let index = register(Arc::new(Disk(file)));
        info!("fw_cfg: disk {index}, {} KiB, read-only", file.size() >> 10);
        number += 1;
    }
}

impl BlockDevice for Disk {
    fn sectors(&self) -> u64 {
        self.0.size() / SECTOR
    }

    fn read_only(&self) -> bool {
        true
    }

    fn read(&self, sector: u64, segments: &[Segment<'_>]) -> Result<()> {
        count_read(segments);
        let offset = sector.checked_mul(SECTOR).ok_or(Errno::EIO)?;
        let pieces = segments.iter().map(|part| (part.frame, part.offset, part.length));
        self.0.read(offset, pieces).map_err(|_| Errno::EIO)
    }

    fn write(&self, _: &mut dyn Iterator<Item = (u64, Segment<'_>)>) -> Result<()> {
        Err(Errno::EROFS)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
