//! Fault injection: refusing one memory request of a thread, or of what it starts
//! (`/proc/hayate/refusal`).
//!
//! Linux has this as `/proc/PID/fail-nth` (Documentation/fault-injection, 6.1). There one request
//! fails and the next succeeds. Here the later requests in the same call fail as well, and no
//! memory can be reclaimed instead, as when memory is exhausted. After the return to user mode
//! requests succeed again.
//!
//! Requests that count are those that the machine's allocators do not serve out of the reserve, and
//! every growth of a list that can fail, of whatever size ([`crate::reclaim::growth`]).
//!
//! A thread arms itself. The threads and processes that it starts from then on belong to its
//! arming, with all that they start. One request of them all is refused, then nothing is armed. The
//! request is chosen by what was written:
//!
//! * `N`: the N-th of them; `0`: none;
//! * `fresh`: the next one at a fresh place of the kernel ([`places`]);
//! * `places N`: forgets which places were refused; the first N visits of each in a run are then
//!   fresh.
//!
//! A case that runs again and again with `fresh`, until nothing is refused, was refused a request
//! at every place that it reaches. It runs far less often than it makes requests, because most
//! requests repeat a place.
//!
//! One arming is in force at a time; another one replaces it. All of this exists only in kernels
//! for tests ([`machine::refusal`]).

mod places;

use core::fmt::Arguments;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use hayate_abi::{Errno, Result};
use machine::sync::Once;
use machine::trap::origin::{self, DEPTH};
use machine::trap::{self, attention};

/// The facts about executions that this module needs. It stands below the scheduler, which requests
/// memory too, so the caller of [`command`] hands it in.
pub struct Executions {
    /// The arming to which the execution that runs here belongs; 0: none.
    pub arming: fn() -> u64,
    /// Makes the execution that runs here a member of an arming.
    pub set_arming: fn(u64),
    /// The number of the execution that runs here.
    pub current: fn() -> u64,
}

static EXECUTIONS: Once<&'static Executions> = Once::new();

/// The number of the last arming.
static ARMINGS: AtomicU64 = AtomicU64::new(0);
/// The arming that is in force; 0: none.
static ARMED: AtomicU64 = AtomicU64::new(0);
/// Which of its requests is refused; 0: the next at a fresh place.
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// How many requests it has made.
static MADE: AtomicU64 = AtomicU64::new(0);
/// The execution in whose present call all further requests are refused; 0: none.
static REFUSING: AtomicU64 = AtomicU64::new(0);
/// The number of requests refused since boot.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// The last refusal: its number, its call, the return addresses and how many they are.
static LAST: AtomicU64 = AtomicU64::new(0);
static CALL: AtomicU64 = AtomicU64::new(0);
static STACK: [AtomicU64; DEPTH] = [const { AtomicU64::new(0) }; DEPTH];
static LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Executes what was written to the file; see the module. `EINVAL`.
pub fn command(text: &str, executions: &'static Executions) -> Result<()> {
    EXECUTIONS.call_once(|| executions);
    let number = |word: &str| word.parse::<u32>().map_err(|_| Errno::EINVAL);
    if let Some(most) = text.strip_prefix("places ") {
        return places::forget(number(most)?);
    }
    if text == "fresh" {
        places::begin_run()?;
        arm(executions, 0);
        return Ok(());
    }
    match number(text)? {
        0 => ARMED.store(0, Relaxed),
        number => arm(executions, number.into()),
    }
    Ok(())
}

/// Arms the current execution: the `number`-th request is refused, or with 0 the next at a fresh
/// place.
fn arm(executions: &Executions, number: u64) {
    machine::refusal::register(is_refused);
    ARMED.store(0, Relaxed);
    REFUSING.store(0, Relaxed);
    NUMBER.store(number, Relaxed);
    MADE.store(0, Relaxed);
    LAST.store(0, Relaxed);
    let arming = ARMINGS.fetch_add(1, Relaxed) + 1;
    (executions.set_arming)(arming);
    ARMED.store(arming, Relaxed);
}

/// Gives the state to `line`, line by line: how many requests were refused since boot, how many the
/// last arming has made, which one of them was refused (0: none), how many places are known, and
/// for how many there was no room in the table; then the system call and the stack of what was
/// refused.
pub fn show(line: &mut dyn FnMut(Arguments<'_>) -> Result<()>) -> Result<()> {
    let (known, lost) = places::counts();
    line(format_args!("refused {}", REFUSED.load(Relaxed)))?;
    line(format_args!("made {}", MADE.load(Relaxed)))?;
    line(format_args!("last {}", LAST.load(Relaxed)))?;
    line(format_args!("places {known}"))?;
    line(format_args!("lost {lost}"))?;
    line(format_args!("call {}", CALL.load(Relaxed) as i64))?;
    for address in &STACK[..LENGTH.load(Relaxed)] {
        line(format_args!("{:#018x}", address.load(Relaxed)))?;
    }
    Ok(())
}

fn is_armed() -> bool {
    let armed = ARMED.load(Relaxed);
    armed != 0 && EXECUTIONS.get().is_some_and(|executions| (executions.arming)() == armed)
}

/// The number of the execution that runs here; 0 if nothing was ever armed.
fn current() -> u64 {
    EXECUTIONS.get().map_or(0, |executions| (executions.current)())
}

/// Whether all requests of the current call are refused.
pub fn is_refusing() -> bool {
    let refusing = REFUSING.load(Relaxed);
    refusing != 0 && is_armed() && refusing == current()
}

/// Whether this request is refused: the judge that the allocators of the machine ask, and
/// [`crate::reclaim::growth`] for what may fail below a page.
pub fn is_refused() -> bool {
    if !is_armed() {
        return false;
    }
    if REFUSING.load(Relaxed) == 0 && is_first() {
        attention::raise(trap::MEMORY);
    }
    let refused = is_refusing();
    if refused {
        REFUSED.fetch_add(1, Relaxed);
    }
    refused
}

/// Counts this request of the arming; whether the refusals begin with it.
fn is_first() -> bool {
    let made = MADE.fetch_add(1, Relaxed) + 1;
    let number = NUMBER.load(Relaxed);
    if number != 0 && made != number {
        return false;
    }
    let (stack, length) = origin::stack();
    let call = origin::call();
    if number == 0 && !places::is_fresh(places::AllocationSite::new(call, &stack[..length])) {
        return false;
    }
    if REFUSING.compare_exchange(0, current(), Relaxed, Relaxed).is_err() {
        return false;
    }
    LAST.store(made, Relaxed);
    CALL.store(call, Relaxed);
    LENGTH.store(length, Relaxed);
    STACK.iter().zip(stack).for_each(|(kept, address)| kept.store(address, Relaxed));
    true
}

/// Ends the refusals, since the current call is about to return. Returns whether any request was
/// refused.
pub fn end_call() -> bool {
    let refusing = is_refusing();
    if refusing {
        ARMED.store(0, Relaxed);
        REFUSING.store(0, Relaxed);
    }
    refusing
}
