//! What a mounted procfs hides, and from whom: its options `hidepid`, `gid` and `subset` (proc(5);
//! fs/proc/root.c and `has_pid_permissions` of fs/proc/base.c, Linux 6.1).
//!
//! A procfs without options asks nobody: what it shows of a process carries no rules.

use alloc::format;
use alloc::string::String;
use core::str;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use hayate_abi::{Errno, Result};

use crate::credentials::Id;
use crate::user_namespace::UserNamespace;
use crate::vfs::caller;
use crate::vfs::filesystem_type::options;

/// The processes of others have nothing inside (`EPERM`).
pub const INSIDE: u32 = 1;
/// They are not there.
pub const EXISTENCE: u32 = 2;
/// Nor are those that may not be traced, whichever group the reader is in.
const ALL_BUT_TRACEABLE: u32 = 4;

/// The values of `hidepid` with their names.
const NAMES: [(u32, &str); 4] =
    [(0, "off"), (INSIDE, "noaccess"), (EXISTENCE, "invisible"), (ALL_BUT_TRACEABLE, "ptraceable")];

/// The options of a mounted procfs.
#[derive(Default)]
pub struct Rules {
    hide: AtomicU32,
    /// The group whose members see all, inside the kernel.
    group: AtomicU32,
    /// Whether it shows processes and nothing of the system.
    only_processes: AtomicBool,
}

fn hide_of(value: &[u8]) -> Result<u32> {
    let text = str::from_utf8(value).map_err(|_| Errno::EINVAL)?;
    let number = text.parse().ok();
    let found = NAMES.iter().find(|(value, name)| number == Some(*value) || text == *name);
    found.map(|(value, _)| *value).ok_or(Errno::EINVAL)
}

fn group_of(value: &[u8], user: &UserNamespace) -> Result<Id> {
    let number = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.and_then(|number| user.group(number)).ok_or(Errno::EINVAL)
}

impl Rules {
    /// Changes what the options name, the group as a number of `user`: `EINVAL`, and nothing is
    /// changed.
    pub fn set(&self, data: &[u8], user: &UserNamespace) -> Result<()> {
        let (mut hide, mut group, mut only_processes) = (None, None, false);
        for (key, value) in options(data) {
            match (key, value) {
                (b"hidepid", value) => hide = Some(hide_of(value)?),
                (b"gid", value) => group = Some(group_of(value, user)?),
                (b"subset", b"pid") => only_processes = true,
                (b"ro" | b"rw", b"") => {}
                _ => return Err(Errno::EINVAL),
            }
        }
        if let Some(hide) = hide {
            self.hide.store(hide, Relaxed);
        }
        if let Some(group) = group {
            self.group.store(group, Relaxed);
        }
        if only_processes {
            self.only_processes.store(true, Relaxed);
        }
        Ok(())
    }

    /// As `/proc/PID/mounts` shows them (`proc_show_options`).
    pub fn shown(&self) -> String {
        let mut text = String::new();
        let (hide, group) = (self.hide.load(Relaxed), self.group.load(Relaxed));
        if group != 0 {
            text += &format!(",gid={group}");
        }
        if let Some((_, name)) = NAMES.iter().find(|(value, _)| hide != 0 && *value == hide) {
            text += &format!(",hidepid={name}");
        }
        if self.only_processes() {
            text += ",subset=pid";
        }
        text
    }

    /// Whether it shows processes and nothing of the system.
    pub fn only_processes(&self) -> bool {
        self.only_processes.load(Relaxed)
    }

    /// Whether it hides anything of processes.
    pub fn hide(&self) -> bool {
        self.hide.load(Relaxed) != 0
    }

    /// Whether the caller sees so much ([`INSIDE`], [`EXISTENCE`]) of processes that it may not
    /// look into.
    pub fn show(&self, what: u32) -> bool {
        let hide = self.hide.load(Relaxed);
        let group = self.group.load(Relaxed);
        hide < what || hide != ALL_BUT_TRACEABLE && caller::is_in_groups(group, group)
    }
}
