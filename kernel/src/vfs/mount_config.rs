//! What a program says of a file system before it is mounted, or changed: the files of `fsopen(2)`
//! and `fspick(2)` (fs/fsopen.c and fs/fs_context.c of Linux 6.1).
//!
//! The options are collected, and the file system sees them together when it is made or changed, as
//! `mount(2)` shows them. So an option that it does not know is refused there, and not when it is
//! set. No messages are logged: reading such a file says that there are none.
//!
//! Locks: `state`, which sleeps, then the lock of the mount tree.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hayate_abi::{Errno, Result};

use super::anonymous;
use super::caller;
use super::filesystem::FileSystem;
use super::filesystem_type::{FileSystemType, MountRequest};
use super::mount;
use super::mount::flags::{MS_RDONLY, MS_SYNCHRONOUS};
use super::mount::{Mount, MountNamespace};
use super::mount_locks::require_no_revelation;
use super::mount_tree::{beginning_of, with_access_times};
use super::open_file::flags::O_RDWR;
use super::open_file::{FileOps, OpenFile, Traits};
use super::path::Resolver;
use super::transfer::Output;
use crate::credentials::Capability;
use crate::namespace::Handle;
use crate::reclaim::growth;
use crate::schedule::Mutex;
use crate::user_namespace::UserNamespace;

/// The most bytes of all options together (`legacy_parse_param`: a page without its last two).
const MOST: usize = 4096 - 2;

/// What comes next.
enum Phase {
    /// Options, then the file system is made.
    New(&'static FileSystemType),
    /// It was made, belongs to this user namespace, and is to be mounted.
    Made(Arc<dyn FileSystem>, Handle<UserNamespace>),
    /// Options, then the file system of the mount is changed.
    Mounted(Arc<Mount>),
    /// Nothing: making or changing it failed.
    Failed,
}

struct State {
    phase: Phase,
    source: Option<Vec<u8>>,
    /// `MS_*` flags that were asked for, and those that were spoken of.
    flags: u64,
    spoken: u64,
    /// The other options, with commas between them.
    options: Vec<u8>,
}

/// The configuration of a file system.
pub struct Configuration {
    state: Mutex<State>,
}

fn open(phase: Phase) -> Result<Arc<OpenFile>> {
    let (source, options) = (None, Vec::new());
    let state = Mutex::new(State { phase, source, flags: 0, spoken: 0, options });
    anonymous::open("[fscontext]", Arc::new(Configuration { state }), O_RDWR)
}

/// Opens the configuration of a new file system of this type.
pub fn of_new(kind: &'static FileSystemType) -> Result<Arc<OpenFile>> {
    open(Phase::New(kind))
}

/// Opens the configuration of a mount's file system.
pub fn of_mount(mount: Arc<Mount>) -> Result<Arc<OpenFile>> {
    open(Phase::Mounted(mount))
}

impl Configuration {
    /// The configuration of an open file: `EINVAL` if it is another file.
    pub fn of(file: &OpenFile) -> Result<&Configuration> {
        file.ops_as::<Configuration>().ok_or(Errno::EINVAL)
    }

    /// Sets an option, with a value or as a word alone.
    ///
    /// # Errors
    /// `EBUSY` (it is not the time for options), `EINVAL` (a second source, a comma in a value, too
    /// many), `ENOMEM`.
    pub fn set(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut state = self.state.lock();
        if !matches!(state.phase, Phase::New(_) | Phase::Mounted(_)) {
            return Err(Errno::EBUSY);
        }
        match (key, value) {
            (b"source", Some(value)) if state.source.is_none() => {
                state.source = Some(growth::copy(value)?);
                Ok(())
            }
            (b"source", _) => Err(Errno::EINVAL),
            (b"ro", None) => state.speak(MS_RDONLY, MS_RDONLY),
            (b"rw", None) => state.speak(MS_RDONLY, 0),
            (b"sync", None) => state.speak(MS_SYNCHRONOUS, MS_SYNCHRONOUS),
            (b"async", None) => state.speak(MS_SYNCHRONOUS, 0),
            // Without effect: directories are always in order, and times are in memory.
            (b"dirsync" | b"lazytime" | b"nolazytime" | b"mand" | b"nomand", None) => Ok(()),
            _ => state.append(key, value),
        }
    }

