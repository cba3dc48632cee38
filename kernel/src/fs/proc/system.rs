//! The files of `/proc` about the system as a whole.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use hayate_abi::Result;
use hayate_cgroup_rules::controllers::Controllers;
use hayate_machine::boot;
use hayate_machine::cpu;
use hayate_machine::paging;

use super::text::{TICK_NS, bytes, line, put};
use crate::drivers::virtio_balloon;
use crate::fs::tmpfs;
use crate::ipc::sysv::shm;
use crate::memory::deferred_free;
use crate::page_cache::{reclaim, write_back};
use crate::process;
use crate::process::cgroup::group;
use crate::process::thread::current;
use crate::process::{identity, pids};
use crate::reclaim::growth;
use crate::schedule::time;
use crate::schedule::{self, CpuTimes};
use crate::vfs::dentry::Dentry;
use crate::vfs::inode::FileKind;
use crate::vfs::{device, filesystem_type, mount};

const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn cmdline(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{}", boot::info().command_line))
}

pub(super) fn version(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(
        out,
        format_args!(
            "{} version {} ({}) {}",
            identity::SYSNAME,
            identity::RELEASE,
            env!("CARGO_PKG_NAME"),
            identity::VERSION
        ),
    )
}

pub(super) fn uptime(_: &(), out: &mut Vec<u8>) -> Result<()> {
    let up = time::monotonic_ns();
    let idle: u64 = (0..cpu::count()).map(schedule::idle_ns).sum();
    let hundredths = |ns: u64| (ns % SECOND_NS) / (SECOND_NS / 100);
    line(
        out,
        format_args!(
            "{}.{:02} {}.{:02}",
            up / SECOND_NS,
            hundredths(up),
            idle / SECOND_NS,
            hundredths(idle)
        ),
    )
}

/// `/proc/hayate/idle`: how long each CPU has slept since boot.
pub(super) fn idle(_: &(), out: &mut Vec<u8>) -> Result<()> {
    (0..cpu::count())
        .try_for_each(|cpu| line(out, format_args!("cpu{cpu}: {} ns", schedule::idle_ns(cpu))))
}

pub(super) fn loadavg(_: &(), out: &mut Vec<u8>) -> Result<()> {
    for load in schedule::load_average() {
        // Fixed point with 11 bits of fraction, as Linux keeps them.
        put(out, format_args!("{}.{:02} ", load >> 11, ((load & 0x7ff) * 100) >> 11))?;
    }
    let (running, all) = (schedule::count_runnable(), pids::count());
    let last = current().process.pid_namespace().last();
    line(out, format_args!("{running}/{all} {last}"))
}

/// Pages of files in memory and of segments of shared memory.
pub fn shared_pages() -> u64 {
    tmpfs::used_pages() + shm::resident_pages()
}

pub(super) fn meminfo(_: &(), out: &mut Vec<u8>) -> Result<()> {
    const KIB_PER_FRAME: u64 = 4;
    let counts = deferred_free::settled_counts();
    let cached = reclaim::cached_pages();
    let shared = shared_pages();
    let rows = [
        ("MemTotal", (counts.total as u64).saturating_sub(virtio_balloon::taken().into())),
        ("MemFree", counts.free as u64),
        ("MemAvailable", counts.free.saturating_sub(counts.reserve) as u64 + cached),
        ("Buffers", 0),
        ("Cached", cached + shared),
        ("SwapCached", 0),
        ("Active", 0),
        ("Inactive", cached),
        ("SwapTotal", 0),
        ("SwapFree", 0),
        ("Dirty", write_back::dirty_pages()),
        ("Writeback", write_back::writing_pages()),
        ("Shmem", shared),
        ("AnonHugePages", paging::large_pages() as u64 * 512),
    ];
    for (name, frames) in rows {
        line(out, format_args!("{:<15} {:>8} kB", Colon(name), frames * KIB_PER_FRAME))?;
    }
    Ok(())
}

/// A name with a colon appended, padded as one.
struct Colon(&'static str);

impl fmt::Display for Colon {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = arrayvec::ArrayString::<32>::new();
        fmt::Write::write_fmt(&mut text, format_args!("{}:", self.0))?;
        to.pad(&text)
    }
}

