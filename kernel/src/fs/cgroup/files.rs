//! The files of a group (cgroup-v2.rst, "Core Interface Files" and those of the controllers): their
//! names, what they show, what writing does. Errors, and the order in which they are found, are
//! those of kernel/cgroup of Linux 6.1.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::controllers::{Controllers, Refusal as NotGiven, Request};
use hayate_cgroup_rules::meter::UNLIMITED;
use hayate_cgroup_rules::number;
use hayate_cgroup_rules::number::Limit;
use hayate_machine::cpu;

use super::cpu as processor;
use super::file::{File, NEXT, Opening, Where, number_error};
use super::io;
use super::memory;
use super::permission::{self, PROCS};
use crate::credentials::Credentials;
use crate::fs::proc::text::{line, put};
use crate::process;
use crate::process::Process;
use crate::process::cgroup::group::{Attributes, Group, Lock, Spent, file};
use crate::process::cgroup::list::each_member;
use crate::process::cgroup::{accounts, freezer, group, moves};
use crate::process::{pids, visible};
use crate::reclaim::growth;
use crate::schedule;
use crate::vfs::inode::Timestamp;

use Where::{Everywhere, NotInRoot};

const PIDS: Where = Where::With(Controllers::PIDS);

/// All files.
pub static FILES: [File; 33] = [
    File::shown("cgroup.controllers", NEXT + 1, Everywhere, |group, out| {
        names(group.available(), out)
    }),
    File::shown("cgroup.events", file::EVENTS, NotInRoot, events).watched(|group| &group.events),
    File::shown("cgroup.freeze", NEXT + 2, NotInRoot, |group, out| {
        line(out, format_args!("{}", u8::from(group.settings().frozen)))
    })
    .set(freeze),
    File {
        name: "cgroup.kill",
        number: NEXT + 3,
        mode: 0o200,
        place: NotInRoot,
        is_delegated: false,
        show: None,
        store: Some(kill),
        changes: None,
    },
    File::shown("cgroup.max.depth", NEXT + 4, Everywhere, |group, out| {
        limit(group.settings().most_depth, out)
    })
    .set(|open, text| set_most(open, text, |settings, most| settings.most_depth = most)),
    File::shown("cgroup.max.descendants", NEXT + 5, Everywhere, |group, out| {
        limit(group.settings().most_descendants, out)
    })
    .set(|open, text| set_most(open, text, |settings, most| settings.most_descendants = most)),
    File::shown("cgroup.procs", PROCS, Everywhere, processes)
        .set(|open, text| move_here(open, text, true))
        .delegated(),
    File::shown("cgroup.stat", NEXT + 6, Everywhere, |group, out| {
        let (descendants, dying) = group.counts();
        line(out, format_args!("nr_descendants {descendants}"))?;
        line(out, format_args!("nr_dying_descendants {dying}"))
    }),
    File::shown("cgroup.subtree_control", NEXT + 7, Everywhere, |group, out| {
        names(group.settings().given, out)
    })
    .set(give)
    .delegated(),
    File::shown("cgroup.threads", NEXT + 8, Everywhere, threads)
        .set(|open, text| move_here(open, text, false))
        .delegated(),
    File::shown("cgroup.type", NEXT + 9, NotInRoot, |group, out| {
        let _lock = group::lock();
        line(out, format_args!("{}", group.as_domain().kind(group.domains_around()).name()))
    })
    .set(become_threaded),
    processor::IDLE,
    processor::MAX,
    processor::BURST,
    File::shown("cpu.stat", NEXT + 10, Everywhere, processor_time),
    processor::WEIGHT,
    processor::NICE,
    io::MAX,
    io::STAT,
    memory::CURRENT,
    memory::EVENTS,
    memory::EVENTS_LOCAL,
    memory::HIGH,
    memory::LOW,
    memory::MAX,
    memory::MIN,
    memory::OOM_GROUP,
    memory::PEAK,
    memory::RECLAIM,
    memory::STAT,
    File::shown("pids.current", NEXT + 11, PIDS, |group, out| {
        line(out, format_args!("{}", group.tasks.count()))
    }),
    File::shown("pids.events", file::PIDS_EVENTS, PIDS, |group, out| {
        line(out, format_args!("max {}", group.pids_refused.load(Ordering::Relaxed)))
    })
    .watched(|group| &group.pids_events),
    File::shown("pids.max", NEXT + 12, PIDS, |group, out| limit(group.tasks.most(), out))
        .set(set_most_pids),
];

