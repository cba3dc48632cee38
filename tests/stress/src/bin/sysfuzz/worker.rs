//! A worker: a process that makes random system calls until its calls are used up or it dies.

mod values;

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hayate_stress::{Random, become_nobody, limit};

use values::ARENA;

use crate::calls::{
    CALLS, Call, FILE_CONTROL, FORBIDDEN, KILL, MACHINE_CALLS, MOUNT_CALL, MOUNT_CALLS, NO_PROCESS,
    PIDFD_KILL, PIDFD_OPEN, PIDFD_TAKE, PRLIMIT, PTRACE, QUEUE, REMOUNT_CALLS, SET_OWNER, TGKILL,
    TGQUEUE, TKILL, VM_WRITE,
};
use crate::groups;
use crate::scenes::SCENES;

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

/// Namespaces of workers that are shut in: of users, mounts, objects and names, and perhaps of
/// control groups, of the network and of processes.
const SHUT_IN: i32 =
    libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
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

/// A worker's random numbers, memory and privilege; each of its threads has one.
#[derive(Clone)]
pub struct Worker {
    /// What it does.
    pub random: Random,
    /// Its control group.
    pub group: Option<String>,
    /// Whether its mounts are in a namespace of its own.
    pub own_mounts: bool,
    seed: u64,
    trace: bool,
    slot: &'static Slot,
    /// Whether it has root's privilege in a machine of its own.
    privileged: bool,
    /// Whether it is the superuser of a user namespace.
    shut_in: bool,
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

    /// Makes one call, counts it, and says so if that is wanted.
    pub fn make(&mut self, name: &str, number: u64, a: [u64; 6]) -> i64 {
        self.slot.last.store(number, Ordering::Relaxed);
        self.slot.calls.fetch_add(1, Ordering::Relaxed);
        if self.trace {
            eprintln!("{:#x}: {name} {number} {a:x?}", self.seed);
        }
        let result = call(number, &a);
        if self.trace {
            eprintln!("{:#x}:   = {result}", self.seed);
        }
        result
    }

    /// In the child of a scene: a few calls, and the end.
    pub fn live_briefly(&mut self) -> ! {
        self.random = Random::new(self.seed ^ self.random.bits());
        self.run(30);
        loop {
            call(231, &[0; 6]);
        }
    }

    /// Makes `left` calls, and scenes among them.
    fn run(&mut self, mut left: u64) {
        while left > 0 {
            left -= 1;
            if self.random.one_in(40) {
                let (name, scene) = self.random.pick(SCENES);
                if self.trace {
                    eprintln!("{:#x}: {name}", self.seed);
                }
                scene(self);
                continue;
            }
            let (name, number, a) = self.next();
            let result = self.make(name, number, a);
            // A child made by fork or clone makes a few more calls.
            if matches!(number, 56..=58 | 435) && result == 0 {
                left = left.min(30);
                self.random = Random::new(self.seed ^ left);
            }
        }
    }

    /// The table that the next call is taken from.
    fn table(&mut self) -> &'static [Call] {
        match self.random.below(16) {
            0 if self.privileged || self.shut_in => MACHINE_CALLS,
            1 if self.own_mounts => MOUNT_CALLS,
            2 if self.shut_in && self.random.one_in(2) => REMOUNT_CALLS,
            _ => CALLS,
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
        let table = self.table();
        let (name, number, kinds) = self.random.pick(table);
        let changes = matches!(number, 2 | 76 | 82..=88 | 90 | 92 | 94 | 132 | 133 | 155 | 161 | 163 | 188 | 189 | 197 | 198 | 235 | 257..=261 | 263..=268 | 280 | 316 | 437 | 1023);
        for (slot, kind) in a.iter_mut().zip(kinds) {
            *slot = self.argument(*kind, changes);
        }
        self.spare_others(number, &mut a);
        // Deliberate death and stopping would end nearly every worker too early.
        let signal = if matches!(number, TGKILL | TGQUEUE) { 2 } else { 1 };
        if matches!(number, KILL | TKILL | TGKILL | QUEUE | TGQUEUE | PIDFD_KILL)
            // 32 to 34 are the C library's own, and it lets no program handle them.
            && matches!(a[signal], 4..=11 | 19..=22 | 32..=34)
            && !self.random.one_in(10)
        {
            a[signal] = 23;
        }
        match number {
            // Signals go to this process only: never to -1 (all processes), never to pid 1.
            KILL | TKILL | QUEUE => a[0] = self.pid as u64,
            // What a file system is remounted with shows in all of its mounts.
            MOUNT_CALL if self.privileged && a[3] & REMOUNT != 0 => a[3] |= BIND,
            MOUNT_CALL if !self.own_mounts => a[2] = self.file_system(),
            TGKILL | TGQUEUE => (a[0], a[1]) = (self.pid as u64, self.pid as u64),
            // Sleeps and alarms stay short, forks keep a plain exit signal.
            37 => a[0] &= 3,
            56 if self.random.one_in(2) => a[0] = 17,
            _ => {}
        }
        (name, number, a)
    }
}

