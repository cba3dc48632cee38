//! Version 3: packets one behind the other in a block, which is handed over when it is full or old.

use super::layout::{BLOCK_HEADER, Layout, Place, Version};
use super::{Arrival, Memory, Outcome, status};

const SECOND: u64 = 1_000_000_000;
/// The alignment of packets in a block.
const ALIGNMENT: usize = 8;

/// Offsets in the header of a block (`struct tpacket_block_desc`, `struct tpacket_hdr_v1`).
mod block {
    pub const VERSION: usize = 0;
    pub const PRIVATE: usize = 4;
    pub const STATUS: usize = 8;
    pub const PACKETS: usize = 12;
    pub const FIRST: usize = 16;
    pub const LENGTH: usize = 20;
    pub const SEQUENCE: usize = 24;
    pub const FIRST_TIME: usize = 32;
    pub const LAST_TIME: usize = 40;
}

/// The block that is being filled. Offsets are in the block.
pub struct Blocks {
    active: usize,
    /// The next block's number in the order in which they are filled.
    sequence: u64,
    packets: u32,
    /// Where the next packet goes, and where the last one is.
    next: usize,
    last: usize,
    last_time: u64,
    /// When the first packet came.
    since: u64,
    /// The active block is not opened: it was the program's when its turn came.
    frozen: bool,
}

fn time(nanos: u64) -> [u8; 8] {
    let (seconds, nanos) = ((nanos / SECOND) as u32, (nanos % SECOND) as u32);
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&seconds.to_ne_bytes());
    bytes[4..].copy_from_slice(&nanos.to_ne_bytes());
    bytes
}

impl Blocks {
    pub fn new(layout: &Layout, memory: &impl Memory, now: u64) -> Blocks {
        let mut blocks = Blocks {
            active: 0,
            sequence: 1,
            packets: 0,
            next: 0,
            last: 0,
            last_time: now,
            since: now,
            frozen: false,
        };
        blocks.open(layout, memory, now);
        blocks
    }

    /// Where the active block begins.
    fn start(&self, layout: &Layout) -> usize {
        self.active * layout.block_size
    }

    fn is_free(&self, layout: &Layout, memory: &impl Memory) -> bool {
        memory.load(self.start(layout) + block::STATUS) & status::USER == 0
    }

    /// Begins to fill the active block (`prb_open_block`).
    fn open(&mut self, layout: &Layout, memory: &impl Memory, now: u64) {
        let at = self.start(layout);
        let first = layout.first();
        (self.packets, self.next, self.last, self.frozen) = (0, first, first, false);
        memory.store(at + block::VERSION, Version::V3.number() as u32);
        memory.store(at + block::PRIVATE, BLOCK_HEADER as u32);
        memory.store(at + block::PACKETS, 0);
        memory.store(at + block::FIRST, first as u32);
        memory.store(at + block::LENGTH, first as u32);
        memory.write(at + block::SEQUENCE, &self.sequence.to_ne_bytes());
        memory.write(at + block::FIRST_TIME, &time(now));
        self.sequence += 1;
    }

    /// Hands the active block over and goes to the next one. Returns whether that one was the
    /// program's still, which closes the ring (`prb_retire_current_block`,
    /// `prb_dispatch_next_block`).
    fn retire(&mut self, layout: &Layout, memory: &impl Memory, now: u64, bits: u32) -> bool {
        let at = self.start(layout);
        // There is no packet behind the last one.
        memory.store(at + self.last, 0);
        let last = if self.packets == 0 { now } else { self.last_time };
        memory.write(at + block::LAST_TIME, &time(last));
        memory.store(at + block::STATUS, status::USER | bits);
        self.active = (self.active + 1) % layout.blocks;
        self.packets = 0;
        self.frozen = !self.is_free(layout, memory);
        if !self.frozen {
            self.open(layout, memory, now);
        }
        self.frozen
    }

    pub fn put(&mut self, layout: &Layout, memory: &impl Memory, arrival: &Arrival<'_>) -> Outcome {
        let now = arrival.time;
        if self.frozen {
            if !self.is_free(layout, memory) {
                return Outcome::NOTHING;
            }
            self.open(layout, memory, now);
        }
        let Some(place) = layout.place(arrival, layout.block_size - layout.first()) else {
            return Outcome::NOTHING;
        };
        let length = (place.start + place.count).next_multiple_of(ALIGNMENT);
        let mut outcome = Outcome::NOTHING;
        // An empty block takes any packet: it was cut to fit.
        if self.packets != 0 && self.next + length >= layout.block_size {
            let losing = if arrival.losing { status::LOSING } else { 0 };
            outcome.wake = true;
            outcome.froze = self.retire(layout, memory, now, losing);
            if outcome.froze {
                return outcome;
            }
        }
        self.fill(layout, memory, arrival, place, length);
        if self.packets == 1 {
            self.since = now;
            outcome.begins = Some(layout.retire);
        }
        Outcome { kept: true, ..outcome }
    }

    /// Writes a packet behind the last one.
    fn fill(
        &mut self,
        layout: &Layout,
        memory: &impl Memory,
        arrival: &Arrival<'_>,
        place: Place,
        length: usize,
    ) {
        let block = self.start(layout);
        let at = block + self.next;
        (arrival.fill)(place.count, at + place.start);
        let mut header = [0; 48];
        header[4..12].copy_from_slice(&time(arrival.time));
        let words = [length, 0, 0, place.count, arrival.length];
        for (index, word) in
            words.into_iter().enumerate().filter(|(index, _)| !(1..3).contains(index))
        {
            header[4 * index..4 * index + 4].copy_from_slice(&(word as u32).to_ne_bytes());
        }
        header[20..24].copy_from_slice(&(status::USER | arrival.status).to_ne_bytes());
        header[24..26].copy_from_slice(&(place.start as u16).to_ne_bytes());
        header[26..28].copy_from_slice(&(place.network as u16).to_ne_bytes());
        memory.write(at, &header);
        memory.write(at + layout.address(), &arrival.address);
        self.last = self.next;
        self.last_time = arrival.time;
        self.next += length;
        self.packets += 1;
        memory.store(block + block::PACKETS, self.packets);
        memory.store(block + block::LENGTH, self.next as u32);
    }

    /// Whether the block before the active one is the program's (`prb_previous_block`).
    pub fn is_readable(&self, layout: &Layout, memory: &impl Memory) -> bool {
        let previous = (self.active + layout.blocks - 1) % layout.blocks;
        memory.load(previous * layout.block_size + block::STATUS) != status::KERNEL
    }

    pub fn expire(
        &mut self,
        layout: &Layout,
        memory: &impl Memory,
        now: u64,
        losing: bool,
    ) -> (Outcome, Option<u64>) {
        if self.frozen || self.packets == 0 {
            return (Outcome::NOTHING, None);
        }
        let age = now.saturating_sub(self.since);
        if age < layout.retire {
            return (Outcome::NOTHING, Some(layout.retire - age));
        }
        let bits = status::TIMED_OUT | if losing { status::LOSING } else { 0 };
        let froze = self.retire(layout, memory, now, bits);
        (Outcome { wake: true, froze, ..Outcome::NOTHING }, None)
    }
}
