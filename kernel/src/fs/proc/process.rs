//! `/proc/PID` and `/proc/PID/task/TID`: the files about a process or a thread.
//!
//! A directory holds a weak reference to its process. Files that only the process itself and
//! privileged users may see (`environ`, `maps`, the targets of its links) are checked when they are
//! opened or followed, as ptrace(2) access is on Linux.

use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};

use super::processes::Tasks;
use super::system;
use super::system::{TICK_NS, bytes, line, line_of, put};
use super::tree::{Item, Subject, What};
use super::{descriptors, inside, namespaces};
use crate::credentials::Capability;
use crate::memory::Space;
use crate::process;
use crate::process::access;
use crate::process::access::Ids;
use crate::process::{Process, Thread, dump, signal};
use crate::vfs::mount::Location;

const PAGE: usize = 4096;
/// The most bytes of a process's memory that `cmdline` and `environ` show at once.
const LONGEST_VECTOR: usize = 128 * 1024;

/// A weak reference to a process or to one of its threads.
#[derive(Clone)]
pub struct Target {
    process: Weak<Process>,
    thread: Option<Weak<Thread>>,
    id: u32,
}

impl Target {
    /// The process as a whole.
    pub fn of_process(process: &Arc<Process>) -> Self {
        Self { process: Arc::downgrade(process), thread: None, id: process.id() }
    }

    /// One thread.
    pub fn of_thread(thread: &Arc<Thread>) -> Self {
        let process = Arc::downgrade(&thread.process);
        Self { process, thread: Some(Arc::downgrade(thread)), id: thread.id() }
    }

    /// Returns the process; ESRCH if it has ended.
    pub fn process(&self) -> Result<Arc<Process>> {
        let process = self.process.upgrade().ok_or(Errno::ESRCH)?;
        if process.is_reaped() { Err(Errno::ESRCH) } else { Ok(process) }
    }

    /// Returns the thread, or any of the process's; ESRCH if there is none any more.
    pub fn thread(&self) -> Result<Arc<Thread>> {
        match &self.thread {
            Some(thread) => thread.upgrade().ok_or(Errno::ESRCH),
            None => self.process()?.first_thread().ok_or(Errno::ESRCH),
        }
    }

    /// Its space; `None` if it has none any more.
    pub fn space(&self) -> Option<Arc<Space>> {
        self.thread().ok().and_then(|thread| thread.space())
    }

    /// PTRACE_MODE_READ of ptrace(2), "Ptrace access mode checking". Fails with EACCES.
    pub fn check_access(&self) -> Result<()> {
        if self.is_callers_own() { Ok(()) } else { self.look(|_| ()) }
    }

    /// Returns what `look` finds in the thread, if the caller may look into it; else fails with
    /// EACCES. The check and `look` see the same program, whatever the process executes meanwhile.
    /// So `look` must return any reference it takes and not drop it (see [`Process::steady`]).
    pub fn look<T>(&self, look: impl FnOnce(&Thread) -> T) -> Result<T> {
        let process = self.process()?;
        let missing = if self.is_callers_own() { Errno::ESRCH } else { Errno::EACCES };
        let thread = self.thread().map_err(|_| missing)?;
        process.steady(|| {
            access::check(&thread, Ids::FileSystem).map_err(|_| Errno::EACCES)?;
            Ok(look(&thread))
        })
    }
}

impl Subject for Target {
    /// A process that cannot be looked into belongs to the superuser (`task_dump_owner`,
    /// fs/proc/base.c).
    fn owner(&self, public: bool) -> (u32, u32) {
        let Ok(thread) = self.thread() else { return (0, 0) };
        let shown = access::is_dumpable(&thread.process) && thread.space().is_some();
        if !public && !shown {
            return (0, 0);
        }
        let credentials = thread.credentials();
        (credentials.euid, credentials.egid)
    }

    fn check_access(&self) -> Result<()> {
        Target::check_access(self)
    }

    fn is_callers_own(&self) -> bool {
        self.process.upgrade().is_some_and(|it| Arc::ptr_eq(&it, &process::current().process))
    }

    fn inside(&self) -> u64 {
        self.space().map_or(0, |space| space.serial())
    }

