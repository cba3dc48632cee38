//! The messages of 9P2000.L, by which a client works on the files of a server.
//!
//! | file | contents |
//! |---|---|
//! | [`request`] | what a client asks: written |
//! | [`reply`] | what a server answers: read |
//! | [`directory`] | the entries of a directory in the data of a reply |
//!
//! A message is its size, a type, a tag and the fields of its type, all little-endian and without
//! padding; a text is its length in two bytes and its bytes. A client names files by numbers of its
//! own (*fids*), and finds the reply to a request by its tag.
//!
//! Sources: the description of 9P2000.L that comes with diod (`protocol.md`), the manual of Plan 9
//! (section 5) for the messages that it takes over, and `include/net/9p/9p.h` and
//! `net/9p/protocol.c` of Linux 6.1 for numbers and order of fields.
//!
//! A reply is an allegation. Whatever its lengths say, reading ends inside the bytes that came, a
//! count is never more than the client asked for, and a name is one that a directory can have.
//! Requests are written into a list that the caller has made large enough, so nothing here
//! allocates.
//!
//! Road not taken: crates for 9P (`rs9p`, `p9`). They are servers, or need the standard library and
//! own every text of a message.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod directory;
pub mod reply;
pub mod request;

/// The dialect, as client and server name it to each other.
pub const VERSION: &[u8] = b"9P2000.L";
/// The tag of the first message, which has none.
pub const NO_TAG: u16 = u16::MAX;
/// The fid that is none.
pub const NO_FID: u32 = u32::MAX;
/// Bytes of size, type and tag.
pub const HEADER: usize = 7;
/// Bytes before the data of a request to write.
pub const WRITE_HEADER: usize = 23;
/// Bytes before the data of the reply to a request to read, and all bytes of a reply that says that
/// a request failed.
pub const READ_HEADER: usize = 11;
/// The longest name of a file.
pub const NAME_MOST: usize = 255;

/// The types of requests; the reply's is one more.
#[allow(missing_docs, reason = "the names are those of include/net/9p/9p.h")]
pub mod kind {
    pub const LERROR: u8 = 6;
    pub const STATFS: u8 = 8;
    pub const LOPEN: u8 = 12;
    pub const LCREATE: u8 = 14;
    pub const SYMLINK: u8 = 16;
    pub const MKNOD: u8 = 18;
    pub const READLINK: u8 = 22;
    pub const GETATTR: u8 = 24;
    pub const SETATTR: u8 = 26;
    pub const READDIR: u8 = 40;
    pub const FSYNC: u8 = 50;
    pub const LINK: u8 = 70;
    pub const MKDIR: u8 = 72;
    pub const RENAMEAT: u8 = 74;
    pub const UNLINKAT: u8 = 76;
    pub const VERSION: u8 = 100;
    pub const ATTACH: u8 = 104;
    pub const FLUSH: u8 = 108;
    pub const WALK: u8 = 110;
    pub const READ: u8 = 116;
    pub const WRITE: u8 = 118;
    pub const CLUNK: u8 = 120;
}

/// What a server says that a file is: the same for all names of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Qid {
    /// Bits of [`qid`].
    pub kind: u8,
    /// Changes with the content.
    pub version: u32,
    /// The number of the file.
    pub path: u64,
}

/// Bits of [`Qid::kind`]: a directory, a symbolic link.
#[allow(missing_docs)]
pub mod qid {
    pub const DIRECTORY: u8 = 0x80;
    pub const SYMLINK: u8 = 0x02;
}

/// A message that is not one, or not the reply to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Bytes of a message that are read from the beginning to the end.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (now, later) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = later;
        Ok(now)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (now, later) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = later;
        Ok(*now)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u16()?;
        self.bytes(length.into())
    }

    pub fn qid(&mut self) -> Result<Qid, Malformed> {
        Ok(Qid { kind: self.u8()?, version: self.u32()?, path: self.u64()? })
    }
}
