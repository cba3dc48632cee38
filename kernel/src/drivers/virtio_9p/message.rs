//! The memory of a request and of its reply, as the device sees it.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::frames::Frame;
use hayate_machine::virtio::{Chain, Piece};
use hayate_ninep::READ_HEADER;
use hayate_ninep::reply::Reply;
use hayate_ninep::request::Request;

use crate::reclaim::growth::Grow;

const PAGE: usize = 4096;

/// The most frames of data in one request.
pub const FRAMES: usize = 32;
/// The largest message with that much data.
pub const MESSAGE_MOST: u32 = (FRAMES * PAGE + 24) as u32;

/// The data of a request, in frames from the first byte of the first one on.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    /// None.
    None,
    /// So many bytes for the server.
    Send(&'a [Frame], usize),
    /// Room for so many bytes of the server's.
    Receive(&'a [Frame], usize),
}

/// A reply, with its memory.
pub struct Answer {
    tag: u16,
    bytes: Vec<u8>,
    written: usize,
}

impl Answer {
    /// Reads the reply to `request`; an error that the server reports is that of the call.
    pub fn read<'a>(&'a self, request: &Request<'_>) -> Result<Reply<'a>> {
        match Reply::read(request, self.tag, &self.bytes, self.written) {
            Ok(Reply::Error(number)) => {
                let error = i32::try_from(number).ok().and_then(Errno::from_number);
                // The kernel's own codes are no errors of a server.
                Err(error.filter(|error| !error.is_restart()).unwrap_or(Errno::EIO))
            }
            Ok(reply) => Ok(reply),
            Err(_) => Err(Errno::EIO),
        }
    }
}

/// The largest piece of a message that is surely contiguous.
const CONTIGUOUS: usize = 2048;

/// Makes the memory of a request and of its reply. `ENOMEM`; `ENAMETOOLONG` if it does not fit into
/// a message.
pub fn chain(request: &Request<'_>, tag: u16, data: Data<'_>) -> Result<Chain> {
    let length = request.length().ok_or(Errno::ENAMETOOLONG)?;
    let mut bytes = Vec::new();
    bytes.make_room_exact(length)?;
    request.write(tag, &mut bytes);
    let mut chain = Chain::default();
    let frames = match data {
        Data::None => 0,
        Data::Send(frames, _) | Data::Receive(frames, _) => frames.len(),
    };
    let mut good = chain.make_room(length.div_ceil(CONTIGUOUS) + frames + 1);
    while bytes.len() > CONTIGUOUS {
        let mut first = Vec::new();
        first.make_room_exact(CONTIGUOUS)?;
        first.extend(bytes.drain(..CONTIGUOUS));
        good &= chain.reads(Piece::list(first));
    }
    good &= chain.reads(Piece::list(bytes));
    let pieces = |frames: &[Frame], mut left: usize, add: &mut dyn FnMut(Piece) -> bool| {
        frames.iter().all(|frame| {
            let length = left.min(PAGE);
            left -= length;
            length == 0 || add(Piece::Frame { frame: frame.clone(), offset: 0, length })
        })
    };
    if let Data::Send(frames, length) = data {
        good &= pieces(frames, length, &mut |piece| chain.reads(piece));
    }
    let room = if matches!(data, Data::Receive(..)) { READ_HEADER } else { Reply::room(request) };
    let mut reply = Vec::new();
    reply.make_room_exact(room)?;
    reply.resize(room, 0);
    good &= chain.writes(Piece::list(reply));
    if let Data::Receive(frames, length) = data {
        good &= pieces(frames, length, &mut |piece| chain.writes(piece));
    }
    if good { Ok(chain) } else { Err(Errno::ENOMEM) }
}

/// Copies a reply out of the memory that the device had, without its data; the text of a link is
/// data that belongs to the reply.
pub fn read_back(request: &Request<'_>, tag: u16, chain: &Chain, written: usize) -> Result<Answer> {
    let mut bytes = Vec::new();
    let mut reply = chain.pieces().iter();
    // The message itself, and the data that it sends, come before.
    let sent = request.length().unwrap_or(0) + request.data() as usize;
    let mut passed = 0;
    while passed < sent {
        passed += match reply.next() {
            Some(Piece::Bytes(bytes)) => bytes.len(),
            Some(Piece::Frame { length, .. }) => *length,
            _ => return Err(Errno::EIO),
        };
    }
    let Some(Piece::Bytes(head)) = reply.next() else { return Err(Errno::EIO) };
    let length = head.len().min(written);
    let link = matches!(request, Request::ReadLink { .. });
    bytes.make_room_exact(length + if link { PAGE } else { 0 })?;
    bytes.extend_from_slice(head.get(..length).unwrap_or_default());
    if link && let Some(Piece::Frame { frame, length: room, .. }) = reply.next() {
        let more = written.saturating_sub(length).min(*room);
        bytes.resize(length + more, 0);
        frame.read(0, bytes.get_mut(length..).unwrap_or_default());
    }
    Ok(Answer { tag, bytes, written })
}
