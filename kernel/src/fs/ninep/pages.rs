//! The pages of a file for mappings: copies, read from the server when they are touched, and
//! written to it when a shared mapping has changed them.

use alloc::sync::{Arc, Weak};

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use smallvec::SmallVec;

use super::client::Fid;
use crate::drivers::virtio_9p::FRAMES;
use crate::page_cache::source::PageSource;

pub const PAGE: usize = 4096;

/// What pages need of a file.
pub trait Content: Send + Sync {
    /// Returns a fid that is open for reading.
    fn reader(&self) -> Result<Arc<Fid>>;

    /// Returns the fid that changed pages are written by.
    fn writer(&self) -> Result<Arc<Fid>>;

    /// Returns the size up to which pages are written.
    fn end_of_pages(&self) -> u64;

    /// See [`PageSource::prepare`].
    fn prepare(&self, index: u64) -> Result<()>;

    /// See [`PageSource::wrote`].
    fn let_go(&self);
}

/// Fills and writes the pages of a file.
pub struct Pages(pub Weak<dyn Content>);

impl Pages {
    fn content(&self) -> Result<Arc<dyn Content>> {
        self.0.upgrade().ok_or(Errno::EIO)
    }
}

fn offset_of(index: u64) -> Result<u64> {
    index.checked_mul(PAGE as u64).ok_or(Errno::EIO)
}

/// Writes pages that follow each other, up to `end` bytes of the file.
fn write_run(fid: &Fid, run: &[(u64, Frame)], end: u64) -> Result<()> {
    let Some((first, _)) = run.first() else { return Ok(()) };
    let frames: SmallVec<[Frame; FRAMES]> = run.iter().map(|(_, frame)| frame.clone()).collect();
    let mut left: &[Frame] = &frames;
    let mut offset = offset_of(*first)?;
    while offset < end && !left.is_empty() {
        let wanted = (left.len() * PAGE).min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        let count = fid.write_back(offset, left, wanted)?;
        if count >= wanted {
            break;
        }
        // Another try tells why, but for a part of a page: there is no room for the rest.
        let whole = count / PAGE;
        if whole == 0 {
            return Err(Errno::ENOSPC);
        }
        left = left.get(whole..).ok_or(Errno::EIO)?;
        offset += (whole * PAGE) as u64;
    }
    Ok(())
}

impl PageSource for Pages {
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        let fid = self.content()?.reader()?;
        let offset = offset_of(first)?;
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

    fn write_pages(&self, pages: &[(u64, Frame)]) -> Result<()> {
        let content = self.content()?;
        let (fid, end) = (content.writer()?, content.end_of_pages());
        let most = (fid.most() / PAGE).clamp(1, FRAMES);
        let mut outcome = Ok(());
        for run in pages.chunk_by(|(one, _), (next, _)| one + 1 == *next) {
            for part in run.chunks(most) {
                match write_run(&fid, part, end) {
                    Err(Errno::ENOMEM) => return Err(Errno::ENOMEM),
                    written => outcome = outcome.and(written),
                }
            }
        }
        outcome
    }

    fn wrote(&self) {
        if let Some(content) = self.0.upgrade() {
            content.let_go();
        }
    }

    fn prepares(&self) -> bool {
        true
    }

    fn prepare(&self, index: u64) -> Result<()> {
        self.content()?.prepare(index)
    }

    fn is_copied(&self) -> bool {
        true
    }
}
