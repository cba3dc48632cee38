//! ext4 that is written.
//!
//! The crate's `Writer` has the running transaction and all that is in memory of the volume's
//! metadata; this module gives it a device and a lock, keeps what programs see of files, and
//! decides when a transaction is committed. A mount that is only read uses none of it: see the
//! module above.
//!
//! | file | contents |
//! |---|---|
//! | `device` | the disk as the crate writes it |
//! | `blocks` | where the blocks of a file are; reads and writes its pages |
//! | `doomed`, `clock` | inodes to be freed; what the thread that commits waits for |
//! | `state` | a volume and its files: what there is of them in memory |
//! | `node` | a file: its content, and what of it is pending |
//! | `content` | changes of a file's content |
//! | `transaction` | operations, commits, inodes to be freed |
//! | `names` | a file as the kernel's [`Inode`] |
//! | `file` | an open file |
//! | this one | mounting, remounting, the end |
//!
//! Lock order, outermost first: a directory's lock (of the VFS), a page cache's content lock,
//! `committing`, `writer`, which sleep; then the spin locks `nodes`, `changed`, `doomed` and a
//! node's `info`, of which none is taken inside another.
//!
//! * **One transaction for all.** `writer` is one lock for each volume. Reading a file takes it
//!   only for the map of its blocks, at the first use; writing to blocks that a file has, never.
//! * **An inode number is not used again while a node has it**: the inode is freed when the node is
//!   gone, and a node that was loaded without a name is refused.
//! * **Errors.** When the journal cannot be written, or metadata is found to be damaged by an
//!   operation that changes it, the volume takes no more changes (`errors=remount-ro`): the log
//!   says so, writes give `EROFS`.
//!
//! Road not taken: delayed allocation. It makes larger extents of small writes, but writing a page
//! back would need the journal, and memory, at the moment when memory is short.

mod blocks;
mod clock;
mod content;
mod device;
mod doomed;
mod file;
mod names;
mod node;
mod state;
mod transaction;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ext4::{Device, Error, Progress, ROOT, Writer};
use hayate_machine::sync::{RwSpinLock, SpinLock};
use hayate_machine::warn;

use self::clock::Clock;
use self::device::DiskDevice;
use self::doomed::Doomed;
pub use self::state::Live;
use self::state::{Node, time_now};
use self::transaction::run;
use super::handles;
use super::volume::{MAGIC, complain, identity, number};
use crate::fs::disk::{Claim, Disk};
use crate::reclaim::growth::Grow;
use crate::recycle::pools;
use crate::schedule;
use crate::schedule::{Mutex, RwMutex};
use crate::vfs::anonymous::empty_root;
use crate::vfs::dentry::Name;
use crate::vfs::filesystem::{FileSystem, RootHandle, Usage};
use crate::vfs::handle::Handle;
use crate::vfs::inode::{Inode, downcast};
use crate::vfs::set_id::CAPABILITIES;

/// All that are mounted, for those that mount the same disk again and for the end of the machine.
static MOUNTED: RwSpinLock<Vec<Weak<Live>>> = RwSpinLock::new(Vec::new());
/// Held while a volume is mounted or given up, so that each disk has one.
static MOUNTING: Mutex<()> = Mutex::new(());

/// Returns the volume on `disk` that is mounted for writing, if it is.
pub fn mounted(disk: &Arc<Disk>) -> Option<Arc<Live>> {
    let is_it = |live: &Arc<Live>| Arc::ptr_eq(&live.disk, disk);
    MOUNTED.read().iter().filter_map(Weak::upgrade).find(is_it)
}

