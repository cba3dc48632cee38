//! Messages: each has a header, which says how long it is, and begins at a multiple of four bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::attribute::Attributes;
use crate::{Full, align};

/// Types of messages that every protocol has.
pub mod kind {
    #![allow(missing_docs, reason = "named as in netlink(7)")]
    pub const NOOP: u16 = 1;
    pub const ERROR: u16 = 2;
    pub const DONE: u16 = 3;
    pub const OVERRUN: u16 = 4;
    /// The first type of a protocol's own (`NLMSG_MIN_TYPE`).
    pub const FIRST_OWN: u16 = 0x10;
}

/// Flags of messages.
pub mod flag {
    #![allow(missing_docs, reason = "named as in netlink(7)")]
    pub const REQUEST: u16 = 0x1;
    pub const MULTI: u16 = 0x2;
    pub const ACK: u16 = 0x4;
    pub const ECHO: u16 = 0x8;
    pub const DUMP_INTR: u16 = 0x10;
    pub const DUMP_FILTERED: u16 = 0x20;
    /// Of a request to get: all, or those that match; each of the two means a dump.
    pub const ROOT: u16 = 0x100;
    pub const MATCH: u16 = 0x200;
    pub const DUMP: u16 = ROOT | MATCH;
    /// Of a request to make something new.
    pub const REPLACE: u16 = 0x100;
    pub const EXCL: u16 = 0x200;
    pub const CREATE: u16 = 0x400;
    pub const APPEND: u16 = 0x800;
    /// Of an acknowledgement: it has only the header of the request, or it has attributes.
    pub const CAPPED: u16 = 0x100;
    pub const ACK_TLVS: u16 = 0x200;
}

/// `struct nlmsghdr`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Header {
    /// The length of the message with this header.
    pub length: u32,
    /// Its type ([`kind`]).
    pub kind: u16,
    /// Its [`flag`]s.
    pub flags: u16,
    /// The number that an answer takes over from its request.
    pub sequence: u32,
    /// The port of the socket that asked.
    pub port: u32,
}

/// The length of a header.
pub const HEADER: usize = size_of::<Header>();

/// A request of a program.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its header.
    pub header: Header,
    /// All of it, with the header.
    pub bytes: &'a [u8],
}

impl<'a> Request<'a> {
    /// The bytes behind the header.
    pub fn body(&self) -> &'a [u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }

    /// Reads the fixed part of the body and the attributes after it. `None` if it is too short.
    pub fn parts<T: FromBytes>(&self) -> Option<(T, Attributes<'a>)> {
        let (fixed, _) = T::read_from_prefix(self.body()).ok()?;
        let rest = self.body().get(align(size_of::<T>())..).unwrap_or_default();
        Some((fixed, Attributes::new(rest)))
    }
}

/// The requests in the bytes that a program sent. Ends at the first that is not whole
/// (`netlink_rcv_skb`).
pub struct Requests<'a>(&'a [u8]);

impl<'a> Requests<'a> {
    /// Those in these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for Requests<'a> {
    type Item = Request<'a>;

    fn next(&mut self) -> Option<Request<'a>> {
        let (header, _) = Header::read_from_prefix(self.0).ok()?;
        let length = header.length as usize;
        if length < HEADER {
            return None;
        }
        let bytes = self.0.get(..length)?;
        self.0 = self.0.get(align(length)..).unwrap_or_default();
        Some(Request { header, bytes })
    }
}

/// Writes messages one after the other into a buffer.
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl<'a> Writer<'a> {
    /// Writes from the beginning of this buffer on.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, length: 0 }
    }

    /// Returns the number of bytes written so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Writes a message: its header, whose length it finds out, and the bytes that `body` writes. A
    /// message that does not fit leaves no trace.
    pub fn message(
        &mut self,
        header: Header,
        body: impl FnOnce(&mut Body<'_>) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let rest = self.buffer.get_mut(self.length..).ok_or(Full)?;
        let mut message = Body { buffer: rest, length: 0 };
        message.put(header.as_bytes())?;
        body(&mut message)?;
        let length = message.length;
        message.patch(0, &(length as u32).to_ne_bytes());
        message.pad()?;
        self.length += message.length;
        Ok(())
    }

    /// Acknowledges a request of the socket with this port: `error` is 0 or a negative errno. With
    /// an error, all of the request follows, unless `capped`; otherwise its header only.
    pub fn acknowledge(
        &mut self,
        request: &Request<'_>,
        port: u32,
        error: i32,
        capped: bool,
    ) -> Result<(), Full> {
        let whole = error != 0 && !capped;
        let shown = if whole { request.bytes } else { request.header.as_bytes() };
        let header = Header {
            kind: kind::ERROR,
            flags: if whole { 0 } else { flag::CAPPED },
            port,
            ..request.header
        };
        self.message(header, |body| {
            body.put(&error.to_ne_bytes())?;
            body.put(shown)
        })
    }

    /// Ends a dump: `error` is 0 or a negative errno.
    pub fn done(&mut self, header: Header, error: i32) -> Result<(), Full> {
        let header = Header { kind: kind::DONE, ..header };
        self.message(header, |body| body.put(&error.to_ne_bytes()))
    }
}

/// A message, or an attribute with attributes inside, that is being written.
pub struct Body<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl Body<'_> {
    /// Adds bytes as they are.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.length.checked_add(bytes.len()).ok_or(Full)?;
        self.buffer.get_mut(self.length..end).ok_or(Full)?.copy_from_slice(bytes);
        self.length = end;
        Ok(())
    }

    fn pad(&mut self) -> Result<(), Full> {
        let missing = align(self.length) - self.length;
        self.put(&[0; 3][..missing])
    }

    fn patch(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.buffer.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> Result<(), Full> {
        self.nested(kind, |inner| inner.put(value))
    }

    /// Adds an attribute that is a number.
    pub fn number(&mut self, kind: u16, value: u32) -> Result<(), Full> {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute that is a text, with its terminating zero.
    pub fn text(&mut self, kind: u16, value: &[u8]) -> Result<(), Full> {
        self.nested(kind, |inner| {
            inner.put(value)?;
            inner.put(&[0])
        })
    }

    /// Adds an attribute whose value `write` adds.
    pub fn nested(
        &mut self,
        kind: u16,
        write: impl FnOnce(&mut Self) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let start = self.length;
        self.put(&[0; 2])?;
        self.put(&kind.to_ne_bytes())?;
        write(self)?;
        let length = u16::try_from(self.length - start).map_err(|_| Full)?;
        self.patch(start, &length.to_ne_bytes());
        self.pad()
    }
}
