//! The kernel's access to the program's memory: checked copies and nothing else.
//!
//! Addresses from a program are never trusted. Every access here first checks that the whole range
//! lies in the program's half, opens SMAP for the duration of the copy, and runs on instructions
//! that are listed in the exception table: when one faults, the ordinary fault handler runs (it may
//! read from a disk and sleep), and only if that fails does the copy end early and the caller get
//! `EFAULT`. Never hold a spin lock while calling anything in this module.
//!
//! The functions work on the space that is loaded on this processor. Another process's memory
//! is reached through its space (`memory::Space::read_foreign`).
//!
//! [`UserPtr`] is a typed address, [`UserBytes`] a range of bytes. Types that are copied are plain
//! old data by zerocopy's derives, so no padding leaks out and every bit pattern is valid coming
//! in.
//!
//! Road not taken: walking the page table and copying through the direct map. It needs no
//! exception table, but a walk costs more than the copy for the sizes that matter.

mod access;
mod sites;

use crate::frames::{Frame, Run};
use crate::layout::{PAGE_SIZE, USER_END};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use hayate_abi::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

pub use access::{compare_exchange_u32, fetch_update_u32, in_user_half, load_u32, store_u32};
pub(crate) use sites::patch_out_smap;

/// Copies from the program's memory to `to`.
#[inline]
pub fn copy_in(to: &mut [u8], from: usize) -> Result<()> {
    if copy_in_partly(to, from) == to.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies from the program's memory until an access fails; returns the number of bytes.
#[inline]
pub fn copy_in_partly(to: &mut [u8], from: usize) -> usize {
    if !in_user_half(from, to.len()) {
        return 0;
    }
    // SAFETY: `to` is ours; `from` is in the program's half and may fault.
    to.len() - unsafe { access::copy(to.as_mut_ptr() as usize, from, to.len()) }
}

/// Copies a structure of `size` bytes that later versions may make longer: what lies beyond `to`
/// must be zero, and what is not there is zero (`copy_struct_from_user`). Fails with `E2BIG` at the
/// first word that is not zero, whether or not memory ends behind it.
pub fn copy_in_growing(to: &mut [u8], from: usize, size: usize) -> Result<()> {
    let known = size.min(to.len());
    let mut done = known;
    while done < size {
        let at = from.checked_add(done).ok_or(Errno::EFAULT)?;
        // To the end of the word, which no page's end divides.
        let mut word = [0; 8];
        let length = (8 - at % 8).min(size - done);
        let part = word.split_at_mut(length).0;
        copy_in(part, at)?;
        if part.iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        done += length;
    }
    let (there, lacking) = to.split_at_mut(known);
    copy_in(there, from)?;
    lacking.fill(0);
    Ok(())
}

/// Copies `from` to the program's memory.
#[inline]
pub fn copy_out(to: usize, from: &[u8]) -> Result<()> {
    if copy_out_partly(to, from) == from.len() { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies to the program's memory until an access fails; returns the number of bytes.
#[inline]
pub fn copy_out_partly(to: usize, from: &[u8]) -> usize {
    if !in_user_half(to, from.len()) {
        return 0;
    }
    // SAFETY: `from` is ours; `to` is in the program's half and may fault.
    from.len() - unsafe { access::copy(to, from.as_ptr() as usize, from.len()) }
}

/// Writes zeroes to the program's memory.
#[inline]
pub fn zero(to: usize, len: usize) -> Result<()> {
    if zero_partly(to, len) == len { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Writes zeroes to the program's memory until an access fails; returns the number of bytes.
#[inline(always)]
pub fn zero_partly(to: usize, len: usize) -> usize {
    if !in_user_half(to, len) {
        return 0;
    }
    // SAFETY: `to` is in the program's half and may fault.
    match unsafe { access::zero(to, len) } {
        0 => len,
        left => len - left,
    }
}

/// Copies from a frame (a page of a file, say) to the program's memory directly. Returns the number
/// of bytes, which is less than `len` at the frame's end or at an address that cannot be written.
#[inline]
pub fn copy_frame_out(to: usize, frame: &Frame, offset: usize, len: usize) -> usize {
    let offset = offset.min(PAGE_SIZE);
    let len = len.min(PAGE_SIZE - offset);
    if !in_user_half(to, len) {
        return 0;
    }
    let from = frame.pointer().wrapping_add(offset) as usize;
    // SAFETY: the source is inside a frame we hold; `to` is in the program's half and may fault.
    len - unsafe { access::copy(to, from, len) }
}

/// Copies from the program's memory to a frame; returns the number of bytes, as [`copy_frame_out`]
/// does.
#[inline]
pub fn copy_frame_in(frame: &Frame, offset: usize, from: usize, len: usize) -> usize {
    let offset = offset.min(PAGE_SIZE);
    let len = len.min(PAGE_SIZE - offset);
    if !in_user_half(from, len) {
        return 0;
    }
    let to = frame.pointer().wrapping_add(offset) as usize;
    // SAFETY: the target is inside a frame we hold, to whose content no Rust reference exists;
    // `from` is in the program's half and may fault.
    len - unsafe { access::copy(to, from, len) }
}

/// Like [`copy_frame_out`], from a run of frames.
#[inline]
pub fn copy_run_out(to: usize, run: &Run, offset: usize, len: usize) -> usize {
    let offset = offset.min(run.size());
    let len = len.min(run.size() - offset);
    if !in_user_half(to, len) {
        return 0;
    }
    let from = run.pointer().wrapping_add(offset) as usize;
    // SAFETY: the source is inside a run we hold; `to` is in the program's half and may fault.
    len - unsafe { access::copy(to, from, len) }
}

/// Like [`copy_frame_in`], to a run of frames.
#[inline]
pub fn copy_run_in(run: &Run, offset: usize, from: usize, len: usize) -> usize {
    let offset = offset.min(run.size());
    let len = len.min(run.size() - offset);
    if !in_user_half(from, len) {
        return 0;
    }
    let to = run.pointer().wrapping_add(offset) as usize;
    // SAFETY: the target is inside a run we hold, to whose content no Rust reference exists;
    // `from` is in the program's half and may fault.
    len - unsafe { access::copy(to, from, len) }
}

/// Returns where the first zero is, searching eight bytes at a time.
#[inline]
fn first_zero(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest bit set is the top bit of the first zero byte (higher ones may be wrong).
        let zeroes = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeroes != 0 {
            return Some(index * 8 + zeroes.trailing_zeros() as usize / 8);
        }
    }
    let at = rest.iter().position(|&byte| byte == 0)?;
    Some(words.len() * 8 + at)
}

/// Reads a string that ends with a zero byte into `to`; returns its length without the zero.
///
/// # Errors
/// `EFAULT`; `ENAMETOOLONG` if no zero is among the first `to.len()` bytes.
pub fn read_cstr(to: &mut [u8], from: usize) -> Result<usize> {
    let mut done = 0;
    while done < to.len() {
        let at = from.checked_add(done).filter(|&at| at < USER_END).ok_or(Errno::EFAULT)?;
        // In steps that end at a page's end, so that the page after the string is not touched.
        let len = (to.len() - done).min(PAGE_SIZE - at % PAGE_SIZE).min(64);
        let part = &mut to[done..done + len];
        let got = copy_in_partly(part, at);
        if let Some(end) = first_zero(&part[..got]) {
            return Ok(done + end);
        }
        if got < len {
            return Err(Errno::EFAULT);
        }
        done += len;
    }
    Err(Errno::ENAMETOOLONG)
}

/// The address of a `T` in the program's memory, as the program gave it.
#[repr(transparent)]
pub struct UserPtr<T>(usize, PhantomData<*const T>);

// SAFETY: it is a number; each use checks it.
unsafe impl<T> Send for UserPtr<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for UserPtr<T> {}

impl<T> Clone for UserPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserPtr<T> {}

impl<T> core::fmt::Debug for UserPtr<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl<T> UserPtr<T> {
    /// The pointer with this address; any number will do.
    #[inline]
    pub const fn new(address: usize) -> Self {
        UserPtr(address, PhantomData)
    }

    /// The address.
    #[inline]
    pub const fn address(self) -> usize {
        self.0
    }

    /// Whether the program gave NULL.
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns `None` for NULL: for arguments that may be left out.
    #[inline]
    pub fn optional(self) -> Option<Self> {
        if self.is_null() { None } else { Some(self) }
    }

    /// The pointer to the `index`th element of an array that begins here.
    #[inline]
    pub const fn at(self, index: usize) -> Self {
        UserPtr(self.0.wrapping_add(index.wrapping_mul(size_of::<T>())), PhantomData)
    }

    /// The same address as another type's.
    #[inline]
    pub const fn cast<U>(self) -> UserPtr<U> {
        UserPtr(self.0, PhantomData)
    }

    /// The pointer `bytes` further on, as another type's.
    #[inline]
    pub const fn offset<U>(self, bytes: usize) -> UserPtr<U> {
        UserPtr(self.0.wrapping_add(bytes), PhantomData)
    }
}

impl<T: FromBytes> UserPtr<T> {
    /// Reads the value.
    #[inline]
    pub fn read(self) -> Result<T> {
        if !in_user_half(self.0, size_of::<T>()) {
            return Err(Errno::EFAULT);
        }
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the target is `value`; the source is in the program's half and may fault.
        let left =
            unsafe { access::copy_value(value.as_mut_ptr() as usize, self.0, size_of::<T>()) };
        if left != 0 {
            return Err(Errno::EFAULT);
        }
        // SAFETY: every byte was written, and any bytes are a valid T (FromBytes).
        Ok(unsafe { value.assume_init() })
    }

    /// Reads an array into `to`.
    #[inline]
    pub fn read_slice(self, to: &mut [T]) -> Result<()>
    where
        T: IntoBytes,
    {
        copy_in(to.as_mut_bytes(), self.0)
    }
}

impl<T: IntoBytes + Immutable> UserPtr<T> {
    /// Writes the value.
    #[inline]
    pub fn write(self, value: &T) -> Result<()> {
        if !in_user_half(self.0, size_of::<T>()) {
            return Err(Errno::EFAULT);
        }
        // SAFETY: the source is `value`, which has no padding (IntoBytes); the target is in the
        // program's half and may fault.
        match unsafe { access::copy_value(self.0, &raw const *value as usize, size_of::<T>()) } {
            0 => Ok(()),
            _ => Err(Errno::EFAULT),
        }
    }

    /// Writes an array.
    #[inline]
    pub fn write_slice(self, values: &[T]) -> Result<()> {
        copy_out(self.0, values.as_bytes())
    }
}

/// A range of bytes in the program's memory, as the program gave it. Nothing is checked before it
/// is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserBytes {
    /// Where it begins.
    pub address: usize,
    /// How long it is.
    pub len: usize,
}

impl UserBytes {
    /// The range with this address and length.
    #[inline]
    pub const fn new(address: usize, len: usize) -> Self {
        UserBytes { address, len }
    }

    /// Whether it is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the range of the first `len` bytes.
    #[inline]
    pub fn first(self, len: usize) -> Self {
        UserBytes { len: len.min(self.len), ..self }
    }

    /// Returns the range after the first `len` bytes.
    #[inline]
    pub fn skip(self, len: usize) -> Self {
        let len = len.min(self.len);
        UserBytes { address: self.address.wrapping_add(len), len: self.len - len }
    }

    /// Copies the beginning of the range to `to`, as much as fits; returns the number of bytes.
    pub fn read(self, to: &mut [u8]) -> Result<usize> {
        let len = to.len().min(self.len);
        copy_in(&mut to[..len], self.address)?;
        Ok(len)
    }

    /// Copies `from` to the beginning of the range, as much as fits; returns the number of bytes.
    pub fn write(self, from: &[u8]) -> Result<usize> {
        let len = from.len().min(self.len);
        copy_out(self.address, &from[..len])?;
        Ok(len)
    }
}
