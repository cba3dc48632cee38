//! Commits and checkpoints, in halves: the mount's lock is held while the transaction is taken and
//! while the result is noted, and not while the device writes.
//!
//! Order on the device: data of new blocks (the caller), the transaction in the journal, a flush,
//! its commit block, a flush. A checkpoint: the blocks at their places, a flush, the journal's
//! superblock without a begin, a flush; only then is the journal's space used again.
//!
//! Without a journal a commit writes the blocks to their places, as Linux does.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::checksum::Crc32c;
use crate::error::buffer;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::inode::Time;
use crate::journal::write::{Batch, Layout, Plan, batch_memory};
use crate::superblock;
use crate::transaction::{Committed, Transaction};
use crate::volume::{Device, Source};
use crate::writer::Writer;

/// Blocks of the journal's log that one operation may need.
pub const OPERATION: usize = 96;
/// Most copies of committed blocks that are kept in memory.
const MOST_COMMITTED: usize = 4096;

/// A transaction that takes no more changes.
pub struct Sealed {
    transaction: Arc<Transaction>,
    /// Where it goes in the journal; none without a journal.
    plan: Option<Plan>,
    block_shift: u32,
    /// Memory for writing.
    memory: Vec<u8>,
    control: Vec<u8>,
}

impl Sealed {
    /// Inodes whose data must be on the device (written; a flush is not needed) before
    /// [`Sealed::write`]: they have new blocks in this transaction. Ascending.
    pub fn inodes(&self) -> &[u32] {
        &self.transaction.inodes
    }

    /// Writes the transaction to the journal and makes it durable: two flushes. Without a journal
    /// writes the blocks to their places and flushes. Needs no lock of the mount.
    pub fn write(&mut self, device: &dyn Device) -> Result<()> {
        if let Some(plan) = &self.plan {
            return plan.write(device, &self.transaction, &mut self.memory, &mut self.control);
        }
        let mut batch = Batch::new(device, &mut self.memory);
        for entry in &self.transaction.blocks {
            batch.write(entry.number << self.block_shift, &[&entry.bytes])?;
        }
        batch.end()?;
        device.flush()
    }
}

/// Committed blocks on their way to their places.
pub struct Checkpoint {
    committed: Committed,
    layout: Arc<Layout>,
    block_shift: u32,
    /// The number of the transaction that comes next.
    sequence: u32,
    memory: Vec<u8>,
}

impl Checkpoint {
    /// Writes the blocks to their places, flushes, and empties the journal. Needs no lock of the
    /// mount, but no `seal`..`finish` may run meanwhile (the commit lock).
    pub fn write(&mut self, device: &dyn Device) -> Result<()> {
        let mut batch = Batch::new(device, &mut self.memory);
        for entry in self.committed.newest() {
            batch.write(entry.number << self.block_shift, &[&entry.bytes])?;
        }
        batch.end()?;
        device.flush()?;
        self.layout.write_superblock(device, 0, self.sequence, 0)?;
        device.flush()
    }
}

impl Writer {
    /// Number of the running transaction; a change made now is durable once
    /// [`Writer::committed`] has reached it. Both wrap (compare by difference).
    pub fn running(&self) -> u32 {
        self.running.number
    }

    /// Number of the last transaction that is durable.
    pub fn committed(&self) -> u32 {
        self.durable
    }

    /// Whether the running transaction has changes.
    pub fn is_dirty(&self) -> bool {
        !self.running.blocks.is_empty() || !self.running.revoked.is_empty()
    }

    /// Whether the running transaction has no room for one more operation of any kind; an
    /// operation then fails with [`Error::CommitFirst`]. Ask before each operation, and before
    /// each repetition for [`crate::Progress::More`].
    pub fn needs_commit(&self) -> bool {
        self.weight() + OPERATION > self.limit
    }

    /// Why the volume no longer takes changes, after an error of the journal or of a structure.
    pub fn failure(&self) -> Option<Error> {
        self.failure
    }

