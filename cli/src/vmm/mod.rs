//! Virtual machine monitors beside QEMU: a machine described in their own format.
//!
//! A [`Vmm`] takes a [`Description`] and returns what its program reads: Firecracker a file
//! ([`firecracker`]), Cloud Hypervisor the body of a request ([`cloud_hypervisor`]). Both formats
//! are published, and the tests hold what is generated here against them ([`schema`]).
//!
//! Neither is started: [`Vmm::lacks`] says what is missing, and `./hayate run --vmm` prints it
//! with the place of the files. QEMU does not go this way. Its devices are connected to sockets
//! that it inherits ([`crate::guest::qemu`]), which no file can describe.

mod cloud_hypervisor;
mod firecracker;
#[cfg(test)]
mod schema;

use crate::arguments::Monitor;
use crate::failure::{FAULT, Failure};
use crate::paths;
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};

/// What every monitor is told of a machine.
pub struct Description {
    /// Hayate's kernel: an ELF file with a PVH note.
    pub kernel: PathBuf,
    /// The kernel's command line.
    pub words: String,
    /// The first root file system, with init and its job.
    pub initramfs: PathBuf,
    /// The number of processors.
    pub cpus: u8,
    /// The size of its memory in MiB.
    pub memory: u64,
    /// Images of file systems, only to be read, in the order of the guest's names.
    pub disks: Vec<PathBuf>,
    /// An interface of the host and the guest's Ethernet address.
    pub tap: Option<(String, Option<String>)>,
    /// Where connections of virtio-vsock come out on the host.
    pub socket: PathBuf,
    /// Where the kernel's messages go.
    pub log: PathBuf,
}

/// A virtual machine monitor.
pub trait Vmm {
    /// The name of its program.
    fn program(&self) -> &'static str;

    /// Describes a machine in its format. Fails if it has no such machines.
    fn configuration(&self, machine: &Description) -> Result<Value>;

    /// Returns the commands that start a machine that is described in this file.
    fn commands(&self, configuration: &Path) -> Vec<String>;

    /// The parts that Hayate lacks to run in it.
    fn lacks(&self) -> &'static [&'static str];
}

/// The guest's number in virtio-vsock: the first that is free, as every machine has a host of its
/// own (vsock(7)).
const GUEST: u32 = 3;

/// Returns a monitor; `None`: QEMU.
pub fn of(monitor: Monitor) -> Option<&'static dyn Vmm> {
    match monitor {
        Monitor::Qemu => None,
        Monitor::Firecracker => Some(&firecracker::Firecracker),
        Monitor::CloudHypervisor => Some(&cloud_hypervisor::CloudHypervisor),
    }
}

/// Writes the files of a machine, and returns why it is not started. `describe` is told where the
/// files will be.
pub fn write(
    vmm: &dyn Vmm,
    mut initramfs: File,
    describe: impl FnOnce(&Path) -> Description,
) -> Result<anyhow::Error> {
    let folder = paths::build("vmm")?.join(vmm.program());
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let machine = describe(&folder);
    let file = folder.join("machine.json");
    let text = serde_json::to_string_pretty(&vmm.configuration(&machine)?)?;
    let put = || -> std::io::Result<()> {
        initramfs.rewind()?;
        std::io::copy(&mut initramfs, &mut File::create(&machine.initramfs)?)?;
        std::fs::write(&file, text + "\n")
    };
    put().with_context(|| format!("cannot write in {}", folder.display()))?;
    Ok(Failure::error(FAULT, explain(vmm, &file)))
}

fn explain(vmm: &dyn Vmm, file: &Path) -> String {
    let mut text = format!(
        "the machine is described in {}, and not started, as {} lacks:",
        file.display(),
        vmm.program()
    );
    for missing in vmm.lacks() {
        text.push_str(&format!("\n  - {missing}"));
    }
    text.push_str("\nUntil then use --vmm qemu. These commands would start it:");
    for command in vmm.commands(file) {
        text.push_str(&format!("\n  {command}"));
    }
    text
}

#[cfg(test)]
pub(crate) fn example(cpus: u8) -> Description {
    Description {
        kernel: "/build/kernel".into(),
        words: "recycle=full".into(),
        initramfs: "/build/initramfs".into(),
        cpus,
        memory: 512,
        disks: vec!["/build/root.ext4".into(), "/build/with.ext4".into()],
        tap: Some(("tap0".into(), Some("52:54:00:12:34:56".into()))),
        socket: "/build/vsock".into(),
        log: "/build/log".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_missing_is_said() {
        for monitor in [Monitor::Firecracker, Monitor::CloudHypervisor] {
            let vmm = of(monitor).unwrap();
            let text = explain(vmm, Path::new("/build/machine.json"));
            assert!(text.contains("/build/machine.json") && text.contains(vmm.program()), "{text}");
            assert!(vmm.lacks().iter().all(|missing| text.contains(missing)), "{text}");
            assert!(!vmm.lacks().is_empty(), "start it then");
        }
        assert!(of(Monitor::Qemu).is_none());
    }

    #[test]
    fn files_are_written() {
        let mut initramfs = tempfile::tempfile().unwrap();
        initramfs.write_all(b"archive").unwrap();
        let vmm = of(Monitor::Firecracker).unwrap();
        let mut folder = PathBuf::new();
        let describe = |place: &Path| {
            folder = place.into();
            Description { initramfs: place.join("initramfs"), ..example(1) }
        };
        let error = write(vmm, initramfs, describe).unwrap();
        assert!(error.to_string().contains("is described in"), "{error}");
        assert_eq!(std::fs::read(folder.join("initramfs")).unwrap(), b"archive");
        let text = std::fs::read_to_string(folder.join("machine.json")).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["machine-config"]["mem_size_mib"], 512);
    }
}
