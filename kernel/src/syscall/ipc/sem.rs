//! Semaphores: `semget`, `semop`, `semtimedop`, `semctl`.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use hayate_abi::ipc::*;
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_ipc_rules::semaphores::{LARGEST, Operation, undoes};
use hayate_machine::time::monotonic_ns;
use hayate_machine::user::UserPtr;

use super::{given, shown};
use crate::ipc::sysv::sem::{Question, SemSet, Sets};
use crate::process;
use crate::process::visible;
use crate::reclaim::growth::{Grow, relieved};

/// `semget(2)`
pub fn semget(key: i32, count: i32, flags: u32) -> Result<i32> {
    let thread = process::current();
    thread.ipc().sem.obtain(&thread.actor(), key, count, flags)
}

/// `semop(2)`
pub fn semop(id: i32, operations: usize, count: usize) -> Result<()> {
    operate(id, operations, count, None)
}

/// `semtimedop(2)`
pub fn semtimedop(id: i32, operations: usize, count: usize, timeout: usize) -> Result<()> {
    let timeout = match timeout {
        0 => None,
        address => Some(UserPtr::<Timespec>::new(address).read()?),
    };
    operate(id, operations, count, timeout)
}

/// Checks in the order of `do_semtimedop` and `__do_semtimedop`, ipc/sem.c.
fn operate(id: i32, operations: usize, count: usize, timeout: Option<Timespec>) -> Result<()> {
    let thread = process::current();
    let sets = &thread.ipc().sem;
    // The count is 32 bits wide in Linux.
    let count = count as u32 as usize;
    if count > sets.most_at_once.load(Ordering::Relaxed) {
        return Err(Errno::E2BIG);
    }
    if count < 1 {
        return Err(Errno::EINVAL);
    }
    let operations = read_operations(operations, count)?;
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let deadline = match timeout {
        Some(timeout) => Some(monotonic_ns().saturating_add(timeout.to_nanos()?)),
        None => None,
    };
    let set = sets.objects.get(id)?;
    let list = undoes(&operations).then(|| thread.traces.undo_list());
    set.operate(&thread.actor(), operations, list.as_deref(), deadline)
}

fn read_operations(address: usize, count: usize) -> Result<Vec<Operation>> {
    let mut operations = Vec::new();
    relieved(|| operations.make_room_exact(count))?;
    for index in 0..count {
        let at = address.wrapping_add(index * size_of::<Sembuf>());
        let operation = UserPtr::<Sembuf>::new(at).read()?;
        operations.push(Operation {
            number: operation.sem_num,
            change: operation.sem_op,
            flags: operation.sem_flg,
        });
    }
    Ok(operations)
}

/// `semctl(2)`
pub fn semctl(id: i32, number: i32, command: i32, argument: usize) -> Result<i32> {
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    let (actor, ipc) = (thread.actor(), thread.ipc());
    let sets = &ipc.sem.objects;
    let ask = |question| sets.get(id)?.ask(&actor, number, question);
    match command {
        IPC_INFO | SEM_INFO => {
            UserPtr::new(argument).write(&information(&ipc.sem, command == SEM_INFO))?;
            Ok(sets.highest() as i32)
        }
        IPC_STAT => {
            let set = sets.get(id)?;
            set.check_readable(&actor)?;
            write_status(&set, argument)?;
            Ok(0)
        }
        SEM_STAT | SEM_STAT_ANY => {
            let set = sets.at(id)?;
            if command == SEM_STAT {
                set.check_readable(&actor)?;
            }
            write_status(&set, argument)
        }
        GETALL => {
            let values = sets.get(id)?.values(&actor)?;
            UserPtr::<u16>::new(argument).write_slice(&values)?;
            Ok(0)
        }
        SETALL => {
            let set = sets.get(id)?;
            set.check_writable(&actor)?;
            let mut values = Vec::new();
            relieved(|| values.make_room_exact(set.count()))?;
            values.resize(set.count(), 0u16);
            UserPtr::new(argument).read_slice(&mut values)?;
            set.set_values(&actor, 0, &values)?;
            Ok(0)
        }
        SETVAL => {
            let value = u16::try_from(argument as i32).map_err(|_| Errno::ERANGE)?;
            if i32::from(value) > LARGEST {
                return Err(Errno::ERANGE);
            }
            let set = sets.get(id)?;
            let first = usize::try_from(number).ok().filter(|&number| number < set.count());
            set.set_values(&actor, first.ok_or(Errno::EINVAL)?, &[value])?;
            Ok(0)
        }
        GETVAL => ask(Question::Value),
        GETPID => ask(Question::Process).map(visible::shown_signed),
        GETNCNT => ask(Question::WaitingForMore),
        GETZCNT => ask(Question::WaitingForZero),
        IPC_SET => {
            let new = UserPtr::<SemidDs>::new(argument).read()?.sem_perm;
            sets.get(id)?.set(&actor, given(&new)?)?;
            Ok(0)
        }
        IPC_RMID => sets.get(id)?.remove(&ipc.sem, &actor).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// The limits; with `used` two of them are what is used instead (`semctl_info`).
fn information(all: &Sets, used: bool) -> Seminfo {
    const SEMUSZ: i32 = 20;
    let number = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
    let most = number(all.most_in_all.load(Ordering::Relaxed));
    let at_once = number(all.most_at_once.load(Ordering::Relaxed));
    Seminfo {
        // The fields that mean nothing in Linux have the values of its header.
        semmap: 1_024_000_000,
        semmni: number(all.objects.most()),
        semmns: most,
        semmnu: 1_024_000_000,
        semmsl: number(all.most_in_set.load(Ordering::Relaxed)),
        semopm: at_once,
        semume: 500,
        semusz: if used { number(all.objects.count()) } else { SEMUSZ },
        semvmx: LARGEST,
        semaem: if used { number(all.semaphores()) } else { LARGEST },
    }
}

/// Writes what `IPC_STAT` shows; returns the identifier.
fn write_status(set: &SemSet, buffer: usize) -> Result<i32> {
    let status = set.status();
    UserPtr::new(buffer).write(&SemidDs {
        sem_perm: shown(&status.permission, status.key, status.id),
        sem_otime: status.operated_at,
        sem_ctime: status.changed_at,
        sem_nsems: status.count as u64,
        ..SemidDs::default()
    })?;
    Ok(status.id)
}
