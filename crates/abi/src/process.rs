//! Processes: usage, limits, `clone3(2)`, capabilities, identity of the system.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::time::Timeval;

/// `struct rusage` of `getrusage(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in getrusage(2)")]
pub struct Rusage {
    pub ru_utime: Timeval,
    pub ru_stime: Timeval,
    pub ru_maxrss: i64,
    pub ru_ixrss: i64,
    pub ru_idrss: i64,
    pub ru_isrss: i64,
    pub ru_minflt: i64,
    pub ru_majflt: i64,
    pub ru_nswap: i64,
    pub ru_inblock: i64,
    pub ru_oublock: i64,
    pub ru_msgsnd: i64,
    pub ru_msgrcv: i64,
    pub ru_nsignals: i64,
    pub ru_nvcsw: i64,
    pub ru_nivcsw: i64,
}

/// `struct rlimit64` of `getrlimit(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Rlimit {
    /// The soft limit, the one in force.
    pub rlim_cur: u64,
    /// The hard limit: the ceiling of the soft one.
    pub rlim_max: u64,
}

/// No limit.
pub const RLIM_INFINITY: u64 = u64::MAX;

#[allow(missing_docs, reason = "named as in getrlimit(2)")]
mod limits {
    pub const RLIMIT_CPU: usize = 0;
    pub const RLIMIT_FSIZE: usize = 1;
    pub const RLIMIT_DATA: usize = 2;
    pub const RLIMIT_STACK: usize = 3;
    pub const RLIMIT_CORE: usize = 4;
    pub const RLIMIT_RSS: usize = 5;
    pub const RLIMIT_NPROC: usize = 6;
    pub const RLIMIT_NOFILE: usize = 7;
    pub const RLIMIT_MEMLOCK: usize = 8;
    pub const RLIMIT_AS: usize = 9;
    pub const RLIMIT_LOCKS: usize = 10;
    pub const RLIMIT_SIGPENDING: usize = 11;
    pub const RLIMIT_MSGQUEUE: usize = 12;
    pub const RLIMIT_NICE: usize = 13;
    pub const RLIMIT_RTPRIO: usize = 14;
    pub const RLIMIT_RTTIME: usize = 15;
    pub const RLIM_NLIMITS: usize = 16;
}
pub use limits::*;

/// `struct clone_args` of `clone3(2)`, in its longest form.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in clone3(2)")]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

#[allow(missing_docs, reason = "named as in clone(2)")]
mod clone {
    pub const CSIGNAL: u64 = 0xff;
    pub const CLONE_VM: u64 = 0x100;
    pub const CLONE_FS: u64 = 0x200;
    pub const CLONE_FILES: u64 = 0x400;
    pub const CLONE_SIGHAND: u64 = 0x800;
    pub const CLONE_PIDFD: u64 = 0x1000;
    pub const CLONE_PTRACE: u64 = 0x2000;
    pub const CLONE_VFORK: u64 = 0x4000;
    pub const CLONE_PARENT: u64 = 0x8000;
    pub const CLONE_THREAD: u64 = 0x1_0000;
    pub const CLONE_NEWNS: u64 = 0x2_0000;
    pub const CLONE_SYSVSEM: u64 = 0x4_0000;
    pub const CLONE_SETTLS: u64 = 0x8_0000;
    pub const CLONE_PARENT_SETTID: u64 = 0x10_0000;
    pub const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
    pub const CLONE_DETACHED: u64 = 0x40_0000;
    pub const CLONE_UNTRACED: u64 = 0x80_0000;
    pub const CLONE_CHILD_SETTID: u64 = 0x100_0000;
    pub const CLONE_NEWCGROUP: u64 = 0x200_0000;
    pub const CLONE_NEWUTS: u64 = 0x400_0000;
    pub const CLONE_NEWIPC: u64 = 0x800_0000;
    pub const CLONE_NEWUSER: u64 = 0x1000_0000;
    pub const CLONE_NEWPID: u64 = 0x2000_0000;
    pub const CLONE_NEWNET: u64 = 0x4000_0000;
    pub const CLONE_IO: u64 = 0x8000_0000;
    pub const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
    pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    pub const CLONE_NEWTIME: u64 = 0x80;

    pub const WNOHANG: u32 = 1;
    pub const WUNTRACED: u32 = 2;
    pub const WSTOPPED: u32 = 2;
    pub const WEXITED: u32 = 4;
    pub const WCONTINUED: u32 = 8;
    pub const WNOWAIT: u32 = 0x0100_0000;
    pub const __WNOTHREAD: u32 = 0x2000_0000;
    pub const __WALL: u32 = 0x4000_0000;
    pub const __WCLONE: u32 = 0x8000_0000;
}
pub use clone::*;

/// `struct new_utsname` of `uname(2)`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in uname(2)")]
pub struct Utsname {
    pub sysname: [u8; 65],
    pub nodename: [u8; 65],
    pub release: [u8; 65],
    pub version: [u8; 65],
    pub machine: [u8; 65],
    pub domainname: [u8; 65],
}

/// `struct sysinfo` of `sysinfo(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in sysinfo(2)")]
pub struct Sysinfo {
    pub uptime: i64,
    pub loads: [u64; 3],
    pub totalram: u64,
    pub freeram: u64,
    pub sharedram: u64,
    pub bufferram: u64,
    pub totalswap: u64,
    pub freeswap: u64,
    pub procs: u16,
    pub pad: u16,
    pub hole: u32,
    pub totalhigh: u64,
    pub freehigh: u64,
    pub mem_unit: u32,
    pub end: u32,
}

/// `struct robust_list_head` of `set_robust_list(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in linux/futex.h")]
pub struct RobustListHead {
    pub list: u64,
    pub futex_offset: i64,
    pub list_op_pending: u64,
}

/// `struct futex_waitv` of `futex_waitv(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in linux/futex.h")]
pub struct FutexWaitv {
    pub val: u64,
    pub uaddr: u64,
    pub flags: u32,
    pub reserved: u32,
}

/// `struct sched_param`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SchedParam {
    /// Realtime priority.
    pub sched_priority: i32,
}

/// `struct sched_attr` of `sched_setattr(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in sched_setattr(2)")]
pub struct SchedAttr {
    pub size: u32,
    pub sched_policy: u32,
    pub sched_flags: u64,
    pub sched_nice: i32,
    pub sched_priority: u32,
    pub sched_runtime: u64,
    pub sched_deadline: u64,
    pub sched_period: u64,
    pub sched_util_min: u32,
    pub sched_util_max: u32,
}

/// Header of `capget(2)` and `capset(2)`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CapabilityHeader {
    /// `_LINUX_CAPABILITY_VERSION_*`.
    pub version: u32,
    /// The thread asked about; 0 for the caller.
    pub pid: i32,
}

/// One 32-bit slice of the three capability sets.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs, reason = "named as in capget(2)")]
pub struct CapabilityData {
    pub effective: u32,
    pub permitted: u32,
    pub inheritable: u32,
}
