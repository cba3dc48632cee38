//! The stops of a thread on its way back to user mode: memory at its end, signals, notices,
//! restartable sequences.

use hayate_machine::trap::{self, UserRegs};

use super::sequences::registration::SEQUENCES;
use super::thread;
use super::{cgroup, fault, sequences, signal};
use crate::drivers::io;

/// Handles the processes' attention bits of the current execution, for the attention handler.
pub fn attend(regs: &mut UserRegs) {
    if trap::attention::get() & (trap::MEMORY | trap::SPENT | io::OWES) != 0 && obey_limits() {
        return;
    }
    let Some(thread) = thread::try_current() else {
        return trap::attention::clear(trap::INTERRUPTED | SEQUENCES);
    };
    if trap::attention::get() & trap::INTERRUPTED != 0 {
        signal::deliver::attend(regs);
    }
    // After the signals: a frame is to show where the program was before a handler.
    if trap::attention::get() & SEQUENCES != 0 {
        sequences::attend(&thread, regs);
    }
}

/// Does what limits of memory, of processor time and of disks ask for. Returns whether nothing else
/// is to be done.
#[cold]
fn obey_limits() -> bool {
    if trap::attention::get() & trap::MEMORY != 0 {
        trap::attention::clear(trap::MEMORY);
        #[cfg(debug_assertions)]
        if crate::reclaim::refusal::end_call() {
            return true;
        }
        fault::out_of_reserve();
        cgroup::memory::throttle();
    }
    if trap::attention::get() & trap::SPENT != 0 {
        cgroup::cpu::rest();
    }
    if trap::attention::get() & io::OWES != 0 {
        cgroup::io::rest();
    }
    false
}
