//! The open file of a Unix-domain socket: sending, receiving, polling.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::raw::ioctl::{FIONREAD, SIOCATMARK, TIOCOUTQ};
use hayate_abi::socket::Ucred;
use hayate_abi::{Errno, Result};
use hayate_machine::user::UserPtr;

use super::account;
use super::address::Name;
use super::endpoint::{Endpoint, EndpointKind};
use super::message::{Descriptors, Message};
use crate::reclaim::growth;
use crate::reclaim::growth::Grow;
use crate::vfs::fasync::{Interest, Signals};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};
use crate::vfs::poll::{Events, Registrar};
use crate::vfs::socket::{Attempt, SocketOps, flags};
use crate::vfs::socket_family;
use crate::vfs::socket_options::{Buffer, Common, Switches};
use crate::vfs::transfer::{Input, Output};
use crate::vfs::{caller, socket};

/// The largest message into which the bytes of a stream are cut.
pub(super) const STREAM_PIECE: usize = 32 * 1024;

/// An open Unix-domain socket.
pub struct Socket {
    endpoint: Arc<Endpoint>,
    common: Common,
}

/// The arguments of a send besides its bytes.
pub struct Outgoing {
    /// The destination, if sendto(2) or sendmsg(2) named one.
    pub to: Option<Arc<Endpoint>>,
    /// Descriptors to pass.
    pub descriptors: Vec<Arc<OpenFile>>,
    /// The user that they count for, and how many that user may have in flight.
    pub flight: (u32, usize),
    /// Credentials of the sender, or those given with SCM_CREDENTIALS.
    pub sender: Ucred,
    /// MSG_DONTWAIT or O_NONBLOCK.
    pub nonblocking: bool,
    /// MSG_OOB: the last byte is out-of-band data.
    pub urgent: bool,
}

/// The results of a receive besides the bytes.
#[derive(Default)]
pub struct Incoming {
    /// Bytes copied to the program's memory.
    pub count: usize,
    /// The message's full length, for MSG_TRUNC.
    pub full: usize,
    /// The datagram was longer than the buffer.
    pub truncated: bool,
    /// It is out-of-band data.
    pub urgent: bool,
    /// Descriptors that came with it.
    pub descriptors: Vec<Arc<OpenFile>>,
    /// Credentials of the sender.
    pub sender: Option<Ucred>,
    /// The name that the sender had, if any.
    pub from: Option<Name>,
}

impl Socket {
    /// Makes a socket for this endpoint.
    pub fn new(endpoint: Arc<Endpoint>) -> Arc<Self> {
        let common = Common::of(&endpoint.network);
        Arc::new(Self { endpoint, common })
    }

    /// Returns its endpoint.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Returns the options that it shares with sockets of other families.
    pub fn options(&self) -> &Common {
        &self.common
    }

    /// Repeats `attempt` until it is done, and sleeps in between ([`socket::until`]).
    pub fn until<T>(
        &self,
        which: Buffer,
        nonblocking: bool,
        attempt: impl FnMut() -> Result<Attempt<T>>,
    ) -> Result<T> {
        let queue = match which {
            Buffer::Receive => &self.endpoint.readers,
            Buffer::Send => &self.endpoint.writers,
        };
        socket::until(&self.common, which, nonblocking, queue, attempt)
    }

    /// Checks that `total` bytes may be sent with MSG_OOB: only on a stream, and at least one byte.
    pub fn check_urgent(&self, total: usize) -> Result<()> {
        match self.endpoint.kind {
            EndpointKind::Stream if total > 0 => return Ok(()),
            // As in `unix_seqpacket_sendmsg`, these errors come first.
            EndpointKind::Packet => {
                self.endpoint.take_error().map_or(Ok(()), Err)?;
                self.endpoint.peer()?;
            }
            _ => {}
        }
        Err(Errno::EOPNOTSUPP)
    }

    /// Returns the endpoint that a message is for: `to`, or the peer.
    fn receiver(&self, to: Option<Arc<Endpoint>>) -> Result<Arc<Endpoint>> {
        Ok(match to {
            Some(_) if self.endpoint.kind.connects() => {
                return Err(match self.endpoint.peer() {
                    Ok(_) => Errno::EISCONN,
                    Err(_) => Errno::EOPNOTSUPP,
                });
            }
            Some(to) if to.kind != EndpointKind::Datagram => return Err(Errno::EPROTOTYPE),
            Some(to) => to,
            None => match self.endpoint.peer()? {
                Some(peer) => peer,
                None if self.endpoint.kind == EndpointKind::Datagram => {
                    return Err(Errno::ECONNREFUSED);
                }
                None => return Err(Errno::EPIPE),
            },
        })
    }

