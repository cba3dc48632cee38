//! Folders of the host that a machine shares with it (`--volume`), over QEMU's own 9P server.
//!
//! The server is a part of QEMU: it reads and writes as the user who started the command, and needs
//! no further program and no rights. Files that the guest makes belong to that user
//! (`security_model=none`: owner and permissions are those of the host's file, and what the user
//! may not give away stays the user's). docs/volumes.md says why not another model or virtiofs.

use super::inquiry;
use super::qemu::{escape, program};
use crate::failure::{Failure, USAGE};
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// A shared folder, as `DIR:/PATH[:ro]` names it.
pub struct Volume {
    folder: PathBuf,
    path: Vec<u8>,
    read_only: bool,
}

/// Returns the folders that the options name, all of which exist.
pub fn requested(options: &[OsString]) -> Result<Vec<Volume>> {
    let mut volumes: Vec<Volume> = Vec::new();
    for option in options {
        let volume = Volume::of(option)?;
        if volumes.iter().any(|other| other.path == volume.path) {
            let path = String::from_utf8_lossy(&volume.path).into_owned();
            let text = format!("--volume: two folders cannot both be shown at {path}");
            return Err(Failure::error(USAGE, text));
        }
        volumes.push(volume);
    }
    if !volumes.is_empty() {
        check_qemu()?;
    }
    Ok(volumes)
}

/// Checks that QEMU was built with its 9P server, which is an option of its build.
pub fn check_qemu() -> Result<()> {
    let program = program()?;
    if !inquiry::can_share(&program)? {
        bail!(
            "--volume: {} was built without virtio-9p, by which folders are shared; show a copy by \
             --with",
            program.display()
        );
    }
    Ok(())
}

impl Volume {
    /// Reads `DIR:/PATH[:ro]`.
    pub fn of(option: &OsStr) -> Result<Volume> {
        let shown = option.to_string_lossy();
        let wrong = |text: String| Err(Failure::error(USAGE, text));
        let bytes = option.as_bytes();
        let (bytes, read_only) = match (bytes.strip_suffix(b":ro"), bytes.strip_suffix(b":rw")) {
            (Some(rest), _) => (rest, true),
            (_, Some(rest)) => (rest, false),
            _ => (bytes, false),
        };
        let Some(at) = bytes.windows(2).rposition(|pair| pair == b":/").filter(|&at| at > 0) else {
            return wrong(format!(
                "--volume {shown}: write it as DIR:/PATH or DIR:/PATH:ro; the path in the guest \
                 begins with /"
            ));
        };
        let (folder, path) = (Path::new(OsStr::from_bytes(&bytes[..at])), &bytes[at + 1..]);
        let mut parts = Path::new(OsStr::from_bytes(path)).components();
        if parts.clone().any(|part| part == Component::ParentDir) {
            return wrong(format!("--volume {shown}: the path in the guest has a .. in it"));
        }
        if !parts.any(|part| matches!(part, Component::Normal(_))) {
            return wrong(format!(
                "--volume {shown}: name a path below /; --rootfs gives another root"
            ));
        }
        // The machine may be kept by a process that is elsewhere.
        let real = folder.canonicalize();
        let real = real.with_context(|| format!("--volume: cannot find {}", folder.display()))?;
        if !real.is_dir() {
            bail!("--volume: {} is not a folder", folder.display());
        }
        let right = if read_only {
            rustix::fs::Access::READ_OK
        } else {
            rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK
        };
        if rustix::fs::access(&real, right | rustix::fs::Access::EXEC_OK).is_err() {
            let hint = if read_only { "" } else { "; with :ro it is enough to read" };
            bail!("--volume: you may not read and write {}{hint}", folder.display());
        }
        Ok(Volume { folder: real, path: path.to_vec(), read_only })
    }

    /// What the guest is told of the folder with this number.
    pub fn told(&self, index: usize) -> hayate_job::Volume {
        let Volume { path, read_only, .. } = self;
        hayate_job::Volume { tag: tag(index), read_only: *read_only, path: path.clone() }
    }

    /// Adds the options of QEMU that share it; `bus` ends the name of the device.
    pub fn add(&self, command: &mut Command, index: usize, bus: &str) {
        // A folder may hold file systems with equal inode numbers, which the guest has to tell
        // apart.
        let mut server = OsString::from(format!("local,id=volume{index},security_model=none"));
        server.push(",multidevs=remap");
        if self.read_only {
            server.push(",readonly=on");
        }
        server.push(",path=");
        server.push(escape(self.folder.as_os_str()));
        command.arg("-fsdev").arg(server);
        let device = format!("virtio-9p-{bus},fsdev=volume{index},mount_tag={}", tag(index));
        command.args(["-device", &device]);
    }
}

/// The name of the server of a folder. QEMU takes at most 31 bytes.
fn tag(index: usize) -> String {
    format!("hayate.volume.{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(option: &str) -> String {
        Volume::of(OsStr::new(option)).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_volume_is_a_folder_and_a_path() {
        let volume = Volume::of(OsStr::new("/tmp:/a/b:ro")).unwrap();
        assert_eq!((&volume.path[..], volume.read_only), (&b"/a/b"[..], true));
        let volume = Volume::of(OsStr::new(".:/a:b")).unwrap();
        assert_eq!((&volume.path[..], volume.read_only), (&b"/a:b"[..], false));
        assert!(volume.folder.is_absolute());
        assert!(!Volume::of(OsStr::new("/tmp:/a:rw")).unwrap().read_only);
    }

    #[test]
    fn each_error_is_told() {
        for option in ["/tmp", "/tmp:a", ":/a", "/tmp:ro"] {
            assert!(error(option).contains("write it as DIR:/PATH"), "{option}");
        }
        assert!(error("/tmp:/").contains("below /"));
        assert!(error("/tmp:/a/../b").contains(".."));
        assert!(error("/nonexistent/x:/a").contains("cannot find /nonexistent/x"));
        assert!(error("/dev/null:/a").contains("is not a folder"));
        let twice = ["/tmp:/a", "/var:/a"].map(OsString::from);
        assert!(requested(&twice).err().unwrap().to_string().contains("both be shown at /a"));
    }

    #[test]
    fn a_comma_in_a_name_is_no_option() {
        let folder = PathBuf::from("/a,readonly=on");
        let volume = Volume { folder, path: b"/b".to_vec(), read_only: false };
        let mut command = Command::new("qemu");
        volume.add(&mut command, 1, "pci");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert!(words[1].ends_with("multidevs=remap,path=/a,,readonly=on"), "{words:?}");
        assert_eq!(words[3], "virtio-9p-pci,fsdev=volume1,mount_tag=hayate.volume.1");
    }
}
