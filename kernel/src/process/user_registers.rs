//! The registers of a program as others see them: a tracer and the reader of a core file.

use hayate_abi::ptrace::USER_REGISTERS;
use hayate_machine::cpu;
use hayate_machine::trap::UserRegs;

/// All registers in the order of `struct user_regs_struct`, with these bases of FS and GS. The
/// segments are those of user mode, in either mode.
pub fn user_registers(regs: &UserRegs, bases: [u64; 2]) -> [u64; USER_REGISTERS] {
    [
        regs.r15,
        regs.r14,
        regs.r13,
        regs.r12,
        regs.rbp,
        regs.rbx,
        regs.r11,
        regs.r10,
        regs.r9,
        regs.r8,
        regs.rax,
        regs.rcx,
        regs.rdx,
        regs.rsi,
        regs.rdi,
        regs.orig_rax,
        regs.rip,
        u64::from(cpu::USER_CS),
        regs.flags(),
        regs.rsp,
        u64::from(cpu::USER_DS),
        bases[0],
        bases[1],
        0,
        0,
        0,
        0,
    ]
}
