//! Changes of a volume, and when they become durable.
//!
//! Every change of metadata is an operation of the crate's `Writer`, inside its running
//! transaction. [`Live::change`] carries one out, and commits before it if the transaction is full
//! or blocks that it freed are needed.
//!
//! A commit writes the data of files that have new blocks between the end of the transaction and
//! its record in the journal (`data=ordered`), and holds the writer's lock at neither: programs go
//! on. It comes five seconds after a change, at `fsync(2)` and the like, and when the journal wants
//! it.
//!
//! Sizes and times of files that are written to without new blocks are kept in the node until a
//! commit, which hands them to the writer. Nodes that have such, or dirty pages, are in `changed`,
//! so that they stay.
//!
//! An inode whose last name is gone is freed when its node goes, by whichever operation comes next:
//! a node may go anywhere, also where memory is reclaimed for an operation ([`super::doomed`]).

use alloc::sync::{Arc, Weak};
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Device, Error, Progress, Writer};

use super::clock::Clock;
use super::doomed::Gone;
use super::state::{Live, Node, time_now};
use crate::credentials::Capability;
use crate::reclaim;
use crate::schedule;
use crate::schedule::time::monotonic_ns;
use crate::vfs::caller;

/// How long a change may wait (`commit=5`).
const AGE_NS: u64 = 5_000_000_000;
/// How often an operation is tried again after a commit.
const TRIES: usize = 16;
/// Pause of a commit that lacks memory, and how often it is tried again.
const PAUSE_NS: u64 = 10_000_000;
const PATIENCE: usize = 1000;

/// The rest that a part of a commit leaves.
enum Step {
    /// There was nothing to commit.
    Nothing,
    /// All is committed.
    Last,
    /// There are more changes.
    More,
}

/// The thread that commits.
pub fn run(clock: &Clock, live: &Weak<Live>) {
    loop {
        clock.queue.wait(|| {
            let is_dirty = clock.is_dirty.load(Ordering::Acquire);
            (is_dirty || clock.is_pressed()).then_some(())
        });
        let deadline = monotonic_ns().saturating_add(AGE_NS);
        loop {
            if clock.is_over() {
                return;
            }
            let Some(live) = live.upgrade() else { return };
            if clock.is_pressed.swap(false, Ordering::AcqRel) {
                live.free_doomed();
            }
            if !clock.is_dirty.load(Ordering::Acquire) {
                break;
            }
            if monotonic_ns() >= deadline {
                clock.is_dirty.store(false, Ordering::Release);
                // An error is told to those who call fsync(2).
                let _ = live.commit();
                if live.has_changed_nodes() {
                    clock.is_dirty.store(true, Ordering::Release);
                }
                break;
            }
            drop(live);
            let _ =
                clock.queue.wait_interruptible(Some(deadline), || clock.is_pressed().then_some(()));
        }
    }
}

impl Live {
    /// Carries out an operation, which changes nothing if it fails.
    ///
    /// # Errors
    /// `EROFS`; those of the operation.
    pub fn change<T>(
        &self,
        mut operation: impl FnMut(&mut Writer, &dyn Device) -> hayate_ext4::Result<T>,
    ) -> Result<T> {
        let privileged = caller::has(Capability::SysResource);
        let mut tries = 0;
        loop {
            let mut writer = self.writer.write();
            self.check_writable()?;
            self.free_some(&mut writer);
            let outcome = if writer.needs_commit() {
                Err(Error::CommitFirst)
            } else {
                writer.set_privileged(privileged);
                operation(&mut writer, &self.device)
            };
            if writer.is_dirty() {
                self.clock.start();
            }
            let failure = writer.failure();
            drop(writer);
            self.note_failure(failure);
            match outcome {
                Err(Error::CommitFirst) if tries < TRIES => self.commit()?,
                Err(Error::CommitFirst) => return Err(Errno::ENOSPC),
                Err(Error::Memory) if reclaim::relieve() => {}
                outcome => return self.checked(outcome),
            }
            tries += 1;
        }
    }

