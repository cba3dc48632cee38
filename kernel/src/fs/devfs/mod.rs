//! `/dev`: one tmpfs instance for the whole system, to which drivers add nodes as they find
//! devices, and the devices that are only code (`null`, `zero`, `full`, `random`, `urandom`).
//!
//! Its type for `mount(2)` is `devtmpfs`; every mount shows the same tree.

mod kmsg;
pub mod port;

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::Lazy;
use hayate_machine::user::{self, UserPtr};

use super::disk;
use super::tmpfs::TmpFs;
use crate::credentials::Capability;
use crate::page_cache::read_ahead;
use crate::vfs::caller;
use crate::vfs::device;
use crate::vfs::device::SharedDevice;
use crate::vfs::filesystem::{Caching, FileSystem};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, of_machine, register_type};
use crate::vfs::inode::{DeviceNumber, FileKind, Inode, Owner};
use crate::vfs::open_file::{FileOps, MapSource, OpenFile, Traits, Whence};
use crate::vfs::transfer::{Input, Output};
use crate::{random, schedule};

/// The type for `mount(2)`.
pub static TYPE: FileSystemType = FileSystemType {
    name: "devtmpfs",
    needs_device: false,
    user: of_machine,
    mount: mount_devtmpfs,
};

// Negative entries must not be cached, because drivers add nodes behind the cache's back.
static TREE: Lazy<Arc<TmpFs>> =
    Lazy::new(|| TmpFs::new("devtmpfs", 0o755, Owner::default(), None, Caching::Positive));

fn mount_devtmpfs(_: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    Ok(TREE.clone())
}

/// Adds the nodes of the disks and ports that were found. Called after [`crate::drivers::init`].
///
/// # Errors
/// `ENOMEM`.
pub fn add_devices() -> Result<()> {
    disk::init()?;
    let disks = disk::disks();
    for disk in &disks {
        add(disk.name(), FileKind::BlockDevice, disk.number(), 0o660);
        let serial = disk.driver().serial();
        if !serial.is_empty() {
            // As udev names it (60-persistent-storage.rules).
            let target = alloc::format!("../../{}", disk.name());
            link(&alloc::format!("disk/by-id/virtio-{serial}"), &target);
        }
    }
    if !disks.is_empty() {
        read_ahead::start()?;
    }
    port::init()
}

/// Returns the file system, for the kernel's own mount at boot.
pub fn tree() -> Arc<dyn FileSystem> {
    TREE.clone()
}

/// Returns the directory of `path`, which is made if it is missing, and the last name.
fn directory(path: &str) -> Result<(Arc<dyn Inode>, &str)> {
    let mut here: Arc<dyn Inode> = TREE.root();
    let mut rest = path;
    while let Some((name, after)) = rest.split_once('/') {
        here = match here.lookup(name.as_bytes()) {
            Err(Errno::ENOENT) => here.mkdir(name.as_bytes(), 0o755, Owner::default())?,
            found => found?,
        };
        rest = after;
    }
    Ok((here, rest))
}

/// Adds the node of a device, at `path` below `/dev`; makes missing directories. An existing name
/// stays.
pub fn add(path: &str, kind: FileKind, number: DeviceNumber, mode: u16) {
    add_for(path, kind, number, mode, Owner::default());
}

/// Like [`add`], with another owner than root.
pub fn add_for(path: &str, kind: FileKind, number: DeviceNumber, mode: u16, owner: Owner) {
    let made = directory(path).and_then(|(parent, name)| match parent.lookup(name.as_bytes()) {
        Err(Errno::ENOENT) => parent.mknod(name.as_bytes(), kind, mode, number, owner).map(drop),
        found => found.map(drop),
    });
    report(path, made);
}

/// Adds a symbolic link at `path` below `/dev`.
pub fn link(path: &str, target: &str) {
    let made = directory(path).and_then(|(parent, name)| match parent.lookup(name.as_bytes()) {
        Err(Errno::ENOENT) => {
            parent.symlink(name.as_bytes(), target.as_bytes(), Owner::default()).map(drop)
        }
        found => found.map(drop),
    });
    report(path, made);
}

