//! The registry from device numbers to drivers, used to open a device node of any file system.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::RwSpinLock;

use super::inode::{DeviceNumber, FileKind};
use super::open_file::{FileOps, OpenRequest};

/// A driver of a device, as seen by the file layer.
pub trait Device: Send + Sync {
    /// Opens the device; returns the operations of the open file.
    fn open(&self, number: DeviceNumber, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>>;
}

/// A device for which every open returns the same operations.
pub struct Shared<T: FileOps>(pub Arc<T>);

impl<T: FileOps> Device for Shared<T> {
    fn open(&self, _: DeviceNumber, _: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        Ok(self.0.clone())
    }
}

struct Entry {
    device: Arc<dyn Device>,
    name: &'static str,
}

type Registry = BTreeMap<(bool, DeviceNumber), Entry>;

static REGISTRY: RwSpinLock<Registry> = RwSpinLock::new(Registry::new());

/// Registers the driver of one device number. `kind` is `CharDevice` or `BlockDevice`; `name`
/// shows in `/proc/devices`.
pub fn register(kind: FileKind, number: DeviceNumber, name: &'static str, device: Arc<dyn Device>) {
    let key = (kind == FileKind::BlockDevice, number);
    let old = REGISTRY.write().insert(key, Entry { device, name });
    drop(old);
}

/// Returns the driver of a device; `ENXIO` when there is none (`open(2)`).
pub fn find(kind: FileKind, number: DeviceNumber) -> Result<Arc<dyn Device>> {
    let registry = REGISTRY.read();
    let key = (kind == FileKind::BlockDevice, number);
    registry.get(&key).map(|entry| Arc::clone(&entry.device)).ok_or(Errno::ENXIO)
}

/// Returns majors and names of all devices of a kind, each once, for `/proc/devices`.
pub fn majors(kind: FileKind) -> Vec<(u32, &'static str)> {
    let wanted = kind == FileKind::BlockDevice;
    let registry = REGISTRY.read();
    let mut list: Vec<(u32, &'static str)> = registry
        .iter()
        .filter(|((block, _), _)| *block == wanted)
        .map(|((_, number), entry)| (number.major, entry.name))
        .collect();
    list.dedup_by_key(|entry| entry.0);
    list
}
