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
}

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
            // Extended attributes, times of access, comments.
            _ => {}
        }
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
