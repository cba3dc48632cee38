//! Patches the site of a system call into a jump to a trampoline, such that any other code that
//! executes at the site still works: pure logic.
//!
//! `syscall` has two bytes, a jump that reaches anywhere has five. Two forms are used:
//!
//! * [`Form::After`]: the jump replaces the `syscall` and the first three bytes of the next
//!   instruction, which moves into the trampoline. The address after the `syscall`, which the
//!   program may jump to or return to, now holds the jump's third byte. The trampoline is placed
//!   where this byte is `int3`: a thread that arrives there meets a breakpoint and is sent to the
//!   moved instruction. This form only needs to decode forward from an instruction that was just
//!   executed, so it is right whatever the code around it is.
//! * [`Form::Before`]: the jump replaces a `mov eax, NUMBER` (also five bytes) directly before the
//!   `syscall`, which stays: code that jumps between the two finds it. Decoding backwards cannot
//!   prove that the five bytes are an instruction. So all ways of decoding that begin 16 to 32
//!   bytes before must agree that an instruction begins there (x86 code resynchronises within a few
//!   instructions), and the number must be the one that the call was just made with.
//!
//! A patched site leaves the arithmetic flags undefined, which `syscall` does not: the code behind
//! must write them before it reads them, or return.
//!
//! The trampoline loads the return address into `rcx`, turns interrupts off and jumps through the
//! gate's word. The gate returns with interrupts off:
//!
//! ```text
//!         mov eax, NUMBER                 (Before)
//!         lea rcx, [back]; cli; jmp [gate of NUMBER]
//!
//!         lea rcx, [back]                 (After)
//!         cmp rax, NUMBER; jne any        (if the call was made with one that fits)
//!         cli; jmp [gate of NUMBER]
//! any:    cli; jmp [gate of all]
//!
//! back:   sti; the moved instruction; jmp on          (After)
//!         sti; jmp on                                 (Before)
//! again:  syscall                         16 bytes behind `back`
//!         the moved instruction; jmp on
//! ```
//!
//! The code from `again` on is for every other way of returning. A call that is to be made again
//! returns to the `syscall`, and so does a program that is in user mode inside a trampoline (where
//! `cli` faults); a program that has handled a signal goes on behind the `syscall`. Interrupts are
//! turned on here and not in the gate because emulators check for them only when a translated block
//! ends, and an indirect jump behind `sti` does not end one: a loop of calls would never be
//! interrupted.
//!
//! Road not taken: `call rax` with a sled at address 0 (two bytes as well). It writes into the red
//! zone below the stack pointer, and a null pointer would no longer fault.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, RflagsBits};

/// Bytes of a jump.
pub const JUMP: usize = 5;
/// Bytes of `syscall`.
pub const SYSCALL: usize = 2;
/// How many bytes before the site are examined.
pub const BEFORE: usize = JUMP + 32;
/// How many bytes behind the site's `syscall` are examined.
pub const BEHIND: usize = 15;
/// The longest trampoline, and the distance between two trampolines.
pub const TRAMPOLINE: usize = 64;
/// The distance from the gate's return address to the trampoline's own `syscall`.
pub const AGAIN: usize = 16;
/// Length of an entry into the gate: `cli; jmp [gate]`.
const ENTER: u8 = 8;
/// The longest instruction that is moved.
const MOVED: usize = AGAIN - 1 - JUMP;
/// `int3`.
const BREAKPOINT: u8 = 0xcc;

/// Why a site is not patched: it continues to work by trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The code around cannot be read, or reaches into another page.
    Edge,
    /// The instruction behind is too short, and there is no `mov eax, NUMBER` before.
    Short,
    /// The instruction behind depends on its address, and there is no `mov eax, NUMBER` before.
    Fixed,
    /// The code behind may read the flags from before the call.
    Flags,
    /// There is no room for a trampoline within reach.
    NoRoom,
    /// The page is a shared mapping, which other processes see.
    Shared,
    /// The space has the maximum number of patched sites.
    TooMany,
}

