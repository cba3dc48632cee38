//! Lets a user without privilege fill all that the kernel keeps for it, while root uses the
//! machine.
//!
//! Each hoarder is a process of that user that opens, of one kind after the other and again from
//! the first, what the kernel lets it: Unix-domain sockets full of bytes, sockets whose queues hold
//! descriptors of others, connections that nobody accepts (of Unix-domain sockets and of TCP),
//! netlink sockets that do not read what they asked for, pipes, epoll sets, watches of inotify,
//! eventfds, timers, semaphores and segments of shared memory that it does not touch. It stops when
//! each kind was refused, and stays. What it is refused, with which error, or whether it is killed
//! for it, is the kernel's affair. Root must be served meanwhile: it starts a process, that
//! executes a program, writes and reads a file, and moves bytes through a pipe and a pair of
//! sockets. When the hoarders are killed, the kernel must hold what it held before.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, exit};
use std::time::{Duration, Instant};

use hayate_stress::balance::balanced;
use hayate_stress::{Ended, Options, become_nobody, fork, kill, limit, wait};

const USAGE: &str = "objects [--procs P] [--runs R] [--only KINDS]
  --procs P    hoarders at the same time (8)
  --runs R     do it all so often, at least twice (2)
  --only KINDS hoard only these kinds, separated by commas: bytes, flight, backlog, connections,
               netlink, pipe, epoll, inotify, eventfd, timer, sysv
Example: objects --procs 4 --only flight";

/// How long a service may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a hoarder may take to have what it gets.
const HOARDING: Duration = Duration::from_secs(6);
/// A kind is refused when so many attempts in a row failed.
const REFUSALS: u32 = 3;

type Made = std::io::Result<Vec<OwnedFd>>;

fn check(result: i32) -> std::io::Result<i32> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: i32) -> std::io::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: a new descriptor, that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A pair of streams, full in both directions.
fn bytes() -> Made {
    let (mut one, mut other) = UnixStream::pair()?;
    for (end, piece) in [(&mut one, 1), (&mut other, 30_000)] {
        end.set_nonblocking(true)?;
        let bytes = vec![0x5a; piece];
        while end.write(&bytes).is_ok() {}
    }
    Ok(vec![one.into(), other.into()])
}

/// A pair whose queue is full of descriptors of sockets that are full themselves.
fn flight() -> Made {
    let (to, from) = UnixDatagram::pair()?;
    to.set_nonblocking(true)?;
    for _ in 0..200 {
        let Ok(inner) = bytes() else { break };
        if send_descriptors(&to, &inner).is_err() {
            break;
        }
    }
    Ok(vec![to.into(), from.into()])
}

fn send_descriptors(to: &UnixDatagram, files: &[OwnedFd]) -> std::io::Result<()> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut byte = *b"!";
    let mut piece = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: the header and all it points to live, and the control data has room for the
    // descriptors, which are two.
    unsafe {
        let size = (size_of::<i32>() * files.len()) as u32;
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size) as _;
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        ((*first).cmsg_level, (*first).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        (*first).cmsg_len = libc::CMSG_LEN(size) as _;
        for (at, file) in files.iter().enumerate() {
            libc::CMSG_DATA(first).cast::<i32>().add(at).write_unaligned(file.as_raw_fd());
        }
        check(libc::sendmsg(to.as_raw_fd(), &raw const header, 0) as i32).map(drop)
    }
}

/// A listener with full connections that nobody accepts, and whose callers are gone.
fn backlog(turn: usize) -> Made {
    let name = format!("objects.{}.{turn}", std::process::id());
    // SAFETY: all zeroes are an address. A name after a zero is in no file system.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as _;
    address.sun_path[1..].iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as _);
    let (at, length) = ((&raw const address).cast(), size_of_val(&address) as u32);
    // SAFETY: no pointers.
    let listener = owned(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) })?;
    // SAFETY: the address lives.
    unsafe {
        check(libc::bind(listener.as_raw_fd(), at, length))?;
        check(libc::listen(listener.as_raw_fd(), 4096))?;
    }
    let content = vec![0x5a; 30_000];
    for _ in 0..4096 {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers.
        let mut caller = UnixStream::from(owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?);
        // SAFETY: the address lives.
        if unsafe { libc::connect(caller.as_raw_fd(), at, length) } != 0 {
            break;
        }
        while caller.write(&content).is_ok() {}
    }
    Ok(vec![listener])
}

