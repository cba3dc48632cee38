//! Directories: finding a name, enumerating.
//!
//! The first look-up in a directory reads all its blocks once and hashes every entry's name into a
//! sorted [`Index`] with eight bytes per entry; each further look-up is a binary search and a read
//! of one entry. The volume's own hash trees would need no memory, but only large directories have
//! them, and reading one block of a tree costs as much as the whole index of most directories.

use alloc::vec::Vec;

use hayate_abi::{Errno, Result};
use hayate_ext4::{DirEntry, EntryKind, Error, Inode, Map, Run};

use super::volume::DiskVolume;
use crate::hash::hash_name;
use crate::reclaim::growth::Grow;
use crate::vfs::inode::{DirectorySink, FileKind};

/// Positions 0 and 1 of an enumeration are `.` and `..`, which the caller makes.
const FIRST: u64 = 2;

/// Hashes of a directory's names with the places of their entries, sorted.
pub struct Index(Vec<(u32, u32)>);

fn hash(name: &[u8]) -> u32 {
    hash_name(name) as u32
}

/// A directory of a volume.
pub struct Directory<'a> {
    pub volume: &'a DiskVolume,
    pub inode: &'a Inode,
    pub map: &'a Map,
}

impl Directory<'_> {
    /// Reads all of it.
    pub fn read_index(&self) -> Result<Index> {
        let mut entries = Vec::new();
        self.blocks(0, |start, block| {
            for entry in self.volume.format.entries(block, 0) {
                let entry = self.volume.checked(entry)?;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                let place = start + entry.offset as u64;
                let place = u32::try_from(place).map_err(|_| Errno::EFBIG)?;
                entries.make_room(1)?;
                entries.push((hash(entry.name), place));
            }
            Ok(true)
        })?;
        entries.sort_unstable();
        entries.shrink_to_fit();
        Ok(Index(entries))
    }

    /// Calls `visit` with the place and the bytes of each block, starting with the block that
    /// contains byte `from`, until it returns false.
    fn blocks(&self, from: u64, mut visit: impl FnMut(u64, &[u8]) -> Result<bool>) -> Result<()> {
        let volume = self.volume;
        let size = volume.format.block_size();
        let mut block = Vec::new();
        block.make_room_exact(size)?;
        block.resize(size, 0);
        let mut start = from - from % size as u64;
        while start < self.inode.size {
            // A directory without holes cannot be larger than the volume, whatever size it claims.
            if matches!(self.map.run(start), Run::Hole { .. }) {
                return Err(volume.complain(Error::Corrupt("a directory")));
            }
            volume.read(self.map, start, &mut block)?;
            volume.checked(volume.format.check_directory(self.inode, &block))?;
            if !visit(start, &block)? {
                break;
            }
            start += size as u64;
        }
        Ok(())
    }

    /// Calls `visit` with each entry but `.` and `..` until it returns false.
    pub fn each(&self, mut visit: impl FnMut(&DirEntry<'_>) -> bool) -> Result<()> {
        self.blocks(0, |_, block| {
            for entry in self.volume.format.entries(block, 0) {
                let entry = self.volume.checked(entry)?;
                if entry.name != b"." && entry.name != b".." && !visit(&entry) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Returns the number of the directory that it lies in.
    pub fn parent(&self) -> Result<u32> {
        let mut parent = None;
        self.blocks(0, |_, block| {
            for entry in self.volume.format.entries(block, 0) {
                let entry = self.volume.checked(entry)?;
                if entry.name == b".." {
                    parent = Some(entry.inode);
                }
            }
            Ok(false)
        })?;
        parent.ok_or(Errno::EUCLEAN)
    }

    /// Returns the number of the inode with this name.
    pub fn find(&self, Index(index): &Index, name: &[u8]) -> Result<u32> {
        let wanted = hash(name);
        let first = index.partition_point(|&(hash, _)| hash < wanted);
        for &(_, place) in index.iter().skip(first).take_while(|&&(hash, _)| hash == wanted) {
            let size = self.volume.format.block_size() as u64;
            let place = u64::from(place);
            // An entry never crosses the end of its block.
            let mut raw = [0; 264];
            let length = (size - place % size).min(raw.len() as u64) as usize;
            let raw = raw.get_mut(..length).unwrap_or_default();
            self.volume.read(self.map, place, raw)?;
            if let Some((number, found)) = hayate_ext4::named(raw)
                && found == name
            {
                return Ok(number);
            }
        }
        Err(Errno::ENOENT)
    }

    /// Enumerates from `position`, which counts bytes of the directory from [`FIRST`] on.
    pub fn enumerate(&self, position: &mut u64, sink: &mut dyn DirectorySink) -> Result<()> {
        let from = position.saturating_sub(FIRST);
        let mut at = from;
        let result = self.blocks(from, |start, block| {
            for entry in self.volume.format.entries(block, 0) {
                let entry = self.volume.checked(entry)?;
                let next = start + entry.next as u64;
                if start + (entry.offset as u64) < from || entry.name == b"." || entry.name == b".."
                {
                    continue;
                }
                if !sink.entry(entry.inode.into(), kind(entry.kind), entry.name, next + FIRST) {
                    return Ok(false);
                }
                at = next;
            }
            at = at.max(start + block.len() as u64);
            Ok(true)
        });
        *position = at + FIRST;
        result
    }
}

/// The kind of file that an entry speaks of.
pub fn kind(kind: EntryKind) -> FileKind {
    match kind {
        // `DT_UNKNOWN`: the program then calls `stat` itself.
        EntryKind::Unknown => FileKind::Anonymous,
        EntryKind::Regular => FileKind::Regular,
        EntryKind::Directory => FileKind::Directory,
        EntryKind::Character => FileKind::CharDevice,
        EntryKind::Block => FileKind::BlockDevice,
        EntryKind::Fifo => FileKind::Fifo,
        EntryKind::Socket => FileKind::Socket,
        EntryKind::Link => FileKind::Symlink,
    }
}
