//! Reads of the source, those that leave the page cache out among them (`O_DIRECT`).
//!
//! A read that leaves the page cache out first has what is newer in memory written to the source,
//! and then reads the source whatever is in memory, as Linux does (`kiocb_write_and_wait`,
//! mm/filemap.c). The pages in memory stay as they are: they have the same bytes.
//!
//! # Places on a disk
//!
//! A place on a disk that a file gives up may soon be another file's. So the file system takes it
//! from the file's map first, then waits for the reads that are under way
//! ([`PageCache::wait_for_reads`]), and frees it then: a read that begins later does not find it.
//! And a place that a file gets has another file's old bytes until the file's page is written. A
//! read through the page cache finds the page; one that leaves it out begins under the content
//! lock, which the writer holds until the page is dirty, and the writer waits for those that have
//! begun before. Linux holds a page's lock or counts the request (`inode_dio_wait`, fs/inode.c) for
//! the one, and marks a place as unwritten for the other.

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;

use super::cache::PageCache;
use super::pages::Group;
use super::source::PageSource;
use super::write_state::WriteState;

impl PageCache {
    /// Reads pages of the source ([`PageSource::read_pages`]), so that
    /// [`wait_for_reads`](Self::wait_for_reads) waits for it.
    pub(super) fn read_source(
        &self,
        source: &dyn PageSource,
        first: u64,
        frames: &[Frame],
    ) -> Result<usize> {
        let Some(write_back) = &self.write_back else {
            // Such a file has the same places as long as it is read.
            return source.read_pages(first, frames);
        };
        let group = self.pages.lock().begin_read();
        let read = source.read_pages(first, frames);
        self.end_read(write_back, group);
        read
    }

    /// Notes that a read has ended.
    fn end_read(&self, write_back: &WriteState, group: Group) {
        if self.pages.lock().end_read(group) {
            write_back.done.wake_all();
        }
    }

    /// Reads the pages `first`, `first + 1`... of the source into frames that do not become pages
    /// of the file, after what is newer in memory was written. Returns how many were read, at least
    /// one. Takes the content lock for a moment. Sleeps.
    ///
    /// # Errors
    /// Those of the source, and `ENOMEM`.
    pub fn read_past(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        let source = self.source.as_ref().ok_or(Errno::EINVAL)?;
        let Some(write_back) = &self.write_back else { return source.read_pages(first, frames) };
        let last = first.saturating_add(frames.len() as u64).saturating_sub(1);
        let group = {
            let _content = self.lock_content();
            self.write_newer(first, last)?;
            self.pages.lock().begin_read()
        };
        let read = source.read_pages(first, frames);
        self.end_read(write_back, group);
        read
    }

    /// Waits for the reads of the source that are under way; later ones do not matter. The caller
    /// holds [`PageCache::lock_content`]. Sleeps.
    pub fn wait_for_reads(&self) {
        let Some(write_back) = &self.write_back else { return };
        let group = self.pages.lock().close_reads();
        write_back.done.wait_for_device(|| (!self.pages.lock().are_under_way(group)).then_some(()));
    }
}
