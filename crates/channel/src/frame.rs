//! Frames: what one side says to the other, as bytes and back.

use crate::command::Command;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Length of the payload, session, kind.
const HEADER: usize = 9;
/// The most bytes of a stream in one frame.
pub const MOST_DATA: usize = 32 << 10;
/// The most bytes of a command.
pub const MOST_COMMAND: usize = 2 << 20;
/// The most bytes of an error's text.
const MOST_TEXT: usize = 4 << 10;

/// A stream of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard input, or the keys of the terminal.
    Input,
    /// Standard output, or the screen of the terminal.
    Output,
    /// Standard error.
    Error,
}

/// One side of the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host.
    Host,
    /// The guest.
    Guest,
}

/// A message about one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// From the guest, first of all: it serves this version of the format.
    Hello(u16),
    /// From the host: start this program.
    Open(Box<Command>),
    /// Bytes of a stream, at least one and at most [`MOST_DATA`].
    Data(Stream, Vec<u8>),
    /// From the sender of a stream: its end. From the receiver: its reader has closed it.
    Close(Stream),
    /// From the receiver of a stream: so many bytes more may be sent.
    Credit(Stream, u32),
    /// From the host: send this signal to the program's process group.
    Signal(u8),
    /// From the host: the terminal has this many rows and columns now.
    Resize(u16, u16),
    /// From the host: the program's user is gone.
    Hangup,
    /// From the guest, last of a session: the program ended with this status.
    Exit(u8),
    /// From the guest, last of a session: the program was not started, for this reason; the status
    /// is that of a shell.
    Failed(u8, String),
    /// From the host: end all programs, kill those that are left after so many seconds, and end the
    /// machine.
    Shutdown(u32),
    /// From the host: end all programs, kill those that are left after so many seconds, and start
    /// no other one until [`Message::Fresh`].
    Settle(u32),
    /// From the guest: all programs have ended, as [`Message::Settle`] wanted.
    Settled,
    /// From the host, to a machine that was restored: who it is from now on (`hayate_job::Fresh`).
    /// The guest says [`Message::Hello`] when it is.
    Fresh(Vec<u8>),
}

/// A message and its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The session.
    pub session: u32,
    /// The message.
    pub message: Message,
}

/// Why bytes are not frames; the stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// No kind of message, or none that this side sends.
    Kind(u8),
    /// No message of this kind has a payload of so many bytes.
    Length(u8, u32),
    /// The payload of this kind makes no sense.
    Payload(u8),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kind(kind) => write!(f, "a message of the unknown kind {kind}"),
            Error::Length(kind, length) => {
                write!(f, "a message of kind {kind} with {length} bytes")
            }
            Error::Payload(kind) => write!(f, "a message of kind {kind} that makes no sense"),
        }
    }
}

mod kind {
    pub const HELLO: u8 = 1;
    pub const OPEN: u8 = 2;
    pub const DATA: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const CREDIT: u8 = 5;
    pub const SIGNAL: u8 = 6;
    pub const RESIZE: u8 = 7;
    pub const HANGUP: u8 = 8;
    pub const EXIT: u8 = 9;
    pub const FAILED: u8 = 10;
    pub const SHUTDOWN: u8 = 11;
    pub const SETTLE: u8 = 12;
    pub const SETTLED: u8 = 13;
    pub const FRESH: u8 = 14;
}

impl Stream {
    fn of(byte: u8) -> Option<Stream> {
        [Stream::Input, Stream::Output, Stream::Error].get(usize::from(byte)).copied()
    }

    /// Returns the side that sends the stream's bytes.
    pub fn sender(self) -> Side {
        if self == Stream::Input { Side::Host } else { Side::Guest }
    }
}

impl Frame {
    /// A frame.
    pub fn new(session: u32, message: Message) -> Frame {
        Frame { session, message }
    }

    /// Returns the frame as bytes. A text that is too long is cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + 16);
        self.encode_to(&mut out);
        out
    }

    /// Appends the frame's bytes.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.session.to_le_bytes());
        out.push(0);
        let kind = match &self.message {
            Message::Hello(version) => {
                out.extend_from_slice(&version.to_le_bytes());
                kind::HELLO
            }
            Message::Open(command) => {
                out.extend_from_slice(&command.encode());
                kind::OPEN
            }
            Message::Data(stream, bytes) => {
                out.push(*stream as u8);
                out.extend_from_slice(bytes);
                kind::DATA
            }
            Message::Close(stream) => {
                out.push(*stream as u8);
                kind::CLOSE
            }
            Message::Credit(stream, bytes) => {
                out.push(*stream as u8);
                out.extend_from_slice(&bytes.to_le_bytes());
                kind::CREDIT
            }
            Message::Signal(number) => {
                out.push(*number);
                kind::SIGNAL
            }
            Message::Resize(rows, columns) => {
                out.extend_from_slice(&rows.to_le_bytes());
                out.extend_from_slice(&columns.to_le_bytes());
                kind::RESIZE
            }
            Message::Hangup => kind::HANGUP,
            Message::Exit(status) => {
                out.push(*status);
                kind::EXIT
            }
            Message::Failed(status, text) => {
                out.push(*status);
                out.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(MOST_TEXT)]);
                kind::FAILED
            }
            Message::Shutdown(seconds) => {
                out.extend_from_slice(&seconds.to_le_bytes());
                kind::SHUTDOWN
            }
            Message::Settle(seconds) => {
                out.extend_from_slice(&seconds.to_le_bytes());
                kind::SETTLE
            }
            Message::Settled => kind::SETTLED,
            Message::Fresh(bytes) => {
                out.extend_from_slice(bytes);
                kind::FRESH
            }
        };
        let length = (out.len() - start - HEADER) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        out[start + HEADER - 1] = kind;
    }
}

