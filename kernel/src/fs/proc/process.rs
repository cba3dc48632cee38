//! `/proc/PID` and `/proc/PID/task/TID`: the files about a process or a thread.
//!
//! A directory holds a weak reference to its process. Files that only the process itself and
//! privileged users may see (`environ`, `maps`, the targets of its links) are checked when they are
//! opened or followed, as ptrace(2) access is on Linux.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};

use super::status::process_name;
use super::target::Target;
use super::text::{bytes, line, line_of, list_numbers, number};
use super::tree;
use super::tree::{Item, Listing, Node, What};
use super::{descriptors, inside, namespaces, network, settings, status, system, user_maps};
use crate::credentials::Capability;
use crate::memory::Space;
use crate::process;
use crate::process::dump;
use crate::process::thread::Thread;
use crate::reclaim::growth;
use crate::vfs::inode::{DirectorySink, Inode};
use crate::vfs::mount::Location;

/// The most bytes of a process's memory that `cmdline` and `environ` show at once.
const LONGEST_VECTOR: usize = 128 * 1024;

/// `/proc/PID`.
pub static PROCESS: What<Target> = What::Directory(&[
    Item { name: "task", what: What::Listing(&Tasks) },
    Item { name: "auxv", what: What::Private(auxv) },
    Item { name: "cgroup", what: What::Text(cgroup) },
    Item { name: "cmdline", what: What::Text(cmdline) },
    Item { name: "comm", what: What::Setting(comm, set_comm) },
    Item { name: "coredump_filter", what: What::Setting(coredump_filter, set_coredump_filter) },
    Item { name: "cwd", what: What::Magic(cwd, |target| show(target, cwd)) },
    Item { name: "environ", what: What::Private(environ) },
    Item { name: "exe", what: What::Magic(exe, |target| show(target, exe)) },
    Item { name: "fd", what: What::Listing(&descriptors::LINKS) },
    Item { name: "fdinfo", what: What::Listing(&descriptors::INFORMATION) },
    Item { name: "gid_map", what: What::Opened(0o644, user_maps::groups) },
    Item { name: "io", what: What::Asked(status::io) },
    Item { name: "limits", what: What::Text(status::limits) },
    Item { name: "maps", what: What::Guarded(inside::maps) },
    Item { name: "mem", what: What::Opened(0o600, inside::open_memory) },
    Item { name: "mountinfo", what: What::Text(mountinfo) },
    Item { name: "mounts", what: What::Text(mounts) },
    Item { name: "net", what: What::Directory(network::ITEMS) },
    Item { name: "ns", what: What::Directory(namespaces::ITEMS) },
    Item { name: "oom_score_adj", what: What::Setting(oom_score_adj, set_oom_score_adj) },
    Item { name: "pagemap", what: What::Opened(0o400, inside::open_page_map) },
    Item { name: "projid_map", what: What::Opened(0o644, user_maps::projects) },
    Item { name: "root", what: What::Magic(root, |target| show(target, root)) },
    Item { name: "setgroups", what: What::Opened(0o644, user_maps::set_groups) },
    Item { name: "smaps", what: What::Guarded(inside::smaps) },
    Item { name: "stat", what: What::Text(status::stat) },
    Item { name: "statm", what: What::Text(inside::statm) },
    Item { name: "mode", what: What::Text(status::mode) },
    Item { name: "status", what: What::Text(status::status) },
    Item { name: "timerslack_ns", what: What::Open(timer_slack, set_timer_slack) },
    Item { name: "uid_map", what: What::Opened(0o644, user_maps::users) },
]);

