//! Group descriptors: the place of each group's inodes.
//!
//! A reader reads a descriptor when an inode of its group is read; the size of a table of them
//! would depend on a number in the image. The caller's cache of the device makes the reading cheap.
//!
//! A writer keeps the numbers of all groups ([`Group`]): it chooses groups by them. They change
//! with each operation, and the descriptors are made of them once for each transaction.

use alloc::vec::Vec;

use crate::checksum::crc16;
use crate::error::{Error, Result, buffer};
use crate::field::{put_u16, split, u16, u32};
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

    pub(crate) fn descriptor_place(&self, group: u32) -> Result<u64> {
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

    pub(crate) fn has_backup(&self, group: u32) -> bool {
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
        match self.descriptor_sum(group, raw) {
            Some(sum) if sum != u16(raw, SUM) => Err(Error::Checksum("a group descriptor")),
            _ => Ok(()),
        }
    }

    fn descriptor_sum(&self, group: u32, raw: &[u8]) -> Option<u16> {
        let number = group.to_le_bytes();
        let (before, after) =
            (raw.get(..SUM).unwrap_or_default(), raw.get(SUM + 2..).unwrap_or_default());
        match self.group_sum {
            GroupSum::None => None,
            GroupSum::Crc16 => Some(crc16(&[&self.uuid(), &number, before, after])),
            GroupSum::Crc32c => {
                self.seed.map(|seed| seed.over(&[&number, before, &[0, 0], after]) as u16)
            }
        }
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> u32 {
        let blocks = self.blocks - u64::from(self.first_data_block);
        blocks.div_ceil(self.blocks_per_group.into()) as u32
    }

    /// The first block of a group.
    pub(crate) fn group_start(&self, group: u32) -> u64 {
        u64::from(self.first_data_block) + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks of a group: the last one may be shorter.
    pub(crate) fn group_blocks(&self, group: u32) -> u32 {
        let rest = self.blocks.saturating_sub(self.group_start(group));
        rest.min(self.blocks_per_group.into()) as u32
    }

    /// The group of a block, and which of its blocks it is.
    pub(crate) fn group_of(&self, block: u64) -> (u32, u32) {
        let at = block.saturating_sub(self.first_data_block.into());
        let size = u64::from(self.blocks_per_group);
        ((at / size) as u32, (at % size) as u32)
    }

    /// Blocks of an inode table.
    pub(crate) fn table_blocks(&self) -> u64 {
        let bytes = u64::from(self.inodes_per_group) * u64::from(self.inode_size);
        bytes.div_ceil(self.block_size() as u64)
    }

    /// Reads the numbers of all groups; `lazy` if they may be uninitialised.
    pub(crate) fn read_groups(&self, source: &dyn Source, lazy: bool) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        groups.try_reserve_exact(self.groups() as usize).map_err(|_| Error::Memory)?;
        self.each_group(source, lazy, |group| groups.push(group))?;
        Ok(groups)
    }

    /// The free blocks and inodes of all groups.
    pub(crate) fn count_free<S: Source + ?Sized>(&self, source: &S) -> Result<(u64, u32)> {
        let (mut blocks, mut inodes) = (0, 0u32);
        self.each_group(source, false, |group| {
            blocks += u64::from(group.free_blocks);
            inodes = inodes.saturating_add(group.free_inodes);
        })?;
        Ok((blocks, inodes))
    }

    fn each_group<S: Source + ?Sized>(
        &self,
        source: &S,
        lazy: bool,
        mut visit: impl FnMut(Group),
    ) -> Result<()> {
        let size = usize::from(self.descriptor_size);
        let mut block = buffer(self.block_size())?;
        for number in 0..self.groups() {
            let place = self.descriptor_place(number)?;
            let within = (place % self.block_size() as u64) as usize;
            if within == 0 || number == 0 {
                self.read(source, place - within as u64, &mut block)?;
            }
            let raw = block.get(within..within + size).unwrap_or_default();
            self.check_descriptor(number, raw)?;
            visit(self.decode_group(number, raw, lazy)?);
        }
        Ok(())
    }

    fn decode_group(&self, number: u32, raw: &[u8], lazy: bool) -> Result<Group> {
        let wide = raw.len() >= 64;
        let place =
            |low: usize, high: usize| split(if wide { u32(raw, high) } else { 0 }, u32(raw, low));
        let count = |low: usize, high: usize| {
            u32::from(u16(raw, low)) | if wide { u32::from(u16(raw, high)) << 16 } else { 0 }
        };
        let group = Group {
            block_bitmap: place(0x0, 0x20),
            inode_bitmap: place(0x4, 0x24),
            inode_table: place(0x8, 0x28),
            free_blocks: count(0xc, 0x2c),
            free_inodes: count(0xe, 0x2e),
            directories: count(0x10, 0x30),
            unused: if lazy { count(0x1c, 0x32) } else { 0 },
            flags: if lazy { u16(raw, 0x12) } else { u16(raw, 0x12) & !LAZY },
            dirty: false,
        };
        let good = self.place(group.block_bitmap, 1).is_some()
            && self.place(group.inode_bitmap, 1).is_some()
            && self.place(group.inode_table, self.table_blocks()).is_some()
            && group.free_blocks <= self.group_blocks(number)
            && group.free_inodes <= self.inodes_per_group
            && group.unused <= self.inodes_per_group;
        if good { Ok(group) } else { Err(Error::Corrupt("a group descriptor")) }
    }

    /// Puts the numbers of a group into its descriptor `raw`; with the bitmaps of blocks and
    /// inodes, where they have changed, their checksums too.
    pub(crate) fn encode_group(
        &self,
        number: u32,
        group: &Group,
        raw: &mut [u8],
        blocks: Option<&[u8]>,
        inodes: Option<&[u8]>,
    ) {
        let wide = raw.len() >= 64;
        let mut count = |low: usize, high: usize, value: u32| {
            put_u16(raw, low, value as u16);
            if wide {
                put_u16(raw, high, (value >> 16) as u16);
            }
        };
        count(0xc, 0x2c, group.free_blocks);
        count(0xe, 0x2e, group.free_inodes);
        count(0x10, 0x30, group.directories);
        if self.group_sum != GroupSum::None {
            count(0x1c, 0x32, group.unused);
        }
        if let Some(seed) = self.seed {
            let sum = |bits: &[u8], size: u32| {
                seed.over(&[bits.get(..(size / 8) as usize).unwrap_or_default()])
            };
            if let Some(bits) = blocks {
                let sum = sum(bits, self.blocks_per_group);
                count(0x18, 0x38, sum);
            }
            if let Some(bits) = inodes {
                count(0x1a, 0x3a, sum(bits, self.inodes_per_group));
            }
        }
        put_u16(raw, 0x12, group.flags);
        if let Some(sum) = self.descriptor_sum(number, raw) {
            put_u16(raw, SUM, sum);
        }
    }

    /// Verifies a bitmap with the sum at `low` and `high` of the descriptor `raw`, over `size`
    /// bits.
    pub(crate) fn check_bitmap(
        &self,
        raw: &[u8],
        (low, high): (usize, usize),
        bits: &[u8],
        size: u32,
    ) -> Result<()> {
        let Some(seed) = self.seed else { return Ok(()) };
        let sum = seed.over(&[bits.get(..(size / 8) as usize).unwrap_or_default()]);
        let wide = raw.len() >= 64;
        let expected = u32::from(u16(raw, low)) | if wide { u32(raw, high) << 16 } else { 0 };
        let mask = if wide { !0 } else { 0xffff };
        if sum & mask == expected { Ok(()) } else { Err(Error::Checksum("a bitmap")) }
    }
}

/// Flags of a group: its bitmaps of inodes and of blocks, and its table, were never written.
const INODES_UNUSED: u16 = 1;
const BLOCKS_UNUSED: u16 = 2;
const LAZY: u16 = INODES_UNUSED | BLOCKS_UNUSED;

/// The numbers of one group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
    /// Inodes at the table's end that were never used.
    pub unused: u32,
    pub flags: u16,
    /// Whether the running transaction must make the descriptor new.
    pub dirty: bool,
}

impl Group {
    /// Whether the bitmap of blocks was never written.
    pub fn blocks_unused(&self) -> bool {
        self.flags & BLOCKS_UNUSED != 0
    }

    /// Whether the bitmap of inodes was never written.
    pub fn inodes_unused(&self) -> bool {
        self.flags & INODES_UNUSED != 0
    }

    pub fn use_blocks(&mut self) {
        self.flags &= !BLOCKS_UNUSED;
    }

    pub fn use_inodes(&mut self) {
        self.flags &= !INODES_UNUSED;
    }
}
