//! Into the kernel and out again: system calls, exceptions, interrupts.
//!
//! One register frame, [`UserRegs`], in the order of Linux' `pt_regs`, lies at the top of the
//! thread's kernel stack for every kind of entry from user mode. Entries from the kernel itself
//! (a page fault in a user copy, an interrupt in the idle loop) push the same frame where the stack
//! stands.
//!
//! What the kernel does about an event is registered once ([`register`]). Before every return to
//! user mode the stubs test one per-CPU word, [`attention`]; only if it is not zero is the
//! `attention` handler called. A handler that rewrites the program's registers (a signal frame,
//! sigreturn, exec) raises [`FULL_RETURN`] so that the way out is `iretq`.

#[macro_use]
mod frame;
mod entry;
mod exception;
mod idt;
mod regs;

pub(crate) use entry::user_start_address;
pub use entry::{Call, set_call};
pub(crate) use entry::{init_syscalls, patch_out_clac};
pub use exception::{FaultCode, FaultOutcome, PageFault};
pub(crate) use idt::{init as init_idt, load as load_idt};
pub use regs::UserRegs;
#[doc(hidden)]
pub use supervisor::GATED;
pub use supervisor::{
    BEHIND, Gate, OwnGate, gate_address, is_supervisor, set_gate, set_supervisor_handler,
};
pub(crate) use supervisor::{gated_on, set_mode, start_address as supervisor_start_address};

use core::sync::atomic::{AtomicPtr, Ordering};

use crate::cpu::Half;

mod supervisor;

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
/// Attention bits from here up are free for the kernel.
pub const FIRST_FREE: u64 = 32;

/// Panics in a development kernel if the stack is not aligned as compiled code may assume: to 16
/// bytes at a call (System V ABI for AMD64, 3.2.2). The functions that the stubs call begin with
/// it.
#[inline(always)]
pub fn check_stack() {
    #[cfg(all(debug_assertions, not(test), not(miri)))]
    {
        #[repr(align(16))]
        struct Aligned(#[expect(dead_code, reason = "its address is all that is asked")] u8);
        let here = Aligned(0);
        // The compiler assumes that the address is a multiple of 16, so it must not see where the
        // number comes from.
        let address = core::hint::black_box(&raw const here as usize);
        assert!(address.is_multiple_of(16), "a stub called with the stack at {address:#x}");
    }
}

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

/// This CPU's attention word. Only this CPU writes it. To reach another CPU, mark its execution and
/// send a reschedule interrupt.
pub mod attention {
    use super::WAY_BACK;

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
}

/// The functions of the kernel that the machine layer calls. All run with interrupts off.
#[derive(Clone, Copy)]
pub struct Handlers {
    /// A system call: number in `orig_rax` (and `rax` is preset to -ENOSYS); the result goes to
    /// `rax`.
    pub syscall: extern "C" fn(&mut UserRegs),
    /// A page fault from user mode (`Some(regs)`) or from a checked user copy in the kernel
    /// (`None`). [`FaultOutcome::Failed`] makes the copy fail; for user mode the handler has posted
    /// a signal.
    pub page_fault: fn(&PageFault, Option<&mut UserRegs>) -> FaultOutcome,
    /// Any other exception from user mode: vector, error code. Vector 2: a program in ring 0 was
    /// interrupted where it had interrupts off, and goes on with interrupts on.
    pub exception: fn(u8, u64, &mut UserRegs),
    /// This CPU's timer expired.
    pub timer: fn(Option<&mut UserRegs>),
    /// A device interrupt whose vector has no handler of its own (see `apic::allocate_vector`).
    pub irq: fn(u8),
    /// [`attention`] is not zero and the CPU is about to return to user mode. Called again until
    /// the word (apart from [`FULL_RETURN`]) is zero. May sleep.
    pub attention: fn(&mut UserRegs),
}

/// Starts the watchdog of programs in ring 0, which never stops: every 55 ms each processor gets an
/// NMI, which turns interrupts on again where a program has turned them off. So no program keeps
/// its processor, nor blocks processors that wait for it to flush a TLB entry. A machine without a
/// PIT (microvm) has no such bound.
pub fn watch_programs() {
    static STARTED: crate::sync::Once<()> = crate::sync::Once::new();
    STARTED.call_once(|| {
        if crate::ioapic::route_isa_as_nmi(0) {
            crate::time::start_beat();
        }
    });
}

static HANDLERS: crate::sync::Once<Handlers> = crate::sync::Once::new();

/// Registers the kernel's handlers; only the first call counts.
pub fn register(handlers: Handlers) {
    set_syscall_handler(handlers.syscall);
    HANDLERS.call_once(|| handlers);
}

pub(crate) fn handlers() -> Option<&'static Handlers> {
    HANDLERS.get()
}

/// The system call handler's address, called by the entry stub.
// SAFETY: the name is the stub's; no other symbol has it.
#[unsafe(export_name = "hayate_syscall_handler")]
static SYSCALL_HANDLER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Calls the handler of system calls on behalf of another entry.
#[inline]
pub extern "C" fn serve_syscall(regs: &mut UserRegs) {
    let handler = SYSCALL_HANDLER.load(Ordering::Relaxed);
    if !handler.is_null() {
        // SAFETY: only `set_syscall_handler` stores here, and only functions of this type.
        let handler: extern "C" fn(&mut UserRegs) = unsafe { core::mem::transmute(handler) };
        handler(regs);
    }
}

/// Replaces the system call handler, for example by a tracing one, and returns the former. It
/// serves all numbers until [`set_call`] registers functions for some.
pub fn set_syscall_handler(
    handler: extern "C" fn(&mut UserRegs),
) -> Option<extern "C" fn(&mut UserRegs)> {
    entry::forget_calls();
    let former = SYSCALL_HANDLER.swap(handler as *mut (), Ordering::AcqRel);
    // SAFETY: only this function stores here, and only functions of this type.
    (!former.is_null()).then(|| unsafe { core::mem::transmute(former) })
}
