//! What happens to a call of a thread that has filters (`__secure_computing`, kernel/seccomp.c of
//! Linux 6.1).
//!
//! [`look`] stands before the table of calls for such a thread alone ([`trap::set_guard`]). A call
//! that all filters allow whatever its arguments is a bit in the thread's [`State`].

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, Ordering};

use hayate_abi::Errno;
use hayate_abi::signal::{SIGKILL, SIGSYS, SYS_SECCOMP, Siginfo};
use hayate_bpf::seccomp::{ARCH_X86_64, Action, Actions, Data, Verdict};
use hayate_machine::log::{self, Level};
use hayate_machine::trap;
use hayate_machine::trap::UserRegs;

use super::chain::{Filter, STRICT, State};
use super::notices::{Answer, Found, Notices};
use crate::process::record::notice;
use crate::process::signal::send;
use crate::process::thread::{Thread, current};
use crate::process::{dump, exit, tracing};
use crate::schedule;
use crate::schedule::Woken;

/// The actions that are logged (`/proc/sys/kernel/seccomp/actions_logged`).
static LOGGED: AtomicU8 = AtomicU8::new(Actions::LOGGED.0);

/// The actions that are logged.
pub fn logged() -> Actions {
    Actions(LOGGED.load(Ordering::Relaxed))
}

/// Sets the actions that are logged.
pub fn set_logged(actions: Actions) {
    LOGGED.store(actions.0, Ordering::Relaxed);
}

/// Looks at calls of threads with filters; boot calls it once.
pub fn init() {
    trap::set_guard(look);
}

/// Looks at a call of the current thread. Returns whether it is settled: its result, if any, is in
/// the registers.
extern "C" fn look(regs: &mut UserRegs) -> bool {
    trap::check_stack();
    let thread = current();
    let Some(state) = thread.filters.get() else { return false };
    // The number is the lower half of the register, as in Linux.
    let number = regs.orig_rax as u32;
    if state.allows(number) {
        return false;
    }
    match judge(&thread, state, regs) {
        Course::GoesOn => false,
        Course::Settled => true,
        Course::EndsThread(status) => exit::end_thread(status),
    }
}

/// How a thread goes on.
enum Course {
    /// The call is carried out.
    GoesOn,
    /// It is not.
    Settled,
    /// The thread ends; its process with this status if it is the last.
    EndsThread(i32),
}

#[cold]
fn judge(thread: &Thread, state: &State, regs: &mut UserRegs) -> Course {
    if state.mode() == STRICT {
        note(thread, regs, Action::KillThread, SIGKILL, true);
        return Course::EndsThread(SIGKILL as i32);
    }
    let Some(chain) = state.chain() else { return Course::GoesOn };
    let (verdict, filter) = chain.judge(&seen(thread, regs));
    let Some(filter) = filter else { return Course::GoesOn };
    if verdict.action() != Action::Trace {
        return carry_out(thread, regs, verdict, filter);
    }
    if !ask_tracer(thread, regs, verdict.data()) {
        note(thread, regs, Action::Trace, 0, filter.logs);
        regs.rax = Errno::ENOSYS.to_return() as u64;
        return Course::Settled;
    }
    // The tracer may have ended the thread, or given the call another number: all filters judge
    // that one, and it is not traced again.
    if thread.process.is_exiting() || (regs.orig_rax as i32) < 0 {
        return Course::Settled;
    }
    match chain.judge(&seen(thread, regs)) {
        (verdict, Some(filter)) if verdict.action() != Action::Trace => {
            carry_out(thread, regs, verdict, filter)
        }
        _ => Course::GoesOn,
    }
}

/// Stops the thread for its tracer (`PTRACE_EVENT_SECCOMP`, with the filter's data as the event's
/// message): a tracer that asked for `PTRACE_O_TRACESECCOMP` sees the thread here with the call's
/// registers, after the stop at the call's entry, and may change them. Returns false if no tracer
/// wants that, without which the call is not there.
fn ask_tracer(thread: &Thread, regs: &mut UserRegs, data: u16) -> bool {
    tracing::stop::filtered(thread, regs, data)
}

/// The call as filters see it.
fn seen(thread: &Thread, regs: &UserRegs) -> Data {
    Data::new(regs.orig_rax as u32, ARCH_X86_64, site(thread, regs), regs.arguments())
}

/// The address behind the instruction that made the call: also of one that was patched while the
/// space was in supervisor mode, where a trampoline makes it.
fn site(thread: &Thread, regs: &UserRegs) -> u64 {
    match thread.space() {
        Some(space) if space.was_supervisor() => {
            space.outside_of_trampoline(regs.rip as usize) as u64
        }
        _ => regs.rip,
    }
}

fn carry_out(thread: &Thread, regs: &mut UserRegs, verdict: Verdict, filter: &Filter) -> Course {
    const MOST_ERRNO: u16 = 4095;
    let action = verdict.action();
    match action {
        Action::Allow => return Course::GoesOn,
        Action::Log => {
            note(thread, regs, action, 0, true);
            return Course::GoesOn;
        }
        Action::UserNotif => {
            let goes_on = ask(thread, regs, filter.notices.as_deref());
            if goes_on {
                return Course::GoesOn;
            }
        }
        Action::Errno => regs.rax = -i64::from(verdict.data().min(MOST_ERRNO)) as u64,
        Action::Trace => {}
        Action::Trap => {
            let info = about(thread, regs, verdict.data());
            // The handler sees the registers of the call.
            regs.rax = regs.orig_rax;
            send::force(thread, info);
        }
        Action::KillThread | Action::KillProcess => return kill(thread, regs, verdict),
    }
    note(thread, regs, action, 0, filter.logs);
    Course::Settled
}

