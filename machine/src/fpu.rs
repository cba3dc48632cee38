//! The floating-point and vector registers of the context that runs.

use crate::context;

pub use crate::fpu_state::FpuState;

/// Returns a copy of the state of the context that runs here, for another context. `None`: the
/// context has no state, or memory is exhausted.
pub fn fork() -> Option<FpuState> {
    with_own(FpuState::fork).flatten()
}

/// Resets the state of the context that runs here, for exec.
pub fn reset() {
    with_own(FpuState::reset);
}

/// Writes the state of the context that runs here in the form of a signal frame. `out` must have
/// [`signal_size`](FpuState::signal_size) bytes; a shorter one is refused (false).
pub fn to_signal_bytes(out: &mut [u8]) -> bool {
    with_own(|state| state.to_signal_bytes(out)).unwrap_or(false)
}

/// Writes the state of the context that runs here in the form of a core file, and returns the
/// enabled components (XCR0). `out` must have [`core_size`](FpuState::core_size) bytes; otherwise
/// `None`.
pub fn to_core_bytes(out: &mut [u8]) -> Option<u64> {
    with_own(|state| state.to_core_bytes(out)).flatten()
}

/// Loads the state of the context that runs here from a signal frame: a full XSAVE image if the
/// magic numbers are there, otherwise the legacy part alone. `bytes` is the part that could be
/// read, at least 512 bytes. False: `bytes` is not a valid state, and the context keeps its old
/// state.
pub fn from_signal_bytes(bytes: &[u8]) -> bool {
    with_own(|state| state.load_signal_bytes(bytes)).unwrap_or(false)
}

/// Loads the state of the context that runs here from the form of a core file. False: `bytes` is
/// not [valid](FpuState::is_valid), and the context keeps its old state.
pub fn from_core_bytes(bytes: &[u8]) -> bool {
    with_own(|state| state.load_core_bytes(bytes)).unwrap_or(false)
}

fn with_own<R>(work: impl FnOnce(&FpuState) -> R) -> Option<R> {
    context::with_running(|flow| flow?.fpu().map(work))
}