impl Left {
    /// Every reason.
    pub const ALL: [Left; 7] = [
        Left::Edge,
        Left::Short,
        Left::Fixed,
        Left::Flags,
        Left::NoRoom,
        Left::Shared,
        Left::TooMany,
    ];

    /// A word for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Left::Edge => "edge",
            Left::Short => "short",
            Left::Fixed => "fixed",
            Left::Flags => "flags",
            Left::NoRoom => "no-room",
            Left::Shared => "shared",
            Left::TooMany => "too-many",
        }
    }
}

/// How a site can be patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The instruction behind is moved.
    After {
        /// Its bytes.
        moved: [u8; MOVED],
        /// How many of them.
        length: u8,
        /// The number that the call was made with, for which the gate is entered at once. Any other
        /// number works, too.
        number: Option<u32>,
    },
    /// The `mov` before is replaced.
    Before {
        /// The number that it loads.
        number: u32,
    },
}

/// A site and the code around it.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The address of the `syscall`.
    pub address: u64,
    /// The bytes before it that can be read, up to [`BEFORE`], in the same page.
    pub before: &'a [u8],
    /// The bytes behind its two bytes that can be read, up to [`BEHIND`].
    pub behind: &'a [u8],
    /// How many of these are in the same page as the `syscall`.
    pub same_page: usize,
    /// The number that the call was just made with.
    pub number: u64,
}

/// Decides how a site can be patched, or why it cannot. `code` reads the program's instructions: as
/// many bytes at an address as fit and are mapped.
pub fn examine(site: &Site<'_>, code: &dyn Fn(u64, &mut [u8]) -> usize) -> Result<Form, Left> {
    if !flags_are_dead(site, code) {
        return Err(Left::Flags);
    }
    after(site).or_else(|why| before(site).ok_or(why))
}

fn after(site: &Site<'_>) -> Result<Form, Left> {
    let start = site.address + SYSCALL as u64;
    let mut decoder = Decoder::with_ip(64, site.behind, start, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return Err(Left::Edge);
    }
    let next = decoder.decode();
    if next.is_invalid() {
        return Err(Left::Edge);
    }
    if !is_movable(&next) {
        return Err(Left::Fixed);
    }
    if next.len() < JUMP - SYSCALL {
        return Err(Left::Short);
    }
    if next.len() > MOVED {
        return Err(Left::Fixed);
    }
    if next.len() > site.same_page {
        return Err(Left::Edge);
    }
    let mut moved = [0; MOVED];
    moved[..next.len()].copy_from_slice(site.behind.get(..next.len()).ok_or(Left::Edge)?);
    // `cmp` sign-extends its operand.
    let number = i32::try_from(site.number).ok().map(i32::cast_unsigned);
    Ok(Form::After { moved, length: next.len() as u8, number })
}

/// Whether an instruction does the same at any address.
fn is_movable(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next
        && !instruction.is_ip_rel_memory_operand()
        && instruction.code() != Code::Syscall
        && !instruction.is_privileged()
}

fn before(site: &Site<'_>) -> Option<Form> {
    let bytes = site.before;
    let at = bytes.len().checked_sub(JUMP)?;
    let [0xb8, a, b, c, d] = *bytes.get(at..)? else { return None };
    let number = u32::from_le_bytes([a, b, c, d]);
    if u64::from(number) != site.number {
        return None;
    }
    // Where decoding begins: far enough away to have resynchronised.
    const NEAREST: usize = 16;
    let first = at.checked_sub(BEFORE - JUMP)?;
    let mut agreeing = 0;
    for start in first..=at - NEAREST {
        let mut decoder = Decoder::new(64, bytes.get(start..)?, DecoderOptions::NONE);
        let end = at - start;
        while decoder.position() < end {
            if decoder.decode().is_invalid() {
                break;
            }
        }
        match decoder.position() {
            position if position == end => agreeing += 1,
            position if position > end => return None,
            // The program did not come by a way that cannot be executed.
            _ => {}
        }
    }
    (agreeing >= NEAREST / 2).then_some(Form::Before { number })
}

