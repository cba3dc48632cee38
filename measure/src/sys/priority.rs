//! Standing above other work: where the system allows it, measuring is not interrupted by programs
//! that want the same processor.
//!
//! Niceness and not a real-time class: the measured process stays in the scheduler that ordinary
//! programs live under, and its switches cost what theirs do. Linux may share the processor among
//! sessions first and among their processes second (autogroups, sched(7)): there niceness counts
//! only within a session, and each round makes a session of its own, whose niceness is raised too.

/// The highest priority that niceness knows.
const HIGHEST: i32 = -20;

/// Raises the priority of the calling process and of what it forks; whether that was allowed.
pub fn raise() -> bool {
    // SAFETY: takes numbers only. 0 is the calling process.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST) == 0 }
}

/// Makes a session of the calling process, raises it above other sessions where the system shares
/// the processor among them, and lets the process die with its parent.
pub fn become_raised_session() {
    // SAFETY: both calls take numbers only.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    // Where there are no such groups there is no such file, and nothing to raise.
    let _ = std::fs::write("/proc/self/autogroup", HIGHEST.to_string());
}
