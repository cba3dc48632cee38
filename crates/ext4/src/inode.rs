//! Inodes.

use alloc::vec::Vec;

use crate::attributes::Places;
use crate::checksum::Seed;
use crate::error::{Error, Result, buffer};
use crate::field::{split, u16, u32};
use crate::volume::{Source, Volume};

/// Inode flags of interest.
const FLAG_ENCRYPTED: u32 = 0x800;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_EA_INODE: u32 = 0x20_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;

/// Longest target of a symbolic link, without its zero byte: Linux' `PATH_MAX`.
const LONGEST_TARGET: u64 = 4095;

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds within the second, under 10^9.
    pub nanoseconds: u32,
}

/// An inode as it is on the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub number: u32,
    /// Type and permissions, as `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub links: u16,
    /// Content in bytes; at most `i64::MAX`.
    pub size: u64,
    /// Space on the volume, in units of 512 bytes.
    pub sectors: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of content.
    pub modified: Time,
    /// Last change of the inode.
    pub changed: Time,
    /// Creation time, if the record is large enough.
    pub created: Option<Time>,
    /// Distinguishes the uses of a number that was reused.
    pub generation: u32,
    pub(crate) flags: u32,
    /// The root of the block map, or a short link's target, or a device number.
    pub(crate) block: [u8; 60],
    /// Where its extended attributes are.
    pub(crate) attributes: Places,
    /// Seed of the checksums of this inode's metadata.
    pub(crate) seed: Option<Seed>,
}

impl Volume {
    /// Reads inode `number`.
    pub fn inode<S: Source + ?Sized>(&self, source: &S, number: u32) -> Result<Inode> {
        let raw = self.record(source, number)?;
        let inode = self.decode(number, &raw)?;
        if inode.links == 0 || inode.mode == 0 {
            return Err(Error::Corrupt("a directory entry (it names a deleted inode)"));
        }
        if inode.flags & FLAG_ENCRYPTED != 0 {
            return Err(Error::Unsupported("encrypted files"));
        }
        if inode.flags & FLAG_INLINE_DATA != 0 {
            return Err(Error::Unsupported("the feature inline_data"));
        }
        Ok(inode)
    }

    /// Reads the record of inode `number`.
    pub(crate) fn record<S: Source + ?Sized>(&self, source: &S, number: u32) -> Result<Vec<u8>> {
        let Some(index) = number.checked_sub(1).filter(|_| number <= self.inodes) else {
            return Err(Error::Corrupt("an inode number"));
        };
        let (group, slot) = (index / self.inodes_per_group, index % self.inodes_per_group);
        let place = self.inode_table(source, group)? + u64::from(slot) * u64::from(self.inode_size);
        let mut raw = buffer(self.inode_size.into())?;
        self.read(source, place, &mut raw)?;
        Ok(raw)
    }

    /// Verifies the record of inode `number`; returns the seed of the checksums of its metadata.
    pub(crate) fn verify(&self, number: u32, raw: &[u8]) -> Result<Option<Seed>> {
        let generation = u32(raw, 0x64);
        let seed =
            self.seed.map(|seed| seed.then(&[&number.to_le_bytes(), &generation.to_le_bytes()]));
        let extra = extra(raw);
        if 128 + extra > raw.len() || !extra.is_multiple_of(4) {
            return Err(Error::Corrupt("the extra size of an inode"));
        }
        if let Some(seed) = seed {
            check(seed, raw, extra)?;
        }
        if size(raw) > i64::MAX as u64 {
            return Err(Error::Corrupt("the size of an inode"));
        }
        Ok(seed)
    }

    pub(crate) fn decode(&self, number: u32, raw: &[u8]) -> Result<Inode> {
        let seed = self.verify(number, raw)?;
        Ok(self.describe(number, raw, seed))
    }

    /// Decodes the record of inode `number`, of which [`Volume::verify`] returned the seed.
    pub(crate) fn describe(&self, number: u32, raw: &[u8], seed: Option<Seed>) -> Inode {
        let extra = extra(raw);
        let wide = |at: usize| if at + 4 <= 128 + extra { u32(raw, at) } else { 0 };
        let flags = u32(raw, 0x20);
        let blocks = split(u32::from(u16(raw, 0x74)), u32(raw, 0x1c));
        let map = raw.get(0x28..).and_then(<[u8]>::first_chunk);
        Inode {
            number,
            mode: u16(raw, 0x0),
            uid: u32::from(u16(raw, 0x2)) | u32::from(u16(raw, 0x78)) << 16,
            gid: u32::from(u16(raw, 0x18)) | u32::from(u16(raw, 0x7a)) << 16,
            links: u16(raw, 0x1a),
            size: size(raw),
            sectors: if flags & 0x4_0000 != 0 { blocks << (self.block_shift - 9) } else { blocks },
            accessed: time(u32(raw, 0x8), wide(0x8c)),
            modified: time(u32(raw, 0x10), wide(0x88)),
            changed: time(u32(raw, 0xc), wide(0x84)),
            created: (extra >= 0x18).then(|| time(u32(raw, 0x90), wide(0x94))),
            generation: u32(raw, 0x64),
            flags,
            block: map.copied().unwrap_or([0; 60]),
            attributes: Places::find(raw, 128 + extra),
            seed,
        }
    }

