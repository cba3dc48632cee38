//! Handles of files of a tmpfs (mm/shmem.c, `shmem_encode_fh`).
//!
//! A handle is the number of the file and a generation, which no two file systems have in common.
//! Numbers are not used again, so the generation is made of the number and a random word of the
//! file system, and takes no memory in the file.
//!
//! Files are found by their numbers in a table in which only those are of which a handle was made,
//! as Linux hashes such inodes then. A file that ends leaves it; a file system without handles asks
//! one number for that.
//!
//! Lock order: the table is a spin lock and a leaf.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use hayate_abi::{Errno, Result};
use hayate_machine::sync::{Once, SpinLock};

use crate::random;
use crate::vfs::handle::Handle;
use crate::vfs::inode::Inode;

/// The type that Linux gives such handles.
const KIND: i32 = 1;

/// The files that have handles.
#[derive(Default)]
pub struct Handles {
    count: AtomicU64,
    files: SpinLock<BTreeMap<u64, Weak<dyn Inode>>>,
    /// Drawn for the first handle.
    secret: Once<u64>,
}

impl Handles {
    /// Whether any file may have one.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    fn generation(&self, number: u64) -> u32 {
        let secret = *self.secret.call_once(random::word);
        let mixed = (number ^ secret).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as u32 ^ (secret >> 32) as u32
    }

    /// Makes the handle of a file.
    pub fn make(&self, number: u64, inode: &Arc<dyn Inode>) -> Handle {
        let mut files = self.files.lock();
        files.insert(number, Arc::downgrade(inode));
        self.count.store(files.len() as u64, Relaxed);
        drop(files);
        let words = [self.generation(number), number as u32, (number >> 32) as u32];
        Handle::of_words(KIND, &words)
    }

    /// The file of a handle. `ESTALE`.
    pub fn find(&self, handle: &Handle) -> Result<Arc<dyn Inode>> {
        let [generation, low, high] = handle.words()?;
        let number = u64::from(low) | u64::from(high) << 32;
        let found = self.files.lock().get(&number).and_then(Weak::upgrade);
        found.filter(|_| self.generation(number) == generation).ok_or(Errno::ESTALE)
    }

    /// A file ends.
    #[cold]
    pub fn forget(&self, number: u64) {
        let mut files = self.files.lock();
        let gone = files.remove(&number);
        self.count.store(files.len() as u64, Relaxed);
        drop(files);
        drop(gone);
    }
}
