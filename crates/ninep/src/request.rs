//! Requests: what a client asks of a server.

use alloc::vec::Vec;

use crate::{HEADER, NO_FID, kind};

/// The bits of [`Request::GetAttributes`] for all that `stat(2)` tells (`P9_STATS_BASIC`).
pub const BASIC: u64 = 0x7ff;

/// Flags of [`Request::Unlink`]: the name is one of a directory (`AT_REMOVEDIR`).
pub const REMOVE_DIRECTORY: u32 = 0x200;

/// A change of a file's attributes: those that are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The size.
    pub size: Option<u64>,
    /// Last access: seconds and nanoseconds.
    pub accessed: Option<(u64, u64)>,
    /// Last change of content.
    pub modified: Option<(u64, u64)>,
}

/// Bits of the fields that a change names (`P9_ATTR_*`, fs/9p/vfs_inode_dotl.c).
mod valid {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const CTIME: u32 = 1 << 6;
    pub const ATIME_SET: u32 = 1 << 7;
    pub const MTIME_SET: u32 = 1 << 8;
}

/// A request.
#[allow(missing_docs, reason = "the fields are those of the calls of the same names")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first one: the largest message, and the dialect.
    Version {
        most: u32,
        version: &'a [u8],
    },
    /// The request with this tag is not wanted any more.
    Flush {
        tag: u16,
    },
    /// `fid` becomes the root of the tree `name`, for a user.
    Attach {
        fid: u32,
        uid: u32,
        name: &'a [u8],
    },
    /// `new_fid` becomes the file `name` in `fid`, or `fid` itself.
    Walk {
        fid: u32,
        new_fid: u32,
        name: Option<&'a [u8]>,
    },
    Open {
        fid: u32,
        flags: u32,
    },
    /// Makes a file in the directory `fid`, which becomes the new file, opened.
    Create {
        fid: u32,
        name: &'a [u8],
        flags: u32,
        mode: u32,
        gid: u32,
    },
    Read {
        fid: u32,
        offset: u64,
        count: u32,
    },
    /// The data follows the message.
    Write {
        fid: u32,
        offset: u64,
        count: u32,
    },
    ReadDirectory {
        fid: u32,
        offset: u64,
        count: u32,
    },
    /// The fid is not used any more.
    Clunk {
        fid: u32,
    },
    GetAttributes {
        fid: u32,
        mask: u64,
    },
    SetAttributes {
        fid: u32,
        change: Change,
    },
    ReadLink {
        fid: u32,
    },
    Symlink {
        fid: u32,
        name: &'a [u8],
        target: &'a [u8],
        gid: u32,
    },
    MakeNode {
        fid: u32,
        name: &'a [u8],
        mode: u32,
        device: (u32, u32),
        gid: u32,
    },
    MakeDirectory {
        fid: u32,
        name: &'a [u8],
        mode: u32,
        gid: u32,
    },
    Link {
        directory: u32,
        fid: u32,
        name: &'a [u8],
    },
    Rename {
        from: u32,
        name: &'a [u8],
        to: u32,
        new_name: &'a [u8],
    },
    Unlink {
        fid: u32,
        name: &'a [u8],
        flags: u32,
    },
    Sync {
        fid: u32,
        data_only: bool,
    },
    StatFs {
        fid: u32,
    },
}

/// The list that a message is written to; nothing is written beyond its room.
struct Writer<'l>(&'l mut Vec<u8>);

