//! What became of the resources of one kind.

use core::ops::AddAssign;

/// What became of the resources of one kind. Sums of what processors counted each for itself: exact
/// when nothing is going on, close while something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Made new.
    pub made: u64,
    /// Taken from what was kept, instead of being made.
    pub reused: u64,
    /// Put away instead of being given up; how often, not how many there are.
    pub stored: u64,
    /// Given up after having been kept.
    pub dropped: u64,
    /// What is kept now.
    pub kept: u64,
    /// The memory that takes, in bytes.
    pub bytes: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.made = self.made.wrapping_add(other.made);
        self.reused = self.reused.wrapping_add(other.reused);
        self.stored = self.stored.wrapping_add(other.stored);
        self.dropped = self.dropped.wrapping_add(other.dropped);
        self.kept = self.kept.wrapping_add(other.kept);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}
