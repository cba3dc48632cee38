//! Reading a stream: takes pieces of its messages, one after the other.
//!
//! A read continues over messages until it has enough bytes. It stops after a message that carried
//! descriptors, before a message of another sender if the reader asked for credentials, and at
//! out-of-band data and its mark ([`urgent`]). The name that it tells is that of the first
//! message's sender (`unix_stream_read_generic`).
//!
//! Locks: a piece is taken under the endpoint's lock; after the lock is released, its bytes are
//! copied to the program and its descriptors are taken out of flight.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use hayate_abi::Result;
use hayate_abi::socket::Ucred;

use super::address::Name;
use super::message::Message;
use super::socket::{Carried, Incoming, STREAM_PIECE, Socket};
use super::urgent;
use super::urgent::{Next, Reader};
use crate::reclaim::growth;
use crate::vfs::socket::flags;
use crate::vfs::socket_options::{Buffer, Switches};
use crate::vfs::transfer::Output;

/// A piece taken from a stream's queue.
struct Piece {
    bytes: Vec<u8>,
    carried: Carried,
    sender: Ucred,
    from: Option<Name>,
}

/// The piece that one step of a read takes from the queue.
#[derive(Clone, Copy)]
struct Wish {
    /// The most bytes to take.
    room: usize,
    /// MSG_PEEK: the number of bytes already seen, which are skipped.
    peek: Option<usize>,
    /// Only take messages of this sender.
    sender: Option<Ucred>,
    /// The read has enough already.
    is_satisfied: bool,
    reader: Reader,
}

impl Wish {
    /// Returns the result when no message is there: the end of the read if it has enough already.
    /// Then a pending error is left to the next read.
    fn nothing(&self) -> Option<Option<Piece>> {
        self.is_satisfied.then_some(None)
    }

    fn refuses(&self, message: &Message) -> bool {
        self.sender.is_some_and(|sender| sender != message.sender)
    }
}

impl Socket {
    /// Receives bytes of a stream.
    pub(super) fn receive_stream(
        &self,
        out: &mut Output<'_>,
        how: u32,
        nonblocking: bool,
    ) -> Result<Incoming> {
        let peek = how & flags::PEEK != 0;
        let start = self.options().passed_over(peek).unwrap_or(0);
        let target = self.options().target(out.remaining(), how & flags::WAITALL != 0);
        let mut incoming = Incoming::default();
        while out.remaining() > 0 {
            let has_some = incoming.count > 0;
            let wish = Wish {
                room: out.remaining().min(STREAM_PIECE),
                peek: peek.then_some(start + incoming.count),
                sender: incoming.sender.filter(|_| self.options().has(Switches::PASS_CREDENTIALS)),
                is_satisfied: has_some && (peek || incoming.count >= target),
                reader: Reader { has_some, inline: self.options().has(Switches::URGENT_INLINE) },
            };
            let look = || self.endpoint().receive(|queue, unread| take(queue, wish, unread));
            let piece = match self.until(Buffer::Receive, nonblocking, look) {
                Ok(piece) => piece,
                Err(_) if has_some => break,
                Err(error) => return Err(error),
            };
            let Some(Some(piece)) = piece else { break };
            let put = match out.put(&piece.bytes) {
                Ok(put) => put,
                Err(_) if has_some => break,
                Err(error) => return Err(error),
            };
            incoming.count += put;
            self.options().note_read(put, peek);
            if !has_some {
                incoming.from = piece.from;
            }
            incoming.sender = Some(piece.sender);
            let descriptors = piece.carried.arrived();
            let carried = !descriptors.is_empty();
            incoming.descriptors.extend(descriptors);
            if carried || put < piece.bytes.len() {
                break;
            }
        }
        incoming.full = incoming.count;
        Ok(incoming)
    }
}

/// Copies the first bytes of a stream's message, up to `most`; only a page of them if there is no
/// memory for more.
fn beginning(bytes: &[u8], most: usize) -> Vec<u8> {
    const LEAST: usize = 4096;
    let wanted = bytes.get(..most).unwrap_or(bytes);
    growth::copy(wanted).unwrap_or_else(|_| wanted.get(..LEAST).unwrap_or(wanted).to_vec())
}

/// Takes or looks at a piece of one message. `None` as if the queue were empty, `Some(None)` if the
/// read ends here.
fn take(
    queue: &mut VecDeque<Message>,
    wish: Wish,
    unread: &mut VecDeque<Message>,
) -> Option<Option<Piece>> {
    if let Some(seen) = wish.peek {
        return look(queue, wish, seen);
    }
    match urgent::next(queue, wish.reader, unread) {
        Next::Message(_) => {}
        Next::Stop => return Some(None),
        Next::Nothing => return wish.nothing(),
    }
    let message = queue.front_mut()?;
    if wish.refuses(message) {
        return Some(None);
    }
    let sender = message.sender;
    let carried = Carried::Taken(core::mem::take(&mut message.descriptors));
    let count = message.rest().len().min(wish.room);
    if count == message.bytes.len() {
        let Message { bytes, from, .. } = queue.pop_front()?;
        return Some(Some(Piece { bytes, carried, sender, from }));
    }
    let from = message.from.clone();
    let bytes = beginning(message.rest(), count);
    message.taken += bytes.len();
    if message.rest().is_empty() {
        queue.pop_front();
    }
    Some(Some(Piece { bytes, carried, sender, from }))
}

/// Looks at the piece that a read would get after `seen` bytes.
fn look(queue: &VecDeque<Message>, wish: Wish, seen: usize) -> Option<Option<Piece>> {
    let mut skip = seen;
    let mut reader = Reader { has_some: false, ..wish.reader };
    let mut at = 0;
    loop {
        at = match urgent::peek(queue, at, reader) {
            Next::Message(at) => at,
            Next::Stop => return Some(None),
            Next::Nothing => return wish.nothing(),
        };
        let message = &queue[at];
        let rest = message.rest();
        if skip < rest.len() {
            if wish.refuses(message) {
                return Some(None);
            }
            let bytes = beginning(&rest[skip..], wish.room);
            let is_first = skip == 0 || !wish.reader.has_some;
            let files = if is_first { message.descriptors.peek() } else { Vec::new() };
            let carried = Carried::Seen(files);
            let (sender, from) = (message.sender, message.from.clone());
            return Some(Some(Piece { bytes, carried, sender, from }));
        }
        skip -= rest.len();
        reader.has_some = true;
        at += 1;
    }
}
