//! Directories: blocks of entries, each naming an inode.
//!
//! The inner nodes of an indexed directory look like blocks without entries, so a walk over all
//! blocks is right for both kinds of directories.
//!
//! This file reads. [`change`] finds, adds and removes entries of a volume that is written,
//! [`htree`] keeps the index of names, [`hash`] computes what it is sorted by, [`list`] enumerates
//! in that order.

pub(crate) mod change;
pub(crate) mod hash;
pub(crate) mod htree;
pub(crate) mod list;

use crate::checksum::Seed;
use crate::error::{Error, Result};
use crate::field::{u8, u16, u32};
use crate::inode::Inode;
use crate::node::flag;
use crate::volume::Volume;

/// Bytes of an entry before its name.
const HEAD: usize = 8;
/// Bytes of the false entry at a block's end that holds its checksum.
const TAIL: usize = 12;

/// The kind of inode that an entry reports; many volumes report none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EntryKind {
    Unknown,
    Regular,
    Directory,
    Character,
    Block,
    Fifo,
    Socket,
    Link,
}

/// One name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Number of the inode that it names, not zero.
    pub inode: u32,
    /// The kind of the inode.
    pub kind: EntryKind,
    /// One to 255 bytes without `/` and zero; `.` and `..` among them.
    pub name: &'a [u8],
    /// Byte of the block where the entry begins.
    pub offset: usize,
    /// Byte of the block where the next one begins.
    pub next: usize,
}

/// Walks the entries of one block of a directory; ends after an error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    block: &'a [u8],
    offset: usize,
    kinds: bool,
}

impl Volume {
    /// Returns the entries of `block`, one block of the directory `inode`, from byte `offset` of
    /// it, which must be 0 or an entry's `next`.
    pub fn entries<'a>(&self, block: &'a [u8], offset: usize) -> Entries<'a> {
        Entries { block, offset, kinds: self.file_types }
    }

    /// Verifies the checksum of `block`, one block of the directory `inode`.
    pub fn check_directory(&self, inode: &Inode, block: &[u8]) -> Result<()> {
        check_block(inode.seed, inode.flags & flag::INDEX != 0, block)
    }
}

/// Verifies the checksum of a directory's block; `indexed` if the directory has an index.
pub(crate) fn check_block(seed: Option<Seed>, indexed: bool, block: &[u8]) -> Result<()> {
    let Some(seed) = seed else { return Ok(()) };
    let Some(at) = block.len().checked_sub(TAIL) else {
        return Err(Error::Corrupt("a directory"));
    };
    // The end of a root that Linux made looks like that of a leaf, which it was once.
    if let Some(base) = index_base(block).filter(|_| indexed) {
        let (limit, count) = (usize::from(u16(block, base)), usize::from(u16(block, base + 2)));
        let tail = base + limit * htree::ENTRY;
        let fits = count <= limit && tail + htree::ENTRY <= block.len();
        if !fits || htree::index_sum(seed, block, base, count, limit) != u32(block, tail + 4) {
            return Err(Error::Checksum("a directory's index"));
        }
        return Ok(());
    }
    let sum = seed.over(&[block.get(..at).unwrap_or_default()]);
    if has_tail(block) && sum != u32(block, at + 8) {
        return Err(Error::Checksum("a directory"));
    }
    Ok(())
}

/// Where the entries of a node of the index begin, if `block`, one of a directory with an index, is
/// a node: a false entry over all of it, or `.` and a `..` over the rest (fs/ext4/namei.c,
/// `get_dx_countlimit`).
fn index_base(block: &[u8]) -> Option<usize> {
    let length = |at| usize::from(u16(block, at));
    match length(4) {
        node if node == block.len() => Some(htree::NODE),
        12 if length(12 + 4) == block.len() - 12 => Some(htree::ROOT),
        _ => None,
    }
}

/// Whether a block ends with the false entry that holds a checksum.
fn has_tail(block: &[u8]) -> bool {
    let at = block.len().saturating_sub(TAIL);
    u32(block, at) == 0 && u16(block, at + 4) == TAIL as u16 && u16(block, at + 6) == 0xde00
}

/// Returns number and name of the entry that begins `record`, if it names an inode.
pub fn named(record: &[u8]) -> Option<(u32, &[u8])> {
    let name = record.get(HEAD..HEAD + usize::from(u8(record, 6)))?;
    Some((u32(record, 0), name)).filter(|(inode, _)| *inode != 0)
}

impl<'a> Entries<'a> {
    fn entry(&self) -> Result<DirEntry<'a>> {
        const CORRUPT: Error = Error::Corrupt("a directory");
        let rest = self.block.get(self.offset..).unwrap_or_default();
        let length = usize::from(u16(rest, 4));
        let name_length = usize::from(u8(rest, 6));
        let inode = u32(rest, 0);
        if length < HEAD + name_length || length % 4 != 0 || length > rest.len() {
            return Err(CORRUPT);
        }
        let name = rest.get(HEAD..HEAD + name_length).ok_or(CORRUPT)?;
        if inode != 0 && (name.is_empty() || name.contains(&b'/') || name.contains(&0)) {
            return Err(CORRUPT);
        }
        let kind = match u8(rest, 7) {
            _ if !self.kinds => EntryKind::Unknown,
            1 => EntryKind::Regular,
            2 => EntryKind::Directory,
            3 => EntryKind::Character,
            4 => EntryKind::Block,
            5 => EntryKind::Fifo,
            6 => EntryKind::Socket,
            7 => EntryKind::Link,
            _ => EntryKind::Unknown,
        };
        Ok(DirEntry { inode, kind, name, offset: self.offset, next: self.offset + length })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.offset < self.block.len() {
            match self.entry() {
                Ok(entry) => {
                    self.offset = entry.next;
                    if entry.inode != 0 {
                        return Some(Ok(entry));
                    }
                }
                Err(error) => {
                    self.offset = self.block.len();
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
