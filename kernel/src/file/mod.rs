//! Files: the tree, what lies in it, and the descriptors that programs hold.
//!
//! From the program's side: a descriptor ([`descriptor::FdTable`]) leads to an open file
//! ([`open_file::OpenFile`]), which joins operations ([`open_file::FileOps`]) with a place in the
//! tree ([`mount::Location`]). From the tree's side: a path ([`path`]) is walked through names
//! ([`dentry`]) and mounts ([`mount`]) to inodes ([`inode::Inode`]) of file systems
//! ([`filesystem`]), whose content lies in page caches ([`plate`]).
//!
//! This layer knows no processes: the caller's root, working directory and credentials come as a
//! [`path::Resolver`] or as credentials. The layer sleeps and wakes through `schedule`, and copies
//! bytes through [`transfer`].

pub mod ahead;
pub mod anonymous;
pub mod attributes;
pub mod content;
pub mod context;
pub mod dentry;
pub mod descriptor;
pub mod devfs;
pub mod device;
pub mod directory;
pub mod disk;
pub mod dnotify;
pub mod epoll;
pub mod eventfd;
pub mod ext4;
pub mod fasync;
pub mod fifo;
pub mod filesystem;
pub mod hash;
pub mod hint;
pub mod initramfs;
pub mod inode;
pub mod inotify;
pub mod lease;
pub mod locks;
pub mod memfd;
pub mod mount;
pub mod mounting;
pub mod notify;
pub mod off2f;
pub mod open;
pub mod open_file;
pub mod overlay;
pub mod owner;
pub mod pages;
pub mod path;
pub mod pipe;
pub mod pipe_limits;
pub mod plate;
pub mod poll;
pub mod port;
pub mod reclaim;
pub mod resources;
pub mod root;
pub mod set_id;
pub mod splice;
mod test;
pub mod timerfd;
pub mod tmpfs;
pub mod transfer;
pub mod tty;
pub mod users;
pub mod xattr;

/// Makes the first root, an empty tmpfs, and registers the file systems and devices that need no
/// hardware. Called once at boot, before a file is opened.
pub fn init() {
    hash::init();
    filesystem::register_type(&tmpfs::TYPE);
    filesystem::register_type(&tmpfs::RAMFS);
    ext4::register();
    overlay::register();
    devfs::init();
    memfd::init();
    resources::register();
    reclaim::init();
    let owner = inode::Owner::default();
    let root = tmpfs::TmpFs::new("rootfs", 0o755, owner, None, filesystem::Caching::All);
    mount::set_root(mount::Mount::whole(root, 0, "rootfs".into()));
}

/// Makes the nodes of the disks and ports that were found. Called after [`crate::device::init`].
pub fn init_devices() -> hayate_abi::Result<()> {
    disk::init();
    if !disk::disks().is_empty() {
        ahead::start()?;
    }
    port::init()
}

/// Waits until the host has all output that programs wrote to the console (at most one second) and
/// to ports (at most five seconds each): output that is still queued when the machine is switched
/// off is lost.
pub fn settle_output() {
    tty::console::settle();
    crate::device::virtio_console::drain();
}
