//! An open directory.
//!
//! The server's positions are those of the host's file system: any numbers. Those of the kernel
//! begin with 2, behind `.` and `..`, which the caller makes (the server's own are left out), so a
//! position of the server's is shown as it is, and the three smallest ones differently.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ninep::directory::entries;

use super::client::Fid;
use crate::reclaim;
use crate::reclaim::growth::Grow;
use crate::vfs::inode::{DirectorySink, FileKind};
use crate::vfs::open::Directory;
use crate::vfs::open_file::{FileOps, OpenFile, Traits, Whence};
use crate::vfs::transfer::Output;

/// The kernel's first position.
const FIRST: u64 = 2;
/// Where the server's positions 1 and 2 are shown.
const SMALL: u64 = i64::MAX as u64 - 16;
/// Pages of entries that are asked for at once.
const PAGES: usize = 4;

fn shown(position: u64) -> u64 {
    match position {
        0 => FIRST,
        1 | 2 => SMALL + position,
        _ => position,
    }
}

fn of_server(position: u64) -> u64 {
    match position {
        0..=FIRST => 0,
        _ if position == SMALL + 1 || position == SMALL + 2 => position - SMALL,
        _ => position,
    }
}

/// An open directory.
pub struct OpenDirectory(Fid);

impl OpenDirectory {
    pub(super) fn new(fid: Fid) -> OpenDirectory {
        OpenDirectory(fid)
    }
}

impl FileOps for OpenDirectory {
    fn traits(&self) -> Traits {
        Directory.traits()
    }

    fn read(&self, file: &OpenFile, offset: u64, out: &mut Output<'_>) -> Result<usize> {
        Directory.read(file, offset, out)
    }

    fn seek(&self, file: &OpenFile, position: u64, offset: i64, whence: Whence) -> Result<u64> {
        Directory.seek(file, position, offset, whence)
    }

    fn read_dir(
        &self,
        _: &OpenFile,
        position: &mut u64,
        sink: &mut dyn DirectorySink,
    ) -> Result<()> {
        enumerate(&self.0, position, sink)
    }

    fn sync(&self, _: &OpenFile, data_only: bool) -> Result<()> {
        self.0.sync(data_only)
    }
}

/// Enumerates the directory that `fid` has open.
pub fn enumerate(fid: &Fid, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
    let mut frames = Vec::new();
    frames.make_room_exact(PAGES)?;
    for _ in 0..PAGES {
        frames.push(reclaim::frame()?);
    }
    let mut data = Vec::new();
    data.make_room_exact(PAGES * 4096)?;
    let mut taken = false;
    loop {
        let count = fid.read_directory(of_server(*position), &frames)?;
        if count == 0 {
            return Ok(());
        }
        data.clear();
        data.resize(count, 0);
        for (part, frame) in data.chunks_mut(4096).zip(&frames) {
            frame.read(0, part);
        }
        let before = *position;
        for entry in entries(&data) {
            let entry = entry.map_err(|_| Errno::EIO)?;
            let next = shown(entry.next);
            if entry.name != b"." && entry.name != b".." {
                let kind = FileKind::from_mode(u32::from(entry.kind) << 12);
                // `DT_UNKNOWN`: the program then calls `stat` itself.
                let kind = kind.unwrap_or(FileKind::Anonymous);
                if !sink.entry(entry.qid.path, kind, entry.name, next) {
                    return Ok(());
                }
                taken = true;
            }
            *position = next;
        }
        // A server that does not go on would be asked for ever.
        if *position == before {
            return if taken { Ok(()) } else { Err(Errno::EIO) };
        }
    }
}
