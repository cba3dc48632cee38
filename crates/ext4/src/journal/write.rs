//! Writing the journal: where a transaction goes in the log, its blocks, and the journal's own
//! superblock.
//!
//! The log is a ring. A transaction is its revocation blocks, then descriptor blocks, each followed
//! by the blocks that its tags name, then a commit block, without which it does not count. The
//! journal's superblock says where the oldest transaction begins that is needed after a crash; it
//! is written when the log stops being empty and when a checkpoint has emptied it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{
    COMMIT, DESCRIPTOR, ESCAPED, LAST, MAGIC, REVOCATION, SAME_UUID, SUPERBLOCK, be32, incompat,
};
use crate::checksum::{Seed, crc32c};
use crate::error::{Error, Result, buffer};
use crate::field::put;
use crate::map::{Map, Run};
use crate::superblock::{self, Format};
use crate::transaction::{Entry, Transaction};
use crate::volume::{Device, Source, Volume};

const CORRUPT: Error = Error::Corrupt("the journal");
/// Linux' `JBD2_MIN_JOURNAL_BLOCKS`.
const SMALLEST: u32 = 1024;
/// Bytes of a control block before its entries.
const HEAD: usize = 12;
/// `JBD2_CRC32C_CHKSUM`.
const CRC32C: u8 = 4;

/// Collects writes of neighbouring places into larger ones.
pub struct Batch<'a> {
    device: &'a dyn Device,
    place: u64,
    bytes: &'a mut Vec<u8>,
}

/// Memory for a [`Batch`]: it is reserved before a commit begins, which must not fail for want of
/// it.
pub fn batch_memory() -> Result<Vec<u8>> {
    for size in [1 << 18, 1 << 14] {
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(size).is_ok() {
            return Ok(bytes);
        }
    }
    Err(Error::Memory)
}

impl<'a> Batch<'a> {
    /// A batch in `bytes`, from [`batch_memory`].
    pub fn new(device: &'a dyn Device, bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        Self { device, place: 0, bytes }
    }

