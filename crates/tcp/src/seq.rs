//! Sequence numbers: 32 bits on the wire (RFC 9293, 3.4), 64 bits inside.

use core::ops::{Add, Sub};

/// A sequence number of the wire. It wraps; order is meant within half of the space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// How far `self` is behind (above) `other`; negative when before it.
    pub fn distance(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// True when `self` comes before `other`.
    pub fn before(self, other: Seq) -> bool {
        self.distance(other) < 0
    }

    /// True when `self` comes after `other`.
    pub fn after(self, other: Seq) -> bool {
        self.distance(other) > 0
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, count: u32) -> Seq {
        Seq(self.0.wrapping_add(count))
    }
}

impl Sub<u32> for Seq {
    type Output = Seq;
    fn sub(self, count: u32) -> Seq {
        Seq(self.0.wrapping_sub(count))
    }
}

/// A sequence number that never wraps: [`BASE`] is the SYN, [`FIRST`] the first byte of data.
pub type Position = u64;

/// The position of the SYN. Its low 32 bits are zero, and there is room below it for old segments.
pub const BASE: Position = 1 << 32;
/// The position of the first byte of data.
pub const FIRST: Position = BASE + 1;

/// The number on the wire of `position`, in a direction that began with `initial`.
#[inline]
pub fn wire(initial: Seq, position: Position) -> Seq {
    initial + position as u32
}

/// The position of `seq`, within 2^31 of `near`.
#[inline]
pub fn position(initial: Seq, near: Position, seq: Seq) -> Position {
    near.wrapping_add_signed(i64::from(seq.distance(wire(initial, near))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_wraps() {
        assert!(Seq(0xffff_fff0).before(Seq(5)));
        assert!(Seq(5).after(Seq(0xffff_fff0)));
        assert_eq!(Seq(0xffff_ffff) + 2, Seq(1));
        assert!(!Seq(7).before(Seq(7)) && !Seq(7).after(Seq(7)));
    }

    #[test]
    fn positions_survive_wraps() {
        let initial = Seq(0xffff_ff00);
        let mut at = BASE;
        for _ in 0..100 {
            at += 0x1234_5678;
            assert_eq!(position(initial, at - 1000, wire(initial, at)), at);
            assert_eq!(position(initial, at + 70_000, wire(initial, at)), at);
        }
    }
}
