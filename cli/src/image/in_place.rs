//! A disk image as the content of an NVDIMM from which Linux executes in place (`-o dax`).
//!
//! In the first 2 MiB Linux records that it has page structures for the rest; the record is written
//! in the guest, at each start (`guest/init/src/nvdimm.rs`). The rest is a disk with one partition,
//! which holds the file system. The start of the partition decides whether Linux can map a file in
//! large pages: only if multiples of 2 MiB in the file are also multiples of 2 MiB in memory.
//!
//! Road not taken: clusters of 2 MiB (ext4's bigalloc), which align every file but make each at
//! least that large.

use super::{finished, key};
use crate::{paths, tool};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The size of a large page, and of the area in front of the disk.
const LARGE: u64 = 2 << 20;
/// Where a partition usually begins.
const USUAL: u64 = 1 << 20;
const SECTOR: u64 = 512;
/// Linux adds memory in sections of this size.
const MEMORY_SECTION: u64 = 128 << 20;

/// Returns the content of an NVDIMM with this file system, made unless it is kept. The file
/// `aligned`, by its path in the file system, can be mapped in large pages.
pub fn nvdimm(disk: &Path, aligned: Option<&str>) -> Result<PathBuf> {
    let _alone = paths::lock("in-place")?;
    let mut source = File::open(disk).with_context(|| format!("cannot read {}", disk.display()))?;
    let found = source.metadata()?;
    let state = [found.len() as i64, found.mtime(), found.mtime_nsec(), found.ino() as i64];
    let state = state.map(i64::to_le_bytes).concat();
    let name = key([disk.as_os_str().as_bytes(), &state, aligned.unwrap_or_default().as_bytes()]);
    let output = paths::build("images")?.join(format!("in-place-{name}.nvm"));
    if output.exists() {
        return Ok(output);
    }
    let start = match aligned {
        None => USUAL,
        Some(path) => start_for(offset(disk, path)?),
    };
    let about = format!("{} on an NVDIMM", disk.display());
    finished(&output, &about, "Making an NVDIMM with a disk", |output| {
        let mut file = File::create(output)?;
        file.seek(SeekFrom::Start(LARGE))?;
        file.write_all(&table(start, found.len())?)?;
        file.seek(SeekFrom::Start(LARGE + start))?;
        std::io::copy(&mut source, &mut file)
            .with_context(|| format!("cannot copy {}", disk.display()))?;
        file.set_len((LARGE + start + found.len()).next_multiple_of(MEMORY_SECTION))?;
        Ok(())
    })
}

/// Returns the start of the partition for which the byte at `offset` in it is at a multiple of 2
/// MiB. Never 0, where the table is.
fn start_for(offset: u64) -> u64 {
    LARGE - offset % LARGE
}

/// Returns the offset of a file in a file system.
fn offset(disk: &Path, path: &str) -> Result<u64> {
    // From the superblock, at 1024: the block size as a power of two.
    let mut size = [0; 4];
    let mut file = File::open(disk)?;
    file.seek(SeekFrom::Start(1024 + 24))?;
    file.read_exact(&mut size)?;
    let size = 1024_u64.checked_shl(u32::from_le_bytes(size)).with_context(|| {
        format!("{}: its superblock names an impossible block size", disk.display())
    })?;
    let mut command = tool::command("debugfs")?;
    let output = tool::run(command.arg("-R").arg(format!("bmap \"{path}\" 0")).arg(disk))?;
    let block = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0);
    ensure!(block > 0, "{} has no file {path} with content", disk.display());
    Ok(block * size)
}

/// Returns a table with one partition, in the format of PCs since 1983.
fn table(start: u64, bytes: u64) -> Result<[u8; 512]> {
    let sectors = |bytes: u64| {
        u32::try_from(bytes / SECTOR)
            .context("the image has 2 TiB or more, the limit of its partition table")
    };
    let mut table = [0; 512];
    // Its kind: Linux.
    table[450] = 0x83;
    table[454..458].copy_from_slice(&sectors(start)?.to_le_bytes());
    table[458..462].copy_from_slice(&sectors(bytes)?.to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aligned_file_begins_at_a_large_page() {
        for offset in [0, 4096, 111 * 4096, LARGE - 4096, LARGE, 5 * LARGE + 8192] {
            let start = start_for(offset);
            assert_eq!((start + offset) % LARGE, 0);
            assert!((4096..=LARGE).contains(&start), "{start}");
        }
    }
}
