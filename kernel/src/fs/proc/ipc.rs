//! `/proc/sysvipc`: the System V objects (`sysvipc(7)`), and their settings in `/proc/sys/kernel`;
//! those of POSIX message queues in `/proc/sys/fs/mqueue`. All are those of the reader's IPC
//! namespace.

use alloc::vec::Vec;
use core::str;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use hayate_abi::{Errno, Result};

use super::text::line;
use super::tree::{Item, What};
use crate::process::current;
use crate::process::numbers::{shown_group, shown_user};
use crate::process::visible;

/// The items of `/proc/sysvipc`.
pub static ITEMS: &[Item<()>] = &[
    Item { name: "msg", what: What::Text(queues) },
    Item { name: "sem", what: What::Text(semaphores) },
    Item { name: "shm", what: What::Text(segments) },
];

fn queues(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(
        out,
        format_args!(
            "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  \
             cgid      stime      rtime      ctime"
        ),
    )?;
    current().ipc().msg.objects.for_each(|queue| {
        let s = queue.status();
        let who = s.permission;
        line(
            out,
            format_args!(
                "{:10} {:10}  {:4o}  {:10} {:10} {:5} {:5} {:5} {:5} {:5} {:5} {:10} {:10} {:10}",
                s.key,
                s.id,
                who.mode,
                s.bytes,
                s.messages,
                visible::shown(s.last_sender),
                visible::shown(s.last_receiver),
                shown_user(who.uid),
                shown_group(who.gid),
                shown_user(who.cuid),
                shown_group(who.cgid),
                s.sent_at,
                s.received_at,
                s.changed_at
            ),
        )
    })
}

fn semaphores(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(
        out,
        format_args!(
            "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime"
        ),
    )?;
    current().ipc().sem.objects.for_each(|set| {
        let s = set.status();
        let who = s.permission;
        line(
            out,
            format_args!(
                "{:10} {:10}  {:4o} {:10} {:5} {:5} {:5} {:5} {:10} {:10}",
                s.key,
                s.id,
                who.mode,
                s.count,
                shown_user(who.uid),
                shown_group(who.gid),
                shown_user(who.cuid),
                shown_group(who.cgid),
                s.operated_at,
                s.changed_at
            ),
        )
    })
}

fn segments(_: &(), out: &mut Vec<u8>) -> Result<()> {
    line(
        out,
        format_args!(
            "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  \
             cuid  cgid      atime      dtime      ctime                   rss                  swap"
        ),
    )?;
    current().ipc().shm.objects.for_each(|segment| {
        let s = segment.status();
        let who = s.permission;
        line(
            out,
            format_args!(
                "{:10} {:10}  {:4o} {:21} {:5} {:5}  {:5} {:5} {:5} {:5} {:5} {:10} {:10} {:10} \
                 {:21} {:21}",
                s.key,
                s.id,
                who.mode,
                s.size,
                visible::shown(s.creator),
                visible::shown(s.last),
                s.attachments,
                shown_user(who.uid),
                shown_group(who.gid),
                shown_user(who.cuid),
                shown_group(who.cgid),
                s.attached_at,
                s.detached_at,
                s.changed_at,
                s.resident * 4096,
                0
            ),
        )
    })
}

/// The words that were written, as numbers: `EINVAL` if there are not `N`, or one is none.
fn numbers<const N: usize, T: Copy + Default + str::FromStr>(text: &[u8]) -> Result<[T; N]> {
    let text = str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    let mut words = text.split([' ', '\t', '\n', '\0']).filter(|word| !word.is_empty());
    let mut numbers = [T::default(); N];
    for number in &mut numbers {
        let word = words.next().ok_or(Errno::EINVAL)?;
        *number = word.parse().map_err(|_| Errno::EINVAL)?;
    }
    if words.next().is_none() { Ok(numbers) } else { Err(Errno::EINVAL) }
}

/// One number that was written.
fn number<T: Copy + Default + str::FromStr>(text: &[u8]) -> Result<T> {
    let [number] = numbers::<1, T>(text)?;
    Ok(number)
}

fn show(out: &mut Vec<u8>, value: &AtomicU64) -> Result<()> {
    line(out, format_args!("{}", value.load(Ordering::Relaxed)))
}

pub(super) const SHM_ALL: What<()> = What::Setting(
    |(), out| show(out, &current().ipc().shm.most_pages),
    |(), text| {
        current().ipc().shm.most_pages.store(number(text)?, Ordering::Relaxed);
        Ok(())
    },
);