/// A listener of TCP with connections that nobody accepts, bytes in their queues, and whose callers
/// are gone.
fn connections() -> Made {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(listener.as_raw_fd(), 4096) })?;
    let content = vec![0x5a; 30_000];
    for made in 0..4096 {
        let caller = TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let mut caller = match caller {
            Ok(caller) => caller,
            Err(error) if made == 0 => return Err(error),
            Err(_) => break,
        };
        caller.set_nonblocking(true)?;
        while caller.write(&content).is_ok() {}
    }
    Ok(vec![listener.into()])
}

/// A netlink socket that asked for all addresses, links and routes, and does not read.
fn netlink() -> Made {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0) };
    let socket = owned(fd)?;
    for kind in [18u16, 22, 26] {
        // struct nlmsghdr and rtgenmsg: NLM_F_REQUEST, NLM_F_ROOT, NLM_F_MATCH.
        let mut request = [0u8; 20];
        request[0] = 20;
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&0x301u16.to_ne_bytes());
        // SAFETY: the bytes live.
        unsafe { libc::send(fd, request.as_ptr().cast(), request.len(), 0) };
    }
    Ok(vec![socket])
}

/// A full pipe, as large as it gets.
fn pipe() -> Made {
    let (reader, mut writer) = std::io::pipe()?;
    // SAFETY: no pointers.
    unsafe {
        libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20);
        libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK);
    }
    let bytes = [0x5a; 4096];
    while writer.write(&bytes).is_ok() {}
    Ok(vec![reader.into(), writer.into()])
}

/// A set that watches all descriptors below a number.
fn epoll() -> Made {
    // SAFETY: no pointers.
    let set = owned(unsafe { libc::epoll_create1(0) })?;
    for fd in 0..4096 {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event lives.
        unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    }
    Ok(vec![set])
}

/// Watches of every folder of /proc and /sys that can be found quickly, and events nobody reads.
fn inotify() -> Made {
    // SAFETY: no pointers.
    let watcher = owned(unsafe { libc::inotify_init1(libc::IN_NONBLOCK) })?;
    for place in ["/", "/tmp", "/proc", "/sys", "/dev", "/proc/sys", "/proc/self", "/etc"] {
        let Ok(entries) = fs::read_dir(place) else { continue };
        for entry in entries.flatten() {
            let Some(path) = entry.path().to_str().map(hayate_stress::c_path) else { continue };
            // SAFETY: a string that ends with a zero.
            unsafe {
                libc::inotify_add_watch(watcher.as_raw_fd(), path.as_ptr(), libc::IN_ALL_EVENTS)
            };
        }
    }
    Ok(vec![watcher])
}

fn eventfd() -> Made {
    // SAFETY: no pointers.
    Ok(vec![owned(unsafe { libc::eventfd(0, 0) })?])
}

/// A timerfd that is armed, and a timer of POSIX.
fn timer() -> Made {
    // SAFETY: no pointers; the structures live.
    unsafe {
        let fd = owned(libc::timerfd_create(libc::CLOCK_MONOTONIC, 0))?;
        let mut time: libc::itimerspec = std::mem::zeroed();
        time.it_value.tv_sec = 5000;
        libc::timerfd_settime(fd.as_raw_fd(), 0, &raw const time, std::ptr::null_mut());
        let mut id: libc::c_int = 0;
        let none = std::ptr::null::<u8>();
        libc::syscall(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, none, &raw mut id);
        Ok(vec![fd])
    }
}

