//! The record of images, in `build/cache/containers`: for each name which image it is, for each
//! image what it says about its program, and the blobs of images of registries, by their digests.
//! Disks are in `build/images`.
//!
//! One lock is held from the fetch of blobs to the record that names them, and while what no record
//! names is removed. Records and texts are replaced as a whole, and read without a lock.

use super::place::{Opened, bytes};
use super::{registry, stem};
use crate::image::key;
use crate::paths;
use anyhow::{Context, Result};
use hayate_container_image::archive::Folder;
use hayate_container_image::{Configuration, Digest, Image, Reference, image};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The record of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The name in full.
    pub name: String,
    /// The state of its place.
    pub state: String,
    /// Which image it is.
    pub id: Digest,
    /// Its blobs, if they are kept: manifest, configuration, layers.
    pub blobs: Vec<Digest>,
    /// When it was learnt, in seconds since 1970.
    pub made: u64,
}

impl Record {
    fn encode(&self) -> String {
        let value = json!({
            "name": self.name,
            "state": self.state,
            "id": self.id.to_string(),
            "blobs": self.blobs.iter().map(Digest::to_string).collect::<Vec<_>>(),
            "made": self.made,
        });
        format!("{value}\n")
    }

    fn decode(text: &str) -> Option<Record> {
        let value: Value = serde_json::from_str(text).ok()?;
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_string());
        Some(Record {
            name: text("name")?,
            state: text("state")?,
            id: Digest::parse(&text("id")?).ok()?,
            blobs: value
                .get("blobs")?
                .as_array()?
                .iter()
                .map(|blob| Digest::parse(blob.as_str()?).ok())
                .collect::<Option<_>>()?,
            made: value.get("made")?.as_u64()?,
        })
    }
}

fn names() -> Result<PathBuf> {
    paths::build("cache/containers/names")
}

fn record_path(name: &str) -> Result<PathBuf> {
    Ok(names()?.join(format!("{}.json", key([bytes(name)]))))
}

fn text_path(id: &Digest) -> Result<PathBuf> {
    Ok(paths::build("cache/containers/configurations")?.join(format!("{}.json", id.hex())))
}

fn record(name: &str) -> Result<Option<Record>> {
    let Ok(text) = std::fs::read_to_string(record_path(name)?) else { return Ok(None) };
    Ok(Record::decode(&text).filter(|known| known.name == name))
}

/// The record of a name whose place is in this state.
pub fn known(name: &str, state: &str) -> Result<Option<(Record, Configuration)>> {
    let Some(record) = record(name)?.filter(|known| known.state == state) else {
        return Ok(None);
    };
    let Ok(text) = self::text(&record.id) else { return Ok(None) };
    // A configuration that was kept was read once.
    Ok(configuration(&text).ok().map(|configuration| (record, configuration)))
}

/// Reads what was kept by [`text`]; nothing is what an archive of files says of its program.
pub fn configuration(text: &str) -> Result<Configuration> {
    if text.is_empty() {
        return Ok(Configuration::default());
    }
    Ok(Configuration::parse(text.as_bytes())?)
}

