//! Counts of the resources of one kind.

use core::ops::AddAssign;

/// Counts of events on the resources of one kind. Each number is a sum of per-CPU counts: exact
/// when nothing is changing, otherwise approximate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceCounts {
    /// Made new.
    pub made: u64,
    /// Taken from the kept ones, instead of being made.
    pub reused: u64,
    /// How often one was kept instead of being given up (not how many are kept).
    pub stored: u64,
    /// Given up after having been kept.
    pub dropped: u64,
    /// How many are kept now.
    pub kept: u64,
    /// The memory of the kept ones, in bytes.
    pub bytes: u64,
}

impl AddAssign for ResourceCounts {
    fn add_assign(&mut self, other: ResourceCounts) {
        self.made = self.made.wrapping_add(other.made);
        self.reused = self.reused.wrapping_add(other.reused);
        self.stored = self.stored.wrapping_add(other.stored);
        self.dropped = self.dropped.wrapping_add(other.dropped);
        self.kept = self.kept.wrapping_add(other.kept);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}
