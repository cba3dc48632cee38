//! The running mode of a process: user mode (ring 3) or supervisor mode (ring 0).
//!
//! **A trust boundary.** A program in supervisor mode can do what the kernel can. The mode is for
//! programs that the owner of the machine would link into the kernel. Only root with
//! `CAP_SYS_RAWIO` (the capability of `iopl(2)`) can give it, for another user's process only with
//! `CAP_SYS_PTRACE` besides, and never to a program with set-user-id bits. `supervisor=off` on the
//! kernel's command line forbids it for good. docs/dmsm.md lists what can still be bounded.
//!
//! The switch itself belongs to the space ([`crate::supervisor::space`]). It needs nothing of the
//! threads, so it works for a process that runs, sleeps, is stopped or handles a signal. This
//! module has the permission check, the log, and the rule of exec: a new program starts in user
//! mode unless the process was told to keep its mode ([`Process::keeps_mode`]), which children
//! inherit.
//!
//! Exec replaces space and program while other processes may switch the mode, so both happen with
//! the process [steady](Process::steady). In addition, the space of a set-user-id program can never
//! get the mode ([`Space::stay_user`]), whatever process tries to switch it.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_machine::boot;
use hayate_machine::log::{self, Level};
use hayate_machine::sync::Once;

use crate::credentials::Capability;
use crate::memory::Space;
use crate::process::record::Process;
use crate::process::seccomp;
use crate::process::thread::{Thread, current};

/// Whether the command line says `supervisor=off`.
fn is_off() -> bool {
    static OFF: Once<bool> = Once::new();
    *OFF.call_once(|| boot::option("supervisor") == Some("off"))
}

/// Whether `caller` may change the mode of `target`. Switching back to user mode needs only the
/// right to send signals to the process.
fn permit(caller: &Thread, target: &Thread, supervisor: bool) -> Result<()> {
    let own = caller.credentials();
    let other = target.credentials();
    if !supervisor {
        return if own.may_signal(&other) { Ok(()) } else { Err(Errno::EPERM) };
    }
    if own.euid != 0 {
        return Err(Errno::EPERM);
    }
    own.require(Capability::SysRawio)?;
    let same = [other.uid, other.euid, other.suid].iter().all(|&id| id == own.uid);
    if same { Ok(()) } else { own.require(Capability::SysPtrace) }
}

/// Puts all threads of a process into supervisor mode, or back into user mode; the switch is
/// complete on return. `keep`: programs that the process and its children execute start in
/// supervisor mode, too.
///
/// Fails with `EOPNOTSUPP` with `supervisor=off`, `EPERM` without the privilege, for a set-user-id
/// program, or if a thread has filters of system calls ([`seccomp`]), `ESRCH` for a process that
/// has ended.
pub fn switch(process: &Arc<Process>, supervisor: bool, keep: bool) -> Result<()> {
    if is_off() {
        return Err(Errno::EOPNOTSUPP);
    }
    let caller = current();
    let target = process.first_thread().ok_or(Errno::ESRCH)?;
    if supervisor {
        hayate_machine::trap::watch_programs();
    }
    // Dropped after the lock is released: this may be the last reference to the space.
    let mut held = None;
    let changed = process.steady(|| -> Result<bool> {
        permit(&caller, &target, supervisor)?;
        let mut filtered = false;
        process.for_each_thread(|thread| filtered |= seccomp::is_filtered(thread));
        if supervisor && filtered {
            return Err(Errno::EPERM);
        }
        let space = held.insert(target.space().ok_or(Errno::ESRCH)?);
        let changed = space.set_supervisor(supervisor)?;
        process.keeps_mode.store(supervisor && keep, Ordering::Relaxed);
        Ok(changed)
    })?;
    if changed {
        process.mode_switches.fetch_add(1, Ordering::Relaxed);
        let words = [process.id().into(), u64::from(supervisor), caller.process.id().into(), 0];
        log::later(Level::Info, words, |&[target, supervisor, caller, _], f| {
            let mode = if supervisor != 0 { "supervisor" } else { "user" };
            write!(f, "process {target} switched to {mode} mode by process {caller}")
        });
    }
    Ok(())
}

/// Gives a new program's space the mode that it starts in. `set_id`: the program has set-user-id or
/// set-group-id bits or file capabilities, whether it gained rights by them or not. Called when no
/// thread uses the space yet, with the process [steady](Process::steady).
pub fn begin_program(process: &Process, space: &Space, set_id: bool) {
    if set_id {
        space.stay_user();
    }
    if !process.keeps_mode.load(Ordering::Relaxed) {
        return;
    }
    if is_off() || space.set_supervisor(true).is_err() {
        process.keeps_mode.store(false, Ordering::Relaxed);
    }
}
