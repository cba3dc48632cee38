//! Resource limits (`getrlimit(2)`).
//!
//! A set of limits is immutable and shared: fork takes a reference, a change replaces the set by a
//! changed copy.

use hayate_abi::process::*;

/// One past the largest number (`/proc/sys/kernel/pid_max`; Linux' default below 33 CPUs).
pub const PID_MAX: u32 = 32768;

/// The limits of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits([Rlimit; RLIM_NLIMITS]);

impl Limits {
    /// The limits with which pid 1 starts (`INIT_RLIMITS`, include/asm-generic/resource.h).
    pub fn initial() -> Limits {
        let unlimited = Rlimit { rlim_cur: RLIM_INFINITY, rlim_max: RLIM_INFINITY };
        let mut limits = [unlimited; RLIM_NLIMITS];
        let threads = u64::from(PID_MAX) / 2;
        limits[RLIMIT_STACK].rlim_cur = 8 << 20;
        limits[RLIMIT_CORE].rlim_cur = 0;
        limits[RLIMIT_NPROC] = Rlimit { rlim_cur: threads, rlim_max: threads };
        limits[RLIMIT_NOFILE] = Rlimit { rlim_cur: 1024, rlim_max: 4096 };
        limits[RLIMIT_MEMLOCK] = Rlimit { rlim_cur: 8 << 20, rlim_max: 8 << 20 };
        limits[RLIMIT_SIGPENDING] = Rlimit { rlim_cur: threads, rlim_max: threads };
        limits[RLIMIT_MSGQUEUE] = Rlimit { rlim_cur: 819_200, rlim_max: 819_200 };
        limits[RLIMIT_NICE] = Rlimit::default();
        limits[RLIMIT_RTPRIO] = Rlimit::default();
        Limits(limits)
    }

    /// One limit; `None` for an unknown number.
    pub fn get(&self, resource: usize) -> Option<Rlimit> {
        self.0.get(resource).copied()
    }

    /// The soft limit in force; unlimited for an unknown number.
    pub fn soft(&self, resource: usize) -> u64 {
        self.0.get(resource).map_or(RLIM_INFINITY, |limit| limit.rlim_cur)
    }

    /// Replaces one limit; returns false for an unknown number.
    pub fn set(&mut self, resource: usize, limit: Rlimit) -> bool {
        match self.0.get_mut(resource) {
            Some(slot) => {
                *slot = limit;
                true
            }
            None => false,
        }
    }
}
