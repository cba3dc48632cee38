//! The device nodes of terminals: `/dev/tty`, `/dev/console`, `/dev/hvc0`, `/dev/ptmx`, and the
//! slaves in devpts.

use alloc::sync::Arc;

use hayate_abi::{Errno, Result};

use super::console;
use super::job;
use super::operations::TtyFile;
use super::pty::{DEVPTS, Pairs};
use super::state::Tty;
use crate::credentials::Capability;
use crate::vfs::device;
use crate::vfs::device::Device;
use crate::vfs::inode::{DeviceNumber, FileKind};
use crate::vfs::mount::Location;
use crate::vfs::open_file::{FileOps, OpenRequest, flags};
use crate::vfs::path::lookup;

/// `/dev/tty`: the caller's controlling terminal.
pub const CONTROLLING: DeviceNumber = DeviceNumber::new(5, 0);
/// `/dev/console`.
pub const CONSOLE: DeviceNumber = DeviceNumber::new(5, 1);
/// `/dev/ptmx`.
pub const MULTIPLEXER: DeviceNumber = DeviceNumber::new(5, 2);
/// `/dev/hvc0`, the console under its driver's name.
pub const HYPERVISOR: DeviceNumber = DeviceNumber::new(229, 0);

/// The device drivers, by device number.
enum Terminal {
    Controlling,
    Console,
    Multiplexer,
}

impl Device for Terminal {
    fn open(&self, _: DeviceNumber, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
        match self {
            Terminal::Controlling => {
                let control = job::control().ok_or(Errno::ENXIO)?;
                let tty = control.controlling_terminal().ok_or(Errno::ENXIO)?;
                Ok(TtyFile::open(tty, privileged(request))?)
            }
            Terminal::Console => open_terminal(console::terminal(), request),
            Terminal::Multiplexer => open_multiplexer(request),
        }
    }
}

/// Registers the device numbers; the nodes in `/dev` are made by devfs.
pub fn register() -> Result<()> {
    let character = FileKind::CharDevice;
    device::register(character, CONTROLLING, "/dev/tty", Arc::new(Terminal::Controlling));
    device::register(character, CONSOLE, "/dev/console", Arc::new(Terminal::Console));
    device::register(character, MULTIPLEXER, "/dev/ptmx", Arc::new(Terminal::Multiplexer));
    device::register(character, HYPERVISOR, "hvc", Arc::new(Terminal::Console));
    Ok(())
}

fn privileged(request: &OpenRequest<'_>) -> bool {
    request.credentials.has(Capability::SysAdmin)
}

/// Opens a terminal for a program. It becomes the controlling terminal of a session leader that has
/// none, unless O_NOCTTY is set (open(2)).
pub fn open_terminal(tty: Arc<Tty>, request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
    let file = TtyFile::open(tty.clone(), privileged(request))?;
    if request.flags & flags::O_NOCTTY == 0
        && request.reads()
        && let Some(control) = job::control()
    {
        let caller = control.caller();
        let free = tty.session_and_foreground().0.is_none();
        if free && caller.leads_session && control.controlling_terminal().is_none() {
            tty.set_session(Some(caller.session), Some(caller.group));
            control.set_controlling_terminal(caller.session, Some(tty));
        }
    }
    Ok(file)
}

/// Opens the `ptmx` of the devpts that is mounted at `pts` beside a node with the number of
/// `/dev/ptmx`. Errors of [`root_beside`], and `ENOSPC`.
fn open_multiplexer(request: &OpenRequest<'_>) -> Result<Arc<dyn FileOps>> {
    root_beside(request.location)?.inode()?.lookup(b"ptmx")?.open(request)
}

/// The root of the devpts that is mounted at `pts` beside a node (`devpts_ptmx_path`,
/// fs/devpts/inode.c of Linux 6.1).
///
/// # Errors
/// `ENOENT` (nothing is called so), `ENODEV` (it is another thing).
pub(super) fn root_beside(location: &Location) -> Result<Location> {
    let parent = location.dentry.parent().ok_or(Errno::ENOENT)?;
    let directory = parent.inode().ok_or(Errno::ENOENT)?;
    let dentry = lookup(&parent, &directory, b"pts")?;
    let place = Location { mount: Arc::clone(&location.mount), dentry }.into_topmost();
    place.inode()?;
    if place.mount.filesystem().type_name() != DEVPTS || place.dentry.parent().is_some() {
        return Err(Errno::ENODEV);
    }
    Ok(place)
}

/// Opens the slave of a pair.
pub(super) fn open_slave(
    pairs: &Pairs,
    number: u32,
    request: &OpenRequest<'_>,
) -> Result<Arc<dyn FileOps>> {
    let pair = pairs.get(number).ok_or(Errno::ENXIO)?;
    open_terminal(pair.slave, request)
}
