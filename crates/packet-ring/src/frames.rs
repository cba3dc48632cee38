//! Versions 1 and 2: a frame for each packet.

use super::layout::{Layout, Version};
use super::{Arrival, Memory, Outcome, status};

const SECOND: u64 = 1_000_000_000;

/// Which frame is next.
#[derive(Default)]
pub struct Frames {
    next: usize,
}

/// Returns where a frame begins.
fn offset(layout: &Layout, frame: usize) -> usize {
    frame / layout.per_block * layout.block_size + frame % layout.per_block * layout.frame_size
}

fn count(layout: &Layout) -> usize {
    layout.per_block * layout.blocks
}

impl Frames {
    pub fn put(&mut self, layout: &Layout, memory: &impl Memory, arrival: &Arrival<'_>) -> Outcome {
        let at = offset(layout, self.next);
        let place = layout.place(arrival, layout.frame_size);
        let (Some(place), status::KERNEL) = (place, memory.load(at)) else {
            return Outcome::NOTHING;
        };
        self.next = (self.next + 1) % count(layout);
        (arrival.fill)(place.count, at + place.start);
        let (seconds, nanos) = (arrival.time / SECOND, arrival.time % SECOND);
        // The header without its status, which comes last.
        let (skip, fraction) = match layout.version {
            Version::V1 => (8, nanos / 1000),
            _ => (4, nanos),
        };
        let mut header = [0; 32];
        let words = [arrival.length as u32, place.count as u32];
        let offsets = [place.start as u16, place.network as u16];
        let times = [seconds as u32, fraction as u32];
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        let offsets = offsets.iter().flat_map(|half| half.to_ne_bytes());
        let times = times.iter().flat_map(|word| word.to_ne_bytes());
        let places = header[skip..].iter_mut();
        for (place, byte) in places.zip(words.chain(offsets).chain(times)) {
            *place = byte;
        }
        memory.write(at + 4, &header[4..]);
        memory.write(at + layout.address(), &arrival.address);
        let losing = if arrival.losing { status::LOSING } else { 0 };
        memory.store(at, status::USER | arrival.status | losing);
        Outcome { kept: true, wake: true, ..Outcome::NOTHING }
    }

    /// Whether the frame that was last filled is the program's (`packet_previous_rx_frame`).
    pub fn is_readable(&self, layout: &Layout, memory: &impl Memory) -> bool {
        let count = count(layout);
        memory.load(offset(layout, (self.next + count - 1) % count)) != status::KERNEL
    }
}
