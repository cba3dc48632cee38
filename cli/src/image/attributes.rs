//! Extended attributes of the files on a disk image.
//!
//! mke2fs copies them from the folder of which it makes a disk, but there they are not: an ordinary
//! user may not set those of `security.`, and below fakeroot tar(1) makes a file that has some by
//! `mknodat` without a type, which fakeroot then believes. So debugfs writes them into the finished
//! disk.

use super::scratch::Scratch;
use crate::tool;
use anyhow::{Context, Result, ensure};
use hayate_container_image::Attributed;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The time that the disk's own records bear, as mke2fs is told (`functions.sh`).
const TIME: &str = "1704067200";

/// Sets the attributes of files and folders on an ext4 disk.
///
/// # Errors
/// A name has control characters, which no request of debugfs can hold, or debugfs fails.
pub fn set(disk: &Path, attributed: &[Attributed]) -> Result<()> {
    if attributed.is_empty() {
        return Ok(());
    }
    let scratch = Scratch::new()?;
    let mut requests = Vec::new();
    let all = attributed.iter().flat_map(|one| one.attributes.iter().map(move |pair| (one, pair)));
    for (number, (one, (name, value))) in all.enumerate() {
        let file = scratch.path().join(number.to_string());
        std::fs::write(&file, value).with_context(|| format!("cannot write {}", file.display()))?;
        requests.extend(request(file.as_os_str().as_bytes(), &one.path, name)?);
    }
    let script = scratch.path().join("requests");
    std::fs::write(&script, requests)
        .with_context(|| format!("cannot write {}", script.display()))?;
    let mut debugfs = tool::command("debugfs")?;
    debugfs.env("E2FSPROGS_FAKE_TIME", TIME).arg("-w").arg("-f").arg(&script).arg(disk);
    let output = tool::run(&mut debugfs)?;
    // It says what failed, and ends with 0 all the same; the first line is its version.
    let said = String::from_utf8_lossy(&output.stderr);
    let failed: Vec<_> = said.lines().filter(|line| !line.starts_with("debugfs ")).collect();
    ensure!(failed.is_empty(), "cannot set extended attributes: {}", failed.join("; "));
    Ok(())
}

/// One line of debugfs' script: words in quotes, in which two quotes stand for one.
fn request(file: &[u8], path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    let mut line = b"ea_set -f".to_vec();
    for word in [file, &[b"/", path].concat(), name] {
        let shown = OsStr::from_bytes(word).display();
        let plain = !word.iter().any(u8::is_ascii_control);
        ensure!(plain, "cannot keep extended attributes with control characters: {shown:?}");
        line.extend_from_slice(b" \"");
        for &byte in word {
            line.extend(std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 }));
        }
        line.push(b'"');
    }
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted() {
        let line = request(b"/tmp/1", b"a b/\"c\"", b"user.x").unwrap();
        assert_eq!(line, b"ea_set -f \"/tmp/1\" \"/a b/\"\"c\"\"\" \"user.x\"\n");
        assert!(request(b"/tmp/1", b"a\nb", b"user.x").is_err());
        assert!(request(b"/tmp/1", b"a", b"user.\x1b").is_err());
    }
}
