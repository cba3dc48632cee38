//! Program records: the facts of an executable, kept so that it is parsed once.
//!
//! A record depends on the file's content alone. It is found by the file's page cache and its
//! version, and serves every name and every user of the file; whether a caller may execute the file
//! is checked elsewhere, each time. Records of `#!` scripts are not kept: reading the line is
//! faster than the lookup.
//!
//! They are in a [`PerCpuPool`] with room for some hundred programs on each processor. A record is
//! shared, not taken, so the parts of other processors are not searched: each processor parses a
//! program once.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_program_image::Plan;
use hayate_recycler::{ContentKey, KeptKinds, ResourceKind};
use machine::cpu;

use super::per_cpu_pool::{PerCpuPool, Resource};
use super::{policy, statistics};
use crate::program::executable::Executable;
use crate::program::load;
use crate::schedule::time;

/// The facts of an executable.
pub struct ProgramRecord {
    /// Its mappings.
    pub plan: Plan,
    /// The path of its interpreter.
    pub interpreter: Option<Vec<u8>>,
    since: u64,
}

/// The most memory for records on each processor, in bytes: a hundred programs.
const SHARE: usize = 64 << 10;

static POOL: PerCpuPool<Arc<ProgramRecord>> = PerCpuPool::new();

impl Resource for Arc<ProgramRecord> {
    type Key = ContentKey;

    const KIND: ResourceKind = ResourceKind::Program;
    const KNOWS_AGES: bool = false;

    fn is_wanted() -> bool {
        policy::keeps(KeptKinds::PROGRAM)
    }

    fn since(&self) -> u64 {
        self.since
    }

    fn refers_to(&self, key: &ContentKey, page_cache: u64) -> bool {
        key.page_cache == page_cache
    }
}

/// Sets the limit and registers the pool; boot calls it once.
pub fn init() {
    POOL.init(SHARE * cpu::count());
}

/// The key of a record, which does not depend on the file's name.
fn key(executable: &Executable) -> ContentKey {
    let page_cache = executable.page_cache();
    ContentKey { page_cache: page_cache.id(), version: page_cache.version(), place: (0, 0) }
}

/// Returns the record of an executable, if one is kept.
pub fn find(executable: &Executable) -> Option<Arc<ProgramRecord>> {
    if !policy::keeps(KeptKinds::PROGRAM) {
        return None;
    }
    POOL.share(&key(executable))
}

/// Makes the record of an ELF file, whose first bytes are `head`, and keeps it if the policy
/// allows.
///
/// # Errors
/// `ENOEXEC`, `ENOMEM`, `EIO`.
pub fn make(executable: &Executable, head: &[u8]) -> Result<Arc<ProgramRecord>> {
    let plan = load::plan(executable, head)?;
    let interpreter = load::interpreter_path(executable, &plan)?;
    let bytes = size_of::<ProgramRecord>()
        + size_of_val(plan.segments.as_slice())
        + interpreter.as_ref().map_or(0, Vec::len);
    let record = Arc::new(ProgramRecord { plan, interpreter, since: time::monotonic_ns() });
    statistics::made(ResourceKind::Program);
    if policy::keeps(KeptKinds::PROGRAM) {
        POOL.store(key(executable), record.clone(), bytes);
    }
    Ok(record)
}

/// Returns the record of an interpreter.
///
/// # Errors
/// As [`make`], and `ELIBBAD` if the file is not ELF.
pub fn of_interpreter(executable: &Executable) -> Result<Arc<ProgramRecord>> {
    if let Some(record) = find(executable) {
        return Ok(record);
    }
    let (bytes, length) = load::head(executable)?;
    make(executable, bytes.get(..length).unwrap_or(&bytes))
        .map_err(|error| if error == Errno::ENOEXEC { Errno::ELIBBAD } else { error })
}
