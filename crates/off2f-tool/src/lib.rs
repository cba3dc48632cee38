//! Shared code of the commands for executables in two files, on the host and in the guest.
//!
//! * [`replace`] replaces a file by another atomically, with its owner;
//! * [`describe`] and [`description`] report the content of a header, for people and as JSON;
//! * [`memory`] reads and commands the guest kernel's list of non-volatile memory,
//!   `/proc/hayate/nvm`.
//!
//! The format itself is in the crate `hayate-off2f`, which the kernel uses as well.
#![forbid(unsafe_code)]

pub mod memory;

use anyhow::{Context, Result};
use hayate_off2f::Header;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use tempfile::{NamedTempFile, TempPath};

/// The extended attribute by which the guest's kernel returns the first page of a converted file;
/// the file's content reads as the original's.
pub const ATTRIBUTE: &str = "system.off2f";

/// The last part of a path, for people.
pub fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the page of a large page at which a store should begin the text, if that matters.
pub fn phase(header: &Header) -> Option<u32> {
    header.large.then_some(header.phase)
}

/// A new file, beside the file that it will replace.
pub struct Replacement<'a> {
    file: &'a Path,
    new: TempPath,
}

impl Replacement<'_> {
    /// Returns the path of the new file.
    pub fn path(&self) -> &Path {
        &self.new
    }

    /// Replaces the file.
    pub fn finish(self) -> Result<()> {
        self.new.persist(self.file).context("cannot be replaced")
    }
}

/// Writes what is to replace `file`: `content`, with the file's owner and `mode`.
pub fn replacement<'a>(file: &'a Path, content: &[u8], mode: u32) -> Result<Replacement<'a>> {
    let found = file.metadata()?;
    let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let new = NamedTempFile::new_in(folder).context("cannot write beside it")?.into_temp_path();
    std::fs::write(&new, content).context("cannot write beside it")?;
    // Fails for an ordinary user if the file belongs to another user; then it could not be replaced
    // either.
    chown(&new, Some(found.uid()), Some(found.gid()))?;
    std::fs::set_permissions(&new, Permissions::from_mode(mode & 0o7777))?;
    Ok(Replacement { file, new })
}

/// Replaces a file by another with the same owner, atomically.
pub fn replace(file: &Path, content: &[u8], mode: u32) -> Result<()> {
    replacement(file, content, mode)?.finish()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn kind(header: &Header) -> &'static str {
    const ET_EXEC: u16 = 2;
    if header.elf_type == ET_EXEC { "fixed addresses" } else { "position-independent" }
}

/// Returns the content of a header as lines of text; `marked`: the file has the mark without which
/// the kernel does not treat it as converted.
pub fn describe(header: &Header, marked: bool) -> String {
    let mut said = format!("{}, {} bytes as ELF\n", kind(header), header.size);
    said += &format!("  original  {}\n  text      {}\n", header.original, header.text);
    let large = if header.large { ", for large pages" } else { "" };
    said += &format!("  text      {} pages{large}\n", header.text_pages);
    said += &format!("  header    {} pages", header.file_pages());
    if header.copy.is_some() {
        said += " with a copy of the text";
    }
    if !header.build_id.is_empty() {
        said += &format!("\n  build id  {}", hexadecimal(&header.build_id));
    }
    if let Some(place) = header.place {
        let store = hexadecimal(&place.store);
        said += &format!("\n  placed    at page {} of store {store}", place.page);
    }
    if !marked {
        said += "\n  not marked: the kernel looks at it only after chmod +t";
    }
    said
}

/// Returns the content of a header as JSON.
pub fn description(header: &Header, marked: bool) -> Value {
    json!({
        "kind": kind(header),
        "bytes": header.size,
        "original": header.original.to_string(),
        "text": header.text.to_string(),
        "text-pages": header.text_pages,
        "header-pages": header.file_pages(),
        "large": header.large,
        "keeps-text": header.copy.is_some(),
        "build-id": hexadecimal(&header.build_id),
        "marked": marked,
        "store": header.place.map(|place| hexadecimal(&place.store)),
        "page": header.place.map(|place| place.page),
    })
}
