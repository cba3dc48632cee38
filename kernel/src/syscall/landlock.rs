//! `landlock_create_ruleset(2)`, `landlock_add_rule(2)`, `landlock_restrict_self(2)`
//! (security/landlock/syscalls.c of Linux 6.1).

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};
use hayate_landlock::{ABI, Access, Ruleset};
use hayate_machine::user;
use hayate_machine::user::UserPtr;

use super::file;
use crate::confinement::{Confinement, Rules};
use crate::credentials::{Capability, Credentials};
use crate::memory::PAGE;
use crate::process;
use crate::schedule::Mutex;
use crate::vfs::anonymous;
use crate::vfs::landlock;
use crate::vfs::open_file::flags::O_RDWR;
use crate::vfs::open_file::{FileOps, OpenFile, Traits};

/// Flag of `landlock_create_ruleset`: tell the version.
const VERSION: u32 = 1;
/// The kind of rules about files.
const PATH_BENEATH: i32 = 1;
/// The size of `struct landlock_ruleset_attr`, as it was first.
const ATTRIBUTES: usize = 8;
/// The size of `struct landlock_path_beneath_attr`, which is packed.
const BENEATH: usize = 12;

/// A ruleset that a program puts together.
struct RulesetFile(Mutex<Rules>);

impl FileOps for RulesetFile {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }
}

/// `landlock_create_ruleset(2)`
pub fn create_ruleset(attributes: usize, size: usize, flags: u32) -> Result<i32> {
    if flags != 0 {
        let asks = flags == VERSION && attributes == 0 && size == 0;
        return if asks { Ok(ABI) } else { Err(Errno::EINVAL) };
    }
    if attributes == 0 {
        return Err(Errno::EFAULT);
    }
    if size < ATTRIBUTES {
        return Err(Errno::EINVAL);
    }
    if size > PAGE {
        return Err(Errno::E2BIG);
    }
    let mut bytes = [0; ATTRIBUTES];
    user::copy_in_growing(&mut bytes, attributes, size)?;
    let handled = Access::from_bits(u64::from_ne_bytes(bytes)).ok_or(Errno::EINVAL)?;
    if handled.is_empty() {
        return Err(Errno::ENOMSG);
    }
    let ruleset = Arc::new(RulesetFile(Mutex::new(Ruleset::new(handled))));
    file::install(anonymous::open("[landlock-ruleset]", ruleset, O_RDWR)?, true)
}

/// The file of a ruleset's descriptor: `EBADF`, `EBADFD` if it is another.
fn ruleset(fd: i32) -> Result<Arc<OpenFile>> {
    let file = file::open_file(fd)?;
    if file.ops_as::<RulesetFile>().is_some() { Ok(file) } else { Err(Errno::EBADFD) }
}

/// `landlock_add_rule(2)`
pub fn add_rule(fd: i32, kind: i32, attributes: usize, flags: u32) -> Result<()> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let file = ruleset(fd)?;
    let ruleset = file.ops_as::<RulesetFile>().ok_or(Errno::EBADFD)?;
    if kind != PATH_BENEATH {
        return Err(Errno::EINVAL);
    }
    let [low, high, place]: [u32; BENEATH / 4] = UserPtr::new(attributes).read()?;
    let allowed = u64::from(low) | u64::from(high) << 32;
    if allowed == 0 {
        return Err(Errno::ENOMSG);
    }
    let handled = ruleset.0.lock().handled();
    let allowed = Access::from_bits(allowed).filter(|&allowed| handled.contains(allowed));
    let allowed = allowed.ok_or(Errno::EINVAL)?;
    let place = file::files().get(place as i32)?;
    landlock::allow(&mut ruleset.0.lock(), place.location(), allowed)
}

/// `landlock_restrict_self(2)`
pub fn restrict_self(fd: i32, flags: u32) -> Result<()> {
    let thread = process::current();
    let old = thread.credentials();
    let is_bound = thread.no_new_privileges.load(core::sync::atomic::Ordering::Relaxed);
    if !is_bound && !old.has_own(Capability::SysAdmin) {
        return Err(Errno::EPERM);
    }
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let file = ruleset(fd)?;
    let ruleset = file.ops_as::<RulesetFile>().ok_or(Errno::EBADFD)?;
    let made = Confinement::restricted(old.confinement.as_ref(), &ruleset.0.lock());
    let confinement = Some(made.map_err(landlock::errno)?);
    thread.set_credentials(Arc::new(Credentials { confinement, ..Credentials::clone(&old) }));
    Ok(())
}
