//! Group descriptors: the place of each group's inodes.
//!
//! A descriptor is read when an inode of its group is; the size of a table of them would depend on
//! a number in the image. The caller's cache of the device makes the reading cheap.

use crate::checksum::{crc16, crc32c};
use crate::error::{Error, Result, buffer};
use crate::field::{split, u16, u32};
use crate::volume::{Backups, GroupSum, Source, Volume};

/// Where a descriptor keeps its checksum.
const SUM: usize = 0x1e;

impl Volume {
    /// Byte of the volume where the inode table of `group` begins.
    pub(crate) fn inode_table<S: Source + ?Sized>(&self, source: &S, group: u32) -> Result<u64> {
        let mut raw = buffer(self.descriptor_size.into())?;
        self.read(source, self.descriptor_place(group)?, &mut raw)?;
        self.check_descriptor(group, &raw)?;
        let high = if self.descriptor_size >= 64 { u32(&raw, 0x28) } else { 0 };
        let bytes = u64::from(self.inodes_per_group) * u64::from(self.inode_size);
        self.place(split(high, u32(&raw, 0x8)), bytes.div_ceil(self.block_size() as u64))
            .ok_or(Error::Corrupt("the place of an inode table"))
    }

    fn descriptor_place(&self, group: u32) -> Result<u64> {
        let per_block = (self.block_size() / usize::from(self.descriptor_size)) as u32;
        let (index, slot) = (group / per_block, group % per_block);
        let block = match self.first_meta_group {
            Some(first) if index >= first => {
                let leader = index * per_block;
                let start = u64::from(self.first_data_block)
                    + u64::from(leader) * u64::from(self.blocks_per_group);
                start + u64::from(self.has_backup(leader))
            }
            _ => u64::from(self.first_data_block) + 1 + u64::from(index),
        };
        let place = self.place(block, 1).ok_or(Error::Corrupt("the table of groups"))?;
        Ok(place + u64::from(slot) * u64::from(self.descriptor_size))
    }

    fn has_backup(&self, group: u32) -> bool {
        let power_of = |base: u32| {
            let mut power = base;
            while power < group {
                match power.checked_mul(base) {
                    Some(next) => power = next,
                    None => return false,
                }
            }
            power == group
        };
        match self.backups {
            _ if group == 0 => true,
            Backups::Every => true,
            Backups::Two(one, other) => group == one || group == other,
            Backups::Sparse => group == 1 || power_of(3) || power_of(5) || power_of(7),
        }
    }

    fn check_descriptor(&self, group: u32, raw: &[u8]) -> Result<()> {
        let number = group.to_le_bytes();
        let (before, after) =
            (raw.get(..SUM).unwrap_or_default(), raw.get(SUM + 2..).unwrap_or_default());
        let sum = match self.group_sum {
            GroupSum::None => return Ok(()),
            GroupSum::Crc16 => crc16(&[&self.uuid(), &number, before, after]),
            GroupSum::Crc32c => {
                crc32c(self.seed.unwrap_or(!0), &[&number, before, &[0, 0], after]) as u16
            }
        };
        if sum == u16(raw, SUM) { Ok(()) } else { Err(Error::Checksum("a group descriptor")) }
    }
}
