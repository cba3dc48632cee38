//! Hayate's own system calls, for programs that run in it. On Linux each fails with `ENOSYS`
//! ([`std::io::Error::raw_os_error`]), so a program can try them anywhere.
//!
//! # Process transformation
//!
//! A process is a composition of a program, a position and a space. Each can be exchanged
//! separately: [`change_space`], [`change_program`], [`change_position`]; [`change`] exchanges
//! several in one step. Spaces and programs are held by descriptors: [`open_space`],
//! [`open_program`].
//!
//! A process can return to a space that it has left, so a program can try an action and undo it:
//!
//! ```no_run
//! use hayate_guest::{Source, change_space, open_space};
//!
//! let here = open_space(Source::Own)?;
//! let trial = open_space(Source::Copy)?;
//! // SAFETY: nothing that lives across the change is written on either side.
//! unsafe { change_space(&trial)? };
//! // ... whatever is written to private memory now ...
//! unsafe { change_space(&here)? };
//! // ... was never written here.
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! The layouts are those of `include/hayate.h`; a test compares the two.

pub mod template;

use std::arch::asm;
use std::ffi::{CStr, c_char, c_long};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Numbers of the calls.
pub mod number {
    use std::ffi::c_long;

    /// `hayate_space_open`
    pub const SPACE_OPEN: c_long = 1000;
    /// `hayate_program_open`
    pub const PROGRAM_OPEN: c_long = 1001;
    /// `hayate_change_space`
    pub const CHANGE_SPACE: c_long = 1002;
    /// `hayate_change_program`
    pub const CHANGE_PROGRAM: c_long = 1003;
    /// `hayate_change_position`
    pub const CHANGE_POSITION: c_long = 1004;
    /// `hayate_change`
    pub const CHANGE: c_long = 1005;
    /// `switch_supervisor`
    pub const SWITCH_SUPERVISOR: c_long = 1010;
    /// `switch_user`
    pub const SWITCH_USER: c_long = 1011;
    /// `hayate_template_ready`
    pub const TEMPLATE_READY: c_long = 1020;
    /// `hayate_template_start`
    pub const TEMPLATE_START: c_long = 1021;
    /// `hayate_template_remove`
    pub const TEMPLATE_REMOVE: c_long = 1022;
    /// `hayate_template_bind`
    pub const TEMPLATE_BIND: c_long = 1023;
}

/// Makes a call. Inlined, without a function call: when the space changes, the return addresses on
/// the stack change too.
///
/// # Safety
/// As for the call that is made.
#[inline(always)]
unsafe fn call(number: c_long, a: usize, b: usize, c: usize) -> Result<usize> {
    let result: isize;
    // SAFETY: the clobbers are those of the ABI of system calls; the rest is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
             in("rdx") c, out("rcx") _, out("r11") _, options(nostack));
    }
    if result < 0 { Err(Error::from_raw_os_error(-result as i32)) } else { Ok(result as usize) }
}

const CLOSE_ON_EXEC: u32 = libc::O_CLOEXEC as u32;
const WHAT_SPACE: u32 = 1;
const WHAT_PROGRAM: u32 = 2;
const WHAT_POSITION: u32 = 4;
const REPLACE: u32 = 1;

/// The source of a new space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Source {
    /// An empty space.
    Empty = 0,
    /// A copy of the caller's: private memory is copied as either side writes it.
    Copy = 1,
    /// The space that the caller works in.
    Own = 2,
}

/// The treatment of a program whose addresses are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupied {
    /// Fail with `EEXIST`.
    Refuse,
    /// Replace the mappings there by the program.
    Replace,
}

/// Where a process continues; all other registers are zero there.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The instruction. With a program in a [`Change`], 0 is its entry.
    pub instruction: u64,
    /// The stack pointer. With a program's first stack in a [`Change`], 0 is the pointer to that
    /// stack.
    pub stack: u64,
    /// The thread pointer (FS base).
    pub thread_pointer: u64,
    /// The arguments of a function of the C ABI.
    pub arguments: [u64; 6],
}

/// The addresses of a program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Its first instruction, or its interpreter's.
    pub entry: u64,
    /// The difference between the addresses in memory and in the file.
    pub base: u64,
    /// Its program headers.
    pub headers: u64,
    /// One past its last address.
    pub end: u64,
}

/// Several changes in one step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change<'a> {
    /// The space to work in.
    pub space: Option<BorrowedFd<'a>>,
    /// The new program, and whether it replaces mappings at its addresses.
    pub program: Option<(BorrowedFd<'a>, bool)>,
    /// Its arguments and environment, each ended by a null pointer: with these it gets a first
    /// stack.
    pub strings: Option<(&'a [*const c_char], &'a [*const c_char])>,
    /// Where to continue.
    pub position: Option<Position>,
}

/// `struct hayate_change`.
#[repr(C)]
struct RawChange {
    what: u32,
    flags: u32,
    space: i32,
    program: i32,
    arguments: u64,
    environment: u64,
    position: Position,
}

