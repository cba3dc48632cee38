//! Core files (`core(5)`, `elf(5)`): their names and their content.
//!
//! [`name`] makes a name, or a program with its arguments, from a pattern; [`image`] makes the
//! headers of an ELF core file for x86-64; [`notes`] makes the notes, in the layout that Linux 6.1
//! writes (fs/binfmt_elf.c, include/uapi/linux/elfcore.h) and debuggers read. All of it turns
//! values into bytes: the kernel stops a process, reads its memory and writes the file.
//!
//! Every list grows by requests that can fail, because a program determines its size: its threads,
//! its mappings and their names.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod image;
pub mod name;
pub mod notes;

use alloc::vec::Vec;

/// Memory is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// The result of functions that fail when memory is exhausted.
pub type Result<T> = core::result::Result<T, OutOfMemory>;

/// Appends `bytes`.
fn append(list: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
    list.try_reserve(bytes.len()).map_err(|_| OutOfMemory)?;
    list.extend_from_slice(bytes);
    Ok(())
}
