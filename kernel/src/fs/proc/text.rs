//! Making text, and the numbers in it.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;

use hayate_abi::{Errno, Result};

use super::tree;
use crate::reclaim::growth::Grow;
use crate::vfs::inode::{DirectorySink, FileKind};

/// Clock ticks per second of the times in `/proc` (USER_HZ).
pub const TICKS: u64 = 100;
/// Nanoseconds of one tick.
pub const TICK_NS: u64 = 1_000_000_000 / TICKS;

/// A sink of formatted text that reports exhausted memory instead of panicking.
pub struct Text<'a>(pub &'a mut Vec<u8>);

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.make_room(text.len()).map_err(|_| fmt::Error)?;
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Appends formatted text.
pub fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) -> Result<()> {
    fmt::write(&mut Text(out), text).map_err(|_| Errno::ENOMEM)
}

/// Appends a line of formatted text.
pub fn line(out: &mut Vec<u8>, text: fmt::Arguments<'_>) -> Result<()> {
    put(out, text)?;
    put(out, format_args!("\n"))
}

/// Appends bytes.
pub fn bytes(out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    out.make_room(bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Appends a line of bytes.
pub fn line_of(out: &mut Vec<u8>, text: &[u8]) -> Result<()> {
    bytes(out, text)?;
    bytes(out, b"\n")
}

/// Parses a number in its one decimal form, without sign or leading zeros.
pub fn number(name: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(name).ok()?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    if digits { text.parse().ok() } else { None }
}

/// Enumerates directories named by numbers, at positions `base` plus the number.
pub fn list_numbers(ids: &[u32], base: u64, position: &mut u64, sink: &mut dyn DirectorySink) {
    for &id in ids {
        let at = base + u64::from(id);
        if at < *position {
            continue;
        }
        let name = format!("{id}");
        if !sink.entry(
            tree::mix(base, name.as_bytes()) | 1,
            FileKind::Directory,
            name.as_bytes(),
            at + 1,
        ) {
            return;
        }
        *position = at + 1;
    }
}
