//! `trace=starts`: system calls of threads whose start is measured ([`crate::process::starts`]).

use hayate_machine::trap::UserRegs;

use super::argument::Returned;
use super::calls;
use super::process;
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
        Role::Other => calls::dispatch(regs),
        Role::Parent => of_parent(regs),
        Role::Child => of_child(regs),
    }
}

fn of_parent(regs: &mut UserRegs) {
    match regs.orig_rax {
        CLONE | FORK | VFORK | CLONE3 => {
            starts::begins();
            calls::dispatch(regs);
            starts::made(regs.rax as i64);
        }
        WAIT4 | WAITID => {
            calls::dispatch(regs);
            starts::waited();
        }
        _ => calls::dispatch(regs),
    }
}

fn of_child(regs: &mut UserRegs) {
    let number = regs.orig_rax;
    let call = match number {
        EXECVE | EXECVEAT => Call::Exec,
        EXIT | EXIT_GROUP => Call::Exit,
        _ => Call::Other,
    };
    let before = starts::calls(call);
    let [a, b, c, d, e, _] = regs.arguments();
    let result = match number {
        EXECVE => {
            let here = hayate_abi::file::AT_FDCWD;
            let (path, strings, environment) = (a as usize, b as usize, c as usize);
            process::execute::<Watched>(regs, here, path, strings, environment, 0).to_register()
        }
        EXECVEAT => {
            let (path, strings, environment) = (b as usize, c as usize, d as usize);
            process::execute::<Watched>(regs, a as i32, path, strings, environment, e as u32)
                .to_register()
        }
        EXIT | EXIT_GROUP => {
            Watched::enter(StartPart::ExitSpace);
            exit::release_space();
            Watched::enter(StartPart::Exit);
            calls::dispatch(regs);
            regs.rax as i64
        }
        _ => {
            calls::dispatch(regs);
            regs.rax as i64
        }
    };
    regs.rax = result as u64;
    starts::returns(call, before, result < 0);
}