/// Mounts the volume on `disk` for writing; all mounts of one disk share it.
///
/// # Errors
/// Those of a volume that is only read; `EROFS`: it has a feature that is only read.
pub fn open(disk: Arc<Disk>, type_name: &'static str) -> Result<Arc<Live>> {
    let _mounting = MOUNTING.lock();
    if let Some(live) = mounted(&disk) {
        return if live.read_only() { Err(Errno::EBUSY) } else { Ok(live) };
    }
    let claim = Claim::mount(&disk)?;
    disk.settle()?;
    disk.forget_pages();
    let device = DiskDevice::new(Arc::clone(&disk));
    let writer = Writer::open(&device, disk.size(), time_now());
    let writer = writer.map_err(|error| match error {
        Error::Unsupported(_) => {
            complain(&disk, type_name, error);
            Errno::EROFS
        }
        error => complain(&disk, type_name, error),
    })?;
    let shift = writer.volume().block_size().trailing_zeros();
    let clock = Arc::<Clock>::default();
    let live = Arc::new_cyclic(|this| Live {
        type_name,
        disk,
        device,
        shift,
        writer: RwMutex::new(writer),
        committing: Mutex::new(()),
        nodes: SpinLock::new(BTreeMap::new()),
        changed: SpinLock::new(BTreeMap::new()),
        doomed: SpinLock::new(Doomed::default()),
        clock: Arc::clone(&clock),
        is_read_only: AtomicBool::new(false),
        writers: AtomicUsize::new(0),
        claim: SpinLock::new(Some(claim)),
        root: RootHandle::empty(),
        this: this.clone(),
    });
    let prepared = live.prepare_root(&clock);
    if prepared.is_err() {
        live.unmounted();
    }
    prepared.map(|()| live)
}

/// Gives up all volumes that are mounted for writing: the machine ends.
pub fn close_all() {
    for at in 0.. {
        let Some(live) = MOUNTED.read().get(at).map(Weak::upgrade) else { break };
        if let Some(live) = live {
            let _ = live.sync();
            let _ = live.close();
        }
    }
}

impl Live {
    /// The steps that can fail once there is a volume: the root must be a directory.
    fn prepare_root(&self, clock: &Arc<Clock>) -> Result<()> {
        let root = self.node(ROOT)?;
        if root.kind != crate::vfs::inode::FileKind::Directory {
            return self.checked(Err(Error::Corrupt("the root directory")));
        }
        let (thread, live) = (Arc::clone(clock), self.this.clone());
        let name = alloc::format!("{}-{}", self.type_name, self.disk.name());
        schedule::start_kernel(&name, move || run(&thread, &live))?;
        let mut mounted = MOUNTED.write();
        mounted.retain(|other| other.strong_count() != 0);
        mounted.make_room(1)?;
        mounted.push(self.this.clone());
        drop(mounted);
        self.root.set(root);
        Ok(())
    }

