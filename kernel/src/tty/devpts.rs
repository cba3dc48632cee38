//! devpts: the directory `/dev/pts` with a node for each pseudo terminal's slave, and `ptmx`.
//!
//! The pairs belong to the whole system (pts(4)): unlike Linux since 4.7, two mounts show the same
//! pairs. So `newinstance` is accepted where nothing depends on separate instances.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::str;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::{devices, pty};
use crate::vfs::filesystem::{Caching, FileSystem, Usage, anonymous_device};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, of_machine, register_type};
use crate::vfs::inode::{
    Attributes, Change, DeviceNumber, DirectorySink, FileKind, Inode, Metadata,
};
use crate::vfs::open_file::{FileOps, OpenRequest};

/// `DEVPTS_SUPER_MAGIC`.
const MAGIC: u64 = 0x1cd1;
/// Inode numbers: the root, `ptmx`, then the pair's number plus 3, as on Linux.
const ROOT_NUMBER: u64 = 1;
const MULTIPLEXER_NUMBER: u64 = 2;
const FIRST_NUMBER: u64 = 3;

/// Registers the type with mount(2).
pub fn register() {
    static TYPE: FileSystemType =
        FileSystemType { name: "devpts", needs_device: false, user: of_machine, mount };
    register_type(&TYPE);
}

/// A mounted devpts.
struct DevPts {
    device: u64,
    options: Options,
}

#[derive(Clone, Copy)]
struct Options {
    /// `gid=`: the group of every slave, instead of the group of the process that opened the pair.
    gid: Option<u32>,
    /// `mode=` of slaves.
    mode: u16,
    /// `ptmxmode=`.
    multiplexer_mode: u16,
}

fn number_of(value: &[u8], radix: u32) -> Result<u32> {
    str::from_utf8(value)
        .ok()
        .and_then(|text| u32::from_str_radix(text, radix).ok())
        .ok_or(Errno::EINVAL)
}

fn mount(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    let mut options = Options { gid: None, mode: 0o600, multiplexer_mode: 0 };
    for (key, value) in request.options() {
        match key {
            b"gid" => options.gid = Some(number_of(value, 10)?),
            b"mode" => options.mode = (number_of(value, 8)? & 0o777) as u16,
            b"ptmxmode" => options.multiplexer_mode = (number_of(value, 8)? & 0o777) as u16,
            b"newinstance" | b"rw" | b"ro" => {}
            b"uid" | b"max" => {
                number_of(value, 10)?;
            }
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(Arc::new(DevPts { device: anonymous_device(), options }))
}

impl FileSystem for DevPts {
    fn type_name(&self) -> &'static str {
        "devpts"
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        Arc::new(Root {
            device: self.device,
            options: self.options,
            metadata: SpinLock::new(Metadata {
                number: ROOT_NUMBER,
                links: 2,
                ..Metadata::anonymous(self.device, FileKind::Directory, 0o755)
            }),
        })
    }

    fn usage(&self) -> Usage {
        Usage { magic: MAGIC, block_size: 4096, name_length: 255, ..Usage::default() }
    }

    fn caching(&self) -> Caching {
        Caching::Never
    }

    fn options(&self) -> alloc::string::String {
        let gid =
            self.options.gid.map_or(alloc::string::String::new(), |gid| format!(",gid={gid}"));
        let Options { mode, multiplexer_mode, .. } = self.options;
        format!("{gid},mode={mode:03o},ptmxmode={multiplexer_mode:03o}")
    }
}

/// The directory.
struct Root {
    device: u64,
    options: Options,
    metadata: SpinLock<Metadata>,
}

impl Inode for Root {
    fn attributes(&self) -> Attributes {
        self.metadata.lock().attributes()
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(*self.metadata.lock())
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if name == b"ptmx" {
            let mut metadata = Metadata::anonymous(
                self.device,
                FileKind::CharDevice,
                self.options.multiplexer_mode,
            );
            metadata.number = MULTIPLEXER_NUMBER;
            metadata.represents = devices::MULTIPLEXER;
            return Ok(Arc::new(Node { pair: None, metadata: SpinLock::new(metadata) }));
        }
        let canonical = name.first() != Some(&b'0') || name.len() == 1;
        let number = number_of(name, 10).ok().filter(|_| canonical).ok_or(Errno::ENOENT)?;
        let pair = pty::pair(number).ok_or(Errno::ENOENT)?;
        if let Some(node) = &*pair.node.lock() {
            return Ok(node.clone());
        }
        let (major, minor) = pair.slave.device;
        let mut metadata =
            Metadata::anonymous(self.device, FileKind::CharDevice, self.options.mode);
        metadata.number = u64::from(number) + FIRST_NUMBER;
        metadata.represents = DeviceNumber::new(major, minor);
        metadata.uid = pair.uid;
        metadata.gid = self.options.gid.unwrap_or(pair.gid);
        metadata.accessed = pair.made;
        metadata.modified = pair.made;
        metadata.changed = pair.made;
        let node: Arc<dyn Inode> =
            Arc::new(Node { pair: Some(number), metadata: SpinLock::new(metadata) });
        *pair.node.lock() = Some(node.clone());
        Ok(node)
    }

    fn read_dir(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        if *position <= 2 {
            if !sink.entry(MULTIPLEXER_NUMBER, FileKind::CharDevice, b"ptmx", FIRST_NUMBER) {
                return Ok(());
            }
            *position = FIRST_NUMBER;
        }
        let mut numbers = [0; 32];
        loop {
            let from = (*position - FIRST_NUMBER) as u32;
            let count = pty::numbers(from, &mut numbers);
            for number in &numbers[..count] {
                let inode = u64::from(*number) + FIRST_NUMBER;
                let name: Vec<u8> = format!("{number}").into_bytes();
                if !sink.entry(inode, FileKind::CharDevice, &name, inode + 1) {
                    return Ok(());
                }
                *position = inode + 1;
            }
            if count < numbers.len() {
                return Ok(());
            }
        }
    }
}

/// A slave's node (`pair` is its number), or `ptmx`.
struct Node {
    pair: Option<u32>,
    metadata: SpinLock<Metadata>,
}

impl Inode for Node {
    fn attributes(&self) -> Attributes {
        self.metadata.lock().attributes()
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(*self.metadata.lock())
    }

    fn set_metadata(&self, change: &Change) -> Result<()> {
        if change.size.is_some_and(|size| size != 0) {
            return Err(Errno::EINVAL);
        }
        let mut metadata = self.metadata.lock();
        metadata.mode = change.mode.unwrap_or(metadata.mode);
        metadata.uid = change.uid.unwrap_or(metadata.uid);
        metadata.gid = change.gid.unwrap_or(metadata.gid);
        metadata.accessed = change.accessed.unwrap_or(metadata.accessed);
        metadata.modified = change.modified.unwrap_or(metadata.modified);
        metadata.changed = crate::vfs::inode::Timestamp::now();
        Ok(())
    }

    fn opens_itself(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, request: &OpenRequest) -> Result<Arc<dyn FileOps>> {
        match self.pair {
            Some(number) => devices::open_slave(number, request),
            None => Ok(pty::Master::open(request.credentials)?),
        }
    }
}
