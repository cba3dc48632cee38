//! The fuzzer's table of system calls: their numbers and the kinds of their arguments.

use ArgumentKind::*;

/// The plausible form of an argument, used most of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgumentKind {
    /// A file descriptor, open or not.
    Fd,
    /// A directory descriptor of an `*at` call.
    DirFd,
    /// A path.
    Path,
    /// Memory to read from or write to.
    Mem,
    /// An address for the calls that change mappings.
    Addr,
    /// A length in bytes.
    Len,
    /// A file position.
    Pos,
    /// Flags: some bits.
    Bits,
    /// A small number: a command, a kind, a signal.
    Small,
    /// Permission bits and file types.
    Mode,
    /// A process, from a harmless selection.
    Pid,
    /// A time structure.
    Time,
    /// An array of vectors.
    Vectors,
    /// A user or group.
    Id,
    /// Any 64 bits.
    Any,
    /// One of these most of the time.
    Of(&'static [u64]),
    /// These bits, some of them.
    Flags(&'static [u64]),
    /// A `struct sockaddr_un`.
    Address,
    /// A `struct msghdr` with vectors and perhaps descriptors.
    Message,
    /// A `struct clone_args`.
    CloneArguments,
    /// A mount point that only this fuzzer uses.
    Mount,
    /// The name of a message queue, of a few.
    Queue,
    /// A `struct sigevent` for message queues, or none.
    Notification,
    /// An array of `struct futex_waitv`.
    Words,
    /// A path on which a worker with mounts of its own may mount.
    Place,
    /// The name of a file system.
    FileSystem,
    /// Options of mount(2), the name of one, or the value of one.
    Options,
    /// A `struct mount_attr`.
    MountAttributes,
    /// An array of pointers to `struct iocb`.
    Requests,
    /// The name of a template, of a few.
    Template,
}

/// Requests of ioctl(2) on terminals, pipes, sockets and files, except those that push input to
/// other processes.
const REQUESTS: &[u64] = &[
    0x5401,
    0x5402,
    0x5403,
    0x5404,
    0x5405,
    0x5406,
    0x5409,
    0x540a,
    0x540b,
    0x540c,
    0x540d,
    0x540e,
    0x540f,
    0x5410,
    0x5411,
    0x5413,
    0x5414,
    0x541b,
    0x5420,
    0x5421,
    0x5422,
    0x5423,
    0x5424,
    0x5425,
    0x5429,
    0x5450,
    0x5451,
    0x5452,
    0x8004_5430,
    0x4004_5431,
    0x8004_5438,
    0x8004_5439,
    0x5441,
    0x1260,
    0x1261,
    0x1268,
    0x8008_1272,
    0x8008_6601,
    0x8910,
    0x8904,
    0xc050_2100, // of a listener of filters
    0xc018_2101,
    0x4008_2102,
    0x4018_2103,
];
/// Commands of fcntl(2).
const FCNTL: &[u64] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 36, 37, 38, 1024, 1025, 1026, 1030, 1031, 1032,
    1033, 1034,
];
/// Operations of futex(2), with and without its flags.
const FUTEX: &[u64] = &[0, 1, 3, 4, 5, 9, 10, 128, 129, 131, 132, 133, 137, 138, 256 + 9, 384 + 9];
/// Options of sockets.
const OPTIONS: &[u64] = &[1, 2, 3, 4, 6, 7, 8, 9, 10, 13, 16, 17, 20, 21, 30, 31, 38, 39];
/// Protection bits.
const PROTECTION: &[u64] = &[1, 2, 4, 0x100_0000];
/// Flags of mmap(2).
const MAPPING: &[u64] = &[1, 2, 0x10, 0x20, 0x20, 0x100, 0x800, 0x2000, 0x4000, 0x8000, 0x10_0000];
/// Advice of madvise(2).
const ADVICE: &[u64] =
    &[0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25];
/// Priorities of ioprio_set(2), of each class.
const PRIORITIES: &[u64] = &[0, 1, 0x2000, 0x4000, 0x4007, 0x4008, 0x6000, 0x6001, 0x8000];
/// Modes of memory policies, with and without flags.
const POLICIES: &[u64] = &[0, 1, 2, 3, 4, 5, 6, 0x8001, 0x8002, 0x4003, 0x2002, 0xc002];
/// How long a mask of nodes is said to be.
const NODES: &[u64] = &[0, 1, 2, 4, 9, 64, 65, 129, 1025, 32769, 32770];
/// Flags of open(2).
const OPEN: &[u64] = &[
    1, 2, 0o100, 0o100, 0o200, 0o400, 0o1000, 0o2000, 0o4000, 0o10000, 0o40000, 0o200000, 0o400000,
    0o2000000, 0o10000000, 0o20200000,
];
/// Flags of the `*at` calls.
const AT: &[u64] = &[0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000];
/// Options of prctl(2).
const PRCTL: &[u64] = &[
    1, 2, 3, 4, 7, 8, 13, 14, 15, 16, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 35, 36, 37, 38, 39,
    40, 47,
];
/// Flags of clone(2) and unshare(2).
const CLONE: &[u64] = &[
    0x100,
    0x200,
    0x400,
    0x800,
    0x1000,
    0x2000,
    0x4000,
    0x8000,
    0x1_0000,
    0x2_0000, // namespaces of mounts, and below of names, of objects and of users
    0x4_0000,
    0x8_0000,
    0x10_0000,
    0x20_0000,
    0x100_0000,
    0x400_0000,
    0x800_0000,
    0x1000_0000,
    0x2000_0000, // namespaces of processes
    0x8000_0000,
];
/// Flags of mount(2).
const MOUNT: &[u64] =
    &[1, 2, 4, 8, 32, 64, 1024, 4096, 4096, 8192, 16384, 1 << 17, 1 << 18, 1 << 19, 1 << 20];
