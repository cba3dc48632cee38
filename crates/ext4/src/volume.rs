//! The superblock: the kind of volume and the places of its parts.

use crate::checksum::{Crc32c, Seed, by_table};
use crate::error::{Error, Result, buffer};
use crate::field::{split, u8, u16, u32};
use crate::journal::{self, Copies};

/// Where the superblock begins, and its length.
const SUPERBLOCK: (u64, usize) = (1024, 1024);
const MAGIC: u16 = 0xef53;
/// The bit of `s_state` that a mount without a journal clears.
const CLEAN: u16 = 1;
/// Linux supports blocks of up to a page.
const LARGEST_BLOCK_SHIFT: u32 = 12;

mod compat {
    pub const HAS_JOURNAL: u32 = 0x4;
    pub const SPARSE_SUPER2: u32 = 0x200;
}

mod incompat {
    pub const FILETYPE: u32 = 0x2;
    pub const RECOVER: u32 = 0x4;
    pub const META_BG: u32 = 0x10;
    pub const EXTENTS: u32 = 0x40;
    pub const WIDE: u32 = 0x80;
    pub const MMP: u32 = 0x100;
    pub const FLEX_BG: u32 = 0x200;
    pub const EA_INODE: u32 = 0x400;
    pub const CSUM_SEED: u32 = 0x2000;
    pub const LARGEDIR: u32 = 0x4000;

    /// Features that do not prevent this crate from reading correctly.
    pub const READABLE: u32 = FILETYPE
        | RECOVER
        | META_BG
        | EXTENTS
        | WIDE
        | MMP
        | FLEX_BG
        | EA_INODE
        | CSUM_SEED
        | LARGEDIR;
}

mod ro_compat {
    pub const SPARSE_SUPER: u32 = 0x1;
    pub const GDT_CSUM: u32 = 0x10;
    pub const BIGALLOC: u32 = 0x200;
    pub const METADATA_CSUM: u32 = 0x400;
}

/// The source of a volume's bytes.
pub trait Source {
    /// Fills `into` from byte `offset` of the volume; [`Error::Io`] when that fails or is beyond
    /// the end.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// The function that continues a CRC-32C over bytes, as Linux' `crc32c()`: a table's, unless
    /// the processor has an instruction.
    fn crc32c(&self) -> Crc32c {
        by_table
    }
}

/// A volume's bytes that can be written.
pub trait Device: Source {
    /// Writes `from` at byte `offset`; the order of writes is open until [`Device::flush`].
    fn write(&self, offset: u64, from: &[u8]) -> Result<()>;

    /// Makes all writes that have returned durable.
    fn flush(&self) -> Result<()>;
}

/// How the checksums of group descriptors are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupSum {
    None,
    Crc16,
    Crc32c,
}

/// Numbers for `statfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Blocks of the volume but for those that the file system itself takes.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks that only root may use.
    pub reserved_blocks: u64,
    /// Inodes of the volume.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
}

/// An opened volume: the data of its superblock.
#[derive(Clone, Debug)]
pub struct Volume {
    pub(crate) block_shift: u32,
    pub(crate) blocks: u64,
    pub(crate) inodes: u32,
    pub(crate) inode_size: u16,
    pub(crate) inodes_per_group: u32,
    pub(crate) blocks_per_group: u32,
    pub(crate) first_data_block: u32,
    pub(crate) descriptor_size: u16,
    /// The first block of descriptors that lies in its own groups, with `META_BG`.
    pub(crate) first_meta_group: Option<u32>,
    pub(crate) backups: Backups,
    pub(crate) file_types: bool,
    /// The seed of every metadata checksum, if the volume has them.
    pub(crate) seed: Option<Seed>,
    pub(crate) group_sum: GroupSum,
    /// Blocks that have a newer copy in the journal.
    pub(crate) copies: Copies,
    /// Blocks that the file system itself takes.
    pub(crate) overhead: u64,
    uuid: [u8; 16],
    free_blocks: u64,
    reserved_blocks: u64,
    free_inodes: u32,
}

/// Which groups hold a copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backups {
    Every,
    Sparse,
    Two(u32, u32),
}

