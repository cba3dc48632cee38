//! Amounts of memory as programs write them into the files of a group (`page_counter_memparse`,
//! mm/page_counter.c, and `memparse`, lib/cmdline.c of Linux 6.1): bytes, decimal, octal behind `0`
//! or hexadecimal behind `0x`, with a suffix `K` to `E` of either case, or `max`. They count in
//! whole pages; a part of a page is cut off.

/// The bytes of a page.
pub const PAGE: u64 = 4096;
/// More pages than can be charged: no limit (`PAGE_COUNTER_MAX`).
pub const NO_LIMIT: usize = (i64::MAX as u64 / PAGE) as usize;

/// Reads bytes. `None`: it is no amount (`EINVAL`). As in Linux, no digits at all are 0, and a
/// number of more than 64 bits loses its high ones.
pub fn bytes(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let (digits, base) = match text {
        [b'0', b'x' | b'X', first, ..] if first.is_ascii_hexdigit() => (&text[2..], 16),
        [b'0', ..] => (text, 8),
        _ => (text, 10),
    };
    let mut value: u64 = 0;
    let mut rest = digits;
    while let Some((&byte, behind)) = rest.split_first()
        && let Some(digit) = char::from(byte).to_digit(base)
    {
        value = value.wrapping_mul(u64::from(base)).wrapping_add(u64::from(digit));
        rest = behind;
    }
    let shift = match rest {
        [] => return Some(value),
        [suffix] => b"KMGTPE".iter().position(|known| *known == suffix.to_ascii_uppercase())?,
        _ => return None,
    };
    Some(value.wrapping_shl(10 * (shift as u32 + 1)))
}

/// Reads a limit in pages; `max` is [`NO_LIMIT`]. `None`: it is no amount (`EINVAL`).
pub fn pages(text: &[u8]) -> Option<usize> {
    if text.trim_ascii() == b"max" {
        return Some(NO_LIMIT);
    }
    Some(((bytes(text)? / PAGE) as usize).min(NO_LIMIT))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;

    #[test]
    fn amounts_have_suffixes() {
        assert_eq!(bytes(b"4096\n"), Some(4096));
        assert_eq!(bytes(b" 4k "), Some(4096));
        assert_eq!(bytes(b"0x10K"), Some(16 << 10));
        assert_eq!(bytes(b"010"), Some(8));
        assert_eq!(bytes(b"0"), Some(0));
        assert_eq!(bytes(b""), Some(0));
        assert_eq!(bytes(b"1E"), Some(1 << 60));
        for (at, suffix) in "kmgtpe".chars().enumerate() {
            let wanted = Some(3 << (10 * (at + 1)));
            assert_eq!(bytes(format!("3{suffix}").as_bytes()), wanted);
            assert_eq!(bytes(format!("3{}", suffix.to_ascii_uppercase()).as_bytes()), wanted);
        }
        for bad in ["-1", "1x", "1 K", "maximum", "1KB", "08", "0x", "k1", "+1"] {
            assert_eq!(bytes(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn limits_are_whole_pages() {
        assert_eq!(pages(b"max\n"), Some(NO_LIMIT));
        assert_eq!(pages(b"8191"), Some(1));
        assert_eq!(pages(b"4095"), Some(0));
        assert_eq!(pages(b"18446744073709551615"), Some(NO_LIMIT));
        assert_eq!(pages(b"most"), None);
    }

    #[test]
    fn no_text_panics() {
        // Every text of up to three bytes of those that mean something, and one that does not.
        let all = b"0x9kKE-+ m\n\xff";
        for a in all {
            for b in all {
                for c in all {
                    let _ = (pages(&[*a, *b, *c]), bytes(&[*a]), bytes(&[*a, *b]));
                }
            }
        }
    }
}
