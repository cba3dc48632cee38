//! A volume that is written.
//!
//! [`Writer`] has everything of a mounted volume that changes. It has no lock and no task of its
//! own: operations take `&mut self`, readers `&self`, and the parts of a commit that wait for the
//! device take neither. The caller keeps it under one sleeping lock for each mount, and a lock
//! that lets one commit or checkpoint run at a time.
//!
//! The layers, from below to above: bitmaps and groups; transactions ([`crate::transaction`]) and
//! commits ([`crate::commit`]) on the journal ([`crate::journal`]); allocation; inode records; the
//! blocks of files; directories; names and attributes.
//!
//! Road not taken: a cache of clean metadata. The caller's cache of the device is one already.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::allocate::{System, Windows, journal_blocks};
use crate::commit::{DirtyGroups, View};
use crate::error::{Error, Result};
use crate::group::Group;
use crate::inode::Time;
use crate::journal::replay;
use crate::journal::write::Log;
use crate::superblock::{self, Format};
use crate::transaction::{Committed, Running, Transaction};
use crate::volume::{Device, Statistics, Volume};

/// Blocks that a transaction has at most, of any journal.
const LARGEST_TRANSACTION: usize = 2048;

/// Everything of a mounted volume that changes.
pub struct Writer {
    pub(crate) volume: Volume,
    pub(crate) format: Format,
    pub(crate) groups: Vec<Group>,
    pub(crate) dirty_groups: DirtyGroups,
    pub(crate) free_blocks: u64,
    pub(crate) free_inodes: u32,
    /// Whether the present caller may use the blocks reserved for root.
    pub(crate) privileged: bool,
    pub(crate) running: Running,
    pub(crate) committing: Option<Arc<Transaction>>,
    pub(crate) committed: Committed,
    /// The journal; none on a volume without one.
    pub(crate) log: Option<Log>,
    /// Most blocks of a transaction.
    pub(crate) limit: usize,
    /// The last transaction that is durable.
    pub(crate) durable: u32,
    pub(crate) failure: Option<Error>,
    /// Whether the volume was clean when it was opened.
    pub(crate) was_clean: bool,
    /// The orphan list, its first at the end.
    pub(crate) orphans: Vec<u32>,
    /// Blocks with the volume's own structures.
    pub(crate) system: System,
    /// Room ahead of files that grow.
    pub(crate) windows: Windows,
    /// State of the generator of generations and of directories' groups.
    pub(crate) random: u64,
}

impl Writer {
    /// Opens the volume for writing: replays the journal, marks the volume as mounted, frees the
    /// orphans. `size` is that of the device in bytes.
    ///
    /// [`Error::Unsupported`] when it has features that only reading can respect: nothing was
    /// written then, except a replayed journal.
    pub fn open(device: &dyn Device, size: u64, now: Time) -> Result<Self> {
        let mut volume = Volume::open(device, size)?;
        let mut raw = superblock::read(device)?;
        superblock::check_writable(&raw)?;
        let format = Format::decode(&raw)?;
        if superblock::needs_recovery(&raw) {
            let journal = format.journal.ok_or(Error::Corrupt("the journal"))?;
            replay::replay(&volume, device, journal)?;
            raw = superblock::read(device)?;
            superblock::check_writable(&raw)?;
            volume = Volume::open(device, size)?;
        }
        let format = Format::decode(&raw)?;
        let groups = volume.read_groups(device, format.lazy_groups)?;
        if u64::from(volume.inodes)
            != u64::from(volume.groups()) * u64::from(volume.inodes_per_group)
            || volume.inodes_per_group % 8 != 0
            || volume.blocks_per_group % 8 != 0
            || volume.blocks_per_group > 8 * volume.block_size() as u32
        {
            return Err(Error::Corrupt("the group size in the superblock"));
        }
        let log = match format.journal {
            Some(number) => Some(Log::open(&volume, device, number, &format, &mut raw)?),
            None => None,
        };
        let was_clean = log.is_some() || superblock::is_clean(&raw);
        superblock::set_mounted(&mut raw, log.is_some(), now);
        device.write(superblock::PLACE, &raw)?;
        device.flush()?;
        let limit = log.as_ref().map_or(LARGEST_TRANSACTION, |log| log.size() as usize / 4);
        let number = log.as_ref().map_or(1, Log::sequence);
        let mut writer = Self {
            free_blocks: groups.iter().map(|group| u64::from(group.free_blocks)).sum(),
            free_inodes: groups.iter().map(|group| group.free_inodes).sum(),
            random: u64::from_le_bytes(core::array::from_fn(|at| volume.uuid()[at]))
                ^ (now.seconds as u64) << 20
                ^ u64::from(now.nanoseconds)
                | 1,
            volume,
            format,
            groups,
            dirty_groups: Vec::new(),
            privileged: true,
            running: Running::new(number),
            committing: None,
            committed: Committed::default(),
            log,
            limit: limit.min(LARGEST_TRANSACTION),
            durable: number.wrapping_sub(1),
            failure: None,
            was_clean,
            orphans: Vec::new(),
            system: System::default(),
            windows: Windows::default(),
        };
        let journal = match writer.format.journal {
            Some(number) => journal_blocks(&writer.volume, device, number)?,
            None => Vec::new(),
        };
        writer.system = System::gather(&writer, &journal)?;
        writer.free_orphans(device, now)?;
        Ok(writer)
    }

    /// The numbers of the format, for reading.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The present numbers for `statfs`.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            blocks: self.volume.blocks - self.volume.overhead,
            free_blocks: self.free_blocks,
            reserved_blocks: self.format.reserved_blocks.min(self.free_blocks),
            inodes: self.volume.inodes,
            free_inodes: self.free_inodes,
        }
    }

    /// The volume as it is now, for the readers of [`Volume`].
    pub fn view<'a>(&'a self, device: &'a dyn Device) -> View<'a> {
        View { writer: self, device }
    }

    /// Sets whether the caller of the following operations may use the blocks reserved for root.
    pub fn set_privileged(&mut self, privileged: bool) {
        self.privileged = privileged;
    }

    /// A number that looks like chance: xorshift64*.
    pub(crate) fn chance(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}
