//! Signals (`kill(2)`, `sigaction(2)`, `sigprocmask(2)`, `sigreturn(2)` and related calls).

use alloc::sync::Arc;

use hayate_abi::signal::*;
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_machine::trap::UserRegs;
use hayate_machine::user::UserPtr;

use crate::process;
use crate::process::signal::{UNBLOCKABLE, frame, is_signal, send};
use crate::process::{Process, Restart, Thread, numbers, pids, visible};
use crate::schedule::{Woken, sleep_until, time};

/// Checks the size of a signal set: any other is that of another architecture.
fn check_size(size: usize) -> Result<()> {
    if size == size_of::<SignalSet>() { Ok(()) } else { Err(Errno::EINVAL) }
}

fn number(signal: i32) -> Result<u32> {
    let signal = u32::try_from(signal).map_err(|_| Errno::EINVAL)?;
    if signal == 0 || is_signal(signal) { Ok(signal) } else { Err(Errno::EINVAL) }
}

/// Whether the caller may send `signal` to a process (`check_kill_permission`).
fn may_signal(caller: &Thread, target: &Process, signal: u32) -> bool {
    if core::ptr::eq(&*caller.process, target) {
        return true;
    }
    if signal == SIGCONT && caller.process.session_id() == target.session_id() {
        return true;
    }
    // A zombie still has its last thread.
    target
        .first_thread()
        .is_some_and(|thread| caller.credentials().may_signal(&thread.credentials()))
}

/// The process with this number for the caller, which may also be the number of one of its threads,
/// as in Linux.
fn find_process(number: u32) -> Option<Arc<Process>> {
    let kernel = visible::meant(number);
    pids::process(kernel).or_else(|| pids::thread(kernel).map(|thread| thread.process.clone()))
}

fn from_caller(caller: &Thread, signal: u32, code: i32) -> Siginfo {
    Siginfo::from_sender(signal, code, caller.process.id(), caller.credentials().uid)
}

/// `kill(2)`
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    let caller = process::current();
    // The process is checked before the signal's number.
    let info = from_caller(&caller, signal as u32, SI_USER);
    match pid {
        i32::MIN => Err(Errno::ESRCH),
        -1 => kill_all(&caller, info),
        0 => kill_group(&caller, caller.process.group(), info),
        group if group < 0 => kill_group(&caller, visible::meant(group.unsigned_abs()), info),
        pid => {
            let target = find_process(pid.unsigned_abs()).ok_or(Errno::ESRCH)?;
            send_to(&caller, &target, info)
        }
    }
}

/// Sends a signal if the caller may; else fails with `EPERM`.
pub fn send_to(caller: &Thread, target: &Arc<Process>, info: Siginfo) -> Result<()> {
    let signal = number(info.si_signo)?;
    if !may_signal(caller, target, signal) {
        return Err(Errno::EPERM);
    }
    if signal == 0 { Ok(()) } else { send::to_process(target, info) }
}

fn kill_group(caller: &Thread, group: u32, info: Siginfo) -> Result<()> {
    let signal = info.si_signo as u32;
    let valid = number(info.si_signo);
    let mut allowed = 0;
    let (met, _) = send::to_group(group, info, |target| {
        let may = valid.is_ok() && may_signal(caller, target, signal);
        allowed += usize::from(may);
        may && signal != 0
    })?;
    match (met, allowed) {
        (0, _) => Err(Errno::ESRCH),
        _ if valid.is_err() => Err(Errno::EINVAL),
        (_, 0) => Err(Errno::EPERM),
        _ => Ok(()),
    }
}

/// Sends a signal to every process that the caller sees, but the init and its own.
fn kill_all(caller: &Thread, info: Siginfo) -> Result<()> {
    let mut met = 0;
    let mut result = Ok(());
    let init = caller.process.pid_namespace().init();
    for target in visible::processes()? {
        let is_init = init.as_ref().is_some_and(|init| Arc::ptr_eq(init, &target));
        if !is_init && !Arc::ptr_eq(&target, &caller.process) {
            met += 1;
            match send_to(caller, &target, info) {
                Err(Errno::EPERM) => {}
                other => result = other,
            }
        }
    }
    if met == 0 { Err(Errno::ESRCH) } else { result }
}

fn find_thread(group: Option<i32>, tid: i32) -> Result<Arc<Thread>> {
    let positive = |id: i32| u32::try_from(id).ok().filter(|&id| id > 0).ok_or(Errno::EINVAL);
    let tid = positive(tid)?;
    let group = group.map(positive).transpose()?;
    let thread = visible::thread(tid).ok_or(Errno::ESRCH)?;
    match group.map(visible::meant) {
        Some(group) if thread.process.id() != group => Err(Errno::ESRCH),
        _ => Ok(thread),
    }
}