/// Returns whether a side sends this kind, and the least and the most bytes of its payload.
fn limits(side: Side, kind: u8) -> Option<(usize, usize)> {
    let (sender, least, most) = match kind {
        kind::HELLO => (Some(Side::Guest), 2, 2),
        kind::OPEN => (Some(Side::Host), 0, MOST_COMMAND),
        kind::DATA => (None, 2, 1 + MOST_DATA),
        kind::CLOSE => (None, 1, 1),
        kind::CREDIT => (None, 5, 5),
        kind::SIGNAL => (Some(Side::Host), 1, 1),
        kind::RESIZE => (Some(Side::Host), 4, 4),
        kind::HANGUP => (Some(Side::Host), 0, 0),
        kind::EXIT => (Some(Side::Guest), 1, 1),
        kind::FAILED => (Some(Side::Guest), 1, 1 + MOST_TEXT),
        kind::SHUTDOWN | kind::SETTLE => (Some(Side::Host), 4, 4),
        kind::SETTLED => (Some(Side::Guest), 0, 0),
        kind::FRESH => (Some(Side::Host), 0, MOST_COMMAND),
        _ => return None,
    };
    (sender.is_none() || sender == Some(side)).then_some((least, most))
}

/// Makes frames of the bytes of one side.
pub struct Decoder {
    side: Side,
    bytes: Vec<u8>,
    /// The first byte that is not part of a frame yet.
    from: usize,
}

impl Decoder {
    /// A decoder of what this side sends.
    pub fn new(side: Side) -> Decoder {
        Decoder { side, bytes: Vec::new(), from: 0 }
    }