    /// Like [`change`](Self::change), for an operation that is repeated until it is done.
    pub fn change_in_steps(
        &self,
        mut step: impl FnMut(&mut Writer, &dyn Device) -> hayate_ext4::Result<Progress>,
    ) -> Result<()> {
        while self.change(&mut step)? == Progress::More {
            schedule::breathe();
        }
        Ok(())
    }

    /// Frees inodes whose nodes are gone, as far as the transaction has room.
    fn free_some(&self, writer: &mut Writer) {
        loop {
            let Some(Gone { number, content }) = self.doomed.lock().next() else { return };
            if let Some(content) = content {
                content.discard();
            }
            let freed = loop {
                if writer.needs_commit() {
                    break Err(Error::CommitFirst);
                }
                match writer.release(&self.device, number, time_now()) {
                    Ok(Progress::More) => {}
                    Ok(Progress::Done) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            match freed {
                Ok(()) => {}
                Err(error @ (Error::CommitFirst | Error::Memory)) => {
                    // Popped a moment ago, so there is room unless a node took it.
                    self.doomed.lock().put_back(number);
                    if error == Error::Memory {
                        self.clock.start();
                    }
                    return;
                }
                // It stays on the volume's own list.
                Err(error) => drop(self.checked::<()>(Err(error))),
            }
        }
    }

    /// Frees all inodes whose nodes are gone.
    pub fn free_doomed(&self) {
        for _ in 0..PATIENCE {
            if self.doomed.lock().is_empty() || self.check_writable().is_err() {
                return;
            }
            let mut writer = self.writer.write();
            self.free_some(&mut writer);
            if writer.is_dirty() {
                self.clock.start();
            }
            let needs_commit = writer.needs_commit();
            drop(writer);
            if needs_commit && self.commit().is_err() {
                return;
            }
        }
    }

    /// Keeps a node that has something which is not on the disk. Changes of a file without a name
    /// go with it.
    pub fn keep(&self, node: &Arc<Node>) {
        if node.info.lock().links == 0 {
            return;
        }
        let old = self.changed.lock().insert(node.number, Arc::clone(node));
        drop(old);
        self.clock.start();
    }

    /// Lets go of a node that has lost its last name.
    pub fn let_go(&self, node: &Node) {
        let gone = self.changed.lock().remove(&node.number);
        drop(gone);
    }

    fn has_changed_nodes(&self) -> bool {
        !self.changed.lock().is_empty()
    }

    /// The first node from `number` on that is kept.
    fn changed_from(&self, number: u32) -> Option<Arc<Node>> {
        self.changed.lock().range(number..).next().map(|(_, node)| Arc::clone(node))
    }

    /// Calls `visit` for each node that is kept.
    pub fn for_each_changed(&self, mut visit: impl FnMut(&Arc<Node>) -> Result<()>) -> Result<()> {
        let mut from = 0;
        let mut outcome = Ok(());
        while let Some(node) = self.changed_from(from) {
            outcome = outcome.and(visit(&node));
            let Some(next) = node.number.checked_add(1) else { break };
            from = next;
        }
        outcome
    }

    /// Hands sizes and times that nodes have to the writer, and lets go of nodes that are on the
    /// disk. Returns whether all were done.
    fn hand_over(&self, writer: &mut Writer) -> Result<bool> {
        let mut all = true;
        self.for_each_changed(|node| {
            if !all {
                return Ok(());
            }
            if writer.needs_commit() {
                all = false;
                return Ok(());
            }
            match node.hand_over(writer, &self.device) {
                Err(Error::CommitFirst) => all = false,
                outcome => self.checked(outcome)?,
            }
            if node.is_settled() {
                // It is removed under the lock under which it would be kept again.
                let mut changed = self.changed.lock();
                let gone = if node.is_settled() { changed.remove(&node.number) } else { None };
                drop(changed);
                drop(gone);
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Makes all changes of metadata durable, with the data that they need.
    ///
    /// # Errors
    /// `EIO`: the volume takes no more changes. `ENOMEM`.
    pub fn commit(&self) -> Result<()> {
        self.commit_until(None)
    }

    /// Like [`commit`](Self::commit), unless the transaction `wanted` is durable by now; then the
    /// disk's cache is flushed for what was written meanwhile.
    pub fn commit_until(&self, wanted: Option<u32>) -> Result<()> {
        if self.check_writable().is_err() {
            // After an orderly end it is `ReadOnly`.
            let failure = self.writer.read().failure();
            let has_failed = failure.is_some_and(|failure| failure != Error::ReadOnly);
            return if has_failed { Err(Errno::EIO) } else { Ok(()) };
        }
        let _committing = self.committing.lock();
        let mut patience = PATIENCE;
        loop {
            if let Some(wanted) = wanted {
                let writer = self.writer.read();
                let is_durable = wanted.wrapping_sub(writer.committed()).cast_signed() <= 0;
                if is_durable {
                    drop(writer);
                    return self.checked(self.device.flush());
                }
            }
            match self.commit_once() {
                Ok(Step::More) => {}
                Ok(Step::Last) => return Ok(()),
                // Nothing but data was written.
                Ok(Step::Nothing) if wanted.is_some() => {
                    return self.checked(self.device.flush());
                }
                Ok(Step::Nothing) => return Ok(()),
                Err(Errno::ENOMEM) if patience > 0 => {
                    patience -= 1;
                    if !reclaim::relieve() {
                        let _ =
                            schedule::sleep_until(monotonic_ns().saturating_add(PAUSE_NS), false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One transaction; the caller has the lock of commits. Returns what is left.
    fn commit_once(&self) -> Result<Step> {
        let mut writer = self.writer.write();
        if let Some(error) = writer.failure() {
            drop(writer);
            self.note_failure(Some(error));
            return Err(Errno::EIO);
        }
        let is_last = self.hand_over(&mut writer)?;
        if writer.needs_checkpoint() {
            drop(writer);
            self.checkpoint()?;
            writer = self.writer.write();
        }
        let sealed = match writer.seal(&self.device, time_now()) {
            Err(Error::CommitFirst) => {
                drop(writer);
                self.checkpoint()?;
                return Ok(Step::More);
            }
            sealed => self.checked(sealed)?,
        };
        drop(writer);
        let Some(mut sealed) = sealed else {
            return Ok(if is_last { Step::Nothing } else { Step::More });
        };
        for number in sealed.inodes() {
            self.write_data(*number);
        }
        let written = sealed.write(&self.device);
        let mut writer = self.writer.write();
        let finished = writer.finish(&self.device, sealed, written);
        let failure = writer.failure();
        drop(writer);
        self.note_failure(failure);
        self.checked(finished)?;
        Ok(if is_last { Step::Last } else { Step::More })
    }

    /// Writes the data of a file that has new blocks. An error is told by its fsync(2), as on Linux
    /// (`data_err=ignore`); a lack of memory is waited out, or the file would show what others left
    /// in the blocks.
    fn write_data(&self, number: u32) {
        let Some(node) = self.known(number) else { return };
        let Some(content) = node.loaded() else { return };
        while content.write_everything() == Err(Errno::ENOMEM) {
            let _ = schedule::sleep_until(monotonic_ns().saturating_add(PAUSE_NS), false);
        }
    }

    fn checkpoint(&self) -> Result<()> {
        let checkpoint = self.checked(self.writer.read().begin_checkpoint())?;
        let Some(mut checkpoint) = checkpoint else { return Ok(()) };
        let written = checkpoint.write(&self.device);
        let mut writer = self.writer.write();
        let finished = writer.finish_checkpoint(&self.device, checkpoint, written);
        let failure = writer.failure();
        drop(writer);
        self.note_failure(failure);
        self.checked(finished)
    }
}
