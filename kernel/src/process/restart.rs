//! How an interrupted sleep continues (`restart_syscall(2)`).

/// The time at which a wait ends, in nanoseconds.
#[derive(Clone, Copy)]
pub enum Until {
    /// On the monotonic clock.
    Monotonic(u64),
    /// On the real-time clock, which may be set meanwhile.
    Realtime(u64),
}

/// A sleep to continue after a signal that ran no handler.
#[derive(Clone, Copy, Default)]
pub enum Restart {
    /// No sleep: `restart_syscall` fails with `EINTR`.
    #[default]
    Nothing,
    /// A sleep until `deadline` on the monotonic clock; the time left goes to `remaining`.
    Sleep {
        /// End of the sleep in monotonic nanoseconds.
        deadline: u64,
        /// Where the time left is written if it is interrupted again, or 0.
        remaining: usize,
    },
    /// A sleep until a clock of processor time reaches `due`.
    CpuSleep {
        /// The number of the clock.
        clock: i32,
        /// End of the sleep, in nanoseconds of that clock.
        due: u64,
        /// Where the time left is written if it is interrupted again, or 0.
        remaining: usize,
    },
    /// A wait for a futex.
    Futex {
        /// The address of the futex.
        address: usize,
        /// The value it held.
        value: u32,
        /// Whether the futex is private to one space.
        private: bool,
        /// End of the wait.
        until: Until,
        /// The bits of the wakes that count.
        bits: u32,
    },
    /// A `poll(2)`.
    Poll {
        /// The address of the descriptors' structures.
        fds: usize,
        /// The number of structures.
        count: u32,
        /// End of the wait in monotonic nanoseconds.
        deadline: u64,
    },
}
