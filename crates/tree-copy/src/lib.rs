//! A file or a folder as a stream of bytes, from one file system to another: `./hayate cp`.
//!
//! The stream is a tar archive whose first entry is the thing itself: `.` for a folder, `file` for
//! anything else, and then nothing else follows. Only the receiver knows where it goes; the rules
//! are those of `docker cp` ([`Target`]). Regular files, folders and symbolic links are copied,
//! with their modes and times; sockets, devices and FIFOs are passed over, and told.
//!
//! # Trust
//!
//! What comes out of a guest is an allegation. Everything is unpacked below the one folder that the
//! receiver chose: names with `..` and ways that lead through symbolic links are refused by
//! `tar`, which resolves each entry's folder first. A file becomes a new file, so an existing link
//! is never written through. The receiver says whether set-user-ID bits and owners count.
//!
//! # Road not taken
//!
//! The `tar` program of the image: an image need not have one, and the host would trust options of
//! a program in the guest for what it writes.
#![forbid(unsafe_code)]

use std::fs::{File, Metadata, Permissions};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Builder, Entry, EntryType, Header, HeaderMode};

/// The name of the first entry, if it is a folder.
const FOLDER: &str = ".";
/// The same, if it is none.
const FILE: &str = "file";

/// Where a copy goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The path that the user gave.
    pub path: PathBuf,
    /// The name of the source, which it gets in an existing folder.
    pub name: PathBuf,
    /// Whether only what is in the source folder is copied (`SOURCE/.`).
    pub contents: bool,
    /// Whether set-user-ID and set-group-ID bits are kept.
    pub keep_set_id: bool,
    /// Whether owners are kept; otherwise everything is the receiver's.
    pub keep_owners: bool,
}

/// Returns the name of a source and whether only its contents are meant (`folder/.`).
///
/// # Errors
/// The path has no name, as `/` and `..` have none.
pub fn source(path: &Path) -> Result<(PathBuf, bool)> {
    let contents = path.as_os_str().as_encoded_bytes().ends_with(b"/.")
        || path.as_os_str() == "."
        || path == Path::new("/");
    match path.file_name() {
        Some(name) => Ok((name.into(), contents)),
        None if contents => Ok((PathBuf::from("."), true)),
        None => Err(said(ErrorKind::InvalidInput, path, "it has no name; write PATH/. for it")),
    }
}

fn said(kind: ErrorKind, path: &Path, what: &str) -> Error {
    Error::new(kind, format!("{}: {what}", path.display()))
}

/// Adds the path to an error.
fn at(path: &Path) -> impl Fn(Error) -> Error {
    move |error| Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Writes what lies at `source`, and calls `told` for each thing that cannot be copied. `follow`:
/// if the source itself is a symbolic link, what it points to is copied.
///
/// # Errors
/// Something cannot be read, or the stream not be written.
pub fn pack(
    source: &Path,
    follow: bool,
    out: impl Write,
    mut told: impl FnMut(&str),
) -> Result<()> {
    let mut builder = Builder::new(out);
    builder.mode(HeaderMode::Complete);
    let follow = follow || source.as_os_str().as_encoded_bytes().ends_with(b"/");
    let found = if follow { source.metadata() } else { source.symlink_metadata() };
    let found = found.map_err(at(source))?;
    let name = Path::new(if found.is_dir() { FOLDER } else { FILE });
    if is_special(&found) {
        return Err(said(ErrorKind::InvalidInput, source, "it is no file, folder or link"));
    }
    add(&mut builder, source, name, &found)?;
    let mut pending = if found.is_dir() { vec![PathBuf::new()] } else { Vec::new() };
    while let Some(folder) = pending.pop() {
        let full = source.join(&folder);
        let mut entries: Vec<_> =
            full.read_dir().map_err(at(&full))?.collect::<Result<_>>().map_err(at(&full))?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), folder.join(entry.file_name()));
            let found = match path.symlink_metadata() {
                Ok(found) => found,
                // Removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(at(&path)(error)),
            };
            if is_special(&found) {
                told(&format!("{}: it is no file, folder or link, and not copied", path.display()));
                continue;
            }
            add(&mut builder, &path, &name, &found)?;
            if found.is_dir() {
                pending.push(name);
            }
        }
    }
    builder.into_inner()?.flush()
}

fn is_special(found: &Metadata) -> bool {
    let kind = found.file_type();
    kind.is_socket() || kind.is_fifo() || kind.is_char_device() || kind.is_block_device()
}

/// Adds one thing.
fn add(
    builder: &mut Builder<impl Write>,
    path: &Path,
    name: &Path,
    found: &Metadata,
) -> Result<()> {
    let mut header = Header::new_gnu();
    header.set_metadata_in_mode(found, HeaderMode::Complete);
    if found.is_symlink() {
        let target = path.read_link().map_err(at(path))?;
        header.set_size(0);
        return builder.append_link(&mut header, name, target).map_err(at(path));
    }
    if found.is_dir() {
        header.set_size(0);
        return builder.append_data(&mut header, name, std::io::empty()).map_err(at(path));
    }
    let file = File::open(path).map_err(at(path))?;
    let mut content = Exactly { file, left: found.len(), is_short: false };
    builder.append_data(&mut header, name, &mut content).map_err(at(path))?;
    if content.is_short {
        return Err(said(ErrorKind::Other, path, "it became shorter while it was copied"));
    }
    Ok(())
}

