//! The memory shared by the processes of a storm: counters that all of them map.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The most starters.
pub const STARTERS: usize = 8;
/// How many programs are replaced.
pub const PROGRAMS: usize = 2;

/// The counters. All zero at first.
#[repr(C)]
pub struct Board {
    /// Not zero: the storm ends.
    pub stop: AtomicU32,
    /// Successful starts.
    pub starts: AtomicU64,
    /// Starts refused because memory was exhausted, and because of a limit.
    pub no_memory: AtomicU64,
    pub no_process: AtomicU64,
    /// Starts refused because the file was being written, or only partly written.
    pub busy: AtomicU64,
    pub cut_short: AtomicU64,
    /// Children that were killed.
    pub killed: AtomicU64,
    /// The first failure; see [`Board::wrong`].
    pub wrong: AtomicU64,
    /// The child that each starter started last, 0 when it has ended.
    pub children: [AtomicI32; STARTERS],
    /// The version of each program that is being made, and the last finished one.
    pub begun: [AtomicU64; PROGRAMS],
    pub made: [AtomicU64; PROGRAMS],
    /// Replacements that had to wait because the program was running.
    pub text_busy: AtomicU64,
}

impl Board {
    /// Makes a new board, and returns the descriptor by which a program executed later finds it.
    ///
    /// # Errors
    /// The system's error.
    pub fn new() -> Result<(&'static Board, i32), String> {
        let failed = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"board".as_ptr(), 0) };
        // SAFETY: a plain call with numbers.
        if fd == -1 || unsafe { libc::ftruncate(fd, size_of::<Board>() as i64) } == -1 {
            return Err(failed("memfd_create"));
        }
        Board::of(fd).map(|board| (board, fd)).ok_or_else(|| failed("mmap of the board"))
    }

    /// Returns the board of a descriptor.
    pub fn of(fd: i32) -> Option<&'static Board> {
        let (length, rights) = (size_of::<Board>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping, placed by the kernel.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), length, rights, libc::MAP_SHARED, fd, 0) };
        // SAFETY: the mapping is as long as a board and is never unmapped; any bytes are a valid
        // board, whose fields are changed only atomically.
        (at != libc::MAP_FAILED).then(|| unsafe { &*at.cast::<Board>() })
    }

    /// Unmaps a board that [`Board::new`] made and that is not used any more.
    pub fn close(board: &'static Board, fd: i32) {
        // SAFETY: the mapping is that of `Board::of`; the caller does not use it any more.
        unsafe {
            libc::munmap(std::ptr::from_ref(board).cast_mut().cast(), size_of::<Board>());
            libc::close(fd);
        }
    }

    /// Whether the storm is over.
    pub fn is_over(&self) -> bool {
        self.stop.load(Relaxed) != 0
    }

    /// Records a failure, if it is the first: its kind and two numbers.
    pub fn wrong(&self, what: Wrong, one: i32, two: i32) {
        let word = what as u64 | (one as u64 & 0xffff) << 8 | (two as u64 & 0xffff_ffff) << 24;
        let _ = self.wrong.compare_exchange(0, word, Relaxed, Relaxed);
    }

    /// Returns the recorded failure, if any.
    ///
    /// # Errors
    /// The text of the failure.
    pub fn verdict(&self) -> Result<(), String> {
        let word = self.wrong.load(Relaxed);
        let (one, two) = ((word >> 8 & 0xffff) as i32, (word >> 24 & 0xffff_ffff) as i32);
        Err(match word & 0xff {
            0 => return Ok(()),
            1 => format!("a start failed with error {two} (kind {one})"),
            2 => format!("a child of kind {one} ended with wait status {two:#x}"),
            3 => format!("pages of different versions in one start (program {one})"),
            4 => format!("memory was not fresh at a start (program {one})"),
            5 => format!("a start of a version that was gone: {two} (program {one})"),
            6 => format!("writing a file failed with error {two} (way {one})"),
            _ => format!("something unknown: {word:#x}"),
        })
    }
}

/// The kinds of failures.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Wrong {
    Start = 1,
    Ended = 2,
    Mixed = 3,
    NotFresh = 4,
    Stale = 5,
    Write = 6,
}