fn send_to_thread(caller: &Thread, target: &Thread, info: Siginfo) -> Result<()> {
    let signal = number(info.si_signo)?;
    if !may_signal(caller, &target.process, signal) {
        return Err(Errno::EPERM);
    }
    if signal == 0 { Ok(()) } else { send::to_thread(target, info) }
}

/// `tkill(2)`
pub fn tkill(tid: i32, signal: i32) -> Result<()> {
    let caller = process::current();
    let target = find_thread(None, tid)?;
    let info = from_caller(&caller, signal as u32, SI_TKILL);
    send_to_thread(&caller, &target, info)
}

/// `tgkill(2)`
pub fn tgkill(pid: i32, tid: i32, signal: i32) -> Result<()> {
    let caller = process::current();
    let target = find_thread(Some(pid), tid)?;
    let info = from_caller(&caller, signal as u32, SI_TKILL);
    send_to_thread(&caller, &target, info)
}

/// Reads the information that a program sends with a signal (`copy_siginfo_from_user`,
/// kernel/signal.c of Linux 6.1), with `signal` as its number if that is given. Only the part of
/// the structure that the kernel knows reaches the receiver. Fails with `E2BIG` if a code of an
/// unknown kind may give the rest a meaning.
pub fn read_info(address: usize, signal: Option<i32>) -> Result<Siginfo> {
    /// Words of the union within the kernel's `struct kernel_siginfo`.
    const KNOWN_WORDS: usize = 4;
    let mut info: Siginfo = UserPtr::new(address).read()?;
    info.hole = 0;
    info.si_signo = signal.unwrap_or(info.si_signo);
    let known = has_known_layout(info.si_signo, info.si_code);
    let (_, rest) = info.fields.split_at_mut(KNOWN_WORDS);
    if rest.iter().any(|&word| word != 0) && !known {
        return Err(Errno::E2BIG);
    }
    rest.fill(0);
    Ok(info)
}

/// Whether Linux 6.1 knows the layout of a signal with this code (`known_siginfo_layout`).
fn has_known_layout(signal: i32, code: i32) -> bool {
    const SI_ASYNCNL: i32 = -60;
    const SI_DETHREAD: i32 = -7;
    const NSIGPOLL: i32 = 6;
    let last = match signal as u32 {
        SIGILL => 11,
        SIGFPE => 15,
        SIGSEGV => 9,
        SIGBUS => 5,
        SIGTRAP => 6,
        SIGCHLD => 6,
        SIGIO => NSIGPOLL,
        SIGSYS => 2,
        _ => 0,
    };
    match code {
        SI_KERNEL => true,
        code if code > SI_USER => code <= last.max(NSIGPOLL),
        code => code >= SI_DETHREAD || code == SI_ASYNCNL,
    }
}

/// Fails with `EPERM` if a program pretends to be the kernel or `kill(2)` towards another thread
/// than itself.
pub fn check_code(code: i32, is_own: bool) -> Result<()> {
    if !is_own && (code >= 0 || code == SI_TKILL) { Err(Errno::EPERM) } else { Ok(()) }
}

/// `rt_sigqueueinfo(2)`: the number of any of its threads refers to the process.
pub fn rt_sigqueueinfo(pid: i32, signal: i32, info: usize) -> Result<()> {
    let caller = process::current();
    let info = numbers::told_by_current(read_info(info, Some(signal))?);
    check_code(info.si_code, pid as u32 == caller.own_id())?;
    let target = u32::try_from(pid).ok().and_then(find_process).ok_or(Errno::ESRCH)?;
    send_to(&caller, &target, info)
}

/// `rt_tgsigqueueinfo(2)`
pub fn rt_tgsigqueueinfo(pid: i32, tid: i32, signal: i32, info: usize) -> Result<()> {
    let caller = process::current();
    let info = numbers::told_by_current(read_info(info, Some(signal))?);
    if pid <= 0 || tid <= 0 {
        return Err(Errno::EINVAL);
    }
    check_code(info.si_code, tid as u32 == caller.own_id())?;
    let target = find_thread(Some(pid), tid)?;
    send_to_thread(&caller, &target, info)
}

/// `rt_sigaction(2)`
pub fn rt_sigaction(signal: i32, new: usize, old: usize, size: usize) -> Result<()> {
    check_size(size)?;
    let signal = u32::try_from(signal).map_err(|_| Errno::EINVAL)?;
    let new: Option<Sigaction> = match new {
        0 => None,
        address => Some(UserPtr::new(address).read()?),
    };
    if !is_signal(signal) || (new.is_some() && UNBLOCKABLE & bit(signal) != 0) {
        return Err(Errno::EINVAL);
    }
    let process = &process::current().process;
    let actions = process.actions();
    let before = match new {
        Some(new) => actions.replace(signal, new),
        None => actions.get(signal),
    };
    if new.is_some() && actions.ignores(signal) {
        // A pending signal that is now ignored is discarded, blocked or not (POSIX 3.3.1.3).
        process.queue.discard(bit(signal));
        process.for_each_thread(|thread| thread.queue.discard(bit(signal)));
    }
    if old != 0 {
        UserPtr::new(old).write(&before)?;
    }
    Ok(())
}