/// How many instructions, and how many paths, are followed to see what happens to the flags.
const STEPS: usize = 256;
const WAYS: usize = 24;

/// Whether the code after a site overwrites the arithmetic flags before it reads them, on every
/// path.
fn flags_are_dead(site: &Site<'_>, code: &dyn Fn(u64, &mut [u8]) -> usize) -> bool {
    const ALL: u32 = RflagsBits::OF
        | RflagsBits::SF
        | RflagsBits::ZF
        | RflagsBits::AF
        | RflagsBits::CF
        | RflagsBits::PF;
    let mut ways = Ways { list: [(0, 0); WAYS], count: 0 };
    ways.add(site.address + SYSCALL as u64, ALL);
    let mut steps = 0;
    let mut done = 0;
    while done < ways.count {
        let Some(&(mut at, mut alive)) = ways.list.get(done) else { return false };
        done += 1;
        loop {
            steps += 1;
            let mut bytes = [0; 15];
            let length = code(at, &mut bytes);
            let bytes = bytes.get(..length).unwrap_or_default();
            if steps > STEPS || bytes.is_empty() {
                return false;
            }
            let next = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            if next.is_invalid() || next.rflags_read() & alive != 0 {
                return false;
            }
            alive &= !next.rflags_modified();
            // `cli`: a trampoline; behind a patched site the flags are dead.
            if alive == 0 || next.code() == Code::Cli {
                break;
            }
            at = next.next_ip();
            match next.flow_control() {
                FlowControl::Next => {}
                // No calling convention passes flags, and nothing follows an exception.
                FlowControl::Return | FlowControl::IndirectCall | FlowControl::Exception => break,
                FlowControl::UnconditionalBranch => at = next.near_branch_target(),
                FlowControl::ConditionalBranch => {
                    if !ways.add(next.near_branch_target(), alive) {
                        return false;
                    }
                }
                // Another system call preserves them.
                FlowControl::Call if next.code() == Code::Syscall => {}
                FlowControl::Call => break,
                _ => return false,
            }
            // The site itself: another round of the loop adds nothing.
            if at == site.address {
                break;
            }
        }
    }
    true
}

/// Addresses still to be followed, each with the flags that are alive there.
struct Ways {
    list: [(u64, u32); WAYS],
    count: usize,
}

impl Ways {
    /// Adds an address, unless it is there already; `false` if there are too many.
    fn add(&mut self, at: u64, alive: u32) -> bool {
        let known = |&&(other, flags): &&(u64, u32)| other == at && flags & alive == alive;
        if self.list.iter().take(self.count).find(known).is_some() {
            return true;
        }
        let Some(place) = self.list.get_mut(self.count) else { return false };
        *place = (at, alive);
        self.count += 1;
        true
    }
}

/// A patched site: what to write, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Where the jump goes.
    pub jump_at: u64,
    /// The jump.
    pub jump: [u8; JUMP],
    /// The trampoline's bytes.
    pub trampoline: [u8; TRAMPOLINE],
    /// How many of them.
    pub length: usize,
    /// The address where a jump's `int3` lies, and the address it leads to: the moved instruction.
    pub breakpoint: Option<(u64, u64)>,
}

/// Whether a trampoline at `address` fits a site in this form.
pub fn fits(form: &Form, site: u64, address: u64) -> bool {
    match (form, distance(jump_end(form, site), address)) {
        (_, None) => false,
        (Form::Before { .. }, Some(_)) => true,
        (Form::After { .. }, Some(distance)) => distance.to_le_bytes()[1] == BREAKPOINT,
    }
}

/// Returns the lowest address from `from` on for which [`fits`] holds, if it is in reach: `fits`
/// holds for the 256 bytes from there (After), or everywhere (Before).
pub fn first_fit(form: &Form, site: u64, from: u64) -> u64 {
    match form {
        Form::Before { .. } => from,
        Form::After { .. } => {
            let wanted = u64::from(BREAKPOINT) << 8;
            let off = from.wrapping_sub(jump_end(form, site)) & 0xffff;
            if off & 0xff00 == wanted {
                from
            } else {
                from.wrapping_add(wanted.wrapping_sub(off) & 0xffff)
            }
        }
    }
}