    fn check(&self) -> Result<()> {
        self.process().map(|_| ())
    }

    fn seed(&self) -> u64 {
        u64::from(self.id) << 32 | u64::from(self.thread.is_some())
    }
}

/// `/proc/PID`.
pub static PROCESS: What<Target> = What::Directory(&[
    Item { name: "task", what: What::Listing(&Tasks) },
    Item { name: "auxv", what: What::Private(auxv) },
    Item { name: "cmdline", what: What::Text(cmdline) },
    Item { name: "comm", what: What::Setting(comm, set_comm) },
    Item { name: "coredump_filter", what: What::Setting(coredump_filter, set_coredump_filter) },
    Item { name: "cwd", what: What::Magic(cwd, |target| show(target, cwd)) },
    Item { name: "environ", what: What::Private(environ) },
    Item { name: "exe", what: What::Magic(exe, |target| show(target, exe)) },
    Item { name: "fd", what: What::Listing(&descriptors::LINKS) },
    Item { name: "fdinfo", what: What::Listing(&descriptors::INFORMATION) },
    Item { name: "io", what: What::Asked(io) },
    Item { name: "limits", what: What::Text(limits) },
    Item { name: "maps", what: What::Guarded(inside::maps) },
    Item { name: "mem", what: What::Opened(0o600, inside::open_memory) },
    Item { name: "mountinfo", what: What::Text(mountinfo) },
    Item { name: "mounts", what: What::Text(mounts) },
    Item { name: "ns", what: What::Directory(namespaces::ITEMS) },
    Item { name: "oom_score_adj", what: What::Setting(oom_score_adj, set_oom_score_adj) },
    Item { name: "pagemap", what: What::Opened(0o400, inside::open_page_map) },
    Item { name: "root", what: What::Magic(root, |target| show(target, root)) },
    Item { name: "smaps", what: What::Guarded(inside::smaps) },
    Item { name: "stat", what: What::Text(stat) },
    Item { name: "statm", what: What::Text(inside::statm) },
    Item { name: "mode", what: What::Text(mode) },
    Item { name: "status", what: What::Text(status) },
    Item { name: "timerslack_ns", what: What::Open(timer_slack, set_timer_slack) },
]);

/// `/proc/PID/task/TID`.
pub static THREAD: What<Target> = What::Directory(&[
    Item { name: "cmdline", what: What::Text(cmdline) },
    Item { name: "comm", what: What::Setting(comm, set_comm) },
    Item { name: "cwd", what: What::Magic(cwd, |target| show(target, cwd)) },
    Item { name: "environ", what: What::Private(environ) },
    Item { name: "exe", what: What::Magic(exe, |target| show(target, exe)) },
    Item { name: "fd", what: What::Listing(&descriptors::LINKS) },
    Item { name: "fdinfo", what: What::Listing(&descriptors::INFORMATION) },
    Item { name: "io", what: What::Asked(io) },
    Item { name: "limits", what: What::Text(limits) },
    Item { name: "maps", what: What::Guarded(inside::maps) },
    Item { name: "mem", what: What::Opened(0o600, inside::open_memory) },
    Item { name: "mountinfo", what: What::Text(mountinfo) },
    Item { name: "mounts", what: What::Text(mounts) },
    Item { name: "ns", what: What::Directory(namespaces::ITEMS) },
    Item { name: "pagemap", what: What::Opened(0o400, inside::open_page_map) },
    Item { name: "root", what: What::Magic(root, |target| show(target, root)) },
    Item { name: "smaps", what: What::Guarded(inside::smaps) },
    Item { name: "stat", what: What::Text(stat) },
    Item { name: "statm", what: What::Text(inside::statm) },
    Item { name: "status", what: What::Text(status) },
]);

// ---- places -------------------------------------------------------------------------------------

fn cwd(target: &Target) -> Result<Location> {
    let found = target.look(|thread| -> Result<_> {
        let directories = thread.directories()?;
        Ok((directories.working(), directories))
    })?;
    Ok(found?.0)
}

fn root(target: &Target) -> Result<Location> {
    let found = target.look(|thread| -> Result<_> {
        let directories = thread.directories()?;
        Ok((directories.root(), directories))
    })?;
    Ok(found?.0)
}

