//! Allocation of blocks: near a goal, in one piece if there is one.
//!
//! The search begins at the goal in the goal's group, and goes on through the groups behind it. It
//! looks into a few groups for a run of the whole length, then takes the longest run that it has
//! seen. Blocks that this or the committing transaction freed are left alone.
//!
//! A file that grows gets room ahead, in memory only ([`Windows`]): others keep out of it as long
//! as there is other space, so that two files that grow at the same time do not cut each other up.
//!
//! Blocks with the volume's own structures are neither given out nor freed, whatever a bitmap or
//! an inode says ([`System`]).

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Range;

use crate::bitmap::{self, Free};
use crate::error::{Error, Result, buffer};
use crate::volume::{Device, Source, Volume};
use crate::writer::Writer;

const CORRUPT: Error = Error::Corrupt("a bitmap of blocks");
/// Groups that are searched for a run of the whole length.
const SEARCHED: u32 = 6;

/// The blocks with the volume's own structures: sorted, disjoint ranges.
#[derive(Default)]
pub struct System(Vec<Range<u64>>);

impl System {
    /// Gathers the bitmaps and tables of all groups, the copies of the superblock with the
    /// descriptors, and the journal.
    pub fn gather(writer: &Writer, journal: &[Range<u64>]) -> Result<System> {
        let mut list: Vec<Range<u64>> = Vec::new();
        let mut add = |range: Range<u64>| {
            match list.last_mut() {
                Some(last) if range.start == last.end => last.end = range.end,
                _ => {
                    list.try_reserve(1).map_err(|_| Error::Memory)?;
                    list.push(range);
                }
            }
            Ok(())
        };
        journal.iter().try_for_each(|range| add(range.clone()))?;
        let volume = &writer.volume;
        for group in &writer.groups {
            add(group.block_bitmap..group.block_bitmap + 1)?;
        }
        for group in &writer.groups {
            add(group.inode_bitmap..group.inode_bitmap + 1)?;
        }
        for group in &writer.groups {
            add(group.inode_table..group.inode_table + volume.table_blocks())?;
        }
        for number in 0..volume.groups() {
            let base = writer.base_blocks(number);
            if base > 0 {
                let start = volume.group_start(number);
                add(start..start + u64::from(base))?;
            }
        }
        list.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        merged.try_reserve_exact(list.len()).map_err(|_| Error::Memory)?;
        for range in list {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Ok(System(merged))
    }

    /// Whether one of the blocks belongs to the volume itself.
    pub fn overlaps(&self, start: u64, count: u64) -> bool {
        let next = self.0.partition_point(|range| range.end <= start);
        self.0.get(next).is_some_and(|range| range.start < start.saturating_add(count))
    }
}

/// Room ahead of files that grow: inode and blocks, the latest last.
#[derive(Default)]
pub struct Windows(Vec<(u32, Range<u64>)>);

impl Windows {
    /// Files that have room ahead at the same time.
    const MOST: usize = 16;

    /// Gives `inode` room for `ahead` blocks from `place` on.
    fn set(&mut self, inode: u32, place: u64, ahead: u64) {
        self.drop_of(inode);
        if self.0.len() >= Self::MOST {
            self.0.remove(0);
        }
        // Without memory it is done without.
        if self.0.try_reserve(1).is_ok() {
            self.0.push((inode, place..place + ahead));
        }
    }

    /// Takes an inode's room away.
    pub fn drop_of(&mut self, inode: u32) {
        self.0.retain(|(owner, _)| *owner != inode);
    }

    /// The room of others than `inode` in `blocks`, counted from their first.
    fn of_others(&self, inode: u32, blocks: Range<u64>) -> impl Iterator<Item = Range<u32>> {
        self.0.iter().filter_map(move |(owner, room)| {
            let (start, end) = (room.start.max(blocks.start), room.end.min(blocks.end));
            let inside = *owner != inode && start < end;
            inside.then(|| (start - blocks.start) as u32..(end - blocks.start) as u32)
        })
    }
}

impl Writer {
    /// Blocks at a group's begin with a copy of the superblock, descriptors, and room for more of
    /// them.
    pub(crate) fn base_blocks(&self, group: u32) -> u32 {
        let volume = &self.volume;
        let per_block = (volume.block_size() / usize::from(volume.descriptor_size)) as u32;
        let backup = u32::from(volume.has_backup(group));
        let meta = group / per_block;
        match volume.first_meta_group {
            Some(first) if meta >= first => {
                let within = group % per_block;
                backup + u32::from(within < 2 || within == per_block - 1)
            }
            first if backup == 1 => {
                let all = volume.groups().div_ceil(per_block);
                1 + first.unwrap_or(all).min(all) + u32::from(self.format.reserved_descriptors)
            }
            _ => 0,
        }
    }

