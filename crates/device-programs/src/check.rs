//! Which programs are taken.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::instruction::{Instruction, LOAD_NUMBER, MODE_MEMORY, alu, class, jump};
use super::{Context, MOST, Program, SIZE};

/// Why a program is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no instructions, or too many (`E2BIG`).
    Size,
    /// It is none, or one of a kind that is not taken (`EINVAL`).
    Invalid,
    /// It uses what it may not: a register that is not set, memory that is not its own (`EACCES`).
    Access,
    /// There is no memory for the check (`ENOMEM`).
    Memory,
}

/// The knowledge of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Unset,
    Number(Option<u64>),
    /// The address of the context.
    Context,
}

/// The registers: r0 to r9, and r10, which has the address of a stack and is never read here.
const REGISTERS: usize = 11;
type State = [Value; REGISTERS];

/// The state at the beginning: r1 has the context.
fn beginning() -> State {
    let mut state = [Value::Unset; REGISTERS];
    state[1] = Value::Context;
    state
}

/// What two ways have in common.
fn joined(one: Value, other: Value) -> Value {
    match (one, other) {
        _ if one == other => one,
        (Value::Number(_), Value::Number(_)) => Value::Number(None),
        _ => Value::Unset,
    }
}

struct Check<'a> {
    program: &'a [Instruction],
    /// The registers before each instruction; `None`: no way leads there so far.
    states: Vec<Option<State>>,
    context: Context,
}

impl Program {
    /// Takes a program, given as the bytes of its instructions, that reads no more than `context`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn check(bytes: &[u8], context: Context) -> Result<Program, Refusal> {
        let (instructions, rest) = bytes.as_chunks::<SIZE>();
        if instructions.is_empty() || instructions.len() > MOST || !rest.is_empty() {
            return Err(Refusal::Size);
        }
        let mut program = Vec::new();
        program.try_reserve_exact(instructions.len()).map_err(|_| Refusal::Memory)?;
        program.extend(instructions.iter().map(|bytes| Instruction::decode(*bytes)));
        let mut states = Vec::new();
        states.try_reserve_exact(program.len()).map_err(|_| Refusal::Memory)?;
        states.resize(program.len(), None);
        Check { program: &program, states, context }.all()?;
        let sum = sha1_smol::Sha1::from(bytes).digest().bytes();
        let tag = *sum.first_chunk().ok_or(Refusal::Size)?;
        Ok(Program { instructions: Box::from(program), tag })
    }
}

impl Check<'_> {
    fn all(mut self) -> Result<(), Refusal> {
        self.reach(0, &beginning())?;
        let mut at = 0;
        while let Some(&instruction) = self.program.get(at) {
            // No way leads here.
            let state = self.states.get(at).copied().flatten().ok_or(Refusal::Invalid)?;
            at = self.one(at, instruction, state)?;
        }
        Ok(())
    }

    /// A way leads to an instruction with these registers.
    fn reach(&mut self, at: usize, state: &State) -> Result<(), Refusal> {
        let known = self.states.get_mut(at).ok_or(Refusal::Invalid)?;
        match known {
            None => *known = Some(*state),
            Some(known) => {
                for (value, other) in known.iter_mut().zip(state) {
                    *value = joined(*value, *other);
                }
            }
        }
        Ok(())
    }

    /// Checks an instruction; returns where the next one begins.
    fn one(&mut self, at: usize, it: Instruction, mut state: State) -> Result<usize, Refusal> {
        let mut next = at + 1;
        match it.class() {
            class::LD => {
                let second = self.program.get(next).copied().ok_or(Refusal::Invalid)?;
                set(&mut state, it.to, load_number(it, second)?)?;
                // No way leads into the middle, and it is no instruction of its own.
                if self.states.get(next).is_some_and(Option::is_some) {
                    return Err(Refusal::Invalid);
                }
                next += 1;
            }
            class::LDX => {
                load(it, &state)?;
                if self.context == Context::Nothing {
                    return Err(Refusal::Access);
                }
                set(&mut state, it.to, Value::Number(None))?;
            }
            class::ALU32 | class::ALU64 => {
                let value = arithmetic(it, &state)?;
                set(&mut state, it.to, value)?;
            }
            class::JMP | class::JMP32 => return self.jump(at, it, &state),
            // Stores: there is nothing to store into.
            _ => return Err(Refusal::Invalid),
        }
        self.reach(next, &state)?;
        Ok(next)
    }

    fn jump(&mut self, at: usize, it: Instruction, state: &State) -> Result<usize, Refusal> {
        let next = at + 1;
        let is_wide = it.class() == class::JMP;
        let is_bare = it.from == 0 && it.to == 0 && !it.takes_register();
        match it.operation() {
            jump::EXIT if is_wide && is_bare && it.offset == 0 && it.number == 0 => {
                match number(state, 0)? {
                    Some(2..) => return Err(Refusal::Invalid),
                    _ => return Ok(next),
                }
            }
            jump::ALWAYS if is_wide && is_bare && it.number == 0 => {}
            jump::CALL | jump::EXIT | jump::ALWAYS | 0xe0.. => return Err(Refusal::Invalid),
            _ => {
                second(it, state)?;
                number(state, it.to)?;
                self.reach(next, state)?;
            }
        }
        // Back is a loop.
        let distance = usize::try_from(it.offset).map_err(|_| Refusal::Invalid)?;
        self.reach(next + distance, state)?;
        Ok(next)
    }
}

