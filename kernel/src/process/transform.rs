//! Process transformation: the three ways in which a process changes while it exists.
//!
//! A process is a composition of parts, so each part can be exchanged by itself: the **program** it
//! is said to execute, the **position** at which it goes on, the **space** it works in. The three
//! operations of [`Transform`] know nothing of each other and combine in any order. Everything else
//! is arranged of them:
//!
//! * fork (`clone.rs`): a [`Newcomer`] without parts gets a space (the parent's, or a copy of it),
//!   the parent's program and the parent's position; then a process and an execution are made of it;
//! * execve (`exec.rs`): the running process gets the new space, the new program and the position
//!   of its first instruction;
//! * Hayate's own system calls (`syscall/own.rs`) give a program each of them alone, and all at
//!   once.
//!
//! An operation cannot fail: what can fail (finding a program, making a space, looking at an
//! address) is done before by whoever asks. So a combination of them cannot stop half-way.
//!
//! Whoever leaves a space or a program for good owes something to others (robust futexes, signal
//! handlers that lie in the old program): that is execve's part, not the operations'. A process
//! may come back to a space.
//!
//! The road not taken: transforming *another* process. It would have to be stopped at a place where
//! its registers are known, which is what a debugger does; a process transforms itself, or is
//! composed anew.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::trap::{self, UserRegs};

use super::record::Vectors;
use super::thread::{Thread, ThreadName};
use crate::memory::{Space, USER_END};
use crate::program::Executable;

/// What a process is said to execute.
#[derive(Default)]
pub struct Executed {
    /// The file (`/proc/PID/exe`).
    pub executable: Option<Arc<Executable>>,
    /// Where its arguments lie in the space (`/proc/PID/cmdline`).
    pub vectors: Vectors,
    /// The name of the thread (`comm`).
    pub name: ThreadName,
}

impl Executed {
    /// What a thread executes now.
    #[inline(always)]
    pub fn by(thread: &Thread) -> Executed {
        let process = &thread.process;
        Executed {
            executable: process.executable(),
            vectors: process.vectors(),
            name: thread.name(),
        }
    }
}

/// Where a process goes on.
#[derive(Clone, Default)]
pub struct Position {
    /// All registers, the instruction and stack pointers among them.
    pub regs: UserRegs<'static>,
    /// The thread pointer (FS base), below the end of the program's half.
    pub fs_base: u64,
    /// The other segment base.
    pub gs_base: u64,
}

impl Position {
    /// The first instruction of a program: all other registers are zero.
    #[inline(always)]
    pub fn start(instruction: u64, stack: u64) -> Position {
        Position { regs: UserRegs::start(instruction, stack), fs_base: 0, gs_base: 0 }
    }

    /// Checks what a program asks for. `EINVAL`: a pointer that is outside of the program's half (and
    /// the instruction is not of the object that the kernel shows, either).
    pub fn check(&self) -> Result<()> {
        let end = USER_END as u64;
        let rip = self.regs.rip;
        let inside = (rip < end || hayate_machine::vdso::holds(rip)) && self.regs.rsp <= end;
        if inside && self.fs_base < end && self.gs_base < end { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// Who can be transformed: a process that is being made, and the one that runs here.
pub trait Transform<'a> {
    /// Changes the space in which it runs. Gives the old one, to be dropped when nothing of it is
    /// needed any more.
    fn change_space(&mut self, space: Arc<Space>) -> Option<Arc<Space>>;

    /// Changes the program that it executes. The program's content is in the space already. Gives
    /// the old one, whose file closes when it is dropped.
    fn change_program(&mut self, program: Executed) -> Option<Arc<Executable>>;

    /// Changes the position at which it goes on.
    fn change_position(&mut self, position: &'a Position);
}

/// A process in the making: the parts that are there so far. Its operations are compiled into
/// whoever composes it: they are stores to the place where the part is wanted.
#[derive(Default)]
pub struct Newcomer<'a> {
    /// Its space.
    pub space: Option<Arc<Space>>,
    /// Its program.
    pub program: Executed,
    /// Its position.
    pub position: Option<&'a Position>,
}

impl<'a> Transform<'a> for Newcomer<'a> {
    #[inline(always)]
    fn change_space(&mut self, space: Arc<Space>) -> Option<Arc<Space>> {
        self.space.replace(space)
    }

    #[inline(always)]
    fn change_program(&mut self, program: Executed) -> Option<Arc<Executable>> {
        core::mem::replace(&mut self.program, program).executable
    }

    #[inline(always)]
    fn change_position(&mut self, position: &'a Position) {
        self.position = Some(position);
    }
}

/// The process that runs on this processor, on its way back to user mode.
pub struct Running<'a, 'f> {
    /// Its current thread.
    pub thread: &'a Thread,
    /// What it goes on with.
    pub regs: &'a mut UserRegs<'f>,
}

impl Transform<'_> for Running<'_, '_> {
    fn change_space(&mut self, space: Arc<Space>) -> Option<Arc<Space>> {
        let old = self.thread.change_space(Some(space));
        // The parent of a vfork has its space for itself again.
        self.thread.give_back();
        old
    }

    fn change_program(&mut self, program: Executed) -> Option<Arc<Executable>> {
        let process = &self.thread.process;
        self.thread.take_name(program.name);
        process.set_vectors(program.vectors);
        process.set_executable(program.executable)
    }

    fn change_position(&mut self, position: &Position) {
        self.thread.take_bases(position.fs_base, position.gs_base);
        self.regs.go_on_at(&position.regs);
        trap::attention::raise(trap::FULL_RETURN);
    }
}
