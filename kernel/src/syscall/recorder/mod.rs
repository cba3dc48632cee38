//! The system calls of programs that are recorded ([`crate::process::images`]).
//!
//! While any program is recorded, [`watched`] stands in the table of calls for every number. A
//! program that is not recorded pays a comparison for each slot there. For one that is, [`rules`]
//! say of each call what it means for an image:
//!
//! * it changes only what the image holds: memory, signal actions, its own descriptors;
//! * it looks at files ([`tree`]): what it can see of them is noted before;
//! * it asks something that may differ from start to start: the answer is noted;
//! * it reaches the outside, or is not known here: that is the horizon.
//!
//! An unknown call is a horizon, so a mistake here makes an image shorter, not wrong.

mod rules;
mod tree;

use hayate_machine::trap;
use hayate_machine::trap::UserRegs;

/// A function that serves a system call.
type Call = extern "C" fn(&mut UserRegs) -> i64;

use super::calls::HANDLERS;
use crate::process;
use crate::process::Thread;
use crate::process::exec;
use crate::process::images;
use crate::process::images::{After, recording};
use rules::Verdict;

/// Registers the recorder; boot calls it once, unless something else watches all calls.
pub fn init() {
    recording::watch_by(watch);
    images::start_again_by(exec::again);
}

/// Makes the table of calls watch recorded programs, or not.
fn watch(on: bool) {
    for (number, handler) in HANDLERS.iter().enumerate() {
        trap::set_call(number, if on { watched } else { *handler });
    }
}

/// Serves a call while some program is recorded.
extern "C" fn watched(regs: &mut UserRegs) -> i64 {
    hayate_machine::trap::check_stack();
    let thread = process::current();
    let own = thread.process();
    let Some(handler) = HANDLERS.get(regs.orig_rax as usize) else {
        return hayate_abi::Errno::ENOSYS.to_return();
    };
    let Some(mut recording) = recording::take(own.id(), own.serial()) else {
        return handler(regs);
    };
    if recording.calls >= recording.entry.most_calls() {
        return go_on(&thread, regs, images::reach_horizon(&thread, regs, recording), *handler);
    }
    let after = match rules::judge(&thread, regs, &mut recording) {
        Ok(Verdict::Goes(after)) => {
            recording.calls += 1;
            let result = handler(regs);
            if after.follow(result, &mut recording).is_ok() {
                recording::put_back(own.id(), recording);
                return result;
            }
            match images::abandon(&thread, recording, "memory is exhausted") {
                After::GoesOn => return result,
                again => again,
            }
        }
        Ok(Verdict::Horizon) => images::reach_horizon(&thread, regs, recording),
        Err(_) => images::abandon(&thread, recording, "memory is exhausted"),
    };
    go_on(&thread, regs, after, *handler)
}

/// Goes on after a recording: carries out the call, or starts the program again.
fn go_on(thread: &Thread, regs: &mut UserRegs, after: After, handler: Call) -> i64 {
    if let After::GoesOn = after {
        return handler(regs);
    }
    images::follow(thread, regs, after);
    regs.rax as i64
}