fn exe(target: &Target) -> Result<Location> {
    let file = target.look(|thread| thread.process.executable())?.ok_or(Errno::ENOENT)?;
    Ok(file.location().clone())
}

/// The text of a link: the path of its location as seen from the caller's root.
fn show(target: &Target, place: fn(&Target) -> Result<Location>) -> Result<Vec<u8>> {
    let own_root = process::current().directories()?.root();
    place(target)?.display(&own_root)
}

fn mounts(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    system::mounts(&target.thread()?.directories()?.root(), out)
}

fn mountinfo(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    system::mountinfo(&target.thread()?.directories()?.root(), out)
}

// ---- memory -------------------------------------------------------------------------------------

/// Appends a range of the process's memory, up to the first byte that cannot be read.
fn memory(space: Option<Arc<Space>>, start: usize, end: usize, out: &mut Vec<u8>) -> Result<()> {
    let Some(space) = space else { return Ok(()) };
    let mut piece = [0; 512];
    let mut at = start;
    let end = end.min(start.saturating_add(LONGEST_VECTOR));
    while at < end {
        let wanted = (end - at).min(piece.len());
        let count = space.read_foreign(at, &mut piece[..wanted]);
        bytes(out, &piece[..count])?;
        at += count;
        if count < wanted {
            break;
        }
    }
    Ok(())
}

fn cmdline(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let process = target.process()?;
    let Ok(thread) = target.thread() else { return Ok(()) };
    // Take both together: in another program's space these addresses hold other data.
    let (vectors, space) = process.steady(|| (process.vectors(), thread.space()));
    memory(space, vectors.arguments, vectors.arguments_end, out)
}

fn environ(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let vectors = target.process()?.vectors();
    memory(target.space(), vectors.environment, vectors.environment_end, out)
}

fn auxv(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let vectors = target.process()?.vectors();
    memory(target.space(), vectors.auxiliary, vectors.auxiliary_end, out)
}

// ---- the process --------------------------------------------------------------------------------

fn name_of(thread: &Thread) -> Vec<u8> {
    let name = thread.name();
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    name[..length].to_vec()
}

fn comm(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    line_of(out, &process_name(target)?)
}

/// The name, also of a process that has ended.
fn process_name(target: &Target) -> Result<Vec<u8>> {
    // A process that has ended keeps its last thread.
    Ok(name_of(&*target.thread()?))
}

fn set_comm(target: &Target, text: &[u8]) -> Result<()> {
    let thread = target.thread()?;
    if !Arc::ptr_eq(&thread.process, &process::current().process) {
        return Err(Errno::EINVAL);
    }
    let name = text.strip_suffix(b"\n").unwrap_or(text);
    thread.set_name(&name[..name.len().min(15)]);
    Ok(())
}

/// Of the first thread: it itself, or who may change how others are scheduled (EPERM;
/// `timerslack_ns_write`, fs/proc/base.c).
fn slack_of(target: &Target) -> Result<Arc<Thread>> {
    let thread = target.thread()?;
    let caller = process::current();
    if thread.id() != caller.id() {
        caller.credentials().require(Capability::SysNice)?;
    }
    Ok(thread)
}

fn timer_slack(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let slack = slack_of(target)?.timer_slack.load(Ordering::Relaxed);
    line(out, format_args!("{slack}"))
}

/// 0 means what the thread started with.
fn set_timer_slack(target: &Target, text: &[u8]) -> Result<()> {
    let slack = super::settings::unsigned(text, false, u64::MAX)?;
    let thread = slack_of(target)?;
    let slack = if slack == 0 { thread.default_timer_slack } else { slack };
    thread.timer_slack.store(slack, Ordering::Relaxed);
    Ok(())
}

/// Nothing of a process that has no memory any more (`proc_coredump_filter_read`).
fn coredump_filter(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let process = target.process()?;
    match target.space() {
        Some(_) => line(out, format_args!("{:08x}", process.dump_filter.load(Ordering::Relaxed))),
        None => Ok(()),
    }
}

fn set_coredump_filter(target: &Target, text: &[u8]) -> Result<()> {
    let value = super::settings::unsigned(text, true, u64::from(u32::MAX))?;
    let process = target.process()?;
    if target.space().is_none() {
        return Err(Errno::ESRCH);
    }
    process.dump_filter.store(value as u32 & dump::filter::ALL, Ordering::Relaxed);
    Ok(())
}

