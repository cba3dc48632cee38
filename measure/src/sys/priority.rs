//! Raises the priority: where the system allows it, programs that want the same processor do not
//! interrupt a measurement.
//!
//! It uses niceness and not a real-time class: the measured process stays in the scheduler of
//! ordinary programs, and its switches cost the same as theirs. Linux may share the processor among
//! sessions first and among their processes second (autogroups, sched(7)). There niceness counts
//! only within a session, so each round makes a session of its own, whose niceness is raised too.

/// The highest priority in terms of niceness.
const HIGHEST: i32 = -20;

/// Raises the priority of the calling process and its future children; returns whether that was
/// allowed.
pub fn raise() -> bool {
    // SAFETY: takes numbers only. 0 is the calling process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST) == 0 }
}

/// Makes a session of the calling process, raises it above other sessions where the system shares
/// the processor among them, and makes the process die with its parent.
pub fn become_raised_session() {
    // SAFETY: both calls take numbers only.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    // Without such groups there is no such file, and nothing to raise.
    let _ = std::fs::write("/proc/self/autogroup", HIGHEST.to_string());
}
