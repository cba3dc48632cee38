//! Shared memory: `shmget`, `shmat`, `shmdt`, `shmctl`.

use core::sync::atomic::Ordering;

use hayate_abi::ipc::*;
use hayate_abi::process::RLIMIT_MEMLOCK;
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use super::{given, shown};
use crate::ipc::actor::{EXECUTE, READ, WRITE};
use crate::ipc::sysv::shm::Segment;
use crate::memory;
use crate::memory::segments::Place;
use crate::memory::{PAGE, Protection};
use crate::process;
use crate::process::visible;

/// `shmget(2)`
pub fn shmget(key: i32, size: usize, flags: u32) -> Result<i32> {
    let thread = process::current();
    thread.ipc().shm.obtain(&thread.actor(), || thread.traces.maker(), (key, size, flags))
}

/// `shmat(2)`
pub fn shmat(id: i32, address: usize, flags: u32) -> Result<usize> {
    let place = place(id, address, flags)?;
    let mut protection = Protection::READ;
    let mut wanted = READ;
    if flags & SHM_RDONLY == 0 {
        protection |= Protection::WRITE;
        wanted |= WRITE;
    }
    if flags & SHM_EXEC != 0 {
        protection |= Protection::EXECUTE;
        wanted |= EXECUTE;
    }
    let thread = process::current();
    let attachment = thread.ipc().shm.objects.get(id)?.attach(&thread.actor(), wanted)?;
    memory::current().attach(attachment, place, protection)
}

/// Where shmat attaches. Checks as `do_shmat` does, ipc/shm.c.
fn place(id: i32, address: usize, flags: u32) -> Result<Place> {
    let replaces = flags & SHM_REMAP != 0;
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    if address == 0 {
        return if replaces { Err(Errno::EINVAL) } else { Ok(Place::Free) };
    }
    let rounded = address & !(PAGE - 1);
    let bad = if flags & SHM_RND == 0 { rounded != address } else { rounded == 0 && replaces };
    match rounded {
        _ if bad => Err(Errno::EINVAL),
        // Rounded down to nothing, it is no wish.
        0 => Ok(Place::At(0)),
        rounded if replaces => Ok(Place::Instead(rounded)),
        rounded => Ok(Place::At(rounded)),
    }
}

/// `shmdt(2)`
pub fn shmdt(address: usize) -> Result<()> {
    memory::current().detach(address)
}

/// `shmctl(2)`
pub fn shmctl(id: i32, command: i32, buffer: usize) -> Result<i32> {
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    let (actor, ipc) = (thread.actor(), thread.ipc());
    let (all, segments) = (&ipc.shm, &ipc.shm.objects);
    match command {
        IPC_INFO => {
            let most = segments.most() as u64;
            let limits = ShmLimits {
                shmmax: all.largest.load(Ordering::Relaxed),
                shmmin: 1,
                shmmni: most,
                shmseg: most,
                shmall: all.most_pages.load(Ordering::Relaxed),
                ..ShmLimits::default()
            };
            UserPtr::new(buffer).write(&limits)?;
            Ok(segments.highest() as i32)
        }
        SHM_INFO => {
            let (pages, resident) = all.pages();
            let info = ShmInfo {
                used_ids: segments.count() as i32,
                shm_tot: pages,
                shm_rss: resident,
                ..ShmInfo::default()
            };
            UserPtr::new(buffer).write(&info)?;
            Ok(segments.highest() as i32)
        }
        IPC_STAT => {
            let segment = segments.get(id)?;
            segment.check_readable(&actor)?;
            write_status(&segment, buffer)?;
            Ok(0)
        }
        SHM_STAT | SHM_STAT_ANY => {
            let segment = segments.at(id)?;
            if command == SHM_STAT {
                segment.check_readable(&actor)?;
            }
            write_status(&segment, buffer)
        }
        IPC_SET => {
            let new = UserPtr::<ShmidDs>::new(buffer).read()?.shm_perm;
            segments.get(id)?.set(&actor, given(&new)?)?;
            Ok(0)
        }
        IPC_RMID => segments.get(id)?.remove(all, &actor).map(|()| 0),
        SHM_LOCK | SHM_UNLOCK => {
            let limit = thread.process.limit(RLIMIT_MEMLOCK);
            segments.get(id)?.lock(&actor, command == SHM_LOCK, limit).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Writes what `IPC_STAT` shows; returns the identifier.
fn write_status(segment: &Segment, buffer: usize) -> Result<i32> {
    let status = segment.status();
    UserPtr::new(buffer).write(&ShmidDs {
        shm_perm: shown(&status.permission, status.key, status.id),
        shm_segsz: status.size,
        shm_atime: status.attached_at,
        shm_dtime: status.detached_at,
        shm_ctime: status.changed_at,
        shm_cpid: visible::shown(status.creator) as i32,
        shm_lpid: visible::shown(status.last) as i32,
        shm_nattch: status.attachments as u64,
        ..ShmidDs::default()
    })?;
    Ok(status.id)
}