/// Opens a descriptor for a space; it is closed when another program is executed.
#[inline(always)]
pub fn open_space(source: Source) -> Result<OwnedFd> {
    // SAFETY: the call takes two numbers and touches no memory.
    let fd = unsafe { call(number::SPACE_OPEN, source as usize, CLOSE_ON_EXEC as usize, 0)? };
    // SAFETY: the call returned a new descriptor, which nothing else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Opens a descriptor for the program at `path`; it is closed when another program is executed.
///
/// Errors as `execve(2)`, and `EACCES` for a file that cannot be read.
pub fn open_program(path: &CStr) -> Result<OwnedFd> {
    let directory = libc::AT_FDCWD as usize;
    // SAFETY: the path ends with a NUL and outlives the call.
    let fd = unsafe {
        call(number::PROGRAM_OPEN, directory, path.as_ptr() as usize, CLOSE_ON_EXEC as usize)?
    };
    // SAFETY: the call returned a new descriptor, which nothing else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Continues in another space, at the same position, on the stack at the same address there.
///
/// # Safety
/// Every reference, pointer and lock that is used afterwards must be valid there. This holds in a
/// copy of the space, except for data that was written on one side only. The same is true of the
/// stack: change to a copy in the function that took it.
#[inline(always)]
pub unsafe fn change_space(space: &OwnedFd) -> Result<()> {
    // SAFETY: as the caller promises.
    unsafe { call(number::CHANGE_SPACE, space.as_raw_fd() as usize, 0, 0).map(drop) }
}

/// Attaches a program to the space, makes it the process's program, and continues here.
///
/// # Safety
/// With [`Occupied::Replace`], nothing at the program's addresses may still be used.
pub unsafe fn change_program(program: &OwnedFd, occupied: Occupied) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let flags = if occupied == Occupied::Replace { REPLACE } else { 0 };
    let to = (&raw mut loaded).addr();
    // SAFETY: `loaded` has the layout that the call writes; the rest is the caller's promise.
    unsafe { call(number::CHANGE_PROGRAM, program.as_raw_fd() as usize, to, flags as usize)? };
    Ok(loaded)
}

/// Continues elsewhere. Returns only with an error.
///
/// # Safety
/// The position must be code that can run there; nothing on the caller's stack is dropped.
pub unsafe fn change_position(position: &Position) -> Result<()> {
    let from = (&raw const *position).addr();
    // SAFETY: as the caller promises.
    unsafe { call(number::CHANGE_POSITION, from, size_of::<Position>(), 0).map(drop) }
}

/// Makes several changes at once. Returns if the position is not among them, or with an error.
///
/// # Safety
/// As for each of the changes. The vectors of strings must end with a null pointer, and each string
/// with a NUL.
#[inline(always)]
pub unsafe fn change(change: &Change<'_>) -> Result<()> {
    let address = |vector: &[*const c_char]| vector.as_ptr() as u64;
    let raw = RawChange {
        what: change.space.map_or(0, |_| WHAT_SPACE)
            | change.program.map_or(0, |_| WHAT_PROGRAM)
            | change.position.map_or(0, |_| WHAT_POSITION),
        flags: change.program.map_or(0, |(_, replace)| if replace { REPLACE } else { 0 }),
        space: change.space.map_or(-1, |space| space.as_raw_fd()),
        program: change.program.map_or(-1, |(program, _)| program.as_raw_fd()),
        arguments: change.strings.map_or(0, |(arguments, _)| address(arguments)),
        environment: change.strings.map_or(0, |(_, environment)| address(environment)),
        position: change.position.unwrap_or_default(),
    };
    let from = (&raw const raw).addr();
    // SAFETY: `raw` has the layout that the call reads; the rest is the caller's promise.
    unsafe { call(number::CHANGE, from, size_of::<RawChange>(), 0).map(drop) }
}

/// Flag of [`switch_supervisor`]: programs that the process and its children execute start in
/// supervisor mode as well.
pub const KEEP: u32 = 1;

/// Puts a process (0: the caller) with all its threads into supervisor mode; when this returns,
/// they are in it. See docs/dmsm.md for the meaning and the required privileges.
///
/// `EPERM`, `ESRCH`, `EINVAL`, `EOPNOTSUPP` (the kernel was started with `supervisor=off`).
pub fn switch_supervisor(pid: i32, flags: u32) -> Result<()> {
    // SAFETY: the program continues where it was, with the registers that it had.
    unsafe { call(number::SWITCH_SUPERVISOR, pid as usize, flags as usize, 0) }.map(drop)
}

/// Puts a process (0: the caller) back into user mode.
///
/// Errors as [`switch_supervisor`].
pub fn switch_user(pid: i32) -> Result<()> {
    // SAFETY: as above.
    unsafe { call(number::SWITCH_USER, pid as usize, 0, 0) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(size_of::<Position>(), 72);
        assert_eq!(size_of::<Loaded>(), 32);
        assert_eq!(size_of::<RawChange>(), 104);
        assert_eq!(std::mem::offset_of!(RawChange, position), 32);
        assert_eq!(size_of::<template::Start>(), 80);
        assert_eq!(size_of::<template::RawTemplate>(), 48);
        let header = include_str!("../include/hayate.h");
        for (name, number) in [
            ("SPACE_OPEN", number::SPACE_OPEN),
            ("PROGRAM_OPEN", number::PROGRAM_OPEN),
            ("CHANGE_SPACE", number::CHANGE_SPACE),
            ("CHANGE_PROGRAM", number::CHANGE_PROGRAM),
            ("CHANGE_POSITION", number::CHANGE_POSITION),
            ("CHANGE", number::CHANGE),
            ("SWITCH_SUPERVISOR", number::SWITCH_SUPERVISOR),
            ("SWITCH_USER", number::SWITCH_USER),
            ("TEMPLATE_READY", number::TEMPLATE_READY),
            ("TEMPLATE_START", number::TEMPLATE_START),
            ("TEMPLATE_REMOVE", number::TEMPLATE_REMOVE),
            ("TEMPLATE_BIND", number::TEMPLATE_BIND),
        ] {
            let line = format!("#define HAYATE_SYS_{name} {number}\n");
            assert!(header.contains(&line), "no {line}");
        }
    }

    #[test]
    fn linux_has_none_of_it() {
        let answer = open_space(Source::Own).map(drop);
        assert_eq!(answer.unwrap_err().raw_os_error(), Some(libc::ENOSYS));
    }
}
