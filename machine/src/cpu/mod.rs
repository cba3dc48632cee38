//! The processor: its number, features, per-CPU data, and when it takes interrupts.
//!
//! **Interrupts are off in the kernel.** They are taken in user mode, in the idle loop
//! ([`sleep`](crate::time::sleep)) and in [`interrupt_window`]s, which long loops open while they
//! hold no spin lock.

mod bases;
mod breakpoint;
mod checksum;
mod debug;
mod descriptors;
mod fault_code;
mod features;
mod identity;
mod lent;
mod local;
mod macros;
mod online;
mod registers;
mod word;

pub use bases::{
    USER_END, restore_user_bases, set_user_fs_base, set_user_gs_base, user_fs_base, user_gs_base,
};
pub use breakpoint::{PASS, has_breakpoint, set_breakpoint};
pub use checksum::crc32c;
pub use debug::{
    DebugRegisters, STEPPED, clear_debug_registers, load_debug_registers, take_debug_status,
};
#[cfg(debug_assertions)]
pub(crate) use descriptors::kernel_stack;
pub(crate) use descriptors::{CPU_NUMBER, init as init_descriptors, set_kernel_stack};
pub(crate) use descriptors::{DEBUG_IST, DOUBLE_FAULT_IST, FATAL_IST, SUPERVISOR_IST};
pub use descriptors::{KERNEL_CS, KERNEL_DS, USER_CS, USER_DS};
pub use fault_code::FaultCode;
pub use features::{CacheFlush, Features, allow_tsc, features, forbid_tsc};
pub(crate) use features::{has_syscall, init as init_features};
pub use identity::{Identity, chosen_by, flags, identity};
pub use lent::Lent;
pub(crate) use lent::{borrows, set_borrows};
pub use local::{
    Here, Local, MAX_CPUS, OfObject, OfOwner, OfPrincipal, PerCpu, SlotKind, empty_slot, id,
};
pub(crate) use local::{area_size, prepare_area, set_gs_base, set_slot};
pub(crate) use online::set_online;
pub use online::{count, online_mask};
pub(crate) use registers::{read_msr, write_msr};
pub(crate) use word::{Half, Word};

use core::arch::asm;

/// Takes the pending interrupts. For long loops in the kernel; no spin lock may be held.
#[inline]
pub fn interrupt_window() {
    // SAFETY: interrupt handlers keep every register; the caller holds no lock that they take.
    // `sti` delays interrupts by one instruction, hence the `nop`.
    unsafe { asm!("sti", "nop", "cli", options(nostack)) };
}

/// Halts until an interrupt has been taken. Returns with interrupts off again.
#[inline]
pub(crate) fn wait_for_interrupt() {
    // SAFETY: as for `interrupt_window`; `sti; hlt` cannot lose an interrupt between the two.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Stops this CPU for ever.
pub fn stop() -> ! {
    loop {
        // SAFETY: with interrupts off, `hlt` waits for ever (or for an NMI).
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