/// The number that a register has, if it is known.
fn number(state: &State, register: u8) -> Result<Option<u64>, Refusal> {
    match state.get(usize::from(register)) {
        Some(Value::Number(known)) => Ok(*known),
        Some(_) => Err(Refusal::Access),
        None => Err(Refusal::Invalid),
    }
}

/// Sets a register; r10 cannot be.
fn set(state: &mut State, register: u8, value: Value) -> Result<(), Refusal> {
    match state.get_mut(usize::from(register)) {
        Some(place) if register < 10 => *place = value,
        Some(_) => return Err(Refusal::Access),
        None => return Err(Refusal::Invalid),
    }
    Ok(())
}

/// The second operand, if it is known; fields that are not used are 0.
fn second(it: Instruction, state: &State) -> Result<Option<u64>, Refusal> {
    match it.takes_register() {
        true if it.number == 0 => number(state, it.from),
        false if it.from == 0 => Ok(Some(i64::from(it.number).cast_unsigned())),
        _ => Err(Refusal::Invalid),
    }
}

fn load_number(it: Instruction, second: Instruction) -> Result<Value, Refusal> {
    let is_rest = Instruction { number: 0, ..second }
        == Instruction { code: 0, to: 0, from: 0, offset: 0, number: 0 };
    // With another source it is the address of a map, a function or a variable.
    if it.code != LOAD_NUMBER || it.from != 0 || it.offset != 0 || !is_rest {
        return Err(Refusal::Invalid);
    }
    Ok(Value::Number(Some(super::run::wide(it, second))))
}

/// A load from the context: whole words, or parts of the first (`cgroup_dev_is_valid_access`).
fn load(it: Instruction, state: &State) -> Result<(), Refusal> {
    if it.code & 0xe0 != MODE_MEMORY || it.number != 0 {
        return Err(Refusal::Invalid);
    }
    match state.get(usize::from(it.from)) {
        Some(Value::Context) => {}
        Some(_) => return Err(Refusal::Access),
        None => return Err(Refusal::Invalid),
    }
    match (it.offset, it.size()) {
        (0 | 4 | 8, 4) | (0 | 2, 2) | (0..4, 1) => Ok(()),
        _ => Err(Refusal::Access),
    }
}

fn arithmetic(it: Instruction, state: &State) -> Result<Value, Refusal> {
    let is_wide = it.class() == class::ALU64;
    let bits = if is_wide { 64 } else { 32 };
    if it.offset != 0 {
        return Err(Refusal::Invalid);
    }
    match it.operation() {
        alu::MOV => {
            let has_context = state.get(usize::from(it.from)) == Some(&Value::Context);
            if is_wide && it.takes_register() && it.number == 0 && has_context {
                return Ok(Value::Context);
            }
            let known = second(it, state)?;
            return Ok(Value::Number(known.map(|it| if is_wide { it } else { it & 0xffff_ffff })));
        }
        alu::NEG if it.takes_register() || it.from != 0 || it.number != 0 => {
            return Err(Refusal::Invalid);
        }
        alu::NEG => {}
        alu::END => {
            let is_possible = !is_wide && it.from == 0 && matches!(it.number, 16 | 32 | 64);
            if !is_possible {
                return Err(Refusal::Invalid);
            }
        }
        0xe0.. => return Err(Refusal::Invalid),
        operation => {
            second(it, state)?;
            let is_given = !it.takes_register();
            let divides = matches!(operation, alu::DIV | alu::MOD);
            let shifts = matches!(operation, alu::LSH | alu::RSH | alu::ARSH);
            if is_given && divides && it.number == 0
                || is_given && shifts && !(0..bits).contains(&it.number)
            {
                return Err(Refusal::Invalid);
            }
        }
    }
    number(state, it.to)?;
    Ok(Value::Number(None))
}
