//! Stops of a traced thread (`ptrace(2)`, "Stopped states"; `ptrace_stop` and `ptrace_signal`,
//! kernel/signal.c of Linux 6.1). All functions here are for the current thread.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::ptrace::*;
use hayate_abi::signal::*;
use hayate_machine::cpu;
use hayate_machine::fpu;
use hayate_machine::trap::{self, UserRegs};

use super::registers::TRAP_FLAG;
use super::tracee::{Phase, Tracee, of};
use crate::process::cgroup::rest::Rest;
use crate::process::images;
use crate::process::images::recording;
use crate::process::record::{Process, notice};
use crate::process::signal::{send, stopping};
use crate::process::thread::Thread;
use crate::process::visible;
use crate::schedule;

/// A stop.
struct Halt {
    /// The upper part of the wait status.
    code: u32,
    /// What `PTRACE_GETEVENTMSG` tells from now on.
    message: Option<u64>,
    /// What `PTRACE_GETSIGINFO` tells.
    info: Option<Siginfo>,
    /// A signal is to be delivered.
    delivers: bool,
    /// The thread is ending already.
    ends: bool,
}

/// The information of a stop that is no signal's (`ptrace_do_notify`).
fn own_info(thread: &Thread, signal: u32, code: u32) -> Siginfo {
    let uid = thread.credentials().uid;
    Siginfo::from_sender(signal, code as i32, thread.own_id(), uid)
}

impl Halt {
    fn event(thread: &Thread, signal: u32, code: u32, message: Option<u64>) -> Halt {
        let info = Some(own_info(thread, signal, code));
        Halt { code, message, info, delivers: false, ends: false }
    }
}

/// Whether the thread is to end, so that it must not stop.
fn must_end(thread: &Thread) -> bool {
    let process = thread.process();
    let raised = process.notice();
    raised & (notice::EXIT | notice::ZOMBIE) != 0
        || raised & notice::EXEC != 0 && {
            let me = schedule::current().id();
            process.control.lock().survivor.is_some_and(|survivor| survivor != me)
        }
}

/// Stops the thread until its tracer lets it go on. Returns the signal with which it does.
fn stop(tracee: &Arc<Tracee>, regs: &mut UserRegs, halt: Halt) -> u32 {
    let thread = &tracee.thread;
    let mut fpu = core::mem::take(&mut tracee.state.lock().fpu);
    let components = fpu::to_core_bytes(&mut fpu).unwrap_or(0);
    // An end that is decided already does not end the stop in which it is told.
    let dying = halt.ends && must_end(thread);
    {
        let mut state = tracee.state.lock();
        state.fpu = fpu;
        if !state.linked {
            // It was left a moment ago: the signal is delivered.
            return if halt.delivers { halt.code } else { 0 };
        }
        if state.killed || !halt.ends && must_end(thread) {
            return 0;
        }
        if core::mem::take(&mut state.forced_step) {
            regs.set_flags(regs.flags() & !TRAP_FLAG);
        }
        state.regs = regs.copied();
        state.bases = [cpu::user_fs_base(), cpu::user_gs_base()];
        state.components = components;
        (state.changed, state.fpu_changed) = (false, false);
        state.code = halt.code;
        state.message = halt.message.unwrap_or(state.message);
        state.info = halt.info;
        state.delivers = halt.delivers;
        // Any stop is the one that was asked for.
        state.trap = false;
        if state.is_event_stop() {
            state.notify = false;
        }
        state.signal = 0;
        state.untold = true;
        state.phase = Phase::Stopped;
    }
    tracee.tell(CLD_TRAPPED, (halt.code & 0x7f) as i32);
    sleep(tracee, dying);
    take_back(tracee, regs)
}

/// Sleeps until the stop is over.
fn sleep(tracee: &Tracee, dying: bool) {
    let mut rest = Rest::of(tracee.thread.process());
    tracee.resumed.wait_through(None, || {
        rest.note();
        let over = {
            let state = tracee.state.lock();
            !state.is_stopped() || !state.linked || state.killed
        };
        (over || !dying && must_end(&tracee.thread)).then_some(())
    });
}