/// Flags of mount(2) that say how mounts propagate, with and without `MS_REC`.
const PROPAGATION: &[u64] = &[
    1 << 17,
    1 << 18,
    1 << 19,
    1 << 20,
    1 << 17 | 16384,
    1 << 18 | 16384,
    1 << 19 | 16384,
    1 << 20 | 16384,
];
/// Flags of open_tree(2): `OPEN_TREE_CLONE`, `OPEN_TREE_CLOEXEC`, `AT_RECURSIVE`, and of paths.
const TREE: &[u64] = &[1, 1, 0x8000, 0x8000, 0x8_0000, 0x1000, 0x100, 0x800];
/// Flags of move_mount(2), with `MOVE_MOUNT_SET_GROUP`.
const MOVE: &[u64] = &[1, 2, 4, 4, 4, 0x10, 0x20, 0x40, 0x100];
/// Attributes of fsmount(2).
const ATTRIBUTES: &[u64] = &[1, 2, 4, 8, 0x10, 0x20, 0x80, 0x20_0000];
/// Commands of bpf(2).
const PROGRAMS: &[u64] = &[0, 5, 5, 8, 9, 10, 11, 13, 15, 16, 28];
/// Requests of ptrace(2), but `PTRACE_TRACEME`: it would make the supervisor a tracer.
pub const TRACE: &[u64] = &[
    1, 2, 3, 4, 5, 6, 7, 7, 9, 12, 13, 14, 15, 16, 17, 24, 24, 30, 31, 32, 33, 0x4200, 0x4201,
    0x4202, 0x4203, 0x4204, 0x4205, 0x4206, 0x4207, 0x4208, 0x4209, 0x420a, 0x420b, 0x420c, 0x420d,
    0x420e, 0x420f,
];
/// Flags of send(2) and recv(2).
const MESSAGE: &[u64] = &[1, 2, 0x20, 0x40, 0x40, 0x40, 0x80, 0x100, 0x4000, 0x1_0000, 0x4000_0000];
/// Flags of splice(2).
const SPLICE: &[u64] = &[1, 2, 2, 4, 8];
/// Keys of System V objects: a few, so that processes find each other's.
const KEYS: &[u64] = &[0, 1, 2, 3];
/// Flags of the calls that find or make such an object.
const OBJECT: &[u64] = &[0o1000, 0o1000, 0o2000, 0o666, 0o600, 0o4000, 0o10000];
/// Flags of msgsnd(2) and msgrcv(2).
const MESSAGES: &[u64] = &[0o4000, 0o4000, 0o10000, 0o20000, 0o40000];
/// Commands of semctl(2).
const SEMAPHORE: &[u64] = &[0, 1, 2, 3, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
/// O_NONBLOCK and O_CLOEXEC, under the names of many calls.
const CREATION: &[u64] = &[0o4000, 0o2000000];

/// Name, number, kinds.
pub type Call = (&'static str, u64, &'static [ArgumentKind]);

/// Numbers that are never called, not even by chance: they would end the machine, or affect a Linux
/// host outside of the fuzzer. The lines give the reasons.
pub const FORBIDDEN: &[u64] = &[
    29, 30, 31, 64, 65, 66, 68, 69, 70, 71,
    220, // System V IPC: leaves objects behind on Linux
    240, 241, // names of POSIX queues: likewise
    62, 200, 234, 129, 297, 424, // signals: through the guarded entry only
    101, // ptrace
    155, 161, 165, 166, // pivot_root, chroot, mount, umount2
    163, 164, 227, 159, 305, // acct and the setting of clocks
    167, 168, 169, 170, 171, 172, 173, // swap, reboot, names, I/O ports
    174, 175, 176, 313, // modules
    246, 320, // kexec
    248, 249, 250, 256, 279, // keys, page migration
    272, 308, // unshare, setns
    298, 425, 426, 427, // perf, io_uring
    428, 429, 430, 431, 432, 433, 442, // the new mount calls
    60, 231, // exit: through the guarded entry only
    1010, 1011, // modes: a program in supervisor mode may do anything to the kernel
];

/// Calls of the kernel's table that none of the tables here has, each with the reason: for
/// crates/abi/tests/fuzzed.rs.
#[allow(dead_code)]
pub const ELSEWHERE: &[(u64, &str)] = &[
    (60, "the end of a thread: `Worker::next` makes it, seldom"),
    (231, "the end of a process: likewise"),
    (446, "`scenes.rs` restricts children: a worker that is restricted reaches nothing any more"),
    (1010, "a program in supervisor mode may do anything to the kernel; `modestorm` switches"),
    (1011, "likewise"),
];

/// Calls that take a process: only a harmless one.
pub const KILL: u64 = 62;
/// See [`KILL`].
pub const TKILL: u64 = 200;
/// See [`KILL`].
pub const TGKILL: u64 = 234;

/// See [`KILL`].
pub const QUEUE: u64 = 129;
/// See [`KILL`].
pub const TGQUEUE: u64 = 297;
/// Calls that change the process that an argument names.
pub const PRLIMIT: u64 = 302;
/// See [`PRLIMIT`].
pub const VM_WRITE: u64 = 311;
/// See [`PRLIMIT`].
pub const PTRACE: u64 = 101;
/// See [`PRLIMIT`]: what it returns is a way to send a signal.
pub const PIDFD_OPEN: u64 = 434;
/// With the command [`SET_OWNER`] its third argument names the process that gets a file's signals.
pub const FILE_CONTROL: u64 = 72;
/// `F_SETOWN`
pub const SET_OWNER: u64 = 8;
/// A number that no process has.
pub const NO_PROCESS: u64 = 0x3fff_fff0;
/// See [`KILL`]: the descriptor can only refer to the worker itself or its children.
pub const PIDFD_KILL: u64 = 424;
/// Takes a descriptor of another process; root could take those of process 1, by which it serves
/// the host.
pub const PIDFD_TAKE: u64 = 438;
/// The child borrows its parent's stack.
pub const VFORK: u64 = 58;
/// Its third argument names a file system.
pub const MOUNT_CALL: u64 = 165;

/// The table, by number.
pub const CALLS: &[Call] = &[
    ("read", 0, &[Fd, Mem, Len]),
    ("write", 1, &[Fd, Mem, Len]),
    ("open", 2, &[Path, Flags(OPEN), Mode]),
    ("close", 3, &[Fd]),
    ("stat", 4, &[Path, Mem]),
    ("fstat", 5, &[Fd, Mem]),
    ("lstat", 6, &[Path, Mem]),
    ("poll", 7, &[Mem, Small, Small]),
    ("lseek", 8, &[Fd, Pos, Small]),
    ("mmap", 9, &[Addr, Len, Flags(PROTECTION), Flags(MAPPING), Fd, Pos]),
    ("mprotect", 10, &[Addr, Len, Flags(PROTECTION)]),
    ("munmap", 11, &[Addr, Len]),
    ("brk", 12, &[Addr]),
    ("rt_sigaction", 13, &[Small, Mem, Mem, Of(&[8])]),
    ("rt_sigprocmask", 14, &[Of(&[0, 1, 2]), Mem, Mem, Of(&[8])]),
    ("rt_sigreturn", 15, &[]),
    ("ioctl", 16, &[Fd, Of(REQUESTS), Mem]),
    ("pread64", 17, &[Fd, Mem, Len, Pos]),
    ("pwrite64", 18, &[Fd, Mem, Len, Pos]),
    ("readv", 19, &[Fd, Vectors, Small]),
    ("writev", 20, &[Fd, Vectors, Small]),
    ("access", 21, &[Path, Small]),
    ("pipe", 22, &[Mem]),
    ("select", 23, &[Small, Mem, Mem, Mem, Time]),
    ("sched_yield", 24, &[]),
    ("mremap", 25, &[Addr, Len, Len, Of(&[0, 1, 3, 4, 5, 7]), Addr]),
    ("msync", 26, &[Addr, Len, Small]),
    ("mincore", 27, &[Addr, Len, Mem]),
    ("madvise", 28, &[Addr, Len, Of(ADVICE)]),
    ("dup", 32, &[Fd]),
    ("dup2", 33, &[Fd, Fd]),
    ("pause", 34, &[]),
    ("nanosleep", 35, &[Time, Mem]),
    ("getitimer", 36, &[Small, Mem]),
    ("alarm", 37, &[Small]),
    ("setitimer", 38, &[Small, Mem, Mem]),
    ("getpid", 39, &[]),
    ("sendfile", 40, &[Fd, Fd, Of(&[0]), Len]),
    ("socket", 41, &[Of(&[1]), Flags(&[1, 2, 5, 0o4000, 0o2000000]), Of(&[0])]),
    ("connect", 42, &[Fd, Address, Of(&[2, 3, 4, 6, 110])]),
    ("accept", 43, &[Fd, Mem, Mem]),
    ("sendto", 44, &[Fd, Mem, Len, Flags(MESSAGE), Address, Of(&[0, 3, 4, 6])]),
    ("recvfrom", 45, &[Fd, Mem, Len, Flags(MESSAGE), Mem, Mem]),
    ("sendmsg", 46, &[Fd, Message, Flags(MESSAGE)]),
    ("recvmsg", 47, &[Fd, Message, Flags(MESSAGE)]),
    ("shutdown", 48, &[Fd, Of(&[0, 1, 2, 3])]),
    ("bind", 49, &[Fd, Address, Of(&[2, 3, 4, 6, 110])]),
    ("listen", 50, &[Fd, Small]),
    ("getsockname", 51, &[Fd, Mem, Mem]),
    ("getpeername", 52, &[Fd, Mem, Mem]),
    ("socketpair", 53, &[Of(&[1]), Flags(&[1, 2, 5, 0o4000, 0o2000000]), Of(&[0]), Mem]),
    ("setsockopt", 54, &[Fd, Of(&[1]), Of(OPTIONS), Mem, Of(&[4, 8, 16])]),
    ("getsockopt", 55, &[Fd, Of(&[1]), Of(OPTIONS), Mem, Mem]),
    ("clone", 56, &[Flags(CLONE), Mem, Mem, Mem, Mem]),
    ("fork", 57, &[]),
    ("execve", 59, &[Path, Mem, Mem]),
    ("wait4", 61, &[Pid, Mem, Bits, Mem]),
    ("uname", 63, &[Mem]),
    ("fcntl", FILE_CONTROL, &[Fd, Of(FCNTL), Mem]),
    ("flock", 73, &[Fd, Small]),
    ("fsync", 74, &[Fd]),
    ("fdatasync", 75, &[Fd]),
    ("truncate", 76, &[Path, Pos]),
    ("ftruncate", 77, &[Fd, Pos]),
    ("getdents", 78, &[Fd, Mem, Len]),
    ("getcwd", 79, &[Mem, Len]),
    ("chdir", 80, &[Path]),
    ("fchdir", 81, &[Fd]),
    ("rename", 82, &[Path, Path]),
    ("mkdir", 83, &[Path, Mode]),
    ("rmdir", 84, &[Path]),
    ("creat", 85, &[Path, Mode]),
    ("link", 86, &[Path, Path]),
    ("unlink", 87, &[Path]),
    ("symlink", 88, &[Path, Path]),
    ("readlink", 89, &[Path, Mem, Len]),
    ("chmod", 90, &[Path, Mode]),
    ("fchmod", 91, &[Fd, Mode]),
    ("chown", 92, &[Path, Id, Id]),
    ("fchown", 93, &[Fd, Id, Id]),
    ("lchown", 94, &[Path, Id, Id]),
    ("umask", 95, &[Mode]),
    ("gettimeofday", 96, &[Mem, Mem]),
    ("getrlimit", 97, &[Small, Mem]),
    ("getrusage", 98, &[Small, Mem]),
    ("sysinfo", 99, &[Mem]),
    ("times", 100, &[Mem]),
    ("getuid", 102, &[]),
    // Actions that read without waiting, and none that hides messages.
    ("syslog", 103, &[Of(&[3, 9, 10]), Mem, Len]),
    ("setuid", 105, &[Id]),
    ("setgid", 106, &[Id]),
    ("geteuid", 107, &[]),
    ("setpgid", 109, &[Pid, Pid]),
    ("getppid", 110, &[]),
    ("getpgrp", 111, &[]),
    ("setsid", 112, &[]),
    ("setreuid", 113, &[Id, Id]),
    ("setregid", 114, &[Id, Id]),
    ("getgroups", 115, &[Small, Mem]),
    ("setgroups", 116, &[Small, Mem]),
    ("setresuid", 117, &[Id, Id, Id]),
    ("getresuid", 118, &[Mem, Mem, Mem]),
    ("setresgid", 119, &[Id, Id, Id]),
    ("getresgid", 120, &[Mem, Mem, Mem]),
    ("getpgid", 121, &[Pid]),
    ("setfsuid", 122, &[Id]),
    ("setfsgid", 123, &[Id]),
    ("getsid", 124, &[Pid]),
    ("capget", 125, &[Mem, Mem]),
    ("rt_sigpending", 127, &[Mem, Of(&[8])]),
    ("rt_sigtimedwait", 128, &[Mem, Mem, Time, Of(&[8])]),
    ("rt_sigsuspend", 130, &[Mem, Of(&[8])]),
    ("sigaltstack", 131, &[Mem, Mem]),
    ("utime", 132, &[Path, Mem]),
    ("mknod", 133, &[Path, Mode, Small]),
    ("personality", 135, &[Bits]),
    ("ustat", 136, &[Any, Mem]),
    ("statfs", 137, &[Path, Mem]),
    ("fstatfs", 138, &[Fd, Mem]),
    ("getpriority", 140, &[Small, Pid]),
    ("setpriority", 141, &[Small, Pid, Small]),
    ("sched_setparam", 142, &[Pid, Mem]),
    ("sched_getparam", 143, &[Pid, Mem]),
    ("sched_setscheduler", 144, &[Pid, Small, Mem]),
    ("sched_getscheduler", 145, &[Pid]),
    ("sched_get_priority_max", 146, &[Small]),
    ("sched_rr_get_interval", 148, &[Pid, Mem]),
    ("mlock", 149, &[Addr, Len]),
    ("munlock", 150, &[Addr, Len]),
    ("mlockall", 151, &[Small]),
    ("munlockall", 152, &[]),
    ("vhangup", 153, &[]),
    ("prctl", 157, &[Of(PRCTL), Mem, Any, Any, Any]),
    ("arch_prctl", 158, &[Of(&[0x1001, 0x1002, 0x1003, 0x1004, 0x1011, 0x1012]), Mem]),
    ("setrlimit", 160, &[Small, Mem]),
    ("gettid", 186, &[]),
    ("readahead", 187, &[Fd, Pos, Len]),
    ("setxattr", 188, &[Path, Path, Mem, Len, Small]),
    ("getxattr", 191, &[Path, Path, Mem, Len]),
    ("listxattr", 194, &[Path, Mem, Len]),
    ("time", 201, &[Mem]),
    ("futex", 202, &[Mem, Of(FUTEX), Small, Time, Mem, Any]),
    ("sched_setaffinity", 203, &[Pid, Len, Mem]),
    ("sched_getaffinity", 204, &[Pid, Len, Mem]),
    ("epoll_create", 213, &[Small]),
    ("getdents64", 217, &[Fd, Mem, Len]),
    ("set_tid_address", 218, &[Mem]),
    ("restart_syscall", 219, &[]),
    ("fadvise64", 221, &[Fd, Pos, Len, Small]),
    ("timer_create", 222, &[Small, Mem, Mem]),
    ("timer_settime", 223, &[Small, Small, Mem, Mem]),
    ("timer_gettime", 224, &[Small, Mem]),
    ("timer_getoverrun", 225, &[Small]),
    ("timer_delete", 226, &[Small]),
    ("clock_gettime", 228, &[Small, Mem]),
    ("clock_getres", 229, &[Small, Mem]),
    ("clock_nanosleep", 230, &[Small, Small, Time, Mem]),
    ("epoll_wait", 232, &[Fd, Mem, Small, Small]),
    ("epoll_ctl", 233, &[Fd, Of(&[1, 2, 3]), Fd, Mem]),
    ("utimes", 235, &[Path, Mem]),
    ("mbind", 237, &[Addr, Len, Of(POLICIES), Mem, Of(NODES), Flags(&[1, 2, 4])]),
    ("set_mempolicy", 238, &[Of(POLICIES), Mem, Of(NODES)]),
    ("get_mempolicy", 239, &[Mem, Mem, Of(NODES), Addr, Of(&[0, 1, 2, 2, 3, 4])]),
    ("waitid", 247, &[Small, Pid, Mem, Bits, Mem]),
    ("ioprio_set", 251, &[Of(&[1, 2]), Pid, Of(PRIORITIES)]),
    ("ioprio_get", 252, &[Of(&[1, 2, 3]), Pid]),
    ("inotify_init", 253, &[]),
    ("inotify_add_watch", 254, &[Fd, Path, Bits]),
    ("inotify_rm_watch", 255, &[Fd, Small]),
    ("openat", 257, &[DirFd, Path, Flags(OPEN), Mode]),
    ("mkdirat", 258, &[DirFd, Path, Mode]),
    ("mknodat", 259, &[DirFd, Path, Mode, Small]),
    ("fchownat", 260, &[DirFd, Path, Id, Id, Bits]),
    ("newfstatat", 262, &[DirFd, Path, Mem, Flags(AT)]),
    ("unlinkat", 263, &[DirFd, Path, Of(&[0, 0x200])]),
    ("renameat", 264, &[DirFd, Path, DirFd, Path]),
    ("linkat", 265, &[DirFd, Path, DirFd, Path, Flags(AT)]),
    ("symlinkat", 266, &[Path, DirFd, Path]),
    ("readlinkat", 267, &[DirFd, Path, Mem, Len]),
    ("fchmodat", 268, &[DirFd, Path, Mode]),
    ("faccessat", 269, &[DirFd, Path, Small]),
    ("pselect6", 270, &[Small, Mem, Mem, Mem, Time, Mem]),
    ("ppoll", 271, &[Mem, Small, Time, Mem, Small]),
    ("set_robust_list", 273, &[Mem, Small]),
    ("get_robust_list", 274, &[Pid, Mem, Mem]),
    ("splice", 275, &[Fd, Of(&[0]), Fd, Of(&[0]), Len, Flags(SPLICE)]),
    ("tee", 276, &[Fd, Fd, Len, Flags(SPLICE)]),
    ("sync_file_range", 277, &[Fd, Pos, Len, Bits]),
    ("vmsplice", 278, &[Fd, Vectors, Small, Flags(SPLICE)]),
    ("utimensat", 280, &[DirFd, Path, Mem, Bits]),
    ("epoll_pwait", 281, &[Fd, Mem, Small, Small, Mem, Small]),
    ("signalfd", 282, &[Fd, Mem, Small]),
    ("timerfd_create", 283, &[Of(&[0, 1, 7]), Flags(CREATION)]),
    ("eventfd", 284, &[Small]),
    ("fallocate", 285, &[Fd, Small, Pos, Pos]),
    ("timerfd_settime", 286, &[Fd, Small, Mem, Mem]),
    ("timerfd_gettime", 287, &[Fd, Mem]),
    ("accept4", 288, &[Fd, Mem, Mem, Flags(CREATION)]),
    ("signalfd4", 289, &[Fd, Mem, Of(&[8]), Flags(CREATION)]),
    ("eventfd2", 290, &[Small, Flags(&[1, 0o4000, 0o2000000])]),
    ("epoll_create1", 291, &[Flags(CREATION)]),
    ("dup3", 292, &[Fd, Fd, Flags(CREATION)]),
    ("pipe2", 293, &[Mem, Flags(CREATION)]),
    ("inotify_init1", 294, &[Flags(CREATION)]),
    ("preadv", 295, &[Fd, Vectors, Small, Pos, Pos]),
    ("pwritev", 296, &[Fd, Vectors, Small, Pos, Pos]),
    ("recvmmsg", 299, &[Fd, Mem, Small, Bits, Time]),
    ("prlimit64", PRLIMIT, &[Pid, Small, Mem, Mem]),
    ("name_to_handle_at", 303, &[DirFd, Path, Mem, Mem, Flags(AT)]),
    ("open_by_handle_at", 304, &[Fd, Mem, Flags(OPEN)]),
    ("syncfs", 306, &[Fd]),
    ("sendmmsg", 307, &[Fd, Mem, Small, Bits]),
    ("getcpu", 309, &[Mem, Mem, Mem]),
    ("process_vm_readv", 310, &[Pid, Vectors, Small, Vectors, Small, Small]),
    ("kcmp", 312, &[Pid, Pid, Of(&[0, 0, 1, 2, 3, 4, 5, 6, 8]), Fd, Fd]),
    ("kcmp", 312, &[Pid, Pid, Of(&[7]), Fd, Mem]),
    ("renameat2", 316, &[DirFd, Path, DirFd, Path, Small]),
    ("seccomp", 317, &[Of(&[1, 1, 2, 3]), Flags(&[1, 2, 4, 8, 16, 32]), Mem]),
    ("getrandom", 318, &[Mem, Len, Small]),
    ("memfd_create", 319, &[Path, Small]),
    ("execveat", 322, &[DirFd, Path, Mem, Mem, Bits]),
    ("membarrier", 324, &[Of(&[0, 1, 2, 4, 8, 16, 32, 64, 128, 256]), Of(&[0, 1]), Small]),
    ("userfaultfd", 323, &[Flags(&[1, 1, 0o4000, 0o2000000])]),
    ("mlock2", 325, &[Addr, Len, Small]),
    ("copy_file_range", 326, &[Fd, Of(&[0]), Fd, Of(&[0]), Len, Of(&[0])]),
    ("preadv2", 327, &[Fd, Vectors, Small, Pos, Pos, Bits]),
    ("pwritev2", 328, &[Fd, Vectors, Small, Pos, Pos, Bits]),
    ("statx", 332, &[DirFd, Path, Flags(AT), Bits, Mem]),
    ("landlock_create_ruleset", 444, &[Mem, Of(&[8]), Of(&[0, 0, 1])]),
    ("landlock_add_rule", 445, &[Fd, Of(&[1]), Mem, Of(&[0])]),
    ("rseq", 334, &[Mem, Of(&[32]), Of(&[0, 0, 1]), Of(&[0x5305_3053])]),
    ("mq_timedsend", 242, &[Fd, Mem, Of(&[0, 1, 100, 8192]), Of(&[0, 1, 9, 32767, 32768]), Time]),
    ("mq_timedreceive", 243, &[Fd, Mem, Of(&[8192, 8192, 8191, 1 << 40]), Mem, Time]),
    ("mq_notify", 244, &[Fd, Notification]),
    ("mq_getsetattr", 245, &[Fd, Mem, Mem]),
    ("pidfd_open", PIDFD_OPEN, &[Pid, Small]),
    ("clone3", 435, &[CloneArguments, Of(&[64, 80, 88])]),
    ("close_range", 436, &[Fd, Fd, Small]),
    ("openat2", 437, &[DirFd, Path, Mem, Len]),
    ("pidfd_getfd", PIDFD_TAKE, &[Fd, Fd, Of(&[0])]),
    ("faccessat2", 439, &[DirFd, Path, Small, Bits]),
    ("process_mrelease", 448, &[Fd, Of(&[0])]),
    ("process_madvise", 440, &[Fd, Vectors, Small, Of(&[3, 20, 21, 4, 25]), Of(&[0])]),
    ("epoll_pwait2", 441, &[Fd, Mem, Small, Time, Mem, Small]),
    ("futex_waitv", 449, &[Words, Of(&[1, 2, 3, 4]), Of(&[0]), Time, Of(&[0, 1])]),
    ("set_mempolicy_home_node", 450, &[Addr, Len, Of(&[0, 0, 1]), Of(&[0])]),
    ("vfork", VFORK, &[]),
    ("getgid", 104, &[]),
    ("getegid", 108, &[]),
    ("capset", 126, &[Mem, Mem]),
    ("sched_get_priority_min", 147, &[Small]),
    ("lsetxattr", 189, &[Path, Path, Mem, Len, Small]),
    ("fsetxattr", 190, &[Fd, Path, Mem, Len, Small]),
    ("lgetxattr", 192, &[Path, Path, Mem, Len]),
    ("fgetxattr", 193, &[Fd, Path, Mem, Len]),
    ("llistxattr", 195, &[Path, Mem, Len]),
    ("flistxattr", 196, &[Fd, Mem, Len]),
    ("removexattr", 197, &[Path, Path]),
    ("lremovexattr", 198, &[Path, Path]),
    ("fremovexattr", 199, &[Fd, Path]),
    ("futimesat", 261, &[DirFd, Path, Mem]),
    ("process_vm_writev", VM_WRITE, &[Pid, Vectors, Small, Vectors, Small, Of(&[0])]),
    ("sched_setattr", 314, &[Pid, Mem, Of(&[0])]),
    ("sched_getattr", 315, &[Pid, Mem, Len, Of(&[0])]),
    ("pkey_mprotect", 329, &[Addr, Len, Flags(PROTECTION), Any]),
    ("pkey_alloc", 330, &[Of(&[0]), Of(&[0, 1, 2])]),
    ("pkey_free", 331, &[Small]),
    ("rt_sigqueueinfo", QUEUE, &[Pid, Small, Mem]),
    ("rt_tgsigqueueinfo", TGQUEUE, &[Pid, Pid, Small, Mem]),
    ("pidfd_send_signal", PIDFD_KILL, &[Fd, Small, Of(&[0]), Of(&[0])]),
    ("io_setup", 206, &[Of(&[1, 2, 16, 128, 70000]), Mem]),
    ("io_destroy", 207, &[Any]),
    ("io_getevents", 208, &[Any, Of(&[0, 1]), Of(&[0, 1, 8]), Mem, Time]),
    ("io_submit", 209, &[Any, Of(&[0, 1, 2, 3]), Requests]),
    ("io_cancel", 210, &[Any, Mem, Mem]),
    ("io_pgetevents", 333, &[Any, Of(&[0, 1]), Of(&[0, 1, 8]), Mem, Time, Mem]),
    ("ptrace", PTRACE, &[Of(TRACE), Pid, Mem, Mem]),
    ("bpf", 321, &[Of(PROGRAMS), Mem, Of(&[8, 12, 16, 40, 48, 72, 120, 128])]),
    ("hayate_space_open", 1000, &[Small, Of(&[0, 0, 0, 1])]),
    ("hayate_program_open", 1001, &[DirFd, Path, Of(&[0, 0, 0, 1])]),
    ("hayate_change_space", 1002, &[Fd, Of(&[0, 0, 0, 1])]),
    ("hayate_change_program", 1003, &[Fd, Mem, Of(&[0, 0, 0, 1])]),
    ("hayate_change_position", 1004, &[Mem, Of(&[16, 32, 48, 64])]),
    ("hayate_change", 1005, &[Mem, Of(&[32, 48, 64, 128])]),
    ("kill", KILL, &[Pid, Small]),
    ("tkill", TKILL, &[Pid, Small]),
    ("tgkill", TGKILL, &[Pid, Pid, Small]),
];

/// Calls that need a machine of their own: they change state that all processes share.
pub const MACHINE_CALLS: &[Call] = &[
    ("pivot_root", 155, &[Path, Path]),
    ("adjtimex", 159, &[Mem]),
    ("chroot", 161, &[Path]),
    ("sync", 162, &[]),
    ("settimeofday", 164, &[Mem, Of(&[0])]),
    ("mount", 165, &[Path, Mount, Of(&[]), Flags(MOUNT), Of(&[0])]),
    ("umount2", 166, &[Mount, Flags(&[1, 2, 4, 8])]),
    ("reboot", 169, &[Small, Small, Small, Mem]),
    ("sethostname", 170, &[Mem, Of(&[0, 1, 5, 64, 65])]),
    ("setdomainname", 171, &[Mem, Of(&[0, 1, 5, 64, 65])]),
    ("clock_settime", 227, &[Small, Mem]),
    ("unshare", 272, &[Flags(CLONE)]),
    ("setns", 308, &[Fd, Flags(CLONE)]),
    ("shmget", 29, &[Of(KEYS), Of(&[1, 4096, 65536, 1 << 40]), Flags(OBJECT)]),
    ("shmat", 30, &[Small, Addr, Flags(&[0o10000, 0o20000, 0o40000, 0o100000])]),
    ("shmctl", 31, &[Small, Of(&[0, 1, 2, 3, 11, 12, 13, 14, 15]), Mem]),
    ("semget", 64, &[Of(KEYS), Of(&[1, 2, 40, 32000]), Flags(OBJECT)]),
    ("semop", 65, &[Small, Mem, Of(&[1, 2, 3, 500])]),
    ("semctl", 66, &[Small, Small, Of(SEMAPHORE), Mem]),
    ("shmdt", 67, &[Addr]),
    ("msgget", 68, &[Of(KEYS), Flags(OBJECT)]),
    ("msgsnd", 69, &[Small, Mem, Of(&[0, 1, 100, 8192, 8193]), Flags(MESSAGES)]),
    ("msgrcv", 70, &[Small, Mem, Of(&[0, 1, 100, 8192]), Any, Flags(MESSAGES)]),
    ("msgctl", 71, &[Small, Of(&[0, 1, 2, 3, 11, 12, 13]), Mem]),
    ("mq_open", 240, &[Queue, Flags(OPEN), Mode, Of(&[0])]),
    ("mq_unlink", 241, &[Queue]),
    ("semtimedop", 220, &[Small, Mem, Of(&[1, 2, 3, 500]), Time]),
    ("clock_adjtime", 305, &[Small, Mem]),
    ("acct", 163, &[Path]),
    ("hayate_template_ready", 1020, &[Mem, Of(&[16, 24, 32, 64])]),
    ("hayate_template_start", 1021, &[Template, Mem, Mem]),
    ("hayate_template_remove", 1022, &[Template, Of(&[0, 65534, 1000])]),
    ("hayate_template_bind", 1023, &[Path, Template]),
    ("migrate_pages", 256, &[Pid, Of(NODES), Mem, Mem]),
    ("move_pages", 279, &[Pid, Small, Vectors, Of(&[0]), Mem, Flags(&[2, 4])]),
    ("move_pages", 279, &[Pid, Small, Vectors, Mem, Mem, Flags(&[2, 4])]),
];

/// Calls about mounts, for workers that have mounts of their own.
pub const MOUNT_CALLS: &[Call] = &[
    ("pivot_root", 155, &[Place, Place]),
    ("chroot", 161, &[Place]),
    ("mount", MOUNT_CALL, &[Path, Place, FileSystem, Flags(MOUNT), Options]),
    ("mount", MOUNT_CALL, &[Place, Place, Of(&[0]), Of(&[4096, 4096 | 16384, 8192]), Of(&[0])]),
    ("mount", MOUNT_CALL, &[Of(&[0]), Place, Of(&[0]), Of(PROPAGATION), Of(&[0])]),
    ("umount2", 166, &[Place, Flags(&[1, 2, 2, 4, 8])]),
    ("open_tree", 428, &[DirFd, Place, Flags(TREE)]),
    ("move_mount", 429, &[DirFd, Place, DirFd, Place, Flags(MOVE)]),
    ("fsopen", 430, &[FileSystem, Of(&[0, 1])]),
    ("fsconfig", 431, &[Fd, Of(&[0, 1, 2, 3, 4, 5, 6, 6]), Options, Options, Of(&[0, 0, 3])]),
    ("fsmount", 432, &[Fd, Of(&[0, 1]), Flags(ATTRIBUTES)]),
    (
        "mount_setattr",
        442,
        &[DirFd, Place, Flags(&[0x8000, 0x1000, 0x100]), MountAttributes, Of(&[32, 32, 40])],
    ),
];

/// And for those whose mounts are also of a user namespace of their own: what these calls change
/// of a file system shows in all of its mounts.
pub const REMOUNT_CALLS: &[Call] = &[
    ("fspick", 433, &[DirFd, Place, Flags(&[1, 2, 4, 8])]),
    ("fsconfig", 431, &[Fd, Of(&[7]), Of(&[0]), Of(&[0]), Of(&[0])]),
    ("mount", MOUNT_CALL, &[Of(&[0]), Place, Of(&[0]), Of(&[32, 33, 32 + 14]), Options]),
];
