//! Whether instructions are a program (`bpf_check_classic`, `check_load_and_stores`).

use alloc::vec::Vec;

use super::code::{self, Calculation};
use super::{Instruction, MOST, Refused};

/// The number of cells of a program's memory (`BPF_MEMWORDS`).
pub const CELLS: usize = 16;

/// Checks that instructions are a program.
pub fn check(program: &[Instruction]) -> Result<(), Refused> {
    if program.is_empty() || program.len() > MOST {
        return Err(Refused::Invalid);
    }
    let ends = program.last().is_some_and(|last| matches!(last.code, code::RET_K | code::RET_A));
    let good = |(at, instruction): (usize, &Instruction)| is_good(*instruction, program.len() - at);
    if !ends || !program.iter().enumerate().all(good) {
        return Err(Refused::Invalid);
    }
    check_memory(program)
}

/// Whether an instruction may be in a program; `left`: how many there are from it to the end.
fn is_good(instruction: Instruction, left: usize) -> bool {
    let Instruction { code, when_true, when_false, k } = instruction;
    if let Some((which, by_x)) = code::calculation(code) {
        return by_x
            || match which {
                Calculation::Div | Calculation::Mod => k != 0,
                Calculation::ShiftLeft | Calculation::ShiftRight => k < 32,
                _ => true,
            };
    }
    if code::condition(code).is_some() {
        return usize::from(when_true.max(when_false)) + 1 < left;
    }
    if code::absolute(code).is_some() {
        return k < code::ANCILLARY || code::special(k).is_some();
    }
    match code {
        code::LD_MEM | code::LDX_MEM | code::ST | code::STX => (k as usize) < CELLS,
        code::JA => (k as usize) < left - 1,
        code::LD_IMM
        | code::LDX_IMM
        | code::LD_W_LEN
        | code::LDX_W_LEN
        | code::LDX_B_MSH
        | code::RET_K
        | code::RET_A
        | code::TAX
        | code::TXA
        | code::NEG => true,
        _ => code::indexed(code).is_some(),
    }
}

/// Checks that no cell is read that was not written on every way there.
fn check_memory(program: &[Instruction]) -> Result<(), Refused> {
    let mut written = Vec::new();
    written.try_reserve_exact(program.len()).map_err(|_| Refused::Memory)?;
    // Of each instruction, the cells that every jump to it finds written.
    written.resize(program.len(), u16::MAX);
    let mut now = 0;
    for (at, instruction) in program.iter().enumerate() {
        now &= written[at];
        let cell = || 1 << (instruction.k % CELLS as u32);
        let mut targets = [None; 2];
        match instruction.code {
            code::ST | code::STX => now |= cell(),
            code::LD_MEM | code::LDX_MEM if now & cell() == 0 => return Err(Refused::Invalid),
            code::JA => targets[0] = Some(instruction.k as usize),
            code if code::condition(code).is_some() => {
                targets = [instruction.when_true, instruction.when_false]
                    .map(|skipped| Some(usize::from(skipped)));
            }
            _ => continue,
        }
        for target in targets.into_iter().flatten() {
            if let Some(place) = written.get_mut(at + 1 + target) {
                *place &= now;
            }
        }
        if targets[0].is_some() {
            now = u16::MAX;
        }
    }
    Ok(())
}
