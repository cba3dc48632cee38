//! Classic BPF: small programs that programs attach to sockets, and that say of each packet how
//! many of its bytes are wanted (Documentation/networking/filter.rst of Linux; McCanne and
//! Jacobson, "The BSD Packet Filter", USENIX 1993).
//!
//! [`Program::check`] accepts what `bpf_check_classic` of Linux' net/core/filter.c accepts, and
//! nothing else. A program that passed it ends: its jumps go forward, so that it executes each
//! instruction at most once, and it reads no cell of its memory that it has not written.
//! [`Program::run`] executes it over a [`Packet`], whose bytes need not lie in one piece.
//!
//! Road not taken: translating a program to machine code. A program of tcpdump has ten or twenty
//! instructions; the packet that it looks at costs a thousand.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod check;
mod code;
mod run;
pub mod seccomp;

use alloc::vec::Vec;

/// The most instructions of a program (`BPF_MAXINSNS`).
pub const MOST: usize = 4096;
/// What SO_BPF_EXTENSIONS says: the end of the numbers of [`Ancillary`] (`SKF_AD_MAX`).
pub const EXTENSIONS: i32 = 64;

/// An instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions a conditional jump skips if the condition holds.
    pub when_true: u8,
    /// How many if it does not hold.
    pub when_false: u8,
    /// Its operand.
    pub k: u32,
}

impl Instruction {
    /// The size of one in a program's memory.
    pub const SIZE: usize = 8;

    /// Reads one from a program's memory, in this machine's order of bytes.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [c0, c1, when_true, when_false, k0, k1, k2, k3] = bytes;
        let code = u16::from_ne_bytes([c0, c1]);
        Self { code, when_true, when_false, k: u32::from_ne_bytes([k0, k1, k2, k3]) }
    }

    /// Writes it for a program.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let ([c0, c1], [k0, k1, k2, k3]) = (self.code.to_ne_bytes(), self.k.to_ne_bytes());
        [c0, c1, self.when_true, self.when_false, k0, k1, k2, k3]
    }
}

/// Why a program is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is none.
    Invalid,
    /// There is no memory to check it.
    Memory,
}

/// A program that was checked.
#[derive(Debug)]
pub struct Program {
    instructions: Vec<Instruction>,
}

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// [`Refused::Invalid`] if Linux would refuse it too, [`Refused::Memory`].
    pub fn check(instructions: Vec<Instruction>) -> Result<Program, Refused> {
        check::check(&instructions)?;
        Ok(Program { instructions })
    }

    /// Returns its instructions.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// Executes it. Returns how many bytes of the packet are wanted, which may be more than it has;
    /// 0 for a packet that is not wanted.
    pub fn run(&self, packet: &impl Packet) -> u32 {
        run::run(&self.instructions, packet)
    }
}

/// Where an offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The first byte that the socket sees.
    Data,
    /// The header of the network layer (`SKF_NET_OFF`).
    Network,
    /// The header of the link layer (`SKF_LL_OFF`).
    Link,
}

/// What a program asks about a packet besides its bytes (`SKF_AD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in filter.rst")]
pub enum Ancillary {
    Protocol,
    PacketType,
    InterfaceIndex,
    Mark,
    Queue,
    HardwareType,
    ReceiveHash,
    Processor,
    VlanTag,
    VlanTagPresent,
    PayloadOffset,
    Random,
    VlanProtocol,
}

/// A packet that programs are executed over.
pub trait Packet {
    /// Returns its length in bytes, as the socket sees it.
    fn length(&self) -> u32;

    /// Copies bytes from an offset. Returns whether all of them are there.
    fn read(&self, base: Base, offset: u32, to: &mut [u8]) -> bool;

    /// Answers a question. `None`: the packet is not wanted.
    fn ancillary(&self, what: Ancillary) -> Option<u32>;
}
