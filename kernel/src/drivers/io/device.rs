//! A disk whose requests are counted: for itself, and for the groups that pay for them.
//!
//! A read is one request, since its caller joins what lies in a row. A write is one for each run of
//! neighbours on the disk that are of one payer, as the driver joins them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_cgroup_rules::io::Direction;
use hayate_machine::frames::Frame;
use hayate_machine::sync::RwSpinLock;

use super::groups::{self, Counts, Kind};
use super::{charge, payer};
use crate::drivers::block::{BlockDevice, SECTOR, Segment};
use crate::reclaim::charge::records;
use crate::reclaim::growth::Grow;

/// A disk.
pub struct Counted {
    driver: Arc<dyn BlockDevice>,
    number: (u32, u32),
    /// Its place among all.
    at: usize,
    all: Counts,
}

static DEVICES: RwSpinLock<Vec<Arc<Counted>>> = RwSpinLock::new(Vec::new());

/// The device at a place.
pub fn device(at: usize) -> Option<Arc<Counted>> {
    DEVICES.read().get(at).cloned()
}

/// The device with a major and a minor number.
pub fn numbered(major: u32, minor: u32) -> Option<Arc<Counted>> {
    DEVICES.read().iter().find(|device| device.number == (major, minor)).cloned()
}

/// Who pays for what is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Payer {
    /// Nobody but the machine.
    Root,
    /// Each page's own group, or the writing thread's.
    Pages,
}

/// Neighbours on the disk that are of one payer.
#[derive(Default)]
struct Run {
    group: u32,
    bytes: u64,
    requests: u64,
    /// The sector behind it.
    end: Option<u64>,
}

impl Counted {
    /// Makes one of a driver, with its major and minor number.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(driver: Arc<dyn BlockDevice>, number: (u32, u32)) -> Result<Arc<Counted>> {
        let mut devices = DEVICES.write();
        devices.make_room(1)?;
        let at = devices.len();
        let device = Arc::new(Counted { driver, number, at, all: Counts::default() });
        devices.push(Arc::clone(&device));
        groups::note_device();
        Ok(device)
    }

    /// The driver, for all but transfers.
    pub fn driver(&self) -> &dyn BlockDevice {
        &*self.driver
    }

    /// The major and the minor number.
    pub fn number(&self) -> (u32, u32) {
        self.number
    }

    /// Its place among all.
    pub fn at(&self) -> usize {
        self.at
    }

    /// All requests since boot.
    pub fn all(&self) -> &Counts {
        &self.all
    }

    fn count(&self, kind: Kind, bytes: u64, requests: u64, group: u32) {
        self.all.add(kind, bytes, requests);
        if group != 0 {
            groups::count(group, self.at, kind, bytes, requests);
        }
    }

    /// Reads as [`BlockDevice::read`] does, for the current thread.
    pub fn read(&self, sector: u64, segments: &[Segment<'_>]) -> Result<()> {
        let bytes: usize = segments.iter().map(|segment| segment.length).sum();
        let group = payer().0;
        self.count(Kind::Read, bytes as u64, 1, group);
        charge(group, self.at, Direction::Read, bytes as u64, 1);
        self.driver.read(sector, segments)
    }

    /// Writes content as [`BlockDevice::write`] does, for the groups whose pages these are. Their
    /// bytes were charged to limits when they became dirty ([`super::made_dirty`]).
    pub fn write_content(
        &self,
        pieces: &mut dyn Iterator<Item = (u64, Segment<'_>)>,
    ) -> Result<()> {
        self.write(Payer::Pages, pieces)
    }

    /// Writes metadata as [`BlockDevice::write`] does, for nobody but the machine.
    pub fn write_metadata(
        &self,
        pieces: &mut dyn Iterator<Item = (u64, Segment<'_>)>,
    ) -> Result<()> {
        self.write(Payer::Root, pieces)
    }

    fn write(
        &self,
        payer: Payer,
        pieces: &mut dyn Iterator<Item = (u64, Segment<'_>)>,
    ) -> Result<()> {
        let is_paid = payer == Payer::Pages && groups::is_used();
        let mut run = Run::default();
        let outcome = self.driver.write(&mut pieces.inspect(|(sector, segment)| {
            let group = if is_paid { payer_of(segment.frame) } else { 0 };
            if group != run.group {
                self.wrote(core::mem::take(&mut run));
                run.group = group;
            }
            run.requests += u64::from(run.end != Some(*sector));
            run.bytes += segment.length as u64;
            run.end = Some(sector + segment.length as u64 / SECTOR);
        }));
        self.wrote(run);
        outcome
    }

    fn wrote(&self, Run { group, bytes, requests, .. }: Run) {
        if requests != 0 {
            self.count(Kind::Write, bytes, requests, group);
            charge(group, self.at, Direction::Write, 0, requests);
        }
    }

    /// Discards sectors, as [`BlockDevice::discard`] does, for the current thread.
    pub fn discard(&self, sector: u64, sectors: u64) -> Result<()> {
        self.driver.discard(sector, sectors)?;
        self.cleared(Kind::Discard, sectors, 0);
        Ok(())
    }

    /// Zeroes sectors, as [`BlockDevice::write_zeroes`] does, for the current thread.
    pub fn write_zeroes(&self, sector: u64, sectors: u64, unmap: bool) -> Result<()> {
        self.driver.write_zeroes(sector, sectors, unmap)?;
        self.cleared(Kind::Write, sectors, sectors.saturating_mul(SECTOR));
        Ok(())
    }

    fn cleared(&self, kind: Kind, sectors: u64, charged: u64) {
        let group = payer().0;
        self.count(kind, sectors.saturating_mul(SECTOR), 1, group);
        charge(group, self.at, Direction::Write, charged, 1);
    }
}

/// The group that pays for a page: that of its account of memory, or the writing thread's if that
/// lies in it or there is no account.
fn payer_of(frame: &Frame) -> u32 {
    match frame.owner() {
        0 => payer().0,
        owner => {
            let (group, writer) = (records::io_of(owner), payer().0);
            if groups::is_within(writer, group) { writer } else { group }
        }
    }
}
