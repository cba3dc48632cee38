//! Program records: what is known of an executable, so that it is parsed once.
//!
//! A record depends on the file's content alone. It is found by the file's page cache and its
//! version, and serves every name and every user of the file; whether a caller may execute the file
//! is checked elsewhere, each time. Records of `#!` scripts are not kept: reading the line is
//! faster than the lookup.
//!
//! Each processor has a pool of its own for some dozen programs, whose lock is a leaf.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use hayate_abi::{Errno, Result};
use hayate_program_image::Plan;
use hayate_recycler::{Content, Keep, Kind, Pool};
use machine::cpu::{self, MAX_CPUS};
use machine::sync::SpinLock;

use super::{policy, pools, statistics};
use crate::program::executable::Executable;
use crate::program::load;
use crate::schedule::time;

/// What is known of an executable.
pub struct Record {
    /// Its mappings.
    pub plan: Plan,
    /// The path of its interpreter.
    pub interpreter: Option<Vec<u8>>,
    since: u64,
    bytes: usize,
}

type Part = SpinLock<Pool<Content, Arc<Record>>>;

static PARTS: [Part; MAX_CPUS] = [const { SpinLock::new(Pool::new(0)) }; MAX_CPUS];
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// The pools of records, for [`pools`].
struct Programs;

/// The most memory for records on each processor, in bytes: a hundred programs.
const SHARE: usize = 64 << 10;

/// Registers the pools; boot calls it once.
pub fn init() {
    pools::Keeper::set_limit(&Programs, SHARE * cpu::count());
    pools::register(&Programs);
}

/// The key of a record, which does not depend on the file's name.
fn key(executable: &Executable) -> Content {
    let page_cache = executable.page_cache();
    Content { page_cache: page_cache.id(), version: page_cache.version(), place: (0, 0) }
}

/// Returns the record of an executable, if one is kept.
pub fn find(executable: &Executable) -> Option<Arc<Record>> {
    if !policy::keeps(Keep::PROGRAM) {
        return None;
    }
    let record = PARTS[cpu::id()].lock().get(&key(executable)).cloned()?;
    statistics::shared(Kind::Program);
    Some(record)
}

/// Makes the record of an ELF file, whose first bytes are `head`, and keeps it if the policy
/// allows.
///
/// # Errors
/// `ENOEXEC`, `ENOMEM`, `EIO`.
pub fn make(executable: &Executable, head: &[u8]) -> Result<Arc<Record>> {
    let plan = load::plan(executable, head)?;
    let interpreter = load::interpreter_path(executable, &plan)?;
    let bytes = size_of::<Record>()
        + size_of_val(plan.segments.as_slice())
        + interpreter.as_ref().map_or(0, Vec::len);
    let record = Arc::new(Record { plan, interpreter, since: time::monotonic_ns(), bytes });
    statistics::made(Kind::Program);
    if policy::keeps(Keep::PROGRAM) {
        let part = &PARTS[cpu::id()];
        let kept = part.lock().keep(key(executable), record.clone(), bytes);
        if kept.is_ok() {
            statistics::stored(Kind::Program, bytes);
            drop_excess(part);
        }
    }
    Ok(record)
}

/// Returns the record of an interpreter.
///
/// # Errors
/// As [`make`], and `ELIBBAD` if the file is not ELF.
pub fn of_interpreter(executable: &Executable) -> Result<Arc<Record>> {
    if let Some(record) = find(executable) {
        return Ok(record);
    }
    let (bytes, length) = load::head(executable)?;
    make(executable, bytes.get(..length).unwrap_or(&bytes))
        .map_err(|error| if error == Errno::ENOEXEC { Errno::ELIBBAD } else { error })
}

fn drop_excess(part: &Part) {
    loop {
        let gone = part.lock().excess();
        let Some(gone) = gone else { return };
        statistics::dropped(Kind::Program, gone.bytes);
    }
}

/// When the oldest record of a part was made.
fn oldest(part: &Part) -> Option<u64> {
    part.lock().iter().next().map(|kept| kept.value.since)
}

impl pools::Keeper for Programs {
    fn kind(&self) -> Kind {
        Kind::Program
    }

    fn is_wanted(&self) -> bool {
        policy::keeps(Keep::PROGRAM)
    }

    fn limit(&self) -> usize {
        LIMIT.load(Relaxed)
    }

    fn set_limit(&self, bytes: usize) {
        LIMIT.store(bytes, Relaxed);
        for part in &PARTS {
            part.lock().set_limit(bytes / cpu::count().max(1));
            drop_excess(part);
        }
    }

    fn oldest(&self) -> Option<u64> {
        PARTS.iter().filter_map(oldest).min()
    }

    fn drop_oldest(&self) -> Option<usize> {
        let ages = PARTS.iter().filter_map(|part| Some((oldest(part)?, part)));
        let (_, part) = ages.min_by_key(|(since, _)| *since)?;
        let gone = part.lock().take_oldest()?;
        statistics::dropped(Kind::Program, gone.value.bytes);
        Some(gone.value.bytes)
    }

    fn forget_page_cache(&self, id: u64) {
        for part in &PARTS {
            loop {
                let gone = part.lock().take_where(|key, _| key.page_cache == id);
                let Some(gone) = gone else { break };
                statistics::dropped(Kind::Program, gone.bytes);
            }
        }
    }
}
