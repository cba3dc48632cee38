//! Descriptors of processes (`pidfd_open(2)`, `CLONE_PIDFD`).
//!
//! The descriptor refers to the process itself. When the number is given to another process, the
//! descriptor still refers to the old one and reports that it is gone.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::record::Process;
use crate::vfs::anonymous;
use crate::vfs::open_file::flags::{O_NONBLOCK, O_RDWR};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};

/// A process referred to by a descriptor.
pub struct PidFd(Arc<Process>);

/// Opens a descriptor for a process; of `flags` only `O_NONBLOCK` counts.
pub fn open(process: &Arc<Process>, flags: u32) -> Result<Arc<OpenFile>> {
    let held = Arc::new(PidFd(process.clone()));
    anonymous::open("[pidfd]", held, O_RDWR | flags & O_NONBLOCK)
}

/// The process of a descriptor. Fails with `EBADF` if the file is no such descriptor, `ESRCH` if
/// the parent has waited for the process.
pub fn process(file: &OpenFile) -> Result<Arc<Process>> {
    let held = file.ops_as::<PidFd>().ok_or(Errno::EBADF)?;
    if held.0.is_reaped() { Err(Errno::ESRCH) } else { Ok(held.0.clone()) }
}

impl FileOps for PidFd {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn poll(&self, _: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.0.signal_events);
        if self.0.is_zombie() { Events::READABLE } else { Events::empty() }
    }

    fn describe(&self, _: &OpenFile) -> Option<Vec<u8>> {
        let pid = if self.0.is_reaped() { -1 } else { self.0.id() as i32 };
        Some(format!("Pid:\t{pid}\nNSpid:\t{pid}\n").into_bytes())
    }
}
