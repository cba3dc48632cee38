//! Descriptors of processes (`pidfd_open(2)`, `pidfd_send_signal(2)`, `pidfd_getfd(2)`).

use alloc::sync::Arc;

use hayate_abi::signal::{SI_USER, Siginfo};
use hayate_abi::{Errno, Result};

use super::file::open_file;
use super::signal;
use crate::fs::proc;
use crate::process;
use crate::process::access::{self, Ids};
use crate::process::{numbers, pidfd, pids, visible};
use crate::vfs::open_file::flags::O_NONBLOCK;

/// `pidfd_open(2)`
pub fn pidfd_open(pid: i32, flags: u32) -> Result<i32> {
    if flags & !O_NONBLOCK != 0 {
        return Err(Errno::EINVAL);
    }
    let number = u32::try_from(pid).ok().filter(|&pid| pid > 0).ok_or(Errno::EINVAL)?;
    let number = visible::meant(number);
    let target = match pids::process(number) {
        Some(process) => process,
        // A thread that is not the first of its process has no descriptor.
        None if pids::thread(number).is_some() => return Err(Errno::EINVAL),
        None => return Err(Errno::ESRCH),
    };
    process::current().install(pidfd::open(&target, flags)?, true)
}

/// `pidfd_send_signal(2)`: also takes a descriptor of the directory `/proc/PID`.
pub fn pidfd_send_signal(fd: i32, number: i32, info: usize, flags: u32) -> Result<()> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let file = open_file(fd)?;
    let target = match pidfd::process(&file) {
        Err(Errno::EBADF) => proc::process_of(&file).ok_or(Errno::EBADF)??,
        found => found?,
    };
    let caller = process::current();
    // Nobody reaches out of its PID namespace (`access_pidfd_pidns`).
    if !target.pid_namespace().is_within(&caller.process.pid_namespace()) {
        return Err(Errno::EINVAL);
    }
    let info = match info {
        0 => {
            let uid = caller.credentials().uid;
            Siginfo::from_sender(number as u32, SI_USER, caller.process.id(), uid)
        }
        address => {
            let given = numbers::told_by_current(signal::read_info(address, None)?);
            if given.si_signo != number {
                return Err(Errno::EINVAL);
            }
            let is_own = Arc::ptr_eq(&target, &caller.process) && caller.id() == target.id();
            signal::check_code(given.si_code, is_own)?;
            given
        }
    };
    signal::send_to(&caller, &target, info)
}

/// `pidfd_getfd(2)`: also copies a descriptor of `O_PATH`, as `dup(2)` does.
pub fn pidfd_getfd(pidfd: i32, fd: i32, flags: u32) -> Result<i32> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let target = pidfd::process(&*open_file(pidfd)?)?;
    // The descriptors are those of its first thread, which may have ended before others.
    let first = target.thread(target.id()).ok_or(Errno::EBADF)?;
    let own = process::current();
    // Check and take the descriptors of one program, even if it executes another one meanwhile.
    let (allowed, files, space) =
        target.steady(|| (access::check(&first, Ids::Real), first.try_files(), first.space()));
    allowed?;
    let file = files.ok_or(Errno::EBADF)?.get(fd)?;
    if let Some(space) = space.filter(|_| !Arc::ptr_eq(&target, &own.process)) {
        // Both have one position from now on, and the next start of its command must not have
        // that from here.
        space.note_outside();
    }
    own.install(file, true)
}
