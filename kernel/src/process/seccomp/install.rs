//! Giving threads filters (`seccomp_set_mode_strict`, `seccomp_set_mode_filter`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_bpf::seccomp;
use hayate_machine::smp;

use super::chain::{FILTER, Filter, STRICT, State};
use super::listener;
use super::notices::Notices;
use crate::process::thread::{Thread, current};
use crate::reclaim::growth::Grow;
use crate::schedule;

/// The calls of strict mode: read, write, exit, rt_sigreturn.
const STRICT_CALLS: [u32; 4] = [0, 1, 60, 15];

/// How a filter is installed (`SECCOMP_FILTER_FLAG_*`).
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// All threads of the process get the caller's filters.
    pub all_threads: bool,
    /// If one cannot, that is an error and not its number.
    pub fails_by_error: bool,
    /// What it does is logged.
    pub logs: bool,
    /// A listener is made.
    pub listens: bool,
    /// Only their end interrupts threads whose calls the listener has received.
    pub waits_on: bool,
}

/// The state of a thread, made if it has none.
fn state_of(thread: &Thread) -> &Arc<State> {
    thread.filters.call_once(|| Arc::new(State::default()))
}

/// Lets the current thread read, write, end, and return from handlers, and nothing else. `EINVAL`
/// if it has filters.
pub fn be_strict() -> Result<()> {
    let thread = current();
    let state = state_of(&thread);
    thread.process.steady(|| {
        if state.mode() == FILTER {
            return Err(Errno::EINVAL);
        }
        state.be_strict(&STRICT_CALLS);
        Ok(())
    })?;
    // As Linux does (`disable_TSC`): no clock to measure other programs with.
    schedule::current().let_read_tsc(false);
    begin(&thread);
    Ok(())
}

/// From here on, calls of the current thread are looked at.
fn begin(thread: &Thread) {
    schedule::current().guard();
    leave_supervisor_mode(thread);
}

/// A program with a filter runs in user mode, where no call passes it by: in ring 0 a filter would
/// bound nothing. See [`super`].
fn leave_supervisor_mode(thread: &Thread) {
    thread.process.steady(|| thread.process.keeps_mode.store(false, Ordering::Relaxed));
    if let Some(space) = thread.space() {
        space.return_to_user();
    }
}

/// Adds a filter to those of the current thread. Returns the listener's descriptor, the number of
/// a thread that cannot take the filters over, or 0.
///
/// # Errors
/// `EINVAL`: the thread is in strict mode. `EBUSY`: it has a listener already. `ENOMEM`: its
/// filters are too long together, or memory is exhausted. `ESRCH`: a thread cannot take the filters
/// over. `EMFILE`.
pub fn add(program: seccomp::Filter, how: How) -> Result<i64> {
    let thread = current();
    let notices = how.listens.then(|| Arc::new(Notices::new(how.waits_on)));
    let table = thread.files();
    let mut listener = None;
    if let Some(notices) = &notices {
        let limit = thread.process.limit(hayate_abi::process::RLIMIT_NOFILE);
        listener = Some((table.reserve(0, limit, true)?, listener::open(notices)?));
    }
    let mut filter = Arc::new(Filter::new(program, how.logs, notices));
    let unable = if how.all_threads {
        add_to_all(&thread, &mut filter)?
    } else {
        let state = state_of(&thread);
        // Dropped when the lock is released.
        let old = thread.process.steady(|| -> Result<_> {
            follow(state, &mut filter)?;
            Ok(state.take_over(Arc::clone(&filter)))
        })?;
        drop(old);
        None
    };
    if let Some(unable) = unable {
        return if how.fails_by_error { Err(Errno::ESRCH) } else { Ok(unable.into()) };
    }
    begin(&thread);
    Ok(listener.map_or(0, |(place, file)| place.install(file).into()))
}

/// Puts a filter that is in no chain yet behind a thread's.
fn follow(state: &State, filter: &mut Arc<Filter>) -> Result<()> {
    if state.mode() == STRICT {
        return Err(Errno::EINVAL);
    }
    let chain = state.chain();
    let filter = Arc::get_mut(filter).ok_or(Errno::EINVAL)?;
    if filter.notices.is_some() && chain.as_ref().is_some_and(|chain| chain.has_listener()) {
        return Err(Errno::EBUSY);
    }
    filter.follow(chain)
}

/// Gives all threads of the process the current thread's filters and this one. Returns the number
/// of a thread that has others, if there is one; then nothing was done.
///
/// When this returns, no thread is in user mode without its filter.
fn add_to_all(thread: &Thread, filter: &mut Arc<Filter>) -> Result<Option<u32>> {
    let process = &thread.process;
    let own = state_of(thread);
    loop {
        let threads = process.threads()?;
        threads.iter().for_each(|other| {
            state_of(other);
        });
        let mut replaced = alloc::vec::Vec::new();
        replaced.make_room(threads.len() + 1)?;
        let mut unable = None;
        let done = process.steady(|| -> Result<bool> {
            let chain = own.chain();
            let is_able = |other: &State| {
                other.mode() != STRICT
                    && match (other.chain(), &chain) {
                        (None, _) => true,
                        (Some(theirs), Some(chain)) => chain.descends_from(&theirs),
                        (Some(_), None) => false,
                    }
            };
            unable =
                threads.iter().find(|other| !is_able(state_of(other))).map(|other| other.own_id());
            // A maker puts its thread into the process's list, and then asks whether its own calls
            // are looked at (`pass_on`). So they are before the list is read: a new thread is found
            // in it, or its maker waits for this lock and finds the filters.
            if unable.is_none() {
                threads.iter().filter_map(|other| other.execution()).for_each(|one| one.guard());
            }
            let mut all_known = true;
            process.for_each_thread(|other| {
                all_known &= threads.iter().any(|known| Arc::ptr_eq(known, other));
            });
            if !all_known {
                return Ok(false);
            }
            let fits = follow(own, filter);
            if fits.is_err() || unable.is_some() {
                return fits.map(|()| true);
            }
            let no_new = thread.no_new_privileges.load(Ordering::Relaxed);
            for other in &threads {
                replaced.push(state_of(other).take_over(Arc::clone(filter)));
                if no_new {
                    other.no_new_privileges.store(true, Ordering::Relaxed);
                }
            }
            Ok(true)
        })?;
        drop(replaced);
        if done {
            if unable.is_none() {
                smp::look_again();
            }
            return Ok(unable);
        }
    }
}

/// Gives a new thread the filters of the current one, which makes it. It is guarded when it starts.
#[cold]
pub fn pass_on(thread: &Thread) {
    let parent = current();
    let Some(own) = parent.filters.get() else { return };
    let state = state_of(thread);
    let old = parent.process.steady(|| state.take_after(own));
    drop(old);
}

/// Whether a thread has filters, or is in strict mode.
#[inline]
pub fn is_filtered(thread: &Thread) -> bool {
    thread.filters.get().is_some_and(|state| state.mode() != 0)
}
