//! Hayate's own system calls: numbers from 1000 on, for which Linux returns `ENOSYS`.
//!
//! 1000 to 1009 are process transformation ([`crate::process::transform`]): a program asks for each
//! of the three changes alone, or for several at once. `guest/include/hayate.h` is their C
//! interface, the crate `hayate-guest` their Rust interface; docs/resources.md describes them.
//!
//! These rules hold for all of them:
//!
//! * they concern the calling process, which must have no other thread (`EBUSY`) if its memory
//!   changes;
//! * they give no privilege: set-user-id bits have no effect, and a program must be readable, as
//!   its content is mapped where the caller can look at it;
//! * an error changes nothing.

use alloc::sync::Arc;

use hayate_abi::process::RLIMIT_STACK;
use hayate_abi::{Errno, Result};
use hayate_machine::trap::UserRegs;
use hayate_machine::user::UserPtr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::file::{View, at, install, open_file, path};
use crate::credentials::access;
use crate::memory;
use crate::memory::Space;
use crate::process;
use crate::process::transform::{Executed, Position, Running};
use crate::process::{Thread, exec, held, sequences, thread};
use crate::program;
use crate::program::{Program, Strings, load, strings};
use crate::recycle::watch::Unwatched;
use crate::vfs::path::{WalkFlags, permitted};

/// `hayate_space_open`: an empty space.
const SPACE_EMPTY: u32 = 0;
/// A copy of the caller's space, made by copy-on-write.
const SPACE_COPY: u32 = 1;
/// The caller's own space.
const SPACE_OWN: u32 = 2;

/// Close the descriptor when another program is executed (`O_CLOEXEC`).
const CLOSE_ON_EXEC: u32 = 0o2_000_000;

/// The bits of `hayate_change` that select what changes.
const CHANGE_SPACE: u32 = 1;
const CHANGE_PROGRAM: u32 = 2;
const CHANGE_POSITION: u32 = 4;
/// A program may replace existing mappings in its range.
const REPLACE: u32 = 1;

/// `struct hayate_position`.
#[repr(C)]
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UserPosition {
    instruction: u64,
    stack: u64,
    thread_pointer: u64,
    arguments: [u64; 6],
}

/// `struct hayate_change`.
#[repr(C)]
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UserChange {
    what: u32,
    flags: u32,
    space: i32,
    program: i32,
    arguments: u64,
    environment: u64,
    position: UserPosition,
}

/// `struct hayate_loaded`.
#[repr(C)]
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct UserLoaded {
    entry: u64,
    base: u64,
    headers: u64,
    end: u64,
}

/// `hayate_space_open(source, flags)`: opens a descriptor for a space.
///
/// Fails with `EINVAL` for an unknown source or flag; `ENOMEM`, `EMFILE`.
pub fn space_open(source: u32, flags: u32) -> Result<i32> {
    let close_on_exec = only_close_on_exec(flags)?;
    let own = process::current();
    let space = match source {
        SPACE_EMPTY => program::new_space(limits(&own), memory::places::are_random())?,
        SPACE_COPY => own.space().ok_or(Errno::ESRCH)?.fork()?,
        SPACE_OWN => own.space().ok_or(Errno::ESRCH)?,
        _ => return Err(Errno::EINVAL),
    };
    install(held::hold_space(space)?, close_on_exec)
}

/// `hayate_program_open(directory, path, flags)`: opens a descriptor for a program that was found
/// and parsed.
///
/// Fails as `execve(2)`; with `EACCES` also for a file that the caller cannot read.
pub fn program_open(directory: i32, path_address: usize, flags: u32) -> Result<i32> {
    const KNOWN: u32 = at::SYMLINK_NOFOLLOW | at::EMPTY_PATH;
    let close_on_exec = only_close_on_exec(flags & !KNOWN)?;
    let text = path(path_address)?;
    let view = View::current()?;
    let mut walk = WalkFlags::empty();
    walk.set(WalkFlags::NOFOLLOW, flags & at::SYMLINK_NOFOLLOW != 0);
    walk.set(WalkFlags::EMPTY, flags & at::EMPTY_PATH != 0);
    let location = view.resolve(directory, &text, walk)?;
    permitted(view.credentials(), &location.inode()?.attributes(), access::READ)?;
    let program =
        program::find::<Unwatched>(location, &text, false, view.context(), view.credentials())?;
    // The interpreter that it names is mapped there, too.
    if !program.is_readable() {
        return Err(Errno::EACCES);
    }
    install(held::hold_program(program, text.to_vec())?, close_on_exec)
}

/// `hayate_change_space(space, flags)`: continues at the same position, with the same program, in
/// another space.
///
/// Fails with `EBADF`, `EBUSY`, `EINVAL`.
pub fn change_space(space: i32, flags: u32) -> Result<()> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    alone(&thread)?;
    let space = held_space(space)?;
    let mut scratch = UserRegs::default();
    enter(&mut Running { thread: &thread, regs: &mut scratch }, space);
    Ok(())
}