/// What an image says about its program.
pub fn text(id: &Digest) -> Result<String> {
    let path = text_path(id)?;
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Keeps what was learnt of a name.
pub fn keep(record: &Record, configuration: &[u8]) -> Result<()> {
    replace(&text_path(&record.id)?, configuration)?;
    replace(&record_path(&record.name)?, record.encode().as_bytes())
}

/// Writes a file through another, so that nobody reads half of it.
fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let write = || {
        let folder = path.parent().unwrap_or(path);
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(content)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok::<_, std::io::Error>(())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Takes the lock that is held while images are fetched and removed.
pub fn alone() -> Result<File> {
    paths::lock("containers")
}

fn folder() -> Result<PathBuf> {
    paths::build("cache/containers")
}

/// Opens an image of a registry, which is fetched unless it is there.
pub fn pulled(reference: &Reference) -> Result<(Image, Opened)> {
    let kept = record(&reference.whole())?.and_then(|record| record.blobs.first().copied());
    let files = Folder(folder()?);
    if let Some(image) = kept.and_then(|manifest| image::by_digest(&files, manifest).ok()) {
        return Ok((image, Opened::Layout(files)));
    }
    fetched(reference)
}

/// Fetches an image of a registry.
pub fn fetched(reference: &Reference) -> Result<(Image, Opened)> {
    let files = Folder(folder()?);
    let manifest = registry::fetch(reference, &paths::build("cache/containers/blobs")?)?;
    let image = image::by_digest(&files, manifest)
        .with_context(|| format!("the image {}", reference.whole()))?;
    Ok((image, Opened::Layout(files)))
}

/// All records, in the order of their names.
pub fn all() -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for entry in names()?.read_dir()? {
        let text = std::fs::read_to_string(entry?.path()).unwrap_or_default();
        records.extend(Record::decode(&text));
    }
    records.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(records)
}

/// Forgets a name.
pub fn forget(record: &Record) -> Result<()> {
    let path = record_path(&record.name)?;
    std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Whether a name is that of a file or folder which is gone, or another one now.
pub fn is_stale(record: &Record) -> bool {
    let is_local = record.name.starts_with('/') || record.name.starts_with("oci:");
    let state = || super::place::Place::of(&record.name)?.state();
    is_local && state().map_or(true, |state| state != record.state)
}

/// The image that a disk in `build/images`, or a file beside one, is of.
fn key_of(name: &str) -> Option<&str> {
    let rest = name.strip_prefix("container-")?;
    let rest = rest.strip_prefix("off2f-").unwrap_or(rest);
    rest.split(['-', '.']).next()
}

/// The files in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn size(path: &Path) -> u64 {
    path.symlink_metadata().map_or(0, |found| found.blocks() * 512)
}

/// How many bytes the disks of an image take.
pub fn disk_of(id: &Digest) -> Result<u64> {
    let own = stem(id);
    let all = files(&paths::build("images")?)?;
    Ok(all
        .iter()
        .filter(|path| key_of(&file_name(path)) == Some(&own))
        .map(|path| size(path))
        .sum())
}

/// Removes what no record names: disks, texts and blobs. Returns how many bytes are free again.
pub fn sweep() -> Result<u64> {
    let _alone = alone()?;
    let records = all()?;
    let stems: BTreeSet<String> = records.iter().map(|record| stem(&record.id)).collect();
    let texts: BTreeSet<String> = records.iter().map(|record| record.id.hex()).collect();
    let blobs: BTreeSet<String> =
        records.iter().flat_map(|record| &record.blobs).map(Digest::hex).collect();
    let mut gone = files(&paths::build("images")?)?;
    gone.retain(|path| key_of(&file_name(path)).is_some_and(|key| !stems.contains(key)));
    let known = |path: &PathBuf, names: &BTreeSet<String>| {
        let name = file_name(path);
        names.contains(name.strip_suffix(".json").unwrap_or(&name))
    };
    let all = files(&paths::build("cache/containers/configurations")?)?;
    gone.extend(all.into_iter().filter(|path| !known(path, &texts)));
    let all = files(&paths::build("cache/containers/blobs/sha256")?)?;
    gone.extend(all.into_iter().filter(|path| !known(path, &blobs)));
    let mut freed = 0;
    for path in gone {
        let size = size(&path);
        // Another command may have been quicker.
        if std::fs::remove_file(&path).is_ok() {
            freed += size;
        }
    }
    Ok(freed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_written() {
        let record = Record {
            name: "a\n\"b".into(),
            state: "s".into(),
            id: Digest::of(b"1"),
            blobs: vec![Digest::of(b"2"), Digest::of(b"1")],
            made: 7,
        };
        assert_eq!(Record::decode(&record.encode()), Some(record.clone()));
        let record = Record { blobs: Vec::new(), ..record };
        assert_eq!(Record::decode(&record.encode()), Some(record));
        assert_eq!(Record::decode("{}"), None);
    }

    #[test]
    fn disks_are_of_the_image_in_their_names() {
        for (name, key) in [
            ("container-0011.ext4", Some("0011")),
            ("container-0011.about", Some("0011")),
            ("container-off2f-0011-22.nvm.summary", Some("0011")),
            ("default-0011.ext4", None),
        ] {
            assert_eq!(key_of(name), key);
        }
    }
}