    /// Ends the running transaction; `None` if it has no changes. Call it only when neither
    /// another sealed transaction nor a checkpoint is on its way. [`Error::CommitFirst`]: the
    /// journal is full, a checkpoint is needed first (see [`Writer::needs_checkpoint`]).
    pub fn seal(&mut self, device: &dyn Device, now: Time) -> Result<Option<Sealed>> {
        if self.failure.is_some() {
            return Err(Error::ReadOnly);
        }
        if !self.is_dirty() {
            return Ok(None);
        }
        if self.committing.is_some() {
            return Err(Error::Invalid);
        }
        let (shift, free_blocks, free_inodes) =
            (self.volume.block_shift, self.free_blocks, self.free_inodes);
        let wide = self.format.wide;
        self.edit_superblock(device, |raw| {
            superblock::set_counts(raw, wide, free_blocks, free_inodes, now);
        })?;
        self.encode_groups(device)?;
        let (memory, control) = (batch_memory()?, buffer(self.volume.block_size())?);
        let (blocks, revoked) = (self.running.blocks.len(), self.running.revoked.len());
        let plan = match &mut self.log {
            Some(log) => Some(log.plan(blocks, revoked)?),
            None => None,
        };
        let transaction = Arc::new(self.take_running(now));
        self.committing = Some(Arc::clone(&transaction));
        Ok(Some(Sealed { transaction, plan, block_shift: shift, memory, control }))
    }

    /// Makes the descriptors of the groups that changed.
    fn encode_groups(&mut self, device: &dyn Device) -> Result<()> {
        let size = usize::from(self.volume.descriptor_size);
        while let Some(&number) = self.dirty_groups.last() {
            let group: Group =
                self.groups.get(number as usize).cloned().ok_or(Error::Corrupt("a group"))?;
            let place = self.volume.descriptor_place(number)?;
            let block = place >> self.volume.block_shift;
            let within = (place - (block << self.volume.block_shift)) as usize;
            let mut descriptor = [0u8; 1024];
            let old = self.block(device, block)?;
            let raw = descriptor.get_mut(..size).unwrap_or_default();
            raw.copy_from_slice(old.get(within..within + size).unwrap_or_default());
            let (blocks, inodes) =
                (self.running.copy(group.block_bitmap), self.running.copy(group.inode_bitmap));
            self.volume.encode_group(number, &group, raw, blocks, inodes);
            if let Some(bytes) = self.running.copy_mut(block) {
                crate::field::put(bytes, within, raw);
            }
            self.dirty_groups.pop();
            if let Some(group) = self.groups.get_mut(number as usize) {
                group.dirty = false;
            }
        }
        Ok(())
    }

    /// Ends the commit; `written` is the result of [`Sealed::write`] or of the data's write-back.
    /// After an error the volume takes no more changes; the error is recorded on the device if
    /// that can be written, and returned.
    pub fn finish(
        &mut self,
        device: &dyn Device,
        sealed: Sealed,
        written: Result<()>,
    ) -> Result<()> {
        let transaction = sealed.transaction;
        if let Err(error) = written {
            return Err(self.fail(device, error));
        }
        if self.log.is_some()
            && let Err(error) = self.committed.add(&transaction)
        {
            return Err(self.fail(device, error));
        }
        self.durable = transaction.number;
        self.committing = None;
        Ok(())
    }

    /// Whether half of the journal is full: checkpoint before the next seal.
    pub fn needs_checkpoint(&self) -> bool {
        let Some(log) = &self.log else { return false };
        let copies = self.committed.copies;
        copies > 0 && (log.used() > log.size() / 2 || copies > MOST_COMMITTED)
    }

    /// Takes what a checkpoint writes. `None` if nothing waits.
    pub fn begin_checkpoint(&self) -> Result<Option<Checkpoint>> {
        if self.failure.is_some() {
            return Err(Error::ReadOnly);
        }
        match &self.log {
            Some(log) if !self.committed.is_empty() => Ok(Some(Checkpoint {
                committed: self.committed.share()?,
                layout: Arc::clone(&log.layout),
                block_shift: self.volume.block_shift,
                sequence: self.durable.wrapping_add(1),
                memory: batch_memory()?,
            })),
            _ => Ok(None),
        }
    }

