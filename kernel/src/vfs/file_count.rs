//! How many files are open in the machine, and how many may be (`fs.file-nr`, `fs.file-max`).
//!
//! An open file is memory of the kernel that belongs to no process that could be ended for it. So
//! the open files of all users together are limited: `ENFILE` beyond [`MAX`], except for root
//! (`alloc_empty_file`, fs/file_table.c).
//!
//! Each processor has a credit: files that it may open without asking the others. It is taken from
//! the common count in batches, and so is what exceeds two of them given back. A count near the
//! limit is exact, but for what other processors have as credit: as many files more may be open. On
//! Linux too, the processors' own counts are added up only beyond the limit.
//!
//! No lock. A credit is changed by its own processor alone, and the kernel is never preempted, so a
//! load and a store change it.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hayate_abi::{Errno, Result};
use hayate_machine::cpu::{MAX_CPUS, PerCpu};
use hayate_machine::{frames, per_cpu};

use super::caller;
use super::users::Limit;
use crate::credentials::Capability;

/// The files by which a credit grows.
const BATCH: usize = 32;
/// The least limit at first (`NR_FILE`).
const LEAST: usize = 8192;

/// How many files may be open for users without privilege. At first a file for each 10 KiB of
/// memory, as on Linux (`files_maxfiles_init`).
pub static MAX: Limit = Limit::new(|| (frames::total() * 4 / 10).max(LEAST));

/// The files that are open, and the credits of all processors.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

per_cpu! {
    static CREDIT: PerCpu<AtomicUsize> = PerCpu::new(AtomicUsize::new(0));
}

/// Returns how many files are open.
pub fn open_files() -> usize {
    let credits = (0..MAX_CPUS).filter_map(|cpu| CREDIT.of(cpu));
    let credit: usize = credits.map(|credit| credit.load(Relaxed)).sum();
    // Another processor may be between the two counts.
    TAKEN.load(Relaxed).saturating_sub(credit)
}

/// Counts the open file that it is a part of, as long as there is that file.
pub struct Counted(());

impl Counted {
    /// Counts a file that is about to be open.
    ///
    /// # Errors
    /// `ENFILE`: too many are, and the caller is not privileged (`CAP_SYS_ADMIN`).
    #[inline]
    pub fn new() -> Result<Counted> {
        let credit = CREDIT.here();
        match credit.load(Relaxed) {
            0 => take_more()?,
            files => credit.store(files - 1, Relaxed),
        }
        Ok(Counted(()))
    }
}

impl Drop for Counted {
    #[inline]
    fn drop(&mut self) {
        let credit = CREDIT.here();
        let files = credit.load(Relaxed) + 1;
        if files < 2 * BATCH {
            credit.store(files, Relaxed);
        } else {
            credit.store(files - BATCH, Relaxed);
            TAKEN.fetch_sub(BATCH, Relaxed);
        }
    }
}

/// Counts a file of this processor, whose credit is used up: takes a batch, or near the limit this
/// file alone. `ENFILE`.
#[cold]
fn take_more() -> Result<()> {
    let most = MAX.get();
    let with_batch = |taken: usize| taken.checked_add(BATCH).filter(|&sum| sum <= most);
    if TAKEN.fetch_update(Relaxed, Relaxed, with_batch).is_ok() {
        CREDIT.here().store(BATCH - 1, Relaxed);
        return Ok(());
    }
    if open_files() >= most && !caller::has(Capability::SysAdmin) {
        return Err(Errno::ENFILE);
    }
    TAKEN.fetch_add(1, Relaxed);
    Ok(())
}
