//! The files of the controller `cpu` (cgroup-v2.rst, "CPU Interface Files"; kernel/sched/core.c of
//! Linux 6.1).

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::bandwidth::{Limit, NO_QUOTA, Told};
use hayate_cgroup_rules::controllers::Controllers;
use hayate_cgroup_rules::number;
use hayate_cgroup_rules::share::Shares;

use super::file::{File, NEXT, Opening, Where, number_error};
use crate::fs::proc::text::{line, put};
use crate::process::cgroup::cpu;
use crate::process::cgroup::group::Group;
use crate::schedule::share;
use crate::schedule::weight::WEIGHTS;

const HERE: Where = Where::With(Controllers::CPU);
/// Numbers of the files begin here.
const FIRST: u8 = NEXT + 22;
const MICROSECOND: u64 = 1000;

/// `cpu.idle`.
pub const IDLE: File = File::shown("cpu.idle", FIRST, HERE, |group, out| {
    line(out, format_args!("{}", u8::from(group.cpu.shares().is_idle())))
})
.set(set_idle);
/// `cpu.max`.
pub const MAX: File = File::shown("cpu.max", FIRST + 1, HERE, |group, out| {
    let Limit { quota, period, .. } = share::limit(number_of(group)?);
    match quota {
        NO_QUOTA => put(out, format_args!("max"))?,
        quota => put(out, format_args!("{}", quota / MICROSECOND))?,
    }
    line(out, format_args!(" {}", period / MICROSECOND))
})
.set(|open, text| change(open, |limit| limit.changed(text)));
/// `cpu.max.burst`.
pub const BURST: File = File::shown("cpu.max.burst", FIRST + 2, HERE, |group, out| {
    line(out, format_args!("{}", share::limit(number_of(group)?).burst / MICROSECOND))
})
.set(set_burst);
/// `cpu.weight`.
pub const WEIGHT: File = File::shown("cpu.weight", FIRST + 3, HERE, |group, out| {
    line(out, format_args!("{}", group.cpu.shares().shown()))
})
.set(set_weight);
/// `cpu.weight.nice`.
pub const NICE: File = File::shown("cpu.weight.nice", FIRST + 4, HERE, |group, out| {
    line(out, format_args!("{}", group.cpu.shares().nice(&WEIGHTS)))
})
.set(set_nice);

/// The number of the scheduler's group, which there is while these files are there.
fn number_of(group: &Group) -> Result<u32> {
    group.cpu.number().ok_or(Errno::ENODEV)
}

fn change(open: &Opening, change: impl FnOnce(Limit) -> Option<Limit>) -> Result<()> {
    cpu::change_limit(number_of(&open.group)?, change)
}

fn number(text: &[u8]) -> Result<i64> {
    number::number(text).map_err(number_error)
}

fn set_burst(open: &Opening, text: &[u8]) -> Result<()> {
    let burst = u64::try_from(number(text)?).map_err(|_| Errno::EINVAL)?;
    change(open, |limit| limit.with_burst(burst))
}

/// An idle group has no other weight (`sched_group_set_shares`).
fn unless_idle(old: Shares, new: Option<Shares>) -> Result<Shares> {
    let new = new.ok_or(Errno::ERANGE)?;
    if old.is_idle() { Err(Errno::EINVAL) } else { Ok(new) }
}

fn set_weight(open: &Opening, text: &[u8]) -> Result<()> {
    let weight = u64::try_from(number(text)?).map_err(|_| Errno::EINVAL)?;
    open.group.cpu.change_shares(|old| unless_idle(old, Shares::of_weight(weight)))
}

fn set_nice(open: &Opening, text: &[u8]) -> Result<()> {
    let nice = number(text)?;
    open.group.cpu.change_shares(|old| unless_idle(old, Shares::of_nice(&WEIGHTS, nice)))
}

/// `sched_group_set_idle`.
fn set_idle(open: &Opening, text: &[u8]) -> Result<()> {
    let is_idle = match number(text)? {
        0 => false,
        1 => true,
        _ => return Err(Errno::EINVAL),
    };
    let change = |old: Shares| if old.is_idle() == is_idle { old } else { Shares::idle(is_idle) };
    open.group.cpu.change_shares(|old| Ok(change(old)))
}

/// The lines that the controller adds to `cpu.stat` (`cpu_extra_stat_show`).
pub fn statistics(group: &Group, out: &mut Vec<u8>) -> Result<()> {
    let told = match group.cpu.number() {
        Some(number) => share::told(number),
        None if group.is_root() => Told::default(),
        None => return Ok(()),
    };
    line(out, format_args!("nr_periods {}", told.periods))?;
    line(out, format_args!("nr_throttled {}", told.throttled))?;
    line(out, format_args!("throttled_usec {}", told.throttled_ns / MICROSECOND))?;
    line(out, format_args!("nr_bursts {}", told.bursts))?;
    line(out, format_args!("burst_usec {}", told.burst_ns / MICROSECOND))
}