    /// The bitmap of a group that was never written.
    fn initial_bitmap(&self, group: u32, bits: &mut [u8]) -> Result<()> {
        let volume = &self.volume;
        let start = volume.group_start(group);
        let blocks = volume.group_blocks(group);
        bits.fill(0);
        bitmap::fill(bits, 0..self.base_blocks(group).min(blocks), true);
        let numbers = self.groups.get(group as usize).ok_or(CORRUPT)?;
        let table = numbers.inode_table..numbers.inode_table + volume.table_blocks();
        for range in [
            numbers.block_bitmap..numbers.block_bitmap + 1,
            numbers.inode_bitmap..numbers.inode_bitmap + 1,
            table,
        ] {
            let (from, to) = (range.start.max(start), range.end.min(start + u64::from(blocks)));
            if from < to {
                bitmap::fill(bits, (from - start) as u32..(to - start) as u32, true);
            }
        }
        bitmap::fill(bits, blocks..bits.len() as u32 * 8, true);
        if blocks - bitmap::count(bits, 0..blocks) == numbers.free_blocks {
            Ok(())
        } else {
            Err(CORRUPT)
        }
    }

    /// Reads a bitmap and verifies it; `sums` are the places of its checksum in the descriptor.
    pub(crate) fn bitmap(
        &self,
        device: &dyn Device,
        group: u32,
        number: u64,
        sums: (usize, usize),
        size: u32,
    ) -> Result<Cow<'_, [u8]>> {
        let bits = self.block(device, number)?;
        if let Cow::Owned(bits) = &bits {
            let mut raw = buffer(self.volume.descriptor_size.into())?;
            let place = self.volume.descriptor_place(group)?;
            self.view(device).read(place, &mut raw)?;
            self.volume.check_bitmap(&raw, sums, bits, size)?;
        }
        Ok(bits)
    }

