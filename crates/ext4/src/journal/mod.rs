//! The journal (jbd2; Linux `Documentation/filesystems/ext4/journal.rst`).
//!
//! This file reads it. Where a volume that was not unmounted is only read, the journal is not
//! written back: [`Volume::open`] reads from it which blocks have a newer copy in the journal, and
//! reads those copies instead. [`replay`] writes them back, [`write`] adds transactions.
//!
//! All numbers of the journal are big-endian. A walk reads each of its blocks at most once.

pub(crate) mod replay;
pub(crate) mod write;

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::ops::Range;

use crate::checksum::{Seed, crc32c};
use crate::error::{Error, Result, buffer};
use crate::map::{Map, Run};
use crate::volume::{Source, Volume};

const MAGIC: u32 = 0xc03b_3998;
const CORRUPT: Error = Error::Corrupt("the journal");

/// Types of a block.
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK: [u32; 2] = [3, 4];
const REVOCATION: u32 = 5;

mod incompat {
    pub const REVOKE: u32 = 0x1;
    pub const WIDE: u32 = 0x2;
    pub const ASYNC_COMMIT: u32 = 0x4;
    pub const CSUM_V2: u32 = 0x8;
    pub const CSUM_V3: u32 = 0x10;
    pub const READABLE: u32 = REVOKE | WIDE | ASYNC_COMMIT | CSUM_V2 | CSUM_V3;
}

/// Flags of a tag.
const ESCAPED: u32 = 1;
const SAME_UUID: u32 = 2;
const LAST: u32 = 8;

/// The place of the newest copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Block of the volume.
    pub place: u64,
    /// Whether the copy's first four bytes are zero in place of the journal's magic number.
    pub escaped: bool,
    /// The transaction and the checksum of its tag, if the journal has them.
    sum: (u32, u32),
}

/// Blocks with a copy in the journal, ascending. A list, because an image sizes it, and a list can
/// be refused memory.
#[derive(Clone, Debug, Default)]
pub struct Copies(Vec<(u64, Copy)>);

impl Copies {
    /// Whether no block has a copy.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All blocks that have a copy, ascending.
    pub fn all(&self) -> impl Iterator<Item = &(u64, Copy)> {
        self.0.iter()
    }

    /// The copy of a block.
    pub fn get(&self, block: u64) -> Option<&Copy> {
        let at = self.0.binary_search_by_key(&block, |entry| entry.0).ok()?;
        self.0.get(at).map(|entry| &entry.1)
    }

    /// The blocks of a range that have a copy, ascending.
    pub fn range(&self, blocks: Range<u64>) -> impl Iterator<Item = &(u64, Copy)> {
        let first = self.0.partition_point(|entry| entry.0 < blocks.start);
        let entries = self.0.get(first..).unwrap_or_default().iter();
        entries.take_while(move |entry| entry.0 < blocks.end)
    }
}

/// Appends an item.
fn push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    list.try_reserve(1).map_err(|_| Error::Memory)?;
    list.push(item);
    Ok(())
}

/// Keeps the last item of each block, in the order of blocks.
fn last_of_each<T>(list: &mut Vec<(u64, Reverse<usize>, T)>) {
    list.sort_unstable_by_key(|entry| (entry.0, entry.1));
    list.dedup_by_key(|entry| entry.0);
}

fn be32(record: &[u8], at: usize) -> u32 {
    record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// The journal's file and its layout.
struct Journal<'a, S: Source + ?Sized> {
    volume: &'a Volume,
    source: &'a S,
    map: Map,
    first: u32,
    end: u32,
    features: u32,
    seed: Seed,
}

/// One transaction: its number, tags and revoked blocks.
struct Transaction {
    number: u32,
    /// Tags, and the block of the journal that each of them stands for.
    tags: Vec<(Tag, u32)>,
    revoked: Vec<u64>,
}

/// One tag: block of the volume, whether it is escaped, checksum.
struct Tag {
    target: u64,
    escaped: bool,
    sum: u32,
}

/// Reads the journal, inode `number`; returns the blocks that have a newer copy in it.
pub fn read<S: Source + ?Sized>(volume: &Volume, source: &S, number: u32) -> Result<Copies> {
    let Some((journal, raw)) = Journal::open(volume, source, number)? else {
        return Ok(Copies::default());
    };
    let transactions = journal.transactions(be32(&raw, 0x1c), be32(&raw, 0x18))?;
    journal.copies(&transactions)
}

