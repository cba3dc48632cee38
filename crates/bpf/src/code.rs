//! The codes of instructions (include/uapi/linux/bpf_common.h, filter.h).

#![allow(missing_docs, reason = "named as in filter.rst")]

use super::Ancillary;

pub const LD_IMM: u16 = 0x00;
pub const LD_W_ABS: u16 = 0x20;
pub const LD_H_ABS: u16 = 0x28;
pub const LD_B_ABS: u16 = 0x30;
pub const LD_W_IND: u16 = 0x40;
pub const LD_H_IND: u16 = 0x48;
pub const LD_B_IND: u16 = 0x50;
pub const LD_MEM: u16 = 0x60;
pub const LD_W_LEN: u16 = 0x80;
pub const LDX_IMM: u16 = 0x01;
pub const LDX_MEM: u16 = 0x61;
pub const LDX_W_LEN: u16 = 0x81;
pub const LDX_B_MSH: u16 = 0xb1;
pub const ST: u16 = 0x02;
pub const STX: u16 = 0x03;
pub const JA: u16 = 0x05;
pub const RET_K: u16 = 0x06;
pub const RET_A: u16 = 0x16;
pub const TAX: u16 = 0x07;
pub const TXA: u16 = 0x87;
pub const NEG: u16 = 0x84;

/// The classes of calculations and of jumps, and the bit of those whose operand is X.
const CLASS: u16 = 0x07;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const X: u16 = 0x08;

/// A calculation with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calculation {
    Add,
    Sub,
    Mul,
    Div,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    Mod,
    Xor,
}

/// The condition of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

/// Returns the calculation of a code, and whether its operand is X.
pub fn calculation(code: u16) -> Option<(Calculation, bool)> {
    if code & CLASS != ALU {
        return None;
    }
    let which = match code & !CLASS & !X {
        0x00 => Calculation::Add,
        0x10 => Calculation::Sub,
        0x20 => Calculation::Mul,
        0x30 => Calculation::Div,
        0x40 => Calculation::Or,
        0x50 => Calculation::And,
        0x60 => Calculation::ShiftLeft,
        0x70 => Calculation::ShiftRight,
        0x90 => Calculation::Mod,
        0xa0 => Calculation::Xor,
        _ => return None,
    };
    Some((which, code & X != 0))
}

/// Returns the condition of a code, and whether its operand is X.
pub fn condition(code: u16) -> Option<(Condition, bool)> {
    if code & CLASS != JMP {
        return None;
    }
    let which = match code & !CLASS & !X {
        0x10 => Condition::Equal,
        0x20 => Condition::Greater,
        0x30 => Condition::GreaterOrEqual,
        0x40 => Condition::AnyBit,
        _ => return None,
    };
    Some((which, code & X != 0))
}

/// Returns the number of bytes that an instruction loads into A from a fixed offset.
pub fn absolute(code: u16) -> Option<usize> {
    match code {
        LD_W_ABS => Some(4),
        LD_H_ABS => Some(2),
        LD_B_ABS => Some(1),
        _ => None,
    }
}

/// Returns the number of bytes that an instruction loads into A from an offset that X adds to.
pub fn indexed(code: u16) -> Option<usize> {
    match code {
        LD_W_IND => Some(4),
        LD_H_IND => Some(2),
        LD_B_IND => Some(1),
        _ => None,
    }
}

/// Where the offsets of [`Ancillary`] begin (`SKF_AD_OFF`), those from the network layer's header
/// (`SKF_NET_OFF`), and those from the link layer's (`SKF_LL_OFF`).
pub const ANCILLARY: u32 = -0x1000_i32 as u32;
pub const NETWORK: u32 = -0x10_0000_i32 as u32;
pub const LINK: u32 = -0x20_0000_i32 as u32;

/// What a load from an ancillary offset gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    Ask(Ancillary),
    /// Finds an attribute of netlink; within another one if true.
    Attribute(bool),
    /// A becomes A ^ X.
    Xor,
}

/// Returns the meaning of an ancillary offset.
pub fn special(k: u32) -> Option<Special> {
    Some(match k.checked_sub(ANCILLARY)? {
        0 => Special::Ask(Ancillary::Protocol),
        4 => Special::Ask(Ancillary::PacketType),
        8 => Special::Ask(Ancillary::InterfaceIndex),
        12 => Special::Attribute(false),
        16 => Special::Attribute(true),
        20 => Special::Ask(Ancillary::Mark),
        24 => Special::Ask(Ancillary::Queue),
        28 => Special::Ask(Ancillary::HardwareType),
        32 => Special::Ask(Ancillary::ReceiveHash),
        36 => Special::Ask(Ancillary::Processor),
        40 => Special::Xor,
        44 => Special::Ask(Ancillary::VlanTag),
        48 => Special::Ask(Ancillary::VlanTagPresent),
        52 => Special::Ask(Ancillary::PayloadOffset),
        56 => Special::Ask(Ancillary::Random),
        60 => Special::Ask(Ancillary::VlanProtocol),
        _ => return None,
    })
}
