//! Allocation of inodes: a file's near its directory, directories spread over the volume.
//!
//! The choice of a group follows Linux' Orlov allocator in outline: a directory in the root goes
//! to a group with more free inodes and blocks than the average and few directories, from a random
//! one on; a deeper one stays near its parent as long as that has room; a file goes to its
//! directory's group, or to one that a hash of the directory leads to.

use alloc::borrow::Cow;

use crate::bitmap::{self, Free};
use crate::error::{Error, Result, buffer};
use crate::group::Group;
use crate::volume::Device;
use crate::writer::Writer;

const CORRUPT: Error = Error::Corrupt("a bitmap of inodes");
/// Groups that are compared for a directory of the root.
const COMPARED: u32 = 1024;

impl Writer {
    /// The group of an inode, and which of its inodes it is.
    pub(crate) fn inode_group(&self, number: u32) -> (u32, u32) {
        let at = number.saturating_sub(1);
        (at / self.volume.inodes_per_group, at % self.volume.inodes_per_group)
    }

    /// The block of an inode's record, and the byte in it.
    pub(crate) fn inode_place(&self, number: u32) -> Result<(u64, usize)> {
        if number == 0 || number > self.volume.inodes {
            return Err(Error::Corrupt("the number of an inode"));
        }
        let (group, within) = self.inode_group(number);
        let table = self.groups.get(group as usize).ok_or(CORRUPT)?.inode_table;
        let byte = u64::from(within) * u64::from(self.volume.inode_size);
        let block = table + (byte >> self.volume.block_shift);
        Ok((block, (byte % self.volume.block_size() as u64) as usize))
    }

