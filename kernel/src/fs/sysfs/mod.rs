//! sysfs: devices and the kernel's parts as a tree of one-line files (sysfs(5)).
//!
//! The tree of procfs serves it, of which this is a second root, with the same items and texts made
//! when they are read. It has what programs read to size themselves: the processors, the disks, how
//! memory is paged, and the network's [interfaces]. Files of Linux whose content Hayate does not
//! know (the topology that a hypervisor made up, a disk's statistics) are left out.

mod interfaces;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::cpu;
use hayate_machine::layout::LARGE_PAGE_SIZE;

use crate::drivers::block::SECTOR;
use crate::fs::disk;
use crate::fs::disk::Disk;
use crate::fs::proc::text::{bytes, line, number};
use crate::fs::proc::tree;
use crate::fs::proc::tree::{Item, Listing, Node, Subject, What};
use crate::memory::large;
use crate::vfs::filesystem::{Caching, FileSystem, Usage, anonymous_device};
use crate::vfs::filesystem_type::{FileSystemType, MountRequest, of_machine, register_type};
use crate::vfs::inode::{DirectorySink, FileKind, Inode};

/// `SYSFS_MAGIC`.
const MAGIC: u64 = 0x6265_6572;
const ROOT_NUMBER: u64 = 1;

static ROOT: What<()> = What::Directory(&[
    Item { name: "block", what: What::Listing(&Disks) },
    Item { name: "class", what: What::Directory(CLASSES) },
    Item { name: "devices", what: What::Directory(DEVICES) },
    Item { name: "fs", what: What::Directory(FILE_SYSTEMS) },
    Item { name: "kernel", what: What::Directory(KERNEL) },
]);

/// A directory to mount the file system of control groups on (`cgroup_init`).
static FILE_SYSTEMS: &[Item<()>] = &[Item { name: "cgroup", what: What::Directory(&[]) }];

static CLASSES: &[Item<()>] = &[Item { name: "net", what: What::Listing(&interfaces::Interfaces) }];

static DEVICES: &[Item<()>] = &[Item { name: "system", what: What::Directory(SYSTEM) }];
static SYSTEM: &[Item<()>] = &[Item { name: "cpu", what: What::Listing(&Cpus) }];
static KERNEL: &[Item<()>] = &[Item { name: "mm", what: What::Directory(MEMORY) }];
static MEMORY: &[Item<()>] =
    &[Item { name: "transparent_hugepage", what: What::Directory(LARGE_PAGES) }];

static LARGE_PAGES: &[Item<()>] = &[
    Item {
        name: "enabled",
        what: What::Text(|(), out| {
            let words = match large::mode() {
                large::Mode::Always => "[always] madvise never",
                large::Mode::Asked => "always [madvise] never",
                large::Mode::Never => "always madvise [never]",
            };
            line(out, format_args!("{words}"))
        }),
    },
    Item {
        name: "hpage_pmd_size",
        what: What::Text(|(), out| line(out, format_args!("{LARGE_PAGE_SIZE}"))),
    },
];

// ---- processors ---------------------------------------------------------------------------------

/// `/sys/devices/system/cpu`: lists of processors, and a directory for each.
struct Cpus;

static CPU_LISTS: &[Item<()>] = &[
    Item {
        name: "kernel_max",
        what: What::Text(|(), out| line(out, format_args!("{}", cpu::MAX_CPUS - 1))),
    },
    Item { name: "offline", what: What::Text(|(), out| bytes(out, b"\n")) },
    Item { name: "online", what: What::Text(all_cpus) },
    Item { name: "possible", what: What::Text(all_cpus) },
    Item { name: "present", what: What::Text(all_cpus) },
];

/// All processors, as Linux writes a list of them.
fn all_cpus(_: &(), out: &mut Vec<u8>) -> Result<()> {
    match cpu::count() {
        0 | 1 => line(out, format_args!("0")),
        count => line(out, format_args!("0-{}", count - 1)),
    }
}

static CPU: What<()> = What::Directory(&[]);

impl Listing<()> for Cpus {
    fn lookup(&self, _: &(), device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if let Some(item) = tree::find(CPU_LISTS, name) {
            return Ok(Node::entry((), &item.what, device, ROOT_NUMBER, name));
        }
        let digits = name.strip_prefix(b"cpu").ok_or(Errno::ENOENT)?;
        let index = if digits == b"0" { Some(0) } else { number(digits) };
        match index {
            Some(index) if (index as usize) < cpu::count() => {
                Ok(Node::entry((), &CPU, device, ROOT_NUMBER, name))
            }
            _ => Err(Errno::ENOENT),
        }
    }

