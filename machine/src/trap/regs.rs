//! The register frame.

use crate::cpu;

/// A program's registers in the order of Linux' `struct pt_regs`
/// (arch/x86/include/asm/ptrace.h), at the top of its kernel stack while it is in the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct UserRegs {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    /// The system call's number; -1 (as u64) if the entry was not a system call.
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// The flags a program may set by sigreturn (Linux' FIX_EFLAGS plus RF):
/// CF PF AF ZF SF TF DF OF NT RF AC.
pub const USER_FLAGS: u64 = 0x0005_4dd5 & !(1 << 14) | (1 << 16);

impl UserRegs {
    /// The registers of a program about to execute its first instruction at `rip`.
    pub fn start(rip: u64, rsp: u64) -> UserRegs {
        UserRegs {
            rip,
            rsp,
            orig_rax: u64::MAX,
            cs: u64::from(cpu::USER_CS),
            ss: u64::from(cpu::USER_DS),
            rflags: 1 << 9 | 2,
            ..UserRegs::default()
        }
    }

    /// The six arguments of a system call.
    #[inline(always)]
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Whether the frame was made by a system call that has not been settled
    /// (`orig_rax` is set to -1 by whoever settles it: sigreturn, a restart).
    pub fn in_syscall(&self) -> bool {
        self.orig_rax as i64 >= 0
    }

    /// Makes the frame safe to return to, whatever a program wrote into it (sigreturn): user
    /// segments, interrupts on, I/O privilege 0, only flags a program may set.
    pub fn sanitize(&mut self) {
        self.cs = u64::from(cpu::USER_CS);
        self.ss = u64::from(cpu::USER_DS);
        self.rflags = self.rflags & USER_FLAGS | 1 << 9 | 2;
        if self.rip >= cpu::USER_END {
            // `iretq` to a non-canonical address faults in the kernel: jump to where the program faults.
            self.rip = cpu::USER_END;
        }
    }
}
