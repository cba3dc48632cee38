//! Taking signals: on the way back to user mode.

use hayate_abi::Errno;
use hayate_abi::signal::*;
use hayate_machine::trap::UserRegs;
use hayate_machine::user::UserPtr;

use super::super::record::notice;
use super::super::{Thread, current, exit, session};
use super::{CORE, Disposition, IGNORED_BY_DEFAULT, STOPS, frame, stop};
use crate::schedule;

/// The number of `restart_syscall(2)`.
const RESTART_SYSCALL: u64 = 219;

/// Looks at everything that wants the current thread's attention. It comes back when there is
/// nothing left, or not at all if the thread ends.
pub fn attend(regs: &mut UserRegs) {
    let thread = current();
    let start_tid = thread.start_tid();
    if start_tid != 0 {
        thread.set_start_tid(0);
        // A bad address is the program's problem, as in Linux.
        let _ = UserPtr::<u32>::new(start_tid).write(&thread.id());
    }
    loop {
        schedule::current().clear_interrupt();
        let raised = thread.process.notice();
        if raised & (notice::EXIT | notice::EXEC | notice::ZOMBIE) != 0 {
            exit::end_if_told(&thread);
        }
        if raised & notice::STOP != 0 {
            stop::stop_here(&thread);
            continue;
        }
        let Some(info) = thread.take_signal(!thread.blocked()) else { break };
        take(&thread, &info, regs);
    }
    settle_restart(regs);
    thread.settle_mask();
}

/// Does about one signal what the process wants done.
fn take(thread: &Thread, info: &Siginfo, regs: &mut UserRegs) {
    let signal = info.si_signo as u32;
    match thread.process.actions().dispose(signal) {
        Disposition::Ignore => {}
        Disposition::Default => by_default(thread, signal),
        Disposition::Handler(action) => {
            settle_for_handler(regs, &action);
            let mask = thread.take_saved_mask().unwrap_or(thread.blocked());
            if frame::enter_handler(thread, regs, &action, info, mask).is_err() {
                // No place for the frame: the stack is gone, and a handler for that could not
                // run either (`signal_setup_done`).
                super::send::force(thread, Siginfo::new(SIGSEGV, SI_KERNEL));
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
        }
    }
}

/// What a signal does by itself.
fn by_default(thread: &Thread, signal: u32) {
    let process = &thread.process;
    let this = bit(signal);
    if IGNORED_BY_DEFAULT & this != 0 || (process.id() == 1 && this != bit(SIGKILL)) {
        // pid 1 is spared what it has no handler for; `force` ends it by itself.
    } else if STOPS & this != 0 {
        if signal != SIGSTOP && session::is_orphaned(process.group(), None) {
            return;
        }
        stop::stop_process(process, signal);
    } else {
        if CORE & this != 0 {
            hayate_machine::debug!(
                "process {} ({}) ends by {}",
                process.id(),
                thread.shown_name().escape_ascii(),
                hayate_abi::signal::name(signal).unwrap_or("a signal"),
            );
        }
        process.begin_exit(signal as i32);
    }
}

/// The error of the interrupted system call, if the thread comes from one that was.
fn interrupted(regs: &UserRegs) -> Option<Errno> {
    if !regs.in_syscall() {
        return None;
    }
    let number = i32::try_from((regs.rax as i64).checked_neg()?).ok()?;
    Errno::from_number(number).filter(|error| error.is_restart())
}

/// Makes the program issue its system call again.
fn reissue(regs: &mut UserRegs, number: u64) {
    regs.rax = number;
    // The length of the `syscall` instruction.
    regs.rip = regs.rip.wrapping_sub(2);
    regs.orig_rax = u64::MAX;
}

/// A handler is about to run: the call it interrupted fails with `EINTR`, or is issued again
/// after it (`handle_signal`, arch/x86/kernel/signal.c).
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

/// No handler runs: the interrupted call is issued again, whatever it said.
fn settle_restart(regs: &mut UserRegs) {
    let Some(error) = interrupted(regs) else { return };
    let number =
        if error == Errno::ERESTART_RESTARTBLOCK { RESTART_SYSCALL } else { regs.orig_rax };
    reissue(regs, number);
    hayate_machine::trap::attention::raise(hayate_machine::trap::FULL_RETURN);
}
