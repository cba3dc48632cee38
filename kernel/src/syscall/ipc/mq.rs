//! POSIX message queues: `mq_open`, `mq_unlink`, `mq_timedsend`, `mq_timedreceive`, `mq_notify`,
//! `mq_getsetattr`.

use alloc::vec::Vec;

use hayate_abi::ipc::MqAttr;
use hayate_abi::signal::{NSIG, Sigevent};
use hayate_abi::time::Timespec;
use hayate_abi::{Errno, Result};
use hayate_ipc_rules::priorities::PRIORITIES;
use hayate_machine::user;
use hayate_machine::user::UserPtr;

use crate::ipc::message::Text;
use crate::ipc::mqueue::message::Message;
use crate::ipc::mqueue::notice::{Notice, Way};
use crate::ipc::mqueue::queue::{Patience, Queue};
use crate::ipc::mqueue::tree;
use crate::process;
use crate::reclaim::growth::Grow;
use crate::syscall::file;
use crate::syscall::file::View;
use crate::vfs::open_file::OpenFile;
use crate::vfs::open_file::flags::O_NONBLOCK;

/// `mq_open(2)`
pub fn mq_open(name: usize, flags: u32, mode: u32, attributes: usize) -> Result<i32> {
    let wanted = match UserPtr::<MqAttr>::new(attributes).optional() {
        Some(pointer) => {
            let attributes = pointer.read()?;
            Some((attributes.mq_maxmsg, attributes.mq_msgsize))
        }
        None => None,
    };
    let (view, name) = (View::current()?, file::path(name)?);
    let files = file::files();
    let reserved = files.reserve(0, file::descriptor_limit(), true)?;
    let resolver = view.resolver(hayate_abi::file::AT_FDCWD, &name)?;
    let queue = tree::open(
        &process::current().ipc().mqueue,
        &resolver,
        &name,
        (flags, mode as u16),
        wanted,
    )?;
    Ok(reserved.install(queue))
}

/// `mq_unlink(2)`
pub fn mq_unlink(name: usize) -> Result<()> {
    let (view, name) = (View::current()?, file::path(name)?);
    let resolver = view.resolver(hayate_abi::file::AT_FDCWD, &name)?;
    tree::unlink(&process::current().ipc().mqueue, resolver, &name)
}

/// The queue of an open file: `EBADF`.
fn queue(file: &OpenFile) -> Result<&Queue> {
    file.ops_as::<Queue>().ok_or(Errno::EBADF)
}

/// The time until which a call waits: `EFAULT`, `EINVAL`.
fn until(timeout: usize) -> Result<Option<u64>> {
    match UserPtr::<Timespec>::new(timeout).optional() {
        Some(pointer) => pointer.read()?.to_nanos().map(Some),
        None => Ok(None),
    }
}

/// `mq_timedsend(2)`
pub fn mq_timedsend(
    fd: i32,
    message: usize,
    size: usize,
    priority: u32,
    timeout: usize,
) -> Result<()> {
    let until = until(timeout)?;
    if priority >= PRIORITIES {
        return Err(Errno::EINVAL);
    }
    let file = file::open_file(fd)?;
    let queue = queue(&file)?;
    if !file.writable() {
        return Err(Errno::EBADF);
    }
    if size > queue.shape().size {
        return Err(Errno::EMSGSIZE);
    }
    let mut text = Text::new(size)?;
    user::copy_in(text.bytes_mut(), message)?;
    let sender = process::current().actor();
    queue.send(&sender, Message { priority, text }, Patience { none: file.nonblocking(), until })
}

/// `mq_timedreceive(2)`
pub fn mq_timedreceive(
    fd: i32,
    message: usize,
    size: usize,
    priority: usize,
    timeout: usize,
) -> Result<usize> {
    let until = until(timeout)?;
    let file = file::open_file(fd)?;
    let queue = queue(&file)?;
    if !file.readable() {
        return Err(Errno::EBADF);
    }
    if size < queue.shape().size {
        return Err(Errno::EMSGSIZE);
    }
    let received = queue.receive(Patience { none: file.nonblocking(), until })?;
    // If this fails, the message is lost, as in Linux.
    if let Some(pointer) = UserPtr::<u32>::new(priority).optional() {
        pointer.write(&received.priority)?;
    }
    let text = received.text.bytes();
    user::copy_out(message, text)?;
    Ok(text.len())
}

/// `mq_notify(2)`
pub fn mq_notify(fd: i32, event: usize) -> Result<()> {
    let actor = process::current().actor();
    let Some(pointer) = UserPtr::<Sigevent>::new(event).optional() else {
        let file = file::open_file(fd)?;
        let queue = queue(&file)?;
        if queue.withdraw_notice(actor.process) {
            queue.note_access();
        }
        return Ok(());
    };
    let way = way(&pointer.read()?)?;
    let file = file::open_file(fd)?;
    // Before there is a notice, so that no close is missed.
    file::files().note_closings();
    queue(&file)?.set_notice(Notice::new(&actor, way)?)
}

/// The way of a notice: `EINVAL`, `EFAULT`, `EBADF`, `ENOTSOCK`, or what the socket says.
fn way(event: &Sigevent) -> Result<Way> {
    const SIGEV_SIGNAL: i32 = 0;
    const SIGEV_NONE: i32 = 1;
    const SIGEV_THREAD: i32 = 2;
    /// The bytes of a letter (`NOTIFY_COOKIE_LEN`).
    const COOKIE: usize = 32;
    match event.sigev_notify {
        SIGEV_NONE => Ok(Way::Nothing),
        SIGEV_SIGNAL => match u32::try_from(event.sigev_signo) {
            Ok(signal) if signal <= NSIG => Ok(Way::Signal(signal, event.sigev_value)),
            _ => Err(Errno::EINVAL),
        },
        SIGEV_THREAD => {
            let mut cookie = Vec::new();
            cookie.make_room_exact(COOKIE)?;
            cookie.resize(COOKIE, 0);
            user::copy_in(&mut cookie, event.sigev_value as usize)?;
            let file = file::open_file(event.sigev_signo)?;
            let socket = file.ops().as_socket().ok_or(Errno::ENOTSOCK)?;
            Ok(Way::Letter(socket.letter(cookie)?))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `mq_getsetattr(2)`
pub fn mq_getsetattr(fd: i32, new: usize, old: usize) -> Result<()> {
    let new = UserPtr::<MqAttr>::new(new).optional().map(|pointer| pointer.read()).transpose()?;
    if new.is_some_and(|new| new.mq_flags & !i64::from(O_NONBLOCK) != 0) {
        return Err(Errno::EINVAL);
    }
    let file = file::open_file(fd)?;
    let queue = queue(&file)?;
    let now = MqAttr {
        mq_flags: i64::from(file.flags() & O_NONBLOCK),
        mq_maxmsg: queue.shape().messages as i64,
        mq_msgsize: queue.shape().size as i64,
        mq_curmsgs: queue.length() as i64,
        ..MqAttr::default()
    };
    if let Some(new) = new {
        file.set_flags(file.flags() & !O_NONBLOCK | new.mq_flags as u32)?;
        queue.note_access();
    }
    match UserPtr::new(old).optional() {
        Some(pointer) => pointer.write(&now),
        None => Ok(()),
    }
}
