//! What threads and processes consumed (`getrusage(2)`, `times(2)`).

use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::process::Rusage;
use hayate_abi::time::Timeval;

/// Counters of one thread while it lives. Only the thread itself adds.
#[derive(Default)]
pub struct Counters {
    /// Page faults served without reading from a device.
    pub minor_faults: AtomicU64,
    /// Page faults that waited for a device.
    pub major_faults: AtomicU64,
}

impl Counters {
    /// Adds one without a locked instruction: there is one writer.
    pub fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A sum of consumption.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Nanoseconds in user mode.
    pub user_ns: u64,
    /// Nanoseconds in the kernel.
    pub system_ns: u64,
    /// Page faults served without reading from a device.
    pub minor_faults: u64,
    /// Page faults that waited for a device.
    pub major_faults: u64,
    /// Switches because the thread slept.
    pub voluntary_switches: u64,
    /// Switches because its time was up.
    pub involuntary_switches: u64,
    /// Most resident bytes of one process.
    pub peak_resident: u64,
}

impl Usage {
    /// Adds another sum; of the peaks the higher one counts.
    pub fn add(&mut self, other: &Usage) {
        self.user_ns = self.user_ns.saturating_add(other.user_ns);
        self.system_ns = self.system_ns.saturating_add(other.system_ns);
        self.minor_faults = self.minor_faults.saturating_add(other.minor_faults);
        self.major_faults = self.major_faults.saturating_add(other.major_faults);
        self.voluntary_switches = self.voluntary_switches.saturating_add(other.voluntary_switches);
        self.involuntary_switches =
            self.involuntary_switches.saturating_add(other.involuntary_switches);
        self.peak_resident = self.peak_resident.max(other.peak_resident);
    }

    /// Nanoseconds on a processor.
    pub fn cpu_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    /// In the form of `getrusage(2)`.
    pub fn to_rusage(&self) -> Rusage {
        Rusage {
            ru_utime: Timeval::from_nanos(self.user_ns),
            ru_stime: Timeval::from_nanos(self.system_ns),
            ru_maxrss: (self.peak_resident / 1024) as i64,
            ru_minflt: self.minor_faults as i64,
            ru_majflt: self.major_faults as i64,
            ru_nvcsw: self.voluntary_switches as i64,
            ru_nivcsw: self.involuntary_switches as i64,
            ..Rusage::default()
        }
    }
}
