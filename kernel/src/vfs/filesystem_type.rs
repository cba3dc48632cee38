//! The types of file systems that can be mounted, and their registry.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::SpinLock;

use super::filesystem::FileSystem;
use super::mount::Location;
use super::path::{Resolver, WalkFlags};
use crate::credentials::Credentials;
use crate::namespace::Handle;
use crate::user_namespace::{self, UserNamespace};

/// The arguments of `mount(2)`.
pub struct MountRequest<'a> {
    /// The source as given: a device's path or any word.
    pub source: &'a [u8],
    /// `MS_*` flags.
    pub flags: u64,
    /// Options, comma-separated.
    pub data: &'a [u8],
    /// Resolves paths in the source or the options.
    pub resolver: &'a Resolver<'a>,
}

impl MountRequest<'_> {
    /// Returns the options as pairs of key and value (empty without `=`).
    pub fn options(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        options(self.data)
    }

    /// Returns the file that the source names, for file systems on a device.
    pub fn source_location(&self) -> Result<Location> {
        self.resolver.resolve(self.source, WalkFlags::empty())
    }
}

/// Returns options as pairs of key and value (empty without `=`).
pub fn options(data: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    data.split(|&byte| byte == b',').filter(|word| !word.is_empty()).map(|word| {
        match word.iter().position(|&byte| byte == b'=') {
            Some(at) => (&word[..at], &word[at + 1..]),
            None => (word, &word[word.len()..]),
        }
    })
}

/// A type of file system that can be mounted.
pub struct FileSystemType {
    /// Its name for `mount(2)`.
    pub name: &'static str,
    /// Whether it lives on a block device (`nodev` in `/proc/filesystems` otherwise).
    pub needs_device: bool,
    /// The user namespace that a new mount of it belongs to, and of which its maker must be an
    /// administrator: the first, unless users may mount it in theirs (`FS_USERNS_MOUNT`).
    pub user: fn(&Credentials) -> Handle<UserNamespace>,
    /// Makes a mounted instance.
    pub mount: fn(&MountRequest<'_>) -> Result<Arc<dyn FileSystem>>,
}

/// [`FileSystemType::user`] of a type that only the machine's administrator mounts.
pub fn of_machine(_: &Credentials) -> Handle<UserNamespace> {
    user_namespace::first()
}

/// [`FileSystemType::user`] of a type that every administrator mounts.
pub fn of_mounter(mounter: &Credentials) -> Handle<UserNamespace> {
    mounter.user.clone()
}

static TYPES: SpinLock<Vec<&'static FileSystemType>> = SpinLock::new(Vec::new());

/// Registers a type for `mount(2)` and `/proc/filesystems`.
pub fn register_type(kind: &'static FileSystemType) {
    TYPES.lock().push(kind);
}

/// Returns the registered type with this name; `ENODEV` when there is none (`mount(2)`).
pub fn find_type(name: &[u8]) -> Result<&'static FileSystemType> {
    TYPES.lock().iter().copied().find(|kind| kind.name.as_bytes() == name).ok_or(Errno::ENODEV)
}

/// Returns all registered types, for `/proc/filesystems`.
pub fn types() -> Vec<&'static FileSystemType> {
    TYPES.lock().clone()
}
