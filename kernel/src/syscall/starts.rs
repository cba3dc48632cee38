//! `trace=starts`: system calls of threads whose start is measured ([`crate::process::starts`]).

use hayate_machine::trap::UserRegs;

use super::argument::Returned;
use super::calls;
use super::process;
use super::recorder;
use crate::process::exit;
use crate::process::starts;
use crate::process::starts::{Call, Role, Watched};
use crate::recycle::watch::{StartPart, Watch};

const CLONE: u64 = 56;
const FORK: u64 = 57;
const VFORK: u64 = 58;
const EXECVE: u64 = 59;
const EXIT: u64 = 60;
const WAIT4: u64 = 61;
const EXIT_GROUP: u64 = 231;
const WAITID: u64 = 247;
const EXECVEAT: u64 = 322;
const CLONE3: u64 = 435;

/// Handles one system call like [`calls::dispatch`], and marks it.
pub extern "C" fn dispatch(regs: &mut UserRegs) {
    match starts::role() {
        Role::Other => serve(regs),
        Role::Parent => of_parent(regs),
        Role::Child => of_child(regs),
    }
}

/// Handles one system call; programs that are recorded pass the recorder.
fn serve(regs: &mut UserRegs) {
    regs.rax = recorder::pass(regs, carry_out) as u64;
}

fn carry_out(regs: &mut UserRegs) -> i64 {
    calls::dispatch(regs);
    regs.rax as i64
}

fn of_parent(regs: &mut UserRegs) {
    match regs.orig_rax {
        CLONE | FORK | VFORK | CLONE3 => {
            starts::begins();
            serve(regs);
            starts::made(regs.rax as i64);
        }
        WAIT4 | WAITID => {
            serve(regs);
            starts::waited();
        }
        _ => serve(regs),
    }
}

fn of_child(regs: &mut UserRegs) {
    let call = match regs.orig_rax {
        EXECVE | EXECVEAT => Call::Exec,
        EXIT | EXIT_GROUP => Call::Exit,
        _ => Call::Other,
    };
    let before = starts::calls(call);
    let result = recorder::pass(regs, |regs| carry_out_marked(regs, call));
    regs.rax = result as u64;
    starts::returns(call, before, result < 0);
    if call == Call::Exec && starts::ends_at_once() {
        // The process began at an image whose next act is its end: it executes nothing.
        starts::calls(Call::Exit);
        end_marked();
    }
}

/// Carries out a call of the new process, and marks its steps.
fn carry_out_marked(regs: &mut UserRegs, call: Call) -> i64 {
    let [a, b, c, d, e, _] = regs.arguments();
    match (call, regs.orig_rax) {
        (_, EXECVE) => {
            let here = hayate_abi::file::AT_FDCWD;
            let (path, strings, environment) = (a as usize, b as usize, c as usize);
            process::execute::<Watched>(regs, here, path, strings, environment, 0).to_register()
        }
        (_, EXECVEAT) => {
            let (path, strings, environment) = (b as usize, c as usize, d as usize);
            process::execute::<Watched>(regs, a as i32, path, strings, environment, e as u32)
                .to_register()
        }
        (Call::Exit, _) => {
            end_marked();
            carry_out(regs)
        }
        _ => carry_out(regs),
    }
}

/// Frees the space, as the first step of the end of the process.
fn end_marked() {
    Watched::enter(StartPart::ExitSpace);
    exit::release_space();
    Watched::enter(StartPart::Exit);
}
