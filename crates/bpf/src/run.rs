//! Executing a program.
//!
//! The registers begin at 0. A load beyond the packet's end, and a division by an X of 0, end the
//! program with 0; shifts by X take its last five bits (`bpf_convert_filter`).

use super::check::CELLS;
use super::code::{self, Calculation, Condition, Special};
use super::{Base, Instruction, Packet};

/// Executes a checked program.
pub fn run(program: &[Instruction], packet: &impl Packet) -> u32 {
    // A program without an end, which check() refuses, wants nothing.
    execute(program, packet).unwrap_or(0)
}

fn execute(program: &[Instruction], packet: &impl Packet) -> Option<u32> {
    let (mut a, mut x) = (0u32, 0u32);
    let mut cells = [0u32; CELLS];
    let mut at = 0;
    loop {
        let Instruction { code, when_true, when_false, k } = *program.get(at)?;
        at += 1;
        if let Some((which, by_x)) = code::calculation(code) {
            a = calculate(which, a, if by_x { x } else { k })?;
        } else if let Some((which, by_x)) = code::condition(code) {
            let holds = holds(which, a, if by_x { x } else { k });
            at += usize::from(if holds { when_true } else { when_false });
        } else if let Some(size) = code::absolute(code) {
            a = match code::special(k) {
                Some(special) => ask(special, packet, a, x)?,
                None => load(packet, k, size)?,
            };
        } else if let Some(size) = code::indexed(code) {
            a = load(packet, x.wrapping_add(k), size)?;
        } else {
            let cell = k as usize % CELLS;
            match code {
                code::LD_IMM => a = k,
                code::LD_MEM => a = cells[cell],
                code::LD_W_LEN => a = packet.length(),
                code::LDX_IMM => x = k,
                code::LDX_MEM => x = cells[cell],
                code::LDX_W_LEN => x = packet.length(),
                // The length of an IPv4 header.
                code::LDX_B_MSH => x = (load(packet, k, 1)? & 15) * 4,
                code::ST => cells[cell] = a,
                code::STX => cells[cell] = x,
                code::JA => at += k as usize,
                code::RET_K => return Some(k),
                code::RET_A => return Some(a),
                code::TAX => x = a,
                code::TXA => a = x,
                code::NEG => a = a.wrapping_neg(),
                _ => return None,
            }
        }
    }
}

pub(super) fn calculate(which: Calculation, a: u32, by: u32) -> Option<u32> {
    match which {
        Calculation::Add => Some(a.wrapping_add(by)),
        Calculation::Sub => Some(a.wrapping_sub(by)),
        Calculation::Mul => Some(a.wrapping_mul(by)),
        Calculation::Div => a.checked_div(by),
        Calculation::Mod => a.checked_rem(by),
        Calculation::Or => Some(a | by),
        Calculation::And => Some(a & by),
        Calculation::Xor => Some(a ^ by),
        Calculation::ShiftLeft => Some(a << (by & 31)),
        Calculation::ShiftRight => Some(a >> (by & 31)),
    }
}

pub(super) fn holds(which: Condition, a: u32, with: u32) -> bool {
    match which {
        Condition::Equal => a == with,
        Condition::Greater => a > with,
        Condition::GreaterOrEqual => a >= with,
        Condition::AnyBit => a & with != 0,
    }
}

/// Loads up to four bytes in the order of the network. Negative offsets count from a header
/// (`bpf_internal_load_pointer_neg_helper`).
fn load(packet: &impl Packet, offset: u32, size: usize) -> Option<u32> {
    let (base, offset) = if offset >= code::NETWORK {
        (Base::Network, offset - code::NETWORK)
    } else if offset >= code::LINK {
        (Base::Link, offset - code::LINK)
    } else if offset > i32::MAX as u32 {
        return None;
    } else {
        (Base::Data, offset)
    };
    let mut bytes = [0; 4];
    let good = packet.read(base, offset, &mut bytes[4 - size..]);
    good.then(|| u32::from_be_bytes(bytes))
}

fn ask(special: Special, packet: &impl Packet, a: u32, x: u32) -> Option<u32> {
    match special {
        Special::Ask(what) => packet.ancillary(what),
        Special::Xor => Some(a ^ x),
        Special::Attribute(nested) => Some(attribute(packet, a, x, nested).unwrap_or(0)),
    }
}

/// The length of an attribute's header, and the bits of its type that are flags.
const HEADER: u32 = 4;
const FLAGS: u32 = 0xc000;

/// Reads length and type of the attribute at an offset: in this machine's order of bytes.
fn attribute_at(packet: &impl Packet, at: u32, end: u32) -> Option<(u32, u32)> {
    let left = end.checked_sub(at).filter(|&left| left >= HEADER)?;
    let mut head = [0; 4];
    if !packet.read(Base::Data, at, &mut head) {
        return None;
    }
    let [l0, l1, t0, t1] = head;
    let length = u32::from(u16::from_ne_bytes([l0, l1]));
    (length >= HEADER && length <= left).then(|| (length, u16::from_ne_bytes([t0, t1]).into()))
}

/// Finds an attribute of a type from an offset, or within the attribute there; returns its offset
/// (`bpf_skb_get_nlattr`, `bpf_skb_get_nlattr_nest`).
fn attribute(packet: &impl Packet, from: u32, kind: u32, nested: bool) -> Option<u32> {
    let (mut at, mut end) = (from, packet.length());
    if nested {
        let (length, _) = attribute_at(packet, from, end)?;
        (at, end) = (from + HEADER, from + length);
    }
    loop {
        let (length, own) = attribute_at(packet, at, end)?;
        if own & !FLAGS == kind {
            return Some(at);
        }
        at = at.checked_add(length.next_multiple_of(4))?;
    }
}
