//! Files through which processes talk to each other and wait for each other.
//!
//! Each is an open file ([`crate::vfs::open_file::FileOps`]) whose content is no file system's:
//! bytes in a ring ([`pipe`]), messages ([`unix`]), counts and expirations ([`eventfd`],
//! [`timerfd`]), events of other files ([`epoll`]) and of directories ([`inotify`]). [`splice`]
//! moves data between them and files of file systems. [`aio`] has the rings in which asynchronous
//! requests end, [`mqueue`] the message queues of POSIX, which are files of a file system of their
//! own, and [`sysv`] the objects of System V, which are no files. The last two use [`account`],
//! [`actor`] and [`message`], and belong to a [`namespace`].

pub mod account;
pub mod actor;
pub mod aio;
pub mod epoll;
pub mod eventfd;
pub mod inotify;
pub mod message;
pub mod mqueue;
pub mod namespace;
pub mod pipe;
pub mod splice;
pub mod sysv;
pub mod timerfd;
pub mod unix;

/// Registers with the virtual file system what opens FIFOs and what tells watchers of files. Boot
/// calls it once, after [`crate::vfs::init`].
pub fn init() {
    inotify::init();
    mqueue::init();
    crate::vfs::device::register_fifo(pipe::fifo::open);
}
