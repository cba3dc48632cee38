//! The hoarder: it holds all memory there is when the first process needs some.
//!
//! In Hayate who asks for memory that is not there is killed. The first process must not be: the
//! machine would end with it, and with the machine this test. It needs memory when it carries the
//! first text from a program's standard error or output, for which it makes a buffer then. So this
//! storm says nothing there before, and blows once in a machine; and the machine has one processor,
//! which the hoarder does not leave between writing the text and having taken the last page. Should a
//! busy host come between, there is the other stream.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use hayate_stress::{Ended, fork, kill, pause, wait_now};

/// The hoarder has all there is.
const FULL: u32 = 1;
/// It did not come to that.
const ODD: u32 = 2;
const PAGE: usize = 4096;
/// Addresses to fill: more than any machine of this test has memory.
const MOST: usize = 1 << 34;

/// Has all memory taken and sees who pays when the first process needs some.
pub fn storm() -> Result<(), String> {
    if attempt(libc::STDERR_FILENO)? || attempt(libc::STDOUT_FILENO)? {
        return Ok(());
    }
    Err("the first process did not need the hoarder's memory".into())
}

/// One hoarder, which writes to `stream`; whether it was killed.
fn attempt(stream: i32) -> Result<bool, String> {
    let state = shared();
    let hoarder = fork().map_err(|e| format!("fork: {e}"))?;
    if hoarder == 0 {
        state.store(0, SeqCst);
        let end = if hoard(stream) { FULL } else { ODD };
        state.store(end, SeqCst);
        loop {
            pause(1000);
        }
    }
    // From here on nothing that could need memory: this process would be the one to pay.
    let begun = Instant::now();
    let (mut ended, mut full_since) = (None, None);
    let lasted = |since: Instant, seconds| since.elapsed() > Duration::from_secs(seconds);
    while ended.is_none() && state.load(SeqCst) != ODD && !lasted(begun, 60) {
        pause(1000);
        ended = wait_now(hoarder);
        if state.load(SeqCst) == FULL && lasted(*full_since.get_or_insert_with(Instant::now), 3) {
            break;
        }
    }
    if ended.is_none() {
        kill(hoarder, libc::SIGKILL);
        hayate_stress::wait(hoarder);
    }
    match (state.load(SeqCst), ended) {
        (FULL, Some((_, Ended::Killed(libc::SIGKILL)))) => Ok(true),
        (FULL, Some(_)) => Err("the hoarder ended otherwise than by SIGKILL".into()),
        (FULL, None) => Ok(false),
        _ => Err("the hoarder could not take all memory".into()),
    }
}

/// A word that parent and child share.
fn shared() -> &'static AtomicU32 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping that is never unmapped, of zeroes, aligned to a page.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), PAGE, rights, flags, -1, 0);
        assert!(at != libc::MAP_FAILED, "a shared page");
        let word = &*at.cast::<AtomicU32>();
        word.store(0, SeqCst);
        word
    }
}

/// Takes memory to the last page, asking in a way that is refused where a touch would kill; shortly
/// before the end it sends text on its way to the first process. False: something was refused for
/// another reason.
fn hoard(stream: i32) -> bool {
    /// What is taken in a moment. The rest takes too long for a process that nobody may interrupt.
    const LAST: usize = 2 << 20;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, placed by the kernel.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), MOST, rights, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    let Some(end) = populate(start.addr(), start.addr() + MOST) else { return false };
    // SAFETY: within the mapping just made, whose content nobody wants.
    let given =
        unsafe { libc::madvise(start.with_addr(end - LAST), LAST, libc::MADV_DONTNEED) } == 0;
    pause(100_000);
    // musl answers ENOSYS by itself. Of the structure only the priority is the kernel's.
    let priority: libc::c_int = 50;
    let text = "storm hoard: this needs a buffer\n";
    // SAFETY: the number is alive, and the text is that long.
    let ready = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority) == 0
            && libc::write(stream, text.as_ptr().cast(), text.len()) == text.len() as isize
    };
    given && ready && populate(end - LAST, start.addr() + MOST).is_some()
}

/// Has as many pages filled from an address on as there is memory for; where it ran out. `None`:
/// something was refused for another reason.
fn populate(start: usize, end: usize) -> Option<usize> {
    const POPULATE_WRITE: i32 = 23;
    let (mut at, mut length) = (start, 1 << 20);
    while at + length <= end {
        let place = std::ptr::without_provenance_mut(at);
        // SAFETY: within a mapping that nobody uses otherwise.
        if unsafe { libc::madvise(place, length, POPULATE_WRITE) } == 0 {
            at += length;
        } else if std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM) {
            return None;
        } else if length == PAGE {
            return Some(at);
        } else {
            length /= 2;
        }
    }
    None
}