/// Takes what the tracer has left. Returns the signal with which the thread goes on.
fn take_back(tracee: &Tracee, regs: &mut UserRegs) -> u32 {
    let thread = &tracee.thread;
    let (signal, fpu, bases) = {
        let mut state = tracee.state.lock();
        if state.is_stopped() {
            // Its end, not its tracer, has woken it.
            state.leave_stop(0);
        }
        if state.changed {
            regs.go_on_at(&state.regs);
        }
        if state.until.step && regs.flags() & TRAP_FLAG == 0 {
            regs.set_flags(regs.flags() | TRAP_FLAG);
            state.forced_step = true;
        }
        let fpu = state.fpu_changed.then(|| core::mem::take(&mut state.fpu));
        let bases = state.changed.then_some(state.bases);
        (core::mem::take(&mut state.signal), fpu, bases)
    };
    if let Some([fs, gs]) = bases {
        thread.take_bases(fs, gs);
        regs.sanitize();
    }
    if let Some(fpu) = fpu {
        // It was checked when the tracer set it.
        let _ = fpu::from_core_bytes(&fpu);
        put_back(tracee, fpu);
    }
    trap::attention::raise(trap::FULL_RETURN);
    signal
}

fn put_back(tracee: &Tracee, fpu: Vec<u8>) {
    let empty = core::mem::replace(&mut tracee.state.lock().fpu, fpu);
    drop(empty);
}

/// Sends the thread the signal with which it went on after a stop that was no signal's.
fn send_self(thread: &Thread, signal: u32) {
    if signal != 0 {
        let _ = send::to_thread(thread, Siginfo::new(signal, SI_KERNEL));
    }
}

/// Does what a traced thread must do before it returns to user mode, besides signals: notes whether
/// it is traced, and stops if its tracer asked for that. Returns whether the thread has to look
/// again at what waits for it.
#[cold]
pub fn attend(thread: &Thread, regs: &mut UserRegs) -> bool {
    let Some(tracee) = of(thread) else {
        if trap::attention::get() & trap::TRACED != 0 {
            trap::attention::clear(trap::TRACED);
            cpu::clear_debug_registers();
            // The end of its tracer may have found it on a step. (A program that steps itself and
            // is left by its tracer goes on without.)
            regs.set_flags(regs.flags() & !TRAP_FLAG);
        }
        return false;
    };
    trap::attention::raise(trap::TRACED);
    if recording::is_any() {
        let after = images::give_up(thread, "it is traced");
        images::follow(thread, regs, after);
    }
    let wanted = {
        let state = tracee.state.lock();
        state.trap || state.notify
    };
    if !wanted || must_end(thread) {
        return false;
    }
    let process = thread.process();
    let stopping = take_part(process, &tracee).filter(|_| tracee.seized);
    let signal = stopping.unwrap_or(SIGTRAP);
    let code = signal | PTRACE_EVENT_STOP << 8;
    let halt = Halt::event(thread, signal, code, None);
    stopping::tell_if_complete(process);
    stop(&tracee, regs, halt);
    true
}

/// Counts the thread for the stop of its process, if there is one that it has not taken part in.
/// Returns the signal of the stop.
fn take_part(process: &Process, tracee: &Tracee) -> Option<u32> {
    let mut state = tracee.state.lock();
    let mut control = process.control.lock();
    let (signal, count) = control.stop.current()?;
    if state.taken != count {
        state.taken = count;
        control.stop.joined();
    }
    Some(signal)
}

/// Stops a traced thread because its process is to be stopped. `false`: it has been stopped for
/// that, and its tracer has let it go on.
#[cold]
pub fn group_stop(tracee: &Arc<Tracee>, regs: &mut UserRegs) -> bool {
    let thread = &tracee.thread;
    let process = thread.process();
    if is_past_stop(tracee) {
        return false;
    }
    let Some(signal) = take_part(process, tracee) else { return false };
    stopping::tell_if_complete(process);
    let halt = if tracee.seized {
        Halt::event(thread, signal, signal | PTRACE_EVENT_STOP << 8, None)
    } else {
        Halt { code: signal, message: None, info: None, delivers: false, ends: false }
    };
    stop(tracee, regs, halt);
    true
}

