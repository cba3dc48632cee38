//! Fault injection: refusing the N-th memory request of one thread (`/proc/hayate/refusal`).
//!
//! Linux has this as `/proc/PID/fail-nth` (Documentation/fault-injection, 6.1). There one request
//! fails and the next succeeds. Here the later requests in the same call fail as well, and no
//! memory can be reclaimed instead, as when memory is exhausted. After the return to user mode
//! requests succeed again.
//!
//! Requests that count are those that the machine's allocators do not serve out of the reserve, and
//! every growth of a list that can fail, of whatever size ([`crate::reclaim::growth`]).
//!
//! One execution at a time is armed; arming another one disarms the first. All of this exists only
//! in kernels for tests ([`machine::refusal`]).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use machine::sync::Once;
use machine::trap::{self, attention};

/// Returns the number of the execution that runs here; `None` in the idle loop and during boot.
type Identity = fn() -> Option<u64>;

static IDENTITY: Once<Identity> = Once::new();
/// The number of the execution that is armed; 0: none.
static ARMED: AtomicU64 = AtomicU64::new(0);
/// The number of its requests until one is refused.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// All further requests of its present call are refused.
static REFUSING: AtomicBool = AtomicBool::new(false);
/// The number of requests refused since boot.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Refuses the `number`-th request from now of the execution that runs here; 0 disarms. `identity`
/// says which execution that is: this module stands below the scheduler, which asks for memory too.
pub fn arm(identity: Identity, number: u64) {
    IDENTITY.call_once(|| identity);
    let id = identity().unwrap_or(0);
    machine::refusal::register(is_refused);
    ARMED.store(0, Relaxed);
    REFUSING.store(false, Relaxed);
    LEFT.store(number, Relaxed);
    ARMED.store(if number == 0 { 0 } else { id }, Relaxed);
}

/// The number of requests until one is refused, and of those refused since boot.
pub fn counts() -> (u64, u64) {
    (LEFT.load(Relaxed), REFUSED.load(Relaxed))
}

fn is_armed() -> bool {
    let armed = ARMED.load(Relaxed);
    armed != 0 && IDENTITY.get().is_some_and(|identity| identity() == Some(armed))
}

/// Whether all requests of the current call are refused.
pub fn is_refusing() -> bool {
    REFUSING.load(Relaxed) && is_armed()
}

/// Whether this request is refused: the judge that the allocators of the machine ask, and
/// [`crate::reclaim::growth`] for what may fail below a page.
pub fn is_refused() -> bool {
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

/// Ends the refusals, since the current call is about to return. Returns whether any request was
/// refused.
pub fn end_call() -> bool {
    let refusing = is_refusing();
    if refusing {
        ARMED.store(0, Relaxed);
        REFUSING.store(false, Relaxed);
    }
    refusing
}