/// Adds a directory at `path` below `/dev`.
pub fn add_directory(path: &str, mode: u16) {
    let made = directory(path).and_then(|(parent, name)| match parent.lookup(name.as_bytes()) {
        Err(Errno::ENOENT) => parent.mkdir(name.as_bytes(), mode, Owner::default()).map(drop),
        found => found.map(drop),
    });
    report(path, made);
}

/// Removes the node of a device that is gone.
pub fn remove(path: &str) {
    let removed = directory(path).and_then(|(parent, name)| {
        let node = parent.lookup(name.as_bytes())?;
        parent.unlink(name.as_bytes(), &node)
    });
    report(path, removed);
}

fn report(path: &str, outcome: Result<()>) {
    if let Err(error) = outcome {
        hayate_machine::warn!("/dev/{path}: {error}");
    }
}

/// The devices without hardware.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Null,
    Zero,
    Full,
    Random,
}

/// Bytes moved between two checks for pending interrupts and signals.
const STRETCH: usize = 64 << 10;

/// Writes zeroes, as many as there is room for, or until a signal comes (`read_iter_zero` of Linux
/// 6.1).
#[inline(never)]
fn many_zeroes(out: &mut Output<'_>) -> Result<usize> {
    loop {
        let length = out.remaining().min(STRETCH);
        let moved = out.zero(length);
        if out.remaining() == 0
            || !moved.as_ref().is_ok_and(|&count| count == length)
            || schedule::breathe()
        {
            return out.finish(moved);
        }
    }
}

/// Writes random bytes, as many as there is room for; up to 256 bytes are not cut short by a signal
/// (random(4)).
#[inline(never)]
fn random_bytes(out: &mut Output<'_>) -> Result<usize> {
    loop {
        let mut bytes = [0; 256];
        let length = out.remaining().min(bytes.len());
        let piece = bytes.get_mut(..length).unwrap_or_default();
        random::fill(piece);
        let moved = out.put(piece);
        if out.remaining() == 0
            || !moved.as_ref().is_ok_and(|&count| count == length)
            || schedule::breathe()
        {
            return out.finish(moved);
        }
    }
}

/// Mixes the bytes that a program writes into the generator.
#[inline(never)]
fn take_seeds(input: &mut Input<'_>) -> Result<usize> {
    while input.remaining() != 0 {
        let mut seed = [0; 32];
        let length = input.remaining().min(seed.len());
        if let Err(error) = input.take(seed.get_mut(..length).unwrap_or_default()) {
            return input.finish(Err::<(), _>(error));
        }
        random::add_seed(&seed);
        if schedule::breathe() {
            break;
        }
    }
    Ok(input.done())
}

/// The ioctls of random(4) (`random_ioctl`, drivers/char/random.c of Linux 6.1). The generator is
/// seeded from the first instruction on, so the entropy count is always that of a full pool.
#[inline(never)]
fn random_control(command: u32, at: usize) -> Result<i64> {
    const GET_COUNT: u32 = 0x8004_5200;
    const ADD_TO_COUNT: u32 = 0x4004_5201;
    const ADD_ENTROPY: u32 = 0x4008_5203;
    const ZAP_COUNT: u32 = 0x5204;
    const CLEAR_POOL: u32 = 0x5206;
    const RESEED: u32 = 0x5207;
    /// Bits of a full pool (`POOL_BITS`).
    const FULL: i32 = 256;
    if command == GET_COUNT {
        return UserPtr::new(at).write(&FULL).map(|()| 0);
    }
    if !matches!(command, ADD_TO_COUNT | ADD_ENTROPY | ZAP_COUNT | CLEAR_POOL | RESEED) {
        return Err(Errno::EINVAL);
    }
    caller::require(Capability::SysAdmin)?;
    if matches!(command, ADD_TO_COUNT | ADD_ENTROPY) && UserPtr::<i32>::new(at).read()? < 0 {
        return Err(Errno::EINVAL);
    }
    if command == ADD_ENTROPY {
        // struct rand_pool_info: the count, the size of the bytes, the bytes.
        let size = UserPtr::<i32>::new(at.wrapping_add(4)).read()?;
        let size = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
        let mut done = 0;
        while done < size {
            let mut seed = [0; 32];
            let length = (size - done).min(seed.len());
            let piece = seed.get_mut(..length).unwrap_or_default();
            user::copy_in(piece, at.wrapping_add(8).wrapping_add(done))?;
            random::add_seed(&seed);
            done += length;
            if schedule::breathe() {
                break;
            }
        }
    }
    if command == RESEED {
        random::add_seed(&[0; 32]);
    }
    Ok(0)
}

