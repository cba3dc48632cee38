//! Transactions: private copies of the metadata blocks that change.
//!
//! The running transaction has a copy of each block that it changes; nothing reaches the device
//! before the commit. Below it lie the copies of the transaction that is being committed, and of
//! those that are committed but not yet at their places. A reader looks at them in this order, and
//! at the device last.
//!
//! An operation is whole or leaves nothing: [`Writer::operate`] keeps the former content of every
//! copy that the operation changes, and puts it back after an error. Putting back needs no memory.
//!
//! A freed block is not used again before the transaction that freed it has committed ([`Held`]):
//! until then a crash brings back the file that it belonged to. A freed block of metadata is
//! revoked too, or a replay would write its old copies over the data that it has by then.
//!
//! The lists are sorted vectors: a tree of the standard library cannot be refused memory, and the
//! longest has some thousands of entries.

use alloc::borrow::Cow;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::bitmap::Held;
use crate::error::{Error, Result, buffer, owned};
use crate::group::Group;
use crate::volume::{Device, Source};
use crate::writer::Writer;

/// The copy of one block.
pub struct Entry {
    pub number: u64,
    pub bytes: Vec<u8>,
    /// The last operation that changed it.
    stamp: u32,
}

/// The transaction that takes changes.
#[derive(Default)]
pub struct Running {
    /// Its number in the journal.
    pub number: u32,
    /// Copies of changed blocks, ascending.
    pub blocks: Vec<Entry>,
    /// Freed blocks of metadata.
    pub revoked: Vec<u64>,
    /// Inodes with new blocks of data, ascending.
    pub inodes: Vec<u32>,
    pub held: Held,
    /// The present operation.
    stamp: u32,
    undo: Undo,
}

/// The notes by which the present operation is taken back.
#[derive(Default)]
struct Undo {
    steps: Vec<Step>,
    /// Buffers of former operations, for the next ones.
    spare: Vec<Vec<u8>>,
    groups: Vec<(u32, Group)>,
    revoked: usize,
    free_blocks: u64,
    free_inodes: u32,
}

/// The most buffers that are kept for the next operations: few change more blocks.
const MOST_SPARE: usize = 8;

impl Undo {
    /// Forgets the notes of an operation that stays.
    fn forget(&mut self) {
        for step in self.steps.drain(..) {
            if let Step::Changed(_, bytes, _) = step
                && self.spare.len() < MOST_SPARE
                && self.spare.try_reserve(1).is_ok()
            {
                self.spare.push(bytes);
            }
        }
    }
}

enum Step {
    /// A copy was made.
    Added(u64),
    /// A copy was changed; its content and stamp before.
    Changed(u64, Vec<u8>, u32),
    /// A copy was dropped.
    Removed(Entry),
    /// Bits of a group were held.
    Held(u32, u32, u32),
    /// An inode joined the orphan list, as its first.
    OrphanAdded,
    /// An inode left it from this place.
    OrphanRemoved(usize, u32),
}

/// A transaction that takes no more changes.
pub struct Transaction {
    pub number: u32,
    pub blocks: Vec<Entry>,
    /// Ascending, without duplicates.
    pub revoked: Vec<u64>,
    pub inodes: Vec<u32>,
    pub held: Held,
    /// Seconds and nanoseconds of the commit.
    pub time: crate::inode::Time,
}

impl Transaction {
    fn copy(&self, number: u64) -> Option<&[u8]> {
        let at = self.blocks.binary_search_by_key(&number, |entry| entry.number).ok()?;
        self.blocks.get(at).map(|entry| entry.bytes.as_slice())
    }
}

/// Committed blocks that are not at their places yet.
#[derive(Default)]
pub struct Committed {
    /// Block, and which transaction has its newest copy, and where. Ascending.
    index: Vec<(u64, u32, u32)>,
    transactions: VecDeque<Arc<Transaction>>,
    /// Copies that the transactions have, replaced ones too.
    pub copies: usize,
}

