//! Memory from mmap(2), returned when dropped.

use super::PAGE;
use super::raw::{checked, syscall};
use std::io;

/// A private or shared mapping, readable and writable unless `protect` changed that.
#[derive(Debug)]
pub struct Mapping {
    start: usize,
    len: usize,
    /// The mapping from mmap, which may begin before `start` and end after it.
    mapped: (usize, usize),
}

/// The size of a large page on x86-64.
const LARGE_PAGE: usize = 2 << 20;

/// Whether the kernel may use large pages for a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// As the system is configured.
    Default,
    /// Base pages only (MADV_NOHUGEPAGE); without effect if there are no large pages.
    Small,
    /// Large pages wherever possible (MADV_HUGEPAGE).
    Large,
}

impl Mapping {
    fn map(len: usize, protection: i32, flags: i32, fd: i32) -> io::Result<Self> {
        let a = [0, len, protection as usize, flags as usize, fd as usize, 0];
        // SAFETY: the kernel chooses an address range that nothing else uses.
        let start = checked(unsafe { syscall(libc::SYS_mmap as usize, a) })?;
        Ok(Self { start, len, mapped: (start, len) })
    }

    /// Anonymous private memory, not yet touched. For [`Pages::Large`] it starts at a multiple
    /// of a large page.
    pub fn anonymous(len: usize, pages: Pages) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let slack = if pages == Pages::Large { LARGE_PAGE } else { 0 };
        let room = if slack > 0 { len.next_multiple_of(LARGE_PAGE) + slack } else { len };
        let mut mapping = Self::map(room, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        // Kernels without large pages fail with EINVAL, and then the advice is not needed.
        match pages {
            Pages::Default => false,
            Pages::Small => mapping.advise(libc::MADV_NOHUGEPAGE),
            Pages::Large => mapping.advise(libc::MADV_HUGEPAGE),
        };
        if slack > 0 {
            mapping.start = mapping.start.next_multiple_of(LARGE_PAGE);
            mapping.len = len;
        }
        Ok(mapping)
    }

    /// Anonymous memory shared with children.
    pub fn shared(len: usize) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    /// The first `len` bytes of an open file, private.
    pub fn file(fd: i32, len: usize) -> io::Result<Self> {
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE, fd)
    }

    /// Calls madvise(2) for the whole mapping; returns whether the kernel accepted it.
    pub fn advise(&self, advice: i32) -> bool {
        let a = [self.start, self.len, advice as usize, 0, 0, 0];
        // SAFETY: the advice is for our own range; memory that MADV_DONTNEED drops then reads as
        // zero or as the file, which is valid for bytes.
        unsafe { syscall(libc::SYS_madvise as usize, a) == 0 }
    }

    /// Returns how many of its pages are in memory, by mincore(2); for a file, those in the page
    /// cache.
    pub fn resident(&self) -> io::Result<usize> {
        let mut pages = vec![0u8; self.len.div_ceil(PAGE)];
        let a = [self.start, self.len, pages.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: the kernel writes one byte for each page of our own range.
        checked(unsafe { syscall(libc::SYS_mincore as usize, a) })?;
        Ok(pages.iter().filter(|page| **page & 1 != 0).count())
    }

    /// mprotect(2) of the first `len` bytes: read-only, or read and write.
    #[inline(always)]
    pub fn protect(&self, len: usize, writable: bool) -> isize {
        let write = if writable { libc::PROT_WRITE } else { 0 };
        let a = [self.start, len.min(self.len), (libc::PROT_READ | write) as usize, 0, 0, 0];
        // SAFETY: the range is ours; writing to it while it is read-only ends in a signal,
        // which no caller provokes.
        unsafe { syscall(libc::SYS_mprotect as usize, a) }
    }

    /// Its first address.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Reads one byte of every page that lies `step` bytes from the last.
    #[inline(always)]
    pub fn read_every(&self, step: usize) {
        let mut at = 0;
        while at < self.len {
            // SAFETY: `at` is below the length; a volatile read of mapped memory.
            unsafe { ((self.start + at) as *const u8).read_volatile() };
            at += step;
        }
    }

    /// Writes one byte to every page that lies `step` bytes from the last.
    #[inline(always)]
    pub fn write_every(&self, step: usize) {
        let mut at = 0;
        while at < self.len {
            // SAFETY: `at` is below the length; the mapping is writable and plain bytes.
            unsafe { ((self.start + at) as *mut u8).write_volatile(1) };
            at += step;
        }
    }

    /// Makes every page present.
    pub fn populate(&self) {
        self.write_every(PAGE);
    }

    /// Stores the address of `to` (an offset) at offset `from`: a link of a pointer chase.
    pub fn link(&self, from: usize, to: usize) {
        assert!(from + 8 <= self.len && to < self.len && from.is_multiple_of(8));
        // SAFETY: eight aligned bytes inside the mapping.
        unsafe { ((self.start + from) as *mut usize).write(self.start + to) };
    }

    /// The contents as bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is that long, bytes have no invalid value, and the borrow of
        // `self` keeps it mapped and unshared.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut u8, self.len) }
    }

    /// The `index`th 32-bit word, for futexes and counters shared with children.
    pub fn word(&self, index: usize) -> &std::sync::atomic::AtomicU32 {
        assert!((index + 1) * 4 <= self.len);
        // SAFETY: aligned, inside the mapping, and only ever accessed atomically.
        unsafe { &*((self.start + index * 4) as *const std::sync::atomic::AtomicU32) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range came from mmap and nothing borrows it any more.
        unsafe {
            syscall(libc::SYS_munmap as usize, [self.mapped.0, self.mapped.1, 0, 0, 0, 0]);
        }
    }
}
