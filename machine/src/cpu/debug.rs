//! The debug registers of a program that is traced: four breakpoints on instructions and data
//! (Intel SDM vol. 3, 17.2).
//!
//! They are loaded when a processor returns to a thread that has any, and not taken away when
//! another thread runs: that one may meet them once, and then they are cleared
//! ([`clear_debug_registers`]). So a switch of contexts pays nothing. The kernel meets them when it
//! copies to or from a place that is watched; its stub clears them and goes on, and they are loaded
//! again with the return to the thread. As in Linux, such a copy is not reported.
//!
//! Every address is in the program's half, and the control register has no bits but those of the
//! four breakpoints, whatever the kernel asks for.

use core::arch::asm;

use x86_64::registers::debug::{DebugAddressRegister, Dr0, Dr1, Dr2, Dr3, Dr7};

use super::Word;
use super::bases::USER_END;

/// Bit 10 of DR7 is always set.
const NONE: u64 = 1 << 10;
/// DR6 without any report.
const NOTHING: u64 = 0xffff_0ff0;
/// The bit of DR6 that tells of a single step (BS).
pub const STEPPED: u64 = 1 << 14;
/// The bits of DR7 that a program may set (Linux' `DR_CONTROL_RESERVED` has the others).
const CONTROL: u64 = 0xffff_03ff;

crate::per_cpu! {
    /// Whether the registers of this processor have breakpoints of a program.
    static LOADED: Word = Word::new(0);
}

/// The contents of a program's debug registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugRegisters {
    addresses: [u64; 4],
    control: u64,
}

/// The length of the breakpoint with these four bits of DR7; `None` if there is no such kind.
fn length(bits: u64) -> Option<u64> {
    let length = [1, 2, 8, 4][(bits >> 2) as usize & 3];
    match bits & 3 {
        0 if length == 1 => Some(1),
        1 | 3 => Some(length),
        // Input and output.
        _ => None,
    }
}

impl DebugRegisters {
    fn is_on(control: u64, number: usize) -> bool {
        control >> (2 * number) & 3 != 0
    }

    /// Whether these are breakpoints that programs may have.
    fn are_good(addresses: &[u64; 4], control: u64) -> bool {
        addresses.iter().enumerate().all(|(number, &address)| {
            let length = length(control >> (16 + 4 * number) & 15);
            address < USER_END
                && (!Self::is_on(control, number)
                    || length.is_some_and(|length| address.is_multiple_of(length)))
        })
    }

    /// Returns the address of a breakpoint, 0 to 3.
    pub fn address(&self, number: usize) -> u64 {
        self.addresses.get(number).copied().unwrap_or(0)
    }

    /// Sets the address of a breakpoint. False, and nothing changes, outside of the program's half
    /// and where its length does not allow it.
    pub fn set_address(&mut self, number: usize, address: u64) -> bool {
        let mut addresses = self.addresses;
        let Some(place) = addresses.get_mut(number) else { return false };
        *place = address;
        let good = Self::are_good(&addresses, self.control);
        if good {
            self.addresses = addresses;
        }
        good
    }

    /// Returns the control register (DR7), as it was set.
    pub fn control(&self) -> u64 {
        self.control
    }

    /// Sets the control register; bits that mean nothing here are left out. False, and nothing
    /// changes, for breakpoints that there cannot be.
    pub fn set_control(&mut self, control: u64) -> bool {
        let control = control & CONTROL;
        let good = Self::are_good(&self.addresses, control);
        if good {
            self.control = control;
        }
        good
    }

    /// Whether any breakpoint is on.
    pub fn is_any(&self) -> bool {
        self.control & 0xff != 0
    }

    /// Returns those of the reported breakpoints, by bit, that are on.
    pub fn hits(&self, status: u64) -> u64 {
        (0..4)
            .filter(|&n| status >> n & 1 != 0 && Self::is_on(self.control, n))
            .fold(0, |a, n| a | 1 << n)
    }

    /// Whether one of these breakpoints, by bit, is on an instruction, which has not been executed
    /// yet then.
    pub fn is_instruction(&self, hits: u64) -> bool {
        (0..4).any(|n| hits >> n & 1 != 0 && self.control >> (16 + 4 * n) & 3 == 0)
    }
}

/// Loads a program's debug registers on this processor.
pub fn load_debug_registers(registers: &DebugRegisters) {
    if !registers.is_any() {
        return clear_debug_registers();
    }
    // Off first, so that no breakpoint is on with another one's address.
    Dr7::write_raw(NONE);
    let [a, b, c, d] = registers.addresses;
    Dr0::write(a);
    Dr1::write(b);
    Dr2::write(c);
    Dr3::write(d);
    set_status(NOTHING);
    Dr7::write_raw(NONE | registers.control & !0xff00);
    LOADED.set(1);
}

/// Takes the breakpoints of a program away from this processor, if there are any.
pub fn clear_debug_registers() {
    if LOADED.get() != 0 {
        Dr7::write_raw(NONE);
        LOADED.set(0);
    }
}

/// Returns the reports of this processor's last debug exceptions (DR6), once.
pub fn take_debug_status() -> u64 {
    let status: u64;
    // SAFETY: reading the register has no effect in ring 0.
    unsafe { asm!("mov {}, dr6", out(reg) status, options(nomem, nostack, preserves_flags)) };
    set_status(NOTHING);
    status & !NOTHING
}

fn set_status(status: u64) {
    // SAFETY: the register only reports.
    unsafe { asm!("mov dr6, {}", in(reg) status, options(nomem, nostack, preserves_flags)) };
}
