//! The time of the packet that a socket gave last: SIOCGSTAMP and SIOCGSTAMPNS (socket(7)).

use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::time::{Timespec, Timeval};
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

/// The requests, by both of their numbers.
const SIOCGSTAMP: u32 = 0x8906;
const SIOCGSTAMPNS: u32 = 0x8907;
const SIOCGSTAMP_NEW: u32 = 0x8010_8906;
const SIOCGSTAMPNS_NEW: u32 = 0x8010_8907;

/// That time, in nanoseconds since 1970; 0 before the first packet.
#[derive(Default)]
pub struct Stamp(AtomicU64);

impl Stamp {
    /// Notes the time of a packet that the program gets.
    pub fn note(&self, time: u64) {
        self.0.store(time, Ordering::Relaxed);
    }

    /// Answers a request. `None` if it is none of these.
    pub fn answer(&self, command: u32, arg: u64) -> Option<Result<i64>> {
        let nanos = match command {
            SIOCGSTAMP | SIOCGSTAMP_NEW => false,
            SIOCGSTAMPNS | SIOCGSTAMPNS_NEW => true,
            _ => return None,
        };
        Some(self.put(nanos, arg as usize).map(|()| 0))
    }

    /// `ENOENT` if the program got no packet yet.
    fn put(&self, nanos: bool, at: usize) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Err(Errno::ENOENT),
            time if nanos => UserPtr::new(at).write(&Timespec::from_nanos(time)),
            time => UserPtr::new(at).write(&Timeval::from_nanos(time)),
        }
    }
}
