//! Inodes that have lost their last name, and are to be freed when nothing uses them any more.

use alloc::vec::Vec;

use hayate_abi::Result;

use crate::reclaim::growth::Grow;

/// Inodes without names whose nodes are gone.
#[derive(Default)]
pub struct Doomed {
    list: Vec<u32>,
    /// Inodes without names that have a node, for each of which there is room.
    expected: usize,
}

impl Doomed {
    /// Makes room for one inode more, before it loses its last name.
    pub fn expect(&mut self) -> Result<()> {
        self.list.make_room(self.expected + 1)?;
        self.expected += 1;
        Ok(())
    }

    /// One that was expected has a name.
    pub fn spare(&mut self) {
        self.expected = self.expected.saturating_sub(1);
    }

    /// The node of one that was expected is gone.
    pub fn doom(&mut self, number: u32) {
        self.spare();
        if self.list.len() < self.list.capacity() {
            self.list.push(number);
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes one.
    pub fn next(&mut self) -> Option<u32> {
        self.list.pop()
    }

    /// Puts one back that was taken; without memory it stays on the volume's own list.
    pub fn put_back(&mut self, number: u32) {
        if self.list.make_room(1).is_ok() {
            self.list.push(number);
        }
    }
}
