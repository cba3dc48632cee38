//! The registers of a stopped thread, as a tracer sees and changes them (arch/x86/kernel/ptrace.c
//! of Linux 6.1).
//!
//! The trap flag that single-stepping sets is not shown. The segments are those of every program;
//! what a tracer writes there must be a selector of user mode, and has no other effect.

use hayate_abi::ptrace::{USER_DEBUG, USER_REGISTERS, USER_SIZE};
use hayate_abi::{Errno, Result};
use hayate_machine::cpu;

use super::super::user_registers::user_registers;
use super::tracee::State;

/// The trap flag.
pub const TRAP_FLAG: u64 = 1 << 8;
/// The indexes of what is not a general register.
const CS: usize = 17;
const FLAGS: usize = 18;
const SS: usize = 20;
const FS_BASE: usize = 21;
const GS_BASE: usize = 22;
const DS: usize = 23;
/// Bits of DR6 that are always set (`DR6_RESERVED`).
const DR6_RESERVED: u64 = 0xffff_0ff0;

impl State {
    /// All registers, in the order of `struct user_regs_struct`.
    pub fn registers(&self) -> [u64; USER_REGISTERS] {
        user_registers(&self.regs, self.bases)
    }

    /// Sets one register (`putreg`).
    ///
    /// # Errors
    /// `EIO`: a base outside of the program's half, or a segment that is not one of user mode.
    pub fn set_register(&mut self, index: usize, value: u64) -> Result<()> {
        let regs = &mut self.regs;
        let place = match index {
            0 => &mut regs.r15,
            1 => &mut regs.r14,
            2 => &mut regs.r13,
            3 => &mut regs.r12,
            4 => &mut regs.rbp,
            5 => &mut regs.rbx,
            6 => &mut regs.r11,
            7 => &mut regs.r10,
            8 => &mut regs.r9,
            9 => &mut regs.r8,
            10 => &mut regs.rax,
            11 => &mut regs.rcx,
            12 => &mut regs.rdx,
            13 => &mut regs.rsi,
            14 => &mut regs.rdi,
            15 => &mut regs.orig_rax,
            16 => &mut regs.rip,
            19 => &mut regs.rsp,
            FS_BASE | GS_BASE => {
                if value >= cpu::USER_END {
                    return Err(Errno::EIO);
                }
                &mut self.bases[index - FS_BASE]
            }
            FLAGS => {
                regs.set_flags(value);
                self.changed = true;
                return Ok(());
            }
            CS | SS | DS..USER_REGISTERS => {
                // The selector is 16 bits wide; 0 is none, which code and stack cannot have.
                let selector = value & 0xffff;
                let good = selector & 3 == 3 || selector == 0 && index >= DS;
                return if good { Ok(()) } else { Err(Errno::EIO) };
            }
            _ => return Err(Errno::EIO),
        };
        *place = value;
        self.changed = true;
        Ok(())
    }

    /// A word of `struct user` (`PTRACE_PEEKUSER`).
    ///
    /// # Errors
    /// `EIO` for an address that is not a word of it.
    pub fn user_word(&self, address: usize) -> Result<u64> {
        if !address.is_multiple_of(8) || address >= USER_SIZE {
            return Err(Errno::EIO);
        }
        if let Some(value) = self.registers().get(address / 8) {
            return Ok(*value);
        }
        Ok(match debug_number(address) {
            Some(number @ 0..4) => self.debug.address(number),
            Some(6) => self.debug_status ^ DR6_RESERVED,
            Some(7) => self.debug.control(),
            _ => 0,
        })
    }

    /// Sets a word of `struct user` (`PTRACE_POKEUSER`).
    ///
    /// # Errors
    /// `EIO` for a word that cannot be set; `EINVAL` for a breakpoint that there cannot be.
    pub fn set_user_word(&mut self, address: usize, value: u64) -> Result<()> {
        if !address.is_multiple_of(8) || address >= USER_SIZE {
            return Err(Errno::EIO);
        }
        if address / 8 < USER_REGISTERS {
            return self.set_register(address / 8, value);
        }
        let good = match debug_number(address) {
            Some(number @ 0..4) => self.debug.set_address(number, value),
            Some(6) => {
                self.debug_status = value ^ DR6_RESERVED;
                true
            }
            Some(7) => self.debug.set_control(value),
            _ => return Err(Errno::EIO),
        };
        if good { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// Which debug register lies at an address of `struct user`.
fn debug_number(address: usize) -> Option<usize> {
    let number = address.checked_sub(USER_DEBUG)? / 8;
    (number < 8).then_some(number)
}
