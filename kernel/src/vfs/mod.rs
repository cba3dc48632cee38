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

pub mod anonymous;
pub mod attributes;
pub mod content;
pub mod context;
pub mod dentry;
pub mod descriptor;
pub mod device;
pub mod directory;
pub mod dnotify;
pub mod fasync;
pub mod filesystem;
pub mod hint;
pub mod inode;
pub mod lease;
pub mod locks;
pub mod mount;
pub mod mount_tree;
pub mod notify;
pub mod open;
pub mod open_file;
pub mod path;
pub mod poll;
pub mod reclaim;
pub mod resources;
pub mod set_id;
pub mod signal_owner;
pub mod transfer;
pub mod users;

/// Draws the keys of hashes and registers what is listed and reclaimed. Called once at boot, before
/// [`crate::fs::init`].
pub fn init() {
    crate::hash::init();
    resources::register();
    reclaim::init();
}
