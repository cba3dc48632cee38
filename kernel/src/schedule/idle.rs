//! The idle loop: what a CPU does that has nothing to run.

use core::sync::atomic::Ordering;

use hayate_machine::cpu;
use hayate_machine::paging::{self, teardown};
use hayate_machine::{frames, log, smp, time};

use super::run_queue::{IDLE, QUEUE};
use super::steal::others_wait;
use super::switch::reschedule;
use super::timer;

/// The idle loop of a CPU; its start-up ends here.
pub fn run_idle() -> ! {
    let bit = 1u64 << cpu::id();
    let queue = QUEUE.here();
    loop {
        reschedule(false);
        IDLE.fetch_or(bit, Ordering::SeqCst);
        // Nothing to do: zero frames ahead, looking for work and taking interrupts after each.
        while queue.length.load(Ordering::SeqCst) == 0 && frames::prepare() {
            smp::poll();
            cpu::interrupt_window();
        }
        // Then giving back what ended programs held, as long as nobody wants this CPU for anything.
        while queue.length.load(Ordering::SeqCst) == 0
            && teardown::owed() != 0
            && IDLE.load(Ordering::SeqCst) & bit != 0
            && !others_wait()
            && teardown::pay()
        {
            smp::poll();
            cpu::interrupt_window();
        }
        log::write_kept();
        if queue.length.load(Ordering::SeqCst) != 0 {
            // Work has come.
        } else if others_wait() {
            // To be stolen in the next round, unless its CPU is quicker. Whoever waits for this CPU
            // meanwhile (a shootdown of the space it ran last) is answered.
            smp::poll();
            cpu::interrupt_window();
        } else if IDLE.load(Ordering::SeqCst) & bit == 0 {
            // Chosen for work that another CPU then stole, and told so in the interrupt window above:
            // asleep now, nobody would ever choose or wake this CPU again. It looks once more, with
            // its bit set. Who clears it from here on interrupts the sleep.
        } else {
            let before = time::monotonic_ns();
            time::set_timer_before(timer::first_deadline());
            if cpu::count() > 1 {
                // Without a space, nobody has to interrupt this CPU for a shootdown.
                paging::deactivate();
            }
            cpu::wait_for_interrupt();
            queue.idle_ns.fetch_add(time::monotonic_ns().saturating_sub(before), Ordering::Relaxed);
        }
        IDLE.fetch_and(!bit, Ordering::SeqCst);
    }
}
