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

/// Sets a field, unless it lies beyond the record's end: the record has no such field then.
pub fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = record.get_mut(at..at + bytes.len()) {
        field.copy_from_slice(bytes);
    }
}

pub fn put_u8(record: &mut [u8], at: usize, value: u8) {
    put(record, at, &[value]);
}

pub fn put_u16(record: &mut [u8], at: usize, value: u16) {
    put(record, at, &value.to_le_bytes());
}

pub fn put_u32(record: &mut [u8], at: usize, value: u32) {
    put(record, at, &value.to_le_bytes());
}
