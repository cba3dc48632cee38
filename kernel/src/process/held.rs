//! Descriptors of spaces and programs, which a process uses to transform itself (`syscall/own.rs`).
//!
//! Such a descriptor holds a counted reference, so its space or program exists as long as it is
//! open. It can be passed on as any descriptor (fork, `SCM_RIGHTS`). A process that holds a space
//! may work in it, which gives it no more than the sender could have shown it by itself.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use crate::memory::Space;
use crate::program::Program;
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::O_RDWR;
use crate::vfs::open_file::{FileOps, OpenFile, Traits};

/// A space held by a descriptor.
struct HeldSpace(Arc<Space>);

/// A program held by a descriptor.
pub struct HeldProgram {
    /// The program.
    pub program: Arc<Program>,
    /// The path by which it was named.
    pub path: Vec<u8>,
}

/// Opens a descriptor for a space.
pub fn hold_space(space: Arc<Space>) -> Result<Arc<OpenFile>> {
    anonymous::open("[hayate-space]", Arc::new(HeldSpace(space)), O_RDWR)
}

/// Opens a descriptor for a program that was named by `path`.
pub fn hold_program(program: Program, path: Vec<u8>) -> Result<Arc<OpenFile>> {
    let held = HeldProgram { program: Arc::new(program), path };
    anonymous::open("[hayate-program]", Arc::new(held), O_RDWR)
}

/// The space of a descriptor. Fails with `EBADF` if the file holds none.
pub fn space(file: &OpenFile) -> Result<Arc<Space>> {
    file.ops_as::<HeldSpace>().map(|held| held.0.clone()).ok_or(Errno::EBADF)
}

/// The program of a descriptor. Fails with `EBADF` if the file holds none.
pub fn program(file: &OpenFile) -> Result<&HeldProgram> {
    file.ops_as::<HeldProgram>().ok_or(Errno::EBADF)
}

impl FileOps for HeldSpace {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let pages = self.0.resident().pages();
        Some(format!("Space-size:\t{}\nSpace-pages:\t{pages}\n", self.0.size()).into_bytes())
    }
}

impl FileOps for HeldProgram {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let mut text = b"Program:\t".to_vec();
        text.extend_from_slice(&self.program.name);
        text.push(b'\n');
        Some(text)
    }
}
