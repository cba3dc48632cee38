//! Starting executions, and moving one from processor to processor.

use alloc::boxed::Box;
use alloc::sync::Arc;

use hayate_abi::Result;
use hayate_machine::context::Context;
use hayate_machine::cpu;
use hayate_machine::stack::KernelStack;

use super::execution::{Execution, current, current_arc};
use super::run_queue;
use super::switch;
use super::switch::yield_now;
use crate::reclaim;

/// Where the contexts of kernel executions begin.
extern "C" fn kernel_main(_: usize) -> ! {
    let work = current().work.lock().take();
    if let Some(work) = work {
        work();
    }
    switch::exit_current()
}

impl Execution {
    /// Makes an execution that runs `work` in the kernel and ends. Fails with ENOMEM as `new_user`
    /// does.
    pub fn new_kernel(_name: &str, work: impl FnOnce() + Send + 'static) -> Result<Arc<Execution>> {
        let stack = reclaim::obtain(KernelStack::new)?;
        let context = Context::for_kernel(stack, kernel_main, 0);
        Ok(Execution::with_context(context, None, Some(Box::new(work)), false))
    }
}

/// Makes `execution` runnable for the first time, on an idle CPU if there is one.
pub fn start(execution: &Arc<Execution>) {
    run_queue::start(execution, false);
}

/// Like [`start`], for a child process of the current execution: starts it on this CPU if the
/// parent is expected to wait for it at once (wake affinity).
pub fn start_child(execution: &Arc<Execution>) {
    run_queue::start(execution, current().wake_affinity.makes());
}

/// Like [`start`], but on this CPU: for a vfork child, whose parent is about to sleep.
pub fn start_here(execution: &Arc<Execution>) {
    current().wake_affinity.makes_and_sleeps();
    run_queue::start(execution, true);
}

/// Makes and starts an execution that runs `work` in the kernel and ends. Fails with ENOMEM if
/// memory for its stack is exhausted.
pub fn start_kernel(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    start(&Execution::new_kernel(name, work)?);
    Ok(())
}

/// Runs `work` on every processor in turn by moving the caller there: for rare work on per-CPU
/// state. The caller sleeps on the way and must hold no spin lock. If another thread changes the
/// caller's affinity meanwhile, that change is lost.
pub fn on_each_cpu(mut work: impl FnMut()) {
    /// Tries to reach one processor before it is skipped, since another thread may change the
    /// affinity.
    const PATIENCE: usize = 1000;
    let me = current_arc();
    let before = me.affinity();
    for cpu in 0..cpu::count() {
        if me.set_affinity(1 << cpu).is_err() {
            continue;
        }
        let mut patience = PATIENCE;
        while cpu::id() != cpu && patience > 0 {
            yield_now();
            patience -= 1;
        }
        work();
    }
    // The mask was in force before, so a processor of it is online.
    let _ = me.set_affinity(before);
}
