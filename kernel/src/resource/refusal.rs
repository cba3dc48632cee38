//! Which request for memory is refused on purpose: the N-th of one thread (`/proc/hayate/refusal`).
//!
//! Linux has this as `/proc/PID/fail-nth` (Documentation/fault-injection, 6.1). There one request
//! fails and the next succeeds. Here the requests behind it in the same call fail as well, and
//! nothing can be given up instead: memory has run out, as it does. With the return to user mode
//! there is memory again.
//!
//! One execution at a time is armed; arming another one takes the place of the first. All of it is
//! in kernels for tests alone ([`machine::refusal`]).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use machine::trap::{self, attention};

use crate::schedule;

/// The number of the execution that is armed; 0: none.
static ARMED: AtomicU64 = AtomicU64::new(0);
/// How many of its requests until one is refused.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// The call that it is in is refused everything.
static REFUSING: AtomicBool = AtomicBool::new(false);
/// How many requests were refused since boot.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Refuses the `number`-th request from now of the execution `id`; 0: none.
pub fn arm(id: u64, number: u64) {
    machine::refusal::register(judge);
    ARMED.store(0, Relaxed);
    REFUSING.store(false, Relaxed);
    LEFT.store(number, Relaxed);
    ARMED.store(if number == 0 { 0 } else { id }, Relaxed);
}

/// How many requests are left until one is refused, and how many were refused since boot.
pub fn counts() -> (u64, u64) {
    (LEFT.load(Relaxed), REFUSED.load(Relaxed))
}

fn is_armed() -> bool {
    let armed = ARMED.load(Relaxed);
    armed != 0 && schedule::try_current_id() == Some(armed)
}

/// Whether the current call is refused everything.
pub fn is_refusing() -> bool {
    REFUSING.load(Relaxed) && is_armed()
}

fn judge() -> bool {
    if !is_armed() {
        return false;
    }
    if !REFUSING.load(Relaxed) {
        let left = LEFT.load(Relaxed).saturating_sub(1);
        LEFT.store(left, Relaxed);
        if left != 0 {
            return false;
        }
        REFUSING.store(true, Relaxed);
        attention::raise(trap::MEMORY);
    }
    REFUSED.fetch_add(1, Relaxed);
    true
}

/// The current call is about to return: there is memory again. Whether it was refused any.
pub fn end_call() -> bool {
    let refusing = is_refusing();
    if refusing {
        ARMED.store(0, Relaxed);
        REFUSING.store(false, Relaxed);
    }
    refusing
}
