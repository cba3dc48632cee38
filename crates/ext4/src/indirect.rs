//! Block maps of ext2 and ext3 that change: twelve direct blocks, then tables of pointers, one, two
//! and three levels deep.

use alloc::borrow::Cow;

use crate::error::{Error, Result};
use crate::extent_tree::Piece;
use crate::field::{put_u32, u32};
use crate::node::Node;
use crate::volume::Device;
use crate::writer::Writer;

const CORRUPT: Error = Error::Corrupt("a block map");
const DIRECT: u32 = 12;

/// The way to one block: a slot of the inode, then one of each table.
#[derive(Clone, Copy)]
struct Slots {
    /// Slots; the inode's first.
    slots: [u32; 4],
    /// Tables below the inode.
    levels: usize,
}

/// A table of pointers: the inode itself, or a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Inode,
    Block(u64),
}

impl Writer {
    fn pointers(&self) -> u64 {
        self.volume.block_size() as u64 / 4
    }

    /// Blocks that a file without extents can have.
    pub(crate) fn most_indirect(&self) -> u64 {
        let fan = self.pointers();
        let blocks = u64::from(DIRECT) + fan + fan * fan + fan * fan * fan;
        blocks.min(u32::MAX.into())
    }

    fn slots(&self, block: u32) -> Result<Slots> {
        let fan = self.pointers();
        let mut rest = u64::from(block);
        if rest < DIRECT.into() {
            return Ok(Slots { slots: [block, 0, 0, 0], levels: 0 });
        }
        rest -= u64::from(DIRECT);
        let slot = |value: u64| (value % fan) as u32;
        if rest < fan {
            return Ok(Slots { slots: [12, slot(rest), 0, 0], levels: 1 });
        }
        rest -= fan;
        if rest < fan * fan {
            return Ok(Slots { slots: [13, slot(rest / fan), slot(rest), 0], levels: 2 });
        }
        rest -= fan * fan;
        if rest < fan * fan * fan {
            let slots = [14, slot(rest / fan / fan), slot(rest / fan), slot(rest)];
            return Ok(Slots { slots, levels: 3 });
        }
        Err(Error::TooLarge)
    }

