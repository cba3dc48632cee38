//! Records of inodes that change.
//!
//! An operation takes a [`Node`], a copy of the record's bytes, changes it, and puts it back: then
//! its checksum is made. An operation that fails drops it.

use alloc::vec::Vec;

use crate::checksum::Seed;
use crate::error::{Error, Result, buffer};
use crate::field::{put, put_u16, put_u32, split, u16, u32};
use crate::inode::{self, Inode, Time, sum};
use crate::volume::Device;
use crate::writer::Writer;

/// Flags of an inode that decide how it is written.
pub mod flag {
    pub const IMMUTABLE: u32 = 0x10;
    pub const APPEND: u32 = 0x20;
    pub const ENCRYPTED: u32 = 0x800;
    pub const INDEX: u32 = 0x1000;
    pub const HUGE_FILE: u32 = 0x4_0000;
    pub const EXTENTS: u32 = 0x8_0000;
    pub const VERITY: u32 = 0x10_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
}

/// Types of a mode.
pub mod kind {
    pub const MASK: u16 = 0o170_000;
    pub const FIFO: u16 = 0o010_000;
    pub const CHARACTER: u16 = 0o020_000;
    pub const DIRECTORY: u16 = 0o040_000;
    pub const BLOCK: u16 = 0o060_000;
    pub const REGULAR: u16 = 0o100_000;
    pub const LINK: u16 = 0o120_000;
    pub const SOCKET: u16 = 0o140_000;
}

/// Where the record keeps the root of the block map, and its length.
pub const MAP: usize = 0x28;
pub const MAP_LENGTH: usize = 60;

/// The fields that change, for [`Writer::change`]; `None` leaves a field.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Permissions, without the type (07777).
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Content in bytes; only growth, [`Writer::set_size`] shrinks.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<Time>,
    /// Last change of content.
    pub modified: Option<Time>,
    /// Last change of the inode.
    pub changed: Option<Time>,
    /// The settable ones of `FS_IOC_SETFLAGS`: append only, immutable, no atime, no dump, sync.
    pub flags: Option<u32>,
}

/// The record of an inode, taken to be changed.
#[derive(Clone)]
pub struct Node {
    pub number: u32,
    pub raw: Vec<u8>,
    /// Seed of the checksums of its metadata.
    pub seed: Option<Seed>,
}

/// `chattr`'s flags that mean something without this crate's help: S, i, a, d, A, T.
const SETTABLE: u32 = 0x8 | flag::IMMUTABLE | flag::APPEND | 0x40 | 0x80 | 0x2_0000;

impl Node {
    pub fn mode(&self) -> u16 {
        u16(&self.raw, 0)
    }

    pub fn is(&self, kind: u16) -> bool {
        self.mode() & kind::MASK == kind
    }

    pub fn links(&self) -> u16 {
        u16(&self.raw, 0x1a)
    }

    pub fn set_links(&mut self, links: u16) {
        put_u16(&mut self.raw, 0x1a, links);
    }

    pub fn flags(&self) -> u32 {
        u32(&self.raw, 0x20)
    }

    pub fn set_flags(&mut self, flags: u32) {
        put_u32(&mut self.raw, 0x20, flags);
    }

    pub fn has_extents(&self) -> bool {
        self.flags() & flag::EXTENTS != 0
    }

    pub fn size(&self) -> u64 {
        inode::size(&self.raw)
    }

    pub fn set_size(&mut self, size: u64) {
        put_u32(&mut self.raw, 0x4, size as u32);
        put_u32(&mut self.raw, 0x6c, (size >> 32) as u32);
    }

    /// The time of deletion, or the next inode of the orphan list.
    pub fn deleted(&self) -> u32 {
        u32(&self.raw, 0x14)
    }

    pub fn set_deleted(&mut self, value: u32) {
        put_u32(&mut self.raw, 0x14, value);
    }

    /// The block of extended attributes, or 0.
    pub fn attributes(&self) -> u64 {
        split(u16(&self.raw, 0x76).into(), u32(&self.raw, 0x68))
    }

    pub fn set_attributes(&mut self, block: u64) {
        put_u32(&mut self.raw, 0x68, block as u32);
        put_u16(&mut self.raw, 0x76, (block >> 32) as u16);
    }

    /// The root of the block map, or a short link's target, or a device number.
    pub fn map(&self) -> &[u8] {
        self.raw.get(MAP..MAP + MAP_LENGTH).unwrap_or_default()
    }

    pub fn map_mut(&mut self) -> &mut [u8] {
        self.raw.get_mut(MAP..MAP + MAP_LENGTH).unwrap_or_default()
    }

    /// Bytes of fields beyond the first 128.
    pub fn extra(&self) -> usize {
        inode::extra(&self.raw)
    }

    /// Sets one of the times: its seconds at `at`, the other bits at `wide`.
    fn set_time(&mut self, at: usize, wide: usize, time: Time) {
        let has_wide = wide + 4 <= 128 + self.extra();
        let seconds = if has_wide {
            time.seconds.clamp(i32::MIN.into(), (1 << 34) + i64::from(i32::MIN) - 1)
        } else {
            time.seconds.clamp(i32::MIN.into(), i32::MAX.into())
        };
        put_u32(&mut self.raw, at, seconds as u32);
        if has_wide {
            let epoch = ((seconds - i64::from(seconds as i32)) >> 32) as u32 & 3;
            put_u32(&mut self.raw, wide, time.nanoseconds.min(999_999_999) << 2 | epoch);
        }
    }

    pub fn set_accessed(&mut self, time: Time) {
        self.set_time(0x8, 0x8c, time);
    }

    pub fn set_modified(&mut self, time: Time) {
        self.set_time(0x10, 0x88, time);
    }

