//! `userfaultfd(2)`, and `/dev/userfaultfd`, which makes the same descriptors for who may open it.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use hayate_abi::{Errno, Result};

use crate::credentials::Capability;
use crate::fs::devfs;
use crate::memory::userfault::{UNPRIVILEGED, open};
use crate::process;
use crate::syscall::file::install;
use crate::vfs::device::{self, SharedDevice};
use crate::vfs::inode::{DeviceNumber, FileKind};
use crate::vfs::open_file::flags::{O_CLOEXEC, O_NONBLOCK};
use crate::vfs::open_file::{FileOps, OpenFile, Traits};

/// The kernel's own accesses do not wait (`UFFD_USER_MODE_ONLY`).
const USER_ONLY: u32 = 1;

/// A number of those that Linux gives out as they are asked for (`MISC_DYNAMIC_MINOR`).
const NUMBER: DeviceNumber = DeviceNumber::new(10, 126);

/// `userfaultfd(2)`. To have the kernel wait for a program is a privilege.
pub fn userfaultfd(flags: u32) -> Result<i32> {
    if flags & USER_ONLY == 0
        && !UNPRIVILEGED.load(Relaxed)
        && !process::current().credentials().has(Capability::SysPtrace)
    {
        return Err(Errno::EPERM);
    }
    make(flags)
}

fn make(flags: u32) -> Result<i32> {
    if flags & !(USER_ONLY | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let space = process::current().space().ok_or(Errno::EINVAL)?;
    install(open(&space, flags & USER_ONLY != 0, flags)?, flags & O_CLOEXEC != 0)
}

struct Maker;

impl FileOps for Maker {
    fn traits(&self) -> Traits {
        Traits::ADDRESSABLE
    }

    fn ioctl(&self, _: &OpenFile, command: u32, arg: u64) -> Result<i64> {
        const NEW: u32 = 0xaa00;
        if command != NEW {
            return Err(Errno::EINVAL);
        }
        make(u32::try_from(arg).map_err(|_| Errno::EINVAL)?).map(i64::from)
    }
}

/// Adds the device; boot calls it once.
pub fn init() {
    device::register(FileKind::CharDevice, NUMBER, "misc", Arc::new(SharedDevice(Arc::new(Maker))));
    devfs::add("userfaultfd", FileKind::CharDevice, NUMBER, 0o600);
}