impl Writer<'_> {
    fn put(self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u16(self, value: u16) -> Self {
        self.put(&value.to_le_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.put(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.put(&value.to_le_bytes())
    }

    fn text(self, text: &[u8]) -> Self {
        self.u16(text.len() as u16).put(text)
    }

    fn change(self, change: &Change) -> Self {
        let bit = |is: bool, bit: u32| if is { bit } else { 0 };
        let bits = bit(change.mode.is_some(), valid::MODE)
            | bit(change.uid.is_some(), valid::UID)
            | bit(change.gid.is_some(), valid::GID)
            | bit(change.size.is_some(), valid::SIZE)
            | bit(change.accessed.is_some(), valid::ATIME | valid::ATIME_SET)
            | bit(change.modified.is_some(), valid::MTIME | valid::MTIME_SET)
            | valid::CTIME;
        let (accessed, modified) =
            (change.accessed.unwrap_or_default(), change.modified.unwrap_or_default());
        self.u32(bits)
            .u32(change.mode.unwrap_or(0))
            .u32(change.uid.unwrap_or(0))
            .u32(change.gid.unwrap_or(0))
            .u64(change.size.unwrap_or(0))
            .u64(accessed.0)
            .u64(accessed.1)
            .u64(modified.0)
            .u64(modified.1)
    }
}

impl Request<'_> {
    /// Returns its type; the reply's is one more.
    pub fn kind(&self) -> u8 {
        match self {
            Request::Version { .. } => kind::VERSION,
            Request::Flush { .. } => kind::FLUSH,
            Request::Attach { .. } => kind::ATTACH,
            Request::Walk { .. } => kind::WALK,
            Request::Open { .. } => kind::LOPEN,
            Request::Create { .. } => kind::LCREATE,
            Request::Read { .. } => kind::READ,
            Request::Write { .. } => kind::WRITE,
            Request::ReadDirectory { .. } => kind::READDIR,
            Request::Clunk { .. } => kind::CLUNK,
            Request::GetAttributes { .. } => kind::GETATTR,
            Request::SetAttributes { .. } => kind::SETATTR,
            Request::ReadLink { .. } => kind::READLINK,
            Request::Symlink { .. } => kind::SYMLINK,
            Request::MakeNode { .. } => kind::MKNOD,
            Request::MakeDirectory { .. } => kind::MKDIR,
            Request::Link { .. } => kind::LINK,
            Request::Rename { .. } => kind::RENAMEAT,
            Request::Unlink { .. } => kind::UNLINKAT,
            Request::Sync { .. } => kind::FSYNC,
            Request::StatFs { .. } => kind::STATFS,
        }
    }

    /// Returns its length in bytes without data that follows; `None` if a text is too long for a
    /// message.
    pub fn length(&self) -> Option<usize> {
        let text =
            |text: &[u8]| u16::try_from(text.len()).ok().map(|length| 2 + usize::from(length));
        let fields = match self {
            Request::Flush { .. } => 2,
            Request::Clunk { .. } | Request::ReadLink { .. } | Request::StatFs { .. } => 4,
            Request::Open { .. } | Request::Sync { .. } => 8,
            Request::GetAttributes { .. } => 12,
            Request::Read { .. } | Request::Write { .. } | Request::ReadDirectory { .. } => 16,
            Request::SetAttributes { .. } => 60,
            Request::Version { version, .. } => 4 + text(version)?,
            Request::Attach { name, .. } => 14 + text(name)?,
            Request::Walk { name, .. } => 10 + name.map_or(Some(0), text)?,
            Request::Create { name, .. } => 16 + text(name)?,
            Request::Symlink { name, target, .. } => 8 + text(name)? + text(target)?,
            Request::MakeNode { name, .. } => 20 + text(name)?,
            Request::MakeDirectory { name, .. } => 12 + text(name)?,
            Request::Link { name, .. } => 8 + text(name)?,
            Request::Rename { name, new_name, .. } => 8 + text(name)? + text(new_name)?,
            Request::Unlink { name, .. } => 8 + text(name)?,
        };
        Some(HEADER + fields)
    }

    /// Returns how many bytes of data follow.
    pub fn data(&self) -> u32 {
        if let Request::Write { count, .. } = self { *count } else { 0 }
    }

    /// Appends the message, whose [length](Self::length) the caller knows and has room for.
    pub fn write(&self, tag: u16, to: &mut Vec<u8>) {
        let size = self.length().unwrap_or(HEADER) as u32;
        let out = Writer(to).u32(size.saturating_add(self.data())).put(&[self.kind()]).u16(tag);
        let _ = match *self {
            Request::Version { most, version } => out.u32(most).text(version),
            Request::Flush { tag } => out.u16(tag),
            // No authentication, and the user by number.
            Request::Attach { fid, uid, name } => {
                out.u32(fid).u32(NO_FID).text(b"").text(name).u32(uid)
            }
            Request::Walk { fid, new_fid, name: None } => out.u32(fid).u32(new_fid).u16(0),
            Request::Walk { fid, new_fid, name: Some(name) } => {
                out.u32(fid).u32(new_fid).u16(1).text(name)
            }
            Request::Open { fid, flags } => out.u32(fid).u32(flags),
            Request::Create { fid, name, flags, mode, gid } => {
                out.u32(fid).text(name).u32(flags).u32(mode).u32(gid)
            }
            Request::Read { fid, offset, count }
            | Request::Write { fid, offset, count }
            | Request::ReadDirectory { fid, offset, count } => out.u32(fid).u64(offset).u32(count),
            Request::Clunk { fid } | Request::ReadLink { fid } | Request::StatFs { fid } => {
                out.u32(fid)
            }
            Request::GetAttributes { fid, mask } => out.u32(fid).u64(mask),
            Request::SetAttributes { fid, change } => out.u32(fid).change(&change),
            Request::Symlink { fid, name, target, gid } => {
                out.u32(fid).text(name).text(target).u32(gid)
            }
            Request::MakeNode { fid, name, mode, device: (major, minor), gid } => {
                out.u32(fid).text(name).u32(mode).u32(major).u32(minor).u32(gid)
            }
            Request::MakeDirectory { fid, name, mode, gid } => {
                out.u32(fid).text(name).u32(mode).u32(gid)
            }
            Request::Link { directory, fid, name } => out.u32(directory).u32(fid).text(name),
            Request::Rename { from, name, to, new_name } => {
                out.u32(from).text(name).u32(to).text(new_name)
            }
            Request::Unlink { fid, name, flags } => out.u32(fid).text(name).u32(flags),
            Request::Sync { fid, data_only } => out.u32(fid).u32(data_only.into()),
        };
    }
}
