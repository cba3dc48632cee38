//! The state of a space when its program began, and the changes since. [`crate::recycle::spaces`]
//! needs both to restore the space for the next start of that program.

use core::ops::Range;

use arrayvec::ArrayVec;
use hayate_recycler::AttachmentKey;
use hayate_space_map::{Region, SpaceMap};

use super::region::Mapping;

/// Where a loaded file is.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    /// The difference between the addresses in memory and those in the file.
    pub bias: usize,
    /// The first instruction.
    pub entry: usize,
    /// The program headers (`AT_PHDR`).
    pub headers: usize,
    /// The first address after the last segment.
    pub end: usize,
}

/// Where a program begins, which exec must know besides the space.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The first instruction: the interpreter's if there is one.
    pub entry: usize,
    /// The program itself.
    pub program: Loaded,
    /// Where the interpreter is; 0 without one.
    pub interpreter: usize,
}

/// Parts of file pages that were zeroed when the program was loaded: the beginning of its bss, and
/// of its interpreter's.
pub type Cleared = ArrayVec<Range<usize>, 4>;

/// The state of a space when its program began.
pub struct Origin {
    /// Which starts may take the space.
    pub key: AttachmentKey,
    /// Where the program begins.
    pub start: Start,
    /// The mappings of that time.
    pub map: SpaceMap<Mapping>,
    /// See [`Cleared`].
    pub cleared: Cleared,
    /// Bytes in private writable regions (`RLIMIT_DATA`).
    pub data: usize,
    /// How often it was used.
    pub lives: u32,
}

impl Origin {
    /// The regions that were mapped.
    pub fn regions(&self) -> impl Iterator<Item = &Region<Mapping>> {
        self.map.iter()
    }

    /// Whether anything was mapped in a range.
    pub fn maps(&self, range: &Range<usize>) -> bool {
        !self.map.is_free(range.clone())
    }

    /// Whether addresses were drawn at random. If so, the stack is not part of the origin.
    pub fn is_randomised(&self) -> bool {
        self.key.randomised
    }
}

/// Where access rights were changed: a few ranges, or everywhere.
#[derive(Default)]
pub struct Altered {
    ranges: ArrayVec<(usize, usize), 6>,
    everywhere: bool,
}

impl Altered {
    /// Notes a change.
    pub fn note(&mut self, range: &Range<usize>) {
        self.everywhere |= self.ranges.try_push((range.start, range.end)).is_err();
    }

    /// Whether anything in a range was changed.
    pub fn meets(&self, start: usize, end: usize) -> bool {
        self.everywhere || self.ranges.iter().any(|range| range.0 < end && start < range.1)
    }

    /// Forgets all changes.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.everywhere = false;
    }
}
