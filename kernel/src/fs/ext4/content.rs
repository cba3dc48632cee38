//! File content: reads pages from runs on the disk.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_ext4::{Map, Run};
use hayate_machine::frames::Frame;

use crate::drivers::block::{SECTOR, Segment};
use crate::fs::disk;
use crate::fs::disk::Disk;
use crate::page_cache::source::PageSource;
use crate::reclaim::growth::Grow;

const PAGE: u64 = 4096;

/// Fills a file's pages.
pub struct FilePages {
    disk: Arc<Disk>,
    map: Arc<Map>,
    size: u64,
}

/// Parts of pages that are contiguous on the disk, to be read at once.
struct DiskRequest<'a> {
    place: u64,
    length: u64,
    segments: Vec<Segment<'a>>,
}

impl FilePages {
    pub fn new(disk: Arc<Disk>, map: Arc<Map>, size: u64) -> Self {
        Self { disk, map, size }
    }
}

impl PageSource for FilePages {
    fn read_pages(&self, first: u64, frames: &[Frame]) -> Result<usize> {
        fill(&self.disk, self.size, first, frames, |offset| self.map.run(offset))
    }

    fn device(&self) -> Option<usize> {
        Some(self.disk.device().at())
    }
}

fn submit(disk: &Disk, request: &mut DiskRequest<'_>) -> Result<()> {
    if !request.segments.is_empty() {
        let sector = request.place / SECTOR;
        disk::read_for_current(disk.device(), sector, &request.segments)?;
    }
    request.segments.clear();
    request.length = 0;
    Ok(())
}

/// Fills frames with the pages `first`, `first + 1`... of a file of `size` bytes, whose content is
/// where `run` says.
pub fn fill(
    disk: &Disk,
    size: u64,
    first: u64,
    frames: &[Frame],
    run: impl Fn(u64) -> Run,
) -> Result<usize> {
    let mut request = DiskRequest { place: 0, length: 0, segments: Vec::new() };
    // A page has up to four blocks.
    request.segments.make_room(frames.len())?;
    for (index, frame) in frames.iter().enumerate() {
        let start = first.saturating_add(index as u64).saturating_mul(PAGE);
        let mut within = 0;
        while within < PAGE && start + within < size {
            match run(start + within) {
                Run::Hole { length } => {
                    let length = length.min(PAGE - within);
                    frame.zero_range(within as usize, length as usize);
                    within += length;
                }
                Run::Data { place, length } => {
                    let length = length.min(PAGE - within);
                    if place != request.place + request.length {
                        submit(disk, &mut request)?;
                        request.place = place;
                    }
                    request.segments.make_room(1)?;
                    request.segments.push(Segment {
                        frame,
                        offset: within as usize,
                        length: length as usize,
                    });
                    request.length += length;
                    within += length;
                }
            }
        }
    }
    submit(disk, &mut request)?;
    // Bytes of the last block beyond the end of the file do not belong to the file.
    for (index, frame) in frames.iter().enumerate() {
        let start = first.saturating_add(index as u64).saturating_mul(PAGE);
        let inside = size.saturating_sub(start).min(PAGE);
        if inside < PAGE {
            frame.zero_range(inside as usize, (PAGE - inside) as usize);
        }
    }
    Ok(frames.len())
}
