//! The areas of non-volatile memory, each with its store, and the texts in use.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_nvm_store::{Fault, Identity, Store};
use machine::nvm::{Area, Extent, areas};
use machine::paging::{Access, Prebuilt};
use machine::sync::{Once, SpinLock};
use machine::{boot, info, warn};

use super::memory::Memory;
use crate::drivers::virtio_pmem;
use crate::schedule::Mutex;

/// An area with its store.
pub struct Bank {
    pub(super) memory: Memory,
    /// `None` if there is no store on the area.
    pub(super) store: Mutex<Option<Store<Memory>>>,
    pub(super) in_use: SpinLock<BTreeMap<Identity, Weak<Text>>>,
}

/// A text in use.
pub struct Text {
    extent: Extent,
    /// Shared page tables over 512 pages each, by their first page; for programs that execute the
    /// text. Each is built when first asked for.
    tables: SpinLock<BTreeMap<u32, Arc<Prebuilt>>>,
}

impl Text {
    /// Returns the memory where it lies.
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Returns the shared, executable page table over the 512 pages from `page` on; `None` without
    /// memory for it, or if the text has fewer pages.
    pub fn table(&self, page: u32) -> Option<Arc<Prebuilt>> {
        let mut tables = self.tables.lock();
        if let Some(table) = tables.get(&page) {
            return Some(table.clone());
        }
        let access = Access { read: true, write: false, execute: true };
        let part = self.extent.part(page, 512)?;
        let table = Arc::new(Prebuilt::new(&part, access)?);
        tables.insert(page, table.clone());
        Some(table)
    }
}

static BANKS: Once<Vec<Bank>> = Once::new();

/// Returns all areas with their stores.
pub fn banks() -> &'static [Bank] {
    BANKS.get().map_or(&[], |banks| banks)
}

/// Opens the stores. Called once at boot, when sleeping locks work and devices have been found.
pub fn init() {
    let devices = virtio_pmem::found().into_iter().map(Memory::of_device);
    let memories = areas().iter().map(Memory::new).chain(devices);
    BANKS.call_once(|| memories.map(Bank::open).collect());
}

impl Bank {
    // Under a name of its own, by which the check of frames knows it (cli/src/test/stack.rs).
    #[inline(never)]
    fn open(memory: Memory) -> Bank {
        let area = memory.area();
        let place = area.address();
        let store = match Store::open(memory) {
            Ok(store) => Some(store),
            Err(Fault::NotFormatted) if may_format(area) => Bank::format(memory),
            Err(fault) => {
                warn!("nvm: {place:#x}: {fault}; \"nvm format\" would make a new one");
                None
            }
        };
        if let Some(store) = &store {
            let usage = store.usage();
            info!(
                "nvm: {:?} at {place:#x}: {} texts in {} of {} pages",
                area.kind(),
                usage.texts,
                usage.used,
                usage.total
            );
            if store.damaged() != 0 {
                warn!("nvm: {place:#x}: {} damaged entries left out", store.damaged());
            }
        }
        Bank { memory, store: Mutex::new(store), in_use: SpinLock::new(BTreeMap::new()) }
    }

    pub(super) fn format(memory: Memory) -> Option<Store<Memory>> {
        let mut id = [0; 16];
        for (half, word) in id.chunks_mut(8).zip([crate::random::word(), crate::random::word()]) {
            half.copy_from_slice(&word.to_le_bytes());
        }
        let place = memory.area().address();
        let made = Store::format(memory, id);
        made.inspect_err(|fault| warn!("nvm: {place:#x}: {fault}")).ok()
    }

    /// Returns the area.
    pub fn area(&self) -> &'static Area {
        self.memory.area()
    }

    /// Calls `look` with the store, if there is one.
    pub fn with_store<T>(&self, look: impl FnOnce(&Store<Memory>) -> T) -> Option<T> {
        self.store.lock().as_ref().map(look)
    }

    /// Returns the number of references to a text.
    pub fn users(&self, identity: &Identity) -> usize {
        self.in_use.lock().get(identity).map_or(0, Weak::strong_count)
    }

    /// Returns the text of this identity, if it is here.
    fn find(&self, identity: &Identity) -> Result<Option<Arc<Text>>> {
        let store = self.store.lock();
        let Some(store) = store.as_ref() else { return Ok(None) };
        if let Some(text) = self.in_use.lock().get(identity).and_then(Weak::upgrade) {
            return Ok(Some(text));
        }
        let Some(found) = store.find(identity) else { return Ok(None) };
        if boot::flag("nvm_verify") {
            store.verify(found).map_err(errno)?;
        }
        let extent = self.area().extent(found.first, found.pages).ok_or(Errno::EIO)?;
        let text = Arc::new(Text { extent, tables: SpinLock::new(BTreeMap::new()) });
        let mut in_use = self.in_use.lock();
        // Swept only at some sizes: sweeping at each start would cost time for all running
        // programs.
        if in_use.len().is_power_of_two() {
            in_use.retain(|_, text| text.strong_count() != 0);
        }
        in_use.insert(*identity, Arc::downgrade(&text));
        Ok(Some(text))
    }
}

/// Whether an area without a store gets one without being asked for.
fn may_format(area: &Area) -> bool {
    let mut page = [0xff; 4096];
    area.kind() == machine::nvm::AreaKind::Pseudo
        || (area.read(0, &mut page) && page.iter().all(|&byte| byte == 0))
}

/// Returns the text of this identity, with `pages` pages.
///
/// * `ENOMEDIUM`: it is on no area.
/// * `EBADMSG`: it does not match its identity, or has another length.
pub fn find(identity: &Identity, pages: u32) -> Result<Arc<Text>> {
    for bank in banks() {
        if let Some(text) = bank.find(identity)? {
            return if text.extent.count() == pages { Ok(text) } else { Err(Errno::EBADMSG) };
        }
    }
    Err(Errno::ENOMEDIUM)
}

pub(super) fn errno(fault: Fault) -> Errno {
    match fault {
        Fault::NotFormatted | Fault::TooSmall | Fault::Truncated => Errno::ENOMEDIUM,
        Fault::Full | Fault::DirectoryFull => Errno::ENOSPC,
        Fault::Unknown => Errno::ENOENT,
        Fault::Exists => Errno::EEXIST,
        Fault::Damaged => Errno::EBADMSG,
        Fault::Device => Errno::EIO,
        Fault::Memory => Errno::ENOMEM,
    }
}
