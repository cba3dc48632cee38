//! The members of an archive, by name: an OCI layout in a tar archive, or what `docker save` writes.
//!
//! Only where each begins is kept; its bytes are read from the archive. A member may be a link to
//! another, as `docker save` wrote layers that two images share. Names that lead out are nobody's.

use crate::blob::{Counted, unpacked};
use crate::entry::parts;
use crate::image::Source;
use crate::{Error, Limits, Result, shown};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use tar::{Archive, EntryType};

/// The most members of an archive: images have some hundred.
const MOST: usize = 20_000;
/// How many links lead to a member at most.
const MOST_LINKS: usize = 8;
/// The first bytes that tell what an archive is of.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// An archive's members.
#[derive(Debug)]
pub struct Members {
    file: File,
    places: BTreeMap<String, Place>,
}

#[derive(Debug)]
enum Place {
    /// Where it begins, and its length.
    Bytes(u64, u64),
    Link(String),
}

/// Whether a file is compressed, so that [`plain`] has to unpack it before members are found.
///
/// # Errors
/// It cannot be read, or is no tar archive.
pub fn is_compressed(file: &File) -> Result<bool> {
    let mut start = [0; 512];
    let mut count = 0;
    while count < start.len() {
        match file.read_at(&mut start[count..], count as u64)? {
            0 => break,
            more => count += more,
        }
    }
    let (at, magic) = TAR_MAGIC;
    if count == start.len() && &start[at..at + magic.len()] == magic {
        return Ok(false);
    }
    let packed: [&[u8]; 2] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd"];
    if packed.iter().any(|magic| start.starts_with(magic)) {
        return Ok(true);
    }
    Err(Error::new("it is neither a tar archive nor one by gzip or zstd"))
}

/// Unpacks a compressed archive into another file.
///
/// # Errors
/// It cannot be read or written, or is larger than an image may be.
pub fn plain(packed: &File, mut plain: &File, limits: Limits) -> Result<()> {
    let mut packed = packed;
    packed.seek(SeekFrom::Start(0))?;
    let mut bytes = Counted::new(unpacked(packed)?, limits.bytes);
    std::io::copy(&mut bytes, &mut plain)?;
    plain.flush()?;
    Ok(())
}

impl Members {
    /// Finds the members of an archive that is not compressed. `None`: it is not one of an image,
    /// as its first members tell.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn find(mut file: File) -> Result<Option<Members>> {
        file.seek(SeekFrom::Start(0))?;
        let mut places = BTreeMap::new();
        let mut archive = Archive::new(&mut file);
        for (count, entry) in archive.entries_with_seek()?.raw(true).enumerate() {
            let entry = entry?;
            if count == MOST {
                // No image has so many; a root file system has.
                places.clear();
                break;
            }
            let header = entry.header();
            let path = header.path_bytes();
            let Ok(parts) = parts(&path) else { continue };
            let Ok(name) = String::from_utf8(parts.join(&b'/')) else { continue };
            let place = match header.entry_type() {
                EntryType::Regular | EntryType::Continuous => {
                    Place::Bytes(entry.raw_file_position(), header.entry_size()?)
                }
                kind @ (EntryType::Symlink | EntryType::Link) => {
                    let target = header.link_name_bytes().unwrap_or_default().into_owned();
                    let own = if kind == EntryType::Link { "" } else { &name };
                    match target_of(own, &target) {
                        Some(target) => Place::Link(target),
                        None => continue,
                    }
                }
                _ => continue,
            };
            places.insert(name, place);
        }
        let members = Members { file, places };
        let is_image =
            members.has("manifest.json") || members.has("oci-layout") && members.has("index.json");
        Ok(is_image.then_some(members))
    }

    fn place(&self, path: &str) -> Option<(u64, u64)> {
        let parts = parts(path.as_bytes()).ok()?;
        let mut path = String::from_utf8(parts.join(&b'/')).ok()?;
        for _ in 0..MOST_LINKS {
            match self.places.get(&path)? {
                Place::Bytes(at, length) => return Some((*at, *length)),
                Place::Link(target) => path.clone_from(target),
            }
        }
        None
    }
}

/// What a link leads to in the archive, from the folder of the name `own`.
fn target_of(own: &str, target: &[u8]) -> Option<String> {
    let target = std::str::from_utf8(target).ok()?;
    let mut path: Vec<&str> = own.split('/').collect();
    path.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()?),
            _ => path.push(part),
        }
    }
    Some(path.join("/"))
}

impl Source for Members {
    fn open(&self, path: &str) -> Result<(Box<dyn Read + '_>, u64)> {
        let (at, left) = self
            .place(path)
            .ok_or_else(|| Error::new(format!("it has no {}", shown(path.as_bytes()))))?;
        Ok((Box::new(Part { file: &self.file, at, left }), left))
    }

    fn has(&self, path: &str) -> bool {
        self.place(path).is_some()
    }
}

/// A part of a file.
struct Part<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..most], self.at)?;
        if count == 0 && most > 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

/// A folder with an OCI layout.
#[derive(Debug)]
pub struct Folder(pub std::path::PathBuf);

impl Source for Folder {
    fn open(&self, path: &str) -> Result<(Box<dyn Read + '_>, u64)> {
        let wrong = |what: &str| Error::new(what).at(shown(path.as_bytes()));
        let parts = parts(path.as_bytes())?;
        let relative = String::from_utf8(parts.join(&b'/')).map_err(|_| wrong("it is no name"))?;
        let full = self.0.join(relative);
        // Looked at first: opening a pipe waits for its other end.
        let found = full.metadata().map_err(|error| wrong(&error.to_string()))?;
        if !found.is_file() {
            return Err(wrong("it is no file"));
        }
        let file = File::open(&full).map_err(|error| wrong(&error.to_string()))?;
        Ok((Box::new(file), found.len()))
    }

    fn has(&self, path: &str) -> bool {
        self.0.join(path).is_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_members() {
        assert_eq!(target_of("a/layer.tar", b"../b/layer.tar").as_deref(), Some("b/layer.tar"));
        assert_eq!(target_of("", b"b/layer.tar").as_deref(), Some("b/layer.tar"));
        assert_eq!(target_of("a", b"../../etc/passwd"), None);
    }
}
