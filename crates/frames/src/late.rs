//! Checks whether memory that a device brings while the machine runs may be used at its address.

use core::fmt;
use core::ops::Range;

/// Why memory that a device brings is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It does not contain a whole large page.
    Small,
    /// It begins in the middle of a large page.
    Unaligned,
    /// It ends beyond the reachable addresses.
    Beyond,
    /// The addresses are in use.
    Taken,
    /// Memory for the tables that describe it is exhausted.
    Memory,
    /// There are already as many such memories as can be recorded.
    Many,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "it is smaller than a large page",
            Self::Unaligned => "it begins at no large page",
            Self::Beyond => "it lies beyond what the kernel maps",
            Self::Taken => "there is other memory",
            Self::Memory => "there is no memory for its page tables",
            Self::Many => "there are too many of its kind",
        })
    }
}

/// Returns the whole large pages (of `large` bytes, a power of two) of `size` bytes at the physical
/// address `start`, if all of the bytes lie below `limit` and outside of the ranges `taken`.
pub fn admit(
    start: u64,
    size: u64,
    large: u64,
    limit: u64,
    taken: impl IntoIterator<Item = Range<u64>>,
) -> Result<Range<u64>, Refusal> {
    if size < large {
        return Err(Refusal::Small);
    }
    if !start.is_multiple_of(large) {
        return Err(Refusal::Unaligned);
    }
    let end = start.checked_add(size).filter(|end| *end <= limit).ok_or(Refusal::Beyond)?;
    if taken.into_iter().any(|other| other.start < end && start < other.end) {
        return Err(Refusal::Taken);
    }
    Ok(start..end / large * large)
}
