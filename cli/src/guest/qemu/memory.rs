//! Where a machine's memory comes from: QEMU, or a file, from which snapshots are made and restored
//! (`crate::snapshots`).

use super::{FIRST_SOCKET, Qemu, System};
use crate::guest::qmp;
use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Where a machine's memory comes from.
pub enum Memory {
    /// QEMU makes it.
    New,
    /// A file that QEMU shares, from which a snapshot is made.
    Saved {
        /// The memory.
        memory: File,
        /// Whether the machine has the device by which unused memory goes back, as its clones will.
        gives_back: bool,
    },
    /// A file that begins as the memory of a snapshot.
    Restored {
        /// The memory.
        memory: File,
        /// Whether the file is this machine's own. Others map it, too, and QEMU maps it privately.
        is_own: bool,
        /// The state of processors and devices, from its beginning.
        devices: File,
    },
}

/// A file without a name in the host's memory.
///
/// # Errors
/// The host has no memory, or the process no descriptor for it.
pub fn host_memory(name: &str) -> Result<File> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC).context("cannot make a file in memory")?;
    Ok(file.into())
}

impl Qemu {
    /// Gives the machine memory of a file of the host, from which a snapshot can be made.
    /// `gives_back`: it has the device by which the host gets unused memory back, as its clones
    /// will.
    pub fn share_memory(&mut self, memory: File, gives_back: bool) {
        self.memory = Memory::Saved { memory, gives_back };
    }

    /// Adds the options for memory that is a file, and lets QEMU restore a snapshot.
    pub(super) fn back_memory(
        &self,
        command: &mut Command,
        monitor: &UnixStream,
        sockets: &mut Vec<OwnedFd>,
    ) -> Result<()> {
        let mut hand = |file: &File| -> Result<i32> {
            let copy = file.try_clone().context("cannot duplicate a descriptor")?;
            sockets.push(copy.into());
            Ok(FIRST_SOCKET + sockets.len() as i32 - 1)
        };
        let (file, share) = match &self.memory {
            Memory::New => return Ok(()),
            Memory::Saved { memory, .. } => (memory, "on"),
            Memory::Restored { memory, is_own: true, .. } => (memory, "on"),
            Memory::Restored { memory, .. } => (memory, "off"),
        };
        let (size, descriptor) = (self.options.memory, hand(file)?);
        let object = format!(
            "memory-backend-file,id=memory,size={size}M,mem-path=/dev/fd/{descriptor},share={share}"
        );
        command.args(["-object", &object, "-machine", "memory-backend=memory"]);
        if let Memory::Restored { devices, .. } = &self.memory {
            command.args(["-incoming", "defer"]);
            qmp::restore(monitor, hand(devices)?).context("cannot write to QEMU's monitor")?;
        }
        Ok(())
    }

    /// Whether the machine has the device by which the host gets unused memory back. QEMU drops
    /// that memory at any time, so machines that count instructions do not have it; and it takes
    /// only one such device.
    ///
    /// Memory that is a private mapping of a file must not be given back: QEMU would make holes in
    /// the file (`ram_block_discard_range`).
    pub(super) fn gives_back(&self) -> bool {
        let is_given = |option: &OsString| option.to_string_lossy().contains("virtio-balloon");
        let may_drop = match &self.memory {
            Memory::New => true,
            Memory::Saved { gives_back, .. } => *gives_back,
            Memory::Restored { is_own, .. } => *is_own,
        };
        self.boot.system == System::Hayate
            && may_drop
            && !self.options.deterministic
            && !self.options.qemu.iter().any(is_given)
    }
}
