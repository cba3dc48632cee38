//! Receive rings of packet sockets (Documentation/networking/packet_mmap.rst; `tpacket_rcv` and
//! `prb_*` of Linux' net/packet/af_packet.c).
//!
//! A ring is memory that the kernel and a program share. It has blocks. In versions 1 and 2
//! (`frames`) a block has frames of one size with a packet each; in version 3 (`blocks`) packets of
//! any length follow each other in a block, and the whole block is handed over. A word in each
//! frame or block says whether it is the kernel's (0) or the program's.
//!
//! The program can write anything anywhere in the ring at any time. So what the kernel needs is
//! kept outside of it: of the ring only that one word is read, and believed: a program that says
//! that a frame is the kernel's has it overwritten.
//!
//! Nothing here knows memory, clocks or timers: [`Memory`] writes, and the caller says what time it
//! is and calls [`Ring::expire`].

#![no_std]
#![forbid(unsafe_code)]

mod blocks;
mod frames;
mod layout;

pub use layout::{Layout, Refused, Request, Version};

use blocks::Blocks;
use frames::Frames;

/// Bits of a frame's or block's status (`TP_STATUS_*`).
pub mod status {
    #![allow(missing_docs, reason = "named as in packet_mmap.rst")]
    pub const KERNEL: u32 = 0;
    pub const USER: u32 = 1;
    pub const LOSING: u32 = 4;
    pub const CHECKSUM_NOT_READY: u32 = 8;
    pub const TIMED_OUT: u32 = 32;
    pub const CHECKSUM_VALID: u32 = 128;
}

/// The memory of a ring. Offsets are in it, and those of words are multiples of 4; what is outside
/// is ignored.
pub trait Memory {
    /// Reads a word, as a program on another processor may write it now.
    fn load(&self, at: usize) -> u32;

    /// Writes a word; a program that sees it sees everything that was written before.
    fn store(&self, at: usize, value: u32);

    /// Writes bytes.
    fn write(&self, at: usize, bytes: &[u8]);
}

/// A packet that arrives. `fill` writes its first bytes, as many as are asked for, at an offset.
pub struct Arrival<'a> {
    /// Its length in bytes.
    pub length: usize,
    /// How many of them are wanted.
    pub wanted: usize,
    /// The length of the link's header in it: 0 for a socket that does not see it.
    pub link: usize,
    /// Its `struct sockaddr_ll`.
    pub address: [u8; 20],
    /// When it arrived, in nanoseconds since 1970.
    pub time: u64,
    /// Further bits of its status.
    pub status: u32,
    /// Whether packets were lost since the program last asked.
    pub losing: bool,
    /// Writes the first bytes of the packet: their number, and where.
    pub fill: &'a dyn Fn(usize, usize),
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// It is in the ring.
    pub kept: bool,
    /// The program has something new to read.
    pub wake: bool,
    /// It is the first of its block: [`Ring::expire`] is due after this many nanoseconds.
    pub begins: Option<u64>,
    /// The program lags behind so that the ring was closed; counted by PACKET_STATISTICS.
    pub froze: bool,
}

/// A receive ring.
pub struct Ring {
    layout: Layout,
    state: State,
}

enum State {
    Frames(Frames),
    Blocks(Blocks),
}

impl Ring {
    /// Makes a ring in memory that is zero.
    pub fn new(layout: Layout, memory: &impl Memory, now: u64) -> Ring {
        let state = match layout.version {
            Version::V3 => State::Blocks(Blocks::new(&layout, memory, now)),
            Version::V1 | Version::V2 => State::Frames(Frames::default()),
        };
        Ring { layout, state }
    }

    /// Returns how it is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Puts a packet into the ring.
    pub fn put(&mut self, memory: &impl Memory, arrival: &Arrival<'_>) -> Outcome {
        match &mut self.state {
            State::Frames(frames) => frames.put(&self.layout, memory, arrival),
            State::Blocks(blocks) => blocks.put(&self.layout, memory, arrival),
        }
    }

    /// Whether there is something for the program to read.
    pub fn is_readable(&self, memory: &impl Memory) -> bool {
        match &self.state {
            State::Frames(frames) => frames.is_readable(&self.layout, memory),
            State::Blocks(blocks) => blocks.is_readable(&self.layout, memory),
        }
    }

    /// Hands over the block that is being filled, if its first packet has waited long enough by
    /// `now` (in the clock of [`Arrival::time`]). Returns whether it did, after which the program
    /// has something to read, and otherwise in how many nanoseconds it is due.
    pub fn expire(
        &mut self,
        memory: &impl Memory,
        now: u64,
        losing: bool,
    ) -> (Outcome, Option<u64>) {
        match &mut self.state {
            State::Frames(_) => (Outcome::NOTHING, None),
            State::Blocks(blocks) => blocks.expire(&self.layout, memory, now, losing),
        }
    }
}

impl Outcome {
    const NOTHING: Outcome = Outcome { kept: false, wake: false, begins: None, froze: false };
}
