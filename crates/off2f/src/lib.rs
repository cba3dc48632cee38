//! OFF2F: an executable in two files.
//!
//! An ELF file is split by pages. Its *text* (every page of a segment that is executed, and of
//! read-only segments that hold constants) goes to non-volatile memory, where programs execute it
//! in place. All other pages (headers, data, relocations, symbols) stay in the *header file*, after
//! one page that identifies the text and describes how the two make up the original, byte for byte.
//! `docs/off2f.md` describes every byte.
//!
//! * [`convert`] splits an executable, or says why it cannot ([`Refusal`]);
//! * [`Header::parse`] reads the first page of a header file and checks everything in it;
//! * [`Header::restore`] restores the original.
//!
//! The unit is the page, because pages are mapped. A page of the file belongs to the text wholly or
//! not at all. A page that contains the end of the text and the beginning of data is text: a
//! program that writes to the data gets a private copy of the page anyway.
//!
//! Road not taken: splitting by sections. Sections are optional, `strip` may drop their table, and
//! it is segments that are mapped.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod convert;
mod elf;
mod header;

pub use convert::{Converted, Options, Refusal, convert};
pub use header::{Fault, Header, Run, StorePlace};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of a large page.
pub const LARGE_PAGE: usize = 2 << 20;
/// Pages of a large page.
pub const LARGE_PAGES: u32 = (LARGE_PAGE / PAGE) as u32;
/// The first bytes of a header file. The line end and the end-of-file mark reveal a transfer that
/// treated the file as text.
pub const MAGIC: [u8; 8] = *b"OFF2F\r\n\x1a";
/// The version of the format that this crate writes and reads.
pub const VERSION: u32 = 2;
/// How many bytes at the beginning of a header file are enough to present the original. They have a
/// checksum of their own: a cold start is so short that a checksum over a whole page would be
/// measurable.
pub const START: usize = 1024;
/// The permission bit that marks a converted file (`S_ISVTX`). Unix once used it for programs whose
/// text was to stay in memory; no current system uses it for regular files.
pub const MARK: u32 = 0o1000;

/// The identity of some content: its BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; 32]);

impl Identity {
    /// Returns the identity of `bytes`.
    pub fn of(bytes: &[u8]) -> Identity {
        let mut digest = Digest::new();
        digest.update(bytes);
        digest.finish()
    }
}

impl core::fmt::Debug for Identity {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

impl core::fmt::Display for Identity {
    /// Hexadecimal; a precision sets the number of digits.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let digits = f.precision().unwrap_or(64);
        let nibbles = self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        nibbles.take(digits).try_for_each(|nibble| write!(f, "{nibble:x}"))
    }
}

impl core::str::FromStr for Identity {
    type Err = ();

    fn from_str(text: &str) -> Result<Identity, ()> {
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(());
        }
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = core::str::from_utf8(pair).map_err(|_| ())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ())?;
        }
        Ok(Identity(bytes))
    }
}

/// An [`Identity`] computed piece by piece.
#[derive(Clone, Default)]
pub struct Digest(blake3::Hasher);

impl Digest {
    /// Returns the digest of no data.
    pub fn new() -> Digest {
        Digest(blake3::Hasher::new())
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        // In pieces of the hash's chunk size: for longer pieces it would recurse, with kilobytes of
        // stack at each level, which the kernel does not have.
        for piece in bytes.chunks(1024) {
            self.0.update(piece);
        }
    }

    /// Returns the identity of all added bytes.
    pub fn finish(&self) -> Identity {
        Identity(*self.0.finalize().as_bytes())
    }
}

/// Returns a checksum over words of eight bytes, the last one filled with zeroes. It protects
/// against accidents, not against attacks. It is computed at each first opening of a header file,
/// and a cryptographic hash would take ten times as long as everything else there.
///
/// `sum = rotate_left(sum ^ word, 23) * 0x9e3779b97f4a7c15`, starting with the golden ratio's
/// fraction. Each step is invertible, so two contents that differ in one word have different sums.
pub fn checksum(bytes: &[u8]) -> u64 {
    checksum_of(&[bytes])
}

/// Returns the checksum of several consecutive pieces; all but the last consist of whole words.
fn checksum_of(pieces: &[&[u8]]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |sum: u64, word: u64| (sum ^ word).rotate_left(23).wrapping_mul(FACTOR);
    let mut sum = FACTOR;
    for piece in pieces {
        // Eight words at a time, so that the loop costs little in comparison.
        let (blocks, end) = piece.as_chunks::<64>();
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            sum = words.iter().fold(sum, |sum, word| step(sum, u64::from_le_bytes(*word)));
        }
        let (words, rest) = end.as_chunks::<8>();
        sum = words.iter().fold(sum, |sum, word| step(sum, u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            sum = step(sum, u64::from_le_bytes(last));
        }
    }
    sum
}
