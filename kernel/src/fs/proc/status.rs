//! The numbers of a process in `/proc/PID`: `stat`, `status`, `mode`, `io`, `limits`.

use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::process::{RLIMIT_RSS, RLIMIT_SIGPENDING};
use hayate_abi::signal::SIGCHLD;
use hayate_abi::{Errno, Result};

use super::target::Target;
use super::text::{TICK_NS, bytes, line, line_of, put};
use crate::memory::PAGE;
use crate::process::numbers::{shown_group, shown_user};
use crate::process::pid_namespace::list_below;
use crate::process::record::{Process, Vectors};
use crate::process::thread::Thread;
use crate::process::tracing;
use crate::vfs::inode::DeviceNumber;

fn name_of(thread: &Thread) -> Vec<u8> {
    let name = thread.name();
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    name[..length].to_vec()
}

/// The name, also of a process that has ended.
pub(super) fn process_name(target: &Target) -> Result<Vec<u8>> {
    // A process that has ended keeps its last thread.
    Ok(name_of(&*target.thread()?))
}

/// The state's letter (proc(5)).
fn state(target: &Target) -> char {
    let Ok(process) = target.process() else { return 'X' };
    if process.is_zombie() {
        return 'Z';
    }
    let Ok(thread) = target.thread() else { return 'Z' };
    if tracing::is_in_stop(&thread) {
        return 't';
    }
    if process.is_stopped() {
        return 'T';
    }
    match thread.execution() {
        Some(execution) if execution.is_runnable() => 'R',
        Some(execution) if execution.is_interruptible() => 'S',
        Some(_) => 'D',
        None => 'X',
    }
}

