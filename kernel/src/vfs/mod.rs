//! Files: the tree, what lies in it, and the descriptors that programs hold.
//!
//! From the program's side: a descriptor ([`descriptor::FdTable`]) leads to an open file
//! ([`open_file::OpenFile`]), which joins operations ([`open_file::FileOps`]) with a place in the
//! tree ([`mount::Location`]). From the tree's side: a path ([`path`]) is walked through names
//! ([`dentry`]) and mounts ([`mount`]) to inodes ([`inode::Inode`]) of file systems
//! ([`filesystem`]), whose content lies in page caches ([`crate::page_cache`]).
//!
//! This layer knows no processes: the caller's root, working directory and credentials come as a
//! [`path::Resolver`] or as credentials. The layer sleeps and wakes through `schedule`, and copies
//! bytes through [`transfer`].
//!
//! # Layers, lowest first
//!
//! | file | contents |
//! |---|---|
//! | [`attributes`] | plain data: kinds, device numbers, times, metadata |
//! | [`transfer`] | bytes copied from and to programs and frames |
//! | `registered` | a list of what upper modules register with lower ones at boot |
//! | [`caller`] | what files need to know of the calling process |
//! | [`users`] | what each user holds of limited objects |
//! | [`signal_owner`] | the process that gets the signals of one open file (`F_SETOWN`) |
//! | [`fasync`] | an object's list of the open files that want signals (`O_ASYNC`) |
//! | [`poll`] | readiness: the events, and how a file shows its wait queues |
//! | [`watch`] | file events, and the interfaces that tell programs of them |
//! | [`inode`] | the operations of a file system for each file |
//! | [`filesystem`] | one mounted file system |
//! | [`dentry`] | names in a directory, cached |
//! | [`entries`] | the names of a directory that is only in memory |
//! | [`mount`] | a file system at a place; [`mount::Location`], a place in the tree |
//! | `location` | what is at a place, and the path to it |
//! | `mount_locks` | what is locked of a mount in a namespace with fewer rights |
//! | [`propagation`] | how mounts share what is mounted on them |
//! | `mount_index` | all mounts, by what they hang on and by groups |
//! | `mount_trees` | mounted file systems, each with its dentries and its mounts |
//! | `mount_copy`, `graft` | copies of trees of mounts; attaching one where others share |
//! | [`socket_options`] | options that sockets of every family have |
//! | [`open_file`] | an open file and its operations: the object behind descriptors |
//! | [`socket`] | the operations of sockets, whatever their family |
//! | [`descriptor`] | the table from small numbers to open files |
//! | [`device`] | the drivers and FIFOs behind nodes |
//! | [`anonymous`] | files without a path |
//! | [`socket_family`] | the families of sockets, and the open files of sockets |
//! | [`content`] | reads and writes through the page cache |
//! | [`hint`] | the expected lifetime of data (`F_SET_RW_HINT`) |
//! | [`poll_wait`] | waiting for several files (`poll`, `select`) |
//! | [`notify`] | reports of file events by the operations below |
//! | [`dnotify`] | watches of directories by a signal (`F_NOTIFY`); inotify is in [`crate::ipc`] |
//! | [`lock_owner`], [`locks`], [`lease`] | record locks, `flock`, leases |
//! | [`context`] | root, working directory and umask of a process |
//! | [`path`] | from the text of a path to a place |
//! | [`filesystem_type`] | the types of file systems that can be mounted |
//! | [`set_id`] | when set-id bits are dropped |
//! | [`directory`] | calls that change names: `mkdir`, `link`, `rename` and so on |
//! | [`mount_tree`], [`unmount`] | calls that change the tree of mounts: `mount`, `umount`, `pivot_root` |
//! | [`open`] | the call `open`, which makes an open file |
//! | [`reclaim`], [`resources`] | dropped names; page caches in the registry of resources |
//!
//! Six of these files use each other in a circle: an inode is opened at a place and gives the
//! operations of an open file ([`inode`] -> [`mount`], [`open_file`]), an open file keeps its inode
//! and its place, a place is a dentry in a mount, and both lead to inodes and their file system; an
//! open file may be a socket, and sockets ([`socket`]) pass open files. Road not taken: generic
//! parameters or further trait objects that would untie them. Each step of a path walk and each
//! open would pay for them.
//!
//! # Lock order
//!
//! The global rename lock, then directory locks from the ancestor to the descendant ([`dentry`]),
//! then locks of a file system, then those of a page cache. The position of an open file comes
//! before all locks of its operations. Descriptor tables, record locks, leases and the lists of
//! watches and signals are spin locks and leaves.

pub mod anonymous;
pub mod attributes;
pub mod by_handle;
pub mod caller;
pub mod content;
pub mod context;
pub mod dentry;
pub mod descriptor;
pub mod device;
pub mod directory;
pub mod dnotify;
pub mod entries;
pub mod fasync;
pub mod file_count;
pub mod filesystem;
pub mod filesystem_type;
mod graft;
pub mod handle;
pub mod hint;
pub mod inode;
pub mod landlock;
pub mod lease;
mod location;
pub mod lock_owner;
pub mod locks;
pub mod mount;
pub mod mount_config;
pub mod mount_copy;
mod mount_index;
mod mount_locks;
mod mount_point;
pub mod mount_tree;
mod mount_trees;
pub mod notify;
pub mod open;
pub mod open_file;
pub mod open_flags;
pub mod path;
pub mod poll;
pub mod poll_wait;
pub mod propagation;
pub mod reclaim;
mod registered;
pub mod resources;
pub mod set_id;
pub mod signal_owner;
pub mod socket;
pub mod socket_count;
pub mod socket_family;
pub mod socket_list;
pub mod socket_options;
pub mod transfer;
pub mod unaccepted;
pub mod unmount;
pub mod users;
pub mod watch;

/// Draws the keys of hashes and registers what is listed and reclaimed. Called once at boot, before
/// [`crate::fs::init`].
pub fn init() {
    crate::hash::init();
    resources::register();
    reclaim::init();
    locks::init();
    lease::init();
    dnotify::init();
}
