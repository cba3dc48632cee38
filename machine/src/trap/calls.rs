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

/// Makes the handler of system calls serve all numbers.
pub(super) fn forget_calls() {
    // SAFETY: as above.
    for entry in unsafe { &hayate_calls } {
        entry.store(hayate_call_any as *const () as u64, Ordering::Release);
    }
}