fn oom_score_adj(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let value = target.process()?.oom_score_adjust.load(core::sync::atomic::Ordering::Relaxed);
    line(out, format_args!("{value}"))
}

fn set_oom_score_adj(target: &Target, text: &[u8]) -> Result<()> {
    let value = super::settings::number(text)?;
    if !(-1000..=1000).contains(&value) {
        return Err(Errno::EINVAL);
    }
    let adjust = &target.process()?.oom_score_adjust;
    let lowers = value < i64::from(adjust.load(core::sync::atomic::Ordering::Relaxed));
    if lowers && !process::current().credentials().has(Capability::SysResource) {
        return Err(Errno::EACCES);
    }
    adjust.store(value as i32, core::sync::atomic::Ordering::Relaxed);
    Ok(())
}

/// The state's letter (proc(5)).
fn state(target: &Target) -> char {
    let Ok(process) = target.process() else { return 'X' };
    if process.is_zombie() {
        return 'Z';
    }
    if process.is_stopped() {
        return 'T';
    }
    let Ok(thread) = target.thread() else { return 'Z' };
    match thread.execution() {
        Some(execution) if execution.is_runnable() => 'R',
        Some(execution) if execution.is_interruptible() => 'S',
        Some(_) => 'D',
        None => 'X',
    }
}

fn stat(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let process = target.process()?;
    let thread = target.thread().ok();
    let usage = match (&target.thread, &thread) {
        (Some(_), Some(thread)) => thread.usage(),
        _ => process.usage(),
    };
    let children = process.children_usage();
    let space = thread.as_ref().and_then(|thread| thread.space());
    let sizes = space.map(|space| space.totals()).unwrap_or_default();
    let terminal = process.session().terminal();
    let (tty, foreground) = match &terminal {
        Some(tty) => {
            let (major, minor) = tty.device;
            let number = crate::vfs::inode::DeviceNumber::new(major, minor).encode() as i64;
            (number, tty.session_and_foreground().1.map_or(-1, i64::from))
        }
        None => (0, -1),
    };
    let execution = thread.as_ref().and_then(|thread| thread.execution());
    let nice = execution.as_ref().map_or(0, |execution| i64::from(execution.nice()));
    let cpu = execution.as_ref().map_or(0, |execution| execution.cpu());
    let (ignored, caught) = process.actions().ignored_and_caught();
    let pending = thread.as_ref().map_or(0, |thread| thread.queue.mask());
    let blocked = thread.as_ref().map_or(0, |thread| thread.blocked());
    let ticks = |ns: u64| ns / TICK_NS;

    put(out, format_args!("{} (", target.id))?;
    bytes(out, &process_name(target)?)?;
    put(
        out,
        format_args!(
            ") {} {} {} {} {tty} {foreground} 0 {} {} {} {} {} {} {} {} ",
            state(target),
            process.parent_id(),
            process.group(),
            process.session_id(),
            usage.minor_faults,
            children.minor_faults,
            usage.major_faults,
            children.major_faults,
            ticks(usage.user_ns),
            ticks(usage.system_ns),
            ticks(children.user_ns),
            ticks(children.system_ns),
        ),
    )?;
    // The addresses of code, stack and instruction are 0, as Linux shows them to other users.
    line(
        out,
        format_args!(
            "{} {nice} {} 0 {} {} {} {} 1 1 0 0 0 {} {} {} {} 0 0 0 {} {cpu} 0 0 0 0 0 0 0 0 0 0 0 0 0",
            20 + nice,
            process.thread_count(),
            ticks(process.started()),
            sizes.size * PAGE,
            sizes.resident,
            process.limit(hayate_abi::process::RLIMIT_RSS),
            pending & 0x7fff_ffff,
            blocked & 0x7fff_ffff,
            ignored & 0x7fff_ffff,
            caught & 0x7fff_ffff,
            signal::SIGCHLD,
        ),
    )
}

