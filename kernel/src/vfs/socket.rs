//! Sockets as the system calls see them, whatever their family: [`SocketOps`] (Linux' `struct
//! proto_ops`), and the messages that pass through it.
//!
//! # Design
//!
//! The open file of a socket has operations like any other file ([`FileOps`]), and
//! [`FileOps::as_socket`] shows its socket half. The system calls copy addresses, control messages
//! and headers from and to the program; a family gets them as bytes and moves the payload itself,
//! straight from and to the program's memory ([`Input`], [`Output`]). So a family knows nothing of
//! `struct msghdr`, and the calls know nothing of families, which register at boot
//! ([`socket_family`](super::socket_family)).
//!
//! Options of the level `SOL_SOCKET` that mean the same everywhere are kept in [`Common`], and the
//! system calls set them; a family is asked only about the others.
//!
//! # Locks
//!
//! None here. Every operation may sleep and copies from or to the program, so none is called with a
//! spin lock held.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use hayate_abi::socket::Ucred;
use hayate_abi::time::{Timespec, Timeval};
use hayate_abi::{Errno, Result};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use super::open_file::{FileOps, OpenFile};
use super::socket_options::{Buffer, Common, OptionOutput, OptionValue, SOL_SOCKET, Switches};
use super::transfer::{Input, Output};
use crate::reclaim::growth;
use crate::schedule::{WaitQueue, Woken};

/// Flags of send(2) and recv(2) (`include/linux/socket.h`).
pub mod flags {
    #![allow(missing_docs, reason = "the names are those of send(2) and recv(2)")]
    pub const OOB: u32 = 0x1;
    pub const PEEK: u32 = 0x2;
    pub const DONTROUTE: u32 = 0x4;
    pub const CTRUNC: u32 = 0x8;
    pub const TRUNC: u32 = 0x20;
    pub const DONTWAIT: u32 = 0x40;
    pub const EOR: u32 = 0x80;
    pub const WAITALL: u32 = 0x100;
    pub const CONFIRM: u32 = 0x800;
    pub const ERRQUEUE: u32 = 0x2000;
    pub const NOSIGNAL: u32 = 0x4000;
    pub const MORE: u32 = 0x8000;
    pub const CMSG_CLOEXEC: u32 = 0x4000_0000;
    /// Headers of 32-bit programs; only used inside the kernel.
    pub const CMSG_COMPAT: u32 = 0x8000_0000;
}

/// The types of sockets (`SOCK_*` of socket(2)).
pub mod kinds {
    #![allow(missing_docs, reason = "the names are those of socket(2)")]
    pub const STREAM: i32 = 1;
    pub const DATAGRAM: i32 = 2;
    pub const RAW: i32 = 3;
    pub const PACKET: i32 = 5;
}

/// SCM_TIMESTAMP and SCM_TIMESTAMPNS, which are the numbers of the options too.
pub const SO_TIMESTAMP: i32 = 29;
/// See [`SO_TIMESTAMP`].
pub const SO_TIMESTAMPNS: i32 = 35;
/// SCM_TIMESTAMPING, which is the number of the option too.
pub const SO_TIMESTAMPING: i32 = 37;
/// The three in the form with 64 bits for seconds wherever a program runs: on this machine the same
/// bytes under other numbers ([`Switches::NEW_TIMES`]).
pub const SO_TIMESTAMP_NEW: i32 = 63;
/// See [`SO_TIMESTAMP_NEW`].
pub const SO_TIMESTAMPNS_NEW: i32 = 64;
/// See [`SO_TIMESTAMP_NEW`].
pub const SO_TIMESTAMPING_NEW: i32 = 65;

/// Flags of SO_TIMESTAMPING (Documentation/networking/timestamping.rst).
pub mod timestamping {
    /// Times of arrival are noted.
    pub const RX_SOFTWARE: u32 = 8;
    /// Times that this machine noted are reported.
    pub const SOFTWARE: u32 = 16;
}

/// `sizeof(struct sockaddr_storage)`, which bounds the addresses of every family.
pub const ADDRESS_LENGTH: usize = 128;