fn is_past_stop(tracee: &Tracee) -> bool {
    let taken = tracee.state.lock().taken;
    tracee.thread.process().control.lock().stop.current().is_none_or(|(_, count)| taken == count)
}

/// Whether nothing waits for the thread but a stop of its process that it has been in.
#[cold]
pub fn has_only_past_stop(thread: &Thread) -> bool {
    thread.process().notice() == notice::STOP
        && thread.pending() & !thread.blocked() == 0
        && of(thread).is_some_and(|tracee| is_past_stop(&tracee))
}

/// Shows a signal that is about to be delivered to the tracer. Returns what is to be delivered
/// instead, if anything (`ptrace_signal`).
#[cold]
pub fn signal_stop(thread: &Thread, info: Siginfo, regs: &mut UserRegs) -> Option<Siginfo> {
    let Some(tracee) = of(thread) else { return Some(info) };
    let code = info.si_signo as u32;
    let halt = Halt { code, message: None, info: Some(info), delivers: true, ends: false };
    let signal = stop(&tracee, regs, halt);
    if must_end(thread) {
        return None;
    }
    let (shown, linked) = {
        let state = tracee.state.lock();
        (state.info.filter(|_| state.linked).unwrap_or(info), state.linked)
    };
    if signal == 0 {
        return None;
    }
    let mut info = shown;
    if info.si_signo != signal as i32 {
        let tracer = &tracee.tracer;
        let seen = || visible::shown_to(thread.process(), tracer.process().id());
        let sender = if linked { seen() } else { 0 };
        info = Siginfo::from_sender(signal, SI_USER, sender, tracer.credentials().uid);
    }
    if thread.blocked() & bit(signal) != 0 {
        let _ = thread.queue.push(info, u64::MAX);
        return None;
    }
    Some(info)
}

/// Takes the trap flag of single-stepping out of the registers, since a handler's frame is about to
/// save them. Returns whether the thread is stepped.
#[cold]
pub fn before_handler(thread: &Thread, regs: &mut UserRegs) -> bool {
    let Some(tracee) = of(thread) else { return false };
    let mut state = tracee.state.lock();
    if core::mem::take(&mut state.forced_step) {
        regs.set_flags(regs.flags() & !TRAP_FLAG);
    }
    state.until.step
}

/// Takes the trap flag of single-stepping out of the registers with which a new thread begins.
#[cold]
pub fn unstep(thread: &Thread, child: &mut UserRegs) {
    if of(thread).is_some_and(|tracee| tracee.state.lock().forced_step) {
        child.set_flags(child.flags() & !TRAP_FLAG);
    }
}

/// A step has entered a handler (`signal_setup_done`).
#[cold]
pub fn entered_handler(thread: &Thread, regs: &mut UserRegs) {
    if let Some(tracee) = of(thread) {
        let halt = Halt::event(thread, SIGTRAP, SIGTRAP, Some(0));
        stop(&tracee, regs, halt);
    }
}

/// Whether the tracer has asked for an event.
fn wants(tracee: &Tracee, event: u32) -> bool {
    tracee.state.lock().options >> event & 1 != 0
}

/// Stops for an event if the tracer has asked for it.
fn event(tracee: &Arc<Tracee>, regs: &mut UserRegs, event: u32, message: u64, ends: bool) {
    if wants(tracee, event) {
        let halt = Halt::event(&tracee.thread, SIGTRAP, SIGTRAP | event << 8, Some(message));
        stop(tracee, regs, Halt { ends, ..halt });
    }
}

/// A filter of system calls leaves a call to the tracer. Returns whether there is one that wants it.
#[cold]
pub fn filtered(thread: &Thread, regs: &mut UserRegs, data: u16) -> bool {
    let Some(tracee) = of(thread).filter(|tracee| wants(tracee, PTRACE_EVENT_SECCOMP)) else {
        return false;
    };
    event(&tracee, regs, PTRACE_EVENT_SECCOMP, u64::from(data), false);
    true
}

