//! The stops of a thread on its way back to user mode: memory at its end, signals, notices.

use hayate_machine::trap::{self, UserRegs};

use super::thread;
use super::{fault, signal};

/// Handles the processes' attention bits of the current execution, for the attention handler.
pub fn attend(regs: &mut UserRegs) {
    if trap::attention::get() & trap::MEMORY != 0 {
        trap::attention::clear(trap::MEMORY);
        #[cfg(debug_assertions)]
        if crate::reclaim::refusal::end_call() {
            return;
        }
        fault::out_of_reserve();
    }
    if trap::attention::get() & trap::INTERRUPTED == 0 {
        return;
    }
    if thread::try_current().is_some() {
        signal::deliver::attend(regs);
    } else {
        trap::attention::clear(trap::INTERRUPTED);
    }
}