    pub fn set_changed(&mut self, time: Time) {
        self.set_time(0xc, 0x84, time);
    }

    pub fn set_created(&mut self, time: Time) {
        if self.extra() >= 0x18 {
            self.set_time(0x90, 0x94, time);
        }
    }

    pub fn set_owner(&mut self, uid: Option<u32>, gid: Option<u32>) {
        for (value, low, high) in [(uid, 0x2, 0x78), (gid, 0x18, 0x7a)] {
            if let Some(value) = value {
                put_u16(&mut self.raw, low, value as u16);
                put_u16(&mut self.raw, high, (value >> 16) as u16);
            }
        }
    }

    pub fn set_mode(&mut self, mode: u16) {
        put_u16(&mut self.raw, 0, mode);
    }
}

impl Writer {
    /// Takes inode `number`, also one without names.
    pub(crate) fn node(&self, device: &dyn Device, number: u32) -> Result<Node> {
        let raw = self.raw_inode(device, number)?;
        let seed = self.volume.verify(number, &raw)?;
        let node = Node { number, raw, seed };
        if node.mode() == 0 {
            return Err(Error::Corrupt("an inode (it is not in use)"));
        }
        if node.flags() & (flag::ENCRYPTED | flag::INLINE_DATA | flag::VERITY) != 0 {
            return Err(Error::Unsupported("writing encrypted, inline or verified files"));
        }
        Ok(node)
    }

    fn raw_inode(&self, device: &dyn Device, number: u32) -> Result<Vec<u8>> {
        let (block, within) = self.inode_place(number)?;
        let size = usize::from(self.volume.inode_size);
        let mut raw = buffer(size)?;
        match self.copy(block) {
            Some(copy) => raw.copy_from_slice(copy.get(within..within + size).ok_or(Error::Io)?),
            None => crate::volume::Source::read(
                device,
                (block << self.volume.block_shift) + within as u64,
                &mut raw,
            )?,
        }
        Ok(raw)
    }

    /// A record of zeros for inode `number`, which was just allocated.
    pub(crate) fn new_node(&mut self, number: u32) -> Result<Node> {
        let mut raw = buffer(self.volume.inode_size.into())?;
        if raw.len() > 128 {
            put_u16(&mut raw, 0x80, self.format.extra_size);
        }
        let generation = self.chance();
        put_u32(&mut raw, 0x64, generation);
        let seed = self
            .volume
            .seed
            .map(|seed| seed.then(&[&number.to_le_bytes(), &generation.to_le_bytes()]));
        Ok(Node { number, raw, seed })
    }

    /// Puts a record back.
    pub(crate) fn put_node(&mut self, device: &dyn Device, node: &mut Node) -> Result<()> {
        if let Some(seed) = node.seed {
            let (sum, is_whole) = sum(seed, &node.raw, node.extra());
            put_u16(&mut node.raw, 0x7c, sum as u16);
            if is_whole {
                put_u16(&mut node.raw, 0x82, (sum >> 16) as u16);
            }
        }
        let (block, within) = self.inode_place(node.number)?;
        let bytes = self.modify(device, block)?;
        put(bytes, within, &node.raw);
        Ok(())
    }

    /// Adds `blocks` (or takes them away) to the space that an inode takes.
    pub(crate) fn charge(&self, node: &mut Node, blocks: i64) -> Result<()> {
        let shift = self.volume.block_shift - 9;
        let stored = split(u16(&node.raw, 0x74).into(), u32(&node.raw, 0x1c));
        let is_huge = node.flags() & flag::HUGE_FILE != 0;
        let sectors = if is_huge { stored << shift } else { stored };
        let sectors = sectors
            .checked_add_signed(blocks << shift)
            .ok_or(Error::Corrupt("the number of blocks of an inode"))?;
        let (stored, is_huge) = if sectors <= u32::MAX.into() {
            (sectors, false)
        } else if !self.format.huge_file {
            return Err(Error::TooLarge);
        } else if sectors < 1 << 48 {
            (sectors, false)
        } else {
            (sectors >> shift, true)
        };
        put_u32(&mut node.raw, 0x1c, stored as u32);
        put_u16(&mut node.raw, 0x74, (stored >> 32) as u16);
        let flags = node.flags() & !flag::HUGE_FILE;
        node.set_flags(flags | if is_huge { flag::HUGE_FILE } else { 0 });
        Ok(())
    }

    /// Reads inode `number`; also one without names that is not released yet.
    pub fn inode(&self, device: &dyn Device, number: u32) -> Result<Inode> {
        Ok(self.describe(&self.node(device, number)?))
    }

    /// The inode of a record.
    pub(crate) fn describe(&self, node: &Node) -> Inode {
        self.volume.describe(node.number, &node.raw, node.seed)
    }

    /// Changes fields of an inode; returns it as it is then.
    pub fn change(&mut self, device: &dyn Device, inode: u32, change: &Change) -> Result<Inode> {
        self.operate(|writer| {
            let mut node = writer.node(device, inode)?;
            if let Some(permissions) = change.permissions {
                node.set_mode(node.mode() & kind::MASK | permissions & 0o7777);
            }
            node.set_owner(change.uid, change.gid);
            if let Some(size) = change.size {
                writer.grow(device, &mut node, size)?;
            }
            if let Some(time) = change.accessed {
                node.set_accessed(time);
            }
            if let Some(time) = change.modified {
                node.set_modified(time);
            }
            if let Some(time) = change.changed {
                node.set_changed(time);
            }
            if let Some(flags) = change.flags {
                node.set_flags(node.flags() & !SETTABLE | flags & SETTABLE);
            }
            writer.put_node(device, &mut node)?;
            Ok(writer.describe(&node))
        })
    }
}