/// So many bytes of a file, as its header says, although the file may change meanwhile.
struct Exactly {
    file: File,
    left: u64,
    is_short: bool,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let mut count = if self.is_short { 0 } else { self.file.read(&mut buffer[..most])? };
        if count == 0 && most > 0 {
            self.is_short = true;
            buffer[..most].fill(0);
            count = most;
        }
        self.left -= count as u64;
        Ok(count)
    }
}

/// Puts a stream where the target says, and calls `told` for each thing that is passed over.
///
/// # Errors
/// The target cannot hold it, something cannot be written, or the stream makes no sense.
pub fn unpack(input: impl Read, target: &Target, mut told: impl FnMut(&str)) -> Result<()> {
    let mut archive = Archive::new(input);
    archive.set_preserve_permissions(target.keep_set_id);
    archive.set_preserve_ownerships(target.keep_owners);
    archive.set_unpack_xattrs(false);
    let mut entries = archive.entries()?;
    let nothing = || Error::new(ErrorKind::UnexpectedEof, "nothing came");
    let mut first = entries.next().ok_or_else(nothing)??;
    let is_folder = first.header().entry_type().is_dir();
    let place = target.place(is_folder)?;
    if !is_folder {
        if first.path()? != Path::new(FILE) || !is_copied(&first) {
            return Err(Error::new(ErrorKind::InvalidData, "the stream makes no sense"));
        }
        if place.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            std::fs::remove_file(&place).map_err(at(&place))?;
        }
        first.unpack(&place).map_err(at(&place))?;
        return match entries.next() {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::InvalidData, "more than one file came")),
        };
    }
    let mode = first.header().mode()? & 0o777;
    let is_new = !place.exists();
    if is_new {
        std::fs::create_dir(&place).map_err(at(&place))?;
    }
    let mut folders = Vec::new();
    for entry in entries {
        let mut entry = entry?;
        if !is_copied(&entry) {
            told(&format!("{}: not copied", entry.path()?.display()));
            continue;
        }
        if entry.header().entry_type().is_dir() {
            // A folder gets its mode when all that is in it is there.
            let path = entry.path()?.into_owned();
            folders.push((place.join(path), entry.header().mode()? & 0o777));
        }
        if !entry.unpack_in(&place)? {
            let path = entry.path()?.display().to_string();
            return Err(Error::new(
                ErrorKind::InvalidData,
                format!("{path}: not below the folder"),
            ));
        }
    }
    for (path, mode) in folders.into_iter().rev() {
        // It was made or found as a folder above, and may have become something else only by what
        // somebody does here meanwhile.
        if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            let _ = std::fs::set_permissions(&path, Permissions::from_mode(mode));
        }
    }
    if is_new {
        std::fs::set_permissions(&place, Permissions::from_mode(mode)).map_err(at(&place))?;
    }
    Ok(())
}

/// Whether an entry is of a kind that [`pack`] writes.
fn is_copied(entry: &Entry<'_, impl Read>) -> bool {
    matches!(
        entry.header().entry_type(),
        EntryType::Regular | EntryType::Continuous | EntryType::Directory | EntryType::Symlink
    )
}

impl Target {
    /// Returns the path that the copy itself gets.
    fn place(&self, is_folder: bool) -> Result<PathBuf> {
        let path = &self.path;
        let wants_folder = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        // A link to a folder counts as that folder.
        match path.metadata() {
            Ok(found) if found.is_dir() => {
                let whole = std::fs::canonicalize(path).map_err(at(path))?;
                if is_folder && self.contents {
                    return Ok(whole);
                }
                let plain = matches!(
                    self.name.components().collect::<Vec<_>>()[..],
                    [Component::Normal(_)]
                );
                if !plain {
                    return Err(said(ErrorKind::InvalidInput, &self.name, "it is no name"));
                }
                let place = whole.join(&self.name);
                match place.symlink_metadata() {
                    Ok(found) if found.is_dir() != is_folder => {
                        let what = if is_folder { "it is no folder" } else { "it is a folder" };
                        Err(said(ErrorKind::AlreadyExists, &place, what))
                    }
                    _ => Ok(place),
                }
            }
            Ok(_) if is_folder || wants_folder => {
                Err(said(ErrorKind::NotADirectory, path, "it is no folder"))
            }
            Ok(_) => Ok(path.clone()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if wants_folder && !is_folder {
                    return Err(said(ErrorKind::NotFound, path, "there is no such folder"));
                }
                Ok(path.clone())
            }
            Err(error) => Err(at(path)(error)),
        }
    }
}