impl Committed {
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    fn get(&self, number: u32, at: u32) -> Option<&Entry> {
        let first = self.transactions.front()?.number;
        let transaction = self.transactions.get(number.wrapping_sub(first) as usize)?;
        transaction.blocks.get(at as usize)
    }

    fn copy(&self, number: u64) -> Option<&[u8]> {
        let at = self.index.binary_search_by_key(&number, |entry| entry.0).ok()?;
        let &(_, transaction, place) = self.index.get(at)?;
        self.get(transaction, place).map(|entry| entry.bytes.as_slice())
    }

    /// Adds the transaction that follows the last; its copies replace older ones, and what it
    /// revokes needs no writing any more.
    pub fn add(&mut self, transaction: &Arc<Transaction>) -> Result<()> {
        let mut merged = Vec::new();
        let most = self.index.len() + transaction.blocks.len();
        merged.try_reserve_exact(most).map_err(|_| Error::Memory)?;
        self.transactions.try_reserve(1).map_err(|_| Error::Memory)?;
        let revoked = |number: u64| transaction.revoked.binary_search(&number).is_ok();
        let mut old = self.index.iter().filter(|entry| !revoked(entry.0)).peekable();
        for (at, entry) in transaction.blocks.iter().enumerate() {
            while let Some(before) = old.next_if(|before| before.0 < entry.number) {
                merged.push(*before);
            }
            old.next_if(|before| before.0 == entry.number);
            merged.push((entry.number, transaction.number, at as u32));
        }
        merged.extend(old);
        self.index = merged;
        self.copies += transaction.blocks.len();
        self.transactions.push_back(Arc::clone(transaction));
        Ok(())
    }

    /// Forgets everything: it is at its place.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// A list of the transactions, and of the newest copies in the order of blocks.
    pub fn share(&self) -> Result<Committed> {
        let mut shared = Committed { copies: self.copies, ..Self::default() };
        shared.index.try_reserve_exact(self.index.len()).map_err(|_| Error::Memory)?;
        shared.transactions.try_reserve(self.transactions.len()).map_err(|_| Error::Memory)?;
        shared.index.extend(&self.index);
        shared.transactions.extend(self.transactions.iter().cloned());
        Ok(shared)
    }

    /// The newest copies, in the order of blocks.
    pub fn newest(&self) -> impl Iterator<Item = &Entry> {
        self.index.iter().filter_map(|&(_, transaction, at)| self.get(transaction, at))
    }
}

impl Running {
    /// A transaction of this number, without changes.
    pub fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    fn find(&self, number: u64) -> core::result::Result<usize, usize> {
        // New blocks often lie behind all others.
        match self.blocks.last() {
            Some(last) if last.number < number => Err(self.blocks.len()),
            _ => self.blocks.binary_search_by_key(&number, |entry| entry.number),
        }
    }

    pub fn copy(&self, number: u64) -> Option<&[u8]> {
        let at = self.find(number).ok()?;
        self.blocks.get(at).map(|entry| entry.bytes.as_slice())
    }

    /// The copy, without a record for undoing: for what is recomputed at each commit.
    pub fn copy_mut(&mut self, number: u64) -> Option<&mut Vec<u8>> {
        let at = self.find(number).ok()?;
        self.blocks.get_mut(at).map(|entry| &mut entry.bytes)
    }

    fn step(&mut self, step: Step) -> Result<()> {
        self.undo.steps.try_reserve(1).map_err(|_| Error::Memory)?;
        self.undo.steps.push(step);
        Ok(())
    }

    fn insert(&mut self, at: usize, number: u64, bytes: Vec<u8>) -> Result<()> {
        self.blocks.try_reserve(1).map_err(|_| Error::Memory)?;
        self.step(Step::Added(number))?;
        self.blocks.insert(at, Entry { number, bytes, stamp: self.stamp });
        Ok(())
    }

