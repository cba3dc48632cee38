//! Restartable sequences (`rseq(2)`; kernel/rseq.c of Linux 6.1).
//!
//! A thread registers an area of its memory. The kernel shows there on which processor the thread
//! runs. If the thread was interrupted inside of a sequence that the area names (by a switch, a
//! signal, or a barrier of `membarrier(2)`), it goes on at the sequence's abort address instead.
//!
//! A switch to a registered thread raises [`SEQUENCES`], and the way back to user mode does the
//! work, after signals. A thread without an area pays for one test at a switch to it.
//!
//! The kernel remembers which processor it has shown last and writes the number only when it has
//! changed, so that a forked child's first return does not copy the page. Linux writes it each
//! time; a program cannot tell, since it may not write there itself (`include/uapi/linux/rseq.h`).
//!
//! Road not taken: the area of Linux 6.3 and later, which also shows the node and a number for
//! each concurrent thread. This kernel calls itself 6.1, and a program learns of the larger area by
//! the auxiliary vector.

use hayate_abi::rseq::*;
use hayate_abi::signal::{SI_KERNEL, SIGSEGV, Siginfo};
use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::smp;
use hayate_machine::trap::{UserRegs, attention};
use hayate_machine::user::UserPtr;

use super::signal::send;
use super::thread::Thread;
use crate::memory::USER_END;
use crate::schedule;
use registration::{Registration, SEQUENCES, Sequences};

pub mod registration;

/// The area at an address: `struct rseq`.
struct Area(usize);

impl Area {
    /// Writes `cpu_id_start` and `cpu_id`.
    fn write(&self, start: u32, cpu: u32) -> Result<()> {
        UserPtr::new(self.0 + CPU_ID_START).write(&start)?;
        UserPtr::new(self.0 + CPU_ID).write(&cpu)
    }

    /// The address of the sequence that it names; 0: none.
    fn sequence(&self) -> Result<u64> {
        UserPtr::new(self.0 + SEQUENCE).read()
    }

    fn clear_sequence(&self) -> Result<()> {
        UserPtr::new(self.0 + SEQUENCE).write(&0_u64)
    }

    fn flags(&self) -> Result<u32> {
        UserPtr::new(self.0 + FLAGS).read()
    }
}

/// `rseq(2)` of the current thread with `RSEQ_FLAG_UNREGISTER`.
///
/// # Errors
/// `EINVAL`: this is not the area, or not its size; `EPERM`: its signature is another; `EFAULT`:
/// it cannot be written.
pub fn unregister(thread: &Thread, area: usize, size: u32, signature: u32) -> Result<()> {
    let own = &thread.sequences;
    let now = own.registration();
    if now.area == 0 || now.area != area || size as usize != AREA_SIZE {
        return Err(Errno::EINVAL);
    }
    if now.signature != signature {
        return Err(Errno::EPERM);
    }
    Area(area).write(0, CPU_ID_UNINITIALIZED)?;
    own.forget();
    Ok(())
}

/// Gives up the current thread's area, if it has one, because it leaves the space: the area shows
/// that it is not registered, if it can be written.
pub fn give_up(thread: &Thread) {
    let area = thread.sequences.registration().area;
    if area != 0 {
        let _ = Area(area).write(0, CPU_ID_UNINITIALIZED);
        thread.sequences.forget();
    }
}

/// Shows processor 0 in the current thread's area, whichever it is, so that two recordings of one
/// program do not differ by it. What its memory shows from then on is put right on its way back.
///
/// # Errors
/// `EFAULT`.
pub fn show_first(thread: &Thread) -> Result<()> {
    if thread.sequences.is_registered() {
        show(&thread.sequences, 0)?;
        attention::raise(SEQUENCES);
    }
    Ok(())
}

/// Continues with a registration that came with the memory of an image or a template.
pub fn resume(thread: &Thread, from: Registration) {
    thread.sequences.take_over(from);
    thread.sequences.look();
}

/// Puts the current thread's area right on its way back to user mode, and ends the sequence in
/// which it was interrupted. If the area cannot be used, the thread gets `SIGSEGV`.
#[cold]
pub fn attend(thread: &Thread, regs: &mut UserRegs) {
    attention::clear(SEQUENCES);
    let own = &thread.sequences;
    if schedule::current().take_demand(SEQUENCES) {
        own.note();
    }
    if !own.is_registered() {
        return;
    }
    let ended = if own.take_happened() { end_sequence(own, regs) } else { Ok(()) };
    if ended.and_then(|()| show(own, cpu::id() as u32)).is_err() {
        send::force(thread, Siginfo::new(SIGSEGV, SI_KERNEL));
    }
}

/// Ends the sequence in which the current thread is, because a handler is about to run
/// (`rseq_signal_deliver`). The handler's frame then shows the abort address.
///
/// # Errors
/// The area or the sequence cannot be used: the thread is to get `SIGSEGV`.
#[inline]
pub fn before_handler(thread: &Thread, regs: &mut UserRegs) -> Result<()> {
    let own = &thread.sequences;
    if !own.is_registered() {
        return Ok(());
    }
    own.take_happened();
    end_sequence(own, regs)?;
    show(own, cpu::id() as u32)
}

/// Shows a processor in the area, if it shows another.
fn show(own: &Sequences, number: u32) -> Result<()> {
    let Registration { area, shown, .. } = own.registration();
    if shown != number {
        Area(area).write(number, number)?;
        own.set_shown(number);
    }
    Ok(())
}

/// Makes every other thread of the process that runs on a processor of `processors` end its
/// sequence before its next instruction (`MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ`).
pub fn end_others(thread: &Thread, processors: u64) {
    thread.process.for_each_thread(|other| {
        if let Some(execution) = other.execution()
            && processors >> execution.cpu() & 1 != 0
        {
            execution.demand(SEQUENCES);
        }
    });
    smp::look_again();
}

/// Ends the sequence that the area names: if the program is in it, it goes on at the abort
/// address. In both cases the area names none afterwards (`rseq_ip_fixup`).
fn end_sequence(own: &Sequences, regs: &mut UserRegs) -> Result<()> {
    let Registration { area, signature, .. } = own.registration();
    let area = Area(area);
    let at = area.sequence()?;
    if at == 0 {
        return Ok(());
    }
    let sequence = read_sequence(at, signature)?;
    if sequence.holds(regs.rip) {
        // The flags that let a sequence go on have been refused since Linux 6.1.
        if sequence.flags != 0 || area.flags()? != 0 {
            return Err(Errno::EINVAL);
        }
        area.clear_sequence()?;
        regs.rip = sequence.abort_ip;
        return Ok(());
    }
    area.clear_sequence()
}

/// Reads a sequence's description and checks it (`rseq_get_rseq_cs`).
fn read_sequence(at: u64, signature: u32) -> Result<RseqCs> {
    const END: u64 = USER_END as u64;
    let sequence: RseqCs = UserPtr::new(at as usize).read()?;
    let is_inside = at < END
        && sequence.start_ip < END
        && sequence.start_ip.checked_add(sequence.post_commit_offset).is_some_and(|end| end < END)
        && sequence.abort_ip < END;
    if !is_inside || sequence.version != 0 || sequence.holds(sequence.abort_ip) {
        return Err(Errno::EINVAL);
    }
    let before = (sequence.abort_ip as usize).wrapping_sub(size_of::<u32>());
    if UserPtr::<u32>::new(before).read()? != signature {
        return Err(Errno::EINVAL);
    }
    Ok(sequence)
}
