//! Replies: what a server answers. None is believed before it was checked.

use crate::request::Request;
use crate::{HEADER, Malformed, Qid, READ_HEADER, Reader, kind};

/// The attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The file.
    pub qid: Qid,
    /// Kind and permissions (`st_mode`).
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The number of names.
    pub links: u64,
    /// The device that a node stands for, encoded as the host's `st_rdev`.
    pub device: u64,
    /// The size in bytes.
    pub size: u64,
    /// The preferred size of a transfer.
    pub block_size: u64,
    /// Storage, in units of 512 bytes.
    pub blocks: u64,
    /// Last access: seconds and nanoseconds.
    pub accessed: (u64, u64),
    /// Last change of content.
    pub modified: (u64, u64),
    /// Last change of content or attributes.
    pub changed: (u64, u64),
}

/// The numbers of a file system (`statfs(2)`).
#[allow(missing_docs, reason = "the fields are those of statfs(2)")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    pub kind: u32,
    pub block_size: u32,
    pub blocks: u64,
    pub free: u64,
    pub available: u64,
    pub files: u64,
    pub files_free: u64,
    pub id: u64,
    pub name_length: u32,
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The request failed, with this number of `errno(3)`; it may be any number.
    Error(u32),
    /// The largest message, and the dialect.
    Version {
        /// In bytes.
        most: u32,
        /// The dialect.
        version: &'a [u8],
    },
    /// A file that was attached, made or walked to. A walk without a name says nothing of it.
    File(Option<Qid>),
    /// A file that was opened, and the most that one request should transfer; 0: as much as a
    /// message holds.
    Opened(Qid, u32),
    /// Bytes of data: the first of them follow the header.
    Data(u32),
    /// So many bytes were written.
    Written(u32),
    /// Attributes.
    Attributes(Attributes),
    /// The text of a symbolic link.
    Link(&'a [u8]),
    /// Numbers of the file system.
    StatFs(StatFs),
    /// The request was carried out.
    Done,
}

impl<'a> Reply<'a> {
    /// Reads the reply to a request that had this tag. `bytes` are its first bytes, all of them but
    /// for data; `written` is how many the device wrote in all.
    pub fn read(
        request: &Request<'_>,
        tag: u16,
        bytes: &'a [u8],
        written: usize,
    ) -> Result<Reply<'a>, Malformed> {
        let mut head = Reader(bytes);
        let size = head.u32()? as usize;
        let (type_of, its_tag) = (head.u8()?, head.u16()?);
        if size < HEADER || size > written || its_tag != tag {
            return Err(Malformed);
        }
        let mut fields = Reader(bytes.get(HEADER..size.min(bytes.len())).ok_or(Malformed)?);
        if type_of == kind::LERROR + 1 {
            return fields.u32().map(Reply::Error);
        }
        if type_of != request.kind() + 1 {
            return Err(Malformed);
        }
        Reply::of(request, &mut fields, size)
    }

    /// Reads the fields of a reply that is none of failure; `size` is that of the whole message.
    fn of(
        request: &Request<'_>,
        fields: &mut Reader<'a>,
        size: usize,
    ) -> Result<Reply<'a>, Malformed> {
        Ok(match *request {
            Request::Version { .. } => {
                Reply::Version { most: fields.u32()?, version: fields.text()? }
            }
            Request::Attach { .. }
            | Request::Symlink { .. }
            | Request::MakeNode { .. }
            | Request::MakeDirectory { .. } => Reply::File(Some(fields.qid()?)),
            Request::Walk { name, .. } => {
                let count = fields.u16()?;
                if count != u16::from(name.is_some()) {
                    return Err(Malformed);
                }
                Reply::File(name.map(|_| fields.qid()).transpose()?)
            }
            Request::Open { .. } | Request::Create { .. } => {
                Reply::Opened(fields.qid()?, fields.u32()?)
            }
            Request::Read { count: most, .. } | Request::ReadDirectory { count: most, .. } => {
                let count = fields.u32()?;
                if count > most || count as usize > size.saturating_sub(READ_HEADER) {
                    return Err(Malformed);
                }
                Reply::Data(count)
            }
            Request::Write { count: most, .. } => {
                let count = fields.u32()?;
                if count > most {
                    return Err(Malformed);
                }
                Reply::Written(count)
            }
            Request::GetAttributes { .. } => Reply::Attributes(attributes(fields)?),
            Request::ReadLink { .. } => {
                let target = fields.text()?;
                if target.is_empty() || target.contains(&0) {
                    return Err(Malformed);
                }
                Reply::Link(target)
            }
            Request::StatFs { .. } => Reply::StatFs(numbers(fields)?),
            Request::Flush { .. }
            | Request::Clunk { .. }
            | Request::SetAttributes { .. }
            | Request::Link { .. }
            | Request::Rename { .. }
            | Request::Unlink { .. }
            | Request::Sync { .. } => Reply::Done,
        })
    }

    /// Returns the number of bytes that the longest reply to a request has, without data.
    pub fn room(request: &Request<'_>) -> usize {
        let fields = match request {
            Request::Version { .. } => 4 + 2 + 64,
            Request::Open { .. } | Request::Create { .. } => 17,
            Request::Walk { .. } => 2 + 13,
            Request::GetAttributes { .. } => 153,
            Request::StatFs { .. } => 60,
            // A path: PATH_MAX.
            Request::ReadLink { .. } => 2 + 4096,
            _ => 13,
        };
        (HEADER + fields).max(READ_HEADER)
    }
}

fn time(fields: &mut Reader<'_>) -> Result<(u64, u64), Malformed> {
    let (seconds, nanoseconds) = (fields.u64()?, fields.u64()?);
    if nanoseconds < 1_000_000_000 { Ok((seconds, nanoseconds)) } else { Err(Malformed) }
}

/// Reads attributes. Those of a file's birth, generation and version of data follow; no server of
/// today fills them all in.
fn attributes(fields: &mut Reader<'_>) -> Result<Attributes, Malformed> {
    let _valid = fields.u64()?;
    Ok(Attributes {
        qid: fields.qid()?,
        mode: fields.u32()?,
        uid: fields.u32()?,
        gid: fields.u32()?,
        links: fields.u64()?,
        device: fields.u64()?,
        size: fields.u64()?,
        block_size: fields.u64()?,
        blocks: fields.u64()?,
        accessed: time(fields)?,
        modified: time(fields)?,
        changed: time(fields)?,
    })
}

fn numbers(fields: &mut Reader<'_>) -> Result<StatFs, Malformed> {
    Ok(StatFs {
        kind: fields.u32()?,
        block_size: fields.u32()?,
        blocks: fields.u64()?,
        free: fields.u64()?,
        available: fields.u64()?,
        files: fields.u64()?,
        files_free: fields.u64()?,
        id: fields.u64()?,
        name_length: fields.u32()?,
    })
}