    /// Keeps the present content of copy `at`, unless this operation did already.
    fn keep(&mut self, at: usize) -> Result<()> {
        let Some(entry) = self.blocks.get(at) else { return Ok(()) };
        if entry.stamp == self.stamp {
            return Ok(());
        }
        let mut bytes = self.undo.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.try_reserve_exact(entry.bytes.len()).map_err(|_| Error::Memory)?;
        bytes.extend_from_slice(&entry.bytes);
        self.step(Step::Changed(entry.number, bytes, entry.stamp))?;
        if let Some(entry) = self.blocks.get_mut(at) {
            entry.stamp = self.stamp;
        }
        Ok(())
    }
}

impl Writer {
    /// Does an operation: whole, or after an error not at all.
    pub(crate) fn operate<T>(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if self.failure.is_some() {
            return Err(Error::ReadOnly);
        }
        if self.needs_commit() {
            return Err(Error::CommitFirst);
        }
        let running = &mut self.running;
        running.stamp = running.stamp.wrapping_add(1);
        let undo = &mut running.undo;
        undo.steps.clear();
        undo.groups.clear();
        undo.revoked = running.revoked.len();
        (undo.free_blocks, undo.free_inodes) = (self.free_blocks, self.free_inodes);
        let result = operation(self);
        if result.is_err() {
            self.roll_back();
        } else {
            self.running.undo.forget();
        }
        result
    }

    /// Takes the present operation back.
    fn roll_back(&mut self) {
        let mut undo = core::mem::take(&mut self.running.undo);
        let running = &mut self.running;
        while let Some(step) = undo.steps.pop() {
            match step {
                Step::Added(number) => {
                    if let Ok(at) = running.find(number) {
                        running.blocks.remove(at);
                    }
                }
                Step::Changed(number, bytes, stamp) => {
                    if let Ok(at) = running.find(number)
                        && let Some(entry) = running.blocks.get_mut(at)
                    {
                        (entry.bytes, entry.stamp) = (bytes, stamp);
                    }
                }
                Step::Removed(entry) => {
                    // The list had this length before, so there is room.
                    if let Err(at) = running.find(entry.number) {
                        running.blocks.insert(at, entry);
                    }
                }
                Step::Held(group, start, end) => running.held.remove(group, start..end),
                Step::OrphanAdded => drop(self.orphans.pop()),
                Step::OrphanRemoved(at, inode) => {
                    self.orphans.insert(at.min(self.orphans.len()), inode);
                }
            }
        }
        while let Some((number, before)) = undo.groups.pop() {
            if let Some(group) = self.groups.get_mut(number as usize) {
                *group = before;
            }
        }
        running.revoked.truncate(undo.revoked);
        (self.free_blocks, self.free_inodes) = (undo.free_blocks, undo.free_inodes);
        running.undo = undo;
    }

    /// The newest copy of a block, if it has one.
    pub(crate) fn copy(&self, number: u64) -> Option<&[u8]> {
        self.running
            .copy(number)
            .or_else(|| self.committing.as_ref().and_then(|transaction| transaction.copy(number)))
            .or_else(|| self.committed.copy(number))
    }

