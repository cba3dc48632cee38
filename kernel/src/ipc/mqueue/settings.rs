//! The settings of `/proc/sys/fs/mqueue`, with the bounds and first values of Linux 6.1
//! (include/linux/ipc_namespace.h).

use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicI64, Ordering};

use hayate_abi::{Errno, Result};
use hayate_ipc_rules::priorities::{LARGEST_MESSAGE, Limits, MOST_MESSAGES};

/// A number with bounds.
pub struct Setting {
    value: AtomicI64,
    bounds: RangeInclusive<i64>,
}

impl Setting {
    const fn new(value: i64, bounds: RangeInclusive<i64>) -> Setting {
        Setting { value: AtomicI64::new(value), bounds }
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    /// Changes it: `EINVAL` out of its bounds.
    pub fn set(&self, value: i64) -> Result<()> {
        if !self.bounds.contains(&value) {
            return Err(Errno::EINVAL);
        }
        self.value.store(value, Ordering::Relaxed);
        Ok(())
    }
}

/// The settings of a namespace.
pub struct Settings {
    /// `msg_default`: the messages that a queue may hold if its maker does not say.
    pub default_messages: Setting,
    /// `msg_max`: the messages that a maker without privilege may ask for.
    pub most: Setting,
    /// `msgsize_default`: the largest message if the maker does not say.
    pub default_size: Setting,
    /// `msgsize_max`: the largest message that a maker without privilege may ask for.
    pub largest: Setting,
    /// `queues_max`: the number of queues, beyond which only the privileged make one. A negative
    /// number is a very large one, as in Linux.
    pub most_queues: Setting,
}

impl Settings {
    /// The first values.
    pub const fn initial() -> Settings {
        Settings {
            default_messages: Setting::new(10, 1..=MOST_MESSAGES),
            most: Setting::new(10, 1..=MOST_MESSAGES),
            default_size: Setting::new(8192, 128..=LARGEST_MESSAGE),
            largest: Setting::new(8192, 128..=LARGEST_MESSAGE),
            most_queues: Setting::new(256, i32::MIN as i64..=i32::MAX as i64),
        }
    }

    /// Those that decide about the shape of a new queue.
    pub fn limits(&self) -> Limits {
        Limits {
            most_messages: self.most.get(),
            largest_message: self.largest.get(),
            default_messages: self.default_messages.get(),
            default_size: self.default_size.get(),
        }
    }
}