/// The signal about a call that was trapped, or that ends its process.
fn about(thread: &Thread, regs: &UserRegs, data: u16) -> Siginfo {
    let call = regs.orig_rax as u32;
    Siginfo::from_call(SYS_SECCOMP, data.into(), site(thread, regs), call, ARCH_X86_64)
}

/// Ends the thread, or the process, which leaves a core file if its last thread ends.
fn kill(thread: &Thread, regs: &mut UserRegs, verdict: Verdict) -> Course {
    let process = &thread.process;
    note(thread, regs, verdict.action(), SIGSYS, true);
    if verdict.action() == Action::KillThread && process.thread_count() > 1 {
        return Course::EndsThread(SIGSYS as i32);
    }
    let info = about(thread, regs, verdict.data());
    regs.rax = regs.orig_rax;
    dump::end(thread, &info, regs);
    // After a core file the end is decided already. The thread ends on its way to user mode.
    process.begin_exit(SIGSYS as i32);
    Course::Settled
}

/// Asks the listener. Returns whether the call is carried out; otherwise its result is in the
/// registers.
fn ask(thread: &Thread, regs: &mut UserRegs, notices: Option<&Notices>) -> bool {
    let answer = match notices {
        None => Err(Errno::ENOSYS),
        Some(notices) => {
            let added = notices.add(thread.id(), seen(thread, regs).to_bytes());
            added.and_then(|id| {
                let answer = wait(thread, notices, id);
                notices.remove(id);
                answer
            })
        }
    };
    let result = match answer {
        Ok(answer) if answer.goes_on => return true,
        Ok(Answer { value, error: 0, .. }) => value,
        Ok(Answer { error, .. }) => error.into(),
        Err(error) => {
            if error.is_restart() {
                // As for any call that fails so: the signal must be met before the program.
                schedule::current().interrupt();
            }
            error.to_return()
        }
    };
    regs.rax = result as u64;
    false
}

/// Waits for the answer to a notice, and takes the descriptors that come before it. `ERESTARTSYS`
/// if a signal comes.
fn wait(thread: &Thread, notices: &Notices, id: u64) -> Result<Answer, Errno> {
    let execution = schedule::current();
    let mut was_interrupted = false;
    let result = loop {
        let found = notices.answers.wait_interruptible(None, || match notices.look(id) {
            Found::Nothing => None,
            found => Some(found),
        });
        match found {
            Ok(Found::Answer(answer)) => break Ok(answer),
            Ok(Found::Gift(gift)) => {
                let taken = take(thread, &gift);
                if let Some(answer) = notices.took(id, &gift, taken) {
                    break Ok(answer);
                }
            }
            Err(Woken::Interrupted | Woken::TimedOut) => {
                was_interrupted = true;
                // Before the question: an end that begins behind it interrupts the next sleep.
                execution.clear_interrupt();
                let ends = thread.process.notice() & (notice::EXIT | notice::EXEC) != 0;
                if ends || !notices.must_wait(id) {
                    break Err(Errno::ERESTARTSYS);
                }
            }
            Ok(Found::Nothing) => {}
        }
    };
    if was_interrupted {
        execution.interrupt();
    }
    result
}

/// Takes a descriptor that the listener gives.
fn take(thread: &Thread, gift: &super::notices::Gift) -> hayate_abi::Result<i32> {
    use hayate_abi::process::RLIMIT_NOFILE;
    let file = Arc::clone(&gift.file);
    let Some(number) = gift.number else { return thread.install(file, gift.close_on_exec) };
    let (table, limit) = (thread.files(), thread.process.limit(RLIMIT_NOFILE));
    if let Some(old) = table.replace(number, file, limit, gift.close_on_exec)? {
        table.closed(old);
    }
    Ok(number)
}

/// Logs an action (`seccomp_log`). `asked`: by the filter's flag, without which only the end of a
/// thread is logged, and what asks for nothing else.
fn note(thread: &Thread, regs: &UserRegs, action: Action, signal: u32, asked: bool) {
    let always = matches!(action, Action::Log | Action::KillThread | Action::KillProcess);
    if !(asked || always) || !logged().has(action) {
        return;
    }
    let both = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let words = [
        both(thread.process.id(), thread.id()),
        both(signal, regs.orig_rax as u32),
        regs.rip,
        action as u64,
    ];
    log::later(Level::Info, words, |&[ids, call, ip, action], f| {
        let name = Action::ALL.get(action as usize).map_or("", |(.., name)| name);
        let (pid, tid, sig, syscall) = (ids >> 32, ids as u32, call >> 32, call as u32);
        write!(
            f,
            "seccomp: pid={pid} tid={tid} sig={sig} arch={ARCH_X86_64:x} syscall={syscall} \
             ip={ip:#x} action={name}"
        )
    });
}
