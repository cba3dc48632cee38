//! Converted executables: how a header file is shown as its original.
//!
//! A file with the mark ([`hayate_off2f::MARK`], the sticky bit) whose content begins like a header
//! file (`docs/off2f.md`) is *shown* as the executable that it was made from: reads, mappings and
//! sizes are those of the original. So `exec`, the dynamic linker, debuggers and `cp` need to know
//! nothing about it. The page cache of such a file ([`view`]) takes the pages of the text from
//! non-volatile memory, where they lie ([`InPlace`]), and all others from the header file.
//!
//! The mark exists so that the kernel need not read the beginning of every file to know its size.
//!
//! If the text is not available, a header file that keeps a copy is shown from the copy; without a
//! copy, opening fails:
//!
//! * `ENOMEDIUM`: the text is on no memory of this machine;
//! * `EBADMSG`: the memory does not hold the text that the header names;
//! * `EUCLEAN`: the header is damaged.
//!
//! Road not taken: a loader of its own beside the ELF loader. It could start programs, but not
//! shared libraries, which the dynamic linker opens, reads and maps by itself.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::warn;
use hayate_off2f::{Fault, Header, MAGIC, Run, START};

use super::store;
use crate::page_cache::cache::{PAGE, PageCache};
use crate::page_cache::in_place::InPlace;
use crate::page_cache::source::PageSource;
use crate::reclaim;
use crate::reclaim::growth::Grow;

/// Pages of a header file that are read together with its first one. They include all that a small
/// program needs to start.
const AHEAD: u64 = 32;

/// The source of the pages that are not in place.
struct HeaderFileSource {
    raw: Arc<dyn PageSource>,
    runs: Vec<Run>,
    /// The page of the header file at which its copy of the text begins, if the copy is used.
    copy: Option<u32>,
}

impl HeaderFileSource {
    /// Returns the page of the header file that holds page `index`, and how many pages follow it in
    /// both.
    fn place(&self, index: u64) -> Option<(u64, u64)> {
        let run = self.runs.iter().find(|run| {
            u64::from(run.first) <= index && index < u64::from(run.first) + u64::from(run.count)
        })?;
        let base = if run.text { self.copy? } else { 0 };
        let within = index - u64::from(run.first);
        Some((u64::from(base) + u64::from(run.from) + within, u64::from(run.count) - within))
    }
}

impl PageSource for HeaderFileSource {
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        let (place, row) = self.place(first).ok_or(Errno::EIO)?;
        let count = frames.len().min(usize::try_from(row).unwrap_or(usize::MAX));
        self.raw.read_pages(place, frames.get(..count).unwrap_or(frames))
    }

    fn device(&self) -> Option<usize> {
        self.raw.device()
    }
}

