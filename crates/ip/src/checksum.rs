//! The Internet checksum (RFC 1071), over bytes that arrive in pieces.

use crate::Address;

/// A sum that grows by pieces. A piece of odd length may be followed by others: the sum remembers
/// that it stands in the middle of a word.
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
    pub fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.odd
            && let Some((&first, rest)) = bytes.split_first()
        {
            self.sum += u64::from(first);
            self.odd = false;
            bytes = rest;
        }
        // In the machine's order of bytes, with the carries above: the sum of words whose bytes are
        // swapped is the sum with its bytes swapped (RFC 1071, 2).
        let mut wide = 0u128;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            wide += u128::from(u64::from_ne_bytes(*word));
        }
        let mut sum = u64::from(u16::from_be(fold(wide)));
        let (pairs, last) = rest.as_chunks::<2>();
        for pair in pairs {
            sum += u64::from(u16::from_be_bytes(*pair));
        }
        if let [last] = last {
            sum += u64::from(*last) << 8;
            self.odd = true;
        }
        // At most 2^16 pieces of 2^16 bytes: no overflow.
        self.sum += (sum & 0xffff_ffff) + (sum >> 32);
    }

    /// Adds the pseudo-header of a transport protocol: addresses, protocol, length of the transport
    /// header and its data in bytes (RFC 9293, 3.1; RFC 8200, 8.1).
    pub fn add_pseudo(&mut self, from: Address, to: Address, protocol: u8, length: usize) {
        if let (Some(from), Some(to)) = (from.to_v4(), to.to_v4()) {
            self.add(&from.to_be_bytes());
            self.add(&to.to_be_bytes());
        } else {
            self.add(&from.octets());
            self.add(&to.octets());
        }
        self.sum += length as u64 + u64::from(protocol);
    }

    /// Returns the sum folded to 16 bits, not complemented.
    pub const fn folded(self) -> u16 {
        let mut sum = self.sum;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// Returns the checksum as it stands in a header.
    pub const fn finish(self) -> u16 {
        !self.folded()
    }

    /// Whether bytes that contain their own checksum are whole.
    pub const fn is_good(self) -> bool {
        self.folded() == 0xffff
    }
}

/// Returns the checksum of bytes of which one word, at an even place, was `old` and is now `new`
/// (RFC 1624, equation 3). `checksum` is that of the bytes before.
pub const fn changed(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = !checksum as u32 + !old as u32 + new as u32;
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Adds the carries of a sum to it until it has 16 bits.
const fn fold(wide: u128) -> u16 {
    // Words of 64 bits are fewer than 2^63, so the carries do not overflow again.
    let (sum, carry) = (wide as u64).overflowing_add((wide >> 64) as u64);
    let sum = sum + carry as u64;
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
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
    }
}
