//! The entries of one layer, taken apart: names, owners, kinds.
//!
//! Headers are read by `tar`, one by one as they lie ("raw"): for itself the crate keeps a long name
//! in memory however long it is, and an archive of a few KiB can hold one of many GiB.

use crate::blob::Counted;
use crate::pax::{Attributes, Records};
use crate::{Error, Limits, Result, shown};
use std::io::Read;
use tar::{Archive, Entry, EntryType, Header};

/// The longest path of Linux, without its end (`PATH_MAX`).
pub(crate) const LONGEST_PATH: usize = 4095;
/// The longest name of a file (`NAME_MAX`).
pub(crate) const LONGEST_NAME: usize = 255;
/// The longest pax header: a path, a target, and extended attributes.
const LONGEST_HEADER: u64 = 1 << 20;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File {
        size: u64,
    },
    Folder,
    Symlink(Vec<u8>),
    /// Another name of the file at this path.
    Link(Vec<u8>),
    Character(u32, u32),
    Block(u32, u32),
    Fifo,
}

/// Everything of an entry but its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its place in the layer.
    pub(crate) index: u64,
    pub(crate) path: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) time: u64,
    pub(crate) attributes: Attributes,
}

/// The rest of an image's limits.
pub(crate) struct Budget {
    pub(crate) left: Limits,
}

impl Budget {
    /// Takes one entry and the bytes of its names.
    fn entry(&mut self, names: usize) -> Result<()> {
        let less = |left: u64, by: u64, what: &str| {
            left.checked_sub(by).ok_or_else(|| Error::new(format!("it holds more {what}")))
        };
        self.left.entries = less(self.left.entries, 1, "entries than an image may")?;
        self.left.names =
            less(self.left.names, names as u64, "and longer names than an image may")?;
        Ok(())
    }
}