    /// Ends a checkpoint; as [`Writer::finish`] after an error.
    pub fn finish_checkpoint(
        &mut self,
        device: &dyn Device,
        checkpoint: Checkpoint,
        written: Result<()>,
    ) -> Result<()> {
        drop(checkpoint);
        if let Err(error) = written {
            return Err(self.fail(device, error));
        }
        self.committed.clear();
        if let Some(log) = &mut self.log {
            log.set_empty();
        }
        Ok(())
    }

    /// A checkpoint, where the lock may be held.
    pub fn checkpoint(&mut self, device: &dyn Device) -> Result<()> {
        if let Some(mut checkpoint) = self.begin_checkpoint()? {
            let written = checkpoint.write(device);
            self.finish_checkpoint(device, checkpoint, written)?;
        }
        Ok(())
    }

    /// All steps of a commit (and of a checkpoint, if one is needed) at once, where the lock may
    /// be held. The data of the new blocks must be written.
    pub fn commit(&mut self, device: &dyn Device, now: Time) -> Result<()> {
        if self.needs_checkpoint() {
            self.checkpoint(device)?;
        }
        if let Some(mut sealed) = self.seal(device, now)? {
            let written = sealed.write(device);
            self.finish(device, sealed, written)?;
        }
        Ok(())
    }

    /// Commits, checkpoints, and marks the volume as clean. After that it takes no more changes.
    pub fn unmount(&mut self, device: &dyn Device, now: Time) -> Result<()> {
        self.commit(device, now)?;
        self.checkpoint(device)?;
        let mut raw = superblock::read(device)?;
        superblock::set_unmounted(&mut raw, self.was_clean, now);
        let written = device.write(superblock::PLACE, &raw).and_then(|()| device.flush());
        if let Err(error) = written {
            return Err(self.fail(device, error));
        }
        self.failure = Some(Error::ReadOnly);
        Ok(())
    }

    /// No more changes from here on. Records the error in the superblock and in the journal's, if
    /// they can be written.
    fn fail(&mut self, device: &dyn Device, error: Error) -> Error {
        if self.failure.is_none() {
            self.failure = Some(error);
            if let Some(log) = &self.log {
                let _ = log.record_error(device);
            }
            if let Ok(mut raw) = superblock::read(device) {
                superblock::set_error(&mut raw);
                let _ = device.write(superblock::PLACE, &raw);
            }
            let _ = device.flush();
        }
        error
    }

    /// Changes the superblock in the running transaction.
    pub(crate) fn edit_superblock<T>(
        &mut self,
        device: &dyn Device,
        edit: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T> {
        let block = superblock::PLACE >> self.volume.block_shift;
        let within = (superblock::PLACE - (block << self.volume.block_shift)) as usize;
        let bytes = self.modify(device, block)?;
        Ok(edit(bytes.get_mut(within..within + 1024).unwrap_or_default()))
    }
}

/// The volume as the running transaction leaves it: metadata comes from the writer's copies where
/// it has them. All readers of [`crate::Volume`] take it (`map`, `link_target`, `attributes`,
/// `attribute`, and `Map::read` for directories).
pub struct View<'a> {
    pub(crate) writer: &'a Writer,
    pub(crate) device: &'a dyn Device,
}

impl Source for View<'_> {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let size = self.writer.volume.block_size() as u64;
        let (mut offset, mut into) = (offset, into);
        while !into.is_empty() {
            let within = offset % size;
            let here = usize::try_from(size - within).unwrap_or(usize::MAX).min(into.len());
            let (part, rest) = into.split_at_mut(here);
            match self.writer.copy(offset / size) {
                Some(copy) => {
                    let from = within as usize;
                    part.copy_from_slice(copy.get(from..from + here).ok_or(Error::Io)?);
                }
                None => Source::read(self.device, offset, part)?,
            }
            into = rest;
            offset = offset.checked_add(here as u64).ok_or(Error::Io)?;
        }
        Ok(())
    }

    fn crc32c(&self) -> Crc32c {
        self.device.crc32c()
    }
}

/// The list of groups whose descriptors are out of date.
pub type DirtyGroups = Vec<u32>;
