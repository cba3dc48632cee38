//! Faults of a network on purpose: which packets are lost, repeated, overtaken, damaged or late
//! (as tc-netem(8) of Linux has it).
//!
//! [`Faults`] is a setting that a person writes as a text, and [`Dice`] throws the fate of each
//! packet from a seed, so a run can be repeated. Every throw takes the same number of random words
//! whatever the setting is: a packet that is lost at `loss:5` is lost with `delay:20ms` besides.
//!
//! Damage is one bit. The checksum of the internet (RFC 1071) finds every such bit in what it
//! covers, so a program that gets other bytes than were sent has met a fault of the stack, not
//! chance. Two bits in one packet can cancel each other.
//!
//! Nothing here knows packets, clocks or memory.

#![no_std]
#![forbid(unsafe_code)]

mod setting;

pub use setting::{Faults, Refused, Share, Where};

/// Nanoseconds by which an overtaken packet is late, besides the delay of all.
pub const OVERTAKEN: u64 = 1_000_000;

/// The fate of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// It does not arrive, whatever else is said here.
    pub lost: bool,
    /// It arrives twice.
    pub repeated: bool,
    /// The bit that is turned over, a word for [`damage`].
    pub damage: Option<u64>,
    /// Nanoseconds until it arrives; 0: at once.
    pub delay: u64,
}

/// Random numbers from a seed (splitmix64; Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Makes dice whose throws depend on the seed alone.
    pub const fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Throws the fate of the next packet.
    pub fn throw(&mut self, faults: &Faults) -> Fate {
        let lost = faults.loss.hits(self.word());
        let repeated = faults.repeat.hits(self.word());
        let overtaken = faults.reorder.hits(self.word());
        let damaged = faults.corrupt.hits(self.word());
        let (place, time) = (self.word(), self.word());
        let (least, most) = faults.delay;
        // At most ten seconds apart, so the sum does not overflow.
        let delay = least + time % (most.saturating_sub(least) + 1);
        Fate {
            lost,
            repeated,
            damage: damaged.then_some(place),
            delay: delay + if overtaken { OVERTAKEN } else { 0 },
        }
    }
}

/// Turns over the bit that `place` chooses. No bytes have none.
pub fn damage(bytes: &mut [u8], place: u64) {
    let Some(length) = u64::try_from(bytes.len()).ok().filter(|&length| length > 0) else { return };
    let at = (place >> 3) % length;
    bytes[at as usize] ^= 1 << (place & 7);
}
