//! Descriptors of processes (`pidfd_open(2)`, `CLONE_PIDFD`).
//!
//! The descriptor refers to the process itself. When the number is given to another process, the
//! descriptor still refers to the old one and reports that it is gone.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::pid_namespace;
use super::pid_namespace::PidNamespace;
use super::record::Process;
use crate::reclaim::growth;
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
}

/// The lines of `/proc/PID/fdinfo` about a descriptor of a process: its number in the PID namespace
/// of that procfs, and those in the namespaces below; `None` for another file. `ENOMEM`.
pub fn describe(file: &OpenFile, pids: &PidNamespace) -> Option<Result<Vec<u8>>> {
    let process = &file.ops_as::<PidFd>()?.0;
    if process.is_reaped() {
        return Some(growth::copy(b"Pid:\t-1\nNSpid:\t-1\n"));
    }
    let number = pids.shown(process.id());
    let mut text = format!("Pid:\t{number}\nNSpid:\t{number}").into_bytes();
    let below = match number {
        0 => Ok(()),
        _ => pid_namespace::list_below(pids, process, process.id(), &mut text),
    };
    Some(below.and_then(|()| growth::append(&mut text, b"\n")).map(|()| text))
}
