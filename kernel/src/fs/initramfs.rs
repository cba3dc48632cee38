//! Unpacks the initramfs into the first root.
//!
//! Works on inodes, below the dentry cache: at this point of the boot the tree is not used yet, so
//! no cached entry can become wrong, and a thousand files take a thousand look-ups instead of a
//! thousand path walks. Names follow the symbolic links of the tree, as on Linux, so that a second
//! archive can contain `bin/x` where the first made `bin` a link.
//!
//! An entry that cannot be made is skipped with a line in the log, as on Linux; a damaged archive
//! or exhausted memory ends the unpacking.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use hashbrown::HashMap;
use hayate_abi::{Errno, Result};
use hayate_cpio::{Entry, Item, Reader};
use hayate_machine::warn;

use crate::reclaim::growth::Grow;
use crate::vfs::inode::{Change, DeviceNumber, FileKind, Inode, Owner, Timestamp};

/// The most symbolic links on the way to one name.
const MOST_LINKS: u32 = 40;
const PAGE: usize = 4096;

/// The amount that was unpacked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Files, directories and others.
    pub entries: usize,
    /// Bytes of content.
    pub bytes: usize,
}

/// Why the unpacking ended early.
#[derive(Clone, Copy, Debug)]
pub enum Error {
    /// The archive is damaged.
    Archive(hayate_cpio::Error),
    /// Memory is exhausted.
    Memory,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive(error) => error.fmt(f),
            Self::Memory => f.write_str("not enough memory for the initramfs; give more"),
        }
    }
}

/// Unpacks a chain of archives below `root`.
pub fn unpack(archive: &[u8], root: &Arc<dyn Inode>) -> core::result::Result<Summary, Error> {
    let mut unpacker = Unpacker { root, links: HashMap::new() };
    let mut summary = Summary::default();
    for item in Reader::new(archive) {
        match item.map_err(Error::Archive)? {
            Item::End => unpacker.links.clear(),
            Item::Entry(entry) => match unpacker.entry(&entry) {
                Ok(()) => {
                    summary.entries += 1;
                    summary.bytes += entry.content.len();
                }
                Err(Errno::ENOMEM) => return Err(Error::Memory),
                Err(error) => {
                    let name = entry.name.escape_ascii();
                    warn!("initramfs: {name}: cannot be made ({error:?}); left out");
                }
            },
        }
    }
    Ok(summary)
}

struct Unpacker<'a> {
    root: &'a Arc<dyn Inode>,
    /// Files with several names, by device and number in the archive.
    links: HashMap<((u32, u32), u32), Arc<dyn Inode>>,
}

impl Unpacker<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<()> {
        let mut parts: Vec<&[u8]> =
            hayate_cpio::components(entry.name).ok_or(Errno::EINVAL)?.collect();
        let change = Change {
            mode: Some(mode(entry)),
            uid: Some(entry.uid),
            gid: Some(entry.gid),
            modified: Some(Timestamp { seconds: entry.modified.into(), nanoseconds: 0 }),
            ..Change::default()
        };
        let Some(name) = parts.pop() else {
            // The root itself.
            return self.root.set_metadata(&change);
        };
        let directory = self.directory(&parts)?;
        let kind = FileKind::from_mode(entry.mode).ok_or(Errno::EINVAL)?;
        let existing = match directory.lookup(name) {
            Ok(inode) => Some(inode),
            Err(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        if let Some(existing) = existing {
            let was = existing.attributes().kind;
            if was == FileKind::Directory && kind == FileKind::Directory {
                return existing.set_metadata(&change);
            }
            // A later entry replaces an earlier one of the same name, except a directory.
            if was == FileKind::Directory {
                return Err(Errno::EISDIR);
            }
            directory.unlink(name, &existing)?;
        }
        let key = (entry.device, entry.inode);
        if entry.links > 1
            && kind != FileKind::Directory
            && let Some(first) = self.links.get(&key).cloned()
        {
            directory.link(name, &first)?;
            // The content comes with only one of the names, the first or the last.
            return if entry.content.is_empty() { Ok(()) } else { fill(&first, entry.content) };
        }
        let made = make(&directory, name, kind, entry)?;
        if kind != FileKind::Symlink {
            made.set_metadata(&change)?;
        }
        if entry.links > 1 && kind != FileKind::Directory {
            self.links.make_room(1)?;
            self.links.insert(key, made);
        }
        Ok(())
    }

    /// Returns the directory that `parts` lead to from the root. Missing directories are made,
    /// because an archive made by hand may leave them out.
    fn directory(&self, parts: &[&[u8]]) -> Result<Arc<dyn Inode>> {
        let mut links = 0;
        // The directories walked through, for `..` in a link.
        let mut trail: Vec<Arc<dyn Inode>> = alloc::vec![Arc::clone(self.root)];
        let mut rest: VecDeque<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        while let Some(part) = rest.pop_front() {
            let here = trail.last().unwrap_or(self.root);
            if part == b".." {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let next = match here.lookup(&part) {
                Err(Errno::ENOENT) => here.mkdir(&part, 0o755, Owner::default())?,
                found => found?,
            };
            match next.attributes().kind {
                FileKind::Directory => trail.push(next),
                FileKind::Symlink => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::ELOOP);
                    }
                    let target = next.read_link()?;
                    if target.first() == Some(&b'/') {
                        trail.truncate(1);
                    }
                    let words = target.split(|&byte| byte == b'/').rev();
                    for word in words.filter(|word| !word.is_empty() && *word != b".") {
                        rest.push_front(word.to_vec());
                    }
                }
                _ => return Err(Errno::ENOTDIR),
            }
        }
        Ok(trail.pop().unwrap_or_else(|| Arc::clone(self.root)))
    }
}

/// The permission bits of an entry.
fn mode(entry: &Entry<'_>) -> u16 {
    (entry.mode & 0o7777) as u16
}

/// Makes the file of an entry, with its content.
fn make(
    directory: &Arc<dyn Inode>,
    name: &[u8],
    kind: FileKind,
    entry: &Entry<'_>,
) -> Result<Arc<dyn Inode>> {
    let owner = Owner { uid: entry.uid, gid: entry.gid };
    let device = DeviceNumber::new(entry.node.0, entry.node.1);
    match kind {
        FileKind::Directory => directory.mkdir(name, mode(entry), owner),
        FileKind::Symlink => directory.symlink(name, entry.content, owner),
        FileKind::Regular => {
            let made = directory.create(name, mode(entry), owner)?;
            fill(&made, entry.content)?;
            Ok(made)
        }
        _ => directory.mknod(name, kind, mode(entry), device, owner),
    }
}

/// Stores `content` in a new file.
fn fill(file: &Arc<dyn Inode>, content: &[u8]) -> Result<()> {
    let page_cache = file.page_cache().ok_or(Errno::EINVAL)?;
    let _content = page_cache.lock_content();
    for (index, page) in content.chunks(PAGE).enumerate() {
        page_cache.page_for_write(index as u64)?.write(0, page);
    }
    page_cache.grow_to(content.len() as u64);
    page_cache.touch();
    Ok(())
}
