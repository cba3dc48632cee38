//! The owners of locks on files, and cycles of owners that wait for each other.

use alloc::collections::BTreeMap;

use super::descriptor::FdTable;
use super::open_file::OpenFile;

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockOwner {
    /// A descriptor table, by address.
    Table(usize),
    /// An open file, by address.
    Description(usize),
}

impl LockOwner {
    /// Returns the owner that stands for a process: its descriptor table.
    pub fn of_table(table: &FdTable) -> LockOwner {
        LockOwner::Table((&raw const *table).addr())
    }

    /// Returns the owner that stands for an open file.
    pub fn of_description(file: &OpenFile) -> LockOwner {
        LockOwner::Description((&raw const *file).addr())
    }
}

/// Which holder each owner waits for, by owner and waiter.
pub type Edges = BTreeMap<(LockOwner, usize), LockOwner>;

/// Whether waiting for `blocker` would close a cycle back to `owner`.
pub fn would_deadlock(edges: &Edges, owner: LockOwner, blocker: LockOwner) -> bool {
    let mut next = blocker;
    for _ in 0..=edges.len() {
        if next == owner {
            return true;
        }
        let mut waits = edges.range((next, 0)..=(next, usize::MAX));
        match waits.next() {
            Some((_, holder)) => next = *holder,
            None => return false,
        }
    }
    false
}
