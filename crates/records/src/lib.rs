//! Records `KEY=VALUE`, each ended by a zero byte: the form of all that the host and the guest
//! write to each other as a note (`hayate-job`, `hayate-channel`, `hayate-container-plan`).
//!
//! No path, argument or variable of a Linux program holds a zero byte, so nothing is escaped; and
//! none of them need be UTF-8, which is why it is not JSON. Writers and readers are built from one
//! source tree: a reader refuses keys that it does not know.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Display;
use core::str::FromStr;

/// The most bytes of a wrong record that an error shows.
const MOST_SHOWN: usize = 64;

/// Records that are written one after the other.
#[derive(Clone, Debug, Default)]
pub struct Records(Vec<u8>);

impl Records {
    /// Adds a record. Neither key nor value holds a zero byte, and the key no `=`: with one, the
    /// reader finds other records.
    pub fn put(&mut self, key: &str, value: impl AsRef<[u8]>) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        self.0.extend_from_slice(value.as_ref());
        self.0.push(0);
    }

    /// Adds a record for each value.
    pub fn put_all<V: AsRef<[u8]>>(&mut self, key: &str, values: &[V]) {
        values.iter().for_each(|value| self.put(key, value));
    }

    /// Adds a record whose value is shown: a number, an address.
    pub fn show(&mut self, key: &str, value: impl Display) {
        self.put(key, value.to_string());
    }

    /// Returns the bytes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Returns each record's key and value, in their order, to the first that is none: that one is an
/// error, and the last.
pub fn read(bytes: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), String>> {
    let mut rest = bytes;
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let record = first(rest);
        rest = match &record {
            Ok((key, value)) => rest.get(key.len() + value.len() + 2..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(record)
    })
}

fn first(bytes: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let end = bytes.iter().position(|&byte| byte == 0);
    let end = end.ok_or_else(|| wrong("a record without its end", bytes))?;
    let record = &bytes[..end];
    let at = record.iter().position(|&byte| byte == b'=');
    let at = at.ok_or_else(|| wrong("no '=' in the record", record))?;
    Ok((&record[..at], &record[at + 1..]))
}

/// Returns a value as text.
///
/// # Errors
/// It is not UTF-8.
pub fn text(value: &[u8]) -> Result<String, String> {
    let text = core::str::from_utf8(value).map_err(|_| wrong("not text", value))?;
    Ok(text.to_string())
}

/// Returns a value as a number, or as what else is written as text.
///
/// # Errors
/// It is none, or does not fit.
pub fn number<N: FromStr>(value: &[u8]) -> Result<N, String> {
    let text = core::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| wrong("not a fitting number", value))
}

/// Returns a value as so many numbers with colons between.
///
/// # Errors
/// They are more or fewer, or one of them is no number that fits.
pub fn numbers<N: FromStr, const COUNT: usize>(value: &[u8]) -> Result<[N; COUNT], String> {
    let parts = value.split(|&byte| byte == b':').map(number);
    let parts = parts.collect::<Result<Vec<N>, String>>()?;
    parts.try_into().map_err(|_| wrong(&format!("not {COUNT} numbers"), value))
}

/// The error of a key that its reader does not know.
pub fn unknown(key: &[u8]) -> String {
    wrong("unknown key", key)
}

fn wrong(what: &str, bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(MOST_SHOWN)];
    format!("{what}: {:?}", String::from_utf8_lossy(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn all(bytes: &[u8]) -> Result<Pairs, String> {
        read(bytes).map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            pairs in prop::collection::vec(
                ("[a-z-]{0,9}", prop::collection::vec(1_u8.., 0..9)), 0..9),
        ) {
            let mut records = Records::default();
            pairs.iter().for_each(|(key, value)| records.put(key, value));
            let expected: Pairs =
                pairs.into_iter().map(|(key, value)| (key.into_bytes(), value)).collect();
            prop_assert_eq!(all(&records.finish()), Ok(expected));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            if let Ok(pairs) = all(&bytes) {
                let mut written = Vec::new();
                for (key, value) in pairs {
                    written.extend([&key[..], b"=", &value, b"\0"].concat());
                }
                prop_assert_eq!(written, bytes);
            }
        }
    }

    #[test]
    fn the_wrong_record_is_named_and_ends_the_reading() {
        assert_eq!(all(b"a=1\0b").unwrap_err(), "a record without its end: \"b\"");
        assert_eq!(all(b"a\0b=1\0").unwrap_err(), "no '=' in the record: \"a\"");
        assert_eq!(read(b"a\0b=1\0").count(), 1);
        assert_eq!(all(b""), Ok(vec![]));
    }

    #[test]
    fn values() {
        assert_eq!(text(b"\xff").unwrap_err(), "not text: \"\u{fffd}\"");
        assert_eq!(number::<u8>(b"255"), Ok(255));
        assert!(number::<u8>(b"256").is_err() && number::<u8>(b"").is_err());
        assert_eq!(numbers::<u32, 2>(b"1:2"), Ok([1, 2]));
        assert_eq!(numbers::<u32, 2>(b"1").unwrap_err(), "not 2 numbers: \"1\"");
        assert!(numbers::<u32, 2>(b"1:x").is_err());
        let mut records = Records::default();
        records.show("n", 7);
        records.put_all("x", &["a", "b"]);
        assert_eq!(records.finish(), b"n=7\0x=a\0x=b\0");
        assert_eq!(unknown(b"colour"), "unknown key: \"colour\"");
    }
}