    /// The target of the symbolic link `inode`, without a zero byte.
    pub fn link_target<S: Source + ?Sized>(&self, source: &S, inode: &Inode) -> Result<Vec<u8>> {
        if inode.size == 0 || inode.size > LONGEST_TARGET || !inode.is(0o120_000) {
            return Err(Error::Corrupt("a symbolic link's length"));
        }
        let length = inode.size as usize;
        let mut target = buffer(length)?;
        match inode.block.get(..length) {
            // Linux: shorter than the block map means inside of it (`ext4_inode_is_fast_symlink`).
            Some(inside) if length < inode.block.len() => target.copy_from_slice(inside),
            _ => self.map(source, inode)?.read(self, source, 0, &mut target)?,
        }
        if target.contains(&0) {
            return Err(Error::Corrupt("a symbolic link's target"));
        }
        Ok(target)
    }
}

impl Inode {
    /// Whether the type bits of the mode are `kind` (as `S_IFMT` masks them).
    pub fn is(&self, kind: u16) -> bool {
        self.mode & 0o170_000 == kind
    }

    /// Major and minor number of a device node.
    pub fn device(&self) -> (u32, u32) {
        let (old, new) = (u32(&self.block, 0), u32(&self.block, 4));
        if old != 0 {
            ((old >> 8) & 0xff, old & 0xff)
        } else {
            ((new >> 8) & 0xfff, (new & 0xff) | ((new >> 12) & 0xfff00))
        }
    }

    pub(crate) fn has_extents(&self) -> bool {
        self.flags & FLAG_EXTENTS != 0
    }

    /// Whether this inode holds another inode's extended attribute; no directory may name it.
    pub fn is_attribute(&self) -> bool {
        self.flags & FLAG_EA_INODE != 0
    }
}

/// The checksum of an inode record, which covers the record with the sum's own bytes as zero, and
/// whether its upper half is stored too.
pub(crate) fn sum(seed: Seed, raw: &[u8], extra: usize) -> (u32, bool) {
    let part = |from: usize, to: usize| raw.get(from..to).unwrap_or_default();
    if raw.len() > 128 && extra >= 4 {
        let parts = [part(0, 0x7c), &[0, 0], part(0x7e, 0x82), &[0, 0], part(0x84, raw.len())];
        (seed.over(&parts), true)
    } else {
        (seed.over(&[part(0, 0x7c), &[0, 0], part(0x7e, raw.len())]) & 0xffff, false)
    }
}

/// The bytes of a record's fields beyond the first 128, as the record says.
pub(crate) fn extra(raw: &[u8]) -> usize {
    if raw.len() > 128 { usize::from(u16(raw, 0x80)) } else { 0 }
}

/// The content of an inode in bytes. The upper half has another meaning for other types of old
/// volumes.
pub(crate) fn size(raw: &[u8]) -> u64 {
    match u16(raw, 0x0) & 0o170_000 {
        0o100_000 | 0o040_000 => split(u32(raw, 0x6c), u32(raw, 0x4)),
        _ => u64::from(u32(raw, 0x4)),
    }
}

/// Verifies the checksum of an inode record.
fn check(seed: Seed, raw: &[u8], extra: usize) -> Result<()> {
    let (sum, is_whole) = sum(seed, raw, extra);
    let high = if is_whole { u32::from(u16(raw, 0x82)) << 16 } else { 0 };
    if sum == u32::from(u16(raw, 0x7c)) | high { Ok(()) } else { Err(Error::Checksum("an inode")) }
}

/// Seconds are signed 32 bits, extended by two bits of `extra`; the other bits are nanoseconds.
fn time(seconds: u32, extra: u32) -> Time {
    Time {
        seconds: i64::from(seconds as i32) + (i64::from(extra & 3) << 32),
        nanoseconds: (extra >> 2).min(999_999_999),
    }
}
