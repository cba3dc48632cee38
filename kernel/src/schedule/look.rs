//! A look for the kernel's own work, before a CPU sleeps and at its ticks.

use hayate_machine::sync::Once;

static LOOK: Once<fn()> = Once::new();

/// Registers a function that every CPU calls before it sleeps and at its ticks: it looks for work
/// that nothing else reports, and arms a timer or wakes an execution for it. It takes no locks but
/// theirs. Only the first call counts.
pub fn register_look(look: fn()) {
    LOOK.call_once(|| look);
}

/// Calls the registered function.
#[inline]
pub(super) fn look() {
    if let Some(look) = LOOK.get() {
        look();
    }
}