/// A set of semaphores and a segment; they are removed by root at the end.
fn sysv() -> Made {
    // SAFETY: no pointers.
    unsafe {
        let set = libc::semget(libc::IPC_PRIVATE, 250, 0o600);
        let segment = libc::shmget(libc::IPC_PRIVATE, 1 << 20, 0o600);
        let queue = libc::msgget(libc::IPC_PRIVATE, 0o600);
        check(set.max(segment).max(queue))?;
    }
    Ok(Vec::new())
}

/// Removes the objects of System V that hoarders left: they have no owner that could end.
fn remove_sysv() {
    for (list, remove) in [("msg", 0), ("sem", 1), ("shm", 2)] {
        let text = fs::read_to_string(format!("/proc/sysvipc/{list}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let Some(id) = line.split_whitespace().nth(1).and_then(|id| id.parse().ok()) else {
                continue;
            };
            let nothing = std::ptr::null_mut();
            // SAFETY: no pointers that are used.
            unsafe {
                match remove {
                    0 => libc::msgctl(id, libc::IPC_RMID, nothing),
                    1 => libc::semctl(id, 0, libc::IPC_RMID),
                    _ => libc::shmctl(id, libc::IPC_RMID, nothing.cast()),
                };
            }
        }
    }
}

/// A name, and what makes the next ones of that kind; it gets the number of those made before.
type Kind = (&'static str, fn(usize) -> Made);

/// The kinds by name, each with what makes the next ones of it.
const KINDS: [Kind; 11] = [
    ("bytes", |_| bytes()),
    ("flight", |_| flight()),
    ("backlog", backlog),
    ("connections", |_| connections()),
    ("netlink", |_| netlink()),
    ("pipe", |_| pipe()),
    ("epoll", |_| epoll()),
    ("inotify", |_| inotify()),
    ("eventfd", |_| eventfd()),
    ("timer", |_| timer()),
    ("sysv", |_| sysv()),
];

/// Opens what it gets, and tells of each that it got by the number of its kind: it may be killed
/// meanwhile.
fn hoard(only: &str, kept: &mut Vec<OwnedFd>, told: &mut impl Write) {
    let start = Instant::now();
    let mut got = [0usize; KINDS.len()];
    let mut refused = [REFUSALS; KINDS.len()];
    for at in (0..KINDS.len())
        .filter(|&at| only.is_empty() || only.split(',').any(|one| one == KINDS[at].0))
    {
        refused[at] = 0;
    }
    while start.elapsed() < HOARDING && refused.iter().any(|&times| times < REFUSALS) {
        for at in 0..KINDS.len() {
            if refused[at] >= REFUSALS {
                continue;
            }
            if let Ok(files) = KINDS[at].1(got[at]) {
                kept.extend(files);
                got[at] += 1;
                refused[at] = 0;
                let _ = told.write(&[at as u8]);
            } else {
                refused[at] += 1;
            }
        }
    }
}

/// Says how many of each kind a hoarder got.
fn counted(told: &[u8]) -> String {
    let count = |at: usize| told.iter().filter(|&&kind| usize::from(kind) == at).count();
    let counts = KINDS.iter().enumerate().map(|(at, (name, _))| (name, count(at)));
    let counts = counts.filter(|(_, count)| *count != 0);
    counts.map(|(name, count)| format!(" {name} {count}")).collect()
}

/// Starts a hoarder; returns its process and what it says it has. It may be killed meanwhile.
fn start_hoarder(only: &str) -> Result<(i32, String), String> {
    let (mut reader, mut writer) = std::io::pipe().map_err(|error| format!("pipe: {error}"))?;
    match fork() {
        Ok(0) => {
            drop(reader);
            limit(libc::RLIMIT_NOFILE as _, 4096);
            if !become_nobody() {
                exit(3);
            }
            let mut kept = Vec::new();
            hoard(only, &mut kept, &mut writer);
            drop(writer);
            std::thread::sleep(Duration::from_secs(3600));
            exit(0)
        }
        Ok(pid) => {
            drop(writer);
            let mut told = Vec::new();
            let read = reader.read_to_end(&mut told);
            read.map(|_| (pid, counted(&told)))
                .map_err(|error| format!("pipe of a hoarder: {error}"))
        }
        Err(error) => Err(format!("fork of a hoarder: {error}")),
    }
}

/// Uses the machine as root does: an error names what was refused.
fn serve() -> Result<(), String> {
    let told = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let program = std::env::current_exe().map_err(told("/proc/self/exe"))?;
    let status = Command::new(program).arg("--served").status().map_err(told("start"))?;
    if !status.success() {
        return Err(format!("a program ended with {status}"));
    }
    let content = vec![7; 100_000];
    fs::write("/tmp/objects.served", &content).map_err(told("write a file"))?;
    let read = fs::read("/tmp/objects.served").map_err(told("read a file"))?;
    let _ = fs::remove_file("/tmp/objects.served");
    let (mut reader, mut writer) = std::io::pipe().map_err(told("pipe"))?;
    let (mut one, mut other) = UnixStream::pair().map_err(told("socketpair"))?;
    one.set_write_timeout(Some(PATIENCE)).map_err(told("SO_SNDTIMEO"))?;
    let mut back = vec![0; 4000];
    for piece in read.chunks(4000) {
        writer.write_all(piece).map_err(told("write to a pipe"))?;
        reader.read_exact(&mut back).map_err(told("read from a pipe"))?;
        one.write_all(&back).map_err(told("send to a socket"))?;
        other.read_exact(&mut back).map_err(told("receive from a socket"))?;
        if back != piece {
            return Err("other bytes came back than were written".into());
        }
    }
    // Descriptors of its own pass, however many others have in flight.
    let (to, _from) = UnixDatagram::pair().map_err(told("socketpair"))?;
    for _ in 0..20 {
        let files: [OwnedFd; 1] = [to.try_clone().map_err(told("dup"))?.into()];
        send_descriptors(&to, &files).map_err(told("send a descriptor"))?;
    }
    Ok(())
}

/// Says how much memory is free, if the kernel tells it exactly.
fn free_frames() -> String {
    let text = fs::read_to_string("/proc/hayate/frames").unwrap_or_default();
    let free = text.lines().find_map(|line| line.strip_prefix("free "));
    free.map_or(String::new(), |free| format!(", {} frames free", free.trim()))
}

/// One run: returns the number of its hoarders.
fn strain(procs: u64, only: &str) -> Result<u64, String> {
    let mut hoarders = Vec::new();
    let mut outcome = Ok(());
    for _ in 0..procs {
        match start_hoarder(only) {
            Ok((pid, said)) => {
                println!("    {pid}:{said}{}", free_frames());
                hoarders.push(pid);
            }
            Err(why) => outcome = Err(why),
        }
        let start = Instant::now();
        outcome =
            outcome.and_then(|()| serve().map_err(|why| format!("root is not served: {why}")));
        if start.elapsed() > PATIENCE {
            outcome = Err("root was served late".into());
        }
        if outcome.is_err() {
            // What the kernel holds then, before it is given back.
            for place in ["frames", "objects", "net/sockstat", "sockets"] {
                let folder = if place.contains('/') { "/proc" } else { "/proc/hayate" };
                let text = fs::read_to_string(format!("{folder}/{place}")).unwrap_or_default();
                text.lines().for_each(|line| println!("    {line}"));
            }
            break;
        }
    }
    hoarders.iter().for_each(|&pid| kill(pid, libc::SIGKILL));
    for pid in hoarders {
        match wait(pid) {
            Some((_, Ended::Killed(libc::SIGKILL))) => {}
            other => return Err(format!("a hoarder ended as {other:?}")),
        }
    }
    remove_sysv();
    outcome.map(|()| procs)
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--served") {
        return;
    }
    let options = Options::parse(USAGE, &["procs", "runs", "only"], &[]);
    let only: String = options.get("only", String::new());
    let procs = options.get("procs", 8);
    if let Err(why) = balanced(options.get("runs", 2), 6, |_| strain(procs, &only)) {
        println!("objects: FAILED: {why}");
        exit(1);
    }
    println!("objects: ok");
}
