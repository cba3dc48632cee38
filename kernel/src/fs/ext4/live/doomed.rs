//! Inodes that have lost their last name, and are to be freed when nothing uses them any more.
//!
//! Write-back may be at work on the content of such an inode: it refers to the content, not to the
//! node. An old write must not come to a block that another file has got, so the content is
//! discarded, and its writes are waited for, before its blocks are free (Linux:
//! `truncate_inode_pages_final`, mm/truncate.c).

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;

use crate::page_cache::cache::PageCache;
use crate::reclaim::growth::Grow;

/// An inode without names whose node is gone.
pub struct Gone {
    pub number: u32,
    /// Its content, if some was loaded.
    pub content: Option<Arc<PageCache>>,
}

/// Inodes without names whose nodes are gone.
#[derive(Default)]
pub struct Doomed {
    list: Vec<Gone>,
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

    /// The node of one that was expected is gone. Returns it if there is no room; then it stays on
    /// the volume's own list.
    pub fn doom(&mut self, gone: Gone) -> Option<Gone> {
        self.spare();
        if self.list.len() == self.list.capacity() {
            return Some(gone);
        }
        self.list.push(gone);
        None
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes one.
    pub fn next(&mut self) -> Option<Gone> {
        self.list.pop()
    }

    /// Puts one back that was taken and whose content is discarded; without memory it stays on the
    /// volume's own list.
    pub fn put_back(&mut self, number: u32) {
        if self.list.make_room(1).is_ok() {
            self.list.push(Gone { number, content: None });
        }
    }
}
