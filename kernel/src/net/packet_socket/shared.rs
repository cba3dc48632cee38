//! The memory of a receive ring: pages that a program maps, all of them there from the beginning.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_packet_ring::{Layout, Memory, Outcome, Ring};

use super::seen::{LINK, Seen};
use crate::page_cache::cache::PageCache;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::time;

const PAGE: usize = 4096;
/// Bytes that are copied at a time.
const PIECE: usize = 256;

struct Pages(Vec<Frame>);

impl Pages {
    fn frame(&self, at: usize) -> Option<(&Frame, usize)> {
        self.0.get(at / PAGE).map(|frame| (frame, at % PAGE))
    }
}

impl Memory for Pages {
    fn load(&self, at: usize) -> u32 {
        self.frame(at).and_then(|(frame, offset)| frame.load_u32(offset)).unwrap_or(0)
    }

    fn store(&self, at: usize, value: u32) {
        if let Some((frame, offset)) = self.frame(at) {
            frame.store_u32(offset, value);
        }
    }

    fn write(&self, mut at: usize, mut bytes: &[u8]) {
        while let (Some((frame, offset)), false) = (self.frame(at), bytes.is_empty()) {
            let count = frame.write(offset, bytes);
            at += count;
            bytes = &bytes[count..];
        }
    }
}

/// A ring and its memory.
pub struct SharedRing {
    ring: Ring,
    pages: Pages,
    mapped: Arc<PageCache>,
}

impl SharedRing {
    /// Makes a ring. Sleeps.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(layout: Layout) -> Result<SharedRing> {
        let count = layout.size() / PAGE;
        let mapped = PageCache::memory(layout.size() as u64);
        let mut frames = Vec::new();
        growth::relieved(|| frames.make_room_exact(count))?;
        for index in 0..count {
            frames.push(mapped.page_for_write(index as u64).map_err(|_| Errno::ENOMEM)?);
        }
        let pages = Pages(frames);
        let ring = Ring::new(layout, &pages, time::realtime_ns());
        Ok(SharedRing { ring, pages, mapped })
    }

    /// Returns what a program maps.
    pub fn mapping(&self) -> Arc<PageCache> {
        Arc::clone(&self.mapped)
    }

    /// Whether a program has mapped it.
    pub fn is_mapped(&self) -> bool {
        Arc::strong_count(&self.mapped) > 1
    }

    /// Whether there is something to read.
    pub fn is_readable(&self) -> bool {
        self.ring.is_readable(&self.pages)
    }

    /// Puts a packet into the ring, with the link's header or without, `wanted` bytes of it.
    pub fn put(&mut self, seen: &Seen<'_>, cooked: bool, wanted: usize, losing: bool) -> Outcome {
        let link: &[u8] = if cooked { &[] } else { &seen.link };
        let length = link.len() + seen.body.len();
        let pages = &self.pages;
        let fill = |count: usize, at: usize| {
            let head = count.min(link.len());
            pages.write(at, &link[..head]);
            let (mut done, mut piece) = (head, [0; PIECE]);
            while done < count {
                let most = PIECE.min(count - done);
                let read = seen.body.read(done - link.len(), &mut piece[..most]);
                if read == 0 {
                    return;
                }
                pages.write(at + done, &piece[..read]);
                done += read;
            }
        };
        let arrival = hayate_packet_ring::Arrival {
            length,
            wanted: wanted.min(length),
            link: if cooked { 0 } else { LINK },
            address: seen.address(),
            time: seen.time,
            status: seen.checksum_status(),
            losing,
            fill: &fill,
        };
        self.ring.put(pages, &arrival)
    }

    /// Hands an old block over; see [`Ring::expire`].
    pub fn expire(&mut self, losing: bool) -> (Outcome, Option<u64>) {
        self.ring.expire(&self.pages, time::realtime_ns(), losing)
    }
}
