//! The end of a thread, and of a process with its last thread (`_exit(2)`).
//!
//! The order matters to other processes. Memory is freed before the parent is notified, so that a
//! process that waits for the end finds the memory free (pages of a large space are in deferred
//! free, and are freed on demand or by an idle processor: `machine::paging::teardown`). The number
//! is free only after the parent has waited.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_machine::{info, power};

use super::cgroup::follow;
use super::cgroup::group::News;
use super::record::{Process, notice};
use super::signal::stopping;
use super::thread::{Thread, current};
use super::usage::Usage;
use super::{accounting, family, futex, job_control, left_space, pids, timer, tracing, zap};
use crate::memory::Space;
use crate::schedule;

/// Ends the current thread, and its process if the thread is the last.
///
/// * `status` - the wait status of the process if the thread is its last and the status is not
///   decided yet.
pub fn end_thread(status: i32) -> ! {
    if accounting::is_on() {
        leave::<true>(status);
    } else {
        leave::<false>(status);
    }
    schedule::exit_current()
}

/// Ends every thread of the current process; the current one ends at once.
pub fn end_process(status: i32) -> ! {
    let thread = current();
    thread.process.begin_exit_of_others(status, Some(&thread));
    // It sleeps for nothing interruptible any more, and does not return to user mode.
    schedule::current().note_interrupt();
    end_thread(status)
}

/// Frees the space: the first step of the current thread's end, as a separate call for
/// measurements.
pub fn release_space() {
    let _ = release_memory(&current());
}

/// The wait status with which the current thread is to end, since its process is to end or another
/// thread executes a program.
pub fn is_told(thread: &Thread) -> Option<i32> {
    let process = &thread.process;
    let raised = process.notice();
    if raised & (notice::EXIT | notice::ZOMBIE) != 0 {
        return Some(process.control.lock().exit.unwrap_or(0));
    }
    if raised & notice::EXEC == 0 {
        return None;
    }
    let me = schedule::current().id();
    let survivor = process.control.lock().survivor;
    survivor.is_some_and(|survivor| survivor != me).then_some(0)
}

/// All of [`end_thread`] except the last step, so that its local references are dropped before
/// that. `ACCOUNTED`: a record of the process is to be written ([`accounting`]).
///
/// There are two copies of this function, so that an end without accounting tests one flag.
fn leave<const ACCOUNTED: bool>(status: i32) {
    let thread = current();
    let process = &thread.process;
    let size = if ACCOUNTED { thread.space().map_or(0, |space| space.size()) } else { 0 };
    schedule::current().begin_end();
    let memory = release_memory(&thread);
    thread.traces.end(|| (process.id(), thread.leave_namespaces()));
    thread.set_files(None);
    thread.set_directories(None);

    let alone = {
        // In one step, for a thread that adds up what the threads consumed (`Process::usage`).
        let mut ended = process.ended_usage.lock();
        let mut own = Usage::of(&schedule::current());
        // The only thread stays the only one, since no other could make a further one.
        let alone = process.threads.lock().len() == 1;
        if let Some(memory) = memory.filter(|_| alone) {
            memory.count_in(&mut own);
        }
        ended.add(&own);
        let moved = thread.moved.sums();
        if !moved.is_nothing() {
            process.moved.lock().add(&moved);
        }
        thread.keep_scheduling(&schedule::current());
        // The execution owns the thread: without this the two would keep each other alive.
        thread.set_execution(None);
        alone
    };
    let last = alone || leave_others(&thread, memory);
    let is_shown = process.is_involved() && end_tracing(&thread, status, last);
    if last {
        let status = decide(process, status);
        if ACCOUNTED {
            accounting::note(process, &thread, status, size);
        }
        end_of_process(process, thread.id(), status);
    } else {
        if thread.id() != process.id() && !is_shown {
            pids::release(thread.id());
        }
        stopping::tell_if_complete(process);
        process.child_events.wake_all();
    }
}