/// The bytes of a `struct sockaddr`.
pub type AddressBytes = ArrayVec<u8, ADDRESS_LENGTH>;

/// A control message (cmsg(3)) that the system calls pass on as it is: all but descriptors and
/// credentials.
pub struct ControlMessage {
    /// `cmsg_level`.
    pub level: i32,
    /// `cmsg_type`.
    pub kind: i32,
    /// The data after the header.
    pub data: SmallVec<[u8; 32]>,
}

impl ControlMessage {
    /// Adds the control messages that report when a message arrived, in nanoseconds since 1970, if
    /// these options ask for it (`__sock_recv_timestamp`, `tcp_recv_timestamp`).
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn report_time(options: &Common, nanos: u64, list: &mut Vec<Self>) -> Result<()> {
        if !options.keeps_times() {
            return Ok(());
        }
        if let Some(time) = Self::of_time(options, nanos) {
            growth::push(list, time)?;
        }
        if options.timestamping.load(Ordering::Relaxed) & timestamping::SOFTWARE != 0 {
            // `struct scm_timestamping`: this time, one that is not used, and that of a device.
            let none = Timespec::default();
            let times = [Timespec::from_nanos(nanos), none, none];
            let mut data = SmallVec::new();
            data.try_reserve(size_of_val(&times)).map_err(|_| Errno::ENOMEM)?;
            data.extend_from_slice(times.as_bytes());
            let kind = match options.has(Switches::NEW_TIMES) {
                true => SO_TIMESTAMPING_NEW,
                false => SO_TIMESTAMPING,
            };
            growth::push(list, Self { level: SOL_SOCKET, kind, data })?;
        }
        Ok(())
    }

    /// Makes the one of SO_TIMESTAMP or SO_TIMESTAMPNS, if these options ask for it.
    fn of_time(options: &Common, nanos: u64) -> Option<Self> {
        let is_new = options.has(Switches::NEW_TIMES);
        let (kind, data) = if options.has(Switches::TIMESTAMP) {
            let kind = if is_new { SO_TIMESTAMP_NEW } else { SO_TIMESTAMP };
            (kind, SmallVec::from_slice(Timeval::from_nanos(nanos).as_bytes()))
        } else if options.has(Switches::TIMESTAMP_NS) {
            let kind = if is_new { SO_TIMESTAMPNS_NEW } else { SO_TIMESTAMPNS };
            (kind, SmallVec::from_slice(Timespec::from_nanos(nanos).as_bytes()))
        } else {
            return None;
        };
        Some(Self { level: SOL_SOCKET, kind, data })
    }
}

/// The arguments of a send besides its bytes.
#[derive(Default)]
pub struct OutgoingMessage<'a> {
    /// The destination as the program gave it, at most [`ADDRESS_LENGTH`] bytes; `None` if it gave
    /// none, or an empty one in sendmsg(2).
    pub to: Option<&'a [u8]>,
    /// The flags of the call ([`flags`]).
    pub flags: u32,
    /// MSG_DONTWAIT or O_NONBLOCK.
    pub nonblocking: bool,
    /// Descriptors to pass (SCM_RIGHTS); only with [`Ancillary::Files`].
    pub descriptors: Vec<Arc<OpenFile>>,
    /// The credentials that the sender claims (SCM_CREDENTIALS), checked; not with
    /// [`Ancillary::Own`].
    pub claimed: Option<Ucred>,
    /// The other control messages, in their order; only with [`Ancillary::Own`].
    pub control: Vec<ControlMessage>,
}

/// The results of a receive besides the bytes.
#[derive(Default)]
pub struct IncomingMessage {
    /// Bytes copied to the program's memory.
    pub count: usize,
    /// The message's full length, which the call returns with MSG_TRUNC.
    pub full: usize,
    /// The flags that recvmsg(2) reports: MSG_TRUNC, MSG_OOB, MSG_EOR, MSG_ERRQUEUE.
    pub flags: u32,
    /// The address of the sender; empty if there is none to report.
    pub from: AddressBytes,
    /// Descriptors that came with it.
    pub descriptors: Vec<Arc<OpenFile>>,
    /// Credentials of the sender, which are reported if SO_PASSCRED is on.
    pub credentials: Option<Ucred>,
    /// The other control messages.
    pub control: Vec<ControlMessage>,
}

