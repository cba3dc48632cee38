//! A file of a volume that can be written: what the kernel keeps of it.
//!
//! Lock order: `info` is a spin lock and a leaf, but for the page cache's `pages`.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_ext4::{Change, Device, Map, Writer};
use hayate_machine::sync::{Once, SpinLock};

use super::blocks::Blocks;
use super::doomed::Gone;
use super::state::{Info, Live, Node, Pending, time_of};
use crate::fs::ext4::node::timestamp;
use crate::page_cache::cache::PageCache;
use crate::schedule::Mutex;
use crate::vfs::inode::{DeviceNumber, FileKind, Timestamp};

impl Node {
    /// The node of an inode that was read under the lock `writer`.
    pub fn new(live: &Arc<Live>, writer: &Writer, inode: &hayate_ext4::Inode) -> Result<Arc<Node>> {
        let kind = FileKind::from_mode(inode.mode.into()).ok_or(Errno::EUCLEAN)?;
        let mut info = Info {
            mode: 0,
            uid: 0,
            gid: 0,
            links: 0,
            size: 0,
            accessed: Timestamp::default(),
            modified: Timestamp::default(),
            changed: Timestamp::default(),
            created: timestamp(inode.created.unwrap_or_default()),
            capabilities: kind == FileKind::Regular && live.may_have_capabilities(writer, inode),
            pending: Pending::empty(),
            is_released: false,
            // All that is there now was durable before, or is part of this transaction.
            transaction: writer.running(),
            data_transaction: writer.running(),
        };
        info.take(inode);
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let (major, minor) = inode.device();
        Ok(Arc::new_cyclic(|this| Node {
            live: Arc::clone(live),
            number: inode.number,
            kind,
            info: SpinLock::new(info),
            represents: if is_device {
                DeviceNumber::new(major, minor)
            } else {
                DeviceNumber::NONE
            },
            filling: Mutex::new(()),
            content: Once::new(),
            target: Once::new(),
            this: this.clone(),
        }))
    }

    /// Returns the page cache and the blocks of a regular file.
    pub fn content(&self) -> Result<&(Arc<PageCache>, Arc<Blocks>)> {
        if self.kind != FileKind::Regular {
            return Err(Errno::EINVAL);
        }
        if let Some(content) = self.content.get() {
            return Ok(content);
        }
        let _filling = self.filling.lock();
        if let Some(content) = self.content.get() {
            return Ok(content);
        }
        let live = &self.live;
        let (map, size, largest): (Map, u64, u64) = live.read(|writer, device| {
            let inode = writer.inode(device, self.number)?;
            let map = writer.volume().map(&writer.view(device), &inode)?;
            Ok((map, inode.size, writer.largest_size(&inode)))
        })?;
        let disk = Arc::clone(&live.disk);
        let blocks = Arc::new(Blocks::new(disk, live.shift, map.extents(), size, largest)?);
        blocks.belong_to(self.this.clone());
        let page_cache = PageCache::written_back(size, Arc::clone(&blocks) as _);
        Ok(self.content.call_once(|| (page_cache, blocks)))
    }

    /// Returns the page cache if it is there.
    pub fn loaded(&self) -> Option<&Arc<PageCache>> {
        self.content.get().map(|(page_cache, _)| page_cache)
    }

    /// Returns the size in bytes that programs see.
    pub fn size(&self) -> u64 {
        self.loaded().map_or_else(|| self.info.lock().size, |page_cache| page_cache.size())
    }

    /// Whether all of it is on the disk, or in the writer's transaction.
    pub fn is_settled(&self) -> bool {
        self.info.lock().pending.is_empty()
            && self.loaded().is_none_or(|content| content.is_settled())
    }

    /// Takes what the inode says after a change inside the writer's lock.
    pub fn take(&self, writer: &Writer, inode: &hayate_ext4::Inode) {
        let mut info = self.info.lock();
        info.take(inode);
        info.transaction = writer.running();
    }

    /// Reads the inode anew after a change inside the writer's lock.
    pub fn refresh(&self, writer: &Writer, device: &dyn Device) -> hayate_ext4::Result<()> {
        let inode = writer.inode(device, self.number)?;
        self.take(writer, &inode);
        Ok(())
    }

    /// Hands what is pending to the writer.
    pub fn hand_over(&self, writer: &mut Writer, device: &dyn Device) -> hayate_ext4::Result<()> {
        let info = {
            let mut info = self.info.lock();
            let before = *info;
            // A write that goes on sets it again after the size has grown.
            info.pending.remove(Pending::SIZE);
            before
        };
        if info.pending.is_empty() {
            return Ok(());
        }
        let size = self.size();
        let time = |at: Timestamp| time_of(at);
        let is = |what| info.pending.contains(what);
        let change = Change {
            size: (is(Pending::SIZE) && size > info.size).then_some(size),
            accessed: is(Pending::ACCESSED).then(|| time(info.accessed)),
            modified: is(Pending::MODIFIED).then(|| time(info.modified)),
            changed: is(Pending::MODIFIED).then(|| time(info.changed)),
            ..Change::default()
        };
        let changed = writer.change(device, self.number, &change);
        let mut now = self.info.lock();
        let inode = match changed {
            Ok(inode) => inode,
            Err(error) => {
                now.pending |= info.pending & Pending::SIZE;
                return Err(error);
            }
        };
        let same = |one: Timestamp, other: Timestamp| {
            (one.seconds, one.nanoseconds) == (other.seconds, other.nanoseconds)
        };
        // Later changes are still pending.
        if same(now.modified, info.modified) && same(now.changed, info.changed) {
            now.pending.remove(Pending::MODIFIED);
        }
        if same(now.accessed, info.accessed) {
            now.pending.remove(Pending::ACCESSED);
        }
        if is(Pending::SIZE) {
            now.data_transaction = writer.running();
        }
        now.size = inode.size;
        now.transaction = writer.running();
        Ok(())
    }

    /// Notes that the content changed, and that its end may have moved.
    pub fn note_written(&self) {
        let now = Timestamp::now();
        let size = self.size();
        let mut info = self.info.lock();
        info.modified = now;
        info.changed = now;
        info.pending.insert(Pending::MODIFIED);
        if size > info.size {
            info.pending.insert(Pending::SIZE);
        }
        drop(info);
        self.keep();
    }

    /// Keeps the node until all of it is on the disk.
    pub fn keep(&self) {
        if let Some(this) = self.this.upgrade() {
            self.live.keep(&this);
        }
    }
}

impl Info {
    /// Takes what the inode says, but for what is pending here.
    pub fn take(&mut self, inode: &hayate_ext4::Inode) {
        self.mode = inode.mode & 0o7777;
        self.uid = inode.uid;
        self.gid = inode.gid;
        self.links = inode.links.into();
        self.size = inode.size;
        if !self.pending.contains(Pending::ACCESSED) {
            self.accessed = timestamp(inode.accessed);
        }
        if !self.pending.contains(Pending::MODIFIED) {
            self.modified = timestamp(inode.modified);
            self.changed = timestamp(inode.changed);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.live.forget(self.number);
        let content = self.loaded().cloned();
        let info = self.info.get_mut();
        if info.links == 0 && !info.is_released {
            let refused = self.live.doomed.lock().doom(Gone { number: self.number, content });
            // Its pages are freed outside of the lock.
            drop(refused);
            self.live.clock.press();
        }
    }
}
