//! Core files (`core(5)`, `elf(5)`): what they are called and what stands in them.
//!
//! [`name`] makes a name, or a program with its arguments, of a pattern; [`image`] the headers of an
//! ELF core file for x86-64; [`notes`] the notes, in the layout that Linux 6.1 writes
//! (fs/binfmt_elf.c, include/uapi/linux/elfcore.h) and debuggers read. All of it is bytes out of
//! values: who stops a process, reads its memory and writes the file is the kernel's part.
//!
//! Everything grows by requests that can fail, for a program sizes it: its threads, its mappings and
//! their names.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod image;
pub mod name;
pub mod notes;

use alloc::vec::Vec;

/// There is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// What can fail for want of memory.
pub type Result<T> = core::result::Result<T, OutOfMemory>;

/// Appends `bytes`.
fn append(list: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    list.try_reserve(bytes.len()).map_err(|_| OutOfMemory)?;
    list.extend_from_slice(bytes);
    Ok(())
}
