//! Connections that go on when a device has sent what they gave it.
//!
//! A connection that has given a device as much as it may ([`super::route`]) is noted here, on the
//! processor that finds that half of it is sent, mostly in the interrupt of the queue. An execution
//! of each processor lets the state machines of such connections go on (Linux: `tcp_tsq_handler`,
//! a tasklet of each processor). Without memory for the note the connection goes on with the next
//! acknowledgement.
//!
//! Locks: that of a processor's list, a leaf.
//!
//! Road not taken: to send from the interrupt handler itself, as timers do. What is sent collects
//! what was sent before, and that lets further connections go on: the depth of calls has no bound.

use alloc::collections::VecDeque;

use hayate_abi::Result;
use hayate_machine::cpu::{self, PerCpu};
use hayate_machine::per_cpu;
use hayate_machine::sync::{Once, SpinLock};

use super::ends::Ends;
use crate::drivers::net;
use crate::reclaim::growth::Grow;
use crate::schedule::execution::Execution;
use crate::schedule::{self, WaitQueue};

/// The connections of a processor that may go on.
struct Ready {
    ends: SpinLock<VecDeque<Ends>>,
    arrived: WaitQueue,
}

per_cpu! {
    static READY: PerCpu<Ready> = PerCpu::new(Ready {
        ends: SpinLock::new(VecDeque::new()),
        arrived: WaitQueue::new(),
    });
}

/// The function that lets a connection go on; it stands above.
static GO_ON: Once<fn(&Ends)> = Once::new();

/// Starts the executions, if the machine has a network device; at boot. `go_on` lets a connection
/// go on.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn init(go_on: fn(&Ends)) -> Result<()> {
    GO_ON.call_once(|| go_on);
    if net::devices().is_empty() {
        return Ok(());
    }
    for cpu in 0..cpu::count() {
        let execution = Execution::new_kernel("net-send", move || run(cpu))?;
        execution.set_affinity(1 << cpu)?;
        schedule::start(&execution);
    }
    Ok(())
}

/// Notes that a connection may go on. Any lock but a list's may be held; for interrupt handlers,
/// too.
pub(super) fn add(ends: Ends) {
    let ready = READY.here();
    {
        let mut list = ready.ends.lock();
        if list.make_room(1).is_err() {
            return;
        }
        list.push_back(ends);
    }
    ready.arrived.wake_all();
}

/// The work of a processor's execution.
fn run(cpu: usize) -> ! {
    loop {
        let Some(ready) = READY.of(cpu) else { continue };
        let first = || ready.ends.lock().pop_front();
        let Ok(ends) = ready.arrived.wait_interruptible(None, first) else { continue };
        if let Some(go_on) = GO_ON.get() {
            go_on(&ends);
        }
        schedule::breathe();
    }
}
