//! The pages of a file for mappings: copies, read from the server when they are touched.

use alloc::sync::{Arc, Weak};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;

use super::client::Fid;
use crate::page_cache::source::PageSource;

const PAGE: usize = 4096;

/// What pages and open files need of a file.
pub trait Content: Send + Sync {
    /// Returns a fid that is open for reading.
    fn reader(&self) -> Result<Arc<Fid>>;

    /// Opens it with flags of `open(2)`.
    fn open_fid(&self, flags: u32) -> Result<Arc<Fid>>;

    /// Asks for the size, for a write to the end.
    fn size(&self) -> Result<u64>;

    /// Notes that bytes were written here: pages with them are old.
    fn wrote(&self, offset: u64, count: u64);
}

/// Fills the pages of a file.
pub struct Pages(pub Weak<dyn Content>);

impl PageSource for Pages {
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        let node = self.0.upgrade().ok_or(Errno::EIO)?;
        let fid = node.reader()?;
        let offset = first.checked_mul(PAGE as u64).ok_or(Errno::EIO)?;
        let pages = frames.len().min(fid.most() / PAGE).max(1);
        let frames = frames.get(..pages).ok_or(Errno::EIO)?;
        let count = fid.read(offset, frames, pages * PAGE)?;
        // The file ends there, or has become shorter since its size was known.
        for (index, frame) in frames.iter().enumerate() {
            let inside = count.saturating_sub(index * PAGE).min(PAGE);
            if inside < PAGE {
                frame.zero_range(inside, PAGE - inside);
            }
        }
        Ok(pages)
    }

    fn is_copied(&self) -> bool {
        true
    }
}
