//! The course of a dump: the thread that writes, and those that wait for it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_abi::process::RLIMIT_CORE;
use hayate_abi::signal::Siginfo;
use hayate_machine::sync::SpinLock;
use hayate_machine::trap::UserRegs;

use super::file::settle;
use super::{content, file};
use crate::process::access;
use crate::process::record::{Process, notice};
use crate::process::thread::Thread;
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::schedule::WaitQueue;

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