impl<'a, S: Source + ?Sized> Journal<'a, S> {
    /// Opens the journal, inode `number`; with its superblock. `None` if it is empty.
    fn open(
        volume: &'a Volume,
        source: &'a S,
        number: u32,
    ) -> Result<Option<(Journal<'a, S>, Vec<u8>)>> {
        let inode = volume.inode(source, number)?;
        let map = volume.map(source, &inode)?;
        let ones = Seed::new(!0, source.crc32c());
        let mut journal =
            Journal { volume, source, map, first: 0, end: 0, features: 0, seed: ones };
        let raw = journal.block(0)?;
        if be32(&raw, 0) != MAGIC || !SUPERBLOCK.contains(&be32(&raw, 4)) {
            return Err(CORRUPT);
        }
        if be32(&raw, 0xc) as usize != volume.block_size() {
            return Err(CORRUPT);
        }
        journal.features = if be32(&raw, 4) == SUPERBLOCK[1] { be32(&raw, 0x28) } else { 0 };
        if journal.features & !incompat::READABLE != 0 {
            return Err(Error::Unsupported(
                "a journal with fast commits that was not replayed (run e2fsck -fy on the image)",
            ));
        }
        if journal.has_sums() {
            let part = |from: usize, to: usize| raw.get(from..to).unwrap_or_default();
            if crc32c(!0, &[part(0, 0xfc), &[0; 4], part(0x100, 0x400)]) != be32(&raw, 0xfc) {
                return Err(Error::Checksum("the journal's superblock"));
            }
        }
        journal.seed = ones.then(&[raw.get(0x30..0x40).unwrap_or_default()]);
        (journal.first, journal.end) = (be32(&raw, 0x14), be32(&raw, 0x10));
        let start = be32(&raw, 0x1c);
        if start == 0 {
            return Ok(None);
        }
        let inside = u64::from(journal.end) <= inode.size >> volume.block_shift;
        if journal.first == 0 || journal.first >= journal.end || !inside {
            return Err(CORRUPT);
        }
        if start < journal.first || start >= journal.end {
            return Err(CORRUPT);
        }
        Ok(Some((journal, raw)))
    }
}