/// `rt_sigprocmask(2)`
pub fn rt_sigprocmask(how: i32, new: usize, old: usize, size: usize) -> Result<()> {
    const SIG_BLOCK: i32 = 0;
    const SIG_UNBLOCK: i32 = 1;
    const SIG_SETMASK: i32 = 2;
    check_size(size)?;
    let thread = process::current();
    let before = thread.blocked();
    if new != 0 {
        let set: SignalSet = UserPtr::new(new).read()?;
        thread.set_blocked(match how {
            SIG_BLOCK => before | set,
            SIG_UNBLOCK => before & !set,
            SIG_SETMASK => set,
            _ => return Err(Errno::EINVAL),
        });
    }
    if old != 0 {
        UserPtr::new(old).write(&before)?;
    }
    Ok(())
}

/// `rt_sigreturn(2)`
pub fn rt_sigreturn(regs: &mut UserRegs) -> i64 {
    let thread = process::current();
    match frame::leave_handler(&thread, regs) {
        Ok(value) => value,
        Err(_) => {
            send::force(&thread, Siginfo::new(SIGSEGV, SI_KERNEL));
            0
        }
    }
}

/// `pause(2)`
pub fn pause() -> Result<()> {
    let _: core::result::Result<(), Woken> = sleep_until(u64::MAX, true);
    Err(Errno::ERESTARTNOHAND)
}

/// `rt_sigpending(2)`
pub fn rt_sigpending(set: usize, size: usize) -> Result<()> {
    if size > size_of::<SignalSet>() {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    let bytes = (thread.pending() & thread.blocked()).to_le_bytes();
    hayate_machine::user::copy_out(set, bytes.get(..size).unwrap_or(&bytes))
}

/// `rt_sigtimedwait(2)`
pub fn rt_sigtimedwait(set: usize, info: usize, timeout: usize, size: usize) -> Result<u32> {
    check_size(size)?;
    let wanted: SignalSet = UserPtr::<SignalSet>::new(set).read()? & !UNBLOCKABLE;
    let deadline = match timeout {
        0 => None,
        address => {
            let time: Timespec = UserPtr::new(address).read()?;
            Some(time::monotonic_ns().saturating_add(time.to_nanos()?))
        }
    };
    let thread = process::current();
    let take = || thread.take_signal(wanted);
    let found = match thread.process.signal_events.wait_interruptible(deadline, take) {
        Ok(found) => found,
        Err(Woken::TimedOut) => return Err(Errno::EAGAIN),
        Err(Woken::Interrupted) => return Err(Errno::EINTR),
    };
    if info != 0 {
        UserPtr::new(info).write(&found)?;
    }
    Ok(found.si_signo as u32)
}

/// `rt_sigsuspend(2)`
pub fn rt_sigsuspend(mask: usize, size: usize) -> Result<()> {
    check_size(size)?;
    let mask: SignalSet = UserPtr::new(mask).read()?;
    process::current().replace_mask(mask);
    let _: core::result::Result<(), Woken> = sleep_until(u64::MAX, true);
    // The old mask is restored when the signal is taken.
    Err(Errno::ERESTARTNOHAND)
}

/// `sigaltstack(2)`
pub fn sigaltstack(regs: &mut UserRegs, new: usize, old: usize) -> Result<()> {
    let thread = process::current();
    let before = thread.signal_stack();
    if new != 0 {
        let stack: SignalStack = UserPtr::new(new).read()?;
        frame::set_stack(&thread, &stack, regs.rsp)?;
    }
    if old != 0 {
        let shown = SignalStack { ss_flags: frame::shown_flags(&before, regs.rsp), ..before };
        UserPtr::new(old).write(&shown)?;
    }
    Ok(())
}

/// `restart_syscall(2)`: continues a sleep that a signal without a handler interrupted.
pub fn restart_syscall() -> Result<i64> {
    match process::current().take_restart() {
        Restart::Nothing => Err(Errno::EINTR),
        Restart::Sleep { deadline, remaining } => {
            super::time::sleep(deadline, remaining).map(|()| 0)
        }
        Restart::CpuSleep { clock, due, remaining } => {
            super::time::sleep_on_again(clock, due, remaining).map(|()| 0)
        }
        Restart::Futex { address, value, private, until, bits } => {
            super::futex::wait_again(address, value, private, until, bits).map(|()| 0)
        }
        Restart::Poll { fds, count, deadline } => {
            super::file::events::poll_again(fds, count, deadline).map(|ready| ready as i64)
        }
    }
}
