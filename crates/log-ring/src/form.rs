//! The forms in which programs read a record.

use core::fmt::{self, Write};

use crate::{LONGEST, Record};

/// Room that every record needs in the form of `syslog(2)` (`CONSOLE_LOG_MAX` of Linux 6.1).
pub const PLAIN_MOST: usize = 1024;

/// Room that every record needs in the form of `/dev/kmsg`: each byte becomes at most four, before
/// them stand three numbers.
pub const EXTENDED_MOST: usize = 4 * LONGEST + 64;

/// A text that grows in a buffer, as far as there is room.
struct Text<'a> {
    room: &'a mut [u8],
    length: usize,
}

impl Text<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let rest = self.room.get_mut(self.length..).unwrap_or_default();
        let count = bytes.len().min(rest.len());
        rest[..count].copy_from_slice(&bytes[..count]);
        self.length += count;
    }
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

/// Writes a record as `syslog(2)` gives it to `room` and returns how long that is: each line of the
/// text with priority and time. Lines that do not fit into `room` are left out.
pub fn plain(record: &Record, text: &[u8], room: &mut [u8]) -> usize {
    let mut head = [0; 48];
    let mut prefix = Text { room: &mut head, length: 0 };
    let (seconds, rest) = (record.microseconds / 1_000_000, record.microseconds % 1_000_000);
    let _ = write!(prefix, "<{}>[{seconds:5}.{rest:06}] ", record.priority);
    let prefix = &prefix.room[..prefix.length];
    let most = room.len();
    let mut out = Text { room, length: 0 };
    for line in text.split(|&byte| byte == b'\n') {
        if out.length + prefix.len() + line.len() + 1 > most {
            break;
        }
        out.put(prefix);
        out.put(line);
        out.put(b"\n");
    }
    out.length
}

/// Writes a record as `/dev/kmsg` gives it to `room`, which must have [`EXTENDED_MOST`] bytes, and
/// returns how long that is: `PRIORITY,NUMBER,MICROSECONDS,-;TEXT` and a newline. Bytes that do not
/// print, and backslashes, become `\xNN` (`append_char` and `msg_print_ext_body`).
pub fn extended(record: &Record, text: &[u8], room: &mut [u8]) -> usize {
    let mut out = Text { room, length: 0 };
    let Record { priority, sequence, microseconds, .. } = record;
    let _ = write!(out, "{priority},{sequence},{microseconds},-;");
    for &byte in text {
        if (b' '..127).contains(&byte) && byte != b'\\' {
            out.put(&[byte]);
        } else {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.put(b"\n");
    out.length
}
