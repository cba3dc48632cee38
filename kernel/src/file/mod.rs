//! Files: the tree, what lies in it, and the descriptors that programs hold.
//!
//! From the program's side: a descriptor ([`descriptor::FdTable`]) leads to an open file
//! ([`open_file::OpenFile`]), which joins operations ([`open_file::FileOps`]) with a place in the
//! tree ([`mount::Location`]). From the tree's side: a path ([`path`]) is walked through names
//! ([`dentry`]) and mounts ([`mount`]) to inodes ([`inode::Inode`]) of file systems
//! ([`filesystem`]), whose content lies in plates ([`plate`]).
//!
//! This layer knows no processes: who asks comes as [`path::Resolver`] or credentials. It sleeps
//! and wakes through `schedule`, and moves bytes through [`transfer`].

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

/// Makes the first root, an empty tmpfs, and registers the types and devices that need no
/// hardware. Boot calls it once, before anything opens a file.
pub fn init() {
    hash::init();
    filesystem::register_type(&tmpfs::TYPE);
    filesystem::register_type(&tmpfs::RAMFS);
    ext4::register();
    overlay::register();
    devfs::init();
    resources::register();
    reclaim::init();
    let owner = inode::Owner::default();
    let root = tmpfs::TmpFs::new("rootfs", 0o755, owner, None, filesystem::Caching::All);
    mount::set_root(mount::Mount::whole(root, 0, b"rootfs"));
}

/// Makes the nodes of the devices that were found, and the console. After [`crate::device::init`].
pub fn init_devices() -> hayate_abi::Result<()> {
    disk::init();
    if !disk::disks().is_empty() {
        ahead::start()?;
    }
    port::init()
}

/// Waits until what programs wrote to the console and to ports is with the host, a second each at
/// most: what is in a queue when the machine goes off is lost.
pub fn settle_output() {
    tty::console::settle();
    crate::device::virtio_console::drain();
}