    /// Takes bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.from == self.bytes.len() {
            self.bytes.clear();
            self.from = 0;
        } else if self.from > MOST_DATA {
            self.bytes.drain(..self.from);
            self.from = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame, if it is complete.
    ///
    /// # Errors
    /// The bytes are not frames of this side. Nothing behind them can be read.
    pub fn frame(&mut self) -> Result<Option<Frame>, Error> {
        let rest = &self.bytes[self.from..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [a, b, c, d, e, f, g, h, kind] = *header;
        let (length, session) =
            (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let (least, most) = limits(self.side, kind).ok_or(Error::Kind(kind))?;
        if !(least..=most).contains(&(length as usize)) {
            return Err(Error::Length(kind, length));
        }
        let Some(payload) = rest.get(..length as usize) else { return Ok(None) };
        let message = message(self.side, kind, payload).ok_or(Error::Payload(kind))?;
        self.from += HEADER + payload.len();
        Ok(Some(Frame { session, message }))
    }
}

/// Reads a payload, whose length was checked. `None`: it makes no sense.
fn message(side: Side, kind: u8, payload: &[u8]) -> Option<Message> {
    let two = |at: usize| Some(u16::from_le_bytes(*payload.get(at..)?.first_chunk()?));
    let four = |at: usize| Some(u32::from_le_bytes(*payload.get(at..)?.first_chunk()?));
    let stream = || Stream::of(*payload.first()?);
    Some(match kind {
        kind::HELLO => Message::Hello(two(0)?),
        kind::OPEN => Message::Open(Box::new(Command::decode(payload).ok()?)),
        kind::DATA => {
            let stream = stream().filter(|stream| stream.sender() == side)?;
            Message::Data(stream, payload.get(1..)?.to_vec())
        }
        kind::CLOSE => Message::Close(stream()?),
        kind::CREDIT => {
            let stream = stream().filter(|stream| stream.sender() != side)?;
            Message::Credit(stream, four(1)?)
        }
        kind::SIGNAL => Message::Signal(*payload.first()?),
        kind::RESIZE => Message::Resize(two(0)?, two(2)?),
        kind::HANGUP => Message::Hangup,
        kind::EXIT => Message::Exit(*payload.first()?),
        kind::FAILED => {
            let (status, text) = payload.split_first()?;
            Message::Failed(*status, String::from_utf8_lossy(text).to_string())
        }
        kind::SHUTDOWN => Message::Shutdown(four(0)?),
        kind::SETTLE => Message::Settle(four(0)?),
        kind::SETTLED => Message::Settled,
        kind::FRESH => Message::Fresh(payload.to_vec()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn host_message() -> impl Strategy<Value = Message> {
        let argument = prop::collection::vec(1_u8.., 0..20);
        prop_oneof![
            prop::collection::vec(argument, 0..4).prop_map(|arguments| {
                Message::Open(Box::new(Command { arguments, ..Command::default() }))
            }),
            prop::collection::vec(any::<u8>(), 1..3000)
                .prop_map(|bytes| Message::Data(Stream::Input, bytes)),
            Just(Message::Close(Stream::Output)),
            any::<u32>().prop_map(|bytes| Message::Credit(Stream::Error, bytes)),
            any::<u8>().prop_map(Message::Signal),
            any::<(u16, u16)>().prop_map(|(rows, columns)| Message::Resize(rows, columns)),
            Just(Message::Hangup),
            any::<u32>().prop_map(Message::Shutdown),
            any::<u32>().prop_map(Message::Settle),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Message::Fresh),
        ]
    }

    fn guest_message() -> impl Strategy<Value = Message> {
        prop_oneof![
            any::<u16>().prop_map(Message::Hello),
            prop::collection::vec(any::<u8>(), 1..3000)
                .prop_map(|bytes| Message::Data(Stream::Output, bytes)),
            Just(Message::Close(Stream::Error)),
            any::<u32>().prop_map(|bytes| Message::Credit(Stream::Input, bytes)),
            any::<u8>().prop_map(Message::Exit),
            (any::<u8>(), ".{0,40}").prop_map(|(status, text)| Message::Failed(status, text)),
            Just(Message::Settled),
        ]
    }

    /// Frames, pushed in pieces of these lengths, come out as they went in.
    fn pass(side: Side, messages: Vec<(u32, Message)>, pieces: &[usize]) {
        let frames: Vec<Frame> =
            messages.into_iter().map(|(session, message)| Frame { session, message }).collect();
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode_to(&mut bytes));
        let (mut decoder, mut found, mut rest) = (Decoder::new(side), Vec::new(), &bytes[..]);
        let mut pieces = pieces.iter().cycle();
        while !rest.is_empty() {
            let (piece, later) = rest.split_at((*pieces.next().unwrap()).min(rest.len()));
            decoder.push(piece);
            rest = later;
            while let Some(frame) = decoder.frame().unwrap() {
                found.push(frame);
            }
        }
        assert_eq!(found, frames);
    }

    proptest! {
        #[test]
        fn frames_of_the_host_pass(
            messages in prop::collection::vec((any::<u32>(), host_message()), 0..30),
            pieces in prop::collection::vec(1_usize..5000, 1..5),
        ) {
            pass(Side::Host, messages, &pieces);
        }

        #[test]
        fn frames_of_the_guest_pass(
            messages in prop::collection::vec((any::<u32>(), guest_message()), 0..30),
            pieces in prop::collection::vec(1_usize..5000, 1..5),
        ) {
            pass(Side::Guest, messages, &pieces);
        }
    }

    #[test]
    fn the_largest_frames_pass() {
        let argument = vec![b'x'; MOST_COMMAND - "argument=\0".len()];
        let command = Command { arguments: vec![argument], ..Command::default() };
        pass(Side::Host, vec![(7, Message::Open(Box::new(command)))], &[10_000]);
        let data = Message::Data(Stream::Error, vec![1; MOST_DATA]);
        pass(Side::Guest, vec![(u32::MAX, data.clone()), (0, data)], &[40_000]);
    }

    #[test]
    fn a_side_sends_its_own_kinds_only() {
        let refused = |side, message: Message| {
            let mut decoder = Decoder::new(side);
            decoder.push(&Frame::new(1, message).encode());
            decoder.frame().unwrap_err()
        };
        refused(Side::Guest, Message::Shutdown(1));
        refused(Side::Guest, Message::Settle(1));
        refused(Side::Guest, Message::Fresh(vec![1]));
        refused(Side::Host, Message::Settled);
        refused(Side::Guest, Message::Data(Stream::Input, vec![1]));
        refused(Side::Guest, Message::Credit(Stream::Output, 1));
        refused(Side::Host, Message::Exit(0));
        refused(Side::Host, Message::Data(Stream::Output, vec![1]));
        // A frame without bytes would cost the receiver something, and its sender no credit.
        refused(Side::Guest, Message::Data(Stream::Output, vec![]));
    }

    #[test]
    fn a_length_is_not_believed() {
        let mut decoder = Decoder::new(Side::Guest);
        decoder.push(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, kind::DATA]);
        assert_eq!(decoder.frame(), Err(Error::Length(kind::DATA, u32::MAX)));
    }

    #[test]
    fn a_long_text_is_cut() {
        let text: String = "é".repeat(MOST_TEXT);
        let mut decoder = Decoder::new(Side::Guest);
        decoder.push(&Frame::new(1, Message::Failed(127, text.clone())).encode());
        let Ok(Some(Frame { message: Message::Failed(127, cut), .. })) = decoder.frame() else {
            panic!("refused");
        };
        assert!(cut.len() == MOST_TEXT && text.starts_with(&cut));
    }
}
