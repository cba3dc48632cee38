//! The register frame.
//!
//! The values that `iretq` and `sysretq` load must be valid, whatever the kernel writes into a
//! frame. So the kernel cannot write segments, and can change only those flags that a program may
//! set: the segments are those of the entry. Nor can a frame be exchanged for another frame, which
//! may belong to a program in ring 0: the lifetime of [`UserRegs`] belongs to one frame. Values
//! that are not frames have the lifetime `'static`, and [`UserRegs::go_on_at`] copies their content
//! into a frame.

use core::marker::PhantomData;

use crate::{cpu, vdso};

/// A program's registers in the order of Linux' `struct pt_regs`
/// (arch/x86/include/asm/ptrace.h), at the top of its kernel stack while it is in the kernel.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct UserRegs<'f> {
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
    pub(crate) cs: u64,
    pub(super) rflags: u64,
    pub rsp: u64,
    pub(super) ss: u64,
    /// Makes the lifetime invariant: exactly that of the value's own frame.
    frame: PhantomData<fn(&'f ()) -> &'f ()>,
}

/// The flags a program may set by sigreturn (Linux' FIX_EFLAGS plus RF):
/// CF PF AF ZF SF TF DF OF NT RF AC.
const USER_FLAGS: u64 = 0x0005_4dd5 & !(1 << 14) | (1 << 16);

/// Flags that are always set: interrupts, and the reserved bit.
const ALWAYS: u64 = 1 << 9 | 2;

impl Default for UserRegs<'static> {
    fn default() -> Self {
        UserRegs::start(0, 0)
    }
}

impl Clone for UserRegs<'static> {
    fn clone(&self) -> Self {
        self.copied()
    }
}

impl UserRegs<'static> {
    /// Returns the registers of a program that is about to execute its first instruction, at `rip`.
    pub fn start(rip: u64, rsp: u64) -> Self {
        UserRegs {
            r15: 0,
            r14: 0,
            r13: 0,
            r12: 0,
            rbp: 0,
            rbx: 0,
            r11: 0,
            r10: 0,
            r9: 0,
            r8: 0,
            rax: 0,
            rcx: 0,
            rdx: 0,
            rsi: 0,
            rdi: 0,
            orig_rax: u64::MAX,
            rip,
            cs: u64::from(cpu::USER_CS),
            rflags: ALWAYS,
            rsp,
            ss: u64::from(cpu::USER_DS),
            frame: PhantomData,
        }
    }
}

impl UserRegs<'_> {
    /// Returns a copy of the frame's content, for another thread to start with.
    #[inline(always)]
    pub fn copied(&self) -> UserRegs<'static> {
        UserRegs { frame: PhantomData, ..*self }
    }

    /// Makes the program continue with the content of `other`, in ring 3; if the program's mode is
    /// another, the way out or its first instruction fetch corrects that.
    #[inline]
    pub fn go_on_at(&mut self, other: &UserRegs<'static>) {
        *self = UserRegs { frame: PhantomData, ..*other };
        self.make_users();
    }

    /// Returns the program's flags.
    #[inline]
    pub fn flags(&self) -> u64 {
        self.rflags
    }

    /// Sets those flags that the program may set itself, as in `flags`.
    #[inline]
    pub fn set_flags(&mut self, flags: u64) {
        self.rflags = flags & USER_FLAGS | ALWAYS;
    }

    /// Returns the six arguments of a system call.
    #[inline(always)]
    pub fn arguments(&self) -> [u64; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Whether the frame was made by a system call that has not been settled (sigreturn and a
    /// restart settle it by setting `orig_rax` to -1).
    pub fn in_syscall(&self) -> bool {
        self.orig_rax as i64 >= 0
    }

    /// Makes the frame one of ring 3.
    #[inline(always)]
    pub(crate) fn make_users(&mut self) {
        self.cs = u64::from(cpu::USER_CS);
        self.ss = u64::from(cpu::USER_DS);
        self.set_flags(self.rflags);
    }

    /// Prepares the frame for another position of the program, which the program may have chosen
    /// itself (sigreturn): user segments, because the mode may have changed, and an instruction
    /// address in the program's half or in the object that the kernel maps for programs.
    pub fn sanitize(&mut self) {
        self.make_users();
        if self.rip >= cpu::USER_END && !vdso::holds(self.rip) {
            // `iretq` to a non-canonical address faults in the kernel: go to an address where the
            // program faults.
            self.rip = cpu::USER_END;
        }
    }
}