/// The thread has started another one with this number. `what`: the event.
#[cold]
pub fn started(thread: &Thread, regs: &mut UserRegs, what: u32, number: u32) {
    if let Some(tracee) = of(thread) {
        let number = visible::shown_to(tracee.tracer.process(), number);
        event(&tracee, regs, what, u64::from(number), false);
    }
}

/// The thread is about to end with this wait status. `SIGKILL` leaves no time for the event.
#[cold]
pub fn ending(thread: &Thread, regs: &mut UserRegs, status: i32) {
    if status & 0x7f == SIGKILL as i32 {
        return;
    }
    if let Some(tracee) = of(thread) {
        event(&tracee, regs, PTRACE_EVENT_EXIT, status as u64, true);
    }
}

/// The thread has executed a program; its number was `number`.
#[cold]
pub fn executed(thread: &Thread, regs: &mut UserRegs, number: u32) {
    let Some(tracee) = of(thread) else { return };
    {
        let mut state = tracee.state.lock();
        state.debug = cpu::DebugRegisters::default();
        state.debug_status = 0;
        state.forced_step = false;
    }
    if wants(&tracee, PTRACE_EVENT_EXEC) {
        let number = visible::shown_to(tracee.tracer.process(), number);
        event(&tracee, regs, PTRACE_EVENT_EXEC, u64::from(number), false);
    } else if !tracee.seized {
        thread.signal_self(SIGTRAP);
    }
}

/// Stops before a system call, if the tracer wants that. `false`: the call is not carried out.
#[cold]
pub fn call_begins(thread: &Thread, regs: &mut UserRegs) -> bool {
    let Some(tracee) = of(thread) else { return true };
    let until = tracee.state.lock().until;
    if until.call || until.emulated {
        call_stop(&tracee, regs, PTRACE_EVENTMSG_SYSCALL_ENTRY);
    }
    !until.emulated && !must_end(thread)
}

/// Stops after a system call, if the tracer wants that.
#[cold]
pub fn call_ends(thread: &Thread, regs: &mut UserRegs) {
    let Some(tracee) = of(thread) else { return };
    let until = tracee.state.lock().until;
    if until.step && !until.emulated {
        // The processor would trap only after the next instruction.
        send::force(thread, Siginfo::new(SIGTRAP, SI_USER));
    } else if until.call {
        call_stop(&tracee, regs, PTRACE_EVENTMSG_SYSCALL_EXIT);
    }
}

fn call_stop(tracee: &Arc<Tracee>, regs: &mut UserRegs, message: u64) {
    let good = tracee.state.lock().options & PTRACE_O_TRACESYSGOOD != 0;
    let code = SIGTRAP | if good { 0x80 } else { 0 };
    let halt = Halt::event(&tracee.thread, SIGTRAP, code, Some(message));
    let signal = stop(tracee, regs, halt);
    send_self(&tracee.thread, signal);
}

/// Loads the debug registers of the current thread, which returns to user mode now.
pub fn load_debug_registers(thread: &Thread) {
    match of(thread) {
        Some(tracee) => cpu::load_debug_registers(&tracee.state.lock().debug),
        None => cpu::clear_debug_registers(),
    }
}

/// The code of the `SIGTRAP` for a debug exception. `None`: it belongs to another thread, whose
/// debug registers this processor had.
#[cold]
pub fn debug_exception(thread: &Thread, regs: &mut UserRegs) -> Option<i32> {
    const TRAP_HWBKPT: i32 = 4;
    let status = cpu::take_debug_status();
    let reported = status & 15;
    let hits = match of(thread) {
        Some(tracee) => {
            let mut state = tracee.state.lock();
            let hits = state.debug.hits(reported);
            state.debug_status = hits | status & cpu::STEPPED;
            if state.debug.is_instruction(hits) {
                // The instruction passes once when the thread goes on.
                regs.set_flags(regs.flags() | cpu::PASS);
            }
            hits
        }
        None => 0,
    };
    if status & cpu::STEPPED != 0 {
        return Some(TRAP_TRACE);
    }
    if hits != 0 {
        return Some(TRAP_HWBKPT);
    }
    if reported != 0 {
        cpu::clear_debug_registers();
        return None;
    }
    Some(TRAP_TRACE)
}
