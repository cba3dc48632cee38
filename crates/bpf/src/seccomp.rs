//! Filters of system calls (seccomp(2)): programs over the number and the arguments of a call.
//!
//! [`Filter::check`] accepts what `bpf_check_classic` and `seccomp_check_filter` of Linux 6.1
//! accept together (net/core/filter.c, kernel/seccomp.c): of all loads only whole words of `struct
//! seccomp_data`, and no remainders. The instructions are decoded once, with the places of jumps.
//!
//! [`Filter::constant`] executes a program with all words unknown but the number and the
//! architecture. A call that a program allows so is allowed whatever its arguments: a caller
//! that keeps these answers does not execute the program for it (`SECCOMP_CACHE` of Linux, which
//! knows fewer instructions).
//!
//! Road not taken: translating to machine code. Most calls of a program are allowed whatever their
//! arguments; the others pay some dozen steps.

use alloc::vec::Vec;

use super::check::CELLS;
use super::code::{self, Calculation, Condition};
use super::run::{calculate, holds};
use super::{Instruction, Refused, check};

/// The size of `struct seccomp_data` in bytes.
pub const DATA_SIZE: usize = 64;
const WORDS: usize = DATA_SIZE / 4;

/// The most instructions of all filters of a thread (`MAX_INSNS_PER_PATH`).
pub const MOST_TOGETHER: usize = (1 << 18) / Instruction::SIZE;
/// How many instructions each older filter counts besides its own.
pub const PENALTY: usize = 4;

/// `AUDIT_ARCH_X86_64`
pub const ARCH_X86_64: u32 = 0xc000_003e;

/// What a filter sees of a system call (`struct seccomp_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    words: [u32; WORDS],
}

impl Data {
    /// A call: its number, the architecture, the address behind the instruction, its arguments.
    pub fn new(number: u32, arch: u32, instruction: u64, arguments: [u64; 6]) -> Data {
        let mut words = [0; WORDS];
        words[0] = number;
        words[1] = arch;
        let long = core::iter::once(instruction).chain(arguments);
        for (pair, long) in words[2..].chunks_exact_mut(2).zip(long) {
            pair.copy_from_slice(&[long as u32, (long >> 32) as u32]);
        }
        Data { words }
    }

