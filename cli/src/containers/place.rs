//! Where an image is, by what the user wrote.
//!
//! `oci:FOLDER[:NAME]`, `oci-archive:FILE[:NAME]` and `docker-archive:FILE[:NAME]` are the words of
//! skopeo and podman. Without one, what begins as a path does (`/`, `./`, `../`) is a path, and so
//! is a file, or a folder with a layout, of that name; everything else is a registry's.

use super::{cache, step};
use crate::failure::{Failure, USAGE};
use crate::image::{key, scratch::Scratch, source};
use anyhow::{Context, Result, bail};
use hayate_container_image::archive::{Folder, Members, is_compressed, plain};
use hayate_container_image::{Digest, Error, Image, Limits, Reference, Source, image};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder with an OCI layout, and which of its images.
    Layout(PathBuf, Option<String>),
    /// An archive, and which of its images.
    Archive(PathBuf, Option<String>),
    /// A registry.
    Registry(Reference),
}

/// The files of an image.
pub enum Opened {
    /// Of a layout.
    Layout(Folder),
    /// Of an archive.
    Members(Members, #[expect(dead_code, reason = "it holds the file")] Option<Scratch>),
    /// An archive that is its only layer.
    Whole(File),
}

impl Source for Opened {
    fn open(&self, path: &str) -> Result<(Box<dyn Read + '_>, u64), Error> {
        match self {
            Opened::Layout(folder) => folder.open(path),
            Opened::Members(members, _) => members.open(path),
            Opened::Whole(file) => {
                let length = file.metadata()?.len();
                Ok((Box::new(FromStart { file, at: 0 }), length))
            }
        }
    }