/// The control messages of a send that a family takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ancillary {
    /// Of `SOL_SOCKET` only descriptors and credentials, others are refused; other levels are
    /// ignored (`scm_send` for the Unix domain).
    Files,
    /// The same without descriptors (`scm_send` for other families).
    Credentials,
    /// All but descriptors and credentials, as they are; the family refuses what it does not know
    /// (`sock_cmsg_send`, `ip_cmsg_send`).
    Own,
}

/// The result of accept(2).
pub struct Accepted {
    /// The operations of the new socket.
    pub ops: Arc<dyn FileOps>,
    /// The address of its peer.
    pub peer: AddressBytes,
}

/// The directions that shutdown(2) ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directions {
    /// Nothing more is received.
    pub receiving: bool,
    /// Nothing more is sent.
    pub sending: bool,
}

/// A message that has its place in a socket's queue, and is sent later without fail. One that is
/// dropped gives the place back.
pub trait Letter: Send + Sync {
    /// Sends it, with another last byte.
    fn send(self: Box<Self>, last: u8);
}

/// The operations of a socket. The defaults return what Linux returns for a family without the
/// operation. All may sleep. Addresses are the bytes of a `sockaddr`, of any length and content.
pub trait SocketOps: Send + Sync {
    /// SO_DOMAIN: the family (`AF_*`).
    fn family(&self) -> u16;

    /// SO_TYPE: the type (`SOCK_*`, without flags).
    fn kind(&self) -> i32;

    /// SO_PROTOCOL.
    fn protocol(&self) -> i32 {
        0
    }

    /// Returns the options that mean the same for every family.
    fn common(&self) -> &Common;

    /// The control messages of a send that it takes.
    fn ancillary(&self) -> Ancillary {
        Ancillary::Own
    }

    /// bind(2).
    fn bind(&self, address: &[u8]) -> Result<()> {
        let _ = address;
        Err(Errno::EOPNOTSUPP)
    }

    /// listen(2). The backlog is not negative: a negative one is a very large one (`__sys_listen`).
    fn listen(&self, backlog: usize) -> Result<()> {
        let _ = backlog;
        Err(Errno::EOPNOTSUPP)
    }

    /// connect(2).
    fn connect(&self, address: &[u8], nonblocking: bool) -> Result<()> {
        let _ = (address, nonblocking);
        Err(Errno::EOPNOTSUPP)
    }

    /// accept(2): takes a connection. The caller makes its open file.
    fn accept(&self, nonblocking: bool) -> Result<Accepted> {
        let _ = nonblocking;
        Err(Errno::EOPNOTSUPP)
    }

    /// getsockname(2).
    fn name(&self) -> Result<AddressBytes>;

    /// getpeername(2).
    fn peer_name(&self) -> Result<AddressBytes> {
        Err(Errno::EOPNOTSUPP)
    }

    /// send(2) and its relatives; returns the number of bytes sent. On EPIPE the caller raises
    /// SIGPIPE where that is due.
    fn send(&self, input: &mut Input<'_>, message: OutgoingMessage<'_>) -> Result<usize>;

