//! Bytes of an executable to a load plan: no I/O, no panic on any input.
//!
//! An executable is either an ELF file or a script. [`Image::recognise`] looks at the first bytes
//! and says which; for ELF the caller then reads the program headers, wherever they lie, and
//! [`Plan::new`] turns them into what is to be mapped. Nothing here trusts a number of the file:
//! every sum is checked, and a plan only ever names addresses of the user half.
//!
//! The rules are those of `fs/binfmt_elf.c` and `fs/binfmt_script.c` of Linux 6.1; where the two
//! programs of the world disagree with the ELF specification, Linux is right here.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod elf;
mod script;

use hayate_abi::{Errno, Result};

pub use elf::{Header, Plan, Position, Segment, flags};
pub use script::Script;

/// Bytes of a file that [`Image::recognise`] wants to see (`BINPRM_BUF_SIZE` of Linux): it gets by
/// with fewer only if the file ends there.
pub const HEAD: usize = 256;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// What kind of executable a file is.
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
    /// `ENOEXEC` if it is none that can be executed here.
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