/// `hayate_change_program(program, loaded, flags)`: maps a program into the space and makes it the
/// process's program, continuing at the same position. The addresses of the program are written to
/// `loaded`.
///
/// Fails with `EEXIST` if a mapping is in its range and `HAYATE_REPLACE` is not given; `EBADF`,
/// `EBUSY`, `EFAULT`, `EINVAL`, `ENOMEM`.
pub fn change_program(program: i32, loaded: usize, flags: u32) -> Result<()> {
    if flags & !REPLACE != 0 {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    alone(&thread)?;
    let file = open_file(program)?;
    let program = &held::program(&file)?.program;
    let space = thread.space().ok_or(Errno::ESRCH)?;
    let attached = attach(program, &space, flags & REPLACE != 0)?;
    if loaded != 0 {
        UserPtr::new(loaded)
            .write(&told(&attached))
            .inspect_err(|_| detach(&space, program, &attached))?;
    }
    let mut scratch = UserRegs::default();
    let vectors = thread.process.vectors();
    let executed = executed(program, vectors);
    let mut running = Running { thread: &thread, regs: &mut scratch };
    let old = thread.process.steady(|| running.change_program(executed));
    drop(old);
    Ok(())
}

/// `hayate_change_position(position, size)`: continues at another position.
///
/// Fails with `EFAULT`, `EINVAL`.
pub fn change_position(regs: &mut UserRegs, position: usize, size: usize) -> Result<()> {
    if size != size_of::<UserPosition>() {
        return Err(Errno::EINVAL);
    }
    let wanted: UserPosition = UserPtr::new(position).read()?;
    let position = wanted.decode();
    position.check()?;
    Running { thread: &process::current(), regs }.change_position(&position);
    Ok(())
}

/// `hayate_change(change, size)`: makes any of the three changes at once.
///
/// With a program and a space, the process is started as `execve(2)` starts one: handlers are
/// reset, close-on-exec descriptors are closed. With `arguments`, the program gets a first stack. A
/// position of zero means the program's entry, a stack of zero the first stack.
///
/// Fails as the single calls.
pub fn change(regs: &mut UserRegs, change: usize, size: usize) -> Result<()> {
    if size != size_of::<UserChange>() {
        return Err(Errno::EINVAL);
    }
    let wanted: UserChange = UserPtr::new(change).read()?;
    let has = |what| wanted.has(what);
    wanted.check()?;
    let thread = process::current();
    if has(CHANGE_SPACE | CHANGE_PROGRAM) {
        alone(&thread)?;
    }
    let space = match has(CHANGE_SPACE) {
        true => held_space(wanted.space)?,
        false => thread.space().ok_or(Errno::ESRCH)?,
    };
    let starts_anew = has(CHANGE_SPACE) && has(CHANGE_PROGRAM);
    let files = if starts_anew { exec::own_files(&thread)? } else { None };
    let mut position = wanted.position.decode();
    let mut program = None;
    if has(CHANGE_PROGRAM) {
        let file = open_file(wanted.program)?;
        let held = held::program(&file)?;
        let prepared = load_with_stack(&thread, held, &space, &wanted)?;
        prepared.complete(&mut position);
        program = Some((held.program.clone(), prepared));
    }
    if has(CHANGE_POSITION) {
        position.check().inspect_err(|_| {
            if let Some((held, prepared)) = &program {
                prepared.undo(&space, held);
            }
        })?;
    }

    // Nothing fails from here on.
    let mut running = Running { thread: &thread, regs };
    if starts_anew {
        exec::leave_space_for_good(&thread);
    }
    if has(CHANGE_SPACE) {
        enter(&mut running, space);
    }
    if starts_anew {
        exec::leave_program_for_good(&thread, files);
    }
    if let Some((held, prepared)) = program {
        let vectors = match &prepared.stack {
            Some(stack) => exec::vectors(stack),
            None => thread.process.vectors(),
        };
        let executed = executed(&held, vectors);
        let old = thread.process.steady(|| running.change_program(executed));
        drop(old);
    }
    if has(CHANGE_POSITION) {
        running.change_position(&position);
    }
    Ok(())
}

impl UserChange {
    fn has(&self, what: u32) -> bool {
        self.what & what != 0
    }

    /// Fails with `EINVAL` unless it names changes that there are, and only arguments that belong
    /// to them.
    fn check(&self) -> Result<()> {
        let valid = self.what & !(CHANGE_SPACE | CHANGE_PROGRAM | CHANGE_POSITION) == 0
            && self.what != 0
            && self.flags & !REPLACE == 0
            && (self.has(CHANGE_PROGRAM)
                || (self.arguments | self.environment == 0 && self.flags == 0));
        if valid { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

impl UserPosition {
    fn decode(&self) -> Position {
        let mut position = Position::start(self.instruction, self.stack);
        let regs = &mut position.regs;
        // In the registers of the C ABI, so that the position can be a function.
        [regs.rdi, regs.rsi, regs.rdx, regs.rcx, regs.r8, regs.r9] = self.arguments;
        position.fs_base = self.thread_pointer;
        position
    }
}

/// The space of a descriptor.
fn held_space(fd: i32) -> Result<Arc<Space>> {
    held::space(&*open_file(fd)?)
}

fn only_close_on_exec(flags: u32) -> Result<bool> {
    if flags & !CLOSE_ON_EXEC != 0 { Err(Errno::EINVAL) } else { Ok(flags != 0) }
}

/// Fails with `EBUSY` if the process has other threads, which would lose their memory.
fn alone(thread: &Thread) -> Result<()> {
    if thread.process.thread_count() == 1 { Ok(()) } else { Err(Errno::EBUSY) }
}

fn limits(thread: &Thread) -> memory::Limits {
    exec::space_limits(&thread.process.limits())
}

/// Changes the space; the process's limits apply to it from now on.
///
/// A space in supervisor mode is switched to user mode when it is entered from user mode: a
/// descriptor must not give privilege, and a process that was switched to user mode stays there.
fn enter(running: &mut Running<'_, '_>, space: Arc<Space>) {
    space.set_limits(limits(running.thread));
    // The area lies in the space that it leaves.
    sequences::give_up(running.thread);
    // A switch of the mode waits meanwhile, and finds the new space in the mode of the old one.
    let own = running.thread.space();
    let old = running.thread.process.steady(|| {
        if !own.as_ref().is_some_and(|own| own.is_supervisor()) {
            // Every space may be switched to user mode.
            let _ = space.set_supervisor(false);
        }
        running.change_space(space)
    });
    drop(old);
}

fn executed(program: &Program, vectors: process::record::Vectors) -> Executed {
    Executed {
        executable: Some(program.executable.clone()),
        vectors,
        name: thread::name_of(&program.name),
    }
}

/// Maps a program into a space that may be empty or in use.
fn attach(program: &Program, space: &Space, replace: bool) -> Result<program::Attached> {
    if space.size() == 0 {
        return program.attach(space).inspect_err(|_| {
            let _ = space.unmap(0, memory::USER_END);
        });
    }
    let own = load::add(space, &program.executable, program.plan(), replace)?;
    let mut attached = program::Attached::from(own);
    if let Some((file, record)) = &program.interpreter {
        let loaded = load::add(space, file, &record.plan, replace)
            .inspect_err(|_| detach(space, program, &attached))?;
        attached.entry = loaded.entry;
        attached.interpreter = loaded.bias;
    }
    Ok(attached)
}

/// Unmaps a program that [`attach`] has mapped.
fn detach(space: &Space, program: &Program, attached: &program::Attached) {
    let remove = |plan: &hayate_program_image::Plan, bias: usize| {
        let start = (plan.span.start as usize).wrapping_add(bias);
        // Only memory to split a region may be exhausted; then unused memory stays mapped.
        let _ = space.unmap(start, (plan.span.end - plan.span.start) as usize);
    };
    remove(program.plan(), attached.program.bias);
    // The entry is the interpreter's only if that was mapped.
    if let Some((_, record)) = &program.interpreter
        && attached.entry != attached.program.entry
    {
        remove(&record.plan, attached.interpreter);
    }
}

/// A program in its space, perhaps with a stack.
struct Placed {
    attached: program::Attached,
    stack: Option<program::stack::Stack>,
}

impl Placed {
    /// Fills what the caller left open: the program's entry, the first stack.
    fn complete(&self, position: &mut Position) {
        let regs = &mut position.regs;
        if regs.rip == 0 {
            regs.rip = self.attached.entry as u64;
        }
        if let (0, Some(stack)) = (regs.rsp, &self.stack) {
            regs.rsp = stack.pointer as u64;
        }
    }

    fn undo(&self, space: &Space, program: &Program) {
        detach(space, program, &self.attached);
        if let Some(stack) = &self.stack {
            let top = space.layout().stack_top;
            let start = memory::page_down(stack.pointer) - program::stack::ROOM;
            let _ = space.unmap(start, top - start);
        }
    }
}

fn load_with_stack(
    thread: &Thread,
    held: &held::HeldProgram,
    space: &Space,
    wanted: &UserChange,
) -> Result<Placed> {
    let program = &held.program;
    let mut budget = strings::budget(thread.process.limits().soft(RLIMIT_STACK));
    let mut arguments = Strings::read(wanted.arguments as usize, &mut budget)?;
    let environment = Strings::read(wanted.environment as usize, &mut budget)?;
    let attached = attach(program, space, wanted.flags & REPLACE != 0)?;
    if wanted.arguments == 0 {
        return Ok(Placed { attached, stack: None });
    }
    let mut build = || {
        program.complete(&mut arguments)?;
        let path = held.path.as_slice();
        let strings = (&arguments, &environment);
        program.build_stack(space, &attached, strings, path, &thread.credentials(), false, None)
    };
    let stack = build().inspect_err(|_| detach(space, program, &attached))?;
    Ok(Placed { attached, stack: Some(stack) })
}

fn told(attached: &program::Attached) -> UserLoaded {
    UserLoaded {
        entry: attached.entry as u64,
        base: attached.program.bias as u64,
        headers: attached.program.headers as u64,
        end: attached.program.end as u64,
    }
}
