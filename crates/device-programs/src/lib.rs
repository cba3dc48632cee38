//! eBPF programs that say which devices a control group may use (`BPF_PROG_TYPE_CGROUP_DEVICE`;
//! RFC 9669 for the instructions, kernel/bpf/verifier.c and kernel/bpf/cgroup.c of Linux 6.1 for
//! what is refused).
//!
//! A program gets three words, the [`Access`], and says yes or no. [`Program::check`] takes one
//! that reads nothing else, uses no register before it is set, and always ends; then
//! [`Program::allows`] runs it. Runc, crun and systemd make such programs of the rules of a
//! container: loads from the context, arithmetic, and jumps forward.
//!
//! **Not taken**, though Linux would: programs with a stack, maps, helper functions, loops, atomic
//! operations, or arithmetic on pointers, and ones of more than [`MOST`] instructions. They are
//! refused, never run in part. The road not taken is a verifier for all of eBPF, most of which is
//! for programs that Hayate has no place for.
//!
//! The check goes once through the program, since all jumps lead forward. It knows as much of the
//! registers before an instruction as all ways to it have in common.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod check;
mod instruction;
mod run;

pub use check::Refusal;

use alloc::boxed::Box;

use instruction::Instruction;

/// The most instructions of a program (`BPF_MAXINSNS`).
pub const MOST: usize = 4096;
/// Bytes of an instruction.
pub const SIZE: usize = 8;

/// A block device, in [`Access::kind`] (`BPF_DEVCG_DEV_BLOCK`).
pub const BLOCK: u16 = 1;
/// A character device (`BPF_DEVCG_DEV_CHAR`).
pub const CHARACTER: u16 = 2;

/// A node is made (`BPF_DEVCG_ACC_MKNOD`), read or written.
pub const MAKE: u16 = 1;
/// `BPF_DEVCG_ACC_READ`
pub const READ: u16 = 2;
/// `BPF_DEVCG_ACC_WRITE`
pub const WRITE: u16 = 4;

/// What a program is asked about (`struct bpf_cgroup_dev_ctx`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// [`BLOCK`] or [`CHARACTER`].
    pub kind: u16,
    /// [`MAKE`], or [`READ`] and [`WRITE`].
    pub how: u16,
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl Access {
    /// The words as the program finds them.
    fn words(self) -> [u32; 3] {
        [u32::from(self.how) << 16 | u32::from(self.kind), self.major, self.minor]
    }
}

/// What a program may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// An [`Access`].
    Access,
    /// Nothing: it was made for something that there is not.
    Nothing,
}

/// A program that was checked.
#[derive(Debug)]
pub struct Program {
    instructions: Box<[Instruction]>,
    tag: [u8; 8],
}

impl Program {
    /// Bytes of its instructions.
    pub fn size(&self) -> usize {
        self.instructions.len() * SIZE
    }

    /// What programs tell it from others by: the beginning of the SHA-1 sum of its instructions
    /// (`bpf_prog_calc_tag`).
    pub fn tag(&self) -> [u8; 8] {
        self.tag
    }
}
