//! A worker: a process that makes random system calls until its calls are used up or it dies.

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hayate_stress::{Random, become_nobody, limit};

use crate::calls::{
    ArgumentKind, CALLS, FILE_CONTROL, FORBIDDEN, KILL, MACHINE_CALLS, MOUNT_CALL, NO_PROCESS,
    PIDFD_KILL, PIDFD_OPEN, PIDFD_TAKE, PRLIMIT, PTRACE, QUEUE, SET_OWNER, TGKILL, TGQUEUE, TKILL,
    VM_WRITE,
};

/// A program to execute: an ELF header, one segment, and `exit(42)` (elf(5)).
const PROGRAM: &[u8] = &[
    0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 62, 0, 1, 0, 0, 0, 0x78, 0,
    0x40, 0, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 56, 0,
    1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0,
    0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0x84, 0, 0, 0, 0, 0, 0, 0, 0x84, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0,
    0, 0, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0xbf, 42, 0, 0, 0, 0x0f, 0x05,
];

/// The counts of a worker's calls, in memory shared with the supervisor.
pub struct Slot {
    /// Number of calls made.
    pub calls: AtomicU64,
    /// Number of the last call that was started.
    pub last: AtomicU64,
}

const ARENA: usize = 256 * 1024;
const PATHS: &[&[u8]] = &[
    b"a\0",
    b"b\0",
    b"c\0",
    b"dir\0",
    b"dir/a\0",
    b"dir/b\0",
    b"dir/../a\0",
    b"dir/sub\0",
    b"link\0",
    b"loop\0",
    b"prog\0",
    b"fifo\0",
    b".\0",
    b"..\0",
    b"\0",
    b"none/x\0",
    b"a/x\0",
    b"dir/\0",
    b"/dev/null\0",
    b"/dev/zero\0",
    b"/dev/full\0",
    b"/dev/urandom\0",
    b"/dev/ptmx\0",
    b"/dev/tty\0",
    b"/proc/self/maps\0",
    b"/proc/self/stat\0",
    b"/proc/self/status\0",
    b"/proc/self/uid_map\0",
    b"/proc/self/gid_map\0",
    b"/proc/self/setgroups\0",
    b"/proc/self/ns/user\0",
    b"/proc/self/fd\0",
    b"/proc/meminfo\0",
    b"/proc\0",
    b"user.name\0",
];
/// How many paths may be given to calls that change or remove files: relative ones only.
const OWN_PATHS: usize = 18;
/// Names of message queues, as the system call takes them.
const QUEUES: &[&[u8]] = &[b"a\0", b"b\0", b"c\0", b"\0", b"a/b\0", b".\0"];
/// The file systems for the fuzzer's mount point.
const FILE_SYSTEMS: &[&[u8]] = &[
    b"mqueue\0",
    b"tmpfs\0",
    b"proc\0",
    b"devpts\0",
    b"devtmpfs\0",
    b"overlay\0",
    b"ext4\0",
    b"sysfs\0",
    b"\0",
];
/// The path for [`ArgumentKind::Mount`], beside the directories of the workers.
pub static MOUNT_POINT: OnceLock<CString> = OnceLock::new();

