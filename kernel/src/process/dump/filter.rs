//! Which memory goes into a core file: the bits of `/proc/PID/coredump_filter`.

/// Private memory without a file, and private pages that were written to.
pub const PRIVATE: u32 = 1;
/// Shared memory whose file has no name.
pub const SHARED: u32 = 1 << 1;
/// Private mappings of files.
pub const FILE_PRIVATE: u32 = 1 << 2;
/// Shared mappings of files.
pub const FILE_SHARED: u32 = 1 << 3;
/// The first page of a mapped ELF file.
pub const HEADERS: u32 = 1 << 4;
/// Private large pages of hugetlbfs, of which there are none.
pub const HUGE_PRIVATE: u32 = 1 << 5;
/// All bits that there are, those of hugetlbfs and DAX among them.
pub const ALL: u32 = 0x1ff;
/// The filter of the first process (`MMF_DUMP_FILTER_DEFAULT`).
pub const DEFAULT: u32 = PRIVATE | SHARED | HEADERS | HUGE_PRIVATE;