    fn inode_bitmap(&self, device: &dyn Device, group: u32) -> Result<Cow<'_, [u8]>> {
        let numbers = self.groups.get(group as usize).ok_or(CORRUPT)?;
        let size = self.volume.inodes_per_group;
        if numbers.inodes_unused() {
            let mut bits = buffer(self.volume.block_size())?;
            let end = bits.len() as u32 * 8;
            bitmap::fill(&mut bits, size..end, true);
            return Ok(Cow::Owned(bits));
        }
        self.bitmap(device, group, numbers.inode_bitmap, (0x1a, 0x3a), size)
    }

    /// Whether `group` is good for a directory in the root, compared with the average.
    fn suits(&self, group: &Group) -> bool {
        let groups = self.volume.groups();
        let blocks = self.free_blocks / u64::from(groups);
        group.free_inodes > 0
            && group.free_inodes >= self.free_inodes / groups
            && u64::from(group.free_blocks) >= blocks
    }

    /// The group where the search for a directory's inode begins.
    fn directory_group(&mut self, parent: u32) -> u32 {
        let groups = self.volume.groups();
        let near = self.inode_group(parent).0 % groups;
        if parent == crate::ROOT {
            let start = self.chance() % groups;
            let candidates = (0..groups.min(COMPARED)).map(|step| (start + step) % groups);
            let fewest = candidates
                .filter_map(|number| Some((number, self.groups.get(number as usize)?)))
                .filter(|(_, group)| self.suits(group))
                .min_by_key(|(_, group)| group.directories);
            return fewest.map_or(near, |(number, _)| number);
        }
        // Linux' thresholds: a quarter of a group's inodes and blocks below the average.
        let least_inodes =
            (self.free_inodes / groups).saturating_sub(self.volume.inodes_per_group / 4);
        let least_blocks = (self.free_blocks / u64::from(groups))
            .saturating_sub(u64::from(self.volume.blocks_per_group) / 4);
        let candidates = (0..groups.min(COMPARED)).map(|step| (near + step) % groups);
        let mut good = candidates.filter(|&number| {
            self.groups.get(number as usize).is_some_and(|group| {
                group.free_inodes > 0
                    && group.free_inodes >= least_inodes
                    && u64::from(group.free_blocks) >= least_blocks
            })
        });
        good.next().unwrap_or(near)
    }

    /// The group where the search for a file's inode begins.
    fn file_group(&self, parent: u32) -> u32 {
        let groups = self.volume.groups();
        let near = self.inode_group(parent).0 % groups;
        let has_room = |number: u32| {
            let group = self.groups.get(number as usize);
            group.is_some_and(|group| group.free_inodes > 0 && group.free_blocks > 0)
        };
        if has_room(near) {
            return near;
        }
        let mut number = (near + parent) % groups;
        let mut step = 1;
        while step < groups {
            number = (number + step) % groups;
            if has_room(number) {
                return number;
            }
            step <<= 1;
        }
        near
    }

    /// Allocates an inode for something in directory `parent`; returns its number.
    pub(crate) fn allocate_inode(
        &mut self,
        device: &dyn Device,
        parent: u32,
        is_directory: bool,
    ) -> Result<u32> {
        let groups = self.volume.groups();
        if self.free_inodes == 0 {
            return Err(Error::NoSpace);
        }
        let first =
            if is_directory { self.directory_group(parent) } else { self.file_group(parent) };
        for step in 0..groups {
            let group = (first + step) % groups;
            if self.groups.get(group as usize).is_none_or(|group| group.free_inodes == 0) {
                continue;
            }
            let used = self.inode_bitmap(device, group)?;
            let size = self.volume.inodes_per_group;
            let reserved = self.format.first_inode.saturating_sub(1 + group.saturating_mul(size));
            let from = reserved.min(size);
            let free = Free { used: &used, held: None };
            // The search goes by words; a group may end within one.
            if let Some(run) = free.run(from..size, 1) {
                return self.take_inode(device, group, run.start, is_directory);
            }
        }
        Err(Error::NoSpace)
    }

    fn take_inode(
        &mut self,
        device: &dyn Device,
        group: u32,
        within: u32,
        is_directory: bool,
    ) -> Result<u32> {
        let size = self.volume.inodes_per_group;
        let number = group * size + within + 1;
        // The records that share the block: if none is used, what the block has is not read.
        let shift = self.volume.block_shift;
        let per_block = (1u32 << shift) / u32::from(self.volume.inode_size);
        let lowest = within - within % per_block;
        let bits = self.inode_bitmap(device, group)?;
        let alone =
            bitmap::count(&bits, lowest..(lowest + per_block).min(size)) == 0 && per_block > 1;
        // As in Linux, a group with an inode has a bitmap of blocks too.
        if self.groups.get(group as usize).is_some_and(Group::blocks_unused) {
            self.change_block_bitmap(device, group)?;
        }
        let bits = self.change_inode_bitmap(device, group)?;
        bitmap::fill(bits, within..within + 1, true);
        let numbers = self.groups.get(group as usize).ok_or(CORRUPT)?;
        if numbers.free_inodes == 0 || self.free_inodes == 0 {
            return Err(CORRUPT);
        }
        self.change_group(device, group, |numbers| {
            numbers.free_inodes -= 1;
            numbers.directories += u32::from(is_directory);
            numbers.unused = numbers.unused.min(size - within - 1);
        })?;
        self.free_inodes -= 1;
        let (block, _) = self.inode_place(number)?;
        if alone && self.copy(block).is_none() {
            self.fresh(block)?;
        }
        Ok(number)
    }

    fn change_inode_bitmap(
        &mut self,
        device: &dyn Device,
        group: u32,
    ) -> Result<&mut alloc::vec::Vec<u8>> {
        let numbers = self.groups.get(group as usize).ok_or(CORRUPT)?;
        let number = numbers.inode_bitmap;
        if !numbers.inodes_unused() {
            if self.running.copy(number).is_none() {
                self.inode_bitmap(device, group)?;
            }
            return self.modify(device, number);
        }
        let size = self.volume.inodes_per_group;
        self.change_group(device, group, |numbers| {
            numbers.use_inodes();
            numbers.unused = size;
        })?;
        let bits = self.fresh(number)?;
        let end = bits.len() as u32 * 8;
        bitmap::fill(bits, size..end, true);
        Ok(bits)
    }

    /// Frees an inode's number.
    pub(crate) fn free_inode(
        &mut self,
        device: &dyn Device,
        number: u32,
        is_directory: bool,
    ) -> Result<()> {
        let (group, within) = self.inode_group(number);
        if number < self.format.first_inode || number > self.volume.inodes {
            return Err(CORRUPT);
        }
        let bits = self.change_inode_bitmap(device, group)?;
        if !bitmap::get(bits, within) {
            return Err(CORRUPT);
        }
        bitmap::fill(bits, within..within + 1, false);
        self.change_group(device, group, |numbers| {
            numbers.free_inodes = numbers.free_inodes.saturating_add(1);
            numbers.directories = numbers.directories.saturating_sub(u32::from(is_directory));
        })?;
        self.free_inodes = self.free_inodes.saturating_add(1);
        Ok(())
    }
}
