//! devpts: the directory `/dev/pts` with a node for each pseudo terminal's slave, and `ptmx`.
//!
//! Each mount has pairs of its own (fs/devpts/inode.c of Linux since 4.7), so that `newinstance`
//! says nothing more. Administrators of user namespaces mount it, too: containers and sandboxes
//! have terminals of their own.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::str;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::devices;
use super::pty::{DEVPTS, MOST_OF_ONE, Master, Pairs};
use crate::namespace::Handle;
use crate::vfs::filesystem::{Caching, FileSystem, Usage, anonymous_device};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, of_mounter, register_type};
use crate::vfs::inode::{
    Attributes, Change, DeviceNumber, DirectorySink, FileKind, Inode, Metadata, downcast,
};
use crate::vfs::mount::Location;
use crate::vfs::mount_tree;
use crate::vfs::open_file::{FileOps, OpenFile, OpenRequest};
use crate::vfs::path::lookup;

/// `DEVPTS_SUPER_MAGIC`.
const MAGIC: u64 = 0x1cd1;
/// Inode numbers: the root, `ptmx`, then the pair's number plus 3, as on Linux.
const ROOT_NUMBER: u64 = 1;
const MULTIPLEXER_NUMBER: u64 = 2;
const FIRST_NUMBER: u64 = 3;

/// Registers the type with mount(2).
pub fn register() {
    static TYPE: FileSystemType =
        FileSystemType { name: DEVPTS, needs_device: false, user: of_mounter, mount };
    register_type(&TYPE);
}

/// The place of the slave of an open master in the devpts by which it was opened, whether that is
/// still mounted or not; `None` for another file (`ptm_open_peer`, drivers/tty/pty.c, and
/// `devpts_mntget`, fs/devpts/inode.c of Linux 6.1).
///
/// # Errors
/// Those of [`devices::root_beside`], and `ENODEV` if another devpts is mounted there by now.
pub fn peer(file: &OpenFile) -> Option<Result<Location>> {
    let master = file.ops_as::<Master>()?;
    Some(place_of_peer(file.location(), master))
}

fn place_of_peer(location: &Location, master: &Master) -> Result<Location> {
    let mut root = location.clone();
    if root.mount.filesystem().type_name() != DEVPTS {
        root = devices::root_beside(location)?;
    }
    while let Some(parent) = root.dentry.parent() {
        root.dentry = parent;
    }
    let inode = root.inode()?;
    if !downcast::<Root>(&inode).is_some_and(|it| master.is_of(&it.pairs)) {
        return Err(Errno::ENODEV);
    }
    let dentry = lookup(&root.dentry, &inode, format!("{}", master.number()).as_bytes())?;
    Ok(Location { mount: root.mount, dentry })
}

/// A mounted devpts.
struct DevPts {
    device: u64,
    root: Arc<Root>,
}

#[derive(Clone, Copy)]
struct Options {
    /// `uid=`: the owner of every slave, instead of the user of the process that opened the pair.
    uid: Option<u32>,
    /// `gid=`: the group of every slave, instead of the group of the process that opened the pair.
    gid: Option<u32>,
    /// `mode=` of slaves.
    mode: u16,
    /// `ptmxmode=`.
    multiplexer_mode: u16,
    /// `max=`: the most pairs.
    most: u32,
}

fn number_of(value: &[u8], radix: u32) -> Result<u32> {
    str::from_utf8(value)
        .ok()
        .and_then(|text| u32::from_str_radix(text, radix).ok())
        .ok_or(Errno::EINVAL)
}

/// The options of a mount. Numbers are those of the mounter's user namespace.
fn options(request: &MountRequest<'_>) -> Result<Options> {
    let user = &request.resolver.credentials.user;
    let mut options =
        Options { uid: None, gid: None, mode: 0o600, multiplexer_mode: 0, most: MOST_OF_ONE };
    for (key, value) in request.options() {
        match key {
            b"uid" => {
                options.uid = Some(user.user(number_of(value, 10)?).ok_or(Errno::EINVAL)?);
            }
            b"gid" => {
                options.gid = Some(user.group(number_of(value, 10)?).ok_or(Errno::EINVAL)?);
            }
            b"mode" => options.mode = (number_of(value, 8)? & 0o7777) as u16,
            b"ptmxmode" => options.multiplexer_mode = (number_of(value, 8)? & 0o7777) as u16,
            b"max" => {
                options.most = number_of(value, 10)?;
                if options.most > MOST_OF_ONE {
                    return Err(Errno::EINVAL);
                }
            }
            b"newinstance" | b"rw" | b"ro" => {}
            _ => return Err(Errno::EINVAL),
        }
    }
    Ok(options)
}

