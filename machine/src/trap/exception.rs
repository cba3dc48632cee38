//! The Rust functions that the stubs call for exceptions and interrupts.

use super::{UserRegs, attention, handlers};
use crate::{apic, cpu};

bitflags::bitflags! {
    /// The error code of a page fault (Intel SDM vol. 3, 4.7).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FaultCode: u64 {
        /// The page is mapped: a protection violation.
        const PRESENT = 1;
        /// A write.
        const WRITE = 2;
        /// From user mode.
        const USER = 4;
        /// A reserved bit was set in a table entry.
        const RESERVED = 8;
        /// An instruction fetch.
        const FETCH = 16;
    }
}

/// A page fault.
#[derive(Clone, Copy, Debug)]
pub struct PageFault {
    /// The address that was accessed (CR2).
    pub address: u64,
    /// The kind of access, and the state of the page.
    pub code: FaultCode,
    /// Where: the instruction's address.
    pub rip: u64,
}

/// The result of the page fault handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// The access can be tried again, or, from user mode, a signal has been posted.
    Done,
    /// The access is not allowed: a user copy fails with `EFAULT`.
    Failed,
}

/// Runs the attention loop before a return to user mode.
pub(super) extern "C" fn attend(regs: &mut UserRegs) {
    super::check_stack();
    while attention::get() & !(super::FULL_RETURN | super::NO_TSC) != 0 {
        match handlers() {
            Some(handlers) => (handlers.attention)(regs),
            None => attention::clear(u64::MAX),
        }
    }
    attention::clear(super::FULL_RETURN);
    if attention::get() & super::NO_TSC != 0 {
        cpu::forbid_tsc();
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
    super::check_stack();
    let vector = vector as u8;
    if vector == 14 {
        let fault = PageFault {
            address: fault_address(),
            code: FaultCode::from_bits_retain(code),
            rip: regs.rip,
        };
        if let Some(handlers) = handlers() {
            (handlers.page_fault)(&fault, Some(regs));
        }
    } else if vector < 32 {
        const GENERAL_PROTECTION: u8 = 13;
        if vector == GENERAL_PROTECTION && attention::get() & super::NO_TSC == 0 && cpu::allow_tsc()
        {
            // Reading was forbidden to the program that ran here before; this program may retry.
            return;
        }
        if let Some(handlers) = handlers() {
            (handlers.exception)(vector, code, regs);
        }
    } else {
        apic::interrupt(vector, Some(regs));
    }
}

/// Handles a trap of a program in ring 0 like a trap from user mode, and presents it to the kernel
/// as such. An NMI comes here only from programs with interrupts off.
pub(super) extern "C" fn trap_from_program(vector: u64, regs: &mut UserRegs, code: u64) {
    super::check_stack();
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
    super::check_stack();
    let vector = vector as u8;
    if vector >= 32 {
        return apic::interrupt(vector, None);
    }
    if vector == 14 {
        let fault = PageFault {
            address: fault_address(),
            code: FaultCode::from_bits_retain(code),
            rip: regs.rip,
        };
        // Only the checked copies may touch user memory: their instructions have a fixup.
        if let Some(fixup) = fixup(regs.rip)
            && fault.address < cpu::USER_END + 4096
        {
            let done = handlers().map(|h| (h.page_fault)(&fault, None));
            if done != Some(FaultOutcome::Done) {
                regs.rip = fixup;
            }
            return;
        }
        if crate::stack::is_guard(fault.address) {
            panic!("kernel stack overflow at {:#x}, rip {:#x}", fault.address, regs.rip);
        }
        panic!(
            "page fault in the kernel: address {:#x}, {:?}, rip {:#x}",
            fault.address, fault.code, regs.rip
        );
    }
    if let Some(fixup) = fixup(regs.rip) {
        regs.rip = fixup;
        return;
    }
    panic!(
        "exception {vector} in the kernel: code {code:#x}, rip {:#x}, rsp {:#x}",
        regs.rip, regs.rsp
    );
}

pub(super) extern "C" fn fatal(vector: u64, frame: &[u64; 5]) -> ! {
    panic!(
        "exception {vector} in the kernel: rip {:#x}, rsp {:#x}, cs {:#x}, cr2 {:#x}, cpu {}",
        frame[0],
        frame[3],
        frame[1],
        fault_address(),
        cpu::id()
    );
}

unsafe extern "C" {
    static __start_extable: [u64; 2];
    static __stop_extable: [u64; 2];
}

/// Returns where to go on after a fault of the instruction at `rip`, if the exception table has an
/// entry for it (section `extable`, pairs of absolute addresses: instruction, fixup).
fn fixup(rip: u64) -> Option<u64> {
    let start = &raw const __start_extable;
    let end = &raw const __stop_extable;
    let count = (end as usize - start as usize) / 16;
    // SAFETY: the linker script puts the symbols around the table.
    let table = unsafe { core::slice::from_raw_parts(start, count) };
    table.iter().find(|entry| entry[0] == rip).map(|entry| entry[1])
}
