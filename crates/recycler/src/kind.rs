//! The kinds of resource.

use core::fmt;

/// A kind of resource. The numbers are those of the tables of counts and do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ResourceKind {
    /// Persistent content: a file's pages in the page cache.
    Plate = 0,
    /// Facts about an executable: its plan, its interpreter.
    Program = 1,
    /// A piece of memory content: frames.
    Region = 2,
    /// A page table and the map of its regions, empty.
    Space = 3,
    /// A region attached to a space: the space with its regions and page tables unchanged.
    Attachment = 4,
    /// The kernel's memory for a thread: kernel stack, register save area.
    WorkArea = 5,
    /// The record of a process.
    Process = 6,
    /// The right to a processor.
    Execution = 7,
    /// A program after its start-up, where the next start of the same command begins.
    Image = 8,
}

impl ResourceKind {
    /// How many kinds there are.
    pub const COUNT: usize = 9;

    /// All kinds, in the order of their numbers.
    pub const ALL: [ResourceKind; ResourceKind::COUNT] = [
        ResourceKind::Plate,
        ResourceKind::Program,
        ResourceKind::Region,
        ResourceKind::Space,
        ResourceKind::Attachment,
        ResourceKind::WorkArea,
        ResourceKind::Process,
        ResourceKind::Execution,
        ResourceKind::Image,
    ];

    /// The name in files and on command lines: one word, lower case.
    pub const fn name(self) -> &'static str {
        match self {
            ResourceKind::Plate => "plate",
            ResourceKind::Program => "program",
            ResourceKind::Region => "region",
            ResourceKind::Space => "space",
            ResourceKind::Attachment => "attachment",
            ResourceKind::WorkArea => "work-area",
            ResourceKind::Process => "process",
            ResourceKind::Execution => "execution",
            ResourceKind::Image => "image",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<ResourceKind> {
        ResourceKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The number, for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree() {
        for (index, kind) in ResourceKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
            assert_eq!(ResourceKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(ResourceKind::from_name("Plate"), None);
        assert_eq!(ResourceKind::from_name(""), None);
    }
}