    /// Adds a block at byte `place`, as parts that lie one after the other.
    pub fn write(&mut self, place: u64, parts: &[&[u8]]) -> Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let follows = self.place + self.bytes.len() as u64 == place;
        if !follows || self.bytes.capacity() - self.bytes.len() < length {
            self.end()?;
            self.place = place;
        }
        if self.bytes.capacity() < length {
            return Err(Error::Memory);
        }
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(())
    }

    /// Writes what is left.
    pub fn end(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            self.device.write(self.place, self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// The parts of the journal's description that never change while the volume is mounted.
pub struct Layout {
    map: Map,
    block_shift: u32,
    first: u32,
    end: u32,
    features: u32,
    seed: Seed,
    /// The journal's superblock.
    raw: Vec<u8>,
}

/// The log as it is now.
pub struct Log {
    pub layout: Arc<Layout>,
    /// The next block that is written.
    head: u32,
    /// Blocks in use.
    used: u32,
    /// The number of the first transaction.
    sequence: u32,
}

/// Where a transaction goes.
pub struct Plan {
    layout: Arc<Layout>,
    start: u32,
    /// Whether the log is empty, so that its begin must be written.
    begins: bool,
}

impl Log {
    /// Opens the journal, which must have been replayed, and sets the features that this volume's
    /// journal should have, as Linux does at each mount. An error that the journal has recorded
    /// goes into the volume's superblock `raw`.
    pub fn open(
        volume: &Volume,
        device: &dyn Device,
        number: u32,
        format: &Format,
        volume_raw: &mut [u8],
    ) -> Result<Log> {
        let inode = volume.inode(device, number)?;
        let map = volume.map(device, &inode)?;
        let Run::Data { place, .. } = map.run(0) else { return Err(CORRUPT) };
        let mut raw = buffer(1024)?;
        Source::read(device, place, &mut raw)?;
        let (first, end) = (be32(&raw, 0x14), be32(&raw, 0x10));
        if be32(&raw, 0) != MAGIC || be32(&raw, 0xc) as usize != volume.block_size() {
            return Err(CORRUPT);
        }
        if be32(&raw, 4) != SUPERBLOCK[1] {
            return Err(Error::Unsupported("writing a journal of version 1"));
        }
        let inside = u64::from(end) <= inode.size >> volume.block_shift;
        if first == 0 || first >= end || !inside || end - first < SMALLEST - 8 {
            return Err(CORRUPT);
        }
        // Every block of the journal must exist.
        let mut at = 0;
        while at < u64::from(end) << volume.block_shift {
            let Run::Data { length, .. } = map.run(at) else { return Err(CORRUPT) };
            at += length;
        }
        let mut features = be32(&raw, 0x28);
        if features & !incompat::READABLE != 0 {
            return Err(Error::Unsupported("writing a journal with an unknown feature"));
        }
        features &= !(incompat::ASYNC_COMMIT | incompat::CSUM_V2 | incompat::CSUM_V3);
        features |= incompat::REVOKE;
        if format.wide {
            features |= incompat::WIDE;
        }
        if format.metadata_sums {
            features |= incompat::CSUM_V3;
        }
        if be32(&raw, 0x20) != 0 {
            superblock::set_error(volume_raw);
        }
        // The old sum over whole transactions is not written.
        let compatible = be32(&raw, 0x24) & !1;
        put(&mut raw, 0x24, &compatible.to_be_bytes());
        put(&mut raw, 0x28, &features.to_be_bytes());
        if format.metadata_sums {
            put(&mut raw, 0x50, &[CRC32C]);
        }
        let seed = Seed::new(!0, device.crc32c());
        let seed = seed.then(&[raw.get(0x30..0x40).unwrap_or_default()]);
        let sequence = be32(&raw, 0x18).wrapping_add(1);
        let block_shift = volume.block_shift;
        let layout = Layout { map, block_shift, first, end, features, seed, raw };
        layout.write_superblock(device, 0, sequence, 0)?;
        Ok(Log { layout: Arc::new(layout), head: first, used: 0, sequence })
    }

    /// The number of the first transaction.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Blocks of the log.
    pub fn size(&self) -> u32 {
        self.layout.end - self.layout.first
    }

    /// Blocks in use.
    pub fn used(&self) -> u32 {
        self.used
    }

    pub fn set_empty(&mut self) {
        self.used = 0;
    }

    /// Finds room for a transaction of so many blocks and revocations; [`Error::CommitFirst`] if
    /// there is none before a checkpoint.
    pub fn plan(&mut self, blocks: usize, revoked: usize) -> Result<Plan> {
        let layout = &self.layout;
        let control =
            blocks.div_ceil(layout.tags_per_block()) + revoked.div_ceil(layout.revoked_per_block());
        let needed = u32::try_from(blocks + control + 1).map_err(|_| Error::CommitFirst)?;
        // One block stays free, as Linux keeps it.
        if needed >= self.size() - self.used {
            return Err(Error::CommitFirst);
        }
        let plan = Plan { layout: Arc::clone(layout), start: self.head, begins: self.used == 0 };
        self.head = layout.after(self.head, needed);
        self.used += needed;
        Ok(plan)
    }

    /// Records an error in the journal's superblock, without a change of its begin: a replay is
    /// still right.
    pub fn record_error(&self, device: &dyn Device) -> Result<()> {
        const EIO: u32 = 5;
        let place = self.layout.place(0)?;
        let mut raw = buffer(1024)?;
        Source::read(device, place, &mut raw)?;
        let (start, sequence) = (be32(&raw, 0x1c), be32(&raw, 0x18));
        self.layout.write_superblock(device, start, sequence, EIO.wrapping_neg())
    }
}

impl Layout {
    /// The byte of the device where block `block` of the journal begins.
    fn place(&self, block: u32) -> Result<u64> {
        match self.map.run(u64::from(block) << self.block_shift) {
            Run::Data { place, .. } => Ok(place),
            Run::Hole { .. } => Err(CORRUPT),
        }
    }

    fn block_size(&self) -> usize {
        1 << self.block_shift
    }

    fn has_sums(&self) -> bool {
        self.features & incompat::CSUM_V3 != 0
    }

    fn is_wide(&self) -> bool {
        self.features & incompat::WIDE != 0
    }

    fn tag_size(&self) -> usize {
        match (self.has_sums(), self.is_wide()) {
            (true, _) => 16,
            (false, true) => 12,
            (false, false) => 8,
        }
    }

    fn tail(&self) -> usize {
        if self.has_sums() { 4 } else { 0 }
    }

    fn tags_per_block(&self) -> usize {
        (self.block_size() - HEAD - self.tail() - 16) / self.tag_size()
    }

    fn revoked_per_block(&self) -> usize {
        (self.block_size() - 16 - self.tail()) / if self.is_wide() { 8 } else { 4 }
    }

    /// The block of the ring `count` blocks behind `block`; `count` is less than the ring.
    fn after(&self, block: u32, count: u32) -> u32 {
        let next = block + count;
        if next >= self.end { next - (self.end - self.first) } else { next }
    }

    /// Writes the journal's superblock: the log begins at `start` (0: it is empty) with
    /// transaction `sequence`.
    pub fn write_superblock(
        &self,
        device: &dyn Device,
        start: u32,
        sequence: u32,
        error: u32,
    ) -> Result<()> {
        let mut raw = [0u8; 1024];
        put(&mut raw, 0, &self.raw);
        put(&mut raw, 0x18, &sequence.to_be_bytes());
        put(&mut raw, 0x1c, &start.to_be_bytes());
        put(&mut raw, 0x20, &error.to_be_bytes());
        put(&mut raw, 0xfc, &[0; 4]);
        if self.has_sums() {
            let sum = crc32c(!0, &[&raw]);
            put(&mut raw, 0xfc, &sum.to_be_bytes());
        }
        device.write(self.place(0)?, &raw)
    }

    /// The sum at the end of a descriptor or revocation block.
    fn seal_control(&self, block: &mut [u8]) {
        if self.has_sums() {
            let end = block.len() - 4;
            put(block, end, &[0; 4]);
            let sum = self.seed.over(&[block]);
            put(block, end, &sum.to_be_bytes());
        }
    }

    /// Makes the head of a control block.
    fn begin(block: &mut [u8], kind: u32, number: u32) {
        block.fill(0);
        put(block, 0, &MAGIC.to_be_bytes());
        put(block, 4, &kind.to_be_bytes());
        put(block, 8, &number.to_be_bytes());
    }

    fn tag(&self, tag: &mut [u8], entry: &Entry, number: u32, flags: u32) {
        put(tag, 0, &(entry.number as u32).to_be_bytes());
        let high = ((entry.number >> 32) as u32).to_be_bytes();
        if self.has_sums() {
            put(tag, 4, &flags.to_be_bytes());
            put(tag, 8, &high);
            let seed = self.seed.then(&[&number.to_be_bytes()]);
            put(tag, 12, &seed.over(&parts(entry)).to_be_bytes());
        } else {
            put(tag, 6, &(flags as u16).to_be_bytes());
            if self.is_wide() {
                put(tag, 8, &high);
            }
        }
    }
}

fn is_escaped(entry: &Entry) -> bool {
    be32(&entry.bytes, 0) == MAGIC
}

/// The bytes of a copy as the journal has them: without its own magic number.
fn parts(entry: &Entry) -> [&[u8]; 2] {
    let (head, rest) = entry.bytes.split_at(entry.bytes.len().min(4));
    if is_escaped(entry) { [&[0; 4], rest] } else { [head, rest] }
}

/// The state of writing one transaction.
struct Output<'a> {
    layout: &'a Layout,
    batch: Batch<'a>,
    /// The next block of the log.
    at: u32,
}

impl Output<'_> {
    fn block(&mut self, parts: &[&[u8]]) -> Result<()> {
        let place = self.layout.place(self.at)?;
        self.batch.write(place, parts)?;
        self.at = self.layout.after(self.at, 1);
        Ok(())
    }

    fn revocations(&mut self, transaction: &Transaction, control: &mut [u8]) -> Result<()> {
        let layout = self.layout;
        for numbers in transaction.revoked.chunks(layout.revoked_per_block()) {
            Layout::begin(control, REVOCATION, transaction.number);
            let mut at = 16;
            for number in numbers {
                if layout.is_wide() {
                    put(control, at, &number.to_be_bytes());
                    at += 8;
                } else {
                    put(control, at, &(*number as u32).to_be_bytes());
                    at += 4;
                }
            }
            put(control, 12, &(at as u32).to_be_bytes());
            layout.seal_control(control);
            self.block(&[control])?;
        }
        Ok(())
    }

    fn blocks(&mut self, transaction: &Transaction, control: &mut [u8]) -> Result<()> {
        let layout = self.layout;
        for entries in transaction.blocks.chunks(layout.tags_per_block()) {
            Layout::begin(control, DESCRIPTOR, transaction.number);
            let mut at = HEAD;
            for (index, entry) in entries.iter().enumerate() {
                let mut flags = if is_escaped(entry) { ESCAPED } else { 0 };
                flags |= if index > 0 { SAME_UUID } else { 0 };
                flags |= if index + 1 == entries.len() { LAST } else { 0 };
                let tag = control.get_mut(at..at + layout.tag_size()).unwrap_or_default();
                layout.tag(tag, entry, transaction.number, flags);
                at += layout.tag_size();
                if index == 0 {
                    put(control, at, layout.raw.get(0x30..0x40).unwrap_or_default());
                    at += 16;
                }
            }
            layout.seal_control(control);
            self.block(&[control])?;
            for entry in entries {
                self.block(&parts(entry))?;
            }
        }
        Ok(())
    }

    fn commit(&mut self, transaction: &Transaction, control: &mut [u8]) -> Result<()> {
        Layout::begin(control, COMMIT, transaction.number);
        put(control, 0x30, &transaction.time.seconds.to_be_bytes());
        put(control, 0x38, &transaction.time.nanoseconds.to_be_bytes());
        if self.layout.has_sums() {
            let sum = self.layout.seed.over(&[control]);
            put(control, 0x10, &sum.to_be_bytes());
        }
        self.block(&[control])
    }
}

impl Plan {
    /// Writes `transaction`, and makes it durable: all but its commit block, a flush, the commit
    /// block, a flush. `control` has the size of a block.
    pub fn write(
        &self,
        device: &dyn Device,
        transaction: &Transaction,
        memory: &mut Vec<u8>,
        control: &mut [u8],
    ) -> Result<()> {
        if self.begins {
            self.layout.write_superblock(device, self.start, transaction.number, 0)?;
        }
        let batch = Batch::new(device, memory);
        let mut output = Output { layout: &self.layout, batch, at: self.start };
        output.revocations(transaction, control)?;
        output.blocks(transaction, control)?;
        output.batch.end()?;
        device.flush()?;
        output.commit(transaction, control)?;
        output.batch.end()?;
        device.flush()
    }
}
