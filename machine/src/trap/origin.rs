//! Where in the kernel the current thread is: the return addresses on its stack, and its system
//! call. Only in kernels for tests, whose refusals of memory tell places apart.

use core::arch::asm;
use core::mem::offset_of;

use super::UserRegs;
use crate::cpu;
use crate::stack::STACK_SIZE;

/// The most return addresses that [`stack`] gives.
pub const DEPTH: usize = 32;

/// The bytes that a user thread's entry leaves at the top of its stack, at most.
const ENTRY: u64 = size_of::<UserRegs>() as u64 + 8;

/// Returns the part of the current stack that is in use: from its first to behind its last byte.
/// `None` if this code does not run on the stack of the current user thread, below what its entry
/// left there: on that of an interrupt, for instance, or where no user thread has run yet.
fn in_use() -> Option<(u64, u64)> {
    let below: u64;
    // SAFETY: copies a register.
    unsafe { asm!("mov {}, rsp", out(reg) below, options(nostack)) };
    let top = cpu::kernel_stack();
    // Below the top of one stack, and no further than its size: so both are in the same stack.
    let used = top.checked_sub(below)?;
    (ENTRY..=STACK_SIZE as u64).contains(&used).then_some((below, top))
}

/// Returns the return addresses on the stack of the current thread and how many they are: those of
/// the innermost calls first, the rest 0. None for a thread that is no user thread in its own
/// system call or fault.
#[inline(never)]
pub fn stack() -> ([u64; DEPTH], usize) {
    let mut frame: u64;
    // SAFETY: copies a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nostack)) };
    let (mut addresses, mut count) = ([0; DEPTH], 0);
    let Some((below, top)) = in_use() else { return (addresses, count) };
    while count < DEPTH && (below..top - 16).contains(&frame) && frame.is_multiple_of(8) {
        // SAFETY: both words lie in the part of the current stack that is in use. Code that keeps
        // no frame pointer may have left another number in the register; then these are other
        // words of the stack.
        let (next, back) = unsafe { (*(frame as *const u64), *((frame + 8) as *const u64)) };
        if back == 0 || next <= frame {
            break;
        }
        addresses[count] = back;
        count += 1;
        frame = next;
    }
    (addresses, count)
}

/// Returns the number of the system call that the current thread executes, or `u64::MAX` if it
/// entered the kernel by a trap, or is no user thread.
pub fn call() -> u64 {
    /// How far the number is from the end of the frame.
    const BACK: u64 = (size_of::<UserRegs>() - offset_of!(UserRegs, orig_rax)) as u64;
    // A trap's frame ends at the top of the stack, that of a system call one word below.
    let Some((_, top)) = in_use() else { return u64::MAX };
    // SAFETY: both words lie in the part of the current stack that is in use: its last `ENTRY`
    // bytes at most. A user thread in the kernel has its register frame there.
    let (trap, call) =
        unsafe { (*((top - BACK) as *const u64), *((top - BACK - 8) as *const u64)) };
    // For a system call the first one is the address behind it, which is lower.
    if trap == u64::MAX { trap } else { call }
}
