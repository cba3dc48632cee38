//! The values of arguments: numbers, paths, names, and structures in the arena.

use super::{MOUNT_POINT, Worker};
use crate::calls::{ArgumentKind, NO_PROCESS};

/// The size of a worker's arena, in bytes.
pub const ARENA: usize = 256 * 1024;
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
    b"cgroup2\0",
    b"ramfs\0",
    b"\0",
];
/// Where workers with mounts of their own mount.
const PLACES: &[&[u8]] = &[
    b"dir\0",
    b"dir\0",
    b"dir/sub\0",
    b"dir/sub\0",
    b"a\0",
    b".\0",
    b"..\0",
    b"/\0",
    b"/tmp\0",
    b"/proc\0",
    b"/proc/sys\0",
    b"/dev/null\0",
    b"\0",
];
/// Options of mounts: whole lists, names and values.
const OPTIONS: &[&[u8]] = &[
    b"size=64k\0",
    b"size\0",
    b"64k\0",
    b"mode=700\0",
    b"mode\0",
    b"1777\0",
    b"nr_inodes=4\0",
    b"uid\0",
    b"0\0",
    b"newinstance,ptmxmode=0666\0",
    b"hidepid=2,subset=pid\0",
    b"hidepid\0",
    b"2\0",
    b"subset\0",
    b"pid\0",
    b"lowerdir=dir,upperdir=dir/sub,workdir=.\0",
    b"nsdelegate\0",
    b"memory_localevents\0",
    b"ro\0",
    b"source\0",
    b"none\0",
    b"\0",
];
/// Names of templates.
const TEMPLATES: &[&[u8]] = &[b"a\0", b"b\0", b"\0", b"sysfuzz\0"];

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

impl Worker {
    /// Fills a random piece of the arena with plausible data and returns its address.
    pub fn fresh(&mut self, size: u64) -> u64 {
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

    /// A number of any size, mostly one at some border.
    pub fn number(&mut self) -> u64 {
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

    /// Memory of some kind: the arena, or some that must not be read or written, or none.
    pub fn memory(&mut self) -> u64 {
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

    /// An argument of a kind, seldom of another. `changes`: the call changes what a path names.
    pub fn argument(&mut self, kind: ArgumentKind, changes: bool) -> u64 {
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
            ArgumentKind::Place => self.place(),
            ArgumentKind::FileSystem => self.file_system(),
            ArgumentKind::Options => self.option(),
            ArgumentKind::MountAttributes => self.mount_attributes(),
            ArgumentKind::Requests => self.requests(),
            ArgumentKind::Template => self.random.pick(TEMPLATES).as_ptr() as u64,
        }
    }

    /// A path on which a worker with mounts of its own may mount.
    pub fn place(&mut self) -> u64 {
        self.random.pick(PLACES).as_ptr() as u64
    }

    /// The name of a file system.
    pub fn file_system(&mut self) -> u64 {
        self.random.pick(FILE_SYSTEMS).as_ptr() as u64
    }

    /// Options of a mount, or a name or value of one.
    pub fn option(&mut self) -> u64 {
        if self.random.one_in(4) { 0 } else { self.random.pick(OPTIONS).as_ptr() as u64 }
    }

    /// Writes `struct mount_attr`, and returns its address.
    pub fn mount_attributes(&mut self) -> u64 {
        const ATTRIBUTES: &[u64] = &[0, 1, 2, 4, 8, 0x10, 0x20, 0x70, 0x80, 0x20_0000, 0x10_0000];
        let set = self.random.pick(ATTRIBUTES) | self.random.pick(ATTRIBUTES);
        let clear = self.random.pick(ATTRIBUTES) & !set;
        let propagation = self.random.pick(&[0u64, 0, 1 << 17, 1 << 18, 1 << 19, 1 << 20]);
        self.words_of(&[set, clear, propagation, 0])
    }

    /// Writes an array of pointers to three `struct iocb` (linux/aio_abi.h), and returns its
    /// address.
    pub fn requests(&mut self) -> u64 {
        let mut list = [0; 3];
        for at in &mut list {
            let command = self.random.pick(&[0u64, 1, 2, 3, 5, 6, 7, 8, 9]);
            let fd = 3 + self.random.below(24);
            let (data, length) = (self.memory(), self.random.below(9000));
            let (position, told) = (self.random.below(1 << 14), self.random.below(24));
            let flags = self.random.pick(&[0u64, 0, 1, 2]);
            *at = self.words_of(&[
                1,
                0,
                command | fd << 32,
                data,
                length,
                position,
                0,
                flags | told << 32,
            ]);
        }
        self.words_of(&list)
    }

    /// Writes words into the arena, and returns their address.
    pub fn words_of(&mut self, words: &[u64]) -> u64 {
        let at = self.fresh(8 * words.len() as u64);
        for (i, word) in words.iter().enumerate() {
            self.put(at + 8 * i as u64, *word);
        }
        at
    }

    /// Reads a word of the arena, as [`Worker::put`] writes it.
    pub fn word(&self, at: u64) -> u64 {
        let offset = at.wrapping_sub(self.arena) as usize;
        if offset >= ARENA - 8 {
            return 0;
        }
        // SAFETY: `offset + 8` is within the mapping.
        unsafe { std::ptr::read_volatile((self.alias as usize + offset) as *const u64) }
    }

    /// Reads a byte at any address. A fault that is not allowed ends the process: a child calls it.
    pub fn touch(&self, at: u64) {
        // SAFETY: nothing in Rust has an object there, and what is read is not used.
        unsafe { std::ptr::read_volatile(at as *const u8) };
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
    pub fn put(&self, at: u64, value: u64) {
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

    /// Returns a `struct sigevent` of a way that message queues know, or none.
    fn notification(&mut self) -> u64 {
        let at = self.fresh(64);
        let (cookie, number) = (self.memory(), self.random.below(66));
        let way = self.random.pick(&[0u64, 0, 1, 2, 2, 17]);
        self.put(at, cookie);
        self.put(at + 8, number | way << 32);
        if self.random.one_in(3) { 0 } else { at }
    }
}
