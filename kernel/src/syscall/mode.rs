//! Hayate's calls that switch the running mode (numbers 1010 to 1019; docs/dmsm.md).

use hayate_abi::{Errno, Result};

use crate::process;
use crate::process::visible;
use crate::supervisor::switch;

/// `switch_supervisor`: programs that are executed later keep the mode.
const KEEP: u32 = 1;

fn switch(pid: i32, supervisor: bool, keep: bool) -> Result<()> {
    let process = match pid {
        0 => process::current().process.clone(),
        pid => {
            visible::process(u32::try_from(pid).map_err(|_| Errno::ESRCH)?).ok_or(Errno::ESRCH)?
        }
    };
    switch::switch(&process, supervisor, keep)
}

/// `switch_supervisor(pid, flags)`: switches the process (0: the caller) to supervisor mode.
///
/// Fails with `EINVAL` for unknown flags; `EOPNOTSUPP`, `EPERM`, `ESRCH` as [`switch::switch`].
pub fn switch_supervisor(pid: i32, flags: u32) -> Result<()> {
    if flags & !KEEP != 0 {
        return Err(Errno::EINVAL);
    }
    switch(pid, true, flags & KEEP != 0)
}

/// `switch_user(pid)`: switches the process (0: the caller) to user mode.
pub fn switch_user(pid: i32) -> Result<()> {
    switch(pid, false, false)
}
