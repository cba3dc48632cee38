//! Process accounting: a record of each process that ended, at the end of a file (`acct(2)`,
//! acct(5); kernel/acct.c of Linux 6.1).
//!
//! An end asks [`is_on`], and nothing else as long as accounting is off. The record is written when
//! the memory of the process is gone and its parent does not yet know of its end, so that one that
//! waited finds it. Records come one after the other: one lock of the file, which sleeps. Nothing
//! of the table of processes is locked meanwhile.
//!
//! When the file system is nearly full, records are left out until there is room again.
//!
//! The road not taken: the flag `ASU`, for a process that used the rights of the superuser. Every
//! check of a right would have to note it.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use hayate_abi::accounting::{ACORE, AFORK, AXSIG, AcctV3, TICKS, VERSION, compressed, float};
use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;
use hayate_machine::time;
use zerocopy::IntoBytes;

use super::record::{DUMPED, Process};
use super::thread::Thread;
use crate::schedule::Mutex;
use crate::vfs::attributes::FileKind;
use crate::vfs::inode::DeviceNumber;
use crate::vfs::notify;
use crate::vfs::open_file::OpenFile;
use crate::vfs::transfer::Input;
use crate::vfs::watch::Mask;

const SECOND: u64 = 1_000_000_000;

/// The file of the records.
struct Target {
    file: Arc<OpenFile>,
    room: Mutex<Room>,
}

/// Whether the file system has room for records.
struct Room {
    enough: bool,
    /// When to look again.
    look_at: u64,
}

/// Whether there is a target.
static ON: AtomicBool = AtomicBool::new(false);
static TARGET: SpinLock<Option<Arc<Target>>> = SpinLock::new(None);

/// `kernel.acct`: per cent of free blocks at which records are written again, at which they are
/// left out, and the seconds between two looks.
static LIMITS: [AtomicI32; 3] = [AtomicI32::new(4), AtomicI32::new(2), AtomicI32::new(30)];

/// The setting `kernel.acct`.
pub fn limits() -> [i32; 3] {
    [0, 1, 2].map(|index: usize| LIMITS[index].load(Ordering::Relaxed))
}

/// Changes it.
pub fn set_limits(new: [i32; 3]) {
    for (limit, value) in LIMITS.iter().zip(new) {
        limit.store(value, Ordering::Relaxed);
    }
}

/// Whether ends are noted.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Notes ends in this file from now on, in place of another one: `EACCES` for what is no regular
/// file.
pub fn start(file: Arc<OpenFile>) -> Result<()> {
    if file.metadata()?.kind != FileKind::Regular {
        return Err(Errno::EACCES);
    }
    replace(Some(Arc::new(Target { file, room: Mutex::new(Room { enough: true, look_at: 0 }) })));
    Ok(())
}

/// Notes no ends any more.
pub fn stop() {
    replace(None);
}

fn replace(new: Option<Arc<Target>>) {
    let old = {
        let mut target = TARGET.lock();
        ON.store(new.is_some(), Ordering::Relaxed);
        core::mem::replace(&mut *target, new)
    };
    drop(old);
}

/// Writes the record of a process whose last thread ends. `size`: the bytes that it had mapped.
#[cold]
pub(super) fn note(process: &Process, thread: &Thread, status: i32, size: usize) {
    let Some(target) = TARGET.lock().clone() else { return };
    let record = record(process, thread, status, size);
    let mut room = target.room.lock();
    if room.is_enough(&target.file, time::monotonic_ns()) {
        // A record that cannot be written is lost, as in Linux.
        if target.file.write(&mut Input::kernel(record.as_bytes())).is_ok() {
            notify::file(&target.file, Mask::MODIFY);
        }
    }
}

impl Room {
    /// Looks from time to time (`check_free_space`).
    fn is_enough(&mut self, file: &OpenFile, now: u64) -> bool {
        if now >= self.look_at {
            let [resume, suspend, seconds] = limits();
            let usage = file.location().mount.filesystem().usage();
            let part = |per_cent: i32| usage.blocks / 100 * per_cent.max(0) as u64;
            self.enough = match self.enough {
                true => usage.available > part(suspend),
                false => usage.available >= part(resume),
            };
            self.look_at = now + seconds.max(0) as u64 * SECOND;
        }
        self.enough
    }
}

fn record(process: &Process, thread: &Thread, status: i32, size: usize) -> AcctV3 {
    let usage = process.usage();
    let credentials = thread.credentials();
    let ticks = |nanoseconds: u64| nanoseconds / (SECOND / TICKS);
    let elapsed = time::monotonic_ns().saturating_sub(process.started());
    let begun = (time::realtime_ns() / SECOND).saturating_sub(elapsed / SECOND);
    let terminal = process.session().terminal().map_or(0, |terminal| {
        let (major, minor) = terminal.device;
        DeviceNumber::new(major, minor).encode() as u16
    });
    let mut flags = 0;
    for (is_so, flag) in [
        (process.programs() == 0, AFORK),
        (status & DUMPED != 0, ACORE),
        (status & 0x7f != 0, AXSIG),
    ] {
        flags |= if is_so { flag } else { 0 };
    }
    AcctV3 {
        ac_flag: flags,
        ac_version: VERSION,
        ac_tty: terminal,
        ac_exitcode: status as u32,
        ac_uid: credentials.uid,
        ac_gid: credentials.gid,
        ac_pid: process.id(),
        ac_ppid: process.parent_id(),
        ac_btime: u32::try_from(begun).unwrap_or(u32::MAX),
        ac_etime: float(ticks(elapsed)),
        ac_utime: compressed(ticks(usage.user_ns)),
        ac_stime: compressed(ticks(usage.system_ns)),
        ac_mem: compressed(size as u64 / 1024),
        ac_minflt: compressed(usage.minor_faults),
        ac_majflt: compressed(usage.major_faults),
        ac_comm: thread.name(),
        ..AcctV3::default()
    }
}
