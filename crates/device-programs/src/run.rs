//! The work of a program.

use super::instruction::{Instruction, LOAD_NUMBER, alu, class, jump};
use super::{Access, Program};

/// The number of a load from two instructions.
pub(super) fn wide(first: Instruction, second: Instruction) -> u64 {
    u64::from(second.number.cast_unsigned()) << 32 | u64::from(first.number.cast_unsigned())
}

impl Program {
    /// Whether it allows an access.
    pub fn allows(&self, access: Access) -> bool {
        let words = access.words();
        let mut registers = [0_u64; 16];
        let mut at = 0;
        // Each step leads forward, as the check has seen.
        while let Some(&it) = self.instructions.get(at) {
            at += 1;
            let to = registers[usize::from(it.to)];
            let given = i64::from(it.number).cast_unsigned();
            let other = if it.takes_register() { registers[usize::from(it.from)] } else { given };
            let result = match it.class() {
                class::LD if it.code == LOAD_NUMBER => {
                    let second = self.instructions.get(at).map_or(0, |second| wide(it, *second));
                    at += 1;
                    second
                }
                class::LDX => loaded(words, it),
                class::ALU64 => wide_result(it.operation(), to, other),
                class::ALU32 if it.operation() == alu::END => swapped(it, to),
                class::ALU32 => u64::from(narrow_result(it.operation(), to as u32, other as u32)),
                class::JMP if it.operation() == jump::EXIT => return registers[0] & 1 != 0,
                class::JMP if it.operation() == jump::ALWAYS => {
                    at += usize::try_from(it.offset).unwrap_or(0);
                    continue;
                }
                class::JMP | class::JMP32 => {
                    let is_wide = it.class() == class::JMP;
                    if holds(it.operation(), is_wide, to, other) {
                        at += usize::try_from(it.offset).unwrap_or(0);
                    }
                    continue;
                }
                _ => return false,
            };
            registers[usize::from(it.to)] = result;
        }
        false
    }
}

/// The part of the context that a load reads.
fn loaded(words: [u32; 3], it: Instruction) -> u64 {
    let offset = usize::try_from(it.offset).unwrap_or(0);
    let word = u64::from(words.get(offset / 4).copied().unwrap_or(0)) >> (offset % 4 * 8);
    match it.size() {
        1 => word & 0xff,
        2 => word & 0xffff,
        _ => word,
    }
}

fn wide_result(operation: u8, to: u64, other: u64) -> u64 {
    match operation {
        alu::ADD => to.wrapping_add(other),
        alu::SUB => to.wrapping_sub(other),
        alu::MUL => to.wrapping_mul(other),
        // By zero: 0, and what it was (RFC 9669, section 4.1).
        alu::DIV => to.checked_div(other).unwrap_or(0),
        alu::MOD => to.checked_rem(other).unwrap_or(to),
        alu::OR => to | other,
        alu::AND => to & other,
        alu::XOR => to ^ other,
        alu::LSH => to << (other & 63),
        alu::RSH => to >> (other & 63),
        alu::ARSH => (to.cast_signed() >> (other & 63)).cast_unsigned(),
        alu::NEG => to.wrapping_neg(),
        _ => other,
    }
}

/// The same of 32 bits: the low half of that of 64, but for shifts.
fn narrow_result(operation: u8, to: u32, other: u32) -> u32 {
    let (to, other) = match operation {
        alu::ARSH => (i64::from(to.cast_signed()).cast_unsigned(), u64::from(other & 31)),
        alu::LSH | alu::RSH => (u64::from(to), u64::from(other & 31)),
        _ => (u64::from(to), u64::from(other)),
    };
    wide_result(operation, to, other) as u32
}

/// The lowest bits, with the bytes in the other order if the instruction says "from a register":
/// that is how it says big-endian.
fn swapped(it: Instruction, to: u64) -> u64 {
    match (it.number, it.takes_register()) {
        (16, true) => u64::from((to as u16).swap_bytes()),
        (32, true) => u64::from((to as u32).swap_bytes()),
        (64, true) => to.swap_bytes(),
        (16, false) => to & 0xffff,
        (32, false) => to & 0xffff_ffff,
        _ => to,
    }
}

fn holds(operation: u8, is_wide: bool, to: u64, other: u64) -> bool {
    let (to, other) = if is_wide { (to, other) } else { (to & 0xffff_ffff, other & 0xffff_ffff) };
    let signed = |value: u64| {
        if is_wide { value.cast_signed() } else { i64::from((value as u32).cast_signed()) }
    };
    match operation {
        jump::EQ => to == other,
        jump::GT => to > other,
        jump::GE => to >= other,
        jump::SET => to & other != 0,
        jump::NE => to != other,
        jump::SGT => signed(to) > signed(other),
        jump::SGE => signed(to) >= signed(other),
        jump::LT => to < other,
        jump::LE => to <= other,
        jump::SLT => signed(to) < signed(other),
        jump::SLE => signed(to) <= signed(other),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