/// Takes a thread out of the list of its process, unless the others have gone meanwhile and it is
/// the last. Returns whether it is.
fn leave_others(thread: &Thread, memory: Option<MemoryUse>) -> bool {
    let process = &thread.process;
    let mut threads = process.threads.lock();
    if threads.len() == 1 {
        drop(threads);
        if let Some(memory) = memory {
            memory.count_in(&mut process.ended_usage.lock());
        }
        return true;
    }
    let index = threads.iter().position(|entry| core::ptr::eq(&**entry, thread));
    let gone = index.map(|index| threads.remove(index));
    let news = match process.is_grouped() {
        true => follow::thread_ends(process, thread.id() == process.id()),
        false => News::default(),
    };
    drop(threads);
    drop(gone);
    news.tell();
    false
}

/// Ends what the thread traces, and tells its tracer. Returns whether its number stays in use.
#[cold]
fn end_tracing(thread: &Thread, status: i32, last: bool) -> bool {
    tracing::link::tracer_ends(thread);
    tracing::link::thread_ends(thread, status, last)
}

/// What happened in a space. The last thread of a process counts it, whether or not another process
/// holds the space at the moment, to look into it or to change its mode. Processes that share a
/// space for good (`CLONE_VM`) have the faults of each other, too.
#[derive(Clone, Copy)]
struct MemoryUse {
    minor_faults: u64,
    major_faults: u64,
    peak_resident: u64,
}

impl MemoryUse {
    /// The faults in a space that the thread only borrows (`vfork(2)`) are its owner's.
    #[inline(always)]
    fn of(thread: &Thread, space: &Space) -> MemoryUse {
        let is_borrowed = thread.borrows.load(Ordering::Relaxed);
        let (minor_faults, major_faults) = if is_borrowed { (0, 0) } else { space.faults() };
        let peak_resident = space.peak_resident() as u64 * 4096;
        MemoryUse { minor_faults, major_faults, peak_resident }
    }

    #[inline(always)]
    fn count_in(self, sum: &mut Usage) {
        sum.minor_faults += self.minor_faults;
        sum.major_faults += self.major_faults;
        sum.peak_resident = sum.peak_resident.max(self.peak_resident);
    }
}

/// Gives the space back: wakes the waiters of futexes in it, then releases it.
///
/// Inlined into [`leave`], though a measured exit calls it separately.
#[inline(always)]
fn release_memory(thread: &Thread) -> Option<MemoryUse> {
    let space = thread.space()?;
    futex::release_robust_list(thread);
    // No other process can see the word if none has the space (`mm_release`): one reference is the
    // thread's, one is this function's.
    if Arc::strong_count(&space) > 2 {
        futex::clear_tid(thread);
    }
    let memory = MemoryUse::of(thread, &space);
    let old = thread.change_space(None);
    // Before the space is torn down: the parent of a vfork need not wait for that.
    thread.give_back();
    drop(space);
    if let Some(old) = old {
        left_space::release(old);
    }
    Some(memory)
}

/// Decides about the wait status of a process whose last thread ends, and returns it.
fn decide(process: &Process, status: i32) -> i32 {
    let mut control = process.control.lock();
    control.stop.cancel();
    *control.exit.get_or_insert(status)
}

/// Ends a process, whose last thread has the number `last`.
fn end_of_process(process: &Arc<Process>, last: u32, status: i32) {
    process.raise_notice(notice::EXIT);
    // After the notice, which a mover looks at.
    if process.is_grouped() {
        follow::process_ends(process, last == process.id());
    }
    process.exit_status.store(status, Ordering::Relaxed);
    if process.id() == 1 {
        first_process_ended(status);
    }
    timer::release_all(process);
    drop(process.set_executable(None));
    job_control::leader_ends(process);
    let stranded = job_control::own_end_strands(process);
    if process.is_reaper() {
        zap::end_namespace(process);
    }
    family::hand_over_children(process);
    if stranded {
        job_control::hang_up_if_stopped(process.group());
    }
    if let Some(parent) = family::end(process) {
        family::release(&parent, process);
    }
}

/// Stops the system, since the first process has ended.
fn first_process_ended(status: i32) {
    match status & 0x7f {
        0 => info!("the first process ended with status {}", status >> 8),
        signal => info!(
            "the first process was ended by {}",
            hayate_abi::signal::name(signal as u32).unwrap_or("a signal")
        ),
    }
    crate::tty::settle_output();
    power::off()
}
