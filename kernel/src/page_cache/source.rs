//! The source that a page cache reads its pages from: a file system, a disk, or the account of a
//! tmpfs.

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;

/// The source of a page cache.
pub trait PageSource: Send + Sync {
    /// Fills the frames with the pages `first`, `first + 1`...; bytes beyond the file's end are
    /// zero. Sleeps. Returns how many frames were filled, counted from the first; at least one.
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize>;

    /// The disk that the pages lie on, by its place among those whose requests are counted
    /// ([`crate::drivers::io`]); `None`: on none. Constant.
    fn device(&self) -> Option<usize> {
        None
    }

    /// Returns the source's own frame of the page, if it has the page in memory and allows sharing.
    fn lend(&self, index: u64) -> Option<Frame> {
        let _ = index;
        None
    }

    /// Writes pages, in the order of their indexes, and waits until the source has them; `EROFS`
    /// for sources that cannot. Called also to get memory, so it takes none that could be refused
    /// but for lists that may be short, and no lock under which memory is asked for. `ENOMEM`: it
    /// was not tried.
    fn write_pages(&self, pages: &[(u64, Frame)]) -> Result<()> {
        let _ = pages;
        Err(Errno::EROFS)
    }

    /// Called when [`write_pages`](Self::write_pages) was, once for many calls, with no lock held:
    /// the source may let go of what it needs for changed pages, if there are none any more.
    fn wrote(&self) {}

    /// Whether a page needs [`prepare`](Self::prepare) before it is changed by a mapping: blocks of
    /// a disk, say, so that writing it back needs nothing any more. Constant.
    fn prepares(&self) -> bool {
        false
    }

    /// Makes a page that a shared mapping is about to change ready for that, and marks it as
    /// changed (`page_mkwrite` of Linux). Sleeps. `EINVAL`: it is beyond the size; `ENOSPC` and the
    /// like: it cannot be changed.
    fn prepare(&self, index: u64) -> Result<()> {
        let _ = index;
        Ok(())
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

    /// Whether the pages are copies of a content that others change as well: reads and writes go to
    /// the source itself, and the pages are for mappings alone.
    fn is_copied(&self) -> bool {
        false
    }

    /// Whether the pages exist only in memory: missing pages are holes, and no page may be
    /// reclaimed.
    fn memory_only(&self) -> bool {
        false
    }
}
