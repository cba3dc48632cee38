//! Delivery of signals, on the way back to user mode.

use hayate_abi::Errno;
use hayate_abi::signal::*;
use hayate_machine::trap::UserRegs;
use hayate_machine::user::UserPtr;

use super::actions::Disposition;
use super::sets::{CORE, IGNORED_BY_DEFAULT, STOPS};
use super::{frame, send, stopping};
use crate::process::cgroup::freezer;
use crate::process::images;
use crate::process::images::recording;
use crate::process::record::{Process, notice};
use crate::process::thread::{Thread, current};
use crate::process::{dump, exit, job_control, tracing};
use crate::schedule;

/// The number of `restart_syscall(2)`.
const RESTART_SYSCALL: u64 = 219;

/// Handles everything that wants the current thread's attention. Returns when nothing is left, or
/// not at all if the thread ends.
pub fn attend(regs: &mut UserRegs) {
    let thread = current();
    let start_tid = thread.start_tid();
    if start_tid != 0 {
        thread.set_start_tid(0);
        // As in Linux, a bad address is ignored.
        let _ = UserPtr::<u32>::new(start_tid).write(&thread.own_id());
    }
    loop {
        schedule::current().clear_interrupt();
        let involved = thread.process.is_involved();
        if involved && tracing::stop::attend(&thread, regs) {
            continue;
        }
        let raised = thread.process.notice();
        if raised & (notice::EXIT | notice::EXEC | notice::ZOMBIE) != 0 {
            if raised & notice::DUMP != 0 {
                dump::wait(&thread, regs);
            }
            if let Some(status) = exit::is_told(&thread) {
                if involved {
                    tracing::stop::ending(&thread, regs, status);
                }
                exit::end_thread(status);
            }
        }
        if raised & notice::STOP != 0 && stopping::stop_here(&thread, regs) {
            continue;
        }
        if raised & notice::FREEZE != 0 {
            freezer::rest_here(&thread);
            continue;
        }
        if recording::is_any() && thread.pending() & !thread.blocked() != 0 {
            let after = images::give_up(&thread, "a signal came");
            images::follow(&thread, regs, after);
        }
        let Some(info) = thread.take_signal(!thread.blocked()) else { break };
        if !thread.process.is_involved() {
            take(&thread, &info, regs);
        } else if let Some(info) = tracing::stop::signal_stop(&thread, info, regs) {
            take(&thread, &info, regs);
        }
    }
    settle_restart(regs);
    thread.settle_mask();
}

/// Handles one signal as the process's actions say.
fn take(thread: &Thread, info: &Siginfo, regs: &mut UserRegs) {
    let signal = info.si_signo as u32;
    match thread.process.actions().dispose(signal) {
        Disposition::Ignore => {}
        Disposition::Default => by_default(thread, info, regs),
        Disposition::Handler(action) => {
            settle_for_handler(regs, &action);
            let mask = thread.take_saved_mask().unwrap_or(thread.blocked());
            let steps = thread.process.is_involved() && tracing::stop::before_handler(thread, regs);
            if frame::enter_handler(thread, regs, &action, info, mask).is_err() {
                // There is no room for the frame: the stack is gone, and a handler for SIGSEGV
                // could not run either (`signal_setup_done`).
                send::force(thread, Siginfo::new(SIGSEGV, SI_KERNEL));
                if signal == SIGSEGV {
                    thread.process.actions().reset(SIGSEGV);
                }
                return;
            }
            let mut blocked = thread.blocked() | action.sa_mask;
            if action.sa_flags & SA_NODEFER == 0 {
                blocked |= bit(signal);
            }
            thread.set_blocked(blocked);
            if steps {
                tracing::stop::entered_handler(thread, regs);
            }
        }
    }
}

/// Performs the default action of a signal.
fn by_default(thread: &Thread, info: &Siginfo, regs: &UserRegs) {
    let signal = info.si_signo as u32;
    let process = &thread.process;
    let this = bit(signal);
    if IGNORED_BY_DEFAULT & this != 0 || process.is_unkillable() && spares(process, this) {
        // An init gets no signal without a handler.
    } else if STOPS & this != 0 {
        if signal != SIGSTOP && job_control::is_orphaned(process.group(), None) {
            return;
        }
        stopping::stop_process(process, signal);
    } else {
        if CORE & this != 0 {
            hayate_machine::debug!(
                "process {} ({}) ends by {}",
                process.id(),
                thread.shown_name().escape_ascii(),
                hayate_abi::signal::name(signal).unwrap_or("a signal"),
            );
            dump::end(thread, info, regs);
        }
        // After a core file the end is decided already.
        process.begin_exit(signal as i32);
    }
}

/// Whether an init is not ended or stopped by a signal that it has no handler for. Those of another
/// PID namespace than the first have got `SIGKILL` and `SIGSTOP` from above (`get_signal`).
fn spares(process: &Process, signal: SignalSet) -> bool {
    let own = if process.is_reaper() { bit(SIGKILL) | bit(SIGSTOP) } else { bit(SIGKILL) };
    signal & own == 0
}

/// The error of the interrupted system call, if the thread returns from one.
fn interrupted(regs: &UserRegs) -> Option<Errno> {
    if !regs.in_syscall() {
        return None;
    }
    let number = i32::try_from((regs.rax as i64).checked_neg()?).ok()?;
    Errno::from_number(number).filter(|error| error.is_restart())
}

/// Makes the program execute its system call again.
fn reissue(regs: &mut UserRegs, number: u64) {
    regs.rax = number;
    // The length of the `syscall` instruction.
    regs.rip = regs.rip.wrapping_sub(2);
    regs.orig_rax = u64::MAX;
}

/// Prepares the interrupted call for a handler that is about to run: the call fails with `EINTR`,
/// or is executed again after the handler (`handle_signal`, arch/x86/kernel/signal.c).
fn settle_for_handler(regs: &mut UserRegs, action: &Sigaction) {
    let Some(error) = interrupted(regs) else { return };
    let again = error == Errno::ERESTARTNOINTR
        || (error == Errno::ERESTARTSYS && action.sa_flags & SA_RESTART != 0);
    if again {
        let number = regs.orig_rax;
        reissue(regs, number);
    } else {
        regs.rax = Errno::EINTR.to_return() as u64;
    }
}

/// Executes the interrupted call again, whatever its error, since no handler runs.
fn settle_restart(regs: &mut UserRegs) {
    let Some(error) = interrupted(regs) else { return };
    let number =
        if error == Errno::ERESTART_RESTARTBLOCK { RESTART_SYSCALL } else { regs.orig_rax };
    reissue(regs, number);
    hayate_machine::trap::attention::raise(hayate_machine::trap::FULL_RETURN);
}
