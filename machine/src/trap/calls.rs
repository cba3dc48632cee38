//! The table of calls: which function serves which system call.

use core::sync::atomic::{AtomicU64, Ordering};

use super::regs::UserRegs;

unsafe extern "C" {
    // Defined by `entry`.
    fn hayate_call_any();
    static hayate_calls: [AtomicU64; CALLS];
}

/// Number of entries in the table of calls.
pub(super) const CALLS: usize = 512;

/// Serves one system call: takes the arguments from the frame and returns the result. It changes no
/// registers but those that the caller asked it to change.
pub type Call = extern "C" fn(&mut UserRegs) -> i64;

/// Registers the function that serves system call `number`. Without one, and for numbers above the
/// table's end, the handler of system calls is called.
pub fn set_call(number: usize, call: Call) {
    // SAFETY: the table consists of words in the kernel's data, written and read atomically.
    if let Some(entry) = unsafe { &hayate_calls }.get(number) {
        entry.store(call as usize as u64, Ordering::Release);
    }
}

/// Registers one function for the numbers below `count`.
pub fn set_calls_to(call: Call, count: usize) {
    // SAFETY: the table consists of words in the kernel's data, written and read atomically.
    for entry in unsafe { &hayate_calls }.iter().take(count) {
        entry.store(call as usize as u64, Ordering::Release);
    }
}

/// Registers the functions that serve the numbers from 0 on.
pub fn set_calls(calls: &[Call]) {
    // SAFETY: the table consists of words in the kernel's data, written and read atomically.
    for (entry, call) in unsafe { &hayate_calls }.iter().zip(calls) {
        entry.store(*call as usize as u64, Ordering::Release);
    }
}

/// Serves one system call as the entry does: by the function of its number, or by the handler of
/// system calls. Returns the result, which the caller puts into the frame.
pub(super) fn serve_by_table(regs: &mut UserRegs) -> i64 {
    // SAFETY: the table consists of words in the kernel's data, written and read atomically.
    let entry = unsafe { &hayate_calls }.get(regs.orig_rax as usize);
    let code =
        entry.map_or(hayate_call_any as *const () as u64, |entry| entry.load(Ordering::Acquire));
    // SAFETY: only `set_call`, its relatives and `forget_calls` store there: functions of this
    // type, and the stub that does the same.
    let call: Call = unsafe { core::mem::transmute(code as usize as *const ()) };
    call(regs)
}

/// Makes the handler of system calls serve all numbers.
pub(super) fn forget_calls() {
    // SAFETY: as above.
    for entry in unsafe { &hayate_calls } {
        entry.store(hayate_call_any as *const () as u64, Ordering::Release);
    }
}
