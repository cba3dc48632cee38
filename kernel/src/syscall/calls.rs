//! The arrays made of the table of system calls, and the dispatcher.

use hayate_abi::Errno;
use hayate_machine::trap::UserRegs;

use super::argument::{Argument, Returned};
use super::{
    adjust, arch, argument, bpf, credentials, file, futex, ioprio, ipc, kcmp, landlock, memory,
    mode, namespaces, own, pidfd, prctl, process, ptrace, sched, seccomp, signal, socket, syslog,
    system, templates, time, timer,
};
use crate::process::images;
use crate::process::images::{After, recording};

/// Executes one call and returns the value for `rax`.
type Handler = extern "C" fn(&mut UserRegs) -> i64;

/// One past the largest of Linux' numbers in the table.
const NUMBERS: usize = 451;
/// The first number of Hayate's own calls (`own.rs`), far from those that Linux may give out.
const OWN: usize = 1000;
/// The number of numbers reserved for Hayate's own calls.
const OWN_NUMBERS: usize = 30;

/// A row of the table, for the trace.
pub struct Row {
    /// The name of the call.
    pub name: &'static str,
    /// Its arguments: name, and the function that shows one.
    pub arguments: &'static [(&'static str, Show)],
}

/// Shows one argument.
pub type Show = fn(u64, &mut dyn core::fmt::Write) -> core::fmt::Result;

extern "C" fn not_implemented(_: &mut UserRegs) -> i64 {
    Errno::ENOSYS.to_return()
}

macro_rules! handler {
    ([none $($note:literal)?] $kinds:tt) => {
        not_implemented
    };
    ([complete registers $($path:ident)::+] $kinds:tt) => {
        handler!(@registers ($($path)::+) $kinds)
    };
    ([partial registers $($path:ident)::+ $note:literal] $kinds:tt) => {
        handler!(@registers ($($path)::+) $kinds)
    };
    ([complete $($path:ident)::+] $kinds:tt) => {
        handler!(@plain ($($path)::+) $kinds)
    };
    ([partial $($path:ident)::+ $note:literal] $kinds:tt) => {
        handler!(@plain ($($path)::+) $kinds)
    };
    (@plain ($path:path) ($($kind:ident)*)) => {{
        #[allow(unused, reason = "some calls have no arguments")]
        extern "C" fn call(regs: &mut UserRegs) -> i64 {
            hayate_machine::trap::check_stack();
            let mut registers = regs.arguments().into_iter();
            $path($(argument::$kind::decode(registers.next().unwrap_or(0))),*).to_register()
        }
        call
    }};
    (@registers ($path:path) ($($kind:ident)*)) => {{
        #[allow(unused, reason = "some calls have no arguments")]
        extern "C" fn call(regs: &mut UserRegs) -> i64 {
            hayate_machine::trap::check_stack();
            let mut registers = regs.arguments().into_iter();
            $path(regs, $(argument::$kind::decode(registers.next().unwrap_or(0))),*).to_register()
        }
        call
    }};
}

/// Whether a handler needs only its arguments of the caller's registers; if so, the gate leaves out
/// the rest of the frame.
macro_rules! is_plain {
    ([complete registers $($path:ident)::+]) => {
        false
    };
    ([partial registers $($path:ident)::+ $note:literal]) => {
        false
    };
    ($support:tt) => {
        true
    };
}

macro_rules! syscalls {
    ($($family:literal {
        $($number:literal $name:ident ($($argument:ident : $kind:ident),*) $support:tt;)*
    })*) => {
        /// The handlers of the calls of Linux, by number.
        pub static HANDLERS: [Handler; NUMBERS] = {
            let mut handlers: [Handler; NUMBERS] = [not_implemented; NUMBERS];
            $($(if let Some(slot) = slot(&mut handlers, $number, 0) {
                *slot = handler!($support ($($kind)*));
            })*)*
            handlers
        };

        static OWN_HANDLERS: [Handler; OWN_NUMBERS] = {
            let mut handlers: [Handler; OWN_NUMBERS] = [not_implemented; OWN_NUMBERS];
            $($(if let Some(slot) = slot(&mut handlers, $number, OWN) {
                *slot = handler!($support ($($kind)*));
            })*)*
            handlers
        };

        /// Which of them need no more of the registers than the arguments, by number.
        pub static PLAIN: [bool; NUMBERS] = {
            let mut plain = [false; NUMBERS];
            $($(if let Some(slot) = slot(&mut plain, $number, 0) {
                *slot = is_plain!($support);
            })*)*
            plain
        };

        static ROWS: &[(usize, Row)] = &[$($(($number, Row {
            name: stringify!($name),
            arguments: &[$((stringify!($argument), argument::$kind::show as Show)),*],
        }),)*)*];

        // Every row has an entry in one of the two arrays.
        $($(const _: () = assert!(
            $number < NUMBERS || ($number >= OWN && $number < OWN + OWN_NUMBERS)
        );)*)*
    };
}

include!("table.rs");

/// The entry of a number in a part of the table that begins at `first`.
const fn slot<T>(part: &mut [T], number: usize, first: usize) -> Option<&mut T> {
    if number >= first && number - first < part.len() {
        Some(&mut part[number - first])
    } else {
        None
    }
}

/// The row of a number, if there is such a call. A slow search, for the trace.
pub fn row(number: u64) -> Option<&'static Row> {
    ROWS.iter().find(|(own, _)| *own as u64 == number).map(|(_, row)| row)
}

/// Handles one system call: number in `orig_rax`, result to `rax`.
pub extern "C" fn dispatch(regs: &mut UserRegs) {
    hayate_machine::trap::check_stack();
    let result = match HANDLERS.get(regs.orig_rax as usize) {
        Some(handler) => handler(regs),
        None => dispatch_own(regs),
    };
    regs.rax = result as u64;
}

/// Handles a call that is not one of Linux'.
#[cold]
fn dispatch_own(regs: &mut UserRegs) -> i64 {
    let handler = (regs.orig_rax as usize).checked_sub(OWN).and_then(|at| OWN_HANDLERS.get(at));
    let Some(handler) = handler else { return Errno::ENOSYS.to_return() };
    leave_trampoline(regs);
    if recording::is_any() {
        let thread = crate::process::current();
        let after = images::give_up(&thread, "it made a call of Hayate's own");
        if let After::StartsAgain(_) = after {
            images::follow(&thread, regs, after);
            return regs.rax as i64;
        }
    }
    handler(regs)
}

/// Prepares a call after which the program may be in another space, which does not have this
/// space's trampolines: the program then continues after the site itself.
fn leave_trampoline(regs: &mut UserRegs) {
    // Do not check whether the space is in supervisor mode now: the mode may have changed since the
    // trampoline was entered, and in user mode a trampoline's own `syscall` makes the call.
    if let Some(space) = crate::memory::try_current()
        && space.was_supervisor()
    {
        regs.rip = space.outside_of_trampoline(regs.rip as usize) as u64;
    }
}
