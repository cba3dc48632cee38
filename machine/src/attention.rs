//! The words that the returns to a program test: this CPU's reasons to call the attention handler
//! first, and the mode that its traps are prepared for.
//!
//! Only the CPU itself writes its words. To reach another CPU, mark its execution and send a
//! reschedule interrupt.

use crate::cpu::Half;

/// Attention bit: the scheduler must choose again.
pub const RESCHEDULE: u64 = 1;
/// Attention bit: the current execution was interrupted (a signal must be checked).
pub const INTERRUPTED: u64 = 2;
/// Attention bit: the program's registers were rewritten; leave by `iretq`, restoring all of them.
/// Every system call that changes more of the frame than rax, rip and rsp must raise it.
pub const FULL_RETURN: u64 = 4;
/// Attention bit: the kernel's own reserve of memory was used on behalf of this execution; see
/// [`crate::frames::is_low`].
pub const MEMORY: u64 = 8;
/// Attention bit: the program may not read the time stamp counter (`PR_SET_TSC`). It stays set as
/// long as that holds. Each return to the program sets CR4.TSD, so that context switches of other
/// programs pay nothing. A program that runs here afterwards traps once, and may then read the
/// counter again ([`cpu::allow_tsc`](crate::cpu::allow_tsc)).
pub const NO_TSC: u64 = 16;
/// Attention bit: the execution's system calls are looked at before they are served
/// ([`set_guard`](crate::trap::set_guard)). It stays set while the execution runs: each return to
/// the program loads the entry for that, so that switches to other programs pay nothing.
pub const GUARDED: u64 = 32;
/// Attention bit: the program is traced (`ptrace(2)`). It stays set as long as that holds. Each
/// return to the program makes its system calls enter by another way ([`crate::trap`]'s `traced`),
/// so that the entry of other programs tests nothing.
pub const TRACED: u64 = 64;
/// Attention bit: the processor time of the execution's group is spent.
pub const SPENT: u64 = 128;
/// Attention bits from here up are free for the kernel.
pub const FIRST_FREE: u64 = 256;

/// The two words that the returns to a program test. Both are zero if a program in ring 0 can go on
/// at once, so the gate tests both at once.
#[repr(C, align(8))]
struct WayBack {
    /// This CPU's reasons to call the attention handler before the next return to the program.
    attention: Half,
    /// 0 while this CPU's traps are prepared for a program in ring 0, otherwise 1.
    user: Half,
}

crate::per_cpu! {
    // SAFETY: the symbol is named by the stubs only.
    #[unsafe(export_name = "hayate_attention")]
    static WAY_BACK: WayBack = WayBack { attention: Half::new(0), user: Half::new(1) };
}

/// Returns the bits that are set.
#[inline(always)]
pub fn get() -> u64 {
    u64::from(WAY_BACK.attention.get())
}

/// Sets `bits`.
#[inline(always)]
pub fn raise(bits: u64) {
    let word = &WAY_BACK.attention;
    word.set(word.get() | bits as u32);
}

/// Clears `bits`.
#[inline(always)]
pub fn clear(bits: u64) {
    let word = &WAY_BACK.attention;
    word.set(word.get() & !bits as u32);
}

/// Whether this CPU's traps are prepared for a program in ring 0.
#[inline]
pub fn is_supervisor() -> bool {
    WAY_BACK.user.get() == 0
}

/// Notes which mode this CPU's traps are prepared for.
pub(crate) fn set_mode(supervisor: bool) {
    WAY_BACK.user.set(u32::from(!supervisor));
}
