//! Writes initramfs archives: the "newc" format of cpio (Linux
//! Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Times are zero and inode numbers count up from one, so that the same files give the same bytes:
//! a deterministic run needs a deterministic archive.

use anyhow::{Result, ensure};

const DIRECTORY: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
const LINK: u32 = 0o120000;

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
        self.entry(path.as_bytes(), DIRECTORY | 0o755, b"")
    }

    /// Adds a file with these permissions.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> Result<()> {
        self.entry(path.as_bytes(), REGULAR | permissions, content)
    }

    /// Adds a symbolic link.
    #[cfg_attr(not(test), expect(dead_code, reason = "completes the writer; tests use it"))]
    pub fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.entry(path.as_bytes(), LINK | 0o777, target.as_bytes())
    }

    /// Returns the whole archive with its trailer, padded to four bytes, so that another may
    /// follow.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        self.entry(b"TRAILER!!!", 0, b"")?;
        Ok(self.bytes)
    }

    fn entry(&mut self, path: &[u8], mode: u32, content: &[u8]) -> Result<()> {
        let size = u32::try_from(content.len());
        ensure!(size.is_ok(), "a file of 4 GiB or more does not fit into an initramfs");
        self.inode += 1;
        let links = if mode & DIRECTORY != 0 && mode & REGULAR == 0 { 2 } else { 1 };
        self.bytes.extend_from_slice(b"070701");
        let fields = [
            self.inode,
            mode,
            0,
            0,
            links,
            0,
            size.unwrap_or_default(),
            0,
            0,
            0,
            0,
            path.len() as u32 + 1,
            0,
        ];
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path);
        self.bytes.push(0);
        self.fill();
        self.bytes.extend_from_slice(content);
        self.fill();
        Ok(())
    }

    fn fill(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
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
        archive.link("etc/link", "motd").unwrap();
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
        assert_eq!(String::from_utf8_lossy(&output.stdout), "etc\netc/motd\netc/link\n");
    }
}
