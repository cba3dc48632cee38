//! The files of the controller `memory` (cgroup-v2.rst, "Memory Interface Files"; mm/memcontrol.c
//! of Linux 6.1). There is no swap, so there are none of its files, as with a kernel built without
//! it.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::amount::{self, NO_LIMIT, PAGE};
use hayate_cgroup_rules::controllers::Controllers;
use hayate_cgroup_rules::memory::{Account, Bound, Event, Use};
use hayate_cgroup_rules::number;

use super::file::{File, NEXT, Opening, Where, number_error};
use crate::fs::proc::system::shared_pages;
use crate::fs::proc::text::line;
use crate::page_cache::{reclaim as cached, write_back};
use crate::process::cgroup::group::{Group, file};
use crate::process::cgroup::memory;
use crate::process::current;
use crate::reclaim;
use crate::reclaim::charge::{self, limit, records};

const HERE: Where = Where::With(Controllers::MEMORY);
/// Numbers of the files begin here.
const FIRST: u8 = NEXT + 13;

/// `memory.current`.
pub const CURRENT: File = File::shown("memory.current", FIRST, HERE, |group, out| {
    line(out, format_args!("{}", own(group)?.count() as u64 * PAGE))
});
/// `memory.events`.
pub const EVENTS: File =
    File::shown("memory.events", file::MEMORY_EVENTS, HERE, |group, out| events(group, false, out))
        .watched(|group| &group.memory.events);
/// `memory.events.local`.
pub const EVENTS_LOCAL: File =
    File::shown("memory.events.local", file::MEMORY_EVENTS_LOCAL, HERE, |group, out| {
        events(group, true, out)
    })
    .watched(|group| &group.memory.local_events);
/// `memory.high`.
pub const HIGH: File =
    File::shown("memory.high", FIRST + 1, HERE, |group, out| bound(group, Bound::High, out))
        .set(set_high);
/// `memory.low`.
pub const LOW: File =
    File::shown("memory.low", FIRST + 2, HERE, |group, out| bound(group, Bound::Low, out))
        .set(|open, text| protect(open, Bound::Low, text));
/// `memory.max`.
pub const MAX: File =
    File::shown("memory.max", FIRST + 3, HERE, |group, out| bound(group, Bound::Max, out))
        .set(set_max);
/// `memory.min`.
pub const MIN: File =
    File::shown("memory.min", FIRST + 4, HERE, |group, out| bound(group, Bound::Min, out))
        .set(|open, text| protect(open, Bound::Min, text));
/// `memory.oom.group`.
pub const OOM_GROUP: File = File::shown("memory.oom.group", FIRST + 5, HERE, |group, out| {
    line(out, format_args!("{}", u8::from(group.memory.oom_group.load(Ordering::Relaxed))))
})
.set(set_oom_group)
.delegated();
/// `memory.peak`.
pub const PEAK: File = File::shown("memory.peak", FIRST + 6, HERE, |group, out| {
    line(out, format_args!("{}", own(group)?.peak() as u64 * PAGE))
});
/// `memory.reclaim`.
pub const RECLAIM: File = File {
    name: "memory.reclaim",
    number: FIRST + 7,
    mode: 0o200,
    place: Where::WithOrRoot(Controllers::MEMORY),
    is_delegated: true,
    show: None,
    store: Some(reclaim_some),
    changes: None,
};
/// `memory.stat`.
pub const STAT: File =
    File::shown("memory.stat", FIRST + 8, Where::WithOrRoot(Controllers::MEMORY), statistics);

/// The number of a group's account, which it has while these files are there.
fn number_of(group: &Group) -> Result<u32> {
    let number = group.memory.account.load(Ordering::SeqCst);
    if number == 0 { Err(Errno::ENODEV) } else { Ok(number) }
}

fn own(group: &Group) -> Result<&'static Account> {
    records::account(number_of(group)?).ok_or(Errno::ENODEV)
}

fn bound(group: &Group, bound: Bound, out: &mut Vec<u8>) -> Result<()> {
    match own(group)?.bound(bound) {
        NO_LIMIT => line(out, format_args!("max")),
        pages => line(out, format_args!("{}", pages as u64 * PAGE)),
    }
}

fn pages(text: &[u8]) -> Result<usize> {
    amount::pages(text).ok_or(Errno::EINVAL)
}

fn protect(open: &Opening, bound: Bound, text: &[u8]) -> Result<()> {
    own(&open.group)?.set_bound(bound, pages(text)?);
    Ok(())
}

/// Reclaims the pages beyond it at once, as far as possible (`memory_high_write`).
fn set_high(open: &Opening, text: &[u8]) -> Result<()> {
    let pages = pages(text)?;
    own(&open.group)?.set_bound(Bound::High, pages);
    limit::reclaim_beyond(number_of(&open.group)?, Bound::High);
    Ok(())
}

fn set_max(open: &Opening, text: &[u8]) -> Result<()> {
    let pages = pages(text)?;
    memory::set_most(number_of(&open.group)?, pages);
    Ok(())
}

fn set_oom_group(open: &Opening, text: &[u8]) -> Result<()> {
    let whole = match number::small_number(text).map_err(number_error)? {
        0 => false,
        1 => true,
        _ => return Err(Errno::EINVAL),
    };
    number_of(&open.group)?;
    open.group.memory.oom_group.store(whole, Ordering::Relaxed);
    Ok(())
}

/// Reclaims so many bytes. `EAGAIN` if there are fewer (`memory_reclaim`).
fn reclaim_some(open: &Opening, text: &[u8]) -> Result<()> {
    let wanted = pages(text)?;
    let mut done = 0;
    while done < wanted {
        if current().has_signals() {
            return Err(Errno::EINTR);
        }
        let most = (wanted - done).min(1024);
        let freed = if open.group.is_root() {
            // Beside pages of files, what is kept of ended processes.
            match cached::pages(most) {
                0 => usize::from(reclaim::give_up()),
                freed => freed,
            }
        } else {
            limit::reclaim(number_of(&open.group)?, most)
        };
        if freed == 0 {
            return Err(Errno::EAGAIN);
        }
        done += freed;
    }
    Ok(())
}

fn events(group: &Group, here: bool, out: &mut Vec<u8>) -> Result<()> {
    let here = here || memory::LOCAL_EVENTS.load(Ordering::Relaxed);
    let own = own(group)?;
    for event in Event::ALL {
        line(out, format_args!("{} {}", event.name(), own.noted(event, here)))?;
    }
    Ok(())
}

/// Writes the counts of a group; for the root those of the machine.
fn statistics(group: &Group, out: &mut Vec<u8>) -> Result<()> {
    let mut put = |name: &str, pages: u64| line(out, format_args!("{name} {}", pages * PAGE));
    if group.is_root() {
        let (cached, shared) = (cached::cached_pages(), shared_pages());
        put("file", cached + shared)?;
        put("shmem", shared)?;
        put("file_dirty", write_back::dirty_pages())?;
        put("file_writeback", write_back::writing_pages())?;
        return put("inactive_file", cached);
    }
    let number = number_of(group)?;
    let [anonymous, cached, shared, tables] =
        Use::ALL.map(|what| charge::used(number, what) as u64);
    put("anon", anonymous)?;
    put("file", cached + shared)?;
    put("kernel", tables)?;
    put("pagetables", tables)?;
    put("shmem", shared)?;
    put("inactive_anon", 0)?;
    put("active_anon", anonymous + shared)?;
    put("inactive_file", cached)?;
    put("active_file", 0)
}
