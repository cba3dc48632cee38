//! Process transformation: the three ways in which a process changes while it exists.
//!
//! A process is a composition of parts, so each part can be replaced by itself: the **program** it
//! executes, the **position** at which it continues, the **space** it works in. The three
//! operations of [`Running`] are independent and combine in any order. Everything else is built
//! from them:
//!
//! * fork (`clone.rs`): a space (the parent's, or a copy of it), the parent's program and the
//!   parent's position, of which a process and an execution are made;
//! * execve (`exec.rs`): the running process gets the new space, the new program and the position
//!   of its first instruction;
//! * Hayate's own system calls (`syscall/own.rs`) offer each of them alone, and all at once.
//!
//! An operation cannot fail. The caller first does what can fail (finding a program, making a
//! space, checking an address), so a combination of operations cannot stop half-way.
//!
//! A process that leaves a space or a program for good must also release its robust futexes and
//! drop signal handlers that lie in the old program. That is part of execve, not of the operations,
//! because a process may return to a space.
//!
//! Road not taken: transforming *another* process. It would have to be stopped at a place where its
//! registers are known, which is what a debugger does. A process transforms itself, or is composed
//! anew.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::trap::{self, UserRegs};

use super::record::Vectors;
use super::thread::{Thread, ThreadName};
use crate::memory::{Space, USER_END};
use crate::program::Executable;

/// The program that a process executes, as shown to others.
pub struct Executed {
    /// The file (`/proc/PID/exe`).
    pub executable: Option<Arc<Executable>>,
    /// Where its arguments lie in the space (`/proc/PID/cmdline`).
    pub vectors: Vectors,
    /// The name of the thread (`comm`).
    pub name: ThreadName,
}

impl Executed {
    /// The state that a thread executes now.
    #[inline(always)]
    pub fn by(thread: &Thread) -> Executed {
        let (executable, vectors) = thread.process.program();
        Executed { executable, vectors, name: thread.name() }
    }
}

/// Where a process continues.
#[derive(Clone, Default)]
pub struct Position {
    /// All registers, the instruction and stack pointers among them.
    pub regs: UserRegs<'static>,
    /// The thread pointer (FS base), below the end of the program's half.
    pub fs_base: u64,
    /// The GS base.
    pub gs_base: u64,
}

impl Position {
    /// The position of a program's first instruction: all other registers are zero.
    #[inline(always)]
    pub fn start(instruction: u64, stack: u64) -> Position {
        Position { regs: UserRegs::start(instruction, stack), fs_base: 0, gs_base: 0 }
    }

    /// Checks a position that a program asked for. Fails with `EINVAL` if a pointer is outside of
    /// the user half (the instruction pointer may also be in the vDSO).
    pub fn check(&self) -> Result<()> {
        let end = USER_END as u64;
        let rip = self.regs.rip;
        let inside = (rip < end || hayate_machine::vdso::holds(rip)) && self.regs.rsp <= end;
        if inside && self.fs_base < end && self.gs_base < end { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

/// The process that runs on this processor, on its way back to user mode.
pub struct Running<'a, 'f> {
    /// Its current thread.
    pub thread: &'a Thread,
    /// The registers with which it continues.
    pub regs: &'a mut UserRegs<'f>,
}

impl Running<'_, '_> {
    /// Changes the space in which it runs. Returns the old one, to be dropped when it is not needed
    /// any more.
    pub fn change_space(&mut self, space: Arc<Space>) -> Option<Arc<Space>> {
        let old = self.thread.change_space(Some(space));
        // The parent of a vfork has its space to itself again.
        self.thread.give_back();
        old
    }

    /// Changes the program that it executes, whose content is in the space already. Returns the old
    /// one, whose file closes when it is dropped.
    pub fn change_program(&mut self, program: Executed) -> Option<Arc<Executable>> {
        let process = &self.thread.process;
        self.thread.take_name(program.name);
        process.set_vectors(program.vectors);
        process.set_executable(program.executable)
    }

    /// Changes the position at which it continues.
    pub fn change_position(&mut self, position: &Position) {
        self.thread.take_bases(position.fs_base, position.gs_base);
        self.regs.go_on_at(&position.regs);
        trap::attention::raise(trap::FULL_RETURN);
    }
}