    fn block_bitmap(&self, device: &dyn Device, group: u32) -> Result<Cow<'_, [u8]>> {
        let numbers = self.groups.get(group as usize).ok_or(CORRUPT)?;
        if numbers.blocks_unused() {
            let mut bits = buffer(self.volume.block_size())?;
            self.initial_bitmap(group, &mut bits)?;
            return Ok(Cow::Owned(bits));
        }
        let size = self.volume.blocks_per_group;
        self.bitmap(device, group, numbers.block_bitmap, (0x18, 0x38), size)
    }

    /// The bitmap of blocks of a group, to be changed; it is made if it was never written.
    pub(crate) fn change_block_bitmap(
        &mut self,
        device: &dyn Device,
        group: u32,
    ) -> Result<&mut Vec<u8>> {
        let numbers = self.groups.get(group as usize).ok_or(CORRUPT)?;
        let number = numbers.block_bitmap;
        if !numbers.blocks_unused() {
            if self.running.copy(number).is_none() {
                self.block_bitmap(device, group)?;
            }
            return self.modify(device, number);
        }
        let mut bits = buffer(self.volume.block_size())?;
        self.initial_bitmap(group, &mut bits)?;
        self.change_group(device, group, |numbers| numbers.use_blocks())?;
        let block = self.fresh(number)?;
        block.copy_from_slice(&bits);
        Ok(block)
    }

    /// Changes the numbers of a group; its descriptor is made at the commit.
    pub(crate) fn change_group(
        &mut self,
        device: &dyn Device,
        group: u32,
        change: impl FnOnce(&mut crate::group::Group),
    ) -> Result<()> {
        self.keep_group(group)?;
        let block = self.volume.descriptor_place(group)? >> self.volume.block_shift;
        self.modify(device, block)?;
        self.dirty_groups.try_reserve(1).map_err(|_| Error::Memory)?;
        let numbers = self.groups.get_mut(group as usize).ok_or(CORRUPT)?;
        change(numbers);
        if !numbers.dirty {
            numbers.dirty = true;
            self.dirty_groups.push(group);
        }
        Ok(())
    }

    /// How many blocks the caller may still have, of `want`.
    fn allowed(&self, want: u32) -> Result<u32> {
        let reserved = if self.privileged { 0 } else { self.format.reserved_blocks };
        let free = self.free_blocks.saturating_sub(reserved);
        match want.min(u32::try_from(free).unwrap_or(u32::MAX)) {
            0 => Err(self.full()),
            some => Ok(some),
        }
    }

    /// The error when there are no blocks: after a commit there may be some.
    fn full(&self) -> Error {
        let committing = self.committing.as_ref();
        let holds = !self.running.held.is_empty()
            || committing.is_some_and(|transaction| !transaction.held.is_empty());
        if holds { Error::CommitFirst } else { Error::NoSpace }
    }

    /// Searches a group for a run of free blocks: `want` of them, or the longest; outside of the
    /// room of others than `owner`, if there is an owner.
    fn search(
        &self,
        device: &dyn Device,
        group: u32,
        from: u32,
        want: u32,
        owner: Option<u32>,
    ) -> Result<Option<Range<u32>>> {
        let used = self.block_bitmap(device, group)?;
        let committing = self.committing.as_ref();
        let held = [
            self.running.held.group(group),
            committing.and_then(|sealed| sealed.held.group(group)),
        ];
        let end = self.volume.group_blocks(group);
        let start = self.volume.group_start(group);
        let blocks = start..start + u64::from(end);
        let rooms = || owner.map(|owner| self.windows.of_others(owner, blocks.clone()));
        let all;
        let held = match held {
            [one, other]
                if one.is_some() && other.is_some()
                    || rooms().is_some_and(|mut rooms| rooms.next().is_some()) =>
            {
                let mut bits = buffer(used.len())?;
                for held in [one, other].into_iter().flatten() {
                    bits.iter_mut().zip(held).for_each(|(bit, held)| *bit |= held);
                }
                rooms().into_iter().flatten().for_each(|room| bitmap::fill(&mut bits, room, true));
                all = bits;
                Some(all.as_slice())
            }
            [one, other] => one.or(other),
        };
        let free = Free { used: &used, held };
        let run = free.run(from..end, want);
        // At the goal even a short run is good: it continues the file.
        if run.as_ref().is_some_and(|run| run.start == from && from > 0) {
            return Ok(run);
        }
        let behind = free.best(from..end, want);
        match behind {
            Some(run) if run.end - run.start == want => Ok(Some(run)),
            _ => Ok(free.best(0..end, want)),
        }
    }

    /// Allocates up to `want` neighbouring blocks, near block `goal`, for inode `owner`; if it
    /// grows, where it has room ahead. Returns the first, and how many there are.
    /// [`Error::NoSpace`], or [`Error::CommitFirst`] if a commit gives some back.
    pub(crate) fn allocate_blocks(
        &mut self,
        device: &dyn Device,
        goal: u64,
        want: u32,
        owner: u32,
        ahead: u32,
    ) -> Result<(u64, u32)> {
        let want = self.allowed(want)?.min(self.volume.blocks_per_group);
        let whole = (want + ahead).min(self.volume.blocks_per_group);
        let found = match self.choose(device, goal, whole, Some(owner))? {
            // There is nothing but the room of others.
            None => self.choose(device, goal, want, None)?,
            found => found,
        };
        let (group, run) = found.ok_or_else(|| self.full())?;
        let count = want.min(run.end - run.start);
        self.take_blocks(device, group, run.start..run.start + count)?;
        let place = self.volume.group_start(group) + u64::from(run.start);
        if ahead > 0 {
            // The rest of the run, which is free and in no other's room.
            self.windows.set(owner, place + u64::from(count), (run.end - run.start - count).into());
        }
        Ok((place, count))
    }

    /// Chooses a group and a run in it.
    fn choose(
        &self,
        device: &dyn Device,
        goal: u64,
        want: u32,
        owner: Option<u32>,
    ) -> Result<Option<(u32, Range<u32>)>> {
        let groups = self.volume.groups();
        let goal = if goal < self.volume.blocks { goal } else { 0 };
        let (first, within) = self.volume.group_of(goal);
        let mut best: Option<(u32, Range<u32>)> = None;
        let mut looked = 0;
        for step in 0..groups {
            let group = (first + step) % groups;
            let free = self.groups.get(group as usize).map_or(0, |group| group.free_blocks);
            if free == 0 {
                continue;
            }
            let from = if step == 0 { within } else { 0 };
            looked += 1;
            let Some(run) = self.search(device, group, from, want, owner)? else { continue };
            let length = run.end - run.start;
            let at_goal = step == 0 && within > 0 && run.start == within;
            let longer = best.as_ref().is_none_or(|(_, best)| length > best.end - best.start);
            if longer {
                best = Some((group, run));
            }
            if length == want || at_goal || looked >= SEARCHED {
                break;
            }
        }
        Ok(best)
    }

    fn take_blocks(&mut self, device: &dyn Device, group: u32, run: Range<u32>) -> Result<()> {
        let count = run.end - run.start;
        let start = self.volume.group_start(group) + u64::from(run.start);
        if self.system.overlaps(start, count.into()) {
            return Err(CORRUPT);
        }
        let bits = self.change_block_bitmap(device, group)?;
        bitmap::fill(bits, run, true);
        let numbers = self.groups.get(group as usize).ok_or(CORRUPT)?;
        if numbers.free_blocks < count {
            return Err(CORRUPT);
        }
        self.change_group(device, group, |numbers| numbers.free_blocks -= count)?;
        self.free_blocks = self.free_blocks.saturating_sub(count.into());
        Ok(())
    }

    /// Frees blocks; they are held until the commit.
    pub(crate) fn free_blocks(
        &mut self,
        device: &dyn Device,
        start: u64,
        count: u32,
    ) -> Result<()> {
        if self.volume.place(start, count.into()).is_none()
            || start < self.volume.first_data_block.into()
            || self.system.overlaps(start, count.into())
        {
            return Err(Error::Corrupt("a block map"));
        }
        let (mut at, mut left) = (start, count);
        while left > 0 {
            let (group, from) = self.volume.group_of(at);
            let here = left.min(self.volume.group_blocks(group).saturating_sub(from));
            if here == 0 {
                return Err(CORRUPT);
            }
            let range = from..from + here;
            let bits = self.change_block_bitmap(device, group)?;
            if bitmap::count(bits, range.clone()) != here {
                return Err(CORRUPT);
            }
            bitmap::fill(bits, range, false);
            self.hold(group, from, from + here)?;
            self.change_group(device, group, |numbers| numbers.free_blocks += here)?;
            self.free_blocks += u64::from(here);
            at += u64::from(here);
            left -= here;
        }
        Ok(())
    }

    /// Allocates one block of metadata near `goal`; its copy is all zeros.
    pub(crate) fn new_metadata(&mut self, device: &dyn Device, goal: u64) -> Result<u64> {
        let (block, _) = self.allocate_blocks(device, goal, 1, 0, 0)?;
        self.fresh(block)?;
        Ok(block)
    }

    /// Frees one block of metadata.
    pub(crate) fn free_metadata(&mut self, device: &dyn Device, block: u64) -> Result<()> {
        self.free_blocks(device, block, 1)?;
        self.forget(block)
    }
}

/// The runs of the device that hold the journal.
pub fn journal_blocks(
    volume: &Volume,
    source: &dyn Source,
    number: u32,
) -> Result<Vec<Range<u64>>> {
    let inode = volume.inode(source, number)?;
    let map = volume.map(source, &inode)?;
    let mut list = Vec::new();
    list.try_reserve_exact(map.extents().len()).map_err(|_| Error::Memory)?;
    list.extend(
        map.extents().iter().map(|extent| extent.place..extent.place + u64::from(extent.count)),
    );
    Ok(list)
}
