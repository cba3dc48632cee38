//! The source that a page cache reads its pages from: a file system, a disk, or the account of a
//! tmpfs.

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;

/// The source of a page cache.
pub trait PageSource: Send + Sync {
    /// Fills the frames with the pages `first`, `first + 1`...; bytes beyond the file's end are
    /// zero. Sleeps. Returns how many frames were filled, counted from the first; at least one.
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize>;

    /// Returns the source's own frame of the page, if it has the page in memory and allows sharing.
    fn lend(&self, index: u64) -> Option<Frame> {
        let _ = index;
        None
    }

    /// Writes a page back; `EROFS` for sources that cannot.
    fn write_page(&self, index: u64, frame: &Frame) -> Result<()> {
        let _ = (index, frame);
        Err(Errno::EROFS)
    }

    /// Counts pages that a page cache without a backing file took (tmpfs' size limit); `ENOSPC`
    /// beyond the limit.
    fn charge(&self, pages: u64) -> Result<()> {
        let _ = pages;
        Ok(())
    }

    /// Takes back a charge.
    fn uncharge(&self, pages: u64) {
        let _ = pages;
    }

    /// Whether the pages exist only in memory: missing pages are holes, and no page may be
    /// reclaimed.
    fn memory_only(&self) -> bool {
        false
    }
}
