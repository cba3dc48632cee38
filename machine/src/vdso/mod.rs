//! The shared object that the kernel maps for programs (`vdso(7)`), by which they read the clocks
//! without a system call.
//!
//! It has two pages: one with the data that the clocks are computed from ([`clock::CLOCK`]), one
//! with an ELF shared object ([`image`]) whose functions read it. Both lie in the kernel's half, at
//! one address for all programs, chosen at random at boot ([`place`]); the root of every space has
//! the same entry for them. So starting a program maps nothing for it, and a fork copies nothing. A
//! program finds the object by `AT_SYSINFO_EHDR`.
//!
//! Invariants:
//! * programs can read the two pages, execute the second one, and write neither;
//! * nothing but the clocks lies in the first page, and nothing but the object in the second;
//! * the root's entry has the user bit exactly if the entries of the program's half have it
//!   (`paging::supervisor`), so a program in ring 0 executes the same instructions.
//!
//! An instruction pointer in the object belongs to a program, though it is not in the program's
//! half: the returns to a program check it with [`holds`].
//!
//! Road not taken: two regions in each space, as Linux has. A program could move or unmap them
//! there; but each start would create them, each fork copy them, and each exit remove them, for the
//! benefit of programs that read the time. The price is that the object's address does not differ
//! from program to program, only from boot to boot.

mod image;

use core::sync::atomic::{AtomicU64, Ordering};

use crate::clock;
use crate::cpu::FaultCode;
use crate::layout::{KERNEL, PAGE_SIZE, SHOWN};
use crate::paging::kernel::{Refused, show};

/// The random address bits: all of the root's entry but the last page, behind which no instruction
/// may lie.
const DRAWN: u64 = (1 << 27) - 3;

/// The address of the page of clocks; 0 before [`place`].
#[unsafe(export_name = "hayate_vdso_at")]
static AT: AtomicU64 = AtomicU64::new(0);

/// Maps the two pages for all programs, at an address that `random` decides. Only the first call
/// has an effect: the address never changes.
///
/// # Errors
/// Memory for the tables is exhausted; programs then have no such object.
pub fn place(random: u64) -> Result<(), Refused> {
    static ONE: crate::sync::SpinLock<()> = crate::sync::SpinLock::new(());
    let _one = ONE.lock();
    if AT.load(Ordering::Relaxed) != 0 {
        return Ok(());
    }
    let at = SHOWN + (random % DRAWN) as usize * PAGE_SIZE;
    let physical = |address: usize| (address - KERNEL) as u64;
    // SAFETY: the two are whole pages of the kernel's image, and hold only data that programs may
    // read: the clocks, and the object.
    unsafe {
        show(at, physical(&raw const clock::CLOCK as usize), false)?;
        show(at + PAGE_SIZE, physical(image::address()), true)?;
    }
    AT.store(at as u64, Ordering::Release);
    Ok(())
}

/// Returns the number with which [`place`] puts the object at this address; `None`: it cannot lie
/// there.
pub fn number_of(object: usize) -> Option<u64> {
    let page = object.checked_sub(SHOWN + PAGE_SIZE)? / PAGE_SIZE;
    let is_whole = object.is_multiple_of(PAGE_SIZE) && (page as u64) < DRAWN;
    is_whole.then_some(page as u64)
}

/// Returns the address of the page of clocks, which programs can read; `None` before [`place`].
pub fn clocks() -> Option<usize> {
    match AT.load(Ordering::Acquire) {
        0 => None,
        at => Some(at as usize),
    }
}

/// Returns the address of the shared object's page, right behind that of the clocks
/// (`AT_SYSINFO_EHDR`).
pub fn object() -> Option<usize> {
    clocks().map(|at| at + PAGE_SIZE)
}

/// Returns the content of the object's page, for core files.
pub fn content() -> &'static [u8; PAGE_SIZE] {
    // SAFETY: this is a whole page of the kernel's image, which is never written to.
    unsafe { &*(image::address() as *const [u8; PAGE_SIZE]) }
}

/// Whether programs may do at an address what a page fault says was refused: read one of the two
/// pages, or execute the second one. Then the mode of the space was being changed: the entry of the
/// root said one mode and the processor was in the other. The access is right once both agree.
#[cold]
pub fn permits(address: u64, code: FaultCode) -> bool {
    let at = AT.load(Ordering::Relaxed);
    let is_read = code.contains(FaultCode::PRESENT)
        && !code.intersects(FaultCode::WRITE | FaultCode::RESERVED);
    let first = if code.contains(FaultCode::FETCH) { PAGE_SIZE as u64 } else { 0 };
    is_read && at != 0 && (first..2 * PAGE_SIZE as u64).contains(&address.wrapping_sub(at))
}

/// Whether an instruction pointer is in the object.
#[inline]
pub fn holds(rip: u64) -> bool {
    let at = AT.load(Ordering::Relaxed);
    at != 0 && rip.wrapping_sub(at + PAGE_SIZE as u64) < PAGE_SIZE as u64
}
