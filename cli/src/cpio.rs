//! Writes initramfs archives: the "newc" format of cpio (Linux
//! Documentation/driver-api/early-userspace/buffer-format.rst), by the crate `cpio`.
//!
//! Times are zero and inode numbers count up from one, so that the same files give the same bytes:
//! a deterministic run needs a deterministic archive.

use ::cpio::newc::{Builder, ModeFileType, trailer};
use anyhow::{Context, Result};
use std::io::Write;

/// An archive that is being written.
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// An empty archive.
    pub fn new() -> Archive {
        Archive { bytes: Vec::new(), inode: 0 }
    }

    /// Adds a folder; `path` without a leading slash.
    pub fn directory(&mut self, path: &str) -> Result<()> {
        let entry = Builder::new(path).mode(0o755).set_mode_file_type(ModeFileType::Directory);
        self.entry(entry.nlink(2), b"")
    }

    /// Adds a file with these permissions.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> Result<()> {
        let entry = Builder::new(path).mode(permissions);
        self.entry(entry.set_mode_file_type(ModeFileType::Regular), content)
    }

    /// Returns the whole archive with its trailer, padded to four bytes, so that another may
    /// follow.
    pub fn finish(self) -> Result<Vec<u8>> {
        Ok(trailer(self.bytes)?)
    }

    fn entry(&mut self, entry: Builder, content: &[u8]) -> Result<()> {
        let size = u32::try_from(content.len())
            .context("a file of 4 GiB or more does not fit into an initramfs")?;
        self.inode += 1;
        let mut writer = entry.ino(self.inode).write(&mut self.bytes, size);
        writer.write_all(content)?;
        writer.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn the_bytes_are_aligned_and_repeatable() {
        let make = || {
            let mut archive = Archive::new();
            archive.directory("dev").unwrap();
            archive.file("init", 0o755, b"abc").unwrap();
            archive.finish().unwrap()
        };
        assert_eq!(make(), make());
        assert_eq!(make().len() % 4, 0);
        assert_eq!(&make()[..6], b"070701");
    }

    #[test]
    fn the_cpio_program_reads_it() {
        let mut archive = Archive::new();
        archive.directory("etc").unwrap();
        archive.file("etc/motd", 0o644, b"hello\n").unwrap();
        let bytes = archive.finish().unwrap();
        let child = Command::new("cpio")
            .args(["-t", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        // The project does not require cpio; where it is not installed, the guest's own start is
        // the test.
        let Ok(mut child) = child else { return };
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "etc\netc/motd\n");
    }
}