fn status(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let process = target.process()?;
    let thread = target.thread().ok();
    let state = state(target);
    let word = match state {
        'R' => "running",
        'S' => "sleeping",
        'D' => "disk sleep",
        'T' => "stopped",
        'Z' => "zombie",
        _ => "dead",
    };
    put(out, format_args!("Name:\t"))?;
    line_of(out, &process_name(target)?)?;
    if let Some(thread) = &thread {
        line(out, format_args!("Umask:\t{:04o}", thread.directories().map_or(0, |fs| fs.umask())))?;
    }
    line(out, format_args!("State:\t{state} ({word})"))?;
    line(out, format_args!("Tgid:\t{}\nNgid:\t0\nPid:\t{}", process.id(), target.id))?;
    line(out, format_args!("PPid:\t{}\nTracerPid:\t0", process.parent_id()))?;
    if let Some(thread) = &thread {
        let own = thread.credentials();
        line(out, format_args!("Uid:\t{}\t{}\t{}\t{}", own.uid, own.euid, own.suid, own.fsuid))?;
        line(out, format_args!("Gid:\t{}\t{}\t{}\t{}", own.gid, own.egid, own.sgid, own.fsgid))?;
        let size = thread.try_files().map_or(0, |files| files.size());
        put(out, format_args!("FDSize:\t{size}\nGroups:\t"))?;
        for group in own.groups.iter() {
            put(out, format_args!("{group} "))?;
        }
        bytes(out, b"\n")?;
        if let Some(space) = thread.space() {
            let sizes = space.totals();
            for (name, size) in [
                ("VmSize", sizes.size),
                ("VmLck", sizes.locked),
                ("VmHWM", space.peak_resident()),
                ("VmRSS", sizes.resident),
                ("RssAnon", sizes.resident.saturating_sub(sizes.shared)),
                ("RssFile", sizes.shared),
                ("VmData", sizes.data),
                ("VmStk", sizes.stack),
                ("VmExe", sizes.text),
                ("VmSwap", 0),
            ] {
                line(out, format_args!("{name}:\t{:>8} kB", size * PAGE / 1024))?;
            }
        }
    }
    line(out, format_args!("Threads:\t{}", process.thread_count()))?;
    let (ignored, caught) = process.actions().ignored_and_caught();
    let pending = thread.as_ref().map_or(0, |thread| thread.queue.mask());
    let blocked = thread.as_ref().map_or(0, |thread| thread.blocked());
    line(
        out,
        format_args!(
            "SigQ:\t{}/{}",
            process.queue.count(),
            process.limit(hayate_abi::process::RLIMIT_SIGPENDING)
        ),
    )?;
    line(out, format_args!("SigPnd:\t{pending:016x}\nShdPnd:\t{:016x}", process.queue.mask()))?;
    line(
        out,
        format_args!("SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\nSigCgt:\t{caught:016x}"),
    )?;
    if let Some(thread) = &thread {
        let own = thread.credentials();
        line(
            out,
            format_args!("CapInh:\t{:016x}\nCapPrm:\t{:016x}", own.inheritable.0, own.permitted.0),
        )?;
        line(
            out,
            format_args!("CapEff:\t{:016x}\nCapBnd:\t{:016x}", own.effective.0, own.bounding.0),
        )?;
        line(out, format_args!("CapAmb:\t{:016x}", own.ambient.0))?;
        let no_new = thread.no_new_privileges.load(core::sync::atomic::Ordering::Relaxed);
        if let Some(space) = thread.space() {
            let mode = if space.is_supervisor() { "supervisor" } else { "user" };
            line(out, format_args!("Mode:\t{mode}"))?;
        }
        line(out, format_args!("NoNewPrivs:\t{}\nSeccomp:\t0", u8::from(no_new)))?;
        if let Some(execution) = thread.execution() {
            let mask = execution.affinity() & hayate_machine::cpu::online_mask();
            line(out, format_args!("Cpus_allowed:\t{mask:x}"))?;
            put(out, format_args!("Cpus_allowed_list:\t"))?;
            cpu_list(mask, out)?;
        }
        let usage = thread.usage();
        line(out, format_args!("voluntary_ctxt_switches:\t{}", usage.voluntary_switches))?;
        line(out, format_args!("nonvoluntary_ctxt_switches:\t{}", usage.involuntary_switches))?;
    }
    Ok(())
}

