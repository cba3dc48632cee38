//! The format of a region, byte by byte.

use hayate_off2f::{Identity, checksum};

use crate::{NAME, PAGE};

/// The first bytes of a superblock.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HayaNVM1");
/// Bytes of an entry of the directory.
pub const ENTRY: u64 = 128;
/// The state of a valid entry. Any other value means a free entry.
pub const VALID: u64 = u64::from_le_bytes(*b"textHere");
/// Entries in a page.
const PER_PAGE: u64 = PAGE / ENTRY;

/// How many bytes of the superblock are used.
pub const SUPERBLOCK: usize = 64;

/// The layout of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The identifier of this store, unique among all stores.
    pub id: [u8; 16],
    /// Pages of the whole region.
    pub pages: u64,
    /// Pages of the directory, which begins at page 1.
    pub directory: u64,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    found.map_or(0, u64::from_le_bytes)
}

impl Layout {
    /// Returns the layout for a region of `pages` pages: one entry for 64 KiB, and at least a page
    /// of entries.
    pub fn new(pages: u64, id: [u8; 16]) -> Option<Layout> {
        let directory = (pages / 16).div_ceil(PER_PAGE).max(1);
        (pages > 1 + directory).then_some(Layout { id, pages, directory })
    }

    /// The number of entries.
    pub fn entries(&self) -> u64 {
        self.directory * PER_PAGE
    }

    /// The first page of texts.
    pub fn first(&self) -> u64 {
        1 + self.directory
    }

    /// The superblock.
    pub fn encode(&self) -> [u8; SUPERBLOCK] {
        let mut bytes = [0; SUPERBLOCK];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..40].copy_from_slice(&self.pages.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.directory.to_le_bytes());
        let sum = checksum(&bytes[16..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a superblock; `None`: there is no valid one.
    pub fn decode(bytes: &[u8; SUPERBLOCK]) -> Option<Layout> {
        let id = bytes[16..32].try_into().ok()?;
        let layout = Layout { id, pages: word(bytes, 32), directory: word(bytes, 40) };
        let expected = Layout::new(layout.pages, id)?;
        let sound = word(bytes, 0) == MAGIC && word(bytes, 8) == checksum(&bytes[16..]);
        (sound && expected == layout).then_some(layout)
    }
}

/// An entry of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextEntry {
    pub identity: Identity,
    pub first: u64,
    pub pages: u32,
    pub phase: u32,
    /// Increases with each publication.
    pub sequence: u64,
    pub name: [u8; NAME],
}

impl TextEntry {
    /// Returns the bytes of the entry, with the state "free".
    pub fn encode(&self) -> [u8; ENTRY as usize] {
        let mut bytes = [0; ENTRY as usize];
        bytes[16..48].copy_from_slice(&self.identity.0);
        bytes[48..56].copy_from_slice(&self.first.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.pages.to_le_bytes());
        bytes[60..64].copy_from_slice(&self.phase.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[80..80 + NAME].copy_from_slice(&self.name);
        let sum = checksum(&bytes[16..]);
        bytes[8..16].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads an entry: `None` if it is free, `Some(None)` if it is damaged.
    pub fn decode(bytes: &[u8; ENTRY as usize]) -> Option<Option<TextEntry>> {
        if word(bytes, 0) != VALID {
            return None;
        }
        let half = |at: usize| word(bytes, at) as u32;
        let entry = || {
            Some(TextEntry {
                identity: Identity(bytes[16..48].try_into().ok()?),
                first: word(bytes, 48),
                pages: half(56),
                phase: (word(bytes, 56) >> 32) as u32,
                sequence: word(bytes, 64),
                name: bytes[80..80 + NAME].try_into().ok()?,
            })
        };
        Some(entry().filter(|_| word(bytes, 8) == checksum(&bytes[16..])))
    }
}
