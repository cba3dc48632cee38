//! Tracing of threads (`ptrace(2)`): a thread of another process sees and changes what a thread
//! does, and decides when it goes on.
//!
//! A [`Tracee`] is the relation of one traced thread to the thread that traces it. It is in one
//! list for the whole system ([`LINKS`]) from the attach to the detach, or until the tracer has
//! waited for the thread's end. A thread stops itself ([`stop`]): it puts its registers into the
//! tracee's state, tells the tracer, and sleeps; the tracer reads and changes them there, and the
//! thread takes them back when it goes on. So no processor ever touches the registers or the
//! kernel stack of a thread on another one, and a thread that is killed in a stop only wakes.
//!
//! | file | contents |
//! |---|---|
//! | [`tracee`] | the relation, its state, the list |
//! | [`registers`] | registers as `struct user` has them, debug registers |
//! | [`stop`] | stops: of signals, groups, events, system calls, steps |
//! | [`link`] | attach, detach, children, the end of either side |
//! | [`report`] | what a tracer's `wait(2)` finds |
//!
//! **Nobody else pays.** A thread that is traced has the attention bit
//! [`TRACED`](hayate_machine::trap::TRACED), by which its system calls enter in a way of their own
//! (`syscall/traced.rs` stops there, and around exec and exit). The other places ask one flag of
//! the process, [`Process::is_involved`], that is set for good when a thread of it traces or is
//! traced: fork, the end of a thread and of a process, exec, wait, and what is cold anyway.
//!
//! **Kept resources.** A space in which a thread was traced goes into no pool and to no heir
//! ([`Space::stay_out`](crate::memory::Space::stay_out)), nor do copies of it; it stays in user
//! mode, and so does every program that a traced process executes. A traced program starts as if
//! there were no images and templates, and a recording ends at the attach. A program that a tracer
//! without privilege watches gains no rights by set-user-id bits ([`link::bars_privilege`]).
//!
//! **Ends.** A thread that ends while it is traced stays in the list, with its number, until its
//! tracer has waited for it; a process whose first thread another process than the parent traces
//! is shown to the parent only after that (`notice::HELD`, [`super::family`]). The end of a tracing
//! thread detaches what it traces, or kills it if it asked for that.
//!
//! Lock order: the lock of a process's exchange ([`Process::steady`]) and a child's `parent`, then
//! [`LINKS`], then the state of one tracee, then `Process::control` and the other leaves. No
//! reference to a tracee is dropped under these. Signals are sent with none of them held.
//!
//! Roads not taken: a list in each process (fork would make it for every process, a word to store
//! and one to drop), and registers that the tracer reads from the stopped thread's kernel stack
//! (unsafe, and a race with `kill -9`).

pub mod link;
pub mod registers;
pub mod report;
pub mod stop;
pub mod tracee;

use super::record::Process;
use super::thread::Thread;

pub use tracee::{LINKS, State, Tracee, find, is_traced, of};

/// Whether a thread of the process is traced now.
pub fn is_any_traced(process: &Process) -> bool {
    LINKS.lock().iter().any(|link| core::ptr::eq(&**link.thread.process(), process))
}

/// The number of the process whose thread traces this one; 0 for none.
pub fn tracer_of(thread: &Thread) -> u32 {
    of(thread).map_or(0, |tracee| tracee.tracer.process().id())
}

/// Whether the thread is in a stop of its tracing.
pub fn is_in_stop(thread: &Thread) -> bool {
    of(thread).is_some_and(|tracee| tracee.state.lock().is_stopped())
}
