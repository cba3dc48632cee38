//! The superblock of a volume that is written: which features allow that, the numbers that only
//! writing needs, and the fields that change.

use crate::checksum::crc32c;
use crate::error::{Error, Result, buffer};
use crate::field::{put_u16, put_u32, u8, u16, u32};
use crate::inode::Time;
use crate::volume::{Device, Source};

/// Where the superblock begins, and its length.
pub const PLACE: u64 = 1024;
const LENGTH: usize = 1024;
/// Bits of `s_state`.
const CLEAN: u16 = 1;
const HAS_ERRORS: u16 = 2;

const HAS_JOURNAL: u32 = 0x4;
const DIR_INDEX: u32 = 0x20;

const RECOVER: u32 = 0x4;
const EXTENTS: u32 = 0x40;
const WIDE: u32 = 0x80;
const MMP: u32 = 0x100;
const EA_INODE: u32 = 0x400;
const LARGEDIR: u32 = 0x4000;

const LARGE_FILE: u32 = 0x2;
const HUGE_FILE: u32 = 0x8;
const GDT_CSUM: u32 = 0x10;
const DIR_NLINK: u32 = 0x20;
const METADATA_CSUM: u32 = 0x400;
/// sparse_super, large_file, btree_dir, huge_file, uninit_bg, dir_nlink, extra_isize,
/// metadata_csum.
const WRITABLE: u32 =
    0x1 | LARGE_FILE | 0x4 | HUGE_FILE | GDT_CSUM | DIR_NLINK | 0x40 | METADATA_CSUM;

/// The numbers that only writing needs.
#[derive(Clone, Debug)]
pub struct Format {
    /// The journal's inode.
    pub journal: Option<u32>,
    pub wide: bool,
    pub metadata_sums: bool,
    /// Whether groups may have uninitialised bitmaps and tables.
    pub lazy_groups: bool,
    pub extents: bool,
    pub dir_index: bool,
    pub large_dir: bool,
    pub huge_file: bool,
    /// Whether a file has had more than 2 GiB.
    pub large_file: bool,
    /// Whether a directory may have more than 65,000 directories in it.
    pub dir_nlink: bool,
    /// How names are hashed: version, whether bytes are unsigned, seed.
    pub hash: (u8, bool, [u32; 4]),
    /// The first inode that is not reserved.
    pub first_inode: u32,
    /// Bytes of fields beyond the first 128 in a new inode.
    pub extra_size: u16,
    /// Blocks behind a group's descriptors that wait for more of them.
    pub reserved_descriptors: u16,
    /// Blocks that only root may use.
    pub reserved_blocks: u64,
    /// The first inode of the orphan list.
    pub first_orphan: u32,
}

/// Reads the superblock's bytes.
pub fn read(source: &dyn Device) -> Result<alloc::vec::Vec<u8>> {
    let mut raw = buffer(LENGTH)?;
    Source::read(source, PLACE, &mut raw)?;
    Ok(raw)
}

/// Fails if writing would break one of the volume's features.
pub fn check_writable(raw: &[u8]) -> Result<()> {
    if u32(raw, 0x4c) == 0 {
        return Err(Error::Unsupported("a volume of revision 0 is not written"));
    }
    let (incompatible, read_only) = (u32(raw, 0x60), u32(raw, 0x64));
    let refused = |what| Err(Error::Unsupported(what));
    match read_only & !WRITABLE {
        0 => {}
        bits if bits & 0x200 != 0 => return refused("writing with the feature bigalloc"),
        bits if bits & 0x100 != 0 => return refused("writing with the feature quota"),
        bits if bits & 0x2000 != 0 => return refused("writing with the feature project"),
        bits if bits & 0x8000 != 0 => return refused("writing with the feature verity"),
        bits if bits & 0x1_0000 != 0 => return refused("writing with files in an orphan file"),
        _ => return refused("writing with an unknown feature"),
    }
    if incompatible & MMP != 0 {
        return refused("writing with the feature mmp");
    }
    if incompatible & EA_INODE != 0 {
        return refused("writing with the feature ea_inode");
    }
    // Blocks and clusters are one thing without bigalloc.
    if u32(raw, 0x1c) != u32(raw, 0x18) || u32(raw, 0x24) != u32(raw, 0x20) {
        return Err(Error::Corrupt("the cluster size in the superblock"));
    }
    Ok(())
}

/// Whether the journal must be replayed.
pub fn needs_recovery(raw: &[u8]) -> bool {
    u32(raw, 0x60) & RECOVER != 0
}