/// Reads a layer that is unpacked already, and shows each entry with its content.
pub(crate) fn read<R: Read>(
    layer: &mut Counted<R>,
    budget: &mut Budget,
    mut each: impl FnMut(Head, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let mut archive = Archive::new(layer);
    let mut before = Before::default();
    for (index, entry) in archive.entries()?.raw(true).enumerate() {
        let mut entry = entry?;
        if before.take(&mut entry)? {
            // Their content counts as well: each is an entry.
            budget.entry(0)?;
            continue;
        }
        let Some(head) = head(index as u64, entry.header(), std::mem::take(&mut before))? else {
            continue;
        };
        let target = match &head.kind {
            Kind::Symlink(target) | Kind::Link(target) => target.len(),
            _ => 0,
        };
        let attributes: usize =
            head.attributes.iter().map(|(name, value)| name.len() + value.len()).sum();
        budget.entry(head.path.len() + target + attributes)?;
        each(head, &mut entry)?;
    }
    match before.is_empty() {
        true => Ok(()),
        false => Err(Error::new("it ends with a name whose entry is missing")),
    }
}

/// What came before an entry about it.
#[derive(Default)]
struct Before {
    name: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    pax: Option<Records>,
}

impl Before {
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.target.is_none() && self.pax.is_none()
    }

    /// Takes an entry that is about the next one; false if it is one itself.
    fn take(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<bool> {
        let kind = entry.header().entry_type();
        let twice = match kind {
            EntryType::GNULongName => self.name.replace(text(entry)?).is_some(),
            EntryType::GNULongLink => self.target.replace(text(entry)?).is_some(),
            EntryType::XHeader => self.pax.replace(Records::parse(&content(entry)?)?).is_some(),
            // Comments of those who made the archive.
            EntryType::XGlobalHeader => false,
            _ => return Ok(false),
        };
        if twice {
            return Err(Error::new("two headers of one kind describe one entry"));
        }
        Ok(true)
    }
}

fn content(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>> {
    if entry.size() > LONGEST_HEADER {
        return Err(Error::new(format!("a header of {} bytes describes an entry", entry.size())));
    }
    let mut bytes = Vec::new();
    entry.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The content of one that ends in zero.
fn text(entry: &mut Entry<'_, impl Read>) -> Result<Vec<u8>> {
    let mut bytes = content(entry)?;
    bytes.truncate(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()));
    Ok(bytes)
}

/// Puts an entry's header and what came before together. `None`: it is of no interest.
fn head(index: u64, header: &Header, before: Before) -> Result<Option<Head>> {
    let Before { name, target, pax } = before;
    let pax = pax.unwrap_or_default();
    let path = pax.path.or(name).unwrap_or_else(|| header.path_bytes().into_owned());
    let wrong = |what: &str| Error::new(what).at(shown(&path));
    let target = pax.target.or(target).or_else(|| header.link_name_bytes().map(Into::into));
    let target = || {
        let target = target.clone().unwrap_or_default();
        let bad = target.is_empty() || target.len() > LONGEST_PATH || target.contains(&0);
        if bad { Err(wrong("it is a link to no path")) } else { Ok(target) }
    };
    let device = || {
        let number = |number: Option<u32>| number.ok_or_else(|| wrong("a device without number"));
        Ok::<_, Error>((number(header.device_major()?)?, number(header.device_minor()?)?))
    };
    let size = header.entry_size()?;
    let kind = match header.entry_type() {
        // A folder of archives before 1988 (tar(5)).
        EntryType::Regular if path.ends_with(b"/") && size == 0 => Kind::Folder,
        EntryType::Regular | EntryType::Continuous => Kind::File { size },
        EntryType::Directory => Kind::Folder,
        EntryType::Symlink => Kind::Symlink(target()?),
        EntryType::Link => Kind::Link(target()?),
        EntryType::Char => device().map(|(major, minor)| Kind::Character(major, minor))?,
        EntryType::Block => device().map(|(major, minor)| Kind::Block(major, minor))?,
        EntryType::Fifo => Kind::Fifo,
        EntryType::GNUSparse => {
            return Err(wrong("a sparse file, which no layer may hold (image-spec)"));
        }
        other => return Err(wrong(&format!("an entry of unknown kind {:?}", other.as_byte()))),
    };
    // Two readers that believe different sizes see different archives.
    if pax.size.is_some_and(|other| other != size) {
        return Err(wrong("its two headers name different sizes"));
    }
    let id = |number: u64| match u32::try_from(number) {
        Ok(number) if number != u32::MAX => Ok(number),
        _ => Err(wrong("it belongs to a user or group that Linux cannot have")),
    };
    let time = pax.time.map_or_else(|| header.mtime().unwrap_or(0), |time| time.max(0) as u64);
    Ok(Some(Head {
        index,
        mode: header.mode()? & 0o7777,
        user: id(pax.user.map_or_else(|| header.uid(), Ok)?)?,
        group: id(pax.group.map_or_else(|| header.gid(), Ok)?)?,
        // Programs and file systems disagree about later times.
        time: time.min(i32::MAX as u64),
        kind,
        path,
        attributes: pax.attributes,
    }))
}

/// Takes a path apart: the names in it, without a leading slash, empty parts and `.`.
///
/// # Errors
/// It leads upwards, or has a part that no file can have.
pub(crate) fn parts(path: &[u8]) -> Result<Vec<&[u8]>> {
    let wrong = |what: &str| Err(Error::new(what).at(shown(path)));
    if path.len() > LONGEST_PATH {
        return wrong("its path is longer than Linux has them");
    }
    let mut parts = Vec::new();
    for part in path.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return wrong("its path leads out of its folder (..)"),
            _ if part.len() > LONGEST_NAME => {
                return wrong("its name is longer than Linux has them");
            }
            _ if part.contains(&0) => return wrong("its name holds a zero byte"),
            _ => parts.push(part),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(parts(b"./a//b/./c/").unwrap(), [b"a", b"b", b"c"]);
        assert_eq!(parts(b"/etc/a\nb").unwrap(), [&b"etc"[..], b"a\nb"]);
        assert!(parts(b"./").unwrap().is_empty());
        for wrong in [&b".."[..], b"a/../b", b"/..", b"a/..", b"a\0b", &[b'x'; 256], &[b'/'; 4096]]
        {
            assert!(parts(wrong).is_err(), "{}", shown(wrong));
        }
    }
}