/// `MS_REMOUNT`
const REMOUNT: u64 = 32;
/// `MS_BIND`
const BIND: u64 = 4096;

const NOBODY: u32 = 65534;

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
            match random.below(17) {
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
                14 => {
                    let name = random.pick(&[
                        c"/proc/self/ns/user",
                        c"/proc/self/ns/mnt",
                        c"/proc/self/ns/pid",
                        c"/proc/self/ns/net",
                        c"/proc/self/ns/cgroup",
                    ]);
                    libc::open(name.as_ptr(), libc::O_RDONLY);
                }
                15 => drop(libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), 0)),
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

/// Makes namespaces of the worker's own, in which it is the superuser and mounts. False, and as
/// before, where a user may not.
fn shut_in(random: &mut Random) -> bool {
    use std::fs::write;
    let more = random.pick(&[0, 0, libc::CLONE_NEWCGROUP, libc::CLONE_NEWNET, libc::CLONE_NEWPID]);
    // SAFETY: plain calls with numbers.
    let (user, made) = unsafe { (libc::getuid(), libc::unshare(SHUT_IN | more) == 0) };
    if made {
        let _ = write("/proc/self/setgroups", "deny");
        let _ = write("/proc/self/uid_map", format!("0 {user} 1"));
        let _ = write("/proc/self/gid_map", format!("0 {user} 1"));
    }
    made
}

/// How a worker begins.
#[derive(Clone)]
pub struct Start {
    /// The seed of all that it does.
    pub seed: u64,
    /// How many calls it makes.
    pub calls: u64,
    /// Whether it may keep root's privilege.
    pub as_root: bool,
    /// Whether it reports each call on standard error.
    pub trace: bool,
    /// Its control group.
    pub group: Option<String>,
}

/// Makes random calls and ends the process.
pub fn work(start: Start, slot: &'static Slot) -> ! {
    let Start { seed, calls, as_root, trace, group } = start;
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
    if let Some(group) = &group {
        groups::enter(group, if privileged { 0 } else { NOBODY });
    }
    let (mut is_shut_in, own_mounts) = (false, random.one_in(2));
    let own_mounts = if privileged {
        // SAFETY: a plain call with a number.
        own_mounts && unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0
    } else {
        become_nobody();
        // SAFETY: a plain call with numbers. Files of a process of another user belong to root.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        is_shut_in = own_mounts && shut_in(&mut random);
        is_shut_in
    };
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
    let mut worker = Worker {
        random,
        group,
        own_mounts,
        seed,
        trace,
        slot,
        privileged,
        shut_in: is_shut_in,
        arena,
        alias,
        read_only,
        nothing,
        pid,
    };
    // Further threads in the same process: they share memory, descriptors and signals, and end with
    // it.
    for _ in 0..if worker.random.one_in(2) { worker.random.below(4) } else { 0 } {
        let mut other = worker.clone();
        other.random = Random::new(worker.random.bits());
        let _ = std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
            other.run(calls);
        });
    }
    worker.run(calls);
    call(231, &[0; 6]);
    loop {
        call(60, &[0; 6]);
    }
}