impl<S: Source + ?Sized> Journal<'_, S> {
    /// Returns the block of the volume that holds block `block` of the journal.
    fn place(&self, block: u32) -> Result<u64> {
        match self.map.run(u64::from(block) << self.volume.block_shift) {
            Run::Data { place, .. } => Ok(place >> self.volume.block_shift),
            Run::Hole { .. } => Err(CORRUPT),
        }
    }

    fn block(&self, block: u32) -> Result<Vec<u8>> {
        let mut raw = buffer(self.volume.block_size())?;
        self.source.read(self.place(block)? << self.volume.block_shift, &mut raw)?;
        Ok(raw)
    }

    fn has_sums(&self) -> bool {
        self.features & (incompat::CSUM_V2 | incompat::CSUM_V3) != 0
    }

    /// Returns the bytes of a control block that hold entries, and whether its checksum is right.
    fn body<'a>(&self, raw: &'a [u8]) -> (&'a [u8], bool) {
        if !self.has_sums() {
            return (raw, true);
        }
        let end = raw.len().saturating_sub(4);
        let body = raw.get(..end).unwrap_or_default();
        (body, self.seed.over(&[body, &[0; 4]]) == be32(raw, end))
    }

    /// Whether a commit block's checksum is right.
    fn commits(&self, raw: &[u8]) -> bool {
        let part = |from: usize, to: usize| raw.get(from..to).unwrap_or_default();
        let rest = part(0x14, raw.len());
        !self.has_sums() || self.seed.over(&[part(0, 0x10), &[0; 4], rest]) == be32(raw, 0x10)
    }

    /// Whether `block`, the bytes of a copy, has the checksum of its tag.
    fn is_good(&self, copy: &Copy, block: &[u8]) -> bool {
        let (number, expected) = copy.sum;
        let sum = self.seed.over(&[&number.to_be_bytes(), block]);
        match self.features & (incompat::CSUM_V2 | incompat::CSUM_V3) {
            0 => true,
            incompat::CSUM_V2 => sum & 0xffff == expected,
            _ => sum == expected,
        }
    }

    /// Returns all committed transactions from block `start` on; the first one has number
    /// `sequence`.
    fn transactions(&self, start: u32, sequence: u32) -> Result<Vec<Transaction>> {
        let mut done = Vec::new();
        // Whether a block of the open transaction has a wrong checksum. Without a commit block
        // that is a write that a crash has cut; with one the journal is damaged.
        let mut damaged = false;
        let mut open = Transaction { number: sequence, tags: Vec::new(), revoked: Vec::new() };
        let mut block = start;
        // Each block once: otherwise a journal filled by one transaction would be walked for ever.
        let mut budget = self.end - self.first;
        let mut advance = |block: &mut u32, count: u32| {
            if count > budget {
                return false;
            }
            budget -= count;
            *block += count;
            if *block >= self.end {
                *block -= self.end - self.first;
            }
            true
        };
        loop {
            let raw = self.block(block)?;
            // Anything but the next block of this transaction is the end: a remnant of an older
            // one.
            if be32(&raw, 0) != MAGIC || be32(&raw, 8) != open.number {
                return Ok(done);
            }
            if !advance(&mut block, 1) {
                return Ok(done);
            }
            match be32(&raw, 4) {
                DESCRIPTOR => {
                    let (body, good) = self.body(&raw);
                    damaged |= !good;
                    let tags = match self.tags(body) {
                        Err(CORRUPT) if damaged => return Ok(done),
                        tags => tags?,
                    };
                    for tag in tags {
                        push(&mut open.tags, (tag, block))?;
                        if !advance(&mut block, 1) {
                            return Ok(done);
                        }
                    }
                }
                REVOCATION => {
                    let (body, good) = self.body(&raw);
                    damaged |= !good;
                    match self.revocations(body, &mut open.revoked) {
                        Err(CORRUPT) if damaged => return Ok(done),
                        read => read?,
                    }
                }
                COMMIT => {
                    if !self.commits(&raw) {
                        return Ok(done);
                    }
                    if damaged {
                        return Err(Error::Checksum("the journal"));
                    }
                    let number = open.number.wrapping_add(1);
                    let next = Transaction { number, tags: Vec::new(), revoked: Vec::new() };
                    push(&mut done, core::mem::replace(&mut open, next))?;
                }
                _ => return Ok(done),
            }
        }
    }

    /// Returns the blocks that follow a descriptor block, as its tags say.
    fn tags(&self, body: &[u8]) -> Result<Vec<Tag>> {
        let wide = self.features & incompat::WIDE != 0;
        let newest = self.features & incompat::CSUM_V3 != 0;
        let size = match (newest, wide) {
            (true, _) => 16,
            (false, true) => 12,
            (false, false) => 8,
        };
        // The first version of checksums made tags two bytes longer.
        let size = size + if self.features & incompat::CSUM_V2 != 0 && !newest { 2 } else { 0 };
        let mut tags = Vec::new();
        let mut at = 12;
        while let Some(tag) = body.get(at..at + size) {
            let flags = if newest { be32(tag, 4) } else { be32(tag, 4) & 0xffff };
            let high = if wide { be32(tag, 8) } else { 0 };
            let target = u64::from(high) << 32 | u64::from(be32(tag, 0));
            if target >= self.volume.blocks {
                return Err(CORRUPT);
            }
            let sum = if newest { be32(tag, 12) } else { be32(tag, 4) >> 16 };
            push(&mut tags, Tag { target, escaped: flags & ESCAPED != 0, sum })?;
            at += size + if flags & SAME_UUID == 0 { 16 } else { 0 };
            if flags & LAST != 0 {
                break;
            }
        }
        Ok(tags)
    }

    fn revocations(&self, body: &[u8], revoked: &mut Vec<u64>) -> Result<()> {
        let size = if self.features & incompat::WIDE != 0 { 8 } else { 4 };
        let end = be32(body, 12) as usize;
        for entry in body.get(16..end).ok_or(CORRUPT)?.chunks_exact(size) {
            push(revoked, entry.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))?;
        }
        Ok(())
    }

    /// Returns the last copy of each block that was not revoked in the same or a later transaction.
    fn copies(&self, transactions: &[Transaction]) -> Result<Copies> {
        let mut revoked = Vec::new();
        for (index, transaction) in transactions.iter().enumerate() {
            for &block in &transaction.revoked {
                push(&mut revoked, (block, Reverse(index), ()))?;
            }
        }
        last_of_each(&mut revoked);
        let is_revoked = |block: u64, index: usize| {
            let found = revoked.binary_search_by_key(&block, |entry| entry.0);
            found.ok().and_then(|at| revoked.get(at)).is_some_and(|entry| entry.1.0 >= index)
        };
        let mut copies = Vec::new();
        for (index, transaction) in transactions.iter().enumerate() {
            for (tag, at) in &transaction.tags {
                if !is_revoked(tag.target, index) {
                    let sum = (transaction.number, tag.sum);
                    let copy = Copy { place: self.place(*at)?, escaped: tag.escaped, sum };
                    let order = Reverse(copies.len());
                    push(&mut copies, (tag.target, order, copy))?;
                }
            }
        }
        last_of_each(&mut copies);
        let mut list = Vec::new();
        list.try_reserve_exact(copies.len()).map_err(|_| Error::Memory)?;
        list.extend(copies.into_iter().map(|(block, _, copy)| (block, copy)));
        Ok(Copies(list))
    }
}

impl Volume {
    /// Reads metadata; a block that has a newer copy in the journal comes from there.
    pub(crate) fn read<S: Source + ?Sized>(
        &self,
        source: &S,
        mut offset: u64,
        mut into: &mut [u8],
    ) -> Result<()> {
        if self.copies.is_empty() {
            return source.read(offset, into);
        }
        let size = self.block_size() as u64;
        while !into.is_empty() {
            let within = offset % size;
            let here = usize::try_from(size - within).unwrap_or(usize::MAX).min(into.len());
            let (part, rest) = into.split_at_mut(here);
            match self.copies.get(offset >> self.block_shift) {
                None => source.read(offset, part)?,
                Some(copy) => {
                    source.read((copy.place << self.block_shift) + within, part)?;
                    if copy.escaped {
                        let magic = MAGIC.to_be_bytes();
                        let lost = magic.get(within as usize..).unwrap_or_default();
                        for (byte, magic) in part.iter_mut().zip(lost) {
                            *byte = *magic;
                        }
                    }
                }
            }
            into = rest;
            offset += here as u64;
        }
        Ok(())
    }
}