    fn table<'a>(
        &'a self,
        device: &dyn Device,
        node: &'a Node,
        table: Table,
    ) -> Result<Cow<'a, [u8]>> {
        match table {
            Table::Inode => Ok(Cow::Borrowed(node.map())),
            Table::Block(block) => {
                if self.volume.place(block, 1).is_none() || self.system.overlaps(block, 1) {
                    return Err(CORRUPT);
                }
                self.block(device, block)
            }
        }
    }

    fn pointer(&self, device: &dyn Device, node: &Node, table: Table, slot: u32) -> Result<u64> {
        let bytes = self.table(device, node, table)?;
        Ok(u32(&bytes, slot as usize * 4).into())
    }

    fn set_pointer(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        table: Table,
        slot: u32,
        block: u32,
    ) -> Result<()> {
        match table {
            Table::Inode => put_u32(node.map_mut(), slot as usize * 4, block),
            Table::Block(number) => {
                put_u32(self.modify(device, number)?, slot as usize * 4, block);
            }
        }
        Ok(())
    }

    /// Pointers of the last table that begin at slot `slot`: up to where the table ends.
    fn slots_left(&self, slots: &Slots) -> u32 {
        match slots.levels {
            0 => DIRECT - slots.slots[0],
            levels => self.pointers() as u32 - slots.slots[levels],
        }
    }

    /// The mapping from `block` on: a run of blocks (with `Some`), or a hole; and how many
    /// blocks are alike, at least one. A run or hole may go on behind them.
    pub(crate) fn indirect_run(
        &self,
        device: &dyn Device,
        node: &Node,
        block: u32,
    ) -> Result<(Option<u64>, u32)> {
        let slots = self.slots(block)?;
        let mut table = Table::Inode;
        for level in 0..slots.levels {
            let next = self.pointer(device, node, table, slots.slots[level])?;
            if next == 0 {
                // Nothing up to the end of what this pointer, and such ones behind it, would lead
                // to.
                let below = (slots.levels - level) as u32;
                let bytes = self.table(device, node, table)?;
                let first = slots.slots[level] as usize;
                let end = if level == 0 { first + 1 } else { self.pointers() as usize };
                let alike = (first..end).take_while(|&slot| u32(&bytes, slot * 4) == 0).count();
                let whole = self.pointers().pow(below) * alike as u64;
                let first = slots.slots.iter().take(slots.levels + 1).skip(level + 1);
                let within = first.fold(0u64, |sum, &slot| sum * self.pointers() + u64::from(slot));
                return Ok((None, u32::try_from(whole - within).unwrap_or(u32::MAX)));
            }
            table = Table::Block(next);
        }
        let bytes = self.table(device, node, table)?;
        let slot = slots.slots[slots.levels];
        let at = |step: u32| u64::from(u32(&bytes, (slot + step) as usize * 4));
        let first = at(0);
        let left = self.slots_left(&slots);
        let is_alike = |step: u32| match first {
            0 => at(step) == 0,
            _ => at(step) == first + u64::from(step),
        };
        let count = (1..left).find(|&step| !is_alike(step)).unwrap_or(left);
        if first == 0 {
            return Ok((None, count));
        }
        let is_good = self.volume.place(first, count.into()).is_some()
            && !self.system.overlaps(first, count.into());
        if is_good { Ok((Some(first), count)) } else { Err(CORRUPT) }
    }

    /// Gives blocks to the hole from `block` on: up to `want`, in one piece.
    pub(crate) fn fill_indirect(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        block: u32,
        want: u32,
        (goal, ahead): (u64, u32),
    ) -> Result<Piece> {
        let slots = self.slots(block)?;
        let mut table = Table::Inode;
        for level in 0..slots.levels {
            let mut next = self.pointer(device, node, table, slots.slots[level])?;
            if next == 0 {
                next = self.new_metadata(device, goal)?;
                let number = u32::try_from(next).map_err(|_| Error::NoSpace)?;
                self.charge(node, 1)?;
                self.set_pointer(device, node, table, slots.slots[level], number)?;
            } else {
                self.table(device, node, Table::Block(next))?;
            }
            table = Table::Block(next);
        }
        let slot = slots.slots[slots.levels];
        let mut room = 0;
        while room < want.min(self.slots_left(&slots))
            && self.pointer(device, node, table, slot + room)? == 0
        {
            room += 1;
        }
        if room == 0 {
            return Err(CORRUPT);
        }
        let (place, count) = self.allocate_blocks(device, goal, room, node.number, ahead)?;
        for step in 0..count {
            let number = u32::try_from(place + u64::from(step)).map_err(|_| Error::NoSpace)?;
            self.set_pointer(device, node, table, slot + step, number)?;
        }
        self.charge(node, count.into())?;
        Ok(Piece { block, count, place, written: true })
    }

    /// Takes a run of blocks out of the map, the first in `from..to`: at most what one table has.
    /// Returns it, or where to go on, or neither if nothing is left. The blocks are still
    /// allocated; tables that become empty are freed.
    pub(crate) fn cut_indirect(
        &mut self,
        device: &dyn Device,
        node: &mut Node,
        from: u32,
        to: u64,
    ) -> Result<Cut> {
        if u64::from(from) >= to.min(self.most_indirect()) {
            return Ok(Cut::End);
        }
        let (place, count) = self.indirect_run(device, node, from)?;
        let count = count.min(u32::try_from(to - u64::from(from)).unwrap_or(u32::MAX));
        let Some(place) = place else {
            return Ok(match from.checked_add(count) {
                Some(next) => Cut::Hole(next),
                None => Cut::End,
            });
        };
        let slots = self.slots(from)?;
        let mut tables = [Table::Inode; 4];
        for level in 0..slots.levels {
            let next = self.pointer(device, node, tables[level], slots.slots[level])?;
            tables[level + 1] = Table::Block(next);
        }
        let last = slots.levels;
        for step in 0..count {
            self.set_pointer(device, node, tables[last], slots.slots[last] + step, 0)?;
        }
        for level in (1..=last).rev() {
            let Table::Block(block) = tables[level] else { return Err(CORRUPT) };
            let is_empty = self.table(device, node, tables[level])?.iter().all(|&byte| byte == 0);
            if !is_empty {
                break;
            }
            self.free_metadata(device, block)?;
            self.charge(node, -1)?;
            self.set_pointer(device, node, tables[level - 1], slots.slots[level - 1], 0)?;
        }
        Ok(Cut::Run(Piece { block: from, count, place, written: true }))
    }
}

/// The outcome of [`Writer::cut_indirect`].
pub enum Cut {
    /// These blocks are out of the map.
    Run(Piece),
    /// There is a hole; go on at this block.
    Hole(u32),
    /// Nothing is left.
    End,
}
