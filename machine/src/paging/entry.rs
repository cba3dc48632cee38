//! One entry of a page table: the hardware's bits and the kernel's own (SDM vol. 3, 4.5).

use crate::frames::{FrameInfo, info};
use crate::layout::PAGE_SHIFT;

/// The access that a program has to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access {
    /// Any access at all. Without it, `write` and `execute` have no effect.
    pub read: bool,
    /// Writing, without a fault.
    pub write: bool,
    /// Fetching instructions.
    pub execute: bool,
}

impl Access {
    /// No access.
    pub const NONE: Access = Access { read: false, write: false, execute: false };
    /// Reading.
    pub const READ: Access = Access { read: true, write: false, execute: false };
    /// Reading and writing.
    pub const WRITE: Access = Access { read: true, write: true, execute: false };
}

/// The kind of page that an entry maps. It decides which count of the space includes the page, and
/// what happens to it when two spaces stop sharing a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// The space's own memory: copied on write once another space refers to it.
    Private,
    /// A page of a file, seen by a private mapping: never writable in place.
    File,
    /// A page of a shared mapping: writable in every space that maps it.
    Shared,
    /// The zero page, which belongs to no space.
    Zero,
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TableEntry(pub u64);

impl TableEntry {
    pub const PRESENT: u64 = 1 << 0;
    pub const WRITE: u64 = 1 << 1;
    pub const USER: u64 = 1 << 2;
    pub const ACCESSED: u64 = 1 << 5;
    pub const DIRTY: u64 = 1 << 6;
    pub const LARGE: u64 = 1 << 7;
    /// Software bit of a leaf: the page is there but must not be accessed at all (`PROT_NONE`); the
    /// present bit is clear. (A supervisor page would not do: the kernel's own copies on behalf of
    /// the program would reach it.)
    pub const HELD: u64 = 1 << 9;
    /// Software bit of an entry that leads to a table: another space may refer to the same table;
    /// see [`super::share`].
    pub const SHARED_TABLE: u64 = 1 << 9;
    /// Software bit of an entry that leads to a table of pages: a large page was broken up to make
    /// the table, so it must not be collapsed again.
    pub const BROKEN: u64 = 1 << 10;
    /// Software field of a leaf, two bits: the [`PageKind`].
    const KIND_SHIFT: u32 = 10;
    const KIND: u64 = 3 << Self::KIND_SHIFT;
    /// Software bit of a leaf of kind [`PageKind::File`]: the entry holds no counted reference.
    /// Only for frames that can never be freed, those of non-volatile memory; see
    /// [`super::attach`].
    pub const UNCOUNTED: u64 = 1 << 52;
    pub const NO_EXECUTE: u64 = 1 << 63;
    /// The physical address. (Bits 53 to 62 are not used: protection keys.)
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

    pub const NONE: TableEntry = TableEntry(0);

    /// Returns the entry for a table that belongs to one space.
    #[inline]
    pub fn table(number: u32) -> TableEntry {
        TableEntry(
            u64::from(number) << PAGE_SHIFT
                | Self::PRESENT
                | Self::WRITE
                | Self::USER
                | Self::ACCESSED,
        )
    }

    /// Returns the entry for another table in the place of this one, with the same user bit.
    #[inline]
    pub fn with_table(self, number: u32) -> TableEntry {
        TableEntry(Self::table(number).0 & !Self::USER | self.0 & Self::USER)
    }

    /// Returns the entry for a page. Accessed and dirty are set at once, so that the processor need
    /// not write the entry again to set them. Only [`unwritten`](Self::unwritten) clears the dirty
    /// bit.
    #[inline]
    pub fn page(number: u32, kind: PageKind, access: Access) -> TableEntry {
        let bits = u64::from(number) << PAGE_SHIFT
            | Self::USER
            | Self::ACCESSED
            | Self::DIRTY
            | (kind as u64) << Self::KIND_SHIFT;
        TableEntry(bits).with(access)
    }

    /// Returns the entry for the same page with another access. The dirty bit is set: another
    /// processor may be writing to the page and setting the bit at this moment, and the bit must
    /// not get lost.
    #[inline]
    pub fn with(self, access: Access) -> TableEntry {
        let bits =
            self.0 & !(Self::PRESENT | Self::HELD | Self::WRITE | Self::NO_EXECUTE) | Self::DIRTY;
        let there = if access.read { Self::PRESENT } else { Self::HELD };
        let write = if access.write { Self::WRITE } else { 0 };
        let no_execute = if access.execute { 0 } else { Self::NO_EXECUTE };
        TableEntry(bits | there | write | no_execute)
    }

    /// Returns the entry for the same page, marked as not written to: the processor reports a write
    /// by setting the dirty bit. Only for tables that no processor has loaded, or whose TLB entries
    /// are flushed before the page is used.
    #[inline]
    pub fn unwritten(self) -> TableEntry {
        TableEntry(self.0 & !Self::DIRTY)
    }

    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub fn has(self, bits: u64) -> bool {
        self.0 & bits == bits
    }

    /// Whether both entries lead to the same frame, as pages of one size or as tables.
    #[inline]
    pub fn is_same_place(self, other: TableEntry) -> bool {
        const PLACE: u64 = TableEntry::ADDRESS | TableEntry::LARGE;
        !self.is_none() && !other.is_none() && (self.0 ^ other.0) & PLACE == 0
    }

    /// Returns the entry for one small page of the large page that this entry maps.
    #[inline]
    pub fn part(self, index: usize) -> TableEntry {
        TableEntry((self.0 & !Self::LARGE) + ((index as u64) << PAGE_SHIFT))
    }

    /// The frame's number.
    #[inline]
    pub fn number(self) -> u32 {
        ((self.0 & Self::ADDRESS) >> PAGE_SHIFT) as u32
    }

    /// Returns the frame's info. The entry must lead to a frame.
    #[inline]
    pub fn info(self) -> &'static FrameInfo {
        // SAFETY: the number in an entry is that of a frame: of a page that the entry holds a
        // reference to, of the zero page, of a table, or of non-volatile memory. (Frame 0 has an
        // info as well.)
        unsafe { info(self.number()) }
    }

    #[inline]
    pub fn kind(self) -> PageKind {
        match (self.0 & Self::KIND) >> Self::KIND_SHIFT {
            0 => PageKind::Private,
            1 => PageKind::File,
            2 => PageKind::Shared,
            _ => PageKind::Zero,
        }
    }

    #[inline]
    pub fn access(self) -> Access {
        Access {
            read: self.has(Self::PRESENT),
            write: self.has(Self::WRITE),
            execute: !self.has(Self::NO_EXECUTE),
        }
    }

    /// Whether the entry counts as a reference to its frame.
    #[inline]
    pub fn is_counted(self) -> bool {
        self.kind() != PageKind::Zero && !self.has(Self::UNCOUNTED)
    }
}