/// `/proc/PID/stat`.
pub(super) fn stat(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let process = target.process()?;
    let thread = target.thread().ok();
    let usage = match (&target.thread, &thread) {
        (Some(_), Some(thread)) => thread.usage(),
        _ => process.usage(),
    };
    let children = process.children_usage();
    let space = thread.as_ref().and_then(|thread| thread.space());
    let sizes = space.map(|space| space.totals()).unwrap_or_default();
    let (tty, foreground) = terminal_of(target, &process);
    let execution = thread.as_ref().and_then(|thread| thread.execution());
    let nice = execution.as_ref().map_or(0, |execution| i64::from(execution.nice()));
    let cpu = execution.as_ref().map_or(0, |execution| execution.cpu());
    let (ignored, caught) = process.actions().ignored_and_caught();
    let pending = thread.as_ref().map_or(0, |thread| thread.queue.mask());
    let blocked = thread.as_ref().map_or(0, |thread| thread.blocked());
    let ticks = |ns: u64| ns / TICK_NS;

    put(out, format_args!("{} (", target.shown(target.kernel_number())))?;
    bytes(out, &process_name(target)?)?;
    put(
        out,
        format_args!(
            ") {} {} {} {} {tty} {foreground} 0 {} {} {} {} {} {} {} {} ",
            state(target),
            target.shown(process.parent_id()),
            target.shown(process.group()),
            target.shown(process.session_id()),
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
    // Where the vectors are is shown to those who may look into the process (`do_task_stat`,
    // fs/proc/array.c). Code has 1 and the rest 0, as Linux shows them to others.
    let looked = target.look(|thread| (thread.space(), thread.process.vectors()));
    let Vectors { arguments, arguments_end, environment, environment_end, .. } = match looked {
        Ok((Some(_), vectors)) => vectors,
        _ => Vectors::default(),
    };
    line(
        out,
        format_args!(
            "{} {nice} {} 0 {} {} {} {} 1 1 0 0 0 {} {} {} {} 0 0 0 {} {cpu} 0 0 0 0 0 0 0 0 \
             {arguments} {arguments_end} {environment} {environment_end} 0",
            20 + nice,
            process.thread_count(),
            ticks(process.started()),
            sizes.size * PAGE,
            sizes.resident,
            process.limit(RLIMIT_RSS),
            pending & 0x7fff_ffff,
            blocked & 0x7fff_ffff,
            ignored & 0x7fff_ffff,
            caught & 0x7fff_ffff,
            SIGCHLD,
        ),
    )
}

/// The number of the controlling terminal (0: none) and its foreground group (-1: none).
fn terminal_of(target: &Target, process: &Process) -> (i64, i64) {
    let Some(tty) = process.session().terminal() else { return (0, -1) };
    let (major, minor) = tty.device;
    let number = DeviceNumber::new(major, minor).encode() as i64;
    (number, tty.session_and_foreground().1.map_or(-1, |group| target.shown(group).into()))
}

/// `/proc/PID/status`. A process that has ended has no space, and no execution.
pub(super) fn status(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let process = target.process()?;
    let thread = target.thread().ok();
    put(out, format_args!("Name:\t"))?;
    line_of(out, &process_name(target)?)?;
    if let Some(thread) = &thread {
        line(out, format_args!("Umask:\t{:04o}", thread.directories().map_or(0, |fs| fs.umask())))?;
    }
    let state = state(target);
    line(out, format_args!("State:\t{state} ({})", word_of(state)))?;
    let [whole, own, parent] =
        [process.id(), target.kernel_number(), process.parent_id()].map(|id| target.shown(id));
    line(out, format_args!("Tgid:\t{whole}\nNgid:\t0\nPid:\t{own}"))?;
    let tracer = target.shown(thread.as_deref().map_or(0, tracing::tracer_of));
    line(out, format_args!("PPid:\t{parent}\nTracerPid:\t{tracer}"))?;
    if let Some(thread) = &thread {
        status_of_owner(thread, out)?;
    }
    status_of_numbers(target, &process, out)?;
    if let Some(thread) = &thread {
        status_of_memory(thread, out)?;
    }
    line(out, format_args!("Threads:\t{}", process.thread_count()))?;
    status_of_signals(&process, thread.as_deref(), out)?;
    if let Some(thread) = &thread {
        status_of_rights(thread, out)?;
        status_of_processors(thread, out)?;
    }
    Ok(())
}

/// The state in a word.
fn word_of(state: char) -> &'static str {
    match state {
        'R' => "running",
        'S' => "sleeping",
        'D' => "disk sleep",
        'T' => "stopped",
        't' => "tracing stop",
        'Z' => "zombie",
        _ => "dead",
    }
}

/// The ids, the size of the table of descriptors, the groups.
fn status_of_owner(thread: &Thread, out: &mut Vec<u8>) -> Result<()> {
    let own = thread.credentials();
    let [real, effective, saved, of_files] =
        [own.uid, own.euid, own.suid, own.fsuid].map(shown_user);
    line(out, format_args!("Uid:\t{real}\t{effective}\t{saved}\t{of_files}"))?;
    let [real, effective, saved, of_files] =
        [own.gid, own.egid, own.sgid, own.fsgid].map(shown_group);
    line(out, format_args!("Gid:\t{real}\t{effective}\t{saved}\t{of_files}"))?;
    let size = thread.try_files().map_or(0, |files| files.size());
    put(out, format_args!("FDSize:\t{size}\nGroups:\t"))?;
    for group in own.groups.iter() {
        put(out, format_args!("{} ", shown_group(*group)))?;
    }
    bytes(out, b"\n")
}

/// The numbers in the namespace that the file shows, and in those below it.
fn status_of_numbers(target: &Target, process: &Process, out: &mut Vec<u8>) -> Result<()> {
    let numbers = [
        ("NStgid", process.id()),
        ("NSpid", target.kernel_number()),
        ("NSpgid", process.group()),
        ("NSsid", process.session_id()),
    ];
    for (name, kernel) in numbers {
        put(out, format_args!("{name}:\t{}", target.shown(kernel)))?;
        list_below(&target.pids, process, kernel, out)?;
        bytes(out, b"\n")?;
    }
    Ok(())
}

/// The sizes of the space.
fn status_of_memory(thread: &Thread, out: &mut Vec<u8>) -> Result<()> {
    let Some(space) = thread.space() else { return Ok(()) };
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
    Ok(())
}

/// Pending, blocked, ignored and caught signals.
fn status_of_signals(process: &Process, thread: Option<&Thread>, out: &mut Vec<u8>) -> Result<()> {
    let (ignored, caught) = process.actions().ignored_and_caught();
    let pending = thread.map_or(0, |thread| thread.queue.mask());
    let blocked = thread.map_or(0, |thread| thread.blocked());
    let most = process.limit(RLIMIT_SIGPENDING);
    line(out, format_args!("SigQ:\t{}/{most}", process.queue.count()))?;
    line(out, format_args!("SigPnd:\t{pending:016x}\nShdPnd:\t{:016x}", process.queue.mask()))?;
    line(out, format_args!("SigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}"))?;
    line(out, format_args!("SigCgt:\t{caught:016x}"))
}

/// Capabilities, the running mode, and what it gave up.
fn status_of_rights(thread: &Thread, out: &mut Vec<u8>) -> Result<()> {
    let own = thread.credentials();
    for (name, set) in [
        ("CapInh", own.inheritable),
        ("CapPrm", own.permitted),
        ("CapEff", own.effective),
        ("CapBnd", own.bounding),
        ("CapAmb", own.ambient),
    ] {
        line(out, format_args!("{name}:\t{:016x}", set.0))?;
    }
    if let Some(space) = thread.space() {
        let mode = if space.is_supervisor() { "supervisor" } else { "user" };
        line(out, format_args!("Mode:\t{mode}"))?;
    }
    let no_new = thread.no_new_privileges.load(Ordering::Relaxed);
    let filters = thread.filters.get();
    let (mode, count) = filters.map_or((0, 0), |state| (state.mode(), state.count()));
    line(out, format_args!("NoNewPrivs:\t{}", u8::from(no_new)))?;
    line(out, format_args!("Seccomp:\t{mode}\nSeccomp_filters:\t{count}"))
}

/// The processors it may run on, and how often it left one.
fn status_of_processors(thread: &Thread, out: &mut Vec<u8>) -> Result<()> {
    if let Some(execution) = thread.execution() {
        let mask = execution.affinity() & hayate_machine::cpu::online_mask();
        line(out, format_args!("Cpus_allowed:\t{mask:x}"))?;
        put(out, format_args!("Cpus_allowed_list:\t"))?;
        cpu_list(mask, out)?;
    }
    let usage = thread.usage();
    line(out, format_args!("voluntary_ctxt_switches:\t{}", usage.voluntary_switches))?;
    line(out, format_args!("nonvoluntary_ctxt_switches:\t{}", usage.involuntary_switches))
}

/// `/proc/PID/mode`, Hayate's own: the running mode (docs/dmsm.md).
pub(super) fn mode(target: &Target, out: &mut Vec<u8>) -> Result<()> {
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
    line(out, format_args!("sites turned: {}", counts.patched))?;
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
pub(super) fn io(target: &Target, out: &mut Vec<u8>) -> Result<()> {
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

/// `/proc/PID/limits`.
pub(super) fn limits(target: &Target, out: &mut Vec<u8>) -> Result<()> {
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
