//! Core files (`core(5)`; `do_coredump`, fs/coredump.c of Linux 6.1).
//!
//! The thread that takes the signal writes the file, in three steps:
//!
//! 1. It decides the end of the process and raises `notice::DUMP`. Each other thread comes to
//!    [`wait`] on its way back to user mode, leaves its notes (registers) in `PARKED` and sleeps,
//!    or ends by itself. A process without a right to a file (`RLIMIT_CORE`,
//!    `PR_SET_DUMPABLE`) skips all of this.
//! 2. With all others asleep or gone it opens the file ([`mod@file`]) and writes headers, notes
//!    ([`content`]) and memory.
//! 3. It takes the notice back, and all end, the status saying `DUMPED` if there is a file.
//!
//! Only SIGKILL ends that early (`notice::CUT`), also the SIGKILL that gets memory back.
//! Memory is read page by page. A dump holds one page, the list of regions and the notes of the
//! threads. All ask for memory by requests that may be refused: then there is no file.
//!
//! Lock order: `PARKED` is a leaf.
//!
//! The road not taken: notes as a part of each thread's record. Nearly no process ever dumps, and
//! each that is forked would pay for the room.

mod content;
mod course;
mod file;
pub mod filter;
mod pattern;

pub use course::{end, wait};
pub use pattern::{pattern, set_pattern, set_uses_pid, uses_pid};