    /// Sends, as send(2) and its relatives. Returns the number of bytes sent. On EPIPE the caller
    /// raises SIGPIPE.
    pub fn send(&self, input: &mut Input<'_>, outgoing: Outgoing) -> Result<usize> {
        self.endpoint.check_send()?;
        let to = self.receiver(outgoing.to)?;
        let total = input.remaining();
        let stream = self.endpoint.kind == EndpointKind::Stream;
        let buffer = self.endpoint.account.send_size();
        if !stream && total > buffer - 32 {
            return Err(Errno::EMSGSIZE);
        }
        if stream && total == 0 {
            return Ok(0);
        }
        let mut descriptors = {
            let (user, most) = outgoing.flight;
            Descriptors::send(outgoing.descriptors, user, most)?
        };
        let mut sent = 0;
        loop {
            // Out-of-band data is a message of its own after the rest (`queue_oob`).
            let urgent = outgoing.urgent && sent + 1 == total;
            let length = if !stream {
                total
            } else if urgent {
                1
            } else {
                // At most half the buffer: with a small buffer, a piece should not wait until all
                // of it is free.
                let pressed = self.endpoint.account.is_pressed();
                let most = if pressed { account::LEAST } else { STREAM_PIECE };
                let piece = most.min(buffer / 2 - 64);
                (total - usize::from(outgoing.urgent) - sent).min(piece)
            };
            let mut bytes = Vec::new();
            growth::relieved(|| bytes.make_room_exact(length)).map_err(|_| Errno::ENOBUFS)?;
            bytes.resize(length, 0);
            let got = match fill(input, &mut bytes) {
                Ok(()) => length,
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            };
            let mut message = Some(Message {
                bytes,
                taken: 0,
                was_seen: false,
                urgent,
                descriptors: core::mem::take(&mut descriptors),
                sender: outgoing.sender,
                from: self.endpoint.name(),
                origin: Arc::<Endpoint>::downgrade(&self.endpoint),
                charge: None,
            });
            let attempt = || to.deliver(&self.endpoint, &mut message);
            match self.until(Buffer::Send, outgoing.nonblocking, attempt) {
                Ok(()) => sent += got,
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            }
            if sent >= total {
                return Ok(sent);
            }
        }
    }

