//! The Internet checksum (RFC 1071), over bytes that arrive in pieces.

use crate::Address;

/// A sum that grows by pieces. A piece of odd length may be followed by others: the sum remembers
/// that it stands in the middle of a word.
///
/// It is kept in words of 64 bits in the machine's order, with the carry of each addition added
/// below: the sum of words of any width, in any order of bytes, folds to the same 16 bits
/// (RFC 1071, 2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// The sum of nothing.
    pub const fn new() -> Self {
        Self { sum: 0, odd: false }
    }

    /// Adds bytes.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        self.add_sum(sum(bytes), bytes.len());
    }

    /// Adds bytes whose [`sum`] is known; `length`: how many they are.
    #[inline]
    pub const fn add_sum(&mut self, sum: u64, length: usize) {
        // The bytes of a piece that begins in the middle of a word are on the other side.
        let sum = if self.odd { sum.rotate_left(8) } else { sum };
        self.sum = plus(self.sum, sum);
        self.odd ^= !length.is_multiple_of(2);
    }

    /// Adds the pseudo-header of a transport protocol: addresses, protocol, length of the transport
    /// header and its data in bytes (RFC 9293, 3.1; RFC 8200, 8.1).
    #[inline]
    pub const fn add_pseudo(&mut self, from: Address, to: Address, protocol: u8, length: usize) {
        // What a mapped address has besides the four bytes of IPv4 is 0xffff, which counts as 0.
        let (from, to) = (from.bits(), to.bits());
        let upper = plus((from >> 64) as u64, (to >> 64) as u64);
        let lower = plus(from as u64, to as u64);
        let sum = plus(plus(upper, lower), length as u64 + protocol as u64);
        self.add_sum(u64::from_be(sum), 0);
    }

    /// Returns the sum folded to 16 bits, not complemented.
    #[inline]
    pub const fn folded(self) -> u16 {
        let sum = (self.sum & 0xffff_ffff) + (self.sum >> 32);
        let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        u16::from_be(((sum & 0xffff) + (sum >> 16)) as u16)
    }

    /// Returns the checksum as it stands in a header.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.folded()
    }

    /// Whether bytes that contain their own checksum are whole.
    #[inline]
    pub const fn is_good(self) -> bool {
        self.folded() == 0xffff
    }
}

/// Adds with the carry added below.
#[inline]
const fn plus(one: u64, other: u64) -> u64 {
    let (sum, carry) = one.overflowing_add(other);
    sum + carry as u64
}

/// Returns the sum of bytes as words of 64 bits in the machine's order, the last filled up with
/// zeroes, with the carries added below.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = words.iter().fold(0, |sum, word| plus(sum, u64::from_ne_bytes(*word)));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        sum = plus(sum, u64::from_ne_bytes(last));
    }
    sum
}

/// Returns the checksum of bytes of which one word, at an even place, was `old` and is now `new`
/// (RFC 1624, equation 3). `checksum` is that of the bytes before.
pub const fn changed(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = !checksum as u32 + !old as u32 + new as u32;
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn plain(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn the_example_of_rfc_1071() {
        let mut sum = Checksum::new();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
    }

    #[test]
    fn the_example_of_rfc_1624() {
        assert_eq!(changed(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    proptest! {
        #[test]
        fn a_changed_word_changes_the_sum(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..200),
            place: proptest::sample::Index,
            new: u16,
        ) {
            let at = place.index(bytes.len() / 2) * 2;
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let before = plain(&bytes);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let updated = changed(before, old, new);
            // With the sum of nothing but zeroes there are two ways to write it.
            prop_assert!(updated == plain(&bytes) || bytes.iter().all(|&byte| byte == 0));
        }

        #[test]
        fn pieces_sum_up_like_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            cuts in proptest::collection::vec(0usize..600, 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut sum = Checksum::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                sum.add(&bytes[from..cut]);
                from = cut;
            }
            let expected = plain(&bytes);
            // 0 and 0xffff are the same number in one's complement.
            let zeroes = [sum.finish(), expected].iter().all(|sum| sum.is_multiple_of(0xffff));
            prop_assert!(sum.finish() == expected || zeroes);
        }

        #[test]
        fn a_pseudo_header_sums_up_like_its_bytes(
            from: u128,
            to: u128,
            v4: bool,
            protocol: u8,
            length in 0usize..1 << 20,
        ) {
            let address = |bits| if v4 { Address::v4(bits as u32) } else { Address::v6(bits) };
            let (from, to) = (address(from), address(to));
            let mut sum = Checksum::new();
            sum.add_pseudo(from, to, protocol, length);
            let mut bytes = Vec::new();
            for address in [from, to] {
                match address.to_v4() {
                    Some(bits) => bytes.extend(bits.to_be_bytes()),
                    None => bytes.extend(address.octets()),
                }
            }
            bytes.extend((length as u32).to_be_bytes());
            bytes.extend([0, 0, 0, protocol]);
            let expected = plain(&bytes);
            let zeroes = [sum.finish(), expected].iter().all(|sum| sum.is_multiple_of(0xffff));
            prop_assert!(sum.finish() == expected || zeroes);
        }
    }
}
