//! The functions of the kernel that the stubs and the Rust code behind them call.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::calls::forget_calls;
use super::regs::UserRegs;
use crate::cpu::FaultCode;
use crate::sync::Once;

/// A page fault.
#[derive(Clone, Copy, Debug)]
pub struct PageFault {
    /// The address that was accessed (CR2).
    pub address: u64,
    /// The kind of access, and the state of the page.
    pub code: FaultCode,
    /// Where: the instruction's address.
    pub rip: u64,
}

/// The result of the page fault handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOutcome {
    /// The access can be tried again, or, from user mode, a signal has been posted.
    Done,
    /// The access is not allowed: a user copy fails with `EFAULT`.
    Failed,
}

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
    /// A device interrupt whose vector has no handler of its own (see `crate::interrupt`).
    pub irq: fn(u8),
    /// [`attention`](crate::attention) is not zero and the CPU is about to return to user mode.
    /// Called again until the word (apart from [`FULL_RETURN`](crate::attention::FULL_RETURN)) is
    /// zero. May sleep.
    pub attention: fn(&mut UserRegs),
    /// A system call of a program with [`TRACED`](crate::attention::TRACED): as `syscall`.
    pub traced_call: fn(&mut UserRegs),
    /// This CPU returns to a program with [`TRACED`](crate::attention::TRACED) now: loads its debug
    /// registers. Must not sleep.
    pub traced_return: fn(),
}

static HANDLERS: Once<Handlers> = Once::new();

/// Registers the kernel's handlers; only the first call counts.
pub fn register(handlers: Handlers) {
    set_syscall_handler(handlers.syscall);
    HANDLERS.call_once(|| handlers);
}

pub(super) fn handlers() -> Option<&'static Handlers> {
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
/// serves all numbers until [`set_call`](super::set_call) registers functions for some.
pub fn set_syscall_handler(
    handler: extern "C" fn(&mut UserRegs),
) -> Option<extern "C" fn(&mut UserRegs)> {
    forget_calls();
    let former = SYSCALL_HANDLER.swap(handler as *mut (), Ordering::AcqRel);
    // SAFETY: only this function stores here, and only functions of this type.
    (!former.is_null()).then(|| unsafe { core::mem::transmute(former) })
}
