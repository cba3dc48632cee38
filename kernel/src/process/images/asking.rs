//! Which starts can be remembered, and what they have in common: the question that exec asks of the
//! [`table`].

use core::sync::atomic::Ordering;

use hayate_start_account::Image as Told;

use super::key::Asked;
use super::{are_wanted, key, recording, table};
use crate::process::seccomp;
use crate::process::thread::Thread;
use crate::program::{Program, Strings};

/// What exec knows of a start besides its program.
pub struct Start<'a> {
    /// The path by which the program was named.
    pub path: &'a [u8],
    /// Its arguments.
    pub arguments: &'a Strings,
    /// Its environment.
    pub environment: &'a Strings,
    /// Whether addresses are random.
    pub randomise: bool,
}

/// The hash of a start that the current thread is about to make, if it is worth a closer look: it,
/// or one that cannot be told from it by a hash, was noted before. If not, it is noted.
pub fn noted(thread: &Thread, program: &Program, start: &Start<'_>) -> Option<u64> {
    let hash = hash(thread, program, start);
    // A tool that is started once in each directory is another command each time.
    let working = thread.directories().map_or(0, |own| own.working_address());
    table::was_noted(hash, key::mix(hash, working as u64)).then_some(hash)
}

fn hash(thread: &Thread, program: &Program, start: &Start<'_>) -> u64 {
    key::hash(program, (start.arguments, start.environment), thread.credentials().euid)
}

/// Calls `then` with what a start that the current thread is about to make, with this
/// [hash](key::hash), has in common with others. The error says why it cannot be remembered.
#[cold]
pub fn with<T>(
    thread: &Thread,
    program: &Program,
    start: &Start<'_>,
    hash: u64,
    then: impl FnOnce(&Asked<'_>) -> T,
) -> Result<T, &'static str> {
    const INHERITS: &str = "it inherits a descriptor above 63";
    let process = thread.process();
    if program.executable.gives_rights() {
        return Err("it has set-user-id or set-group-id bits or file capabilities");
    }
    if !program.is_readable() {
        return Err("its user may not read it");
    }
    if process.keeps_mode.load(Ordering::Relaxed) {
        return Err("it is to run in supervisor mode");
    }
    if seccomp::is_filtered(thread) {
        return Err("it has filters of system calls");
    }
    if thread.credentials().confinement.is_some() {
        return Err("it has restricted itself to some files");
    }
    if thread.pending() != 0 {
        return Err("it begins with a pending signal");
    }
    if !recording::can_begin() {
        return Err("all system calls are traced");
    }
    let directories = thread.directories().map_err(|_| "it has no directories")?;
    let descriptors = thread.files().kept_by_exec().ok_or(INHERITS)?;
    let (ignored, _) = process.actions().ignored_and_caught();
    Ok(then(&Asked {
        hash,
        program,
        path: start.path,
        arguments: start.arguments,
        environment: start.environment,
        credentials: &thread.credentials(),
        limits: &process.limits(),
        root: &directories.root(),
        working: &directories.working(),
        signals: (thread.blocked(), ignored),
        randomise: start.randomise,
        numbers: [
            u64::from(directories.umask()),
            u64::from(thread.personality.load(Ordering::Relaxed)) << 1
                | u64::from(thread.no_new_privileges.load(Ordering::Relaxed)),
            thread.timer_slack.load(Ordering::Relaxed),
            descriptors,
        ],
    }))
}

/// What is known of the image of a start that was just decided, for a measurement.
#[cold]
pub fn told(thread: &Thread, program: &Program, start: &Start<'_>) -> Told {
    if !are_wanted() {
        return Told::Refused("the policy is without images".into());
    }
    match with(thread, program, start, hash(thread, program, start), table::told) {
        Ok(told) => told,
        Err(why) => Told::Refused(why.into()),
    }
}