    fn has(&self, path: &str) -> bool {
        match self {
            Opened::Layout(folder) => folder.has(path),
            Opened::Members(members, _) => members.has(path),
            Opened::Whole(_) => true,
        }
    }
}

/// A file from its beginning; another reader has a position of its own.
struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = std::os::unix::fs::FileExt::read_at(self.file, buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Place {
    /// Reads what the user wrote.
    pub fn of(text: &str) -> Result<Place> {
        if let Some(rest) = text.strip_prefix("oci:") {
            let (path, name) = split(rest);
            return Ok(Place::Layout(path, name));
        }
        let archive =
            text.strip_prefix("oci-archive:").or_else(|| text.strip_prefix("docker-archive:"));
        if let Some(rest) = archive {
            let (path, name) = split(rest);
            return Ok(Place::Archive(path, name));
        }
        if let Some(rest) = text.strip_prefix("docker://") {
            return reference(rest).map(Place::Registry);
        }
        let is_path = ["/", "./", "../"].iter().any(|start| text.starts_with(start));
        let (path, name) = split(text);
        if path.join("oci-layout").is_file() {
            return Ok(Place::Layout(path, name));
        }
        if path.is_file() || is_path {
            return Ok(Place::Archive(path, name));
        }
        reference(text).map(Place::Registry)
    }

    /// Its name in full, under which it is kept and shown.
    pub fn name(&self) -> String {
        let full = |kind: &str, path: &Path, name: &Option<String>| {
            let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
            let name = name.as_ref().map(|name| format!(":{name}")).unwrap_or_default();
            format!("{kind}{}{name}", path.display())
        };
        match self {
            Place::Layout(path, name) => full("oci:", path, name),
            Place::Archive(path, name) => full("", path, name),
            Place::Registry(reference) => reference.whole(),
        }
    }

    /// A name for its state: while that is the same, so is the image.
    pub fn state(&self) -> Result<String> {
        match self {
            Place::Layout(path, _) => {
                let index = path.join("index.json");
                let bytes = std::fs::read(&index)
                    .with_context(|| format!("cannot read {}", index.display()))?;
                Ok(key([&bytes[..]]))
            }
            Place::Archive(path, _) => {
                let found = path
                    .metadata()
                    .with_context(|| format!("cannot find the image {}", path.display()))?;
                if found.is_dir() {
                    bail!(
                        "{} is a folder without an OCI layout; --rootfs takes a folder of files",
                        path.display()
                    );
                }
                if !found.is_file() {
                    bail!("{} is neither a file nor a folder", path.display());
                }
                source::file_key(path)
            }
            Place::Registry(_) => Ok(String::new()),
        }
    }

    /// Opens the image.
    pub fn open(&self) -> Result<(Image, Opened)> {
        match self {
            Place::Layout(path, name) => {
                let folder = Folder(path.clone());
                let image = image::read(&folder, name.as_deref())?;
                Ok((image, Opened::Layout(folder)))
            }
            Place::Archive(path, name) => archive(path, name.as_deref()),
            Place::Registry(reference) => cache::pulled(reference),
        }
    }
}

/// Opens an archive: of a layout, of `docker save`, or of `docker export`.
fn archive(path: &Path, name: Option<&str>) -> Result<(Image, Opened)> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut scratch = None;
    if is_compressed(&file)? {
        let _step = step(format!("Unpacking {}", path.display()));
        let folder = Scratch::new()?;
        let unpacked = folder.path().join("archive");
        let options = File::options().create_new(true).read(true).write(true).open(&unpacked);
        let target = options.with_context(|| format!("cannot write {}", unpacked.display()))?;
        plain(&file, &target, Limits::default())?;
        (file, scratch) = (target, Some(folder));
    }
    if let Some(members) = Members::find(file.try_clone()?)? {
        let image = image::read(&members, name)?;
        return Ok((image, Opened::Members(members, scratch)));
    }
    if let Some(name) = name {
        bail!("{} holds one file system, and no image {name}", path.display());
    }
    let id = Digest::of(source::file_key(path)?.as_bytes());
    Ok((image::exported("", id), Opened::Whole(file)))
}

/// Takes `PATH[:NAME]` apart. A path with a colon that exists is one.
fn split(text: &str) -> (PathBuf, Option<String>) {
    let whole = PathBuf::from(text);
    match text.split_once(':') {
        Some((path, name)) if !whole.exists() && !name.is_empty() => {
            (path.into(), Some(name.into()))
        }
        _ => (whole, None),
    }
}

fn reference(text: &str) -> Result<Reference> {
    text.parse().map_err(|error| {
        let text = format!(
            "--image {}: {error}; write it as alpine:3, ghcr.io/me/app, ./image.tar or oci:FOLDER",
            hayate_container_image::shown(text.as_bytes())
        );
        Failure::error(USAGE, text)
    })
}

/// A place as bytes, for names of files.
pub fn bytes(name: &str) -> &[u8] {
    std::ffi::OsStr::new(name).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_by_their_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let text = |name: &str| path(name).to_string_lossy().into_owned();
        std::fs::write(path("a.tar"), "").unwrap();
        std::fs::create_dir(path("layout")).unwrap();
        std::fs::write(path("layout/oci-layout"), "").unwrap();
        let of = |text: &str| Place::of(text).unwrap();
        let some = |text: &str| Some(text.to_string());
        assert_eq!(of(&text("a.tar")), Place::Archive(path("a.tar"), None));
        assert_eq!(
            of(&format!("{}:x:1", text("a.tar"))),
            Place::Archive(path("a.tar"), some("x:1"))
        );
        assert_eq!(of(&text("layout")), Place::Layout(path("layout"), None));
        assert_eq!(of("oci:some:1"), Place::Layout("some".into(), some("1")));
        assert_eq!(of("oci-archive:f"), Place::Archive("f".into(), None));
        assert_eq!(of("docker-archive:f:a:1"), Place::Archive("f".into(), some("a:1")));
        for (text, name) in [
            ("alpine", "docker.io/library/alpine:latest"),
            ("docker://alpine:3", "docker.io/library/alpine:3"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
        ] {
            let place = of(text);
            assert!(matches!(place, Place::Registry(_)) && place.name() == name, "{text}");
        }
        assert!(Place::of("Not A Name").is_err());
        assert!(of(&text("none")).state().unwrap_err().to_string().contains("cannot find"));
        assert!(
            of(&format!("{}/", text("")))
                .state()
                .unwrap_err()
                .to_string()
                .contains("without an OCI layout")
        );
    }
}
