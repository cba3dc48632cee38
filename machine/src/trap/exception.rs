//! The Rust functions that the stubs call for exceptions and interrupts.

use super::handlers::{FaultOutcome, PageFault, check_stack, handlers};
use super::regs::UserRegs;
use super::{fixup, guard, traced};
use crate::apic::{RESCHEDULE_VECTOR, SHOOTDOWN_VECTOR, SPURIOUS_VECTOR, TIMER_VECTOR};
use crate::attention::{self, FULL_RETURN, GUARDED, NO_TSC, TRACED};
use crate::cpu::{self, FaultCode, Word};
use crate::{apic, interrupt, mailbox, per_cpu, time};

per_cpu! {
    /// Where a program was at the last page fault on this CPU.
    static LAST_FAULT: Word = Word::new(0);
}

/// Returns where a program was at the last page fault on this CPU, once: 0 if it was asked for
/// since. A tick that was pending at the end of the fault is taken there.
pub fn take_last_fault() -> u64 {
    let at = LAST_FAULT.get();
    LAST_FAULT.set(0);
    at
}

/// Runs the attention loop before a return to user mode.
pub(super) extern "C" fn attend(regs: &mut UserRegs) {
    check_stack();
    const STAYING: u64 = NO_TSC | GUARDED | TRACED;
    while attention::get() & !(FULL_RETURN | STAYING) != 0 {
        match handlers() {
            Some(handlers) => (handlers.attention)(regs),
            None => attention::clear(u64::MAX),
        }
    }
    attention::clear(FULL_RETURN);
    if attention::get() & STAYING != 0 {
        prepare_return();
    }
}

/// Prepares the processor for a program that not every program is like.
#[cold]
fn prepare_return() {
    if attention::get() & NO_TSC != 0 {
        cpu::forbid_tsc();
    }
    if attention::get() & TRACED != 0 {
        traced::enter();
    } else if attention::get() & GUARDED != 0 {
        guard::load();
    }
}

/// Returns the address of the last page fault.
fn fault_address() -> u64 {
    let address;
    // SAFETY: reading CR2 has no effect.
    unsafe {
        core::arch::asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags))
    };
    address
}

pub(super) extern "C" fn trap_from_user(vector: u64, regs: &mut UserRegs, code: u64) {
    check_stack();
    let vector = vector as u8;
    if vector == 14 {
        let fault = PageFault {
            address: fault_address(),
            code: FaultCode::from_bits_retain(code),
            rip: regs.rip,
        };
        LAST_FAULT.set(regs.rip);
        if let Some(handlers) = handlers() {
            (handlers.page_fault)(&fault, Some(regs));
        }
    } else if vector < 32 {
        const GENERAL_PROTECTION: u8 = 13;
        if vector == GENERAL_PROTECTION && attention::get() & NO_TSC == 0 && cpu::allow_tsc() {
            // Reading was forbidden to the program that ran here before; this program may retry.
            return;
        }
        if let Some(handlers) = handlers() {
            (handlers.exception)(vector, code, regs);
        }
    } else {
        take_interrupt(vector, Some(regs));
    }
}

/// Handles a trap of a program in ring 0 like a trap from user mode, and presents it to the kernel
/// as such. An NMI comes here only from programs with interrupts off.
pub(super) extern "C" fn trap_from_program(vector: u64, regs: &mut UserRegs, code: u64) {
    check_stack();
    const NMI: u8 = 2;
    const INTERRUPTS_ON: u64 = 0x200;
    if regs.rflags & INTERRUPTS_ON == 0
        && let Some(handlers) = handlers()
    {
        (handlers.exception)(NMI, 0, regs);
    }
    if vector == u64::from(NMI) {
        return;
    }
    let user = if vector == 14 { FaultCode::USER.bits() } else { 0 };
    trap_from_user(vector, regs, code | user);
}

pub(super) extern "C" fn trap_from_kernel(vector: u64, regs: &mut UserRegs, code: u64) {
    check_stack();
    let vector = vector as u8;
    if vector >= 32 {
        time::note_wakening();
        return take_interrupt(vector, None);
    }
    if vector == 14 {
        let fault = PageFault {
            address: fault_address(),
            code: FaultCode::from_bits_retain(code),
            rip: regs.rip,
        };
        // Only the checked copies may touch user memory.
        if fault.address < cpu::USER_END + 4096 && is_checked_copy(regs) {
            let done = handlers().map(|h| (h.page_fault)(&fault, None));
            if done == Some(FaultOutcome::Done) {
                return;
            }
            if let Some(then) = fixup::find(regs.rip) {
                regs.rip = then;
                return;
            }
        }
        if crate::stack::is_guard(fault.address) {
            panic!("kernel stack overflow at {:#x}, rip {:#x}", fault.address, regs.rip);
        }
        panic!(
            "page fault in the kernel: address {:#x}, {:?}, rip {:#x}",
            fault.address, fault.code, regs.rip
        );
    }
    if let Some(then) = fixup::find(regs.rip) {
        regs.rip = then;
        return;
    }
    panic!(
        "exception {vector} in the kernel: code {code:#x}, rip {:#x}, rsp {:#x}",
        regs.rip, regs.rsp
    );
}

/// Whether a checked copy was interrupted. SMAP is open for these alone, which the flag AC tells
/// (Intel SDM volume 3, 4.6.1); so Linux asks first, too (`arch/x86/mm/fault.c`,
/// `do_user_addr_fault`). Without SMAP the exception table tells.
fn is_checked_copy(regs: &UserRegs) -> bool {
    const AC: u64 = 1 << 18;
    cpu::features().smap && regs.rflags & AC != 0 || fixup::find(regs.rip).is_some()
}

/// Handles an interrupt.
fn take_interrupt(vector: u8, regs: Option<&mut UserRegs>) {
    match vector {
        TIMER_VECTOR => {
            apic::end_of_interrupt();
            time::timer_fired();
            if let Some(handlers) = handlers() {
                (handlers.timer)(regs);
            }
        }
        RESCHEDULE_VECTOR => {
            apic::end_of_interrupt();
            attention::raise(attention::RESCHEDULE);
        }
        SHOOTDOWN_VECTOR => {
            apic::end_of_interrupt();
            mailbox::poll();
        }
        SPURIOUS_VECTOR => {}
        _ => {
            apic::end_of_interrupt();
            if interrupt::is_taken(vector) {
                interrupt::deliver(vector);
            } else if let Some(handlers) = handlers() {
                match regs {
                    // No device has this vector: a program in ring 0 executed `int`, which ring 3
                    // may not.
                    Some(regs) if attention::is_supervisor() => {
                        (handlers.exception)(13, u64::from(vector) << 3 | 2, regs);
                    }
                    _ => (handlers.irq)(vector),
                }
            }
        }
    }
}

pub(super) extern "C" fn fatal(vector: u64, frame: &[u64; 5]) -> ! {
    let address = fault_address();
    if vector == 8 && crate::stack::is_guard(address) {
        panic!("kernel stack overflow at {address:#x}, rip {:#x}, cpu {}", frame[0], cpu::id());
    }
    panic!(
        "exception {vector} in the kernel: rip {:#x}, rsp {:#x}, cs {:#x}, cr2 {:#x}, cpu {}",
        frame[0],
        frame[3],
        frame[1],
        address,
        cpu::id()
    );
}