/// The names of controllers, on one line if there are any (`cgroup_print_ss_mask`).
fn names(controllers: Controllers, out: &mut Vec<u8>) -> Result<()> {
    for (at, name) in controllers.names().enumerate() {
        put(out, format_args!("{}{name}", if at == 0 { "" } else { " " }))?;
    }
    if controllers.is_none() { Ok(()) } else { put(out, format_args!("\n")) }
}

fn limit(most: usize, out: &mut Vec<u8>) -> Result<()> {
    match most {
        UNLIMITED => line(out, format_args!("max")),
        most => line(out, format_args!("{most}")),
    }
}

fn events(group: &Group, out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("populated {}", u8::from(group.is_populated())))?;
    line(out, format_args!("frozen {}", u8::from(group.is_frozen())))
}

// ---- members ------------------------------------------------------------------------------------

/// The processes of a group, those of the root included, which are on no list. `ENOMEM`.
fn members(group: &Group) -> Result<Vec<Arc<Process>>> {
    if group.is_root() {
        let mut all = process::processes()?;
        all.retain(|process| !process.is_zombie() && !process.is_outside_root());
        return Ok(all);
    }
    growth::collect(group.member_numbers()?.into_iter().filter_map(pids::process))
}

/// As the reader sees them: 0 for one that it does not see (`task_tgid_vnr`).
fn processes(group: &Group, out: &mut Vec<u8>) -> Result<()> {
    for process in members(group)? {
        line(out, format_args!("{}", visible::shown(process.id())))?;
    }
    Ok(())
}

fn threads(group: &Group, out: &mut Vec<u8>) -> Result<()> {
    for process in members(group)? {
        for thread in process.threads()? {
            line(out, format_args!("{}", visible::shown(thread.id())))?;
        }
    }
    Ok(())
}

/// The process with a number as the caller sees it, or that of the thread with it; 0: the caller's.
fn process_meant(number: u32) -> Option<Arc<Process>> {
    if number == 0 {
        return Some(process::current().process.clone());
    }
    let of_thread = || visible::thread(number).map(|thread| thread.process.clone());
    visible::process(number).or_else(of_thread)
}

/// Moves a process here (`__cgroup_procs_write`). `whole`: with all its threads; otherwise one
/// thread, which cannot leave the others.
fn move_here(open: &Opening, text: &[u8], whole: bool) -> Result<()> {
    let lock = group::lock();
    let to = open.group.live(&lock).map_err(|_| Errno::ENODEV)?;
    let number = number::small_number(text).ok().and_then(|number| u32::try_from(number).ok());
    let process = process_meant(number.ok_or(Errno::EINVAL)?).ok_or(Errno::ESRCH)?;
    let from = process.cgroup();
    permission::may_move(&from, &to, &open.credentials, &open.namespace, whole)?;
    moves::join(&process, &to, &lock);
    drop(lock);
    Ok(())
}

// ---- the group ----------------------------------------------------------------------------------

/// Gives controllers to the children, or takes them (`cgroup_subtree_control_write`).
fn give(open: &Opening, text: &[u8]) -> Result<()> {
    let request = Request::parse(text).ok_or(Errno::EINVAL)?;
    let lock = group::lock();
    let own = open.group.live(&lock).map_err(|_| Errno::ENODEV)?;
    let given = own.settings().given;
    let mut below = Controllers::NONE;
    own.try_each_child(&lock, |child| {
        below = below.with(child.settings().given);
        Ok(())
    })?;
    let change = request.reduced(own.available(), given, below).map_err(|why| match why {
        NotGiven::NotHere => Errno::ENOENT,
        NotGiven::InUse => Errno::EBUSY,
    })?;
    own.as_domain().may_give(change.enable, own.domains_around()).map_err(moves::error)?;
    let new = given.with(change.enable).without(change.disable);
    let changed = change.enable.with(change.disable);
    let children = accounts::children(&own, changed, &lock)?;
    children.give(change.enable, &lock)?;
    own.set(&lock, |settings| settings.given = new);
    own.try_each_child(&lock, |child| {
        begin_anew(child, changed, &open.credentials);
        Ok(())
    })?;
    children.take(change.disable, &lock);
    Ok(())
}

