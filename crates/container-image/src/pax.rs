//! Records of a pax header: `LENGTH KEY=VALUE` and a newline (pax(1), "pax Header Block").
//!
//! The reader of the crate `tar` splits at newlines, which a value may contain.

use crate::{Error, Result};

/// What a header says about the entry after it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) target: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) user: Option<u64>,
    pub(crate) group: Option<u64>,
    pub(crate) time: Option<i64>,
    pub(crate) attributes: Attributes,
}

/// Extended attributes of a file: names and values (`xattr(7)`).
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// The key of an extended attribute, as all who write layers call it.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
/// Linux' limits of them (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`).
const LONGEST_NAME: usize = 255;
const LONGEST_VALUE: usize = 65_536;
/// The most of a file; a block of ext4, which holds them, has no room for more.
const MOST: usize = 256;
/// Attributes of what makes one tree of several; they would change what the tree shows.
const OVERLAY: &[u8] = b"trusted.overlay.";

impl Records {
    /// Reads a header's content.
    pub(crate) fn parse(mut bytes: &[u8]) -> Result<Records> {
        let mut records = Records::default();
        while !bytes.is_empty() {
            let (key, value, rest) =
                record(bytes).ok_or_else(|| Error::new("a pax header makes no sense"))?;
            records.take(key, value)?;
            bytes = rest;
        }
        Ok(records)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let wrong = || Error::new(format!("a pax header has no number in {}", crate::shown(key)));
        let number = || text(value)?.parse::<u64>().ok();
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.target = Some(value.to_vec()),
            b"size" => self.size = Some(number().ok_or_else(wrong)?),
            b"uid" => self.user = Some(number().ok_or_else(wrong)?),
            b"gid" => self.group = Some(number().ok_or_else(wrong)?),
            // Seconds, with a fraction.
            b"mtime" => {
                let whole = text(value).and_then(|text| text.split('.').next());
                self.time = Some(whole.and_then(|whole| whole.parse().ok()).ok_or_else(wrong)?);
            }
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err(Error::new("it holds a sparse file, which no layer may (image-spec)"));
            }
            _ => {
                if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                    return self.attribute(name, value);
                }
                // Times of access, comments.
            }
        }
        Ok(())
    }

    /// Takes an attribute, if it is of a kind that means something to another kernel.
    fn attribute(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        let kinds = [&b"user."[..], b"trusted.", b"security."];
        let known = kinds.iter().any(|kind| name.starts_with(kind) && name.len() > kind.len());
        if !known || name.starts_with(OVERLAY) {
            return Ok(());
        }
        if name.len() > LONGEST_NAME || name.contains(&0) || value.len() > LONGEST_VALUE {
            return Err(Error::new("an extended attribute that no file can have"));
        }
        // The last one of a name counts (pax(1)).
        self.attributes.retain(|(other, _)| other != name);
        if self.attributes.len() == MOST {
            return Err(Error::new("more extended attributes than a file can have"));
        }
        self.attributes.push((name.to_vec(), value.to_vec()));
        Ok(())
    }
}

fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

/// Splits the first record off: key, value, rest.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|&byte| byte == b' ')?;
    let digits = bytes.get(..space).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let length: usize = text(digits)?.parse().ok()?;
    let (whole, rest) = bytes.split_at_checked(length)?;
    let body = whole.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|&byte| byte == b'=')?;
    Some((&body[..equals], &body[equals + 1..], rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(key: &str, value: &[u8]) -> Vec<u8> {
        let body = key.len() + value.len() + 3;
        // The length counts its own digits.
        let length = (1..20)
            .map(|digits| body + digits)
            .find(|length| length.to_string().len() + body == *length);
        let mut out = format!("{} {key}=", length.unwrap()).into_bytes();
        out.extend_from_slice(value);
        out.push(b'\n');
        out
    }

    proptest! {
        #[test]
        fn values_are_read_as_written(
            path: Vec<u8>, target: Vec<u8>, size: u64, time: i32, fraction: bool,
        ) {
            let shown = format!("{time}{}", if fraction { ".123456789" } else { "" });
            let bytes = [
                written("comment", b"a\nb=c"),
                written("path", &path),
                written("linkpath", &target),
                written("size", size.to_string().as_bytes()),
                written("mtime", shown.as_bytes()),
                written("SCHILY.xattr.user.x", b"\0\xff\n"),
            ].concat();
            let records = Records::parse(&bytes).unwrap();
            let expected = vec![(b"user.x".to_vec(), b"\0\xff\n".to_vec())];
            prop_assert_eq!(records.attributes, expected);
            prop_assert_eq!(records.path, Some(path));
            prop_assert_eq!(records.target, Some(target));
            prop_assert_eq!(records.size, Some(size));
            prop_assert_eq!(records.time, Some(time.into()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Records::parse(&bytes);
        }
    }

    #[test]
    fn attributes_of_other_kinds_are_left_out() {
        let bytes = [
            written("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            written("SCHILY.xattr.system.posix_acl_access", b"1"),
            written("SCHILY.xattr.user.", b"1"),
            written("SCHILY.xattr.user.twice", b"1"),
            written("SCHILY.xattr.user.twice", b"2"),
        ];
        let records = Records::parse(&bytes.concat()).unwrap();
        assert_eq!(records.attributes, [(b"user.twice".to_vec(), b"2".to_vec())]);
        let long = format!("SCHILY.xattr.user.{}", "x".repeat(255));
        assert!(Records::parse(&written(&long, b"1")).is_err());
        assert!(Records::parse(&written("SCHILY.xattr.user.x", &vec![0; 65_537])).is_err());
        let many = |count: u32| {
            let record = |number| written(&format!("SCHILY.xattr.user.{number}"), b"1");
            (0..count).flat_map(record).collect::<Vec<u8>>()
        };
        assert_eq!(Records::parse(&many(256)).unwrap().attributes.len(), 256);
        assert!(Records::parse(&many(257)).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in [
            &b"5"[..],
            b"5 ",
            b"0 a=b\n",
            b"3 a=b\n",
            b"99 path=x\n",
            b"6 a=b\0",
            b"7 path\n",
            b"18446744073709551616 a=b\n",
            b"-6 a=b\n",
            b"9 size=-\n",
            b"10 uid=1x\n",
            b"30 GNU.sparse.realsize=1048576\n",
        ] {
            assert!(Records::parse(wrong).is_err(), "{}", crate::shown(wrong));
        }
        assert_eq!(Records::parse(b"").unwrap(), Records::default());
    }
}
