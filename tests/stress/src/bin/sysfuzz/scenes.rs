//! Calls that mean something only one after the other: random calls alone would seldom find the
//! way to a group with a limit, a mounted context, a filter with a listener or a traced child.
//!
//! A scene makes the calls in their order, and leaves to chance which of them, with which values,
//! and whether one is left out. It stays with what belongs to the worker: its directory, its group,
//! its mounts and its children.

mod handles;
mod pages;

use std::ffi::{CStr, CString};

use crate::calls::TRACE;
use crate::worker::Worker;

/// What a worker does in a scene, and its name for `--replay`.
pub type Scene = (&'static str, fn(&mut Worker));

/// The scenes.
pub const SCENES: &[Scene] = &[
    ("a file of a group", group_file),
    ("a file of a group", group_file),
    ("groups come and go", group_tree),
    ("a child in a group", group_child),
    ("a program about devices", device_program),
    ("a filter of a child", filter),
    ("a listener of a filter", listener),
    ("a child that restricts itself", landlock),
    ("a traced child", traced),
    ("a traced child", traced),
    ("a child in namespaces", namespaces),
    ("a file system step by step", context),
    ("a copy of mounts", tree),
    ("terminals of one's own", terminals),
    ("requests of AIO", requests),
    ("a queue of messages", queue),
    ("missing pages of a child", pages::missing),
    ("handles of files", handles::of_files),
];

const AT_HERE: u64 = (-100i64) as u64;
/// `__WALL | WNOHANG`
const LOOK: u64 = 0x4000_0001;

const READ: u64 = 0;
const WRITE: u64 = 1;
const CLOSE: u64 = 3;
const POLL: u64 = 7;
const IOCTL: u64 = 16;
const CLONE: u64 = 56;
const WAIT: u64 = 61;
const KILL: u64 = 62;
const MKDIR: u64 = 83;
const RMDIR: u64 = 84;
const MKNOD: u64 = 133;
const PRCTL: u64 = 157;
const MOUNT: u64 = 165;
const UNMOUNT: u64 = 166;
const OPEN_AT: u64 = 257;
const PTRACE: u64 = 101;
const UNSHARE: u64 = 272;
const SET_NAMESPACE: u64 = 308;
const SECCOMP: u64 = 317;
const BPF: u64 = 321;
const OPEN_TREE: u64 = 428;
const MOVE_MOUNT: u64 = 429;
const FS_OPEN: u64 = 430;
const FS_CONFIG: u64 = 431;
const FS_MOUNT: u64 = 432;
const PIDFD_OPEN: u64 = 434;
const CLONE3: u64 = 435;
const SET_ATTRIBUTES: u64 = 442;

/// Names of groups in the worker's own.
const GROUPS: &[&str] = &["", "/a", "/a", "/b", "/a/c", "/a/c/d"];

/// A file of a group, and what is written into it.
type GroupFile = (&'static str, &'static [&'static str]);

/// Files of groups. Members are moved by "0" alone, which is the worker itself: root could move,
/// freeze and end the machine's first process.
const GROUP_FILES: &[GroupFile] = &[
    ("cgroup.procs", &["0"]),
    ("cgroup.threads", &["0"]),
    ("cgroup.type", &["threaded", "domain"]),
    (
        "cgroup.subtree_control",
        &["+memory +pids", "+cpu", "+io", "+memory", "-memory", "-cpu -io", "-pids", "+cpuset"],
    ),
    ("cgroup.max.depth", &["max", "0", "1"]),
    ("cgroup.max.descendants", &["max", "0", "2"]),
    ("cgroup.freeze", &["0", "1", "1", "2"]),
    ("cgroup.kill", &["1", "0"]),
    ("cpu.max", &["max", "1000 1000000", "50000 100000", "1000 1000", "20000", "0 0"]),
    ("cpu.max.burst", &["0", "10000", "100000"]),
    ("cpu.weight", &["1", "10000", "100", "0"]),
    ("cpu.weight.nice", &["-20", "19", "0"]),
    ("cpu.idle", &["1", "0"]),
    ("memory.max", &["max", "0", "64K", "1M", "16M", "9999999999999999999"]),
    ("memory.high", &["max", "0", "64K", "1M", "16M"]),
    ("memory.low", &["max", "0", "1M"]),
    ("memory.min", &["max", "0", "1M"]),
    ("memory.oom.group", &["1", "0"]),
    ("memory.reclaim", &["4K", "1M", "1G"]),
    ("pids.max", &["max", "0", "1", "5", "-1"]),
    ("io.max", &["254:0 rbps=1000000", "254:0 wiops=10 rbps=max", "1:1 rbps=1", "254:16 wbps=1"]),
    ("cgroup.events", &[]),
    ("cgroup.stat", &[]),
    ("cgroup.controllers", &[]),
    ("cpu.stat", &[]),
    ("io.stat", &[]),
    ("memory.current", &[]),
    ("memory.peak", &[]),
    ("memory.stat", &[]),
    ("memory.events", &[]),
    ("memory.events.local", &[]),
    ("pids.current", &[]),
    ("pids.events", &[]),
];

/// Flags of clone(2) that make namespaces, and those of setns(2).
const NAMESPACES: &[u64] =
    &[0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];

/// Instructions of programs about devices, without their immediate values: loads, arithmetic,
/// jumps, the end, and some that are not allowed.
const INSTRUCTIONS: &[u64] = &[
    0xb7, 0xb7, 0xb4, 0x61, 0x61, 0x54, 0x57, 0x74, 0x77, 0xbc, 0xbf, 0x55, 0x15, 0x5d, 0x1d, 0x25,
    0x05, 0x95, 0x07, 0x0f, 0x2f, 0x3f, 0x97, 0xc7, 0xdc, 0x18, 0x85, 0x7b, 0x79, 0x56, 0x16,
];

impl Worker {
    /// A descriptor of a call's result, or one that is not open.
    fn opened(result: i64) -> u64 {
        if result < 0 { u64::MAX } else { result as u64 }
    }

    fn open(&mut self, path: &CStr, flags: i32) -> u64 {
        let a = [AT_HERE, path.as_ptr() as u64, flags as u64, 0o600, 0, 0];
        Worker::opened(self.make("openat", OPEN_AT, a))
    }

    fn close(&mut self, fd: u64) {
        self.make("close", CLOSE, [fd, 0, 0, 0, 0, 0]);
    }

    fn write(&mut self, path: &CStr, text: &str) {
        let fd = self.open(path, libc::O_WRONLY | libc::O_CLOEXEC);
        let a = [fd, text.as_ptr() as u64, text.len() as u64, 0, 0, 0];
        self.make("write", WRITE, a);
        self.close(fd);
    }

    /// The path of a file or folder of one of the worker's groups, seldom of its first one.
    fn group(&mut self, file: &str) -> Option<CString> {
        let name = self.random.pick(GROUPS);
        let base = self.group.as_ref()?;
        CString::new(format!("{base}{name}/{file}")).ok()
    }

    /// A child that makes some calls and ends. In the child it does not return.
    fn child(&mut self, flags: u64) -> Option<u64> {
        let child = self.make("clone", CLONE, [flags | 17, 0, 0, 0, 0, 0]);
        if child == 0 {
            self.live_briefly();
        }
        u64::try_from(child).ok()
    }

    /// Ends a child, or leaves it to the supervisor, and looks whether it ended.
    fn leave(&mut self, child: u64) {
        if !self.random.one_in(4) {
            self.make("kill", KILL, [child, 9, 0, 0, 0, 0]);
        }
        let options = if self.random.one_in(2) { LOOK } else { LOOK & !1 };
        self.make("wait4", WAIT, [child, 0, options, 0, 0, 0]);
    }
}

fn group_file(worker: &mut Worker) {
    let (file, values) = worker.random.pick(GROUP_FILES);
    let Some(path) = worker.group(file) else { return };
    // The worker's own end or rest would be its last call.
    let own =
        worker.group.as_ref().is_some_and(|it| path.as_bytes().len() == it.len() + 1 + file.len());
    if own && matches!(file, "cgroup.freeze" | "cgroup.kill") && !worker.random.one_in(8) {
        return;
    }
    if values.is_empty() || worker.random.one_in(3) {
        let fd = worker.open(&path, libc::O_RDONLY);
        let (at, size) = (worker.memory(), worker.random.pick(&[1u64, 16, 4096]));
        worker.make("read", READ, [fd, at, size, 0, 0, 0]);
        if worker.random.one_in(2) {
            worker.close(fd);
        }
        return;
    }
    let value = worker.random.pick(values);
    worker.write(&path, value);
}

fn group_tree(worker: &mut Worker) {
    for _ in 0..4 {
        let Some(path) = worker.group("") else { return };
        let (name, number) =
            worker.random.pick(&[("mkdir", MKDIR), ("mkdir", MKDIR), ("rmdir", RMDIR)]);
        worker.make(name, number, [path.as_ptr() as u64, 0o755, 0, 0, 0, 0]);
    }
}

/// CLONE_INTO_CGROUP, and what happens to the group while the child lives.
fn group_child(worker: &mut Worker) {
    const INTO_GROUP: u64 = 0x2_0000_0000;
    let Some(path) = worker.group("") else { return };
    let fd = worker.open(&path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
    let arguments = worker.words_of(&[INTO_GROUP, 0, 0, 0, 17, 0, 0, 0, 0, 0, fd]);
    let child = worker.make("clone3", CLONE3, [arguments, 88, 0, 0, 0, 0]);
    if child == 0 {
        worker.live_briefly();
    }
    worker.close(fd);
    for _ in 0..3 {
        group_file(worker);
    }
    if let Ok(child) = u64::try_from(child) {
        worker.leave(child);
    }
    for (file, value) in [("cgroup.freeze", "0"), ("cgroup.kill", "1")] {
        let Ok(path) = CString::new(format!("{}/{file}", path.to_string_lossy())) else { return };
        if worker
            .group
            .as_ref()
            .is_none_or(|own| path.as_bytes().len() > own.len() + 2 + file.len())
        {
            worker.write(&path, value);
        }
    }
}

/// Programs about devices: loaded, attached to a group, asked for, replaced and detached.
fn device_program(worker: &mut Worker) {
    const ABOUT_DEVICES: u64 = 15;
    const PLACE: u64 = 6;
    let count = 1 + worker.random.below(6);
    let mut code = Vec::new();
    if worker.random.one_in(2) {
        for _ in 0..count {
            let instruction = worker.random.pick(INSTRUCTIONS);
            let registers = worker.random.below(11) | worker.random.pick(&[0u64, 1, 2, 3]) << 4;
            let offset = worker.random.pick(&[0u64, 0, 1, 2, 4, 8, 12, 0xffff]);
            let value = worker.random.pick(&[0u64, 1, 2, 7, 16, 0xffff, 0xffff_ffff]);
            code.push(instruction | registers << 8 | offset << 16 | value << 32);
        }
    }
    code.push(0xb7 | worker.random.pick(&[0u64, 1, 1, 1, 2]) << 32);
    code.push(0x95);
    let insns = worker.words_of(&code);
    let kind = worker.random.pick(&[ABOUT_DEVICES, ABOUT_DEVICES, ABOUT_DEVICES, 8, 13]);
    let licence = c"GPL".as_ptr() as u64;
    let load = worker.words_of(&[kind | (code.len() as u64) << 32, insns, licence, 0, 0, 0]);
    let bpf = |worker: &mut Worker, command: u64, words: &[u64]| {
        let at = worker.words_of(words);
        worker.make("bpf", BPF, [command, at, 8 * words.len() as u64, 0, 0, 0])
    };
    let program = Worker::opened(worker.make("bpf", BPF, [5, load, 48, 0, 0, 0]));
    let Some(path) = worker.group("") else { return };
    let group = worker.open(&path, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
    let ids = worker.memory();
    for _ in 0..4 {
        let flags = worker.random.pick(&[0u64, 1, 2, 2, 6, 3]);
        let other = 3 + worker.random.below(24);
        let other = worker.random.pick(&[program, other]);
        match worker.random.below(6) {
            0 | 1 => bpf(worker, 8, &[group | program << 32, PLACE | flags << 32, other]),
            2 => bpf(worker, 9, &[group | program << 32, PLACE]),
            3 => bpf(worker, 16, &[group | PLACE << 32, flags & 1, ids, 3]),
            4 => bpf(worker, 15, &[program | 232 << 32, ids]),
            _ => {
                let id = worker.random.below(40);
                bpf(worker, 11, &[id, 0, 0]);
                let found = Worker::opened(bpf(worker, 13, &[id, 0, 0]));
                worker.close(found);
                0
            }
        };
    }
    if worker.random.one_in(2) {
        bpf(worker, 9, &[group | program << 32, PLACE]);
        worker.close(program);
    }
    worker.close(group);
}

/// Writes a filter that answers one call in some way and allows the others; returns the address of
/// its `struct sock_fprog`.
fn filter_of(worker: &mut Worker, number: u64, answer: u64) -> u64 {
    // `struct sock_filter`: code, jumps, value.
    let mut code = vec![
        0x20,                          // the number
        0x15 | 1 << 24 | number << 32, // is it this one?
        0x06 | answer << 32,
        0x06 | 0x7fff_0000 << 32, // SECCOMP_RET_ALLOW
    ];
    if worker.random.one_in(8) {
        let at = worker.random.below(4) as usize;
        code[at] ^= 1 << worker.random.below(64);
    }
    let at = worker.words_of(&code);
    worker.words_of(&[code.len() as u64, at])
}

fn filter(worker: &mut Worker) {
    const NO_NEW_PRIVILEGES: u64 = 38;
    let number = worker.random.pick(&[0u64, 1, 2, 9, 39, 56, 57, 59, 202, 257]);
    // Errors, a signal, a tracer that is not there, the log, the end of the thread.
    let answer = worker.random.pick(&[
        0x5_0001u64,
        0x5_0000,
        0x5_ffff,
        0x3_0000,
        0x7ff0_0000,
        0x7ffc_0000,
        0,
    ]);
    let at = filter_of(worker, number, answer);
    let flags = worker.random.pick(&[0u64, 0, 1, 2, 4, 16]);
    let child = worker.make("fork", CLONE, [17, 0, 0, 0, 0, 0]);
    if child == 0 {
        worker.make("prctl", PRCTL, [NO_NEW_PRIVILEGES, 1, 0, 0, 0, 0]);
        worker.make("seccomp", SECCOMP, [1, flags, at, 0, 0, 0]);
        if worker.random.one_in(2) {
            worker.make("seccomp", SECCOMP, [1, flags, at, 0, 0, 0]);
        }
        worker.live_briefly();
    }
    if let Ok(child) = u64::try_from(child) {
        worker.leave(child);
    }
}

/// A child that restricts itself to some files (landlock(7)), once or several times.
fn landlock(worker: &mut Worker) {
    const CREATE: u64 = 444;
    const ADD: u64 = 445;
    const RESTRICT: u64 = 446;
    const KNOWN: u64 = (1 << 14) - 1;
    let handled = match worker.random.below(3) {
        0 => KNOWN,
        _ => worker.random.below(KNOWN + 1),
    };
    let at = worker.words_of(&[handled]);
    let ruleset =
        Worker::opened(worker.make("landlock_create_ruleset", CREATE, [at, 8, 0, 0, 0, 0]));
    for _ in 0..worker.random.below(5) {
        let path = worker.random.pick(&[c".", c"dir", c"dir/sub", c"file", c"/", c"/proc"]);
        let place = worker.open(path, libc::O_PATH);
        let allowed = worker.random.pick(&[handled, handled & 7, handled & !(1 << 13)]);
        let rule = worker.words_of(&[allowed, place]);
        worker.make("landlock_add_rule", ADD, [ruleset, 1, rule, 0, 0, 0]);
        worker.close(place);
    }
    let layers = worker.random.pick(&[1u64, 1, 2, 17]);
    let child = worker.make("fork", CLONE, [17, 0, 0, 0, 0, 0]);
    if child == 0 {
        worker.make("prctl", PRCTL, [38, 1, 0, 0, 0, 0]);
        for _ in 0..layers {
            worker.make("landlock_restrict_self", RESTRICT, [ruleset, 0, 0, 0, 0, 0]);
        }
        worker.live_briefly();
    }
    worker.close(ruleset);
    if let Ok(child) = u64::try_from(child) {
        worker.leave(child);
    }
}

/// A child whose calls this worker answers (seccomp_unotify(2)); they share their descriptors.
fn listener(worker: &mut Worker) {
    const FILES: u64 = 0x400;
    const RECEIVE: u64 = 0xc050_2100;
    const SEND: u64 = 0xc018_2101;
    const IS_VALID: u64 = 0x4008_2102;
    const ADD: u64 = 0x4018_2103;
    let number = worker.random.pick(&[39u64, 39, 257, 1, 63]);
    let at = filter_of(worker, number, 0x7fc0_0000);
    let flags = worker.random.pick(&[8u64, 8, 8 | 32, 8 | 1 | 16]);
    // The child tells the number of the listener here.
    let told = worker.words_of(&[0]);
    let child = worker.make("clone", CLONE, [FILES | 17, 0, 0, 0, 0, 0]);
    if child == 0 {
        worker.make("prctl", PRCTL, [38, 1, 0, 0, 0, 0]);
        let fd = worker.make("seccomp", SECCOMP, [1, flags, at, 0, 0, 0]);
        worker.put(told, fd as u64);
        for _ in 0..4 {
            let a = [AT_HERE, c"a".as_ptr() as u64, 0, 0, 0, 0];
            worker.make("answered", number, a);
        }
        worker.live_briefly();
    }
    for _ in 0..20 {
        if worker.word(told) != 0 {
            break;
        }
        worker.make("poll", POLL, [0, 0, 2, 0, 0, 0]);
    }
    let fd = worker.word(told);
    for _ in 0..4 {
        let poll = worker.words_of(&[fd & 0xffff_ffff | 1 << 32]);
        worker.make("poll", POLL, [poll, 1, 5, 0, 0, 0]);
        if worker.word(poll) >> 48 & 1 == 0 && !worker.random.one_in(16) {
            continue;
        }
        let notice = worker.words_of(&[0; 10]);
        worker.make("ioctl", IOCTL, [fd, RECEIVE, notice, 0, 0, 0]);
        let id = worker.words_of(&[worker.word(notice)]);
        worker.make("ioctl", IOCTL, [fd, IS_VALID, id, 0, 0, 0]);
        if worker.random.one_in(3) {
            let given = 3 + worker.random.below(24);
            let flags = worker.random.pick(&[0u64, 0, 1, 2, 3]);
            let add = worker.words_of(&[worker.word(notice), flags | given << 32, 0]);
            worker.make("ioctl", IOCTL, [fd, ADD, add, 0, 0, 0]);
        }
        if !worker.random.one_in(6) {
            let (value, error) =
                worker.random.pick(&[(0u64, 0u64), (7, 0), (0, 0xffff_ffff), (0, 5)]);
            let on = u64::from(worker.random.one_in(3));
            let answer = worker.words_of(&[worker.word(notice), value, error | on << 32]);
            worker.make("ioctl", IOCTL, [fd, SEND, answer, 0, 0, 0]);
        }
    }
    if let Ok(child) = u64::try_from(child) {
        worker.leave(child);
    }
    if worker.random.one_in(2) {
        worker.close(fd);
    }
}

/// A child with this worker as its tracer.
fn traced(worker: &mut Worker) {
    const TRACE_ME: u64 = 0;
    const ATTACH: u64 = 16;
    const SEIZE: u64 = 0x4206;
    const OPTIONS: u64 = 0x10_00ff;
    let asks = worker.random.one_in(3);
    let child = worker.make("fork", CLONE, [17, 0, 0, 0, 0, 0]);
    if child == 0 {
        if asks {
            worker.make("ptrace", PTRACE, [TRACE_ME, 0, 0, 0, 0, 0]);
            let own = std::process::id() as u64;
            worker.make("kill", KILL, [own, 19, 0, 0, 0, 0]);
        }
        worker.live_briefly();
    }
    let Ok(child) = u64::try_from(child) else { return };
    if !asks {
        let how = worker.random.pick(&[ATTACH, SEIZE, SEIZE]);
        let options = worker.random.bits() & OPTIONS;
        worker.make("ptrace", PTRACE, [how, child, 0, options, 0, 0]);
    }
    let status = worker.words_of(&[0]);
    for _ in 0..8 + worker.random.below(24) {
        if worker.random.one_in(4) {
            // It stops for a signal, if it does not end by it; most requests want it stopped.
            let signal = worker.random.pick(&[10u64, 10, 18, 19, 23, 23]);
            worker.make("kill", KILL, [child, signal, 0, 0, 0, 0]);
            worker.make("poll", POLL, [0, 0, 1, 0, 0, 0]);
        }
        if worker.random.one_in(2) {
            worker.make("wait4", WAIT, [child, status, LOOK, 0, 0, 0]);
        }
        let request = worker.random.pick(TRACE);
        let address = if worker.random.one_in(2) {
            worker.memory()
        } else {
            worker.random.pick(&[0u64, 1, 2, 0x202, 8 * 10, 8 * 16, 848, 848 + 56])
        };
        let mut data = worker.memory();
        if matches!(request, 7 | 24 | 31 | 32 | 33 | 0x4200) {
            let options = OPTIONS & worker.random.bits();
            data = worker.random.pick(&[0u64, 0, 0, 10, 19, options]);
        }
        worker.make("ptrace", PTRACE, [request, child, address, data, 0, 0]);
    }
    worker.leave(child);
}

/// A child in namespaces of its own, whose maps this worker writes and which it may enter.
fn namespaces(worker: &mut Worker) {
    const USER: u64 = 0x1000_0000;
    let some = worker.random.pick(NAMESPACES) | worker.random.pick(NAMESPACES);
    // No time namespace by clone3: the bit is one of the exit signal in clone.
    let flags = (some & !0x4000_0000) | if worker.random.one_in(2) { USER } else { 0 };
    let Some(child) = worker.child(flags) else { return };
    for (file, text) in [("setgroups", "deny"), ("uid_map", "0 65534 1"), ("gid_map", "0 65534 1")]
    {
        if worker.random.one_in(5) {
            continue;
        }
        let Ok(path) = CString::new(format!("/proc/{child}/{file}")) else { return };
        worker.write(&path, text);
    }
    let fd = if worker.random.one_in(2) {
        Worker::opened(worker.make("pidfd_open", PIDFD_OPEN, [child, 0, 0, 0, 0, 0]))
    } else {
        let kind = worker.random.pick(&["user", "mnt", "uts", "ipc", "net", "cgroup", "pid"]);
        let Ok(path) = CString::new(format!("/proc/{child}/ns/{kind}")) else { return };
        worker.open(&path, libc::O_RDONLY)
    };
    if worker.random.one_in(2) {
        // Another child enters: the worker goes on where it is.
        let other = worker.make("fork", CLONE, [17, 0, 0, 0, 0, 0]);
        if other == 0 {
            let kinds = worker.random.pick(&[0, flags, flags, 0x2000_0000]);
            worker.make("setns", SET_NAMESPACE, [fd, kinds, 0, 0, 0, 0]);
            let more = worker.random.pick(NAMESPACES);
            worker.make("unshare", UNSHARE, [more, 0, 0, 0, 0, 0]);
            worker.live_briefly();
        }
        if let Ok(other) = u64::try_from(other) {
            worker.leave(other);
        }
    }
    worker.leave(child);
    if worker.random.one_in(2) {
        worker.close(fd);
    }
}

/// fsopen(2), its options, fsmount(2), move_mount(2).
fn context(worker: &mut Worker) {
    if !worker.own_mounts {
        return;
    }
    let name = worker.file_system();
    let fd = Worker::opened(worker.make("fsopen", FS_OPEN, [name, 1, 0, 0, 0, 0]));
    for _ in 0..worker.random.below(4) {
        let (key, value) = (worker.option(), worker.option());
        let command = worker.random.pick(&[0u64, 1, 1, 1]);
        let value = if command == 0 { 0 } else { value };
        worker.make("fsconfig", FS_CONFIG, [fd, command, key, value, 0, 0]);
    }
    worker.make("fsconfig", FS_CONFIG, [fd, 6, 0, 0, 0, 0]);
    let attributes = worker.random.pick(&[0u64, 0, 1, 2, 8, 0x20_0000]);
    let mount = Worker::opened(worker.make("fsmount", FS_MOUNT, [fd, 1, attributes, 0, 0, 0]));
    worker.close(fd);
    settle(worker, mount);
}

/// open_tree(2), mount_setattr(2), move_mount(2).
fn tree(worker: &mut Worker) {
    if !worker.own_mounts {
        return;
    }
    let (place, flags) =
        (worker.place(), worker.random.pick(&[0x8_0001u64, 0x8_8001, 1, 0x8_0000]));
    let mount =
        Worker::opened(worker.make("open_tree", OPEN_TREE, [AT_HERE, place, flags, 0, 0, 0]));
    settle(worker, mount);
}

/// Changes a mount that is nowhere yet, and puts it somewhere.
fn settle(worker: &mut Worker, mount: u64) {
    const EMPTY: u64 = 0x1000;
    let nothing = c"".as_ptr() as u64;
    if worker.random.one_in(2) {
        let at = worker.mount_attributes();
        let flags = EMPTY | worker.random.pick(&[0u64, 0x8000]);
        worker.make("mount_setattr", SET_ATTRIBUTES, [mount, nothing, flags, at, 32, 0]);
    }
    if !worker.random.one_in(6) {
        let place = worker.place();
        let flags = worker.random.pick(&[4u64, 4, 4, 0x104, 0x14]);
        worker.make("move_mount", MOVE_MOUNT, [mount, nothing, AT_HERE, place, flags, 0]);
        if worker.random.one_in(2) {
            worker.make("umount2", UNMOUNT, [place, 2, 0, 0, 0, 0]);
        }
    }
    if !worker.random.one_in(4) {
        worker.close(mount);
    }
}

/// A devpts of the worker's own, with terminals that outlive its mount.
fn terminals(worker: &mut Worker) {
    const PEER: u64 = 0x5441;
    const UNLOCK: u64 = 0x4004_5431;
    const FLAGS: u64 = (libc::O_RDWR | libc::O_NOCTTY) as u64;
    if worker.own_mounts {
        let options = worker.random.pick(&[
            c"newinstance,ptmxmode=0666",
            c"ptmxmode=0666,mode=0620,max=2",
            c"gid=0,uid=0",
            c"max=0",
        ]);
        let (source, at) = (c"devpts".as_ptr() as u64, c"dir/sub".as_ptr() as u64);
        worker.make("mount", MOUNT, [source, at, source, 0, options.as_ptr() as u64, 0]);
    }
    let path = worker.random.pick(&[c"dir/sub/ptmx", c"/dev/ptmx"]);
    let master = worker.open(path, FLAGS as i32);
    let zero = worker.words_of(&[0]);
    worker.make("ioctl", IOCTL, [master, UNLOCK, zero, 0, 0, 0]);
    let slave = Worker::opened(worker.make("ioctl", IOCTL, [master, PEER, FLAGS, 0, 0, 0]));
    if worker.random.one_in(2) {
        worker.make("umount2", UNMOUNT, [c"dir/sub".as_ptr() as u64, 2, 0, 0, 0, 0]);
    }
    worker.make("write", WRITE, [slave, c"text\n".as_ptr() as u64, 5, 0, 0, 0]);
    let late = Worker::opened(worker.make("ioctl", IOCTL, [master, PEER, FLAGS, 0, 0, 0]));
    for fd in [master, slave, late] {
        if worker.random.one_in(2) {
            worker.close(fd);
        }
    }
}

/// io_setup(2), io_submit(2) and the rest.
fn requests(worker: &mut Worker) {
    const SETUP: u64 = 206;
    let at = worker.words_of(&[0]);
    let most = worker.random.pick(&[1u64, 8, 64]);
    worker.make("io_setup", SETUP, [most, at, 0, 0, 0, 0]);
    let context = worker.word(at);
    let list = worker.requests();
    worker.make("io_submit", 209, [context, 3, list, 0, 0, 0]);
    let (events, time) = (worker.memory(), worker.words_of(&[0, 1_000_000]));
    let least = worker.random.below(3);
    worker.make("io_getevents", 208, [context, least, 3, events, time, 0]);
    if worker.random.one_in(2) {
        let first = worker.word(list);
        worker.make("io_cancel", 210, [context, first, events, 0, 0, 0]);
    }
    if !worker.random.one_in(4) {
        worker.make("io_destroy", 207, [context, 0, 0, 0, 0, 0]);
    }
}

/// A file system of message queues, where the worker has mounts of its own, and a queue in it.
fn queue(worker: &mut Worker) {
    if !worker.own_mounts {
        return;
    }
    let (name, at) = (c"mqueue".as_ptr() as u64, c"dir/sub".as_ptr() as u64);
    worker.make("mount", MOUNT, [name, at, name, 0, 0, 0]);
    worker.make("mknod", MKNOD, [c"dir/sub/q".as_ptr() as u64, 0o10_0600, 0, 0, 0, 0]);
    let fd = worker.open(c"dir/sub/q", libc::O_RDWR);
    worker.make("mq_timedsend", 242, [fd, at, 8, 1, 0, 0]);
    worker.make("umount2", UNMOUNT, [at, 2, 0, 0, 0, 0]);
    let mut text = worker.memory();
    if worker.random.one_in(2) {
        text = worker.words_of(&[0; 1024]);
    }
    worker.make("mq_timedreceive", 243, [fd, text, 8192, 0, 0, 0]);
    worker.close(fd);
}
