//! Root file systems: the default one made of Debian packages, and the user's own.
//!
//! Everything is made once, kept in `build/images` under a name derived from its sources, and made
//! again only when these change. All of it works for an ordinary user: fakeroot handles owners and
//! devices.

mod attributes;
pub mod convert;
pub mod debian;
pub mod default;
pub mod in_place;
pub(crate) mod scratch;
pub mod small;
pub(crate) mod source;

use crate::{paths, progress::Progress};
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// `image build`. With `off2f` the programs that match it are in two files, and a second path is
/// returned, that of their texts. Without `rootfs` it is the image of a recipe, the default one if
/// none is named.
pub fn build(
    rootfs: Option<&Path>,
    recipe: Option<&default::Recipe>,
    off2f: Option<&str>,
) -> Result<Vec<PathBuf>> {
    let recipe = recipe.unwrap_or(&default::DEFAULT);
    let split = match (rootfs, off2f) {
        (Some(path), None) => return Ok(vec![convert::disk(path)?]),
        (None, None) => return Ok(vec![recipe.make()?]),
        (Some(path), Some(glob)) => convert::split(path, glob, false)?,
        (None, Some(glob)) => recipe.split(glob)?,
    };
    Ok(vec![split.image, split.nvm])
}

/// `image list`: a line for each image, with its size on the disk and its content.
pub fn list() -> Result<()> {
    let mut images: Vec<PathBuf> = paths::build("images")?
        .read_dir()?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "ext4" || end == "cpio"))
        .collect();
    images.sort();
    for image in &images {
        use std::os::unix::fs::MetadataExt;
        let mib = image.metadata()?.blocks() >> 11;
        let about = std::fs::read_to_string(image.with_extension("about")).unwrap_or_default();
        println!("{mib:6} MiB  {}  {}", image.display(), about.lines().next().unwrap_or_default());
    }
    if images.is_empty() {
        println!("no images yet; ./hayate image build makes the default one");
    }
    Ok(())
}

/// Returns a short name derived from the parts.
pub(crate) fn key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a file through a temporary one, so that an interrupted run leaves no file that looks
/// finished.
pub(crate) fn finished(
    path: &Path,
    about: &str,
    saying: &str,
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let _step = Progress::new(saying);
    let scratch = scratch::Scratch::new()?;
    let temporary = scratch.path().join("image");
    make(&temporary)?;
    std::fs::write(path.with_extension("about"), format!("{about}\n"))?;
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o644))?;
    std::fs::rename(&temporary, path).with_context(|| format!("cannot keep {}", path.display()))?;
    Ok(path.to_path_buf())
}
