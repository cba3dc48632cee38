//! The end of a PID namespace (`zap_pid_ns_processes`, kernel/pid_namespace.c of Linux 6.1).
//!
//! With its init every process of a namespace ends. The init waits until all are gone, those of
//! others who entered included, and only then is itself there to be waited for: whoever waits for
//! it knows that nothing of the namespace goes on.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::signal::{SI_KERNEL, SIGKILL, Siginfo};

use super::pids;
use super::record::Process;
use super::signal::send;
use super::wait;

/// Ends all other processes of the namespace whose init `process` ends, and waits for them. For
/// its last thread; it cannot be interrupted.
#[cold]
pub fn end_namespace(process: &Arc<Process>) {
    let Some(namespace) = process.own_pid_namespace() else { return };
    // Processes that are not in the table by now are refused (`PidNamespace::admit`).
    namespace.close();
    let mut last = 0;
    while let Some((number, kernel)) = namespace.after(last) {
        last = number;
        if let Some(other) = pids::process(kernel).filter(|other| !Arc::ptr_eq(other, process)) {
            // No failure: a standard signal of the kernel is not limited.
            let _ = send::to_process(&other, Siginfo::new(SIGKILL, SI_KERNEL));
        }
    }
    // The last thread need not be the first one, and then has a number of its own.
    let own = match process.first_thread() {
        Some(thread) if thread.id() != process.id() => 2,
        _ => 1,
    };
    let next = || match wait::take_ended(process) {
        Some(child) => Some(Some(child)),
        None => (namespace.count() <= own).then_some(None),
    };
    while let Some(child) = process.child_events.wait(next) {
        wait::reap(process, child, 0);
    }
    let signal = namespace.reboot_signal();
    if signal != 0 {
        process.exit_status.store(signal, Ordering::Relaxed);
    }
}