/// `/proc/PID/mode`, Hayate's own: the running mode (docs/dmsm.md).
fn mode(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    use core::sync::atomic::Ordering::Relaxed;
    use hayate_call_sites::Left;

    let process = target.process()?;
    let space = target.thread()?.space().ok_or(Errno::ESRCH)?;
    let mode = if space.is_supervisor() { "supervisor" } else { "user" };
    line(out, format_args!("mode: {mode}"))?;
    let keeps = if process.keeps_mode.load(Relaxed) { "yes" } else { "no" };
    line(out, format_args!("kept by exec: {keeps}"))?;
    line(out, format_args!("switches: {}", process.mode_switches.load(Relaxed)))?;
    let (calls, traps) = space.supervisor_calls();
    line(out, format_args!("calls by function call: {calls}\ncalls by trap: {traps}"))?;
    let counts = space.site_counts();
    line(out, format_args!("sites turned: {}", counts.turned))?;
    line(out, format_args!("sites restored: {}", counts.restored))?;
    put(out, format_args!("sites left: {}", counts.left.iter().sum::<usize>()))?;
    for (why, count) in Left::ALL.iter().zip(counts.left).filter(|(_, count)| *count != 0) {
        put(out, format_args!(" {}={count}", why.name()))?;
    }
    bytes(out, b"\n")
}

/// Writes a set of CPUs as `0-2,4`.
fn cpu_list(mask: u64, out: &mut Vec<u8>) -> Result<()> {
    let mut at = 0;
    let mut first = true;
    while at < u64::BITS {
        if mask >> at & 1 == 0 {
            at += 1;
            continue;
        }
        let length = (!(mask >> at)).trailing_zeros().min(u64::BITS - at);
        let comma = if core::mem::take(&mut first) { "" } else { "," };
        match length {
            1 => put(out, format_args!("{comma}{at}"))?,
            _ => put(out, format_args!("{comma}{at}-{}", at + length - 1))?,
        }
        at += length;
    }
    bytes(out, b"\n")
}

/// `/proc/PID/io`. The counts of a process include its ended threads and its waited-for children
/// (`do_io_accounting`, fs/proc/base.c, and `wait_task_zombie`, kernel/exit.c). Disks are only read
/// here, so the bytes written to disks are 0.
fn io(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let moved = if target.thread.is_some() {
        target.thread()?.moved.sums()
    } else {
        target.process()?.moved()
    };
    for (name, count) in [
        ("rchar", moved.read_bytes),
        ("wchar", moved.written_bytes),
        ("syscr", moved.reads),
        ("syscw", moved.writes),
        ("read_bytes", moved.device_bytes),
        ("write_bytes", 0),
        ("cancelled_write_bytes", 0),
    ] {
        line(out, format_args!("{name}: {count}"))?;
    }
    Ok(())
}

fn limits(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    const NAMES: [(&str, &str); 16] = [
        ("Max cpu time", "seconds"),
        ("Max file size", "bytes"),
        ("Max data size", "bytes"),
        ("Max stack size", "bytes"),
        ("Max core file size", "bytes"),
        ("Max resident set", "bytes"),
        ("Max processes", "processes"),
        ("Max open files", "files"),
        ("Max locked memory", "bytes"),
        ("Max address space", "bytes"),
        ("Max file locks", "locks"),
        ("Max pending signals", "signals"),
        ("Max msgqueue size", "bytes"),
        ("Max nice priority", ""),
        ("Max realtime priority", ""),
        ("Max realtime timeout", "us"),
    ];
    line(
        out,
        format_args!("{:<25} {:<20} {:<20} {:<10}", "Limit", "Soft Limit", "Hard Limit", "Units"),
    )?;
    let limits = target.process()?.limits();
    for (resource, (name, unit)) in NAMES.iter().enumerate() {
        let Some(limit) = limits.get(resource) else { continue };
        let word = |value: u64| match value {
            u64::MAX => alloc::string::String::from("unlimited"),
            value => format!("{value}"),
        };
        let (soft, hard) = (word(limit.rlim_cur), word(limit.rlim_max));
        line(out, format_args!("{name:<25} {soft:<20} {hard:<20} {unit:<10}"))?;
    }
    Ok(())
}
