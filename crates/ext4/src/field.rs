//! Little-endian numbers at an offset of a record.
//!
//! Bytes beyond the record's end read as zero: the format defines this value for the fields that a
//! shorter, older record does not have.

pub fn u8(record: &[u8], at: usize) -> u8 {
    record.get(at).copied().unwrap_or(0)
}

pub fn u16(record: &[u8], at: usize) -> u16 {
    record.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub fn u32(record: &[u8], at: usize) -> u32 {
    record.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Combines a number whose low and high half are stored apart.
pub fn split(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}
