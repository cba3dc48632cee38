//! An open file.
//!
//! It has what it was told of errors of writing back, so that each open file is told once, and
//! counts as a writer of the volume if it may write. `O_DIRECT` is as with a disk's node: whole
//! sectors, reads are the disk's, and the disk has the bytes when the write returns.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_ext4::Run;
use hayate_protocols::write_errors::Seen;

use super::blocks::Blocks;
use super::state::Node;
use crate::page_cache::cache::{PAGE, PageCache};
use crate::vfs::content;
use crate::vfs::open_file::flags::{O_DSYNC, O_SYNC};
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, Traits, Whence, default_seek};
use crate::vfs::transfer::{Input, Output};

/// An open regular file.
pub struct File {
    node: Arc<Node>,
    writes: bool,
    seen: Option<Seen>,
}

impl File {
    pub fn new(node: Arc<Node>, writes: bool) -> Result<File> {
        let seen = node.content()?.0.open_errors();
        if writes {
            node.live.writers.fetch_add(1, Ordering::AcqRel);
            // A remount either sees this writer, or is seen here.
            if let Err(error) = node.live.check_writable() {
                node.live.writers.fetch_sub(1, Ordering::AcqRel);
                return Err(error);
            }
        }
        Ok(File { node, writes, seen })
    }

    fn content(&self) -> Result<(&Arc<PageCache>, &Arc<Blocks>)> {
        self.node.content().map(|(page_cache, blocks)| (page_cache, blocks))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.writes {
            self.node.live.writers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl FileOps for File {
    fn traits(&self) -> Traits {
        Traits::REGULAR
    }

    fn read(&self, file: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        let count = content::read_on_disk(self.content()?.0, file, offset, out)?;
        if file.updates_access_time() {
            self.node.accessed(file.location().mount.notes_every_access());
        }
        Ok(count)
    }

    fn write(&self, file: &OpenFile, offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        self.node.live.check_writable()?;
        let is_direct = content::is_direct(file, *offset, input.remaining())?;
        let (page_cache, _) = self.content()?;
        // Where the first part began, and where the last one ended.
        let (mut first, mut at) = (None, *offset);
        let count = content::in_parts(page_cache, input, |input| {
            let _content = page_cache.lock_content();
            if file.appends() {
                at = page_cache.size();
            }
            first.get_or_insert(at);
            let before = input.done();
            let written = self.node.write(at, input);
            at += (input.done() - before) as u64;
            written
        })?;
        *offset = at - count as u64;
        if count == 0 {
            return Ok(0);
        }
        if file.flags() & O_DSYNC != 0 {
            self.sync(file, file.flags() & O_SYNC != O_SYNC)?;
        } else if is_direct {
            let page = PAGE as u64;
            page_cache.write_range(first.unwrap_or(*offset) / page, (at - 1) / page)?;
        }
        Ok(count)
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        Ok(MapSource::PageCache(Arc::clone(self.content()?.0)))
    }

    fn seek(&self, file: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        if !matches!(whence, Whence::Data | Whence::Hole) {
            return default_seek(file, position, offset, whence);
        }
        let (page_cache, blocks) = self.content()?;
        let size = page_cache.size();
        let mut at = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
        while at < size {
            match (blocks.run(at), whence) {
                (Run::Data { .. }, Whence::Data) | (Run::Hole { .. }, Whence::Hole) => {
                    return Ok(at);
                }
                (Run::Data { length, .. } | Run::Hole { length }, _) => {
                    at = at.saturating_add(length);
                }
            }
        }
        // After the last data there is a hole, up to the end of the file.
        if whence == Whence::Hole && (offset as u64) < size { Ok(size) } else { Err(Errno::ENXIO) }
    }

    fn allocate(&self, _: &OpenFile, mode: u32, offset: u64, length: u64) -> Result<()> {
        self.node.allocate(mode, offset, length)
    }

    fn sync(&self, _: &OpenFile, data_only: bool) -> Result<()> {
        let durable = self.node.make_durable(data_only);
        self.content()?.0.tell_errors(self.seen.as_ref()).and(durable)
    }
}
