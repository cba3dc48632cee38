//! The files of the controller `io` (cgroup-v2.rst, "IO Interface Files"; block/blk-throttle.c and
//! block/blk-cgroup.c of Linux 6.1). There are no weights and no limits of latency, so there are
//! none of their files, as with a kernel built without BFQ, `BLK_CGROUP_IOCOST` and the like.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};
use hayate_cgroup_rules::controllers::Controllers;
use hayate_cgroup_rules::io::{Limits, Line, NO_LIMIT, Refusal};

use super::file::{File, NEXT, Opening, Where};
use crate::drivers::io;
use crate::drivers::io::device::{Counted, device, numbered};
use crate::drivers::io::groups::{self, Counts, Kind};
use crate::fs::proc::text::{line, put};
use crate::process::cgroup::group::Group;

/// Numbers of the files begin here.
const FIRST: u8 = NEXT + 27;

/// `io.max`.
pub const MAX: File =
    File::shown("io.max", FIRST, Where::With(Controllers::IO), show_limits).set(change_limits);
/// `io.stat`.
pub const STAT: File =
    File::shown("io.stat", FIRST + 1, Where::WithOrRoot(Controllers::IO), statistics);

/// The handle of a group, which it has while these files are there.
fn handle_of(group: &Group) -> Result<u32> {
    match group.io.load(Ordering::SeqCst) {
        0 => Err(Errno::ENODEV),
        handle => Ok(handle),
    }
}

/// Writes a line for each device about which there is something to say.
fn each(out: &mut Vec<u8>, say: impl Fn(&Counted, &mut Vec<u8>) -> Result<()>) -> Result<()> {
    (0..).map_while(device).try_for_each(|device| say(&device, out))
}

fn name(device: &Counted, out: &mut Vec<u8>) -> Result<()> {
    let (major, minor) = device.number();
    put(out, format_args!("{major}:{minor}"))
}

fn show_limits(group: &Group, out: &mut Vec<u8>) -> Result<()> {
    let handle = handle_of(group)?;
    each(out, |device, out| {
        let limits = groups::limits(handle, device.at());
        if limits == Limits::NONE {
            return Ok(());
        }
        name(device, out)?;
        for (name, limit) in limits.named() {
            match limit {
                NO_LIMIT => put(out, format_args!(" {name}=max"))?,
                limit => put(out, format_args!(" {name}={limit}"))?,
            }
        }
        line(out, format_args!(""))
    })
}

fn change_limits(open: &Opening, text: &[u8]) -> Result<()> {
    let wanted = Line::parse(text).ok_or(Errno::EINVAL)?;
    let device = numbered(wanted.major, wanted.minor).ok_or(Errno::ENODEV)?;
    groups::change_limits(handle_of(&open.group)?, device.at(), |old| {
        old.changed(wanted.settings).map_err(|refusal| match refusal {
            Refusal::Invalid => Errno::EINVAL,
            Refusal::Zero => Errno::ERANGE,
        })
    })?;
    io::wake();
    Ok(())
}

fn statistics(group: &Group, out: &mut Vec<u8>) -> Result<()> {
    if group.is_root() {
        return each(out, |device, out| used(device, device.all(), out));
    }
    let handle = handle_of(group)?;
    each(out, |device, out| match groups::used(handle, device.at()) {
        Some(counts) => used(device, counts, out),
        None => Ok(()),
    })
}

fn used(device: &Counted, counts: &Counts, out: &mut Vec<u8>) -> Result<()> {
    let [read, written, discarded] =
        [Kind::Read, Kind::Write, Kind::Discard].map(|it| counts.of(it));
    if [read, written, discarded].iter().all(|&(_, requests)| requests == 0) {
        return Ok(());
    }
    name(device, out)?;
    let ((rbytes, rios), (wbytes, wios), (dbytes, dios)) = (read, written, discarded);
    put(out, format_args!(" rbytes={rbytes} wbytes={wbytes} rios={rios} wios={wios}"))?;
    line(out, format_args!(" dbytes={dbytes} dios={dios}"))
}