impl FileOps for Memory {
    fn traits(&self) -> Traits {
        // Positions are accepted and ignored. `read` and `write` need none: without POSITIONED they
        // take no lock.
        Traits::ADDRESSABLE
    }

    #[inline]
    fn read(&self, _: &OpenFile, _: u64, out: &mut Output<'_>) -> Result<usize> {
        match self {
            Memory::Null => Ok(0),
            // This path makes no call, so the compiler need not save registers for one.
            Memory::Zero if out.remaining() <= STRETCH => match out.zero_user() {
                Some(count) => Ok(count),
                None => many_zeroes(out),
            },
            Memory::Zero | Memory::Full => many_zeroes(out),
            Memory::Random => random_bytes(out),
        }
    }

    #[inline]
    fn write(&self, _: &OpenFile, _: &mut u64, input: &mut Input<'_>) -> Result<usize> {
        match self {
            Memory::Null | Memory::Zero => Ok(input.discard()),
            Memory::Full if input.remaining() == 0 => Ok(0),
            Memory::Full => Err(Errno::ENOSPC),
            Memory::Random => take_seeds(input),
        }
    }

    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        if *self == Memory::Random {
            random_control(command, arg as usize)
        } else {
            Err(Errno::ENOTTY)
        }
    }

    fn seek(&self, _: &OpenFile, _: u64, offset: i64, whence: Whence) -> Result<u64> {
        if *self != Memory::Random {
            return Ok(0);
        }
        match whence {
            Whence::Set | Whence::Current => u64::try_from(offset).map_err(|_| Errno::EINVAL),
            _ => Ok(0),
        }
    }

    fn map(&self, _: &OpenFile) -> Result<MapSource> {
        if *self == Memory::Zero { Ok(MapSource::Anonymous) } else { Err(Errno::ENODEV) }
    }
}

/// Registers the devices without hardware and the fixed entries of `/dev`.
pub fn init() {
    register_type(&TYPE);
    let devices = [
        (3, "null", Memory::Null),
        (5, "zero", Memory::Zero),
        (7, "full", Memory::Full),
        (8, "random", Memory::Random),
        (9, "urandom", Memory::Random),
    ];
    for (minor, name, memory) in devices {
        let number = DeviceNumber::new(1, minor);
        let ops = Arc::new(SharedDevice(Arc::new(memory)));
        device::register(FileKind::CharDevice, number, "mem", ops);
        add(name, FileKind::CharDevice, number, 0o666);
    }
    kmsg::init();
    add("tty", FileKind::CharDevice, DeviceNumber::new(5, 0), 0o666);
    add("console", FileKind::CharDevice, DeviceNumber::new(5, 1), 0o600);
    add("ptmx", FileKind::CharDevice, DeviceNumber::new(5, 2), 0o666);
    add("hvc0", FileKind::CharDevice, DeviceNumber::new(229, 0), 0o600);
    add_directory("shm", 0o1777);
    add_directory("pts", 0o755);
    link("fd", "/proc/self/fd");
    link("stdin", "/proc/self/fd/0");
    link("stdout", "/proc/self/fd/1");
    link("stderr", "/proc/self/fd/2");
}