impl Format {
    pub fn decode(raw: &[u8]) -> Result<Format> {
        let (compatible, incompatible, read_only) =
            (u32(raw, 0x5c), u32(raw, 0x60), u32(raw, 0x64));
        let wide = incompatible & WIDE != 0;
        let inode_size = u16(raw, 0x58);
        let room = inode_size.saturating_sub(128);
        // `s_want_extra_isize`, which must be at least `s_min_extra_isize`; Linux takes 32 bytes
        // where it is nonsense.
        let wanted = u16(raw, 0x15e).max(u16(raw, 0x15c)) & !3;
        let extra_size = if wanted == 0 || wanted > room { room.min(32) } else { wanted };
        let has_journal = compatible & HAS_JOURNAL != 0;
        if has_journal && u32(raw, 0xe0) == 0 {
            return Err(Error::Unsupported("a journal device"));
        }
        let first_inode = u32(raw, 0x54);
        if first_inode < 11 {
            return Err(Error::Corrupt("the first inode in the superblock"));
        }
        let reserved_high = if wide { u32(raw, 0x154) } else { 0 };
        Ok(Format {
            journal: has_journal.then(|| u32(raw, 0xe0)),
            wide,
            metadata_sums: read_only & METADATA_CSUM != 0,
            lazy_groups: read_only & (GDT_CSUM | METADATA_CSUM) != 0,
            extents: incompatible & EXTENTS != 0,
            dir_index: compatible & DIR_INDEX != 0,
            large_dir: incompatible & LARGEDIR != 0,
            huge_file: read_only & HUGE_FILE != 0,
            large_file: read_only & LARGE_FILE != 0,
            dir_nlink: read_only & DIR_NLINK != 0,
            hash: (
                u8(raw, 0xfc),
                u32(raw, 0x160) & 2 != 0,
                core::array::from_fn(|index| u32(raw, 0xec + 4 * index)),
            ),
            first_inode,
            extra_size,
            reserved_descriptors: u16(raw, 0xce),
            reserved_blocks: crate::field::split(reserved_high, u32(raw, 0x8)),
            first_orphan: u32(raw, 0xe8),
        })
    }
}

/// Marks the volume as mounted for writing, as Linux does: with a journal it needs recovery from
/// now on, without one it is not clean.
pub fn set_mounted(raw: &mut [u8], has_journal: bool, now: Time) {
    if has_journal {
        put_u32(raw, 0x60, u32(raw, 0x60) | RECOVER);
    } else {
        put_u16(raw, 0x3a, u16(raw, 0x3a) & !CLEAN);
    }
    put_u16(raw, 0x34, u16(raw, 0x34).saturating_add(1));
    put_u32(raw, 0x2c, now.seconds as u32);
    put_u32(raw, 0x30, now.seconds as u32);
    seal(raw);
}

/// Marks the volume as clean; one with errors keeps the mark of them.
pub fn set_unmounted(raw: &mut [u8], was_clean: bool, now: Time) {
    put_u32(raw, 0x60, u32(raw, 0x60) & !RECOVER);
    if was_clean {
        put_u16(raw, 0x3a, u16(raw, 0x3a) | CLEAN);
    }
    put_u32(raw, 0x30, now.seconds as u32);
    seal(raw);
}

/// Whether the volume was unmounted, or has a journal that brings it to the same state.
pub fn is_clean(raw: &[u8]) -> bool {
    u16(raw, 0x3a) & CLEAN != 0
}

/// Records that the volume has errors: the next e2fsck looks at all of it.
pub fn set_error(raw: &mut [u8]) {
    put_u16(raw, 0x3a, u16(raw, 0x3a) | HAS_ERRORS);
    seal(raw);
}

/// Records that a file has more than 2 GiB.
pub fn set_large_file(raw: &mut [u8]) {
    put_u32(raw, 0x64, u32(raw, 0x64) | LARGE_FILE);
}

/// Records that inodes have blocks of attributes.
pub fn set_attributes(raw: &mut [u8]) {
    put_u32(raw, 0x5c, u32(raw, 0x5c) | 0x8);
}

pub fn set_first_orphan(raw: &mut [u8], inode: u32) {
    put_u32(raw, 0xe8, inode);
}

/// Sets the numbers of free blocks and inodes, and the time of writing.
pub fn set_counts(raw: &mut [u8], wide: bool, blocks: u64, inodes: u32, now: Time) {
    put_u32(raw, 0xc, blocks as u32);
    if wide {
        put_u32(raw, 0x158, (blocks >> 32) as u32);
    }
    put_u32(raw, 0x10, inodes);
    put_u32(raw, 0x30, now.seconds as u32);
    seal(raw);
}

/// Computes the checksum.
pub fn seal(raw: &mut [u8]) {
    if u32(raw, 0x64) & METADATA_CSUM != 0 {
        let sum = crc32c(!0, &[raw.get(..0x3fc).unwrap_or_default()]);
        put_u32(raw, 0x3fc, sum);
    }
}
