//! Plain data about files: kinds, device numbers, times, metadata, changes.

use core::sync::atomic::{AtomicU64, Ordering};

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileKind {
    /// A named or unnamed pipe.
    Fifo = 1,
    /// A character device.
    CharDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    Regular = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A socket.
    Socket = 12,
    /// Linux' anonymous inodes (epoll, eventfd...): no type bits at all.
    Anonymous = 0,
}

impl FileKind {
    /// Returns the type bits of `st_mode` (`S_IFREG`...).
    pub const fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }

    /// Returns the kind in the type bits of a mode; `None` for an unknown pattern or none.
    pub const fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match (mode >> 12) & 0xf {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// Returns the `d_type` of `getdents64(2)`: the type bits shifted down, as in Linux.
    pub const fn dirent_type(self) -> u8 {
        self as u8
    }
}

/// A device's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// The class, 12 bits.
    pub major: u32,
    /// The device in its class, 20 bits.
    pub minor: u32,
}

impl DeviceNumber {
    /// No device.
    pub const NONE: DeviceNumber = DeviceNumber { major: 0, minor: 0 };

    /// Makes the device number from its parts.
    pub const fn new(major: u32, minor: u32) -> DeviceNumber {
        DeviceNumber { major, minor }
    }

    /// Encodes it as `stat(2)` and `mknod(2)` do (`new_encode_dev`, `include/linux/kdev_t.h`).
    pub const fn encode(self) -> u64 {
        ((self.minor & 0xff) | (self.major << 8) | ((self.minor & !0xff) << 12)) as u64
    }

    /// Inverts [`DeviceNumber::encode`].
    pub const fn decode(encoded: u64) -> DeviceNumber {
        let encoded = encoded as u32;
        DeviceNumber {
            major: (encoded & 0xfff00) >> 8,
            minor: (encoded & 0xff) | ((encoded >> 12) & 0xfff00),
        }
    }
}

/// A point in time in the metadata of a file: since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds beyond the whole seconds, 0..1_000_000_000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// Returns the current time of day.
    pub fn now() -> Timestamp {
        Timestamp::from_nanoseconds(hayate_machine::time::realtime_ns())
    }

    /// Converts from nanoseconds since 1970.
    pub const fn from_nanoseconds(nanoseconds: u64) -> Timestamp {
        Timestamp {
            seconds: (nanoseconds / 1_000_000_000) as i64,
            nanoseconds: (nanoseconds % 1_000_000_000) as u32,
        }
    }
}

/// The attributes of a file that permission checks need.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// The kind.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits (`07777`).
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Whether the file gives its program capabilities (`security.capability`).
    pub capabilities: bool,
}

/// All that `stat(2)` reports about a file.
#[derive(Clone, Copy, Debug)]
pub struct Metadata {
    /// The device of its file system, encoded.
    pub device: u64,
    /// The inode number.
    pub number: u64,
    /// The kind.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits (`07777`).
    pub mode: u16,
    /// The number of names.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device that a device node stands for.
    pub represents: DeviceNumber,
    /// The size in bytes.
    pub size: u64,
    /// The storage used, in units of 512 bytes.
    pub blocks: u64,
    /// The preferred size of I/O, in bytes.
    pub block_size: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of content or metadata.
    pub changed: Timestamp,
    /// Creation.
    pub created: Timestamp,
}

impl Metadata {
    /// Returns metadata for an object without a file system: one link, owned by root, made now.
    pub fn anonymous(device: u64, kind: FileKind, mode: u16) -> Metadata {
        let now = Timestamp::now();
        Metadata {
            device,
            number: next_inode_number(),
            kind,
            mode,
            links: 1,
            uid: 0,
            gid: 0,
            represents: DeviceNumber::NONE,
            size: 0,
            blocks: 0,
            block_size: 4096,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
        }
    }

    /// Returns the attributes that permission checks need.
    pub const fn attributes(&self) -> Attributes {
        let Metadata { kind, mode, uid, gid, .. } = *self;
        Attributes { kind, mode, uid, gid, capabilities: false }
    }

    /// Returns device and inode number, the file's identity for programs.
    pub const fn identity(&self) -> (u64, u64) {
        (self.device, self.number)
    }

    /// Returns `st_mode`: kind and permissions.
    pub const fn full_mode(&self) -> u32 {
        self.kind.mode_bits() | self.mode as u32
    }
}

/// Returns a new inode number, for inodes that have no number of their own.
pub fn next_inode_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(2);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A change of metadata: each field that is `Some` is changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// New permission, set-id and sticky bits.
    pub mode: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size: truncate or extend.
    pub size: Option<u64>,
    /// New time of last access.
    pub accessed: Option<Timestamp>,
    /// New time of last modification.
    pub modified: Option<Timestamp>,
}

/// The owner that a new file will have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}