    /// The bytes as a program sees them.
    pub fn to_bytes(&self) -> [u8; DATA_SIZE] {
        let mut bytes = [0; DATA_SIZE];
        for (four, word) in bytes.chunks_exact_mut(4).zip(self.words) {
            four.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// An instruction, decoded. Places are absolute.
#[derive(Clone, Copy, Debug)]
enum Step {
    Load(u8),
    Set(u32),
    SetX(u32),
    Recall(u8),
    RecallX(u8),
    Store(u8),
    StoreX(u8),
    By(Calculation, u32),
    ByX(Calculation),
    Negate,
    ToX,
    ToA,
    Jump(u16),
    Branch { which: Condition, k: u32, yes: u16, no: u16 },
    BranchX { which: Condition, yes: u16, no: u16 },
    Return(u32),
    ReturnA,
}

/// A filter that was checked.
#[derive(Debug)]
pub struct Filter {
    steps: Vec<Step>,
    length: usize,
}

impl Filter {
    /// Checks a filter.
    ///
    /// # Errors
    /// [`Refused::Invalid`] if Linux would refuse it too, [`Refused::Memory`].
    pub fn check(instructions: &[Instruction]) -> Result<Filter, Refused> {
        check::check(instructions)?;
        let mut steps = Vec::new();
        steps.try_reserve_exact(instructions.len()).map_err(|_| Refused::Memory)?;
        let mut length = PROLOGUE;
        for (at, instruction) in instructions.iter().enumerate() {
            steps.push(decode(at, *instruction).ok_or(Refused::Invalid)?);
            length += converted(*instruction);
        }
        Ok(Filter { steps, length })
    }

    /// How many instructions it counts for [`MOST_TOGETHER`]: those that Linux makes of it
    /// (`bpf_convert_filter`), because `prog->len` is their number.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Executes it.
    pub fn run(&self, data: &Data) -> Verdict {
        // A program without an end, which check() refuses, allows nothing.
        Verdict(self.execute(data).unwrap_or(0))
    }

    fn execute(&self, data: &Data) -> Option<u32> {
        let (mut a, mut x) = (0u32, 0u32);
        let mut cells = [0u32; CELLS];
        let mut at = 0usize;
        loop {
            let step = *self.steps.get(at)?;
            at += 1;
            match step {
                Step::Load(word) => a = data.words[usize::from(word) % WORDS],
                Step::Set(k) => a = k,
                Step::SetX(k) => x = k,
                Step::Recall(cell) => a = cells[usize::from(cell) % CELLS],
                Step::RecallX(cell) => x = cells[usize::from(cell) % CELLS],
                Step::Store(cell) => cells[usize::from(cell) % CELLS] = a,
                Step::StoreX(cell) => cells[usize::from(cell) % CELLS] = x,
                Step::By(which, k) => a = calculate(which, a, k)?,
                Step::ByX(which) => a = calculate(which, a, x)?,
                Step::Negate => a = a.wrapping_neg(),
                Step::ToX => x = a,
                Step::ToA => a = x,
                Step::Jump(to) => at = usize::from(to),
                Step::Branch { which, k, yes, no } => {
                    at = usize::from(if holds(which, a, k) { yes } else { no });
                }
                Step::BranchX { which, yes, no } => {
                    at = usize::from(if holds(which, a, x) { yes } else { no });
                }
                Step::Return(k) => return Some(k),
                Step::ReturnA => return Some(a),
            }
        }
    }

    /// What it says of every call with this number, whatever the arguments and wherever the
    /// instruction is; `None` if that may depend on them.
    pub fn constant(&self, number: u32, arch: u32) -> Option<Verdict> {
        let (mut a, mut x) = (Some(0u32), Some(0u32));
        let mut cells = [None; CELLS];
        let mut at = 0usize;
        let both = |which, a: Option<u32>, by: Option<u32>| match (a, by) {
            (Some(a), Some(by)) => match calculate(which, a, by) {
                Some(value) => Ok(Some(value)),
                None => Err(Some(Verdict(0))),
            },
            // A division by what is not known may end the program.
            _ if matches!(which, Calculation::Div | Calculation::Mod)
                && by.is_none_or(|by| by == 0) =>
            {
                Err(None)
            }
            (None, Some(0)) if which == Calculation::And => Ok(Some(0)),
            _ => Ok(None),
        };
        loop {
            let step = *self.steps.get(at)?;
            at += 1;
            match step {
                Step::Load(0) => a = Some(number),
                Step::Load(1) => a = Some(arch),
                Step::Load(_) => a = None,
                Step::Set(k) => a = Some(k),
                Step::SetX(k) => x = Some(k),
                Step::Recall(cell) => a = cells[usize::from(cell) % CELLS],
                Step::RecallX(cell) => x = cells[usize::from(cell) % CELLS],
                Step::Store(cell) => cells[usize::from(cell) % CELLS] = a,
                Step::StoreX(cell) => cells[usize::from(cell) % CELLS] = x,
                Step::By(which, k) => match both(which, a, Some(k)) {
                    Ok(value) => a = value,
                    Err(end) => return end,
                },
                Step::ByX(which) => match both(which, a, x) {
                    Ok(value) => a = value,
                    Err(end) => return end,
                },
                Step::Negate => a = a.map(u32::wrapping_neg),
                Step::ToX => x = a,
                Step::ToA => a = x,
                Step::Jump(to) => at = usize::from(to),
                Step::Branch { yes, no, .. } | Step::BranchX { yes, no, .. } if yes == no => {
                    at = usize::from(yes);
                }
                Step::Branch { which, k, yes, no } => {
                    at = usize::from(if holds(which, a?, k) { yes } else { no });
                }
                Step::BranchX { which, yes, no } => {
                    at = usize::from(if holds(which, a?, x?) { yes } else { no });
                }
                Step::Return(k) => return Some(Verdict(k)),
                Step::ReturnA => return a.map(Verdict),
            }
        }
    }

    /// Which of the 64 numbers from `first` on it allows whatever the arguments, the lowest bit for
    /// the first.
    pub fn allowed(&self, first: u32, arch: u32) -> u64 {
        let is_allowed = |bit: &u32| {
            let verdict = self.constant(first.wrapping_add(*bit), arch);
            verdict.is_some_and(|verdict| verdict.0 == RET_ALLOW)
        };
        (0..64).filter(is_allowed).fold(0, |word, bit| word | 1 << bit)
    }
}

fn decode(at: usize, instruction: Instruction) -> Option<Step> {
    let Instruction { code, when_true, when_false, k } = instruction;
    let place = |skipped: usize| u16::try_from(at + 1 + skipped).ok();
    let cell = (k as usize % CELLS) as u8;
    if let Some((which, by_x)) = code::calculation(code) {
        // `seccomp_check_filter` lists the calculations, without the remainder.
        return match which {
            Calculation::Mod => None,
            _ if by_x => Some(Step::ByX(which)),
            _ => Some(Step::By(which, k)),
        };
    }
    if let Some((which, by_x)) = code::condition(code) {
        let (yes, no) = (place(when_true.into())?, place(when_false.into())?);
        return Some(match by_x {
            true => Step::BranchX { which, yes, no },
            false => Step::Branch { which, k, yes, no },
        });
    }
    Some(match code {
        code::LD_W_ABS if k.is_multiple_of(4) && (k as usize) < DATA_SIZE => {
            Step::Load((k / 4) as u8)
        }
        code::LD_W_LEN => Step::Set(DATA_SIZE as u32),
        code::LDX_W_LEN => Step::SetX(DATA_SIZE as u32),
        code::LD_IMM => Step::Set(k),
        code::LDX_IMM => Step::SetX(k),
        code::LD_MEM => Step::Recall(cell),
        code::LDX_MEM => Step::RecallX(cell),
        code::ST => Step::Store(cell),
        code::STX => Step::StoreX(cell),
        code::NEG => Step::Negate,
        code::TAX => Step::ToX,
        code::TXA => Step::ToA,
        code::JA => Step::Jump(place(k as usize)?),
        code::RET_K => Step::Return(k),
        code::RET_A => Step::ReturnA,
        _ => return None,
    })
}

/// What `bpf_convert_filter` puts before a program: it clears A and X, and keeps the context.
const PROLOGUE: usize = 3;

/// How many instructions `bpf_convert_filter` makes of one.
fn converted(instruction: Instruction) -> usize {
    let Instruction { code, when_true, when_false, k } = instruction;
    if let Some((which, by_x)) = code::calculation(code) {
        // By an X of 0 the program ends.
        return if by_x && which == Calculation::Div { 5 } else { 1 };
    }
    if let Some((which, by_x)) = code::condition(code) {
        // A constant that would be extended by its sign goes through a register.
        let constant = usize::from(!by_x && (k as i32) < 0);
        let one = when_false == 0 || when_true == 0 && which != Condition::AnyBit;
        return constant + if one { 1 } else { 2 };
    }
    if code == code::RET_K { 2 } else { 1 }
}

const RET_ALLOW: u32 = 0x7fff_0000;
/// The bits of a verdict that are its action (`SECCOMP_RET_ACTION_FULL`).
const ACTION: u32 = 0xffff_0000;

/// What a filter returned (`SECCOMP_RET_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict(pub u32);

impl Verdict {
    /// The verdict of no filter.
    pub const ALLOW: Verdict = Verdict(RET_ALLOW);

    /// Whether its action has precedence over that of another verdict.
    pub fn outranks(self, other: Verdict) -> bool {
        ((self.0 & ACTION) as i32) < ((other.0 & ACTION) as i32)
    }

    /// Its action. What is none ends the process, as in Linux.
    pub fn action(self) -> Action {
        Action::of(self.0 & ACTION).unwrap_or(Action::KillProcess)
    }

    /// The bits beside its action (`SECCOMP_RET_DATA`).
    pub fn data(self) -> u16 {
        self.0 as u16
    }
}

/// The action that is taken on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in seccomp(2)")]
pub enum Action {
    KillProcess,
    KillThread,
    Trap,
    Errno,
    UserNotif,
    Trace,
    Log,
    Allow,
}

impl Action {
    /// All, in the order of their precedence.
    pub const ALL: [(Action, u32, &'static str); 8] = [
        (Action::KillProcess, 0x8000_0000, "kill_process"),
        (Action::KillThread, 0, "kill_thread"),
        (Action::Trap, 0x0003_0000, "trap"),
        (Action::Errno, 0x0005_0000, "errno"),
        (Action::UserNotif, 0x7fc0_0000, "user_notif"),
        (Action::Trace, 0x7ff0_0000, "trace"),
        (Action::Log, 0x7ffc_0000, "log"),
        (Action::Allow, RET_ALLOW, "allow"),
    ];

    /// The action of a number (`SECCOMP_RET_*`).
    pub fn of(number: u32) -> Option<Action> {
        Action::ALL.iter().find(|(_, own, _)| *own == number).map(|(action, ..)| *action)
    }
}

/// A set of actions, as `/proc/sys/kernel/seccomp/actions_logged` shows and takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actions(pub u8);

impl Actions {
    /// All that can be logged.
    pub const LOGGED: Actions = Actions(!(1 << Action::Allow as u8));

    /// Whether an action is in the set.
    pub fn has(self, action: Action) -> bool {
        self.0 >> action as u8 & 1 != 0
    }

    /// The names in the set, in the order of precedence.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Action::ALL.into_iter().filter(move |(action, ..)| self.has(*action)).map(|(.., name)| name)
    }

    /// Reads names with blanks between them. `None` for an unknown name, and for `allow`, which is
    /// never logged.
    pub fn parse(text: &str) -> Option<Actions> {
        let mut set = 0;
        for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
            let (action, ..) = Action::ALL.iter().find(|(.., name)| *name == word)?;
            set |= 1 << *action as u8;
        }
        (set & !Actions::LOGGED.0 == 0).then_some(Actions(set))
    }
}
