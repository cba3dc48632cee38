//! Core files (`core(5)`; `do_coredump`, fs/coredump.c of Linux 6.1).
//!
//! The thread that takes the signal writes the file, in three steps:
//!
//! 1. It decides the end of the process and raises [`notice::DUMP`]. Each other thread comes to
//!    [`wait`] on its way back to user mode, leaves its notes (registers) in [`PARKED`] and sleeps,
//!    or ends by itself. A process without a right to a file (`RLIMIT_CORE`,
//!    `PR_SET_DUMPABLE`) skips all of this.
//! 2. With all others asleep or gone it opens the file ([`file`]) and writes headers, notes
//!    ([`content`]) and memory.
//! 3. It takes the notice back, and all end, the status saying [`DUMPED`] if there is a file.
//!
//! Only SIGKILL ends that early ([`notice::CUT`]), also the SIGKILL that gets memory back.
//! Memory is read page by page. A dump holds one page, the list of regions and the notes of the
//! threads. All ask for memory by requests that may be refused: then there is no file.
//!
//! Lock order: [`PARKED`] is a leaf.
//!
//! The road not taken: notes as a part of each thread's record. Nearly no process ever dumps, and
//! each that is forked would pay for the room.

mod content;
mod file;
mod pattern;

pub use pattern::{pattern, set_pattern, set_uses_pid, uses_pid};

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::process::RLIMIT_CORE;
use hayate_abi::signal::Siginfo;
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::trap::UserRegs;

use super::record::{Process, notice};
use super::{Thread, access};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule;
use crate::schedule::WaitQueue;

/// The bit of a wait status that tells of a core file (`WCOREDUMP`).
pub const DUMPED: i32 = 0x80;

/// Which memory goes into a core file: the bits of `/proc/PID/coredump_filter`.
pub mod filter {
    /// Private memory without a file, and private pages that were written to.
    pub const PRIVATE: u32 = 1;
    /// Shared memory whose file has no name.
    pub const SHARED: u32 = 1 << 1;
    /// Private mappings of files.
    pub const FILE_PRIVATE: u32 = 1 << 2;
    /// Shared mappings of files.
    pub const FILE_SHARED: u32 = 1 << 3;
    /// The first page of a mapped ELF file.
    pub const HEADERS: u32 = 1 << 4;
    /// Private large pages of hugetlbfs, of which there are none.
    pub const HUGE_PRIVATE: u32 = 1 << 5;
    /// All bits that there are, those of hugetlbfs and DAX among them.
    pub const ALL: u32 = 0x1ff;
}

/// The filter of the first process (`MMF_DUMP_FILTER_DEFAULT`).
pub const FILTER_DEFAULT: u32 =
    filter::PRIVATE | filter::SHARED | filter::HEADERS | filter::HUGE_PRIVATE;

/// The least limit with which a file is begun (`elf_format.min_coredump`).
const LEAST: u64 = 4096;

/// The notes of a thread that waits.
struct Parked {
    /// The serial of its process.
    process: u64,
    notes: Vec<u8>,
}

static PARKED: SpinLock<Vec<Parked>> = SpinLock::new(Vec::new());
/// Where threads sleep whose process writes a core file.
static OVER: WaitQueue = WaitQueue::new();

/// Ends the process of the current thread by a signal, with a core file if there is to be one. To
/// be called on the way back to user mode; `regs` are what the thread would have gone on with.
#[cold]
pub fn end(thread: &Thread, info: &Siginfo, regs: &UserRegs) {
    let process = &thread.process;
    if process.limit(RLIMIT_CORE) < LEAST || !access::is_dumpable(process) {
        return;
    }
    if !process.begin_dump(info.si_signo as u32) {
        return;
    }
    let outcome = write(thread, info, regs);
    if let Err(error) = outcome {
        hayate_machine::debug!("no core file of process {}: {error:?}", process.id());
    }
    let left = {
        let mut parked = PARKED.lock();
        process.end_dump(outcome.is_ok());
        take_notes(&mut parked, process)
    };
    drop(left);
    OVER.wake_all();
}

fn write(thread: &Thread, info: &Siginfo, regs: &UserRegs) -> Result<()> {
    stop_others(&thread.process)?;
    let others = take_notes(&mut PARKED.lock(), &thread.process);
    let mut content = content::of(thread, info, regs)?;
    for notes in others {
        content.notes.make_room(notes.len())?;
        content.notes.extend_from_slice(&notes);
    }
    file::write(thread, info.si_signo as u32, &content)
}

/// Waits until no other thread of the process runs any more.
fn stop_others(process: &Process) -> Result<()> {
    let stopped = || {
        let serial = process.serial();
        let parked = PARKED.lock().iter().filter(|entry| entry.process == serial).count();
        (parked + 1 >= process.thread_count()).then_some(())
    };
    loop {
        let outcome = process.child_events.wait_interruptible(None, stopped);
        settle(process)?;
        if outcome.is_ok() {
            return Ok(());
        }
    }
}

/// The end of a sleep, or of a part of a long work, of the thread that writes: no signal but
/// SIGKILL is taken any more. `EINTR` if that came.
fn settle(process: &Process) -> Result<()> {
    schedule::current().clear_interrupt();
    if process.notice() & notice::CUT != 0 { Err(Errno::EINTR) } else { Ok(()) }
}

fn take_notes(parked: &mut Vec<Parked>, process: &Process) -> Vec<Vec<u8>> {
    let is_mine = |entry: &Parked| entry.process == process.serial();
    let mut taken = Vec::new();
    let mine = parked.iter().filter(|entry| is_mine(entry)).count();
    if taken.make_room_exact(mine).is_ok() {
        taken.extend(parked.extract_if(.., |entry| is_mine(entry)).map(|entry| entry.notes));
    } else {
        // They are lost, and the file has the first thread alone.
        parked.retain(|entry| !is_mine(entry));
    }
    if parked.is_empty() {
        *parked = Vec::new();
    }
    taken
}

/// The current thread waits while another one of its process writes a core file with its registers.
#[cold]
pub fn wait(thread: &Thread, regs: &UserRegs) {
    let process: &Arc<Process> = &thread.process;
    let signal = process.control.lock().exit.unwrap_or(0) as u32 & 0x7f;
    // Without memory the thread only ends.
    let Ok(notes) = content::of_thread(thread, regs, signal) else { return };
    {
        let mut parked = PARKED.lock();
        let entry = Parked { process: process.serial(), notes };
        if process.notice() & notice::DUMP == 0 || growth::push(&mut parked, entry).is_err() {
            return;
        }
    }
    process.child_events.wake_all();
    OVER.wait(|| (process.notice() & notice::DUMP == 0).then_some(()));
}