pub(super) fn cpuinfo(_: &(), out: &mut Vec<u8>) -> Result<()> {
    let identity = cpu::identity();
    let kilohertz = time::tsc_hz() / 1000;
    for number in 0..cpu::count() {
        line(out, format_args!("processor\t: {number}"))?;
        line(out, format_args!("vendor_id\t: {}", identity.vendor))?;
        line(out, format_args!("cpu family\t: {}", identity.family))?;
        line(out, format_args!("model\t\t: {}", identity.model))?;
        line(out, format_args!("model name\t: {}", identity.brand))?;
        line(out, format_args!("stepping\t: {}", identity.stepping))?;
        line(out, format_args!("cpu MHz\t\t: {}.{:03}", kilohertz / 1000, kilohertz % 1000))?;
        line(out, format_args!("physical id\t: 0"))?;
        line(out, format_args!("siblings\t: {}", cpu::count()))?;
        line(out, format_args!("core id\t\t: {number}"))?;
        line(out, format_args!("cpu cores\t: {}", cpu::count()))?;
        line(out, format_args!("fpu\t\t: yes"))?;
        put(out, format_args!("flags\t\t:"))?;
        for flag in cpu::flags() {
            put(out, format_args!(" {flag}"))?;
        }
        line(out, format_args!("\nclflush size\t: 64"))?;
        line(
            out,
            format_args!(
                "address sizes\t: {} bits physical, 48 bits virtual\n",
                identity.physical_bits
            ),
        )?;
    }
    Ok(())
}

pub(super) fn stat(_: &(), out: &mut Vec<u8>) -> Result<()> {
    let mut total = CpuTimes::default();
    for number in 0..cpu::count() {
        let times = schedule::cpu_times(number);
        total.user_ns += times.user_ns;
        total.nice_ns += times.nice_ns;
        total.system_ns += times.system_ns;
        total.idle_ns += times.idle_ns;
    }
    let mut row = |name: fmt::Arguments<'_>, times: CpuTimes| {
        let CpuTimes { user_ns, nice_ns, system_ns, idle_ns } = times;
        let [user, nice, system, idle] =
            [user_ns, nice_ns, system_ns, idle_ns].map(|ns| ns / TICK_NS);
        line(out, format_args!("{name} {user} {nice} {system} {idle} 0 0 0 0 0 0"))
    };
    row(format_args!("cpu "), total)?;
    for number in 0..cpu::count() {
        row(format_args!("cpu{number}"), schedule::cpu_times(number))?;
    }
    let boot = (time::realtime_ns() - time::monotonic_ns()) / SECOND_NS;
    line(out, format_args!("ctxt {}", schedule::switches()))?;
    line(out, format_args!("btime {boot}"))?;
    line(out, format_args!("processes {}", process::started()))?;
    line(out, format_args!("procs_running {}", schedule::count_runnable()))?;
    line(out, format_args!("procs_blocked {}", schedule::count_blocked()))
}

pub(super) fn filesystems(_: &(), out: &mut Vec<u8>) -> Result<()> {
    for kind in filesystem_type::types() {
        let device = if kind.needs_device { "" } else { "nodev" };
        line(out, format_args!("{device}\t{}", kind.name))?;
    }
    Ok(())
}

/// `/proc/cgroups`: the controllers, of the one hierarchy, with the number of its groups.
pub(super) fn cgroups(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("#subsys_name\thierarchy\tnum_cgroups\tenabled"))?;
    let (live, dying) = group::root().counts();
    for name in Controllers::ALL.names() {
        // Its older name (`legacy_name` of `io_cgrp_subsys`).
        let name = if name == "io" { "blkio" } else { name };
        line(out, format_args!("{name}\t0\t{}\t1", 1 + live + dying))?;
    }
    Ok(())
}

pub(super) fn devices(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("Character devices:"))?;
    for (major, name) in device::majors(FileKind::CharDevice) {
        line(out, format_args!("{major:>3} {name}"))?;
    }
    line(out, format_args!("\nBlock devices:"))?;
    for (major, name) in device::majors(FileKind::BlockDevice) {
        line(out, format_args!("{major:>3} {name}"))?;
    }
    Ok(())
}

pub(super) fn swaps(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"))
}

pub(super) fn vmstat(_: &(), out: &mut Vec<u8>) -> Result<()> {
    let counts = deferred_free::settled_counts();
    line(out, format_args!("nr_free_pages {}", counts.free))?;
    line(out, format_args!("nr_file_pages {}", reclaim::cached_pages() + shared_pages()))?;
    line(out, format_args!("nr_shmem {}", shared_pages()))?;
    line(out, format_args!("nr_anon_transparent_hugepages {}", paging::large_pages()))
}

/// `/proc/PID/mounts`: one line per mount, as seen from `root`.
pub fn mounts(root: &mount::Location, out: &mut Vec<u8>) -> Result<()> {
    let lock = mount::lock();
    for mounted in mount::all_with_root(&lock)? {
        let Some(path) = mount_path(&mounted, root)? else { continue };
        escaped(out, mounted.source().as_bytes())?;
        bytes(out, b" ")?;
        escaped(out, &path)?;
        let filesystem = mounted.filesystem();
        line(
            out,
            format_args!(
                " {} {}{}{} 0 0",
                filesystem.type_name(),
                if mounted.read_only() { "ro" } else { "rw" },
                flag_words(mounted.flags()),
                filesystem.options()
            ),
        )?;
    }
    Ok(())
}

