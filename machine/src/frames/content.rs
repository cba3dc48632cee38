//! The content of a [`Frame`]: zeroing, copying, bytes in and out.

use super::bytes::{bytes, copy, copy_frame, zero};
use super::frame::Frame;
use crate::layout::PAGE_SIZE;
use core::arch::asm;
use core::sync::atomic::AtomicU32;

impl Frame {
    /// Fills the frame with zeroes.
    #[inline]
    pub fn zero(&self) {
        zero(self.number());
    }

    /// Fills `len` bytes from `offset` with zeroes; the part outside the frame is ignored.
    pub fn zero_range(&self, offset: usize, len: usize) {
        let offset = offset.min(PAGE_SIZE);
        let len = len.min(PAGE_SIZE - offset);
        if cfg!(miri) {
            // SAFETY: the range was cut to the frame; see `zero`.
            return unsafe { bytes(self.number()).add(offset).write_bytes(0, len) };
        }
        // SAFETY: the range was cut to the frame; see `zero`.
        unsafe {
            asm!("rep stosb", inout("rdi") bytes(self.number()).add(offset) => _,
                 inout("rcx") len => _, in("al") 0u8, options(nostack, preserves_flags));
        }
    }

    /// Reads the aligned word at `offset` atomically; `None` if it is not aligned or not inside the
    /// frame.
    pub fn load_u32(&self, offset: usize) -> Option<u32> {
        let inside = offset.is_multiple_of(4) && offset <= PAGE_SIZE - 4;
        let word = inside.then(|| bytes(self.number()).wrapping_add(offset).cast::<AtomicU32>())?;
        // SAFETY: in the frame, aligned, and read atomically: programs may be writing to it.
        Some(unsafe { &*word }.load(core::sync::atomic::Ordering::SeqCst))
    }

    /// Writes the aligned word at `offset` atomically, after everything that was written before.
    /// Does nothing if it is not aligned or not inside the frame.
    pub fn store_u32(&self, offset: usize, value: u32) {
        if !offset.is_multiple_of(4) || offset > PAGE_SIZE - 4 {
            return;
        }
        let word = bytes(self.number()).wrapping_add(offset).cast::<AtomicU32>();
        // SAFETY: in the frame, aligned, and written atomically: programs may be reading it.
        unsafe { &*word }.store(value, core::sync::atomic::Ordering::SeqCst);
    }

    /// Copies another frame's whole content to this one.
    #[inline]
    pub fn copy_from(&self, from: &Frame) {
        copy_frame(bytes(self.number()), bytes(from.number()));
    }

    /// Copies bytes out of the frame, from `offset`. Returns the number of bytes, which is less
    /// than `to.len()` only at the frame's end.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> usize {
        let offset = offset.min(PAGE_SIZE);
        let len = to.len().min(PAGE_SIZE - offset);
        copy(to.as_mut_ptr(), bytes(self.number()).wrapping_add(offset), len);
        len
    }

    /// Copies bytes into the frame, to `offset`. Returns the number of bytes, which is less than
    /// `from.len()` only at the frame's end.
    pub fn write(&self, offset: usize, from: &[u8]) -> usize {
        let offset = offset.min(PAGE_SIZE);
        let len = from.len().min(PAGE_SIZE - offset);
        copy(bytes(self.number()).wrapping_add(offset), from.as_ptr(), len);
        len
    }

    /// The frame's bytes in the direct map, for the machine's own copies.
    #[inline]
    pub(crate) fn pointer(&self) -> *mut u8 {
        bytes(self.number())
    }
}
