//! Extended attributes (`xattr(7)`): behind an inode's fields, and in one block of its own.
//!
//! Both places hold entries, which lie one after the other and end with four bytes of zero; values
//! lie at offsets from the first entry (inode) or from the block's begin. A value that is too long
//! for both may be the content of an inode of its own (the feature `ea_inode`). The format is that
//! of Linux `Documentation/filesystems/ext4/attributes.rst`.
//!
//! A name's beginning is a number: `user.`, `trusted.` and `security.` are known. Access control
//! lists (`system.posix_acl_*`) are left out, as Linux does when a volume is mounted `noacl`:
//! nothing here would obey them. [`write`] keeps them where they are.

pub(crate) mod write;

use alloc::vec::Vec;

use crate::error::{Error, Result, buffer};
use crate::field::{u8, u16, u32};
use crate::inode::Inode;
use crate::volume::{Source, Volume};

/// What begins each of the two places.
const MAGIC: u32 = 0xea02_0000;
/// Bytes before the entries: the magic number, and in a block reference count, length and sum.
const IN_INODE: usize = 4;
const IN_BLOCK: usize = 32;
/// Where a block's checksum is.
const SUM: usize = 0x10;
/// Bytes of an entry before its name.
const HEAD: usize = 16;
/// The longest value (`XATTR_SIZE_MAX`).
const LONGEST: u32 = 65_536;

const CORRUPT: Error = Error::Corrupt("an extended attribute");

/// An entry: the beginning and the rest of its name, and where its value is.
struct Entry<'a> {
    prefix: &'static [u8],
    name: &'a [u8],
    /// What offsets of values count from.
    area: &'a [u8],
    start: usize,
    /// The inode that holds the value, if not zero.
    inode: u32,
    size: u32,
}

/// Where the attributes of an inode are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// They begin behind the inode's fields, so many bytes into its record.
    pub(crate) inside: Option<usize>,
    /// The block that has more of them.
    pub(crate) block: Option<u64>,
}

impl Places {
    /// Finds them in an inode's record, whose fields end at byte `end`.
    pub(crate) fn find(record: &[u8], end: usize) -> Places {
        let block = crate::field::split(u16(record, 0x76).into(), u32(record, 0x68));
        Places {
            inside: (end > 128 && u32(record, end) == MAGIC).then_some(end + IN_INODE),
            block: (block != 0).then_some(block),
        }
    }
}

impl Inode {
    /// Whether it has extended attributes; without any, [`Volume::attributes`] reads nothing.
    pub fn has_attributes(&self) -> bool {
        self.attributes != Places::default()
    }
}

impl Volume {
    /// Returns the names of all extended attributes of `inode`, each ended by a zero byte: at most
    /// some 64 KiB.
    pub fn attributes<S: Source + ?Sized>(&self, source: &S, inode: &Inode) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        self.each(source, inode, |entry| {
            let length = entry.prefix.len() + entry.name.len() + 1;
            names.try_reserve(length).map_err(|_| Error::Memory)?;
            names.extend_from_slice(entry.prefix);
            names.extend_from_slice(entry.name);
            names.push(0);
            Ok(None::<()>)
        })?;
        Ok(names)
    }

    /// Returns the value of the extended attribute `name` of `inode`, of up to 64 KiB; `None` if it
    /// has no such attribute.
    pub fn attribute<S: Source + ?Sized>(
        &self,
        source: &S,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.each(source, inode, |entry| match name.strip_prefix(entry.prefix) {
            Some(rest) if rest == entry.name => self.value(source, &entry).map(Some),
            _ => Ok(None),
        })
    }

    /// Shows the entries of `inode` to `see` until that returns something.
    fn each<S: Source + ?Sized, T>(
        &self,
        source: &S,
        inode: &Inode,
        mut see: impl FnMut(Entry<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(at) = inode.attributes.inside {
            let record = self.record(source, inode.number)?;
            let found = walk(record.get(at..).ok_or(CORRUPT)?, 0, &mut see)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let Some(number) = inode.attributes.block else { return Ok(None) };
        let place = self.place(number, 1).ok_or(CORRUPT)?;
        let mut block = buffer(self.block_size())?;
        self.read(source, place, &mut block)?;
        self.check_attributes(number, &block)?;
        walk(&block, IN_BLOCK, &mut see)
    }

    /// Verifies the head of a block of attributes (`ext4_xattr_block_csum`).
    fn check_attributes(&self, number: u64, block: &[u8]) -> Result<()> {
        if u32(block, 0) != MAGIC || u32(block, 8) != 1 {
            return Err(CORRUPT);
        }
        let Some(seed) = self.seed else { return Ok(()) };
        let part = |from: usize, to: usize| block.get(from..to).unwrap_or_default();
        let rest = part(SUM + 4, block.len());
        let sum = seed.over(&[&number.to_le_bytes(), part(0, SUM), &[0; 4], rest]);
        if sum == u32(block, SUM) { Ok(()) } else { Err(Error::Checksum("an extended attribute")) }
    }

    fn value<S: Source + ?Sized>(&self, source: &S, entry: &Entry<'_>) -> Result<Vec<u8>> {
        if entry.size > LONGEST {
            return Err(CORRUPT);
        }
        let mut value = buffer(entry.size as usize)?;
        if entry.size == 0 {
            return Ok(value);
        }
        if entry.inode == 0 {
            let end = entry.start.checked_add(value.len()).ok_or(CORRUPT)?;
            value.copy_from_slice(entry.area.get(entry.start..end).ok_or(CORRUPT)?);
            return Ok(value);
        }
        let inode = self.inode(source, entry.inode)?;
        if !inode.is_attribute() || !inode.is(0o100_000) || inode.size != entry.size.into() {
            return Err(CORRUPT);
        }
        self.map(source, &inode)?.read(self, source, 0, &mut value)?;
        Ok(value)
    }
}

/// Shows the entries of one place to `see`, from byte `first` of `area` on.
fn walk<T>(
    area: &[u8],
    first: usize,
    see: &mut impl FnMut(Entry<'_>) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let mut at = first;
    // Each entry takes at least `HEAD` bytes, so this ends with the area.
    while u32(area, at) != 0 {
        let head = area.get(at..at + HEAD).ok_or(CORRUPT)?;
        let length = usize::from(u8(head, 0));
        at += HEAD;
        let name = area.get(at..at + length).ok_or(CORRUPT)?;
        at += length.next_multiple_of(4);
        let Some(prefix) = prefix(u8(head, 1)) else { continue };
        if name.is_empty() || name.contains(&0) {
            return Err(CORRUPT);
        }
        let (start, inode, size) = (u16(head, 2).into(), u32(head, 4), u32(head, 8));
        let found = see(Entry { prefix, name, area, start, inode, size })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// What the number of a name's beginning stands for; `None` for those that are left out.
fn prefix(index: u8) -> Option<&'static [u8]> {
    match index {
        1 => Some(b"user."),
        4 => Some(b"trusted."),
        6 => Some(b"security."),
        _ => None,
    }
}
