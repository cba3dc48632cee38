//! Exceptions of programs, turned into signals (arch/x86/kernel/traps.c and arch/x86/mm/fault.c of
//! Linux 6.1).

use alloc::vec::Vec;

use hayate_abi::signal::*;
use hayate_machine::fpu::{self, FpuState};
use hayate_machine::trap::{FaultCode, FaultOutcome, PageFault, UserRegs};

use super::images::recording;
use super::signal::send;
use super::thread::{Trap, current, try_current};
use super::{cgroup, images, tracing, victim};

use crate::memory::{Cause, FaultResult, Touch, handle_fault};
use crate::reclaim;
use crate::reclaim::growth::Grow;

/// Handles a page fault of a program, or of a user copy on behalf of it. If that fails, a fault
/// from user mode becomes a signal to the program; a user copy fails.
pub fn page_fault(fault: &PageFault, regs: Option<&mut UserRegs>) -> FaultOutcome {
    let touch = if fault.code.contains(FaultCode::WRITE) {
        Touch::Write
    } else if fault.code.contains(FaultCode::FETCH) {
        Touch::Execute
    } else {
        Touch::Read
    };
    let cause = || if regs.is_some() { Cause::Program } else { Cause::Kernel };
    let result = handle_fault(fault.address as usize, touch, cause);
    if result == FaultResult::Done {
        return FaultOutcome::Done;
    }
    failed(fault, result, regs.is_some())
}

#[cold]
fn failed(fault: &PageFault, result: FaultResult, from_user: bool) -> FaultOutcome {
    let Some(thread) = try_current() else { return FaultOutcome::Failed };
    if result == FaultResult::OutOfMemory {
        if thread.process.id() == 1 && victim::make_room() {
            // The instruction, or the copy, is tried again.
            return FaultOutcome::Done;
        }
        victim::end_for_memory(&thread.process);
        return FaultOutcome::Failed;
    }
    if !from_user {
        return FaultOutcome::Failed;
    }
    if result == FaultResult::Interrupted {
        // The signal is taken on the way back to the program, which then tries again.
        return FaultOutcome::Done;
    }
    if result == FaultResult::Limited {
        cgroup::memory::refused();
        return FaultOutcome::Done;
    }
    if hayate_machine::vdso::permits(fault.address, fault.code) {
        return FaultOutcome::Done;
    }
    let (signal, code) = match result {
        FaultResult::NotMapped => (SIGSEGV, SEGV_MAPERR),
        FaultResult::NotAllowed => (SIGSEGV, SEGV_ACCERR),
        _ => (SIGBUS, BUS_ADRERR),
    };
    thread.set_trap(Trap { number: 14, error: fault.code.bits(), address: fault.address });
    send::force(&thread, Siginfo::from_fault(signal, code, fault.address));
    FaultOutcome::Failed
}

/// Handles a request of the current thread that has used up half of the kernel's reserve of memory.
/// If nothing can be freed, its process is ended, or another one if it is the first process,
/// without which the system cannot continue.
#[cold]
pub fn out_of_reserve() {
    let Some(thread) = try_current() else { return };
    while hayate_machine::frames::is_low() {
        if !reclaim::relieve() {
            if thread.process.id() == 1 && victim::make_room() {
                continue;
            }
            if thread.process.id() != 1 {
                victim::end_for_memory(&thread.process);
            }
            return;
        }
    }
}

/// Handles any other exception of a program.
pub fn exception(vector: u8, error: u64, regs: &mut UserRegs) {
    let thread = current();
    if (vector == 3 || vector == 13) && is_of_turned_site(vector, regs) {
        return;
    }
    if vector == 13
        && recording::is_any()
        && let Some(after) = images::read_counter(&thread, regs)
    {
        return images::follow(&thread, regs, after);
    }
    if vector == 2 {
        // An NMI. If the program was about to enter the gate, interrupts must be off there: it
        // executes `cli` once more. If it came from the gate, it need not execute `sti`.
        if let Some(space) = crate::memory::try_current() {
            regs.rip = space.around_gate(regs.rip as usize) as u64;
        }
        return;
    }
    let mut code = TRAP_TRACE;
    if vector == 1 {
        match tracing::stop::debug_exception(&thread, regs) {
            Some(kind) => code = kind,
            None => return,
        }
    }
    thread.set_trap(Trap { number: u64::from(vector), error, address: 0 });
    let at = |signal, code| Siginfo::from_fault(signal, code, regs.rip);
    let info = match vector {
        0 => at(SIGFPE, FPE_INTDIV),
        1 => at(SIGTRAP, code),
        3 => Siginfo::new(SIGTRAP, SI_KERNEL),
        6 => at(SIGILL, ILL_ILLOPN),
        10..=12 => Siginfo::new(SIGBUS, SI_KERNEL),
        16 | 19 => at(SIGFPE, floating_point_code(vector == 19)),
        17 => Siginfo::from_fault(SIGBUS, BUS_ADRALN, 0),
        _ => Siginfo::new(SIGSEGV, SI_KERNEL),
    };
    send::force(&thread, info);
}

/// Whether an exception belongs to a call site that was patched in supervisor mode, and not to the
/// program. If so, sets `regs` to continue ([`crate::supervisor::call_sites`]).
#[cold]
fn is_of_turned_site(vector: u8, regs: &mut UserRegs) -> bool {
    let Some(space) = crate::memory::try_current() else { return false };
    if vector == 3 {
        let on = space.pass_breakpoint((regs.rip as usize).wrapping_sub(1));
        regs.rip = on.map_or(regs.rip, |on| on as u64);
        on.is_some()
    } else if space.leave_trampoline(regs.rip as usize, current().is_alone_in_space()) {
        regs.rip = regs.rcx.wrapping_add(hayate_call_sites::AGAIN as u64);
        true
    } else {
        false
    }
}

/// The floating-point exception that is pending and not masked (`fpu__exception_code`).
fn floating_point_code(simd: bool) -> i32 {
    let mut state: Vec<u8> = Vec::new();
    let size = FpuState::signal_size();
    if state.make_room_exact(size).is_err() {
        return 0;
    }
    state.resize(size, 0);
    fpu::to_signal_bytes(&mut state);
    let half = |at: usize| match state.get(at..at + 2) {
        Some(&[low, high]) => u32::from(low) | u32::from(high) << 8,
        _ => 0,
    };
    // The FXSAVE image: control word at 0, status word at 2, MXCSR at 24.
    let pending = if simd { half(24) & !(half(24) >> 7) } else { half(2) & !half(0) };
    if pending & 1 != 0 {
        FPE_FLTINV
    } else if pending & 4 != 0 {
        FPE_FLTDIV
    } else if pending & 8 != 0 {
        FPE_FLTOVF
    } else if pending & 0x12 != 0 {
        FPE_FLTUND
    } else if pending & 0x20 != 0 {
        FPE_FLTRES
    } else {
        0
    }
}