impl Volume {
    /// Reads the superblock of `source`, which has `size` bytes, and the journal of a volume that
    /// was not unmounted.
    ///
    /// Fails with [`Error::NotExt4`] where there is no superblock, and otherwise with the fault.
    pub fn open<S: Source + ?Sized>(source: &S, size: u64) -> Result<Self> {
        if size < SUPERBLOCK.0 + SUPERBLOCK.1 as u64 {
            return Err(Error::NotExt4);
        }
        let mut raw = buffer(SUPERBLOCK.1)?;
        source.read(SUPERBLOCK.0, &mut raw)?;
        let mut volume = Self::decode_superblock(&raw, size, source.crc32c())?;
        if u32(&raw, 0x4c) >= 1 && u32(&raw, 0x60) & incompat::RECOVER != 0 {
            let copies = journal::read(&volume, source, u32(&raw, 0xe0))?;
            volume.copies = copies;
            volume.read(source, SUPERBLOCK.0, &mut raw)?;
            let newer = Self::decode_superblock(&raw, size, source.crc32c())?;
            if newer.block_shift != volume.block_shift {
                return Err(Error::Corrupt("the superblock in the journal"));
            }
            volume = Self { copies: volume.copies, ..newer };
        }
        volume.overhead = volume.find_overhead(source, &raw);
        // Until it is unmounted, a volume's superblock lags behind its groups. One whose groups
        // cannot be read is refused where they matter.
        let is_mounted = u32(&raw, 0x60) & incompat::RECOVER != 0 || u16(&raw, 0x3a) & CLEAN == 0;
        if is_mounted && let Ok((blocks, inodes)) = volume.count_free(source) {
            volume.free_blocks = blocks.min(volume.blocks);
            volume.free_inodes = inodes.min(volume.inodes);
        }
        Ok(volume)
    }

    /// The blocks that the file system itself takes; `raw` is the superblock. With bigalloc none
    /// are counted: the free blocks are clusters there.
    fn find_overhead<S: Source + ?Sized>(&self, source: &S, raw: &[u8]) -> u64 {
        let feature = |at| if u32(raw, 0x4c) >= 1 { u32(raw, at) } else { 0 };
        if feature(0x64) & ro_compat::BIGALLOC != 0 {
            return 0;
        }
        // A journal that cannot be read is refused where it matters; `df` goes without it.
        let journal = (feature(0x5c) & compat::HAS_JOURNAL != 0 && u32(raw, 0xe0) != 0)
            .then(|| self.inode(source, u32(raw, 0xe0)).ok())
            .flatten()
            .map_or(0, |inode| inode.size);
        self.count_overhead(journal, u16(raw, 0xce))
    }

    fn decode_superblock(raw: &[u8], size: u64, crc32c: Crc32c) -> Result<Self> {
        if u16(raw, 0x38) != MAGIC {
            return Err(Error::NotExt4);
        }
        let wide_features = u32(raw, 0x4c) >= 1;
        let feature = |at| if wide_features { u32(raw, at) } else { 0 };
        let (compatible, incompatible, read_only) = (feature(0x5c), feature(0x60), feature(0x64));
        check_features(incompatible)?;
        let seed = check_sum(raw, incompatible, read_only, crc32c)?;

        let block_shift = decode_block_shift(raw)?;
        let block_size = 1u32 << block_shift;
        let wide = incompatible & incompat::WIDE != 0;
        let high = |at| if wide { u32(raw, at) } else { 0 };
        let blocks = split(high(0x150), u32(raw, 0x4));
        let first_data_block = u32(raw, 0x14);
        if blocks > size >> block_shift {
            return Err(Error::Corrupt("the number of blocks (more than the device has)"));
        }
        if u64::from(first_data_block) >= blocks || first_data_block > 1 {
            return Err(Error::Corrupt("the first data block in the superblock"));
        }
        let inode_size = if wide_features { u16(raw, 0x58) } else { 128 };
        if inode_size < 128 || !inode_size.is_power_of_two() || u32::from(inode_size) > block_size {
            return Err(Error::Corrupt("the inode size in the superblock"));
        }
        let descriptor_size = decode_descriptor_size(raw, wide)?;
        let (blocks_per_group, inodes_per_group) = (u32(raw, 0x20), u32(raw, 0x28));
        if blocks_per_group == 0 || inodes_per_group == 0 || inodes_per_group > block_size * 8 {
            return Err(Error::Corrupt("the group size in the superblock"));
        }
        let inodes = u32(raw, 0x0);
        let groups = (blocks - u64::from(first_data_block)).div_ceil(u64::from(blocks_per_group));
        if u64::from(inodes) > groups * u64::from(inodes_per_group) {
            return Err(Error::Corrupt("the number of inodes in the superblock"));
        }
        Ok(Self {
            block_shift,
            blocks,
            inodes,
            inode_size,
            inodes_per_group,
            blocks_per_group,
            first_data_block,
            descriptor_size,
            first_meta_group: (incompatible & incompat::META_BG != 0).then(|| u32(raw, 0x104)),
            backups: decode_backups(raw, compatible, read_only),
            file_types: incompatible & incompat::FILETYPE != 0,
            seed,
            group_sum: match seed {
                Some(_) => GroupSum::Crc32c,
                None if read_only & ro_compat::GDT_CSUM != 0 => GroupSum::Crc16,
                None => GroupSum::None,
            },
            copies: Copies::default(),
            overhead: 0,
            uuid: core::array::from_fn(|at| u8(raw, 0x68 + at)),
            free_blocks: split(high(0x158), u32(raw, 0xc)).min(blocks),
            reserved_blocks: split(high(0x154), u32(raw, 0x8)),
            free_inodes: u32(raw, 0x10).min(inodes),
        })
    }