    /// The content of a block of metadata.
    pub(crate) fn block(&self, device: &dyn Device, number: u64) -> Result<Cow<'_, [u8]>> {
        if let Some(copy) = self.copy(number) {
            return Ok(Cow::Borrowed(copy));
        }
        self.read_block(device, number).map(Cow::Owned)
    }

    fn read_block(&self, device: &dyn Device, number: u64) -> Result<Vec<u8>> {
        if number >= self.volume.blocks {
            return Err(Error::Corrupt("the number of a block"));
        }
        let mut bytes = buffer(self.volume.block_size())?;
        Source::read(device, number << self.volume.block_shift, &mut bytes)?;
        Ok(bytes)
    }

    /// The running transaction's copy of a block, to be changed.
    pub(crate) fn modify(&mut self, device: &dyn Device, number: u64) -> Result<&mut Vec<u8>> {
        let at = match self.running.find(number) {
            Ok(at) => {
                self.running.keep(at)?;
                at
            }
            Err(at) => {
                let bytes = owned(self.block(device, number)?)?;
                self.running.insert(at, number, bytes)?;
                at
            }
        };
        let entry = self.running.blocks.get_mut(at).ok_or(Error::Memory)?;
        Ok(&mut entry.bytes)
    }

    /// A copy of zeros for a block that was just allocated: what the device has is not read.
    pub(crate) fn fresh(&mut self, number: u64) -> Result<&mut Vec<u8>> {
        if number >= self.volume.blocks {
            return Err(Error::Corrupt("the number of a block"));
        }
        let at = match self.running.find(number) {
            Ok(at) => {
                self.running.keep(at)?;
                at
            }
            Err(at) => {
                self.running.insert(at, number, buffer(self.volume.block_size())?)?;
                at
            }
        };
        let entry = self.running.blocks.get_mut(at).ok_or(Error::Memory)?;
        entry.bytes.fill(0);
        Ok(&mut entry.bytes)
    }

    /// Forgets a block of metadata that was freed: no copy of it is written any more.
    pub(crate) fn forget(&mut self, number: u64) -> Result<()> {
        let running = &mut self.running;
        running.revoked.try_reserve(1).map_err(|_| Error::Memory)?;
        if let Ok(at) = running.find(number) {
            running.keep(at)?;
            running.undo.steps.try_reserve(1).map_err(|_| Error::Memory)?;
            let entry = running.blocks.remove(at);
            running.undo.steps.push(Step::Removed(entry));
        }
        running.revoked.push(number);
        Ok(())
    }

    /// Holds freed bits of a group until the commit.
    pub(crate) fn hold(&mut self, group: u32, start: u32, end: u32) -> Result<()> {
        let size = self.volume.block_size();
        self.running.step(Step::Held(group, start, end))?;
        self.running.held.add(group, start..end, size)
    }

    /// Keeps the numbers of a group, which are about to change.
    pub(crate) fn keep_group(&mut self, number: u32) -> Result<()> {
        let undo = &mut self.running.undo;
        if undo.groups.iter().any(|entry| entry.0 == number) {
            return Ok(());
        }
        let group = self.groups.get(number as usize).ok_or(Error::Corrupt("a group"))?;
        undo.groups.try_reserve(1).map_err(|_| Error::Memory)?;
        undo.groups.push((number, group.clone()));
        Ok(())
    }

    /// Adds an inode in front of the list of orphans, which is kept with its first at the end.
    pub(crate) fn push_orphan(&mut self, inode: u32) -> Result<()> {
        self.orphans.try_reserve(1).map_err(|_| Error::Memory)?;
        self.running.step(Step::OrphanAdded)?;
        self.orphans.push(inode);
        Ok(())
    }

    pub(crate) fn pull_orphan(&mut self, at: usize, inode: u32) -> Result<()> {
        self.running.step(Step::OrphanRemoved(at, inode))?;
        self.orphans.remove(at);
        Ok(())
    }

    /// Notes that an inode has new blocks of data, which must be written before the commit.
    pub(crate) fn order(&mut self, inode: u32) -> Result<()> {
        let inodes = &mut self.running.inodes;
        if let Err(at) = inodes.binary_search(&inode) {
            inodes.try_reserve(1).map_err(|_| Error::Memory)?;
            inodes.insert(at, inode);
        }
        Ok(())
    }

    /// How many blocks the present operation may still add.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.weight())
    }

    /// Blocks of the journal that the running transaction needs, about.
    pub(crate) fn weight(&self) -> usize {
        self.running.blocks.len() + self.running.revoked.len() / 64
    }

    /// The running transaction as one that takes no more changes; a new one begins.
    pub(crate) fn take_running(&mut self, time: crate::inode::Time) -> Transaction {
        let number = self.running.number;
        let stamp = self.running.stamp;
        let next = Running { number: number.wrapping_add(1), stamp, ..Running::default() };
        let running = core::mem::replace(&mut self.running, next);
        let mut revoked = running.revoked;
        revoked.sort_unstable();
        revoked.dedup();
        Transaction {
            number,
            blocks: running.blocks,
            revoked,
            inodes: running.inodes,
            held: running.held,
            time,
        }
    }
}