fn jump_end(form: &Form, site: u64) -> u64 {
    match form {
        Form::Before { .. } => site,
        Form::After { .. } => site + JUMP as u64,
    }
}

fn distance(from: u64, to: u64) -> Option<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).ok()
}

/// Builds the patch of a site with a trampoline at `address`. `gate` returns the address of the
/// word that a trampoline jumps through: the word for a number, or the word for all numbers. `None`
/// if the address does not fit.
pub fn patch(
    form: &Form,
    site: u64,
    address: u64,
    gate: impl Fn(Option<u32>) -> u64,
) -> Option<Patch> {
    if !fits(form, site, address) {
        return None;
    }
    let end = jump_end(form, site);
    let mut jump = [0xe9; JUMP];
    jump[1..].copy_from_slice(&distance(end, address)?.to_le_bytes());
    let mut code = Assembly { bytes: [BREAKPOINT; TRAMPOLINE], length: 0 };
    let (moved, on): (&[u8], u64) = match form {
        Form::Before { number } => {
            code.put(&[0xb8]);
            code.put(&number.to_le_bytes());
            code.load_back(ENTER);
            code.jump(gate(Some(*number)))?;
            (&[], site + SYSCALL as u64)
        }
        Form::After { moved, length, number } => {
            code.enter(*number, gate)?;
            let moved = moved.get(..usize::from(*length))?;
            (moved, site + (SYSCALL + moved.len()) as u64)
        }
    };
    let back = code.length;
    let jump_on = |code: &mut Assembly| -> Option<()> {
        let here = address + (code.length + JUMP) as u64;
        code.put(&[0xe9]);
        code.put(&distance(here, on)?.to_le_bytes());
        Some(())
    };
    code.put(&[0xfb]);
    code.put(moved);
    jump_on(&mut code)?;
    code.length = back + AGAIN;
    code.put(&[0x0f, 0x05]);
    let behind = address + code.length as u64;
    code.put(moved);
    jump_on(&mut code)?;
    let after = matches!(form, Form::After { .. });
    let breakpoint = after.then_some((site + SYSCALL as u64, behind));
    let (trampoline, length) = (code.bytes, code.length);
    Some(Patch { jump_at: end - JUMP as u64, jump, trampoline, length, breakpoint })
}

/// Code under construction; bytes beyond the end are cut off, which [`MOVED`] excludes.
struct Assembly {
    bytes: [u8; TRAMPOLINE],
    length: usize,
}

impl Assembly {
    fn put(&mut self, bytes: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.length).zip(bytes) {
            *to = *from;
        }
        self.length += bytes.len();
    }

    /// `lea rcx, [back]`: the return address is that many bytes further on.
    fn load_back(&mut self, further: u8) {
        self.put(&[0x48, 0x8d, 0x0d, further, 0, 0, 0]);
    }

    /// `cli; jmp [gate]`, [`ENTER`] bytes. The kernel recognises a thread that is interrupted
    /// between the two by these bytes.
    fn jump(&mut self, gate: u64) -> Option<()> {
        let word = i32::try_from(gate as i64).ok()?;
        self.put(&[0xfa, 0xff, 0x24, 0x25]);
        self.put(&word.to_le_bytes());
        Some(())
    }

    /// Enters the gate for any number, directly if it is this one.
    fn enter(&mut self, number: Option<u32>, gate: impl Fn(Option<u32>) -> u64) -> Option<()> {
        if let Some(number) = number {
            // cmp rax, NUMBER; jne behind the first way in
            const TEST: [u8; 2] = [0x75, ENTER];
            self.load_back(6 + TEST.len() as u8 + 2 * ENTER);
            self.put(&[0x48, 0x3d]);
            self.put(&number.to_le_bytes());
            self.put(&TEST);
            self.jump(gate(Some(number)))?;
        } else {
            self.load_back(ENTER);
        }
        self.jump(gate(None))
    }
}
