//! Messages: `msgget`, `msgsnd`, `msgrcv`, `msgctl`.

use core::sync::atomic::Ordering;

use hayate_abi::ipc::*;
use hayate_abi::{Errno, Result};
use hayate_ipc_rules::messages::{COPY, EXCEPT, Wanted};
use hayate_machine::user;
use hayate_machine::user::UserPtr;

use super::{given, shown};
use crate::ipc::message::Text;
use crate::ipc::sysv::msg::{Message, Queue, Queues, Receipt};
use crate::process;
use crate::process::visible;

/// The bytes of a message's type, before its text.
const KIND: usize = 8;

/// `msgget(2)`
pub fn msgget(key: i32, flags: u32) -> Result<i32> {
    let thread = process::current();
    thread.ipc().msg.obtain(&thread.actor(), key, flags)
}

/// `msgsnd(2)`
pub fn msgsnd(id: i32, message: usize, size: usize, flags: u32) -> Result<()> {
    let kind: i64 = UserPtr::new(message).read()?;
    let thread = process::current();
    let queues = &thread.ipc().msg;
    if size > queues.largest.load(Ordering::Relaxed) || id < 0 || kind < 1 {
        return Err(Errno::EINVAL);
    }
    let mut text = Text::new(size)?;
    user::copy_in(text.bytes_mut(), message.wrapping_add(KIND))?;
    queues.objects.get(id)?.send(&thread.actor(), Message { kind, text }, flags & IPC_NOWAIT != 0)
}

/// `msgrcv(2)`
pub fn msgrcv(id: i32, message: usize, size: usize, kind: i64, flags: u32) -> Result<usize> {
    let no_wait = flags & IPC_NOWAIT != 0;
    if id < 0 || size > isize::MAX as usize {
        return Err(Errno::EINVAL);
    }
    let receipt =
        Receipt { wanted: Wanted::of(kind, flags), size, cuts: flags & MSG_NOERROR != 0, no_wait };
    let thread = process::current();
    let (actor, ipc) = (thread.actor(), thread.ipc());
    let queues = &ipc.msg.objects;
    if flags & COPY != 0 {
        if flags & EXCEPT != 0 || !no_wait {
            return Err(Errno::EINVAL);
        }
        let mut text = Text::new(size.min(ipc.msg.largest.load(Ordering::Relaxed)))?;
        let (kind, size) = queues.get(id)?.copy(&actor, receipt, text.bytes_mut())?;
        return give(message, kind, text.bytes().get(..size).unwrap_or_default());
    }
    let received = queues.get(id)?.receive(&actor, receipt)?;
    let text = received.text.bytes();
    give(message, received.kind, text.get(..size).unwrap_or(text))
}

/// Writes a message to a program. If that fails, the message is lost, as in Linux.
fn give(to: usize, kind: i64, text: &[u8]) -> Result<usize> {
    UserPtr::new(to).write(&kind)?;
    user::copy_out(to.wrapping_add(KIND), text)?;
    Ok(text.len())
}

/// `msgctl(2)`
pub fn msgctl(id: i32, command: i32, buffer: usize) -> Result<i32> {
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let thread = process::current();
    let (actor, ipc) = (thread.actor(), thread.ipc());
    let queues = &ipc.msg.objects;
    match command {
        IPC_INFO | MSG_INFO => {
            UserPtr::new(buffer).write(&information(&ipc.msg, command == MSG_INFO))?;
            Ok(queues.highest() as i32)
        }
        IPC_STAT => {
            let queue = queues.get(id)?;
            queue.check_readable(&actor)?;
            write_status(&queue, buffer)?;
            Ok(0)
        }
        MSG_STAT | MSG_STAT_ANY => {
            let queue = queues.at(id)?;
            if command == MSG_STAT {
                queue.check_readable(&actor)?;
            }
            write_status(&queue, buffer)
        }
        IPC_SET => {
            let new = UserPtr::<MsqidDs>::new(buffer).read()?;
            let perm = new.msg_perm;
            let most = ipc.msg.room.load(Ordering::Relaxed);
            let owner = given(&perm)?;
            queues.get(id)?.set(&actor, owner, new.msg_qbytes, most)?;
            Ok(0)
        }
        IPC_RMID => queues.get(id)?.remove(&ipc.msg, &actor).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// The limits; with `used` three of them are what is used instead (`msgctl_info`).
fn information(all: &Queues, used: bool) -> Msginfo {
    let number = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
    let (messages, bytes) = all.all();
    let mut information = Msginfo {
        // The fields that mean nothing in Linux have the values of its header.
        msgpool: 512_000,
        msgmap: 16384,
        msgmax: number(all.largest.load(Ordering::Relaxed)),
        msgmnb: number(all.room.load(Ordering::Relaxed)),
        msgmni: number(all.objects.most()),
        msgssz: 16,
        msgtql: 16384,
        msgseg: 0xffff,
        hole: 0,
    };
    if used {
        information.msgpool = number(all.objects.count());
        information.msgmap = number(messages);
        information.msgtql = number(bytes);
    }
    information
}

/// Writes what `IPC_STAT` shows; returns the identifier.
fn write_status(queue: &Queue, buffer: usize) -> Result<i32> {
    let status = queue.status();
    UserPtr::new(buffer).write(&MsqidDs {
        msg_perm: shown(&status.permission, status.key, status.id),
        msg_stime: status.sent_at,
        msg_rtime: status.received_at,
        msg_ctime: status.changed_at,
        msg_cbytes: status.bytes as u64,
        msg_qnum: status.messages as u64,
        msg_qbytes: status.room as u64,
        msg_lspid: visible::shown(status.last_sender) as i32,
        msg_lrpid: visible::shown(status.last_receiver) as i32,
        ..MsqidDs::default()
    })?;
    Ok(status.id)
}