    fn list(&self, _: &(), position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        if !tree::list(CPU_LISTS, 2, position, sink) {
            return Ok(());
        }
        let names = (0..cpu::count()).map(|index| format!("cpu{index}"));
        list_names(names, 2 + CPU_LISTS.len() as u64, position, sink);
        Ok(())
    }
}

/// Enumerates directories, the first of which has position `base`.
fn list_names(
    names: impl Iterator<Item = String>,
    base: u64,
    position: &mut u64,
    sink: &mut dyn DirectorySink,
) {
    for (at, name) in (base..).zip(names) {
        if at < *position {
            continue;
        }
        let inode = tree::mix(base, name.as_bytes()) | 1;
        if !sink.entry(inode, FileKind::Directory, name.as_bytes(), at + 1) {
            return;
        }
        *position = at + 1;
    }
}

// ---- disks --------------------------------------------------------------------------------------

/// `/sys/block`: a directory for each disk.
struct Disks;

/// A disk as the subject of files.
#[derive(Clone)]
struct DiskFolder(Arc<Disk>);

impl Subject for DiskFolder {
    fn seed(&self) -> u64 {
        self.0.number().encode()
    }
}

static DISK: What<DiskFolder> = What::Directory(&[
    Item {
        name: "dev",
        what: What::Text(|disk, out| {
            let number = disk.0.number();
            line(out, format_args!("{}:{}", number.major, number.minor))
        }),
    },
    Item { name: "queue", what: What::Directory(QUEUE) },
    Item {
        name: "ro",
        what: What::Text(|disk, out| {
            line(out, format_args!("{}", u8::from(disk.0.is_read_only())))
        }),
    },
    Item {
        name: "serial",
        what: What::Text(|disk, out| bytes(out, disk.0.driver().serial().as_bytes())),
    },
    // In sectors of 512 bytes, whatever the device's sector size.
    Item {
        name: "size",
        what: What::Text(|disk, out| line(out, format_args!("{}", disk.0.size() / SECTOR))),
    },
]);

static QUEUE: &[Item<DiskFolder>] = &[
    Item {
        name: "logical_block_size",
        what: What::Text(|disk, out| number_line(out, disk.0.driver().shape().logical)),
    },
    Item {
        name: "physical_block_size",
        what: What::Text(|disk, out| number_line(out, disk.0.driver().shape().physical)),
    },
];

fn number_line(out: &mut Vec<u8>, number: u32) -> Result<()> {
    line(out, format_args!("{number}"))
}

impl Listing<()> for Disks {
    fn lookup(&self, _: &(), device: u64, name: &[u8]) -> Result<Arc<dyn Inode>> {
        let found = disk::disks().into_iter().find(|disk| disk.name().as_bytes() == name);
        let disk = DiskFolder(found.ok_or(Errno::ENOENT)?);
        Ok(Node::entry(disk, &DISK, device, ROOT_NUMBER, name))
    }

    fn list(&self, _: &(), position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        let disks = disk::disks();
        list_names(disks.iter().map(|disk| String::from(disk.name())), 2, position, sink);
        Ok(())
    }
}

// ---- the file system ----------------------------------------------------------------------------

/// Registers the type with mount(2).
pub fn register() {
    static TYPE: FileSystemType =
        FileSystemType { name: "sysfs", needs_device: false, user: of_machine, mount };
    register_type(&TYPE);
}

/// A mounted sysfs.
struct SysFs {
    device: u64,
}

fn mount(_: &MountRequest<'_>) -> Result<Arc<dyn FileSystem>> {
    Ok(Arc::new(SysFs { device: anonymous_device() }))
}

impl FileSystem for SysFs {
    fn type_name(&self) -> &'static str {
        "sysfs"
    }

    fn device(&self) -> u64 {
        self.device
    }

    fn root(&self) -> Arc<dyn Inode> {
        Node::entry((), &ROOT, self.device, ROOT_NUMBER, b"")
    }

    fn usage(&self) -> Usage {
        Usage { magic: MAGIC, block_size: 4096, name_length: 255, ..Usage::default() }
    }

    fn caching(&self) -> Caching {
        Caching::Never
    }
}
