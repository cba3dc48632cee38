//! Turns the bytes of an executable into a load plan: no I/O, no panic on any input.
//!
//! An executable is either an ELF file or a script. [`Image::recognise`] decides by the first
//! bytes. For ELF the caller then reads the program headers, wherever they are, and [`Plan::new`]
//! turns them into the list of mappings. No number of the file is trusted: every sum is checked,
//! and a plan only contains addresses of the user half.
//!
//! The rules are those of `fs/binfmt_elf.c` and `fs/binfmt_script.c` of Linux 6.1; where Linux
//! differs from the ELF specification, this crate follows Linux.
//! programs of the world disagree with the ELF specification, Linux is right here.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod elf;
mod script;

use hayate_abi::{Errno, Result};

pub use elf::{Header, Plan, Position, Segment, flags};
pub use script::Script;

/// How many bytes of a file [`Image::recognise`] needs (`BINPRM_BUF_SIZE` of Linux); fewer are
/// enough only if the file ends there.
pub const HEAD: usize = 256;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// The kind of executable that a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image<'a> {
    /// An ELF file; its program headers come next.
    Elf(Header),
    /// A text for an interpreter.
    Script(Script<'a>),
}

impl<'a> Image<'a> {
    /// Recognises an executable by its first bytes, of which [`HEAD`] suffice.
    ///
    /// `ENOEXEC` if it cannot be executed here.
    pub fn recognise(head: &'a [u8]) -> Result<Image<'a>> {
        if head.starts_with(b"\x7fELF") {
            Header::parse(head).map(Image::Elf)
        } else if head.starts_with(b"#!") {
            Script::parse(head).map(Image::Script)
        } else {
            Err(Errno::ENOEXEC)
        }
    }
}