/// `/proc/PID/mountinfo` (proc(5)).
pub fn mountinfo(root: &mount::Location, out: &mut Vec<u8>) -> Result<()> {
    let lock = mount::lock();
    let all = mount::all_with_root(&lock)?;
    for mounted in &all {
        let Some(path) = mount_path(mounted, root)? else { continue };
        let filesystem = mounted.filesystem();
        let device = crate::vfs::inode::DeviceNumber::decode(filesystem.device());
        let parent = mounted.attached().map_or(mounted.id(), |place| place.mount.id());
        put(out, format_args!("{} {parent} {}:{} ", mounted.id(), device.major, device.minor))?;
        // Mounts of a part of a file system (MS_BIND) begin at their own root's path.
        escaped(out, &filesystem.shown_root(path_of(mounted.root())?)?)?;
        bytes(out, b" ")?;
        escaped(out, &path)?;
        let access = if mounted.read_only() { "ro" } else { "rw" };
        put(out, format_args!(" {access}{}", flag_words(mounted.flags())))?;
        sharing(mounted, &all, root, out)?;
        put(out, format_args!(" - {} ", filesystem.type_name()))?;
        escaped(out, mounted.source().as_bytes())?;
        line(out, format_args!(" {access}{}", filesystem.options()))?;
    }
    Ok(())
}

/// The optional fields of mountinfo: how a mount shares what is mounted on it.
fn sharing(
    mounted: &Arc<mount::Mount>,
    all: &[Arc<mount::Mount>],
    root: &mount::Location,
    out: &mut Vec<u8>,
) -> Result<()> {
    if let Some(group) = mounted.group() {
        put(out, format_args!(" shared:{}", group.number()))?;
    }
    let Some(master) = mounted.master() else {
        return bytes(out, if mounted.is_unbindable() { b" unbindable" } else { b"" });
    };
    put(out, format_args!(" master:{}", master.number()))?;
    // The closest group above with a member that the reader sees (`get_dominating_id`).
    let own = mounted.top();
    let mut above = Some(Arc::clone(&master));
    while let Some(group) = above {
        for other in all {
            let is_member = other.group().is_some_and(|known| Arc::ptr_eq(&known, &group));
            if is_member && Arc::ptr_eq(&other.top(), &own) && mount_path(other, root)?.is_some() {
                if Arc::ptr_eq(&group, &master) {
                    return Ok(());
                }
                return put(out, format_args!(" propagate_from:{}", group.number()));
            }
        }
        above = group.master();
    }
    Ok(())
}

/// The path of a name from its file system's root.
fn path_of(dentry: &Arc<Dentry>) -> Result<Vec<u8>> {
    let mut names = Vec::new();
    let mut at = dentry.clone();
    while let Some(parent) = at.parent() {
        growth::push(&mut names, at.name())?;
        at = parent;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        growth::append(&mut path, b"/")?;
        growth::append(&mut path, name)?;
    }
    Ok(if path.is_empty() { b"/".to_vec() } else { path })
}

/// The path of a mount below `root`; `None` if it is not reachable from there.
fn mount_path(mounted: &Arc<mount::Mount>, root: &mount::Location) -> Result<Option<Vec<u8>>> {
    let (path, reachable) = mounted.root_location().path_from(root)?;
    Ok(reachable.then_some(path))
}

fn flag_words(flags: u64) -> &'static str {
    const NOSUID: u64 = 2;
    const NODEV: u64 = 4;
    const NOEXEC: u64 = 8;
    match (flags & NOSUID != 0, flags & NODEV != 0, flags & NOEXEC != 0) {
        (false, false, false) => "",
        (true, false, false) => ",nosuid",
        (false, true, false) => ",nodev",
        (false, false, true) => ",noexec",
        (true, true, false) => ",nosuid,nodev",
        (true, false, true) => ",nosuid,noexec",
        (false, true, true) => ",nodev,noexec",
        (true, true, true) => ",nosuid,nodev,noexec",
    }
}

/// Appends a path with white space and backslashes as octal numbers (getmntent(3)).
fn escaped(out: &mut Vec<u8>, path: &[u8]) -> Result<()> {
    for &byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => put(out, format_args!("\\{byte:03o}"))?,
            _ => bytes(out, &[byte])?,
        }
    }
    Ok(())
}