/// Makes the page cache that shows the original of a header file. `raw` reads the pages of the
/// header file, which has `size` bytes. `None` if it is no header file.
pub fn view(raw: Arc<dyn PageSource>, size: u64) -> Result<Option<Arc<PageCache>>> {
    let pages = size / PAGE as u64;
    if pages == 0 {
        return Ok(None);
    }
    let mut frames = Vec::new();
    let wanted = pages.min(AHEAD) as usize;
    frames.make_room_exact(wanted)?;
    frames.extend((0..wanted as u64).map_while(|index| raw.lend(index)));
    if frames.is_empty() {
        for _ in 0..wanted {
            frames.push(reclaim::frame()?);
        }
        let read = raw.read_pages(0, &frames)?;
        frames.truncate(read);
    }
    let mut bytes = [0; START];
    frames.first().ok_or(Errno::EIO)?.read(0, &mut bytes);
    if !bytes.starts_with(&MAGIC) {
        return Ok(None);
    }
    let header = Header::parse_start(&bytes).map_err(|fault| refuse(fault, None))?;
    if pages < u64::from(header.file_pages()) {
        return Err(refuse(Fault::Truncated, Some(&header)));
    }
    let place = match store::find(&header.text, header.text_pages) {
        Ok(text) => Some(in_place(text, &header)?),
        Err(error) if header.copy.is_none() => {
            warn!(
                "off2f: text {:.16} ({} pages): {}",
                header.text,
                header.text_pages,
                if error == Errno::ENOMEDIUM { "not on any memory here" } else { "damaged" }
            );
            return Err(error);
        }
        Err(_) => None,
    };
    let copy = if place.is_none() { header.copy } else { None };
    let source = Arc::new(HeaderFileSource { raw, runs: header.runs, copy });
    let page_cache = PageCache::in_place(header.size, source.clone(), place);
    // A page in which text ends and data begins is copied at each start, because the program writes
    // to it. Among the page cache's own pages it is found without a search.
    for run in source.runs.iter().filter(|run| run.text) {
        let last = u64::from(run.first) + u64::from(run.count) - 1;
        if let Some(frame) = page_cache.place().and_then(|place| place.frame(last)) {
            page_cache.take_page(last, &frame)?;
        }
    }
    // Keeps the pages that were read along with the header.
    for run in source.runs.iter().filter(|run| !run.text) {
        let frames = frames.iter().skip(run.from as usize).take(run.count as usize);
        for (index, frame) in (u64::from(run.first)..).zip(frames) {
            page_cache.take_page(index, frame)?;
        }
    }
    Ok(Some(page_cache))
}

/// The extended attribute that contains the first page of a header file, because reading the file
/// shows the original.
pub const ATTRIBUTE: &[u8] = b"system.off2f";

/// Returns the first page of the header file for [`ATTRIBUTE`]. `raw` reads the pages of the header
/// file, which has `size` bytes. Works also for a header file that cannot be shown, so that a user
/// can find out why.
///
/// `ENODATA`: it is no header file.
pub fn first_page(raw: &dyn PageSource, size: u64) -> Result<Vec<u8>> {
    if size < PAGE as u64 {
        return Err(Errno::ENODATA);
    }
    let frame = match raw.lend(0) {
        Some(frame) => frame,
        None => {
            let frame = reclaim::frame()?;
            if raw.read_pages(0, core::slice::from_ref(&frame))? == 0 {
                return Err(Errno::EIO);
            }
            frame
        }
    };
    let mut bytes = Vec::new();
    bytes.make_room_exact(PAGE)?;
    bytes.resize(PAGE, 0);
    frame.read(0, &mut bytes);
    if bytes.starts_with(&MAGIC) { Ok(bytes) } else { Err(Errno::ENODATA) }
}

fn in_place(text: Arc<store::Text>, header: &Header) -> Result<InPlace> {
    let mut runs = Vec::new();
    runs.make_room_exact(header.runs.len())?;
    for run in header.runs.iter().filter(|run| run.text) {
        let extent = text.extent().part(run.from, run.count).ok_or(Errno::EBADMSG)?;
        runs.push((u64::from(run.first), extent));
    }
    Ok(InPlace::new(text, runs, header.large))
}

fn refuse(fault: Fault, header: Option<&Header>) -> Errno {
    match header {
        Some(header) => warn!("off2f: header file of text {:.16}: {fault}", header.text),
        None => warn!("off2f: a header file: {fault}"),
    }
    match fault {
        Fault::Memory => Errno::ENOMEM,
        Fault::Version(_) => Errno::ENOEXEC,
        Fault::OtherText => Errno::EBADMSG,
        _ => Errno::EUCLEAN,
    }
}

/// A page cache in memory as the source of header files (tmpfs).
pub struct InMemory(pub Arc<PageCache>);

impl PageSource for InMemory {
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        for (index, frame) in (first..).zip(frames) {
            match self.0.peek(index) {
                Some(page) => frame.copy_from(&page),
                None => frame.zero(),
            }
        }
        Ok(frames.len())
    }

    fn lend(&self, index: u64) -> Option<Frame> {
        self.0.peek(index)
    }
}
