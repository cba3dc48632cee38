//! The idle loop of a CPU.

use core::sync::atomic::Ordering;

use hayate_machine::cpu;
use hayate_machine::paging::{self, teardown};
use hayate_machine::{frames, log, smp, time};

use super::look::look;
use super::run_queue::{IDLE, QUEUE};
use super::steal::others_wait;
use super::switch::reschedule;
use super::timer;

/// Runs the idle loop of this CPU; the CPU's start-up ends here.
pub fn run_idle() -> ! {
    let bit = 1u64 << cpu::id();
    let queue = QUEUE.here();
    loop {
        reschedule(false);
        IDLE.fetch_or(bit, Ordering::SeqCst);
        // Nothing to do: zero free frames in advance. Look for work and take interrupts after each.
        while queue.length.load(Ordering::SeqCst) == 0 && frames::prepare() {
            smp::poll();
            cpu::interrupt_window();
        }
        // Then do the deferred free of what ended programs held, as long as no other work needs
        // this CPU.
        while queue.length.load(Ordering::SeqCst) == 0
            && teardown::pending() != 0
            && IDLE.load(Ordering::SeqCst) & bit != 0
            && !others_wait()
            && teardown::free_one()
        {
            smp::poll();
            cpu::interrupt_window();
        }
        log::write_kept();
        look();
        if queue.length.load(Ordering::SeqCst) != 0 {
            // Work has come.
        } else if others_wait() {
            // Steal it in the next round, unless its own CPU is quicker. Until then answer the CPUs
            // that wait for this one (for a TLB shootdown of the space it ran last).
            smp::poll();
            cpu::interrupt_window();
        } else if IDLE.load(Ordering::SeqCst) & bit == 0 {
            // This CPU was chosen for work that another CPU then stole, and its interrupt was taken
            // in the window above. If it slept now, with its bit clear, no other CPU would ever
            // choose or wake it again. So it looks once more, with its bit set. A CPU that clears
            // the bit after this check interrupts the sleep.
        } else {
            let before = time::monotonic_ns();
            queue.idle_since.store(before, Ordering::Relaxed);
            time::set_timer_before(timer::first_deadline());
            if cpu::count() > 1 {
                // Without a space loaded, no CPU has to interrupt this one for a TLB shootdown.
                paging::deactivate();
            }
            let woken = time::sleep();
            queue.idle_since.store(u64::MAX, Ordering::Relaxed);
            queue.idle_ns.fetch_add(woken.saturating_sub(before), Ordering::Relaxed);
        }
        IDLE.fetch_and(!bit, Ordering::SeqCst);
    }
}
