//! A page, as the callers of walks see it.

use super::entry::{Access, PageKind, TableEntry};
use super::large;
use crate::frames::{Frame, info};

/// A page as the caller of a walk sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The number of the page's frame.
    pub(super) frame: u32,
    /// The kind of the page.
    pub kind: PageKind,
    /// The accesses to the page that the page table allows now; copy-on-write takes `write` away
    /// from pages that the program may write to.
    pub access: Access,
    /// Whether the page is part of a large page.
    pub large: bool,
}

impl Page {
    pub(super) fn of(entry: TableEntry, large: bool) -> Page {
        Page { frame: entry.number(), kind: entry.kind(), access: entry.access(), large }
    }

    /// The number of the page's frame.
    pub fn frame(&self) -> u32 {
        self.frame
    }

    /// Whether something else refers to the page as well. The result holds at this moment, and only
    /// if the page is still mapped.
    pub fn is_shared(&self) -> bool {
        // SAFETY: the number comes from an entry, or is that of a frame in the large page that an
        // entry maps.
        let others = unsafe { info(self.frame) }.refs() > 1;
        others || (self.large && large::entries(self.frame & !(large::FRAMES - 1)) > 1)
    }

    /// Whether this page's frame is `frame`.
    pub fn is(&self, frame: &Frame) -> bool {
        self.frame == frame.number()
    }
}
