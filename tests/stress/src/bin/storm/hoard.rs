//! The hoarder: it holds all memory when the first process needs some.
//!
//! In Hayate a process that touches memory when memory is exhausted is killed. The first process
//! must not be: the machine would end with it, and with the machine this test. It needs memory when
//! it carries the first text from a program's standard error or output, because it allocates a
//! buffer then. So this storm prints nothing there before, and runs once in a machine. The machine
//! has one processor, which the hoarder does not give up between writing the text and having taken
//! the last page. If a busy host interferes, there is a second attempt with the other stream.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use hayate_stress::{Ended, fork, kill, pause, wait_now};

/// The hoarder has taken all memory.
const FULL: u32 = 1;
/// The hoarder did not succeed.
const ODD: u32 = 2;
const PAGE: usize = 4096;
/// Addresses to fill: more than the memory of any machine of this test.
const MOST: usize = 1 << 34;

/// Takes all memory and checks which process is killed when the first process needs some.
pub fn storm() -> Result<(), String> {
    if attempt(libc::STDERR_FILENO)? || attempt(libc::STDOUT_FILENO)? {
        return Ok(());
    }
    Err("the first process did not need the hoarder's memory".into())
}

/// Runs one hoarder, which writes to `stream`; returns whether it was killed.
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
    // From here on this process must not allocate: it would be the one that is killed.
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

/// Returns a word that parent and child share.
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

/// Takes memory to the last page, by requests that fail where a touch would be fatal; shortly
/// before the end it writes text that goes to the first process. False: a request failed for
/// another reason.
fn hoard(stream: i32) -> bool {
    /// The memory that is taken at the end, quickly. The rest takes too long for a process that
    /// cannot be interrupted.
    const LAST: usize = 2 << 20;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, placed by the kernel.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), MOST, rights, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    let Some(end) = populate(start.addr(), start.addr() + MOST) else { return false };
    // SAFETY: within the mapping just made, whose content is not needed.
    let given =
        unsafe { libc::madvise(start.with_addr(end - LAST), LAST, libc::MADV_DONTNEED) } == 0;
    pause(100_000);
    // musl fails with ENOSYS by itself. Of the structure, the kernel reads only the priority.
    let priority: libc::c_int = 50;
    let text = "storm hoard: this needs a buffer\n";
    // SAFETY: the number lives, and the text has that length.
    let ready = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority) == 0
            && libc::write(stream, text.as_ptr().cast(), text.len()) == text.len() as isize
    };
    given && ready && populate(end - LAST, start.addr() + MOST).is_some()
}

/// Fills as many pages from an address on as there is memory for; returns where memory ran out.
/// `None`: a request failed for another reason.
fn populate(start: usize, end: usize) -> Option<usize> {
    const POPULATE_WRITE: i32 = 23;
    let (mut at, mut length) = (start, 1 << 20);
    while at + length <= end {
        let place = std::ptr::without_provenance_mut(at);
        // SAFETY: within a mapping that nothing else uses.
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