/// Makes the raw call; returns the kernel's result.
#[inline(never)]
fn call(number: u64, a: &[u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: none can be guaranteed: the calls may do anything to this process. It is a worker
    // that may be lost, has no state of value, and its parent does not trust it.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a[0],
            in("rsi") a[1],
            in("rdx") a[2],
            in("r10") a[3],
            in("r8") a[4],
            in("r9") a[5],
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

#[derive(Clone)]
struct Worker {
    random: Random,
    /// Whether it has root's privilege in a machine of its own.
    privileged: bool,
    arena: u64,
    /// A second mapping of the arena, at an address that is never passed to a call.
    alias: u64,
    read_only: u64,
    nothing: u64,
    pid: i32,
}

impl Worker {
    fn map(prot: i32, kind: i32, size: usize) -> u64 {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), size, prot, kind | libc::MAP_ANONYMOUS, -1, 0)
        };
        at as u64
    }

    /// Fills a random piece of the arena with plausible data and returns its address.
    fn fresh(&mut self, size: u64) -> u64 {
        let at = self.arena + (self.random.below(ARENA as u64 - 4096) & !7);
        for i in 0..size.div_ceil(8) {
            let value = match self.random.below(5) {
                0 => 0,
                1 => self.random.below(64),
                2 => self.arena + self.random.below(ARENA as u64),
                3 => self.random.bits(),
                _ => self.number(),
            };
            let offset = (at - self.arena + i * 8) as usize;
            // SAFETY: `offset + 8` is within the arena, whose second mapping only this function
            // knows. If a call has removed even that, the fault ends a worker, which is acceptable.
            unsafe { std::ptr::write_volatile((self.alias as usize + offset) as *mut u64, value) };
        }
        at
    }

    fn number(&mut self) -> u64 {
        match self.random.below(8) {
            0 => 0,
            1 => 1,
            2 => u64::MAX - self.random.below(4096),
            3 => 1 << self.random.below(64),
            4 => (1u64 << self.random.below(64)).wrapping_sub(1),
            5 => self.random.below(256),
            6 => 4096 * self.random.below(64),
            _ => self.random.bits() >> self.random.below(64),
        }
    }

    fn memory(&mut self) -> u64 {
        match self.random.below(20) {
            0 => 0,
            1 => self.read_only + self.random.below(4096),
            2 => self.nothing + self.random.below(8192),
            3 => 0xffff_ffff_8000_0000u64.wrapping_add(self.random.bits() & 0xfff_ffff),
            4 => 0xffff_8000_0000_0000 | (self.random.bits() >> 20),
            5 => self.number(),
            6 => self.arena + ARENA as u64 - self.random.below(64),
            7..=12 => self.fresh(128),
            _ => self.arena + self.random.below(ARENA as u64 - 64),
        }
    }

    /// Returns an address for mappings: mostly a page of the arena.
    fn page(&mut self) -> u64 {
        match self.random.below(6) {
            0 => 0,
            1 => self.read_only,
            2 => self.nothing,
            3 => self.memory(),
            4 => self.random.bits() & 0x7fff_ffff_f000,
            _ => self.arena + 4096 * self.random.below(ARENA as u64 / 4096),
        }
    }

    fn argument(&mut self, kind: ArgumentKind, changes: bool) -> u64 {
        if self.random.one_in(24) {
            return self.number();
        }
        match kind {
            ArgumentKind::Fd => match self.random.below(8) {
                0 => u64::MAX,
                1 => self.random.below(300),
                _ => 3 + self.random.below(24),
            },
            ArgumentKind::DirFd if self.random.one_in(3) => 3 + self.random.below(24),
            ArgumentKind::DirFd => (-100i64) as u64,
            ArgumentKind::Path if self.random.one_in(16) => self.memory(),
            ArgumentKind::Path => {
                let choice = if changes { OWN_PATHS } else { PATHS.len() };
                PATHS[self.random.below(choice as u64) as usize].as_ptr() as u64
            }
            ArgumentKind::Mem => self.memory(),
            ArgumentKind::Addr => self.page(),
            ArgumentKind::Len => match self.random.below(6) {
                0 => self.number(),
                1 => 4096 * self.random.below(32),
                2 => self.random.below(100_000),
                _ => self.random.below(4096),
            },
            ArgumentKind::Pos if self.random.one_in(8) => self.number(),
            ArgumentKind::Pos => self.random.below(1 << 20),
            ArgumentKind::Bits => match self.random.below(4) {
                0 => 0,
                1 => 1 << self.random.below(32),
                2 => (1 << self.random.below(32)) | (1 << self.random.below(32)),
                _ => self.random.bits() & self.random.bits() & 0xffff_ffff,
            },
            ArgumentKind::Small => self.random.below(40),
            ArgumentKind::Mode => {
                (self.random.bits() & 0o777)
                    | self.random.pick(&[0, 0, 0, 0o10_0000, 0o1_0000, 0o14_0000, 0o7000])
            }
            ArgumentKind::Pid => {
                self.random.pick(&[0, self.pid as u64, self.pid as u64, NO_PROCESS])
            }
            ArgumentKind::Time => {
                let at = self.fresh(16);
                if self.random.one_in(4) { 0 } else { at }
            }
            ArgumentKind::Vectors => self.fresh(256),
            ArgumentKind::Id => self.random.pick(&[0, 1, 1000, 65534, u64::MAX, self.pid as u64]),
            ArgumentKind::Any => self.number(),
            ArgumentKind::Of([]) => self.number(),
            ArgumentKind::Of(values) => self.random.pick(values),
            ArgumentKind::Flags(values) => {
                (0..self.random.below(4)).fold(0, |bits, _| bits | self.random.pick(values))
            }
            ArgumentKind::Address => self.address(),
            ArgumentKind::Message => self.message(),
            ArgumentKind::CloneArguments => self.clone_arguments(),
            ArgumentKind::Queue => self.random.pick(QUEUES).as_ptr() as u64,
            ArgumentKind::Notification => self.notification(),
            ArgumentKind::Words => self.words(),
            ArgumentKind::Mount => MOUNT_POINT.get().map_or(0, |path| path.as_ptr() as u64),
        }
    }

    /// Writes `struct clone_args`, and returns its address.
    fn clone_arguments(&mut self) -> u64 {
        let at = self.fresh(88);
        let flags = self.argument(ArgumentKind::Flags(CLONE_FLAGS), false);
        let signal = self.random.pick(&[0, 17, 17, 17, 23]);
        let stack = self.arena + self.random.below(ARENA as u64 / 2);
        let values = [flags, 0, 0, 0, signal, stack, 65536, 0, 0, 0, 0];
        for (i, value) in values.into_iter().enumerate() {
            if i < 5 || self.random.one_in(2) {
                self.put(at + i as u64 * 8, value);
            }
        }
        at
    }

    /// Writes a word of the arena through its second mapping, which only the worker knows. If a
    /// call has removed even that, the fault ends a worker, which is acceptable.
    fn put(&self, at: u64, value: u64) {
        let offset = at.wrapping_sub(self.arena) as usize;
        if offset < ARENA - 8 {
            // SAFETY: `offset + 8` is within the mapping.
            unsafe {
                std::ptr::write_unaligned((self.alias as usize + offset) as *mut u64, value);
            }
        }
    }

    /// Returns a `struct sockaddr_un`: a short name, abstract or not.
    fn address(&mut self) -> u64 {
        let at = self.fresh(16);
        let name = self.random.pick(&[0x61u64, 0x62, 0x6100, 0x6200, 0x66_6966]);
        self.put(at, 1 | name << 16);
        self.put(at + 8, 0);
        at
    }

    /// Returns a `struct msghdr` with up to three vectors, and often SCM_RIGHTS.
    fn message(&mut self) -> u64 {
        let (at, vectors, control) = (self.fresh(56), self.fresh(48), self.fresh(64));
        for i in 0..3 {
            let piece = self.arena + self.random.below(ARENA as u64 / 2);
            self.put(vectors + i * 16, piece);
            let length = self.random.below(9000);
            self.put(vectors + i * 16 + 8, length);
        }
        let descriptors = self.random.below(8);
        self.put(control, 16 + 4 * descriptors);
        let kind = self.random.pick(&[1u64, 1, 1, 2]);
        self.put(control + 8, 1 | kind << 32);
        for i in 0..4 {
            let pair = (3 + self.random.below(24)) | (3 + self.random.below(24)) << 32;
            self.put(control + 16 + i * 8, pair);
        }
        let named = if self.random.one_in(4) { self.address() } else { 0 };
        let controlled = if self.random.one_in(2) { control } else { 0 };
        let count = self.random.below(4);
        let room = self.random.pick(&[0u64, 16 + 4 * descriptors, 64, 12]);
        for (i, value) in [named, 6, vectors, count, controlled, room, 0].into_iter().enumerate() {
            self.put(at + i as u64 * 8, value);
        }
        at
    }

    /// Returns four `struct futex_waitv`, mostly of words that hold what is expected.
    fn words(&mut self) -> u64 {
        const SIZE_32: u64 = 2;
        const PRIVATE: u64 = 128;
        let at = self.fresh(4 * 24);
        for i in 0..4 {
            let word = self.arena + (self.random.below(ARENA as u64) & !3);
            let value = self.random.pick(&[0u64, 0, 0, 1]);
            let flags = self.random.pick(&[SIZE_32, SIZE_32 | PRIVATE, SIZE_32 | PRIVATE, PRIVATE]);
            for (place, value) in [value, word, flags].into_iter().enumerate() {
                self.put(at + i * 24 + place as u64 * 8, value);
            }
        }
        at
    }

    /// Makes a call that changes another process one of the worker itself: root may take the memory
    /// of process 1 away, and the machine ends with it, or send the supervisor a signal.
    fn spare_others(&self, number: u64, a: &mut [u64; 6]) {
        let own = self.pid as u64;
        let at = match number & 0xffff_ffff {
            PRLIMIT | VM_WRITE | PIDFD_OPEN => 0,
            FILE_CONTROL if a[1] & 0xffff_ffff == SET_OWNER => 2,
            PTRACE => 1,
            PIDFD_TAKE if self.privileged => {
                a[0] = u64::MAX;
                return;
            }
            _ => return,
        };
        if !matches!(a[at], 0 | NO_PROCESS) {
            a[at] = own;
        }
    }

    /// Returns a `struct sigevent` of a way that message queues know, or none.
    fn notification(&mut self) -> u64 {
        let at = self.fresh(64);
        let (cookie, number) = (self.memory(), self.random.below(66));
        let way = self.random.pick(&[0u64, 0, 1, 2, 2, 17]);
        self.put(at, cookie);
        self.put(at + 8, number | way << 32);
        if self.random.one_in(3) { 0 } else { at }
    }

    /// Makes `left` calls.
    fn run(&mut self, seed: u64, mut left: u64, trace: bool, slot: &Slot) {
        while left > 0 {
            let (name, number, a) = self.next();
            slot.last.store(number, Ordering::Relaxed);
            slot.calls.fetch_add(1, Ordering::Relaxed);
            if trace {
                eprintln!("{seed:#x}: {name} {number} {a:x?}");
            }
            let result = call(number, &a);
            if trace {
                eprintln!("{seed:#x}:   = {result}");
            }
            left -= 1;
            // A child made by fork or clone makes a few more calls.
            if matches!(number, 56..=58 | 435) && result == 0 {
                left = left.min(30);
                self.random = Random::new(seed ^ left);
            }
        }
    }

    fn next(&mut self) -> (&'static str, u64, [u64; 6]) {
        let mut a = [0; 6];
        if self.random.one_in(50) {
            // Any number at all, and any arguments.
            let number = if self.random.one_in(4) {
                self.random.bits() >> self.random.below(64)
            } else {
                self.random.below(470)
            };
            if !FORBIDDEN.contains(&(number & 0xffff_ffff)) && number != 58 {
                for slot in &mut a {
                    *slot = if self.random.one_in(2) { self.memory() } else { self.number() };
                }
                self.spare_others(number, &mut a);
                return ("?", number, a);
            }
        }
        if self.random.one_in(2000) {
            // The end of one thread, or of all threads.
            return ("exit", self.random.pick(&[60, 231]), a);
        }
        let table = if self.privileged && self.random.one_in(16) { MACHINE_CALLS } else { CALLS };
        let (name, number, kinds) = self.random.pick(table);
        let changes = matches!(number, 2 | 76 | 82..=88 | 90 | 92 | 94 | 132 | 133 | 155 | 161 | 188 | 189 | 197 | 198 | 235 | 257..=261 | 263..=268 | 280 | 316 | 437);
        for (slot, kind) in a.iter_mut().zip(kinds) {
            *slot = self.argument(*kind, changes);
        }
        self.spare_others(number, &mut a);
        // Deliberate death and stopping would end nearly every worker too early.
        let signal = if matches!(number, TGKILL | TGQUEUE) { 2 } else { 1 };
        if matches!(number, KILL | TKILL | TGKILL | QUEUE | TGQUEUE | PIDFD_KILL)
            && matches!(a[signal], 4..=11 | 19..=22)
            && !self.random.one_in(10)
        {
            a[signal] = 23;
        }
        match number {
            // Signals go to this process only: never to -1 (all processes), never to pid 1.
            KILL | TKILL | QUEUE => a[0] = self.pid as u64,
            MOUNT_CALL => a[2] = self.random.pick(FILE_SYSTEMS).as_ptr() as u64,
            TGKILL | TGQUEUE => (a[0], a[1]) = (self.pid as u64, self.pid as u64),
            // Sleeps and alarms stay short, forks keep a plain exit signal.
            37 => a[0] &= 3,
            56 if self.random.one_in(2) => a[0] = 17,
            _ => {}
        }
        (name, number, a)
    }
}

