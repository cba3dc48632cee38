//! The size of a page, and the bounds of the program's half of a space.

/// Size of a page in bytes.
pub const PAGE: usize = machine::layout::PAGE_SIZE;
/// The end of the program's half.
pub const USER_END: usize = machine::layout::USER_END;

/// The lowest address that a program may map (`vm.mmap_min_addr`).
pub const LOWEST: usize = 0x10000;

/// `address` rounded down to a whole page.
pub const fn page_down(address: usize) -> usize {
    address & !(PAGE - 1)
}

/// `length` rounded up to whole pages; `None` if that overflows.
pub fn page_up(length: usize) -> Option<usize> {
    length.checked_next_multiple_of(PAGE)
}
