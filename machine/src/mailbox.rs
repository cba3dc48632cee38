//! The mailbox in which other CPUs' requests for this CPU arrive.
//!
//! Every loop that waits looks into it, so it lies below the locks. [`crate::ipi`] registers the
//! answer to a request.

use hayate_protocols::shootdown::Inbox;
use spin::once::Once;

use crate::cpu::PerCpu;

crate::per_cpu! {
    /// The CPUs whose requests this CPU has to answer.
    pub(crate) static INBOX: PerCpu<Inbox> = PerCpu::new(Inbox::new());
}

static ANSWER: Once<fn()> = Once::new();

/// Registers the function that answers what is in this CPU's mailbox. Called once, before other
/// CPUs run.
pub(crate) fn register(answer: fn()) {
    ANSWER.call_once(|| answer);
}

/// Answers other CPUs' requests; every spin loop calls it.
#[inline(always)]
pub fn poll() {
    if !INBOX.here().is_empty() {
        answer();
    }
}

#[cold]
#[inline(never)]
fn answer() {
    if let Some(answer) = ANSWER.get() {
        answer();
    }
}