    /// Receives, as recv(2) and its relatives.
    pub fn receive(&self, out: &mut Output<'_>, how: u32, nonblocking: bool) -> Result<Incoming> {
        match (self.endpoint.kind, how & flags::OOB != 0) {
            (EndpointKind::Stream, false) => self.receive_stream(out, how, nonblocking),
            (EndpointKind::Stream, true) => self.receive_urgent(out, how),
            (_, false) => self.receive_message(out, how, nonblocking),
            (EndpointKind::Packet, true) => {
                Err(self.endpoint.peer().err().unwrap_or(Errno::EOPNOTSUPP))
            }
            (EndpointKind::Datagram, true) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Receives the byte of out-of-band data; never waits. As on Linux, the byte is lost if it
    /// cannot be stored, and it counts as received if the buffer is empty.
    fn receive_urgent(&self, out: &mut Output<'_>, how: u32) -> Result<Incoming> {
        if self.common.has(Switches::URGENT_INLINE) {
            return Err(Errno::EINVAL);
        }
        let byte = self.endpoint.receive_urgent(how & flags::PEEK != 0)?;
        if out.remaining() > 0 && out.put(&[byte])? == 0 {
            return Err(Errno::EFAULT);
        }
        Ok(Incoming { count: 1, full: 1, urgent: true, ..Incoming::default() })
    }

    /// Receives one datagram or packet; the part that does not fit is lost (MSG_TRUNC).
    fn receive_message(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<Incoming> {
        let peek = how & flags::PEEK != 0;
        let room = out.remaining();
        let offset = self.common.passed_over(peek);
        let look = || {
            self.endpoint.receive(|queue, _| {
                if peek {
                    let length = |message: &Message| (message.bytes.len(), message.was_seen);
                    let (at, passed) = socket::message_at(queue, offset, length)?;
                    let message = queue.get_mut(at)?;
                    message.was_seen = message.bytes.is_empty();
                    let rest = &message.bytes[passed..];
                    let bytes = growth::copy(&rest[..rest.len().min(room)]);
                    let files = Carried::Seen(message.descriptors.peek());
                    Some((bytes, rest.len(), files, message.sender, message.from.clone()))
                } else {
                    let mut message = queue.pop_front()?;
                    let files = Carried::Taken(core::mem::take(&mut message.descriptors));
                    let full = message.bytes.len();
                    let bytes = core::mem::take(&mut message.bytes);
                    Some((Ok(bytes), full, files, message.sender, message.from.take()))
                }
            })
        };
        let Some((bytes, full, carried, sender, from)) =
            self.until(Buffer::Receive, nonblocking, look)?
        else {
            return Ok(Incoming::default());
        };
        let descriptors = carried.arrived();
        let count = full.min(room);
        let bytes = bytes?;
        let bytes = bytes.get(..count).unwrap_or(&bytes);
        if out.put(bytes)? < bytes.len() {
            return Err(Errno::EFAULT);
        }
        self.common.note_read(if peek { count } else { full }, peek);
        Ok(Incoming {
            count,
            full,
            truncated: full > count,
            urgent: false,
            descriptors,
            sender: Some(sender),
            from,
        })
    }
}

/// Descriptors of a message that was received; taken out of flight after the queue's lock is
/// released.
pub(super) enum Carried {
    Taken(Descriptors),
    /// MSG_PEEK.
    Seen(Vec<Arc<OpenFile>>),
}

impl Carried {
    pub(super) fn arrived(self) -> Vec<Arc<OpenFile>> {
        match self {
            Carried::Taken(mut descriptors) => descriptors.take(),
            Carried::Seen(files) => files,
        }
    }
}

/// Reads exactly `bytes.len()` bytes from the sending program.
fn fill(input: &mut Input<'_>, bytes: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let count = input.take(&mut bytes[done..])?;
        if count == 0 {
            return Err(Errno::EFAULT);
        }
        done += count;
    }
    Ok(())
}

impl FileOps for Socket {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    fn read(&self, file: &OpenFile, _offset: u64, out: &mut Output<'_>) -> Result<usize> {
        if out.remaining() == 0 && self.endpoint.kind == EndpointKind::Stream {
            return Ok(0);
        }
        Ok(self.receive(out, 0, file.nonblocking())?.count)
    }

    fn write(&self, file: &OpenFile, _offset: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        let outgoing = Outgoing {
            to: None,
            descriptors: Vec::new(),
            flight: (0, 0),
            sender: caller::identity(),
            nonblocking: file.nonblocking(),
            urgent: false,
        };
        self.send(input, outgoing)
    }

    fn poll(&self, _file: &OpenFile, registrar: &mut Registrar<'_>) -> Events {
        registrar.register(&self.endpoint.readers);
        registrar.register(&self.endpoint.writers);
        self.endpoint.events()
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        let number = match command {
            FIONREAD if self.endpoint.listens() => return Err(Errno::EINVAL),
            FIONREAD => self.endpoint.unread(),
            TIOCOUTQ => self.endpoint.account.in_flight(),
            SIOCATMARK if self.endpoint.kind != EndpointKind::Stream => {
                return Err(Errno::EOPNOTSUPP);
            }
            SIOCATMARK => usize::from(self.endpoint.is_at_mark()),
            _ => {
                return socket_family::interface_request(
                    self.common.network(),
                    command,
                    arg as usize,
                );
            }
        };
        let number = number.min(i32::MAX as usize) as i32;
        UserPtr::<i32>::new(arg as usize).write(&number)?;
        Ok(0)
    }

    fn signals(&self, _file: &OpenFile) -> Option<(&Signals, Interest)> {
        Some((&self.endpoint.signals, Interest::BOTH))
    }

    fn owned(&self, file: &OpenFile) {
        self.endpoint.set_file_owner(file.owner());
    }

    fn as_socket(&self) -> Option<&dyn SocketOps> {
        Some(self)
    }

    fn release(&self, _file: &OpenFile) {
        self.endpoint.release();
    }
}