    /// `EROFS` if it takes no changes.
    fn check_writable(&self) -> Result<()> {
        if self.is_read_only.load(Ordering::Acquire) { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Reads with the writer.
    fn read<T>(
        &self,
        read: impl FnOnce(&Writer, &dyn Device) -> hayate_ext4::Result<T>,
    ) -> Result<T> {
        let outcome = read(&self.writer.read(), &self.device);
        self.checked(outcome)
    }

    /// Turns an error of the crate into an error number; what is wrong with the volume is logged.
    fn checked<T>(&self, outcome: hayate_ext4::Result<T>) -> Result<T> {
        outcome.map_err(|error| match error {
            Error::Unsupported(_) => Errno::EOPNOTSUPP,
            Error::Io | Error::NotExt4 | Error::Corrupt(_) | Error::Checksum(_) => {
                complain(&self.disk, self.type_name, error)
            }
            error => number(error),
        })
    }

    /// Takes no more changes after an error.
    fn note_failure(&self, failure: Option<Error>) {
        if let Some(error) = failure
            && !self.is_read_only.swap(true, Ordering::AcqRel)
        {
            let (kind, disk) = (self.type_name, self.disk.name());
            warn!("{kind}: {disk}: {error}; it is only read from now on");
        }
    }

    /// Whether a file has capabilities, or attributes that cannot be read.
    fn may_have_capabilities(&self, writer: &Writer, inode: &hayate_ext4::Inode) -> bool {
        let found = writer.volume().attribute(&writer.view(&self.device), inode, CAPABILITIES);
        inode.has_attributes() && !matches!(found, Ok(None))
    }

    /// Returns the number of the directory that a directory lies in, and its name there.
    fn step_up(&self, number: u32) -> Result<(u32, Name)> {
        self.read(|writer, device| {
            let above = writer.parent(device, number)?;
            let mut name = None;
            writer.list(device, above, 0, &mut |entry, _| {
                if entry.inode == number {
                    name = Some(Name::from(entry.name));
                }
                name.is_none()
            })?;
            // A directory that was removed has no name there.
            Ok((above, name.ok_or(Error::NotFound)?))
        })
    }

    /// Returns the node of an inode if it is there.
    fn known(&self, number: u32) -> Option<Arc<Node>> {
        self.nodes.lock().get(&number).and_then(Weak::upgrade)
    }

    /// Returns the node of an inode.
    fn node(&self, number: u32) -> Result<Arc<Node>> {
        if let Some(node) = self.known(number) {
            return Ok(node);
        }
        let writer = self.writer.read();
        let inode = self.checked(writer.inode(&self.device, number))?;
        if inode.links == 0 {
            return self.checked(Err(Error::Corrupt("a directory entry (of a deleted inode)")));
        }
        self.enter(&writer, &inode)
    }

    /// Makes the node of an inode that was read under the writer's lock, unless there is one.
    fn enter(&self, writer: &Writer, inode: &hayate_ext4::Inode) -> Result<Arc<Node>> {
        let this = self.this.upgrade().ok_or(Errno::EIO)?;
        let node = Node::new(&this, writer, inode)?;
        let mut nodes = self.nodes.lock();
        if let Some(other) = nodes.get(&inode.number).and_then(Weak::upgrade) {
            drop(nodes);
            return Ok(other);
        }
        nodes.insert(inode.number, Arc::downgrade(&node));
        Ok(node)
    }

    /// Removes the entry of a node that has no references left.
    fn forget(&self, number: u32) {
        let mut nodes = self.nodes.lock();
        if nodes.get(&number).is_some_and(|node| node.strong_count() == 0) {
            nodes.remove(&number);
        }
    }

    /// A file without a name that something still has.
    fn nameless(&self) -> Option<Arc<Node>> {
        let mut from = 0;
        loop {
            // No node may end inside the lock, which its end takes.
            let (number, node) = {
                let nodes = self.nodes.lock();
                let (number, node) = nodes.range(from..).next()?;
                (*number, node.upgrade())
            };
            let is_it = |node: &Arc<Node>| {
                let info = node.info.lock();
                info.links == 0 && !info.is_released
            };
            if let Some(node) = node.filter(is_it) {
                return Some(node);
            }
            from = number.checked_add(1)?;
        }
    }

    /// Frees files without names that something still has: what is kept of ended programs, or, at
    /// the end of the machine, programs.
    fn free_nameless(&self, writer: &mut Writer) -> Result<()> {
        while let Some(node) = self.nameless() {
            loop {
                if writer.needs_commit() {
                    self.checked(writer.commit(&self.device, time_now()))?;
                }
                match writer.release(&self.device, node.number, time_now()) {
                    Ok(Progress::Done) => break,
                    Ok(Progress::More) => {}
                    Err(Error::CommitFirst) => {
                        self.checked(writer.commit(&self.device, time_now()))?;
                    }
                    Err(error) => return self.checked(Err(error)),
                }
            }
            node.info.lock().is_released = true;
        }
        Ok(())
    }

    /// Marks the volume as clean, after all was written. No changes are taken then.
    fn close(&self) -> Result<()> {
        let _committing = self.committing.lock();
        let mut writer = self.writer.write();
        if self.is_read_only.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.free_nameless(&mut writer)?;
        self.checked(writer.unmount(&self.device, time_now()))
    }

    /// Whether a file may be written, or is to be freed when it is closed.
    fn is_busy(&self) -> bool {
        self.writers.load(Ordering::Acquire) != 0 || self.nameless().is_some()
    }

    fn remount_read_only(&self) -> Result<()> {
        if self.is_busy() {
            // Kept parts of ended programs must not keep the file system in use.
            pools::drop_all(None);
        }
        self.free_doomed();
        if self.is_busy() {
            return Err(Errno::EBUSY);
        }
        self.sync()?;
        self.close()
    }

    fn remount_writable(&self) -> Result<()> {
        if self.disk.is_read_only() {
            return Err(Errno::EROFS);
        }
        let mut writer = self.writer.write();
        // After an error Linux refuses, too (`__ext4_remount`).
        if writer.failure().is_some_and(|failure| failure != Error::ReadOnly) {
            return Err(Errno::EROFS);
        }
        *writer = self.checked(Writer::open(&self.device, self.disk.size(), time_now()))?;
        self.is_read_only.store(false, Ordering::Release);
        Ok(())
    }
}

impl FileSystem for Live {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn device(&self) -> u64 {
        self.disk.number().encode()
    }

    fn root(&self) -> Arc<dyn Inode> {
        match self.root.get() {
            Some(root) => root,
            None => empty_root(),
        }
    }

    fn usage(&self) -> Usage {
        self.free_doomed();
        let writer = self.writer.read();
        let numbers = writer.statistics();
        Usage {
            magic: MAGIC,
            block_size: 1 << self.shift,
            blocks: numbers.blocks,
            free: numbers.free_blocks,
            available: numbers.free_blocks.saturating_sub(numbers.reserved_blocks),
            files: numbers.inodes.into(),
            files_free: numbers.free_inodes.into(),
            id: identity(writer.volume()),
            name_length: 255,
        }
    }

    fn read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    fn handle(&self, inode: &Arc<dyn Inode>) -> Result<Handle> {
        let node = downcast::<Node>(inode).ok_or(Errno::EOPNOTSUPP)?;
        let inode = self.read(|writer, device| writer.inode(device, node.number))?;
        Ok(handles::of(&inode))
    }

    fn by_handle(&self, handle: &Handle) -> Result<Arc<dyn Inode>> {
        let writer = self.writer.read();
        let inode = handles::find(handle, |number| writer.inode(&self.device, number))?;
        // A file without a name is found as long as something has it.
        match self.known(inode.number) {
            Some(node) if !node.info.lock().is_released => Ok(node),
            None if inode.links != 0 => Ok(self.enter(&writer, &inode)?),
            _ => Err(Errno::ESTALE),
        }
    }

    fn way_to(&self, directory: &Arc<dyn Inode>) -> Result<Vec<Name>> {
        let node = downcast::<Node>(directory).ok_or(Errno::ESTALE)?;
        handles::way(node.number, |number| self.step_up(number))
    }

    fn options(&self) -> String {
        String::new()
    }

    fn reconfigure(&self, read_only: bool, _: &[u8]) -> Result<()> {
        match (self.read_only(), read_only) {
            (false, true) => self.remount_read_only(),
            (true, false) => self.remount_writable(),
            _ => Ok(()),
        }
    }

    fn sync(&self) -> Result<()> {
        self.free_doomed();
        let data = self.for_each_changed(|node| match node.loaded() {
            Some(content) => content.write_everything(),
            None => Ok(()),
        });
        let committed = self.commit_until(None);
        let flushed = if self.read_only() { Ok(()) } else { self.checked(self.device.flush()) };
        data.and(committed).and(flushed)
    }

    fn unmounted(&self) {
        let _mounting = MOUNTING.lock();
        // An error was told to the programs, and to the log.
        let _ = self.sync();
        let _ = self.close();
        self.clock.end();
        MOUNTED.write().retain(|other| !Weak::ptr_eq(other, &self.this));
        let kept = core::mem::take(&mut *self.changed.lock());
        drop(kept);
        self.disk.forget_pages();
        let claim = self.claim.lock().take();
        drop(claim);
    }
}
