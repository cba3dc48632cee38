//! Signals: the stop request of Ctrl-C, and an empty handler to measure with.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn note_stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn nothing(_: libc::c_int) {}

/// Whether Ctrl-C (or SIGTERM) arrived.
pub fn stop_requested() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Records SIGINT, SIGTERM and SIGHUP instead of dying from them. Slow calls return EINTR.
pub fn note_stop_requests() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // Without handlers Ctrl-C ends the program at once: less convenient, but not wrong.
        let _ = set(signal, note_stop as *const () as usize);
    }
}

/// Makes the calling process die from SIGINT and SIGTERM again.
pub fn forget_stop_requests() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let _ = set(signal, libc::SIG_DFL);
    }
}

/// Installs a handler that does nothing for `signal`: sigaction(2).
#[inline(always)]
pub fn install_empty(signal: i32) -> io::Result<()> {
    set(signal, nothing as *const () as usize)
}

#[inline(always)]
fn set(signal: i32, handler: usize) -> io::Result<()> {
    // SAFETY: sigaction is plain data, for which all bytes zero is valid (no flags, empty mask).
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // SAFETY: the handler is async-signal-safe (it stores to an atomic, or does nothing), and
    // the old action is not asked for.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