/// Flags of clone3(2) with which a child can run for a while: none that needs a prepared stack.
const CLONE_FLAGS: &[u64] = &[
    0x200,
    0x400,
    0x1000,
    0x8000,
    0x1_0000,
    0x2_0000,
    0x20_0000,
    0x100_0000,
    0x400_0000,
    0x800_0000,
    0x1000_0000,
    0x2000_0000,
];

extern "C" fn ignore(_signal: libc::c_int) {}

/// Prepares the working directory.
fn prepare() {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    let _ = fs::create_dir_all("dir/sub");
    let _ = fs::write("a", [b'a'; 10_000]);
    let _ = fs::write("dir/b", b"b");
    let _ = fs::write("prog", PROGRAM)
        .and_then(|()| fs::set_permissions("prog", fs::Permissions::from_mode(0o755)));
    let _ = std::os::unix::fs::symlink("dir/a", "link");
    let _ = std::os::unix::fs::symlink("loop", "loop");
    // SAFETY: the path is a constant string.
    unsafe { libc::mkfifo(c"fifo".as_ptr(), 0o666) };
}

/// Opens descriptors of many kinds, so that calls are not limited to files.
fn furnish(random: &mut Random) {
    // SAFETY: plain calls with numbers and live memory of the right types. Failures are ignored.
    unsafe {
        let mut pair = [0; 2];
        for _ in 0..6 + random.below(8) {
            match random.below(15) {
                0 => drop(libc::open(c"a".as_ptr(), libc::O_RDWR)),
                1 => drop(libc::open(c".".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY)),
                2 => drop(libc::pipe2(pair.as_mut_ptr(), libc::O_NONBLOCK)),
                3 => drop(libc::pipe(pair.as_mut_ptr())),
                4..=6 => {
                    let kind =
                        random.pick(&[libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_SEQPACKET]);
                    libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr());
                }
                7 => drop(libc::epoll_create1(0)),
                8 => drop(libc::eventfd(1, libc::EFD_NONBLOCK)),
                9 => drop(libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK)),
                10 => drop(libc::memfd_create(c"memory".as_ptr(), libc::MFD_ALLOW_SEALING)),
                11 => drop(libc::inotify_init1(libc::IN_NONBLOCK)),
                12 => {
                    // Both sides of a terminal.
                    let master = libc::open(c"/dev/ptmx".as_ptr(), libc::O_RDWR | libc::O_NOCTTY);
                    let unlocked = 0;
                    libc::ioctl(master, libc::TIOCSPTLCK as _, &unlocked);
                    const TIOCGPTPEER: u64 = 0x5441;
                    libc::ioctl(master, TIOCGPTPEER as _, libc::O_RDWR | libc::O_NOCTTY);
                }
                13 => {
                    // A queue without a name, which goes with the process, and a socket for
                    // letters.
                    let name = CString::new(format!("/sysfuzz-{}", std::process::id()));
                    let name = name.unwrap_or_default();
                    libc::mq_open(
                        name.as_ptr(),
                        libc::O_RDWR | libc::O_CREAT,
                        0o600,
                        std::ptr::null_mut::<libc::mq_attr>(),
                    );
                    libc::mq_unlink(name.as_ptr());
                    libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 0);
                }
                _ => {
                    let mut set: libc::sigset_t = std::mem::zeroed();
                    libc::sigaddset(&mut set, libc::SIGUSR1);
                    libc::signalfd(-1, &set, libc::SFD_NONBLOCK);
                }
            }
        }
    }
}

