//! One breakpoint on an instruction of programs (Intel SDM vol. 3, 17.2), which reports that a
//! program reached an address without changing the program.
//!
//! The breakpoint belongs to the processor, whatever program runs there: the handler of the debug
//! exception must check that the program is the intended one.

use x86_64::registers::debug::{DebugAddressRegister, Dr0, Dr7};

/// Bit 10 is always set.
const NONE: u64 = 1 << 10;
/// Breakpoint 0 is on, whatever task runs; condition and length 0: an instruction.
const FIRST: u64 = 1 << 1;
/// The flag that lets the instruction at a breakpoint pass once (RF).
pub const PASS: u64 = 1 << 16;

/// Sets this processor's breakpoint, or removes it.
pub fn set_breakpoint(address: Option<usize>) {
    // Off first, so that the breakpoint is never on with a partly set address.
    Dr7::write_raw(NONE);
    if let Some(address) = address {
        Dr0::write(address as u64);
        Dr7::write_raw(NONE | FIRST);
    }
}

/// Whether this processor's breakpoint is on and stands at `address`.
pub fn has_breakpoint(address: usize) -> bool {
    Dr7::read_raw() & FIRST != 0 && Dr0::read() == address as u64
}
