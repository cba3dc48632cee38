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

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt::Write;

use hayate_machine::trap;
use hayate_machine::trap::UserRegs;

use super::calls;
use super::calls::HANDLERS;
use crate::process;
use crate::process::Thread;
use crate::process::images;
use crate::process::images::recording::Recording;
use crate::process::images::{After, recording};
use crate::process::{exec, starts};
use rules::Verdict;

/// Registers the recorder; boot calls it once. With `trace=syscalls` nothing is recorded: the trace
/// would show calls that a program which is started again makes twice.
pub fn init() {
    images::start_again_by(exec::again);
    match hayate_machine::boot::option("trace") {
        Some("syscalls") => {}
        // The dispatcher of measured starts passes all calls here by itself.
        _ if starts::is_wanted() => {
            images::put_aside_by(starts::aside);
            recording::watch_by(|_| ());
        }
        _ => recording::watch_by(watch),
    }
}

/// Makes the table of calls watch recorded programs, or not.
fn watch(on: bool) {
    if on {
        trap::set_calls_to(watched, HANDLERS.len());
    } else {
        trap::set_calls(&HANDLERS);
    }
}

/// Serves a call while some program is recorded.
extern "C" fn watched(regs: &mut UserRegs) -> i64 {
    hayate_machine::trap::check_stack();
    match HANDLERS.get(regs.orig_rax as usize) {
        Some(handler) => serve(regs, |regs| handler(regs)),
        None => hayate_abi::Errno::ENOSYS.to_return(),
    }
}

/// Serves a call by `handler`, for a dispatcher that stands before the table of calls. One of
/// Hayate's own calls is no matter of the rules: it ends a recording by itself.
pub fn pass(regs: &mut UserRegs, handler: impl FnOnce(&mut UserRegs) -> i64) -> i64 {
    if recording::is_any() && (regs.orig_rax as usize) < HANDLERS.len() {
        serve(regs, handler)
    } else {
        handler(regs)
    }
}

/// Serves a call by `handler`, after the rules have judged it if the program is recorded.
fn serve(regs: &mut UserRegs, handler: impl FnOnce(&mut UserRegs) -> i64) -> i64 {
    let thread = process::current();
    let own = thread.process();
    let Some(mut recording) = recording::take(own.id(), own.serial()) else {
        return handler(regs);
    };
    if recording.calls >= recording.most_calls {
        let after = images::reach_horizon(&thread, regs, recording, shown(regs));
        return go_on(&thread, regs, after, handler);
    }
    let after = match rules::judge(&thread, regs, &mut recording) {
        Ok(Verdict::Goes(after)) => {
            let result = handler(regs);
            return carried_out(&thread, regs, recording, (result, after));
        }
        Ok(Verdict::Done(result, after)) => {
            return carried_out(&thread, regs, recording, (result, after));
        }
        Ok(Verdict::Horizon) => images::reach_horizon(&thread, regs, recording, shown(regs)),
        Err(_) => images::abandon(&thread, recording, "memory is exhausted"),
    };
    go_on(&thread, regs, after, handler)
}

/// Goes on recording after a call that was carried out with this result. Returns the value for
/// `rax`.
fn carried_out(
    thread: &Thread,
    regs: &mut UserRegs,
    mut recording: Box<Recording>,
    (result, after): (i64, rules::After),
) -> i64 {
    recording.calls += 1;
    if after.follow(result, &mut recording).is_ok() {
        recording::put_back(thread.process().id(), recording);
        return result;
    }
    match images::abandon(thread, recording, "memory is exhausted") {
        After::GoesOn => result,
        again => {
            images::follow(thread, regs, again);
            regs.rax as i64
        }
    }
}

/// Goes on after a recording: carries out the call, or starts the program again.
fn go_on(
    thread: &Thread,
    regs: &mut UserRegs,
    after: After,
    handler: impl FnOnce(&mut UserRegs) -> i64,
) -> i64 {
    if let After::GoesOn = after {
        return handler(regs);
    }
    images::follow(thread, regs, after);
    regs.rax as i64
}

/// A call as it is shown: its name with its path, or else with its first argument.
fn shown(regs: &UserRegs<'_>) -> String {
    let mut text = String::new();
    let Some(row) = calls::row(regs.orig_rax) else {
        let _ = write!(text, "call {}", regs.orig_rax);
        return text;
    };
    let arguments = || row.arguments.iter().zip(regs.arguments());
    let _ = write!(text, "{}(", row.name);
    if let Some(((_, show), raw)) = arguments().find(|((name, _), _)| *name == "path") {
        let mut path = String::new();
        let _ = show(raw, &mut path);
        // As the trace shows it, without the quotation marks.
        path.retain(|letter| letter != '"');
        text.push_str(&path);
    } else if let Some(((_, show), raw)) = arguments().next() {
        let _ = show(raw, &mut text);
    }
    text.push(')');
    text
}
