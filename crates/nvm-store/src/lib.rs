//! Texts on non-volatile memory: a small directory that survives a crash or power failure at any
//! moment.
//!
//! A [`Store`] lies on a [`Region`], memory that keeps its content. It holds *texts*: runs of
//! consecutive pages that are written once, published, read in place by any number of readers, and
//! removed. A text is identified by its [`Identity`] (the hash of its content) and has a name for
//! people.
//!
//! # On the region
//!
//! | page | what |
//! |---|---|
//! | 0 | the superblock: magic, version, sizes, an identifier, a checksum; constant |
//! | 1 .. | the directory: entries of 128 bytes |
//! | behind it | texts |
//!
//! An entry is `state, checksum, identity, first page, pages, phase, sequence, name`. Free pages
//! are not recorded: they are the pages that no entry names.
//!
//! # Why a power failure at any moment does no harm
//!
//! The region guarantees that data written before a [`Region::flush`] that returned is kept, and
//! that an aligned write of eight bytes is kept whole or not at all. Of all other writes since, any
//! part may be kept or lost, in any order. So:
//!
//! * *publish*: the pages, flush; the entry without its state, flush; the state, flush. Before the
//!   last step there is no entry, and once there is one, everything it names is kept;
//! * *remove*: the state to zero, flush; only then are entry and pages used again;
//! * *compact*: a text is published at its new place before the old one is removed. A power failure
//!   between these steps leaves both, which are equal; [`Store::open`] removes the higher one;
//! * *format*: the magic of an old superblock is cleared, flush; the directory is cleared, flush;
//!   then the superblock, and its magic last.
//!
//! A flush may fail. The operation has then not taken place. An entry that the failed flush may
//! have published is removed before anything else is written ([`Store::reserve`] fails until that
//! succeeds): otherwise, after a power failure, its pages could contain another text under its
//! name.
//!
//! The checksum over each entry guards against a region that returns wrong data. An entry that does
//! not match its checksum, names pages that do not exist, or names pages of another entry is left
//! out and counted ([`Store::damaged`]); its pages are free.
//!
//! Road not taken: a log. Texts are written whole and seldom; a directory of independent entries
//! needs no replay and no garbage collection.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod disk;
mod patience;
mod store;

pub use hayate_off2f::Identity;
pub use patience::{Look, Patience};
pub use store::{Grant, Store, Text, Usage};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// The most bytes of a name that are kept.
pub const NAME: usize = 48;

/// The memory of a store. Offsets are in bytes; the store stays inside [`Region::size`].
pub trait Region {
    /// Bytes, a multiple of [`PAGE`].
    fn size(&self) -> u64;

    /// Reads `to.len()` bytes from `offset` on.
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault>;

    /// Writes `from` to `offset`. Eight bytes at a multiple of eight are written atomically.
    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), Fault>;

    /// Returns when everything written to `length` bytes from `offset` is kept.
    fn flush(&mut self, offset: u64, length: u64) -> Result<(), Fault>;
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// There is no store on the region: it was never formatted, or its superblock is damaged.
    NotFormatted,
    /// The region is too small for a store.
    TooSmall,
    /// The store is larger than the region: the region was truncated.
    Truncated,
    /// There are not enough contiguous free pages.
    Full,
    /// No free entry in the directory.
    DirectoryFull,
    /// No such text.
    Unknown,
    /// There is already a text with this identity.
    Exists,
    /// The content does not match the identity.
    Damaged,
    /// The region cannot be read or written.
    Device,
    /// Memory is exhausted.
    Memory,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NotFormatted => "there is no store of texts on it",
            Self::TooSmall => "it is too small for a store of texts",
            Self::Truncated => "it is smaller than the store on it",
            Self::Full => "the store has no room in a row for the text",
            Self::DirectoryFull => "the store's directory is full",
            Self::Unknown => "there is no such text in the store",
            Self::Exists => "the text is in the store already",
            Self::Damaged => "the text does not match its identity",
            Self::Device => "the memory cannot be read or written",
            Self::Memory => "no memory",
        })
    }
}

impl core::error::Error for Fault {}
