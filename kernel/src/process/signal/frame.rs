//! The frame of a signal handler: what is put on the stack, and how `rt_sigreturn` takes it back
//! (arch/x86/kernel/signal.c and signal_64.c of Linux 6.1).
//!
//! From high addresses to low: the XSAVE image (aligned to 64), the siginfo, the ucontext, and the
//! return address, with the stack pointer as after a call. Programs read all of it: unwinders know
//! the layout, garbage collectors change registers in it.

use alloc::vec::Vec;

use hayate_abi::signal::*;
use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::fpu::{self, FpuState};
use hayate_machine::trap::{self, UserRegs};
use hayate_machine::user::{self, UserPtr};

use crate::process::sequences;
use crate::process::thread::Thread;
use crate::reclaim::growth::Grow;

/// Bytes below the stack pointer that belong to the interrupted function (System V ABI, 3.2.2).
const RED_ZONE: u64 = 128;
const CONTEXT: u64 = 8;
const INFO: u64 = CONTEXT + size_of::<Ucontext>() as u64;
const FRAME: u64 = INFO + size_of::<Siginfo>() as u64;
/// DF, RF and TF are cleared for a handler.
const HANDLER_CLEARS: u64 = 1 << 10 | 1 << 16 | 1 << 8;

fn is_on(stack: &SignalStack, sp: u64) -> bool {
    stack.ss_flags & SS_DISABLE == 0
        && sp > stack.ss_sp
        && sp - stack.ss_sp <= stack.ss_size
        // With SS_AUTODISARM the stack is free as soon as a handler runs on it.
        && stack.ss_flags & SS_AUTODISARM == 0
}

/// `ss_flags` as `sigaltstack(2)` shows them.
pub fn shown_flags(stack: &SignalStack, sp: u64) -> i32 {
    if stack.ss_size == 0 || stack.ss_flags & SS_DISABLE != 0 {
        SS_DISABLE
    } else if is_on(stack, sp) {
        SS_ONSTACK
    } else {
        stack.ss_flags & SS_AUTODISARM
    }
}

/// Makes the program enter a handler.
///
/// * `mask` - the mask that `rt_sigreturn` restores.
///
/// Fails with `EFAULT` if the frame does not fit, or if the thread's restartable sequence cannot be
/// read (`rseq(2)`).
pub fn enter_handler(
    thread: &Thread,
    regs: &mut UserRegs,
    action: &Sigaction,
    info: &Siginfo,
    mask: SignalSet,
) -> Result<()> {
    if action.sa_flags & SA_RESTORER == 0 {
        // There is no other way to return from a handler on x86-64.
        return Err(Errno::EFAULT);
    }
    sequences::before_handler(thread, regs)?;
    let stack = *thread.signal_stack.lock();
    let mut sp = regs.rsp.wrapping_sub(RED_ZONE);
    let mut entering = false;
    if action.sa_flags & SA_ONSTACK != 0 && shown_flags(&stack, regs.rsp) & !SS_AUTODISARM == 0 {
        sp = stack.ss_sp.wrapping_add(stack.ss_size);
        entering = true;
    }
    let on_stack = entering || is_on(&stack, regs.rsp);

    let state = fpu_bytes()?;
    let fpu = sp.wrapping_sub(state.len() as u64) & !63;
    // As after a call: the return address makes the stack pointer 8 past a multiple of 16.
    let frame = (fpu.wrapping_sub(FRAME) & !15).wrapping_sub(8);
    if on_stack && (frame <= stack.ss_sp || frame - stack.ss_sp > stack.ss_size) {
        return Err(Errno::EFAULT);
    }

    let shown = SignalStack { ss_flags: shown_flags(&stack, regs.rsp), ..stack };
    let context = Ucontext {
        uc_flags: UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
        uc_link: 0,
        uc_stack: shown,
        uc_mcontext: registers(thread, regs, fpu, mask),
        uc_sigmask: mask,
    };
    user::copy_out(fpu as usize, &state)?;
    UserPtr::new(frame as usize).write(&action.sa_restorer)?;
    UserPtr::new(frame.wrapping_add(CONTEXT) as usize).write(&context)?;
    UserPtr::new(frame.wrapping_add(INFO) as usize).write(info)?;

    if entering && stack.ss_flags & SS_AUTODISARM != 0 {
        *thread.signal_stack.lock() =
            SignalStack { ss_flags: SS_DISABLE, ..SignalStack::default() };
    }
    regs.rdi = info.si_signo as u64;
    regs.rsi = frame.wrapping_add(INFO);
    regs.rdx = frame.wrapping_add(CONTEXT);
    regs.rax = 0;
    regs.rip = action.sa_handler;
    regs.rsp = frame;
    regs.set_flags(regs.flags() & !HANDLER_CLEARS);
    regs.orig_rax = u64::MAX;
    regs.sanitize();
    trap::attention::raise(trap::FULL_RETURN);
    Ok(())
}

