//! Roots that last (`--persist NAME`): a disk of this project's that is the writable layer of a
//! root file system, so that the next machine of that name finds what the last one changed.
//!
//! The layer has whole files and knows of the lower file system only what is removed. So it goes
//! with the very root that it was begun with: beside the disk there is the name of that root's
//! image, which contains a hash of what the image was made of.

use crate::arguments::disks::MakeDisk;
use crate::failure::{FAULT, Failure};
use crate::guest::disk::{self, UserDisk};
use crate::machines::manage::{each, table};
use crate::{disks, paths};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The size of a layer, of which it takes only what is used.
const SIZE: u64 = 64 << 30;

fn folder() -> Result<PathBuf> {
    paths::build("persist")
}

fn file(name: &str) -> Result<PathBuf> {
    Ok(folder()?.join(format!("{name}.img")))
}

/// Returns the disk of this name, made if there is none, for a root file system whose image is
/// `root`.
///
/// # Errors
/// A machine has it; it belongs to another root.
pub fn layer(name: &str, root: &Path) -> Result<UserDisk> {
    let file = file(name)?;
    let image = root.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let of = file.with_extension("root");
    let alone = paths::lock_folder(&folder()?)?;
    if file.exists() {
        let known = fs::read_to_string(&of).unwrap_or_default();
        if known.trim_end() != image {
            let text = format!(
                "--persist {name}: what is kept belongs to another root file system ({}, not \
                 {image}); take another name, or forget it: ./hayate disk rm {name}",
                known.trim_end()
            );
            return Err(Failure::error(FAULT, text));
        }
    } else {
        fs::write(&of, format!("{image}\n"))?;
        let (from, label, force) = (None, Some("hayate-persist".into()), false);
        disks::make(&MakeDisk { size: SIZE, from, label, force, file: file.clone() })?;
    }
    drop(alone);
    let found = disk::given(&[file.into_os_string()]);
    let mut found = found.with_context(|| format!("--persist {name}"))?;
    let Some(disk) = found.pop() else { bail!("--persist {name}: there is no disk") };
    Ok(UserDisk { serial: "persist".into(), ..disk })
}

/// `disk list`.
pub fn list() -> Result<()> {
    let mut rows = vec![["NAME", "TAKES", "FILE"].map(String::from)];
    let mut files: Vec<PathBuf> =
        folder()?.read_dir()?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension() == Some(OsStr::new("img")));
    files.sort();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let takes = format!("{} MiB", path.metadata()?.blocks() >> 11);
        rows.push([name, takes, path.display().to_string()]);
    }
    table(&rows);
    Ok(())
}

/// `disk rm`.
pub fn remove(names: &[String]) -> Result<u8> {
    each(names, |name| {
        let file = file(name)?;
        let _alone = paths::lock_folder(&folder()?)?;
        if !file.exists() {
            bail!("nothing is kept under the name {name}");
        }
        drop(disk::claim(&file, false).with_context(|| name.to_string())?);
        fs::remove_file(&file)?;
        let _ = fs::remove_file(file.with_extension("root"));
        Ok(())
    })
}