    /// The volume as it is on the device, whatever the journal has.
    pub(crate) fn without_copies(&self) -> Volume {
        Volume { copies: Copies::default(), ..*self }
    }

    /// Bytes of a block: 1024, 2048 or 4096.
    pub fn block_size(&self) -> usize {
        1 << self.block_shift
    }

    /// The volume's identity.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Sizes for `statfs`.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            blocks: self.blocks - self.overhead,
            free_blocks: self.free_blocks,
            reserved_blocks: self.reserved_blocks.min(self.free_blocks),
            inodes: self.inodes,
            free_inodes: self.free_inodes,
        }
    }

    /// Returns the byte at which block `block` begins, if `count` blocks from it are all on the
    /// volume. Block 0 never belongs to a file: the superblock is in it or before it.
    pub(crate) fn place(&self, block: u64, count: u64) -> Option<u64> {
        let end = block.checked_add(count)?;
        (block > 0 && end <= self.blocks).then_some(block << self.block_shift)
    }
}

fn decode_block_shift(raw: &[u8]) -> Result<u32> {
    let shift = u32(raw, 0x18).saturating_add(10);
    if shift > 16 {
        return Err(Error::Corrupt("the block size in the superblock"));
    }
    if shift > LARGEST_BLOCK_SHIFT {
        return Err(Error::Unsupported("a block size over 4096"));
    }
    Ok(shift)
}

/// The size of a group's descriptor; `wide` if block numbers have 64 bits.
fn decode_descriptor_size(raw: &[u8], wide: bool) -> Result<u16> {
    let (least, size) = if wide { (64, u16(raw, 0xfe)) } else { (32, 32) };
    if size < least || !size.is_power_of_two() || size > 1024 {
        return Err(Error::Corrupt("the descriptor size in the superblock"));
    }
    Ok(size)
}

fn decode_backups(raw: &[u8], compatible: u32, read_only: u32) -> Backups {
    if compatible & compat::SPARSE_SUPER2 != 0 {
        Backups::Two(u32(raw, 0x24c), u32(raw, 0x250))
    } else if read_only & ro_compat::SPARSE_SUPER != 0 {
        Backups::Sparse
    } else {
        Backups::Every
    }
}

fn check_features(incompatible: u32) -> Result<()> {
    let unknown = incompatible & !incompat::READABLE;
    match unknown {
        0 => Ok(()),
        _ if unknown & 0x1 != 0 => Err(Error::Unsupported("the feature compression")),
        _ if unknown & 0x8 != 0 => Err(Error::Unsupported("a journal device")),
        _ if unknown & 0x8000 != 0 => Err(Error::Unsupported("the feature inline_data")),
        _ if unknown & 0x1_0000 != 0 => Err(Error::Unsupported("the feature encrypt")),
        _ if unknown & 0x2_0000 != 0 => Err(Error::Unsupported("the feature casefold")),
        _ => Err(Error::Unsupported("an unknown incompatible feature")),
    }
}

/// Verifies the superblock's own checksum and returns the seed of all others.
fn check_sum(
    raw: &[u8],
    incompatible: u32,
    read_only: u32,
    crc32c: Crc32c,
) -> Result<Option<Seed>> {
    if read_only & ro_compat::METADATA_CSUM == 0 {
        return Ok(None);
    }
    if u8(raw, 0x175) != 1 {
        return Err(Error::Unsupported("a checksum other than crc32c"));
    }
    let body = raw.get(..0x3fc).unwrap_or_default();
    let ones = Seed::new(!0, crc32c);
    if ones.over(&[body]) != u32(raw, 0x3fc) {
        return Err(Error::Checksum("the superblock"));
    }
    Ok(Some(if incompatible & incompat::CSUM_SEED != 0 {
        Seed::new(u32(raw, 0x270), crc32c)
    } else {
        ones.then(&[raw.get(0x68..0x78).unwrap_or_default()])
    }))
}