/// Makes `calls` random calls with a seed and ends the process. `trace` reports each on stderr.
pub fn work(seed: u64, calls: u64, as_root: bool, trace: bool, slot: &'static Slot) -> ! {
    let mut random = Random::new(seed);
    // SAFETY: plain calls with numbers and constants.
    unsafe {
        libc::setsid();
        // Most signals only interrupt; signals raised by faults still kill.
        for signal in (1..65).filter(|n| !matches!(n, 4..=9 | 11 | 17 | 18)) {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ignore as extern "C" fn(libc::c_int) as usize;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
        if !trace {
            // A worker's output must not mix with the supervisor's.
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            for fd in 0..3 {
                libc::dup2(null, fd);
            }
        }
    }
    limit(libc::RLIMIT_CORE as libc::c_int, 0);
    limit(libc::RLIMIT_CPU as libc::c_int, 3);
    limit(libc::RLIMIT_AS as libc::c_int, 512 << 20);
    limit(libc::RLIMIT_FSIZE as libc::c_int, 4 << 20);
    limit(libc::RLIMIT_NOFILE as libc::c_int, 256);
    limit(libc::RLIMIT_STACK as libc::c_int, 1 << 20);
    prepare();
    let privileged = as_root && random.one_in(2);
    if !privileged {
        become_nobody();
    }
    limit(libc::RLIMIT_NPROC as libc::c_int, 64);
    // SAFETY: the mask is zeroed memory of the right type, which is the empty set.
    unsafe {
        let empty: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &empty, std::ptr::null_mut());
    }
    let read_only = Worker::map(libc::PROT_READ, libc::MAP_PRIVATE, 8192);
    let nothing = Worker::map(libc::PROT_NONE, libc::MAP_PRIVATE, 8192);
    let arena = Worker::map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, ARENA);
    // An old size of 0 maps shared memory a second time (mremap(2)).
    // SAFETY: a new mapping at an address of the kernel's choice; the old one stays.
    let alias = unsafe { libc::mremap(arena as *mut libc::c_void, 0, ARENA, libc::MREMAP_MAYMOVE) };
    let alias = if alias == libc::MAP_FAILED { arena } else { alias as u64 };
    let pid = std::process::id() as i32;
    furnish(&mut random);
    let mut worker = Worker { random, privileged, arena, alias, read_only, nothing, pid };
    // Further threads in the same process: they share memory, descriptors and signals, and end with
    // it.
    for _ in 0..if worker.random.one_in(2) { worker.random.below(4) } else { 0 } {
        let mut other = worker.clone();
        other.random = Random::new(worker.random.bits());
        let _ = std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
            other.run(seed, calls, trace, slot);
        });
    }
    worker.run(seed, calls, trace, slot);
    call(231, &[0; 6]);
    loop {
        call(60, &[0; 6]);
    }
}