/// `/proc/PID/task/TID`.
pub static THREAD: What<Target> = What::Directory(&[
    Item { name: "cgroup", what: What::Text(cgroup) },
    Item { name: "cmdline", what: What::Text(cmdline) },
    Item { name: "comm", what: What::Setting(comm, set_comm) },
    Item { name: "cwd", what: What::Magic(cwd, |target| show(target, cwd)) },
    Item { name: "environ", what: What::Private(environ) },
    Item { name: "exe", what: What::Magic(exe, |target| show(target, exe)) },
    Item { name: "fd", what: What::Listing(&descriptors::LINKS) },
    Item { name: "fdinfo", what: What::Listing(&descriptors::INFORMATION) },
    Item { name: "gid_map", what: What::Opened(0o644, user_maps::groups) },
    Item { name: "io", what: What::Asked(status::io) },
    Item { name: "limits", what: What::Text(status::limits) },
    Item { name: "maps", what: What::Guarded(inside::maps) },
    Item { name: "mem", what: What::Opened(0o600, inside::open_memory) },
    Item { name: "mountinfo", what: What::Text(mountinfo) },
    Item { name: "mounts", what: What::Text(mounts) },
    Item { name: "net", what: What::Directory(network::ITEMS) },
    Item { name: "ns", what: What::Directory(namespaces::ITEMS) },
    Item { name: "pagemap", what: What::Opened(0o400, inside::open_page_map) },
    Item { name: "projid_map", what: What::Opened(0o644, user_maps::projects) },
    Item { name: "root", what: What::Magic(root, |target| show(target, root)) },
    Item { name: "setgroups", what: What::Opened(0o644, user_maps::set_groups) },
    Item { name: "smaps", what: What::Guarded(inside::smaps) },
    Item { name: "stat", what: What::Text(status::stat) },
    Item { name: "statm", what: What::Text(inside::statm) },
    Item { name: "status", what: What::Text(status::status) },
    Item { name: "uid_map", what: What::Opened(0o644, user_maps::users) },
]);

/// `/proc/PID/task`.
struct Tasks;

impl Listing<Target> for Tasks {
    fn lookup(&self, target: &Target, device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let id = number(name).ok_or(Errno::ENOENT)?;
        let kernel = target.pids.meant(id).ok_or(Errno::ENOENT)?;
        let thread = target.process()?.thread(kernel).ok_or(Errno::ENOENT)?;
        let thread = Target::of_thread(&thread, &target.pids);
        Ok(Node::entry(thread, &THREAD, device, tree::ROOT_NUMBER, name))
    }

    fn list(
        &self,
        target: &Target,
        position: &mut u64,
        sink: &mut dyn DirectorySink,
    ) -> Result<()> {
        let threads = target.process()?.threads()?;
        let shown = |thread: &Arc<Thread>| target.shown(thread.id());
        let mut ids = growth::collect(threads.iter().map(shown).filter(|&id| id != 0))?;
        ids.sort_unstable();
        list_numbers(&ids, 2, position, sink);
        Ok(())
    }
}

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

/// Of one hierarchy, as the reader's namespace sees it (`proc_cgroup_show`).
fn cgroup(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let group = target.process()?.cgroup();
    bytes(out, b"0::")?;
    bytes(out, &group.path_from(process::current().cgroups().root())?)?;
    bytes(out, if group.is_removed() { b" (deleted)\n" } else { b"\n" })
}

fn comm(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    line_of(out, &process_name(target)?)
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

/// Of the first thread: it itself, or a thread that may change how others are scheduled (EPERM;
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
    let slack = settings::unsigned(text, false, u64::MAX)?;
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
    let value = settings::unsigned(text, true, u64::from(u32::MAX))?;
    let process = target.process()?;
    if target.space().is_none() {
        return Err(Errno::ESRCH);
    }
    process.dump_filter.store(value as u32 & dump::filter::ALL, Ordering::Relaxed);
    Ok(())
}

fn oom_score_adj(target: &Target, out: &mut Vec<u8>) -> Result<()> {
    let value = target.process()?.oom_score_adjust.load(Ordering::Relaxed);
    line(out, format_args!("{value}"))
}

fn set_oom_score_adj(target: &Target, text: &[u8]) -> Result<()> {
    let value = settings::number(text)?;
    if !(-1000..=1000).contains(&value) {
        return Err(Errno::EINVAL);
    }
    let adjust = &target.process()?.oom_score_adjust;
    let lowers = value < i64::from(adjust.load(Ordering::Relaxed));
    if lowers && !process::current().credentials().has(Capability::SysResource) {
        return Err(Errno::EACCES);
    }
    adjust.store(value as i32, Ordering::Relaxed);
    Ok(())
}
