//! Where core files go: `/proc/sys/kernel/core_pattern` and `core_uses_pid`.

use arrayvec::ArrayVec;
use core::sync::atomic::{AtomicI32, Ordering};

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

/// The longest pattern (`CORENAME_MAX_SIZE` with its NUL).
const LONGEST: usize = 127;

/// A pattern.
pub type Pattern = ArrayVec<u8, LONGEST>;

static PATTERN: SpinLock<Option<Pattern>> = SpinLock::new(None);
static USES_PID: AtomicI32 = AtomicI32::new(0);

/// The pattern of names.
pub fn pattern() -> Pattern {
    PATTERN.lock().clone().unwrap_or_else(|| b"core".iter().copied().collect())
}

/// Sets the pattern; one of more than 127 bytes is cut off (`proc_dostring`). `EINVAL` for one that
/// pipes into a program.
pub fn set_pattern(text: &[u8]) -> Result<()> {
    if text.starts_with(b"|") {
        return Err(Errno::EINVAL);
    }
    *PATTERN.lock() = Some(text.iter().copied().take(LONGEST).collect());
    Ok(())
}

/// Whether the number of the process is appended to names that have none; any number but 0.
pub fn uses_pid() -> i32 {
    USES_PID.load(Ordering::Relaxed)
}

/// Sets [`uses_pid`].
pub fn set_uses_pid(value: i32) {
    USES_PID.store(value, Ordering::Relaxed);
}
