//! What an image is made of: its configuration and its layers, by an OCI layout, by what
//! `docker save` writes, or by the one archive that `docker export` writes.

use crate::blob::{Counted, Digest, check};
use crate::configuration::Configuration;
use crate::reference::Reference;
use crate::{Error, Result, shown};
use oci_spec::image::{Arch, Descriptor, ImageIndex, ImageManifest, MediaType, Os};
use serde_json::Value;
use std::io::Read;

/// The most bytes of an index, a manifest or a configuration. Registries take 4 MiB.
const LONGEST_TEXT: u64 = 8 << 20;
/// The most layers. Docker has 127.
const MOST_LAYERS: usize = 1000;
/// How deep an index may lead to an index.
const MOST_INDEXES: usize = 4;

/// Where an image's files are.
pub trait Source {
    /// Opens a file by its path in the layout or archive, and tells its length.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    fn open(&self, path: &str) -> Result<(Box<dyn Read + '_>, u64)>;

    /// Whether there is such a file.
    fn has(&self, path: &str) -> bool;
}

/// An image.
#[derive(Clone, Debug)]
pub struct Image {
    /// The digest of its configuration, which names all layers: the image's ID, as Docker shows it.
    pub id: Digest,
    /// The digest of its manifest, if it has one.
    pub manifest: Option<Digest>,
    /// Its configuration, as text.
    pub text: Vec<u8>,
    /// The same, read.
    pub configuration: Configuration,
    /// Its layers, the lowest first.
    pub layers: Vec<Layer>,
}

/// A layer of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The path of its file in the [`Source`].
    pub path: String,
    /// The digest of the file.
    pub digest: Option<Digest>,
    /// The length of the file.
    pub size: Option<u64>,
    /// The digest of what is unpacked from it.
    pub diff: Option<Digest>,
}

/// Reads the image of a source; `tag` chooses among several.
///
/// # Errors
/// There is none or more than one, it is not for this machine, or it is not what it names.
pub fn read(source: &impl Source, tag: Option<&str>) -> Result<Image> {
    if source.has("index.json") && source.has("oci-layout") {
        let text = text(source, "index.json", None)?;
        let index: ImageIndex =
            serde_json::from_slice(&text).map_err(|error| unreadable("index.json", &error))?;
        return by_index(source, index, tag, 0);
    }
    if source.has("manifest.json") {
        return saved(source, tag);
    }
    Err(Error::new("it is no image: it has neither oci-layout and index.json nor manifest.json"))
}

/// Reads the image of the manifest with this digest.
///
/// # Errors
/// As of [`read`].
pub fn by_digest(source: &impl Source, digest: Digest) -> Result<Image> {
    let text = text(source, &blob_path(&digest), Some(&digest))?;
    by_manifest(source, &text, digest, 0)
}

/// The image of an archive as `docker export` writes it: one layer, and no word about its program.
/// `id` stands for its content.
pub fn exported(path: &str, id: Digest) -> Image {
    let layer = Layer { path: path.into(), digest: None, size: None, diff: None };
    let configuration = Configuration::default();
    Image { id, manifest: None, text: Vec::new(), configuration, layers: vec![layer] }
}

fn unreadable(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::new(format!("{what} cannot be read: {error}"))
}

/// The path of a blob in a layout.
pub fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Reads a small file, and compares its digest.
fn text(source: &impl Source, path: &str, wanted: Option<&Digest>) -> Result<Vec<u8>> {
    let read = || {
        let (file, length) = source.open(path)?;
        if length > LONGEST_TEXT {
            return Err(Error::new(format!("it has {length} bytes, more than such a file needs")));
        }
        let mut bytes = Vec::new();
        let mut file = Counted::new(file, LONGEST_TEXT);
        file.read_to_end(&mut bytes)?;
        if let Some(wanted) = wanted {
            check("it", wanted, &file.digest())?;
        }
        Ok(bytes)
    };
    read().map_err(|error| error.at(shown(path.as_bytes())))
}

/// Chooses a manifest of an index.
fn by_index(
    source: &impl Source,
    index: ImageIndex,
    tag: Option<&str>,
    depth: usize,
) -> Result<Image> {
    let fits = |entry: &&Descriptor| {
        // Builders file what they say about an image as one for unknown/unknown.
        entry.platform().as_ref().is_none_or(|platform| {
            *platform.os() == Os::Linux && *platform.architecture() == Arch::Amd64
        })
    };
    let named = |entry: &&Descriptor| {
        let Some(tag) = tag else { return true };
        names(entry).any(|name| is_name(name, tag))
    };
    let tagged: Vec<&Descriptor> = index.manifests().iter().filter(named).collect();
    let mut found: Vec<&Descriptor> = tagged.iter().copied().filter(fits).collect();
    found.dedup_by_key(|entry| entry.digest().clone());
    let all = || {
        let names = index.manifests().iter().flat_map(names);
        names.map(|name| shown(name.as_bytes())).collect::<Vec<_>>().join(", ")
    };
    let chosen = match &found[..] {
        [one] => *one,
        [] if tagged.is_empty() => {
            let tag = shown(tag.unwrap_or_default().as_bytes());
            return Err(Error::new(format!("it holds no image {tag} (it has: {})", all())));
        }
        [] => return Err(Error::new("it holds no image for linux/amd64")),
        _ if depth > 0 => found[0],
        _ => {
            let text = format!("it holds several images; name one behind a colon: {}", all());
            return Err(Error::new(text));
        }
    };
    let digest = digest(chosen)?;
    let text = text(source, &blob_path(&digest), Some(&digest))?;
    by_manifest(source, &text, digest, depth)
}