/// A controller is new in a group, or not there any more: without limits and events, and its files
/// belong to who gave it (`cgroup_kn_set_ugid`).
fn begin_anew(group: &Group, controllers: Controllers, giver: &Credentials) {
    if controllers.has(Controllers::PIDS) {
        group.tasks.set_most(UNLIMITED);
        group.pids_refused.store(0, Ordering::Relaxed);
    }
    let is_of = |file: &&File| match file.place {
        Where::With(one) | Where::WithOrRoot(one) => controllers.has(one),
        _ => false,
    };
    for file in FILES.iter().filter(is_of) {
        let (uid, gid, times) = (giver.fsuid, giver.fsgid, [Timestamp::now(); 3]);
        group.set_attributes(file.number, Attributes { mode: file.mode, uid, gid, times });
    }
}

/// There are no threaded groups: as where a group cannot become one.
fn become_threaded(_: &Opening, text: &[u8]) -> Result<()> {
    if text.trim_ascii() == b"threaded" { Err(Errno::EOPNOTSUPP) } else { Err(Errno::EINVAL) }
}

type Change = fn(&mut group::Settings, usize);

fn set_most(open: &Opening, text: &[u8], change: Change) -> Result<()> {
    let most = match number::limit(text).map_err(number_error)? {
        Limit::None => UNLIMITED,
        Limit::Number(number) => {
            let number = i32::try_from(number).map_err(|_| Errno::ERANGE)?;
            let most = usize::try_from(number).map_err(|_| Errno::ERANGE)?;
            if number == i32::MAX { UNLIMITED } else { most }
        }
    };
    let lock = group::lock();
    open.group.live(&lock)?.set(&lock, |settings| change(settings, most));
    Ok(())
}

/// Locks the tree for a change of a group that is there.
fn lock_live(open: &Opening) -> Result<(Lock, Arc<Group>)> {
    let lock = group::lock();
    let own = open.group.live(&lock)?;
    Ok((lock, own))
}

fn freeze(open: &Opening, text: &[u8]) -> Result<()> {
    let frozen = match number::small_number(text).map_err(number_error)? {
        0 => false,
        1 => true,
        _ => return Err(Errno::ERANGE),
    };
    let (lock, own) = lock_live(open)?;
    freezer::set_frozen(&own, frozen, &lock)
}

fn kill(open: &Opening, text: &[u8]) -> Result<()> {
    if number::small_number(text).map_err(number_error)? != 1 {
        return Err(Errno::ERANGE);
    }
    let (lock, own) = lock_live(open)?;
    moves::end_all(&own, &lock)
}

// ---- controllers --------------------------------------------------------------------------------

/// `pids.max` (`pids_max_write`).
fn set_most_pids(open: &Opening, text: &[u8]) -> Result<()> {
    /// More than there are numbers (`PIDS_MAX`).
    const BEYOND: i64 = 4 * 1024 * 1024 + 1;
    let most = match number::limit(text).map_err(number_error)? {
        Limit::None => UNLIMITED,
        Limit::Number(most @ 0..BEYOND) => most as usize,
        Limit::Number(_) => return Err(Errno::EINVAL),
    };
    open.group.tasks.set_most(most);
    Ok(())
}

/// `cpu.stat`: time on processors, and what its limit did.
fn processor_time(group: &Group, out: &mut Vec<u8>) -> Result<()> {
    let spent = if group.is_root() { of_machine() } else { of_group(group)? };
    let Spent { user_ns, system_ns } = spent;
    let usage_ns = user_ns + system_ns;
    for (name, ns) in [("usage", usage_ns), ("user", user_ns), ("system", system_ns)] {
        line(out, format_args!("{name}_usec {}", ns / 1000))?;
    }
    processor::statistics(group, out)
}

/// Of all processors (`root_cgroup_cputime`).
fn of_machine() -> Spent {
    let mut sum = Spent::default();
    for number in 0..cpu::count() {
        let times = schedule::cpu_times(number);
        let user_ns = times.user_ns + times.nice_ns;
        sum.add(Spent { user_ns, system_ns: times.system_ns });
    }
    sum
}

/// Of those that were members of the group or of one below, and of those that are.
fn of_group(group: &Group) -> Result<Spent> {
    let lock = group::lock();
    let mut sum = Spent::default();
    for below in group.subtree(&lock)? {
        sum.add(below.spent_by_former());
        each_member(&below, |process| sum.add(process.spent_in_group()));
    }
    Ok(group.tell_spent(sum))
}
