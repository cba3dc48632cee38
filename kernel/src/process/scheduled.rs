//! The work of a thread for the scheduler: at a switch to it and from it, and at a tick.

use core::sync::atomic::Ordering;

use hayate_machine::cpu;
use hayate_machine::trap::{UserRegs, attention};

use super::cpu_time;
use super::thread::Thread;
use crate::schedule::UserThread;

impl UserThread for Thread {
    fn switch_in(&self) {
        self.space.look(|space| {
            if let Some(space) = space {
                space.activate();
            }
        });
        // Load them whatever they are, so that no base of the previous thread stays.
        let (fs, gs) = (&self.fs_base, &self.gs_base);
        cpu::restore_user_bases(fs.load(Ordering::Relaxed), gs.load(Ordering::Relaxed));
        self.sequences.switched_to();
    }

    fn switch_out(&self) {
        // With FSGSBASE a program changes the bases itself.
        self.fs_base.store(cpu::user_fs_base(), Ordering::Relaxed);
        self.gs_base.store(cpu::user_gs_base(), Ordering::Relaxed);
    }

    fn tick(&self) {
        if self.process.watches_cpu_time() {
            cpu_time::check(&self.process);
        }
    }

    fn left_gate(&self, regs: &UserRegs) -> bool {
        /// The longest instruction that a trampoline has moved, with the `sti` before it.
        const MOVED: u64 = hayate_call_sites::AGAIN as u64;
        if !attention::is_supervisor() {
            return false;
        }
        // The gate leaves the address to which it returns in rcx, in the site's trampoline. The
        // first instruction with interrupts on is there, or the one to which that jumps.
        let site = crate::memory::try_current()
            .map_or(0, |space| space.outside_of_trampoline(regs.rcx as usize) as u64);
        regs.rip.wrapping_sub(regs.rcx) < MOVED || regs.rip.wrapping_sub(site) < MOVED
    }
}
