//! Hashes of names and numbers that programs choose, with keys drawn at boot.
//!
//! A program cannot choose names that fall into one bucket: for any two different names the
//! probability, over the keys, that their sums are equal is at most 2^-32. The reason is that the
//! sum is NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: "UMAC", CRYPTO '99, theorem 4.2), with a
//! pair of keys for each word of eight bytes and one for the length. A multiplication by an odd key
//! spreads the sum over the buckets (Dietzfelbinger and others, "A reliable randomized algorithm
//! for the closest-pair problem", 1997). Hashes never leave the kernel.
//!
//! Road not taken: `SipHash`. It is a pseudo-random function where a universal one is enough, and
//! takes some eighty instructions for the name of a program where this takes twenty.
//!
//! The keys are drawn before the first name is hashed and never change.

use core::hash::Hasher;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of the longest name (`NAME_MAX`).
const WORDS: usize = 32;

/// Two keys of 32 bits for each word.
static KEYS: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// Two keys for the length.
static LENGTH: AtomicU64 = AtomicU64::new(0);
/// An odd number.
static SPREAD: AtomicU64 = AtomicU64::new(1);

/// Draws the keys; boot calls it once, before there are names.
pub fn init() {
    for key in KEYS.iter().chain([&LENGTH, &SPREAD]) {
        key.store(crate::random::word(), Relaxed);
    }
    SPREAD.fetch_or(1, Relaxed);
}

/// Loads up to eight bytes as one word: two loads that may overlap instead of a loop.
#[inline]
pub fn word(bytes: &[u8]) -> u64 {
    fn load<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
        let part = bytes.get(at..at + N).unwrap_or_default();
        part.try_into().unwrap_or([0; N])
    }
    let length = bytes.len();
    match length {
        8.. => u64::from_le_bytes(load(bytes, 0)),
        4.. => {
            let low = u32::from_le_bytes(load(bytes, 0));
            let high = u32::from_le_bytes(load(bytes, length - 4));
            u64::from(low) | u64::from(high) << 32
        }
        2.. => {
            let low = u16::from_le_bytes(load(bytes, 0));
            let high = u16::from_le_bytes(load(bytes, length - 2));
            u64::from(low) | u64::from(high) << 16
        }
        1 => u64::from(bytes[0]),
        _ => 0,
    }
}

/// Multiplies a word's halves, each with its key added.
#[inline]
fn pair(word: u64, key: &AtomicU64) -> u64 {
    let key = key.load(Relaxed);
    let low = (word as u32).wrapping_add(key as u32);
    let high = ((word >> 32) as u32).wrapping_add((key >> 32) as u32);
    u64::from(low).wrapping_mul(u64::from(high))
}

/// Spreads a sum. The uppermost bits are the best and hash tables use the lowest, so the bytes are
/// swapped.
#[inline]
fn spread(sum: u64) -> u64 {
    sum.wrapping_mul(SPREAD.load(Relaxed)).swap_bytes()
}

/// Returns the hash of a name.
#[inline]
pub fn hash_name(name: &[u8]) -> u64 {
    let mut sum = pair(name.len() as u64, &LENGTH);
    let mut rest = name;
    for key in &KEYS {
        if rest.len() <= 8 {
            sum = sum.wrapping_add(pair(word(rest), key));
            break;
        }
        let (head, tail) = rest.split_at(8);
        sum = sum.wrapping_add(pair(word(head), key));
        rest = tail;
    }
    spread(sum)
}

/// [`hash_name`] for tables of other modules.
#[derive(Default)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(5) ^ hash_name(bytes);
    }

    #[inline]
    fn write_usize(&mut self, _: usize) {
        // The length is part of the hash of the bytes.
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A hash of numbers that a program may choose, such as page indexes in a file.
#[derive(Default)]
pub struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = spread(self.0 ^ number);
    }
    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