    /// recv(2) and its relatives, with their flags. `nonblocking`: MSG_DONTWAIT or O_NONBLOCK.
    fn receive(&self, out: &mut Output<'_>, how: u32, nonblocking: bool)
    -> Result<IncomingMessage>;

    /// Takes a place in the queue of the socket for a message of the kernel, and waits until there
    /// is one (`mq_notify(2)` with `SIGEV_THREAD`).
    fn letter(&self, bytes: Vec<u8>) -> Result<Box<dyn Letter>> {
        let _ = bytes;
        Err(Errno::EINVAL)
    }

    /// shutdown(2).
    fn shut_down(&self, which: Directions) -> Result<()> {
        let _ = which;
        Err(Errno::EOPNOTSUPP)
    }

    /// setsockopt(2), for what is not common to all families: other levels, and options of
    /// `SOL_SOCKET` that this family has alone or treats in its own way (ENOPROTOOPT for others).
    fn set_option(&self, level: i32, option: i32, value: OptionValue) -> Result<()> {
        let _ = (option, value);
        Err(no_option(level))
    }

    /// getsockopt(2), for the same options.
    fn get_option(&self, level: i32, option: i32, out: OptionOutput) -> Result<()> {
        let _ = (option, out);
        Err(no_option(level))
    }

    /// Called after options that are common to all families were switched on or off.
    ///
    /// # Errors
    /// `ENOMEM`; then the option is switched back.
    fn switched(&self, which: Switches) -> Result<()> {
        let _ = which;
        Ok(())
    }

    /// SO_COOKIE: a number that no other socket has.
    fn cookie(&self) -> u64 {
        self.common().cookie()
    }

    /// Whether it has SO_PEEK_OFF.
    fn has_peek_offset(&self) -> bool {
        false
    }

    /// Called when it gets its open file, with the number of the inode.
    fn opened(&self, inode: u64) {
        self.common().set_inode(inode);
    }

    /// SO_ERROR: returns the pending error and clears it.
    fn take_error(&self) -> Option<Errno> {
        None
    }

    /// SO_ACCEPTCONN: whether it listens.
    fn listens(&self) -> bool {
        false
    }

    /// SO_PEERCRED.
    fn peer_credentials(&self) -> Option<Ucred> {
        None
    }

    /// SO_SNDBUF and SO_RCVBUF: returns the size as it is kept.
    fn buffer_size(&self, which: Buffer) -> usize;

    /// Sets such a size, which is within the limits of the system.
    fn set_buffer_size(&self, which: Buffer, size: usize);
}

fn no_option(level: i32) -> Errno {
    if level == SOL_SOCKET { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP }
}

/// Returns the index of the message in a queue that a peek sees which passes over `offset` bytes,
/// and how many bytes of it it passes over. `length` tells the length of a message, and whether it
/// was seen before: only that tells an empty one that is next from one that is behind
/// (`__skb_try_recv_from_queue`, net/core/datagram.c of Linux).
pub fn message_at<T>(
    queue: &VecDeque<T>,
    offset: Option<usize>,
    length: impl Fn(&T) -> (usize, bool),
) -> Option<(usize, usize)> {
    let Some(mut left) = offset else { return (!queue.is_empty()).then_some((0, 0)) };
    for (at, message) in queue.iter().enumerate() {
        let (length, was_seen) = length(message);
        if left < length || (left == 0 && !was_seen) {
            return Some((at, left));
        }
        left -= length;
    }
    None
}

/// The result of an attempt that may have to be made again.
pub enum Attempt<T> {
    /// It was made.
    Done(T),
    /// Wait, then try again.
    Wait,
}

/// Repeats `attempt` until it is done, and sleeps on `queue` in between. EAGAIN when it would block
/// and `nonblocking` is set, or the timeout for this buffer (SO_RCVTIMEO, SO_SNDTIMEO) is over;
/// ERESTARTSYS after a signal (EINTR with a timeout, socket(7)).
pub fn until<T>(
    common: &Common,
    which: Buffer,
    nonblocking: bool,
    queue: &WaitQueue,
    mut attempt: impl FnMut() -> Result<Attempt<T>>,
) -> Result<T> {
    if let Attempt::Done(value) = attempt()? {
        return Ok(value);
    }
    if nonblocking {
        return Err(Errno::EAGAIN);
    }
    let deadline = common.deadline(which);
    let made = queue.wait_interruptible(deadline, || match attempt() {
        Ok(Attempt::Wait) => None,
        Ok(Attempt::Done(value)) => Some(Ok(value)),
        Err(error) => Some(Err(error)),
    });
    match made {
        Ok(result) => result,
        Err(Woken::TimedOut) => Err(Errno::EAGAIN),
        Err(Woken::Interrupted) if deadline.is_some() => Err(Errno::EINTR),
        Err(Woken::Interrupted) => Err(Errno::ERESTARTSYS),
    }
}
