//! The running mode of a process: user mode (ring 3) or supervisor mode (ring 0).
//!
//! **A trust boundary.** A program in supervisor mode can do what the kernel can. The mode is for
//! programs that whoever owns the machine would link into the kernel; it is given by root with
//! `CAP_SYS_RAWIO` only (the capability of `iopl(2)`), for another user's process only with
//! `CAP_SYS_PTRACE` besides, to a program with set-user-id bits never, and `supervisor=off` on the
//! kernel's command line takes it away for good. docs/dmsm.md says what can still be bounded.
//!
//! The switch itself is the space's ([`crate::memory::supervisor`]); it needs nothing of the
//! threads, in whatever state they are, so it works for a process that runs, sleeps, is stopped or
//! handles a signal alike. What is kept here is who may, who did, and what exec does: a new program
//! starts in user mode unless the process was told to keep its mode ([`Process::keeps_mode`]), which
//! children inherit.
//!
//! Exec exchanges space and program while others switch the mode, so both happen with the process
//! [steady](Process::steady). That a set-user-id program never gets the mode is a property of its
//! space besides ([`Space::stay_user`]): whoever reaches the space, and by whatever process, is
//! refused.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_machine::boot;
use hayate_machine::log::{self, Level};
use hayate_machine::sync::Once;

use super::{Process, Thread, current};
use crate::credentials::Capability;
use crate::memory::Space;

/// Whether the command line says `supervisor=off`.
fn is_off() -> bool {
    static OFF: Once<bool> = Once::new();
    *OFF.call_once(|| boot::option("supervisor") == Some("off"))
}

/// Whether `caller` may change the mode of `target`. To go back to user mode needs no privilege over
/// a process that one may send signals to.
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

/// Puts all threads of a process into supervisor mode, or back into user mode; when it returns, they
/// are. `keep`: programs that the process executes start in supervisor mode, too, and so do its
/// children's.
///
/// `EOPNOTSUPP` with `supervisor=off`, `EPERM` without the privilege or for a set-user-id program,
/// `ESRCH` for a process that has ended.
pub fn switch(process: &Arc<Process>, supervisor: bool, keep: bool) -> Result<()> {
    if is_off() {
        return Err(Errno::EOPNOTSUPP);
    }
    let caller = current();
    let target = process.first_thread().ok_or(Errno::ESRCH)?;
    if supervisor {
        hayate_machine::trap::watch_programs();
    }
    // Dropped after the lock; nobody may be left who has the space but this.
    let mut held = None;
    let changed = process.steady(|| -> Result<bool> {
        permit(&caller, &target, supervisor)?;
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

/// Gives a new program's space the mode that it starts in; `set_id`: the program has set-user-id or
/// set-group-id bits, whether it gained by them or not. Called when nobody has the space yet, with
/// the process [steady](Process::steady).
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
