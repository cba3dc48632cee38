//! The object behind a node of any file system: the registry from device numbers to drivers, and
//! the pipes of FIFOs.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, RwSpinLock};

use super::inode::{DeviceNumber, FileKind, Inode};
use super::open_file::{FileOps, OpenRequest};

/// A driver of a device, as seen by the file layer.
pub trait Device: Send + Sync {
    /// Opens the device; returns the operations of the open file.
    fn open(&self, number: DeviceNumber, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>>;
}

/// A device for which every open returns the same operations.
pub struct SharedDevice<T: FileOps>(pub Arc<T>);

impl<T: FileOps> Device for SharedDevice<T> {
    fn open(&self, _: DeviceNumber, _: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        Ok(self.0.clone())
    }
}

/// Opens the pipe of a FIFO.
type FifoOpener = fn(&Arc<dyn Inode>, &OpenRequest<'_>) -> Result<Arc<dyn FileOps>>;

static FIFO: Once<FifoOpener> = Once::new();

/// Registers the function that opens FIFOs; at boot.
pub fn register_fifo(open: FifoOpener) {
    FIFO.call_once(|| open);
}

/// Opens a FIFO.
pub fn open_fifo(inode: &Arc<dyn Inode>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
    FIFO.get().ok_or(Errno::ENXIO)?(inode, request)
}

/// Fails with `EPERM` if the caller may not read (4), write (2) or make (8) a device.
type Rules = fn(FileKind, DeviceNumber, u32) -> Result<()>;

static RULES: Once<Rules> = Once::new();

/// Another right to a device beside [`access`](crate::credentials::access): to make a node of it.
pub const MAKE: u32 = 8;

/// Registers the function that knows who may use which devices, when the first rule is made; later
/// calls change nothing.
pub fn register_rules(rules: Rules) {
    RULES.call_once(|| rules);
}

/// Fails with `EPERM` if the caller may not use a device so
/// ([`access`](crate::credentials::access), [`MAKE`]), whoever owns the node. Its number is asked
/// for if there are rules at all.
#[inline]
pub fn require_allowed(
    kind: FileKind,
    number: impl FnOnce() -> Result<DeviceNumber>,
    wanted: u32,
) -> Result<()> {
    match RULES.get() {
        None => Ok(()),
        Some(rules) => rules(kind, number()?, wanted),
    }
}

struct Driver {
    device: Arc<dyn Device>,
    name: &'static str,
}

type Registry = BTreeMap<(bool, DeviceNumber), Driver>;

static REGISTRY: RwSpinLock<Registry> = RwSpinLock::new(Registry::new());

/// Registers the driver of one device number. `kind` is `CharDevice` or `BlockDevice`; `name`
/// shows in `/proc/devices`.
pub fn register(kind: FileKind, number: DeviceNumber, name: &'static str, device: Arc<dyn Device>) {
    let key = (kind == FileKind::BlockDevice, number);
    let old = REGISTRY.write().insert(key, Driver { device, name });
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
