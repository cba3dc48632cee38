//! The options of a segment, parsed and made (RFC 9293 3.1, RFC 7323, RFC 2018).

use arrayvec::ArrayVec;

use crate::Seq;

/// The most bytes that options may take on the wire.
pub const MAXIMUM: usize = 40;
/// Bytes that a timestamp takes, aligned.
pub const TIMESTAMP: usize = 12;

/// The options that this implementation knows; others are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Largest segment that the sender accepts, without options (only in a SYN).
    pub mss: Option<u16>,
    /// By how many bits the sender shifts its windows (only in a SYN).
    pub window_scale: Option<u8>,
    /// The sender understands selective acknowledgements (only in a SYN).
    pub sack_permitted: bool,
    /// Ranges that arrived, first byte and byte behind the last. RFC 2883: the first may be a
    /// duplicate.
    pub sack: ArrayVec<(Seq, Seq), 4>,
    /// The sender's clock and the last clock that it saw of ours (TSval, TSecr).
    pub timestamp: Option<(u32, u32)>,
}

impl Options {
    /// Reads the bytes between the fixed header and the data. A malformed option ends the list, as
    /// in Linux (`tcp_parse_options`).
    pub fn parse(mut bytes: &[u8]) -> Options {
        let word = |from: &[u8]| from.try_into().map_or(0, u32::from_be_bytes);
        let mut options = Options::default();
        // What nearly all segments have (RFC 7323, appendix A; Linux: `tcp_parse_aligned_timestamp`).
        if let [1, 1, 8, 10, value @ ..] = bytes
            && let Ok([a, b, c, d, e, f, g, h]) = <[u8; 8]>::try_from(value)
        {
            let value = u32::from_be_bytes([a, b, c, d]);
            options.timestamp = Some((value, u32::from_be_bytes([e, f, g, h])));
            return options;
        }
        while let [kind, rest @ ..] = bytes {
            match (kind, rest) {
                (0, _) => break,
                (1, _) => bytes = rest,
                (_, [length, ..]) => {
                    let length = usize::from(*length);
                    if length < 2 || length > bytes.len() {
                        break;
                    }
                    let (option, next) = bytes.split_at(length);
                    match (kind, &option[2..]) {
                        (2, [high, low]) => {
                            options.mss = Some(u16::from_be_bytes([*high, *low]));
                        }
                        (3, [shift]) => options.window_scale = Some(*shift),
                        (4, []) => options.sack_permitted = true,
                        (5, ranges) if ranges.len() % 8 == 0 => {
                            for range in ranges.chunks_exact(8) {
                                let _ = options
                                    .sack
                                    .try_push((Seq(word(&range[..4])), Seq(word(&range[4..]))));
                            }
                        }
                        (8, values) if values.len() == 8 => {
                            options.timestamp = Some((word(&values[..4]), word(&values[4..])));
                        }
                        _ => {}
                    }
                    bytes = next;
                }
                _ => break,
            }
        }
        options
    }

    /// How many bytes [`Options::emit`] writes: a multiple of four, at most [`MAXIMUM`].
    #[inline]
    pub fn wire_len(&self) -> usize {
        let mut length = 0;
        if self.mss.is_some() {
            length += 4;
        }
        if self.timestamp.is_some() {
            length += TIMESTAMP;
        } else if self.sack_permitted {
            length += 4;
        }
        if self.window_scale.is_some() {
            length += 4;
        }
        if !self.sack.is_empty() {
            length += 4 + 8 * self.sack.len().min(self.sack_room(length));
        }
        length
    }

    fn sack_room(&self, used: usize) -> usize {
        (MAXIMUM - used - 4) / 8
    }

    /// Writes the options in Linux' order and returns them; `room` holds [`MAXIMUM`] bytes.
    pub fn emit<'a>(&self, room: &'a mut [u8; MAXIMUM]) -> &'a [u8] {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            room[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(mss) = self.mss {
            put(&[2, 4]);
            put(&mss.to_be_bytes());
        }
        if let Some((value, echo)) = self.timestamp {
            put(if self.sack_permitted { &[4, 2, 8, 10] } else { &[1, 1, 8, 10] });
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        } else if self.sack_permitted {
            put(&[1, 1, 4, 2]);
        }
        if let Some(shift) = self.window_scale {
            put(&[1, 3, 3, shift]);
        }
        if !self.sack.is_empty() {
            let fixed = Options { sack: ArrayVec::new(), ..*self }.wire_len();
            let count = self.sack.len().min(self.sack_room(fixed));
            put(&[1, 1, 5, 2 + 8 * count as u8]);
            for (from, to) in &self.sack[..count] {
                put(&from.0.to_be_bytes());
                put(&to.0.to_be_bytes());
            }
        }
        &room[..at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back() {
        let full = Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamp: Some((1, 2)),
            ..Options::default()
        };
        let mut sack = Options { timestamp: Some((9, 8)), ..Options::default() };
        sack.sack.extend([(Seq(1), Seq(2)), (Seq(3), Seq(4)), (Seq(5), Seq(6))]);
        let usual = Options { timestamp: Some((0xff00_1234, 8)), ..Options::default() };
        for options in [full, sack, usual, Options::default()] {
            let mut room = [0; MAXIMUM];
            let bytes = options.emit(&mut room);
            assert_eq!(bytes.len(), options.wire_len());
            assert_eq!(bytes.len() % 4, 0);
            assert_eq!(Options::parse(bytes), options);
        }
    }

    #[test]
    fn four_ranges_do_not_fit_beside_a_timestamp() {
        let mut options = Options { timestamp: Some((9, 8)), ..Options::default() };
        options.sack.extend([(Seq(1), Seq(2)); 4]);
        let mut room = [0; MAXIMUM];
        assert_eq!(Options::parse(options.emit(&mut room)).sack.len(), 3);
    }

    #[test]
    fn malformed_options_end_the_list() {
        for bytes in [&[2, 4, 5][..], &[2, 0], &[3], &[8, 10, 1], &[5, 9, 0, 0, 0], &[255]] {
            assert_eq!(Options::parse(bytes), Options::default());
        }
        assert_eq!(Options::parse(&[1, 1, 0, 4, 2]), Options::default());
    }
}
