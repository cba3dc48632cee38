//! The devices of a machine, as options of QEMU: disks, shared folders, ports, the balloon and the
//! network card. Their order is that in which the guest finds them, which names its disks.

use super::{FIRST_SOCKET, Qemu, System, escape, socket};
use crate::arguments::Board;
use crate::guest::network::Helper;
use anyhow::Result;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;

impl Qemu {
    /// Adds all devices. `ports` become serial ports; the guest's ends of what is connected to this
    /// process are added to `sockets`.
    pub(super) fn devices(
        &self,
        command: &mut Command,
        ports: Vec<(&'static str, UnixStream)>,
        sockets: &mut Vec<OwnedFd>,
    ) -> Result<Option<Helper>> {
        let bus = match self.options.board {
            Board::Q35 => "pci",
            Board::Microvm => "device",
        };
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        // Without event descriptors a device acts at the guest's notification, and not when QEMU's
        // other thread gets to it.
        let synchronous = self.options.deterministic && self.options.board == Board::Q35;
        let events = if synchronous { ",ioeventfd=off" } else { "" };
        self.add_disks(command, bus, events);
        for (index, volume) in self.volumes.iter().enumerate() {
            volume.add(command, index, bus);
        }
        self.add_ports(command, bus, events, ports, sockets);
        if self.gives_back() {
            let device =
                format!("virtio-balloon-{bus},free-page-reporting=on,deflate-on-oom=on,id=balloon");
            command.args(["-device", &device]);
        }
        match &self.link {
            Some(link) => link.add(command, self.options.board, events, FIRST_SOCKET, sockets),
            None => Ok(None),
        }
    }

    /// Adds the disks: first those that are only read, then the user's.
    fn add_disks(&self, command: &mut Command, bus: &str, events: &str) {
        for (index, (disk, throttle)) in self.disks.iter().enumerate() {
            if self.counts() {
                // The guest waits for a disk, and the host decides how long. A file that QEMU holds
                // in its memory is available within the instruction that requests it.
                let mut file = OsString::from(format!("name=opt/hayate/disk{index},file="));
                file.push(escape(disk.as_os_str()));
                command.arg("-fw_cfg").arg(file);
                continue;
            }
            let comma = if throttle.is_empty() { "" } else { "," };
            let options = format!("if=none,id=disk{index},format=raw,readonly=on{comma}{throttle}");
            let mut drive = OsString::from(options + ",file=");
            drive.push(escape(disk.as_os_str()));
            command.arg("-drive").arg(drive);
            command.args(["-device", &format!("virtio-blk-{bus},drive=disk{index}{events}")]);
        }
        for (index, disk) in self.user_disks.iter().enumerate() {
            let mode = if disk.read_only { "readonly=on" } else { "discard=unmap" };
            // A failed write is an error in the guest; QEMU would stop the machine.
            let options =
                format!("if=none,id=user{index},format=raw,werror=report,rerror=report,{mode}");
            let mut drive = OsString::from(options + ",file=");
            drive.push(escape(disk.file.as_os_str()));
            command.arg("-drive").arg(drive);
            let serial = &disk.serial;
            let device = format!("virtio-blk-{bus},drive=user{index},serial={serial}{events}");
            command.args(["-device", &device]);
        }
    }

    fn add_ports(
        &self,
        command: &mut Command,
        bus: &str,
        events: &str,
        ports: Vec<(&'static str, UnixStream)>,
        sockets: &mut Vec<OwnedFd>,
    ) {
        if !ports.is_empty() {
            command.args(["-device", &format!("virtio-serial-{bus},max_ports=8{events}")]);
        }
        for (index, (name, theirs)) in ports.into_iter().enumerate() {
            let id = format!("port{index}");
            socket(command, &id, FIRST_SOCKET + sockets.len() as i32);
            sockets.push(theirs.into());
            // For Linux only the console kind of port is a terminal; Hayate uses the name.
            let terminal = name == hayate_job::port::TTY && self.boot.system == System::Linux;
            let kind = if terminal { "virtconsole" } else { "virtserialport" };
            command.args(["-device", &format!("{kind},chardev={id},name={name}")]);
        }
    }
}
