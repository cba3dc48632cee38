//! The layout of the virtual address space (4-level paging, 48 bits).
//!
//! | from | to | what |
//! |---|---|---|
//! | `0` | [`USER_END`] | the program's half |
//! | [`DIRECT_MAP`] | + 64 TiB | all physical memory, writable, never executable |
//! | [`VMAP`] | + 32 TiB | kernel stacks and device registers, each behind a guard page; large tables of the heap; the frame table, if it was extended |
//! | [`SHOWN`] | + 512 GiB | two pages that programs see ([`crate::vdso`]) |
//! | [`KERNEL`] | end | the kernel's image, linked here |
//!
//! The addresses are those of Linux (`Documentation/x86/x86_64/mm.rst`), so that an address in a
//! dump can be recognised.

/// Size of a page and of a frame.
pub const PAGE_SIZE: usize = 4096;
/// `log2` of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// Size of a large page: one entry of the second level.
pub const LARGE_PAGE_SIZE: usize = 2 << 20;
/// The first address above the program's half. The last page below the gap of non-canonical
/// addresses is left out, as in Linux: a `syscall` in its last bytes would return to a
/// non-canonical address.
pub const USER_END: usize = 0x0000_7fff_ffff_f000;
/// The address of physical address 0 in the direct map.
pub const DIRECT_MAP: usize = 0xffff_8880_0000_0000;

/// Returns [`DIRECT_MAP`].
#[cfg(not(miri))]
#[inline(always)]
pub(crate) fn direct_map() -> usize {
    DIRECT_MAP
}

/// Returns the address of the array that is memory when Miri runs the tests.
#[cfg(miri)]
pub(crate) fn direct_map() -> usize {
    #[repr(C, align(4096))]
    struct Memory(core::cell::UnsafeCell<[u8; INTERPRETED_MEMORY]>);
    // SAFETY: the frame allocator hands its bytes out, each to one owner.
    unsafe impl Sync for Memory {}
    static MEMORY: Memory = Memory(core::cell::UnsafeCell::new([0; INTERPRETED_MEMORY]));
    MEMORY.0.get() as usize
}

/// Bytes of memory for Miri: the frame allocator's reserve takes 1 MiB, the frame table little.
#[cfg(miri)]
pub(crate) const INTERPRETED_MEMORY: usize = 3 << 20;

/// The most physical memory that the direct map can hold, in bytes.
pub const DIRECT_MAP_SIZE: usize = 64 << 40;
/// The numbers of frames are below this one, so 8 TiB of memory are used at most. The bit tells a
/// run of frames from a frame.
pub(crate) const FRAME_NUMBERS: u32 = 1 << 31;
/// Kernel stacks and device registers.
pub const VMAP: usize = 0xffff_c900_0000_0000;
/// The end of [`VMAP`].
pub const VMAP_END: usize = 0xffff_e900_0000_0000;
/// Large tables of the heap ([`crate::scattered`]): the upper half of the 512 GiB that kernel
/// stacks begin in.
pub(crate) const SCATTERED: usize = VMAP + (256 << 30);
/// Where the frame table is mapped after it was extended: behind the large tables of the heap, in
/// the 512 GiB that every space shares.
pub(crate) const FRAME_TABLE: usize = SCATTERED + (240 << 30);
/// The size of [`FRAME_TABLE`]: enough for 4 TiB of addresses.
pub(crate) const FRAME_TABLE_SIZE: usize = 16 << 30;
/// The address of physical address 0 in the mapping of device registers.
pub(crate) const DEVICES: usize = 0xffff_d000_0000_0000;
/// The area of pages of the kernel's half that programs see: one entry of the root.
pub const SHOWN: usize = 0xffff_ff00_0000_0000;
/// The address at which the kernel's image is linked: physical address 0 of the image's mapping.
pub const KERNEL: usize = 0xffff_ffff_8000_0000;