fn mount(request: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    let options = options(request)?;
    let user = &request.resolver.credentials.user;
    let (Some(uid), Some(gid)) = (user.user(0), user.group(0)) else { return Err(Errno::EINVAL) };
    let device = anonymous_device();
    let is_first = matches!(mount_tree::of_caller(), Handle::First(_));
    let pairs = Pairs::new(options.most, is_first);
    let metadata = Metadata {
        number: MULTIPLEXER_NUMBER,
        represents: devices::MULTIPLEXER,
        uid,
        gid,
        ..Metadata::anonymous(device, FileKind::CharDevice, options.multiplexer_mode)
    };
    let multiplexer =
        Node { pairs: Arc::clone(&pairs), pair: None, metadata: SpinLock::new(metadata) };
    let root = Root {
        device,
        options,
        metadata: SpinLock::new(Metadata {
            number: ROOT_NUMBER,
            links: 2,
            ..Metadata::anonymous(device, FileKind::Directory, 0o755)
        }),
        pairs,
        multiplexer: Arc::new(multiplexer),
    };
    Ok(Arc::new(DevPts { device, root: Arc::new(root) }))
}

impl FileSystem for DevPts {
    fn type_name(&self) -> &'static str {
        DEVPTS
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        self.root.clone()
    }

    fn usage(&self) -> Usage {
        Usage { magic: MAGIC, block_size: 4096, name_length: 255, ..Usage::default() }
    }

    fn caching(&self) -> Caching {
        Caching::Never
    }

    fn options(&self) -> String {
        let Options { uid, gid, mode, multiplexer_mode, most } = self.root.options;
        let uid = uid.map_or(String::new(), |uid| format!(",uid={uid}"));
        let gid = gid.map_or(String::new(), |gid| format!(",gid={gid}"));
        let most = if most < MOST_OF_ONE { format!(",max={most}") } else { String::new() };
        format!("{uid}{gid},mode={mode:03o},ptmxmode={multiplexer_mode:03o}{most}")
    }
}

/// The directory.
struct Root {
    device: u64,
    options: Options,
    metadata: SpinLock<Metadata>,
    pairs: Arc<Pairs>,
    multiplexer: Arc<Node>,
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
            return Ok(self.multiplexer.clone());
        }
        let canonical = name.first() != Some(&b'0') || name.len() == 1;
        let number = number_of(name, 10).ok().filter(|_| canonical).ok_or(Errno::ENOENT)?;
        let pair = self.pairs.get(number).ok_or(Errno::ENOENT)?;
        if let Some(node) = &*pair.node.lock() {
            return Ok(node.clone());
        }
        let (major, minor) = pair.slave.device;
        let mut metadata =
            Metadata::anonymous(self.device, FileKind::CharDevice, self.options.mode);
        metadata.number = u64::from(number) + FIRST_NUMBER;
        metadata.represents = DeviceNumber::new(major, minor);
        metadata.uid = self.options.uid.unwrap_or(pair.uid);
        metadata.gid = self.options.gid.unwrap_or(pair.gid);
        metadata.accessed = pair.made;
        metadata.modified = pair.made;
        metadata.changed = pair.made;
        let node: Arc<dyn Inode> = Arc::new(Node {
            pairs: Arc::clone(&self.pairs),
            pair: Some(number),
            metadata: SpinLock::new(metadata),
        });
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
            let count = self.pairs.numbers(from, &mut numbers);
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
    pairs: Arc<Pairs>,
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
            Some(number) => devices::open_slave(&self.pairs, number, request),
            None => Ok(Master::open(&self.pairs, request.credentials)?),
        }
    }
}
