//! The users of a page cache, counted: open files, running programs, writable mappings, and the
//! seals that refuse some of them.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use hayate_abi::{Errno, Result};

use super::cache::PageCache;
use super::seals::{F_SEAL_FUTURE_WRITE, F_SEAL_SEAL, F_SEAL_WRITE};

/// One open file, counted; see [`PageCache::open_for_writing`] and [`PageCache::open_for_reading`].
pub struct OpenAccess {
    page_cache: Arc<PageCache>,
    writes: bool,
}

impl OpenAccess {
    /// The content that is counted.
    pub fn page_cache(&self) -> &Arc<PageCache> {
        &self.page_cache
    }
}

impl Drop for OpenAccess {
    fn drop(&mut self) {
        if self.writes {
            self.page_cache.write_access.fetch_sub(1, Ordering::AcqRel);
        } else {
            self.page_cache.readers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// While it exists, the file cannot be opened for writing; see [`PageCache::deny_writing`].
pub struct WriteDenial(Arc<PageCache>);

impl Drop for WriteDenial {
    fn drop(&mut self) {
        self.0.write_access.fetch_add(1, Ordering::AcqRel);
    }
}

impl PageCache {
    /// Opens the file for writing; `ETXTBSY` while the file runs as a program.
    pub fn open_for_writing(self: Arc<Self>) -> Result<OpenAccess> {
        self.write_access
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count >= 0).then_some(count.saturating_add(1))
            })
            .map(|_| {
                self.version.fetch_add(1, Ordering::AcqRel);
            })
            .map_err(|_| Errno::ETXTBSY)?;
        Ok(OpenAccess { page_cache: self, writes: true })
    }

    /// Opens the file for reading only.
    pub fn open_for_reading(self: Arc<Self>) -> OpenAccess {
        // Ordered before the opener looks for leases: see `lease.rs`.
        self.readers.fetch_add(1, Ordering::SeqCst);
        OpenAccess { page_cache: self, writes: false }
    }

    /// The number of open files that only read.
    pub fn readers(&self) -> usize {
        self.readers.load(Ordering::SeqCst) as usize
    }

    /// The number of open files that may write.
    pub fn writers(&self) -> usize {
        self.write_access.load(Ordering::Acquire).max(0) as usize
    }

    /// Denies opening the file for writing (exec); `ETXTBSY` while it is open for writing.
    pub fn deny_writing(self: &Arc<Self>) -> Result<WriteDenial> {
        self.write_access
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count <= 0).then_some(count.saturating_sub(1))
            })
            .map(|_| WriteDenial(Arc::clone(self)))
            .map_err(|_| Errno::ETXTBSY)
    }

    /// Counts a writable shared mapping; `EPERM` under a write seal.
    pub fn add_writable_mapping(&self) -> Result<()> {
        if self.seals() & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        self.writable_mappings.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Counts one more writable shared mapping, made by fork or by a split.
    pub fn copy_writable_mapping(&self) {
        self.writable_mappings.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one writable shared mapping less.
    pub fn remove_writable_mapping(&self) {
        self.writable_mappings.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a writable shared mapping of the content exists.
    pub fn is_mapped_writable(&self) -> bool {
        self.writable_mappings.load(Ordering::Acquire) != 0
    }

    /// Returns the seals (`F_GET_SEALS`).
    pub fn seals(&self) -> u32 {
        self.seals.load(Ordering::Acquire)
    }

    /// Allows sealing (`MFD_ALLOW_SEALING`): a new page cache carries `F_SEAL_SEAL`.
    pub fn allow_sealing(&self) {
        self.seals.store(0, Ordering::Release);
    }

    /// Adds seals: `EPERM` under `F_SEAL_SEAL`, `EBUSY` for the write seal while there are writable
    /// mappings.
    pub fn add_seals(&self, new: u32) -> Result<()> {
        let _content = self.content.lock();
        if self.seals() & F_SEAL_SEAL != 0 {
            return Err(Errno::EPERM);
        }
        if new & F_SEAL_WRITE != 0 && self.writable_mappings.load(Ordering::Acquire) != 0 {
            return Err(Errno::EBUSY);
        }
        self.seals.fetch_or(new, Ordering::AcqRel);
        Ok(())
    }
}
