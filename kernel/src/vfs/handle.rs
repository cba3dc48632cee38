//! Handles: what names a file without a path. [`by_handle`](super::by_handle) has what is done with
//! them.

use arrayvec::ArrayVec;
use hayate_abi::{Errno, Result};

/// The most bytes that a file system here puts into a handle.
pub const MOST: usize = 12;

/// A handle (`struct file_handle`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// How it is made (`FILEID_*`).
    pub kind: i32,
    /// The file.
    pub bytes: ArrayVec<u8, MOST>,
}

impl Handle {
    /// A handle of words of 32 bits, as many as fit.
    pub fn of_words(kind: i32, words: &[u32]) -> Handle {
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
        Handle { kind, bytes: bytes.take(MOST).collect() }
    }

    /// The first words of 32 bits. `ESTALE`: it is shorter.
    pub fn words<const N: usize>(&self) -> Result<[u32; N]> {
        let mut words = [0; N];
        let whole = self.bytes.chunks_exact(4);
        if whole.len() < N {
            return Err(Errno::ESTALE);
        }
        for (word, bytes) in words.iter_mut().zip(whole) {
            *word = bytes.try_into().map_or(0, u32::from_ne_bytes);
        }
        Ok(words)
    }
}
