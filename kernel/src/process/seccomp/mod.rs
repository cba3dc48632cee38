//! Filters of system calls (`seccomp(2)`; kernel/seccomp.c of Linux 6.1).
//!
//! | file | contents |
//! |---|---|
//! | `notices` | the calls about which a listener is asked |
//! | `chain` | the filters of a thread, and the calls that they allow whatever the arguments |
//! | `judge` | what happens to a call |
//! | `listener` | the descriptor of who is asked |
//! | `install` | giving threads filters |
//!
//! **A thread without a filter pays nothing.** The entry of system calls tests nothing. A guarded
//! execution ([`Execution::guard`](crate::schedule::Execution::guard)) goes back to its program
//! through the attention handler, which loads another entry into the processor's register
//! (`machine::trap::guard`); that entry calls [`judge`] first. A program without a guard that runs
//! on this processor next puts the usual one back with its first call.
//!
//! **Supervisor mode.** There a system call may be a function call, and a program may do whatever
//! the kernel can: a filter would bound nothing. A space whose program gets a filter goes back to
//! user mode and stays there ([`Space::return_to_user`](crate::memory::Space::return_to_user)), and
//! a process of which a thread has one cannot be switched to supervisor mode (`EPERM`). Its children
//! have filters, too. A patched call site works in user mode: its trampoline makes the call by
//! `syscall`.
//!
//! **Kept things.** Filters belong to threads, which are never kept. A thread that has one starts
//! programs as if there were neither images nor templates: what is kept of a start without a filter
//! made calls that the filter may refuse.
//!
//! Lock order: a process's steadiness, its threads, a chain, which is a leaf. The lock of notices
//! is a leaf but for the queues that are woken below it. The last reference to a filter is dropped
//! with no lock held, as it wakes who listens.

mod chain;
mod install;
mod judge;
mod listener;
mod notices;

pub use chain::State;
pub use install::{How, add, be_strict, is_filtered, pass_on};
pub use judge::{init, logged, set_logged};
pub use listener::{ANSWER_SIZE, NOTICE_SIZE};

/// The mode in which a thread has filters (`SECCOMP_MODE_FILTER`).
pub const MODE_FILTER: u8 = chain::FILTER;
