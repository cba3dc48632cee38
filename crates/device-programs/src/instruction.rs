//! Instructions: eight bytes each (RFC 9669, section 3).

/// The class, in the three lowest bits of the code.
pub mod class {
    pub const LD: u8 = 0;
    pub const LDX: u8 = 1;
    pub const ALU32: u8 = 4;
    pub const JMP: u8 = 5;
    pub const JMP32: u8 = 6;
    pub const ALU64: u8 = 7;
}

/// Operations of the arithmetic classes, in the four highest bits.
pub mod alu {
    pub const ADD: u8 = 0x00;
    pub const SUB: u8 = 0x10;
    pub const MUL: u8 = 0x20;
    pub const DIV: u8 = 0x30;
    pub const OR: u8 = 0x40;
    pub const AND: u8 = 0x50;
    pub const LSH: u8 = 0x60;
    pub const RSH: u8 = 0x70;
    pub const NEG: u8 = 0x80;
    pub const MOD: u8 = 0x90;
    pub const XOR: u8 = 0xa0;
    pub const MOV: u8 = 0xb0;
    pub const ARSH: u8 = 0xc0;
    pub const END: u8 = 0xd0;
}

/// Operations of the jump classes.
pub mod jump {
    pub const ALWAYS: u8 = 0x00;
    pub const EQ: u8 = 0x10;
    pub const GT: u8 = 0x20;
    pub const GE: u8 = 0x30;
    pub const SET: u8 = 0x40;
    pub const NE: u8 = 0x50;
    pub const SGT: u8 = 0x60;
    pub const SGE: u8 = 0x70;
    pub const CALL: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    pub const LT: u8 = 0xa0;
    pub const LE: u8 = 0xb0;
    pub const SLT: u8 = 0xc0;
    pub const SLE: u8 = 0xd0;
}

/// The bit that takes the second operand from a register.
pub const FROM_REGISTER: u8 = 8;
/// A load of a 64-bit number from two instructions.
pub const LOAD_NUMBER: u8 = 0x18;
/// The mode of loads from memory, in the three highest bits.
pub const MODE_MEMORY: u8 = 0x60;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    pub code: u8,
    pub to: u8,
    pub from: u8,
    pub offset: i16,
    pub number: i32,
}

impl Instruction {
    pub fn decode(bytes: [u8; 8]) -> Instruction {
        let [code, registers, o0, o1, n0, n1, n2, n3] = bytes;
        Instruction {
            code,
            to: registers & 15,
            from: registers >> 4,
            offset: i16::from_le_bytes([o0, o1]),
            number: i32::from_le_bytes([n0, n1, n2, n3]),
        }
    }

    pub fn class(self) -> u8 {
        self.code & 7
    }

    pub fn operation(self) -> u8 {
        self.code & 0xf0
    }

    pub fn takes_register(self) -> bool {
        self.code & FROM_REGISTER != 0
    }

    /// Bytes that a load reads.
    pub fn size(self) -> u8 {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }
}
