//! Times, timers and their structures (`timespec(3type)`, `timer_create(2)`, `adjtimex(2)`).

use crate::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Nanoseconds in a second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;
/// The value of `sysconf(_SC_CLK_TCK)`: the unit of `times(2)` and of `/proc/PID/stat`.
pub const CLOCK_TICKS_PER_SEC: u64 = 100;

/// `struct timespec` (`__kernel_timespec`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Timespec {
    /// Seconds.
    pub tv_sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub tv_nsec: i64,
}

impl Timespec {
    /// Returns the time in nanoseconds, saturating at the maximum.
    ///
    /// `EINVAL` for a negative time or nanoseconds out of range, as in the kernel's
    /// `timespec64_valid`.
    pub fn to_nanos(self) -> Result<u64> {
        if self.tv_sec < 0 || !(0..NANOS_PER_SEC as i64).contains(&self.tv_nsec) {
            return Err(Errno::EINVAL);
        }
        Ok((self.tv_sec as u64).saturating_mul(NANOS_PER_SEC).saturating_add(self.tv_nsec as u64))
    }

    /// Returns the time of so many nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Timespec {
        Timespec { tv_sec: (nanos / NANOS_PER_SEC) as i64, tv_nsec: (nanos % NANOS_PER_SEC) as i64 }
    }
}

/// `struct timeval`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Timeval {
    /// Seconds.
    pub tv_sec: i64,
    /// Microseconds, 0 to 999,999.
    pub tv_usec: i64,
}

impl Timeval {
    /// Returns the time in nanoseconds, saturating; `EINVAL` for a negative or malformed time.
    pub fn to_nanos(self) -> Result<u64> {
        if self.tv_sec < 0 || !(0..1_000_000).contains(&self.tv_usec) {
            return Err(Errno::EINVAL);
        }
        Ok((self.tv_sec as u64)
            .saturating_mul(NANOS_PER_SEC)
            .saturating_add(self.tv_usec as u64 * 1000))
    }

    /// Returns the time of so many nanoseconds, rounded down to microseconds.
    pub const fn from_nanos(nanos: u64) -> Timeval {
        Timeval {
            tv_sec: (nanos / NANOS_PER_SEC) as i64,
            tv_usec: (nanos % NANOS_PER_SEC / 1000) as i64,
        }
    }
}

/// `struct timezone`: kept for `gettimeofday(2)`, without meaning today.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Timezone {
    /// Minutes west of Greenwich.
    pub tz_minuteswest: i32,
    /// Kind of daylight saving.
    pub tz_dsttime: i32,
}

/// `struct itimerval`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Itimerval {
    /// Period; zero for a timer that fires once.
    pub it_interval: Timeval,
    /// Time to the next expiry; zero when disarmed.
    pub it_value: Timeval,
}

/// `struct itimerspec`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Itimerspec {
    /// Period; zero for a timer that fires once.
    pub it_interval: Timespec,
    /// Time to the next expiry; zero when disarmed.
    pub it_value: Timespec,
}

/// `struct tms` of `times(2)`, in units of [`CLOCK_TICKS_PER_SEC`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in times(2)")]
pub struct Tms {
    pub tms_utime: i64,
    pub tms_stime: i64,
    pub tms_cutime: i64,
    pub tms_cstime: i64,
}

/// `struct timex` of `adjtimex(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in adjtimex(2)")]
pub struct Timex {
    pub modes: u32,
    pub hole0: u32,
    pub offset: i64,
    pub freq: i64,
    pub maxerror: i64,
    pub esterror: i64,
    pub status: i32,
    pub hole1: u32,
    pub constant: i64,
    pub precision: i64,
    pub tolerance: i64,
    pub time: Timeval,
    pub tick: i64,
    pub ppsfreq: i64,
    pub jitter: i64,
    pub shift: i32,
    pub hole2: u32,
    pub stabil: i64,
    pub jitcnt: i64,
    pub calcnt: i64,
    pub errcnt: i64,
    pub stbcnt: i64,
    pub tai: i32,
    pub reserved: [u32; 11],
}