/// The floating-point registers as the frame holds them.
fn fpu_bytes() -> Result<Vec<u8>> {
    let mut state: Vec<u8> = Vec::new();
    state.make_room_exact(FpuState::signal_size())?;
    state.resize(FpuState::signal_size(), 0);
    if fpu::to_signal_bytes(&mut state) { Ok(state) } else { Err(Errno::EFAULT) }
}

fn registers(thread: &Thread, regs: &UserRegs, fpu: u64, mask: SignalSet) -> Sigcontext {
    let trap = thread.trap();
    Sigcontext {
        r8: regs.r8,
        r9: regs.r9,
        r10: regs.r10,
        r11: regs.r11,
        r12: regs.r12,
        r13: regs.r13,
        r14: regs.r14,
        r15: regs.r15,
        rdi: regs.rdi,
        rsi: regs.rsi,
        rbp: regs.rbp,
        rbx: regs.rbx,
        rdx: regs.rdx,
        rax: regs.rax,
        rcx: regs.rcx,
        rsp: regs.rsp,
        rip: regs.rip,
        eflags: regs.flags(),
        // The selectors of user mode in either mode, because programs check them.
        cs: cpu::USER_CS,
        ss: cpu::USER_DS,
        trapno: trap.number,
        err: trap.error,
        cr2: trap.address,
        oldmask: mask,
        fpstate: fpu,
        ..Sigcontext::default()
    }
}

/// Implements `rt_sigreturn(2)`: restores the state in the frame. Returns the value for `rax`.
///
/// Fails with `EFAULT` for a frame that cannot be read or holds an invalid floating-point state;
/// the caller then raises SIGSEGV.
pub fn leave_handler(thread: &Thread, regs: &mut UserRegs) -> Result<i64> {
    // The handler's return has popped the return address.
    let frame = regs.rsp.wrapping_sub(CONTEXT);
    let context: Ucontext = UserPtr::new(frame.wrapping_add(CONTEXT) as usize).read()?;
    let saved = context.uc_mcontext;
    if saved.fpstate == 0 {
        fpu::reset();
    } else {
        restore_fpu(saved.fpstate)?;
    }
    regs.r8 = saved.r8;
    regs.r9 = saved.r9;
    regs.r10 = saved.r10;
    regs.r11 = saved.r11;
    regs.r12 = saved.r12;
    regs.r13 = saved.r13;
    regs.r14 = saved.r14;
    regs.r15 = saved.r15;
    regs.rdi = saved.rdi;
    regs.rsi = saved.rsi;
    regs.rbp = saved.rbp;
    regs.rbx = saved.rbx;
    regs.rdx = saved.rdx;
    regs.rax = saved.rax;
    regs.rcx = saved.rcx;
    regs.rsp = saved.rsp;
    regs.rip = saved.rip;
    regs.orig_rax = u64::MAX;
    regs.set_flags(saved.eflags);
    regs.sanitize();
    trap::attention::raise(trap::FULL_RETURN);
    thread.set_blocked(context.uc_sigmask);
    let mut stack = context.uc_stack;
    stack.ss_flags &= !SS_ONSTACK;
    if stack.ss_flags & SS_AUTODISARM != 0 || stack.ss_flags == 0 || stack.ss_flags == SS_DISABLE {
        // The stack that the handler left in the frame is set, if it is valid.
        let _ = set_stack(thread, &stack, regs.rsp);
    }
    Ok(regs.rax as i64)
}

fn restore_fpu(address: u64) -> Result<()> {
    let mut state: Vec<u8> = Vec::new();
    state.make_room_exact(FpuState::signal_size())?;
    state.resize(FpuState::signal_size(), 0);
    // A frame that a program built by itself may end with the legacy part.
    let read = user::copy_in_partly(&mut state, address as usize);
    state.truncate(read);
    if fpu::from_signal_bytes(&state) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// The least size of an alternate stack (`MINSIGSTKSZ`).
const LEAST_STACK: u64 = 2048;

/// Sets the alternate stack (`sigaltstack(2)`). Fails with `EPERM` while a handler runs on the
/// present one, `EINVAL` for unknown flags, `ENOMEM` if it is too small.
pub fn set_stack(thread: &Thread, new: &SignalStack, sp: u64) -> Result<()> {
    let mut stack = thread.signal_stack.lock();
    if is_on(&stack, sp) {
        return Err(Errno::EPERM);
    }
    let mode = new.ss_flags & !SS_AUTODISARM;
    if mode != 0 && mode != SS_DISABLE && mode != SS_ONSTACK {
        return Err(Errno::EINVAL);
    }
    if mode == SS_DISABLE {
        *stack = SignalStack { ss_flags: SS_DISABLE, ..SignalStack::default() };
        return Ok(());
    }
    if new.ss_size < LEAST_STACK {
        return Err(Errno::ENOMEM);
    }
    *stack = SignalStack { ss_flags: new.ss_flags & SS_AUTODISARM, hole: 0, ..*new };
    Ok(())
}
