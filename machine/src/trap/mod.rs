//! Into the kernel and out again: system calls, exceptions, interrupts.
//!
//! One register frame, [`UserRegs`], in the order of Linux' `pt_regs`, lies at the top of the
//! thread's kernel stack for every kind of entry from user mode. Entries from the kernel itself
//! (a page fault in a user copy, an interrupt in the idle loop) push the same frame where the stack
//! stands.
//!
//! The kernel registers its handlers of events once ([`register`]). Before every return to user
//! mode the stubs test one per-CPU word, [`attention`]; only if it is not zero is the `attention`
//! handler called. A handler that rewrites the program's registers (a signal frame, sigreturn,
//! exec) raises [`FULL_RETURN`] so that the way out is `iretq`.

#[macro_use]
mod frame;
mod calls;
mod entry;
mod exception;
mod fixup;
mod guard;
mod handlers;
mod idt;
#[cfg(debug_assertions)]
pub mod origin;
mod regs;
mod supervisor;
mod traced;
mod word_call;

pub use crate::attention::{
    self, FIRST_FREE, FULL_RETURN, GUARDED, INTERRUPTED, MEMORY, NO_TSC, RESCHEDULE, SPENT, TRACED,
    is_supervisor,
};
pub use crate::cpu::FaultCode;
#[doc(hidden)]
pub use crate::mode::GATED;
pub use calls::{Call, set_call, set_calls, set_calls_to};
pub(crate) use entry::{init_syscalls, user_start_address};
pub use exception::take_last_fault;
pub(crate) use fixup::sort as sort_fixups;
pub use guard::set_guard;
pub use handlers::{
    FaultOutcome, Handlers, PageFault, check_stack, register, serve_syscall, set_syscall_handler,
};
pub(crate) use idt::{load as load_idt, patch_out_clac};
pub use regs::UserRegs;
pub(crate) use supervisor::start_address as supervisor_start_address;
pub use supervisor::{BEHIND, Gate, OwnGate, gate_address, set_gate, set_supervisor_handler};
pub use traced::serve_call;

/// Sets the interrupt tables up and loads the first one; called once, on the first CPU.
pub(crate) fn init() {
    idt::init();
    crate::mode::register(idt::load_entries);
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
