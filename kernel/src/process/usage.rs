//! Resources consumed by threads and processes (`getrusage(2)`, `times(2)`).

use core::sync::atomic::{AtomicU64, Ordering};

use hayate_abi::process::Rusage;
use hayate_abi::time::Timeval;

use crate::program::Reads;
use crate::schedule::Execution;

/// Counts of one thread's reads and writes. Only the thread itself adds, so that no addition needs
/// a locked instruction.
#[derive(Default)]
pub struct Counters {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    device_bytes: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, count: usize) {
        counter.store(counter.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
    }

    /// Counts a call that reads, and the bytes that it returned.
    #[inline(always)]
    pub fn read(&self, bytes: usize) {
        Counters::add(&self.reads, 1);
        Counters::add(&self.read_bytes, bytes);
    }

    /// Counts what the start of a program read.
    pub fn read_files(&self, reads: Reads) {
        Counters::add(&self.reads, reads.calls);
        Counters::add(&self.read_bytes, reads.bytes);
    }

    /// Counts a call that writes, and the bytes that it wrote.
    #[inline(always)]
    pub fn wrote(&self, bytes: usize) {
        Counters::add(&self.writes, 1);
        Counters::add(&self.written_bytes, bytes);
    }

    /// Counts bytes that a device read for the thread.
    pub fn read_from_device(&self, bytes: usize) {
        Counters::add(&self.device_bytes, bytes);
    }

    /// The present counts.
    #[inline(always)]
    pub fn sums(&self) -> Moved {
        Moved {
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            device_bytes: self.device_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Bytes and calls of the read and write families, and bytes from devices, as `/proc/PID/io` shows
/// them (proc_pid_io(5)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Bytes that calls read (`rchar`).
    pub read_bytes: u64,
    /// Bytes that calls wrote (`wchar`).
    pub written_bytes: u64,
    /// Calls that read (`syscr`).
    pub reads: u64,
    /// Calls that write (`syscw`).
    pub writes: u64,
    /// Bytes read from devices (`read_bytes`).
    pub device_bytes: u64,
}

impl Moved {
    /// Whether nothing was read or written, as in most children of a fork.
    #[inline(always)]
    pub fn is_nothing(&self) -> bool {
        self.reads | self.writes | self.device_bytes == 0
    }

    /// Adds another sum.
    #[cold]
    pub fn add(&mut self, other: &Moved) {
        self.read_bytes = self.read_bytes.wrapping_add(other.read_bytes);
        self.written_bytes = self.written_bytes.wrapping_add(other.written_bytes);
        self.reads = self.reads.wrapping_add(other.reads);
        self.writes = self.writes.wrapping_add(other.writes);
        self.device_bytes = self.device_bytes.wrapping_add(other.device_bytes);
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
    /// Context switches because the thread slept.
    pub voluntary_switches: u64,
    /// Context switches because it was preempted.
    pub involuntary_switches: u64,
    /// The most resident bytes of one process.
    pub peak_resident: u64,
}

impl Usage {
    /// Of one thread, as far as its execution counts it.
    pub fn of(execution: &Execution) -> Usage {
        let (user_ns, system_ns) = execution.user_system_time();
        let (voluntary_switches, involuntary_switches) = execution.switches();
        Usage { user_ns, system_ns, voluntary_switches, involuntary_switches, ..Usage::default() }
    }

    /// Adds another sum; the higher of the two peaks counts. (2^64 nanoseconds are 584 years, and
    /// nothing else is counted more often.)
    pub fn add(&mut self, other: &Usage) {
        self.user_ns = self.user_ns.wrapping_add(other.user_ns);
        self.system_ns = self.system_ns.wrapping_add(other.system_ns);
        self.minor_faults = self.minor_faults.wrapping_add(other.minor_faults);
        self.major_faults = self.major_faults.wrapping_add(other.major_faults);
        self.voluntary_switches = self.voluntary_switches.wrapping_add(other.voluntary_switches);
        self.involuntary_switches =
            self.involuntary_switches.wrapping_add(other.involuntary_switches);
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