    /// Makes the file system (`FSCONFIG_CMD_CREATE`).
    ///
    /// # Errors
    /// `EBUSY` (it is not the time), `EINVAL` (no source), `EPERM` (users may not mount the type),
    /// those of the file system.
    pub fn make(&self, resolver: &Resolver<'_>) -> Result<()> {
        let mut state = self.state.lock();
        let Phase::New(kind) = state.phase else { return Err(Errno::EBUSY) };
        state.phase = Phase::Failed;
        if kind.needs_device && state.source.is_none() {
            return Err(Errno::EINVAL);
        }
        let user = (kind.user)(resolver.credentials);
        resolver.credentials.require_in(&user, Capability::SysAdmin)?;
        let filesystem = (kind.mount)(&MountRequest {
            source: state.source.as_deref().unwrap_or(b"none"),
            flags: state.flags,
            data: &state.options,
            resolver,
        })?;
        state.phase = Phase::Made(filesystem, user);
        Ok(())
    }

    /// Changes the mounted file system (`FSCONFIG_CMD_RECONFIGURE`).
    ///
    /// # Errors
    /// `EBUSY` (it is not the time), those of the file system.
    pub fn change(&self) -> Result<()> {
        let mut state = self.state.lock();
        let Phase::Mounted(mount) = &state.phase else { return Err(Errno::EBUSY) };
        caller::require_in(mount.user(), Capability::SysAdmin)?;
        let _lock = mount::lock();
        let is_spoken_of = state.spoken & MS_RDONLY != 0;
        let filesystem = mount.filesystem();
        let read_only =
            if is_spoken_of { state.flags & MS_RDONLY != 0 } else { filesystem.read_only() };
        let outcome = filesystem.reconfigure(read_only, &state.options).and_then(|()| {
            // A file system that cannot be made read-only as a whole has a mount that is.
            if is_spoken_of && filesystem.read_only() != read_only {
                if !read_only {
                    return Err(Errno::EROFS);
                }
                mount.set_flags(mount.flags() | MS_RDONLY);
            } else if is_spoken_of && !read_only {
                mount.set_flags(mount.flags() & !MS_RDONLY);
            }
            Ok(())
        });
        match outcome {
            Ok(()) => state.forget_options(),
            Err(_) => state.phase = Phase::Failed,
        }
        outcome
    }

    /// Makes a mount with these `MS_*` flags of the file system that was made; it is attached
    /// nowhere yet.
    ///
    /// # Errors
    /// `EINVAL` (no file system was made yet), `EBUSY` (it is mounted already), `EPERM` (it would
    /// show what is hidden in the namespace `own`), `ENOMEM`.
    pub fn mount(&self, own: &MountNamespace, flags: u64) -> Result<Arc<Mount>> {
        let mut state = self.state.lock();
        let (filesystem, user) = match &state.phase {
            Phase::Made(filesystem, user) => (Arc::clone(filesystem), user.clone()),
            Phase::Mounted(_) => return Err(Errno::EBUSY),
            Phase::New(_) | Phase::Failed => return Err(Errno::EINVAL),
        };
        let source: String = growth::text(state.source.as_deref().unwrap_or(b"none"))?;
        let read_only = state.flags & MS_RDONLY;
        let flags = with_access_times(flags | read_only);
        let mount = beginning_of(filesystem, flags, source, user)?;
        let lock = mount::lock();
        require_no_revelation(own, &mount)?;
        drop(lock);
        state.phase = Phase::Mounted(Arc::clone(&mount));
        state.forget_options();
        Ok(mount)
    }
}

impl State {
    fn speak(&mut self, of: u64, value: u64) -> Result<()> {
        self.flags = self.flags & !of | value;
        self.spoken |= of;
        Ok(())
    }

    fn append(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let length = key.len() + value.map_or(0, |value| value.len() + 1) + 1;
        let has_comma = key.contains(&b',') || value.is_some_and(|value| value.contains(&b','));
        if has_comma || self.options.len() + length > MOST {
            return Err(Errno::EINVAL);
        }
        let before = self.options.len();
        let parts: [&[u8]; 4] = [
            if before == 0 { b"" } else { b"," },
            key,
            if value.is_some() { b"=" } else { b"" },
            value.unwrap_or_default(),
        ];
        for part in parts {
            if let Err(error) = growth::append(&mut self.options, part) {
                self.options.truncate(before);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A new change begins without options.
    fn forget_options(&mut self) {
        (self.flags, self.spoken) = (0, 0);
        self.options = Vec::new();
    }
}

impl FileOps for Configuration {
    fn traits(&self) -> Traits {
        Traits::STREAM
    }

    /// There are no messages.
    fn read(&self, _: &OpenFile, _: u64, _: &mut Output<'_>) -> Result<usize> {
        Err(Errno::ENODATA)
    }
}