fn digest(descriptor: &Descriptor) -> Result<Digest> {
    Digest::parse(descriptor.digest().as_ref())
}

/// The names that an index gives an image.
fn names(entry: &Descriptor) -> impl Iterator<Item = &str> {
    const KEYS: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
    let known = entry.annotations().as_ref();
    KEYS.into_iter().filter_map(move |key| known?.get(key).map(String::as_str))
}

/// Whether a name of an archive is meant by what the user wrote: the same, its tag, or the same in
/// full.
fn is_name(name: &str, wanted: &str) -> bool {
    let full = |text: &str| text.parse::<Reference>().ok().map(|reference| reference.whole());
    let tag = name.rsplit_once(':').map(|(_, tag)| tag);
    name == wanted || tag == Some(wanted) || full(name).is_some() && full(name) == full(wanted)
}

/// Reads a manifest, or an index of manifests for several machines.
fn by_manifest(source: &impl Source, bytes: &[u8], own: Digest, depth: usize) -> Result<Image> {
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| unreadable("its manifest", &error))?;
    if value.get("manifests").is_some() {
        if depth >= MOST_INDEXES {
            return Err(Error::new("its index leads to an index, and so on"));
        }
        let index = ImageIndex::from_reader(bytes);
        let index = index.map_err(|error| unreadable("its index", &error))?;
        return by_index(source, index, None, depth + 1);
    }
    let manifest = ImageManifest::from_reader(bytes);
    let manifest = manifest.map_err(|error| unreadable("its manifest", &error))?;
    let id = digest(manifest.config())?;
    let text = text(source, &blob_path(&id), Some(&id))?;
    if !is_configuration(manifest.config().media_type()) {
        return Err(Error::new("it holds no image, but another artifact"));
    }
    let configuration = Configuration::parse(&text)?;
    let layers = manifest.layers().iter().map(|layer| {
        let digest = digest(layer)?;
        let (path, size) = (blob_path(&digest), Some(layer.size()));
        Ok(Layer { path, digest: Some(digest), size, diff: None })
    });
    let layers = layers.collect::<Result<_>>()?;
    whole(Image { id, manifest: Some(own), text, configuration, layers })
}

fn is_configuration(kind: &MediaType) -> bool {
    *kind == MediaType::ImageConfig
        || kind.to_string() == "application/vnd.docker.container.image.v1+json"
}

/// Gives each layer its digest from the configuration.
fn whole(mut image: Image) -> Result<Image> {
    let diffs = &image.configuration.diffs;
    if image.layers.len() > MOST_LAYERS {
        return Err(Error::new(format!("it has more than {MOST_LAYERS} layers")));
    }
    if diffs.len() != image.layers.len() {
        let (own, named) = (image.layers.len(), diffs.len());
        return Err(Error::new(format!(
            "it has {own} layers, and its configuration names {named}"
        )));
    }
    for (layer, diff) in image.layers.iter_mut().zip(diffs) {
        layer.diff = Some(*diff);
    }
    Ok(image)
}

/// Reads what `docker save` writes: a list of images, each with a configuration, layers and names.
fn saved(source: &impl Source, tag: Option<&str>) -> Result<Image> {
    let text = text(source, "manifest.json", None)?;
    let list: Vec<Value> =
        serde_json::from_slice(&text).map_err(|error| unreadable("manifest.json", &error))?;
    let words = |image: &Value, key: &str| -> Vec<String> {
        let words = image.get(key).and_then(Value::as_array).into_iter().flatten();
        words.filter_map(|word| word.as_str().map(String::from)).collect()
    };
    let named = |image: &&Value| {
        let Some(tag) = tag else { return true };
        words(image, "RepoTags").iter().any(|name| is_name(name, tag))
    };
    let found: Vec<&Value> = list.iter().filter(named).collect();
    let [image] = found[..] else {
        let all = list.iter().flat_map(|image| words(image, "RepoTags"));
        let all: Vec<String> = all.map(|name| shown(name.as_bytes())).collect();
        let how = if found.is_empty() { "no such image" } else { "several images" };
        let text = format!("it holds {how}; name one behind a colon: {}", all.join(", "));
        return Err(Error::new(text));
    };
    let path = image.get("Config").and_then(Value::as_str).unwrap_or_default();
    let text = self::text(source, path, None)?;
    let id = Digest::of(&text);
    let name = path.rsplit('/').next().unwrap_or_default();
    if let Some(wanted) = Digest::of_hex(name.strip_suffix(".json").unwrap_or(name)) {
        check("its configuration", &wanted, &id)?;
    }
    let configuration = Configuration::parse(&text)?;
    let layers = words(image, "Layers").into_iter();
    let layers = layers.map(|path| Layer { path, digest: None, size: None, diff: None }).collect();
    whole(Image { id, manifest: None, text, configuration, layers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_docker_reads_them() {
        for (name, wanted) in [
            ("a:1", "a:1"),
            ("latest", "latest"),
            ("docker.io/library/a:1", "a:1"),
            ("docker.io/library/a:latest", "a"),
            ("localhost:5000/x/a:2", "2"),
        ] {
            assert!(is_name(name, wanted), "{name} {wanted}");
        }
        for (name, wanted) in [("a:1", "a"), ("a:1", "b:1"), ("x/a:1", "a:1"), ("a", "x:a")] {
            assert!(!is_name(name, wanted), "{name} {wanted}");
        }
    }
}