pub(super) const SHM_MAX: What<()> = What::Setting(
    |(), out| show(out, &current().ipc().shm.largest),
    |(), text| {
        current().ipc().shm.largest.store(number(text)?, Ordering::Relaxed);
        Ok(())
    },
);

pub(super) const SHM_MNI: What<()> = What::Setting(
    |(), out| line(out, format_args!("{}", current().ipc().shm.objects.most())),
    |(), text| current().ipc().shm.objects.set_most(number(text)?),
);

pub(super) const SHM_NEXT_ID: What<()> = What::Setting(
    |(), out| line(out, format_args!("{}", current().ipc().shm.objects.next_id())),
    |(), text| current().ipc().shm.objects.set_next_id(number(text)?),
);

pub(super) const SHM_RMID_FORCED: What<()> = What::Setting(
    |(), out| line(out, format_args!("{}", u8::from(current().ipc().shm.is_forced()))),
    |(), text| match number::<i64>(text)? {
        0 => {
            current().ipc().shm.set_forced(false);
            Ok(())
        }
        1 => {
            current().ipc().shm.set_forced(true);
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    },
);

pub(super) const SEM: What<()> = What::Setting(
    |(), out| {
        let load = |value: &AtomicUsize| value.load(Ordering::Relaxed);
        let sem = &current().ipc().sem;
        let (in_set, in_all) = (load(&sem.most_in_set), load(&sem.most_in_all));
        let at_once = load(&sem.most_at_once);
        line(out, format_args!("{in_set}\t{in_all}\t{at_once}\t{}", sem.objects.most()))
    },
    |(), text| {
        let [in_set, in_all, at_once, sets] = numbers::<4, u32>(text)?;
        // A semaphore has 16 bits for its number, and an operation a place in the kernel's memory.
        if in_set > 0x1_0000 || at_once > 0x1_0000 {
            return Err(Errno::EINVAL);
        }
        let sem = &current().ipc().sem;
        sem.objects.set_most(i64::from(sets))?;
        sem.most_in_set.store(in_set as usize, Ordering::Relaxed);
        sem.most_in_all.store(in_all as usize, Ordering::Relaxed);
        sem.most_at_once.store(at_once as usize, Ordering::Relaxed);
        Ok(())
    },
);

pub(super) const SEM_NEXT_ID: What<()> = What::Setting(
    |(), out| line(out, format_args!("{}", current().ipc().sem.objects.next_id())),
    |(), text| current().ipc().sem.objects.set_next_id(number(text)?),
);

fn set_size(size: &AtomicUsize, text: &[u8]) -> Result<()> {
    // 32 bits and a sign in Linux.
    let new = i32::try_from(number::<i64>(text)?).ok().and_then(|new| usize::try_from(new).ok());
    size.store(new.ok_or(Errno::EINVAL)?, Ordering::Relaxed);
    Ok(())
}

fn show_size(size: &AtomicUsize, out: &mut Vec<u8>) -> Result<()> {
    line(out, format_args!("{}", size.load(Ordering::Relaxed)))
}

pub(super) const MSG_MAX: What<()> = What::Setting(
    |(), out| show_size(&current().ipc().msg.largest, out),
    |(), text| set_size(&current().ipc().msg.largest, text),
);

pub(super) const MSG_MNB: What<()> = What::Setting(
    |(), out| show_size(&current().ipc().msg.room, out),
    |(), text| set_size(&current().ipc().msg.room, text),
);

pub(super) const MSG_MNI: What<()> = What::Setting(
    |(), out| line(out, format_args!("{}", current().ipc().msg.objects.most())),
    |(), text| current().ipc().msg.objects.set_most(number(text)?),
);

pub(super) const MSG_NEXT_ID: What<()> = What::Setting(
    |(), out| line(out, format_args!("{}", current().ipc().msg.objects.next_id())),
    |(), text| current().ipc().msg.objects.set_next_id(number(text)?),
);

/// A setting of POSIX message queues.
macro_rules! queue_setting {
    ($name:literal, $setting:ident) => {
        Item {
            name: $name,
            what: What::Setting(
                |(), out| {
                    line(out, format_args!("{}", current().ipc().mqueue.settings.$setting.get()))
                },
                |(), text| current().ipc().mqueue.settings.$setting.set(number(text)?),
            ),
        }
    };
}

pub(super) static MQUEUE: &[Item<()>] = &[
    queue_setting!("msg_default", default_messages),
    queue_setting!("msg_max", most),
    queue_setting!("msgsize_default", default_size),
    queue_setting!("msgsize_max", largest),
    queue_setting!("queues_max", most_queues),
];
