//! The user's own root file system as a disk or an initramfs.

use super::attributes;
use super::scratch::Scratch;
use super::source::{RootKind, file_key, folder_key, kind, whole};
use super::{finished, key};
use crate::{paths, tool};
use anyhow::{Context, Result, bail, ensure};
use hayate_container_image::Attributed;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a disk image with the content of the path.
pub fn disk(path: &Path) -> Result<PathBuf> {
    match kind(path)? {
        // Absolute: QEMU takes the text before a colon for a protocol.
        RootKind::Disk => {
            whole(path)?;
            Ok(std::path::absolute(path)?)
        }
        RootKind::Initramfs => {
            bail!("{} is a cpio archive: add --in-memory, which unpacks it", path.display())
        }
        RootKind::Folder => {
            let output =
                paths::build("images")?.join(named("folder", path, &folder_key(path)?, "ext4")?);
            kept(output, path, |output| script(DISK_OF_FOLDER, path, output))
        }
        RootKind::Tar => {
            let output =
                paths::build("images")?.join(named("tar", path, &file_key(path)?, "ext4")?);
            kept(output, path, |output| script(DISK_OF_TAR, path, output))
        }
    }
}

/// Returns an initramfs with the content of the path.
pub fn initramfs(path: &Path) -> Result<PathBuf> {
    match kind(path)? {
        RootKind::Initramfs => Ok(path.to_path_buf()),
        RootKind::Disk => {
            bail!(
                "{} is a disk image: leave --in-memory out, or name a folder, a tar or a cpio archive",
                path.display()
            )
        }
        RootKind::Folder => {
            let output =
                paths::build("images")?.join(named("folder", path, &folder_key(path)?, "cpio")?);
            kept(output, path, |output| script(ARCHIVE_OF_FOLDER, path, output))
        }
        RootKind::Tar => {
            let output =
                paths::build("images")?.join(named("tar", path, &file_key(path)?, "cpio")?);
            kept(output, path, |output| script(ARCHIVE_OF_TAR, path, output))
        }
    }
}

/// A root file system that can be written as a tar archive, and is named by its content.
pub struct Archived<'a> {
    /// Its name among images.
    pub key: String,
    /// What it is, for people.
    pub of: &'a str,
    /// Writes the archive.
    pub write: &'a Write<'a>,
}

/// Writes an archive to a path, and returns the extended attributes of its files and folders.
pub type Write<'a> = dyn Fn(&Path) -> Result<Vec<Attributed>> + 'a;

/// Returns a disk image with the content of the archive.
pub fn disk_of_archive(archived: &Archived<'_>) -> Result<PathBuf> {
    of_archive(archived, "ext4", DISK_OF_TAR)
}

/// Returns an initramfs with the content of the archive.
pub fn initramfs_of_archive(archived: &Archived<'_>) -> Result<PathBuf> {
    of_archive(archived, "cpio", ARCHIVE_OF_TAR)
}

fn of_archive(archived: &Archived<'_>, end: &str, body: &str) -> Result<PathBuf> {
    let output = paths::build("images")?.join(format!("container-{}.{end}", archived.key));
    // The file that is there is finished, and nobody need be waited for.
    if output.exists() {
        return Ok(output);
    }
    let _alone = paths::lock("images")?;
    if output.exists() {
        return Ok(output);
    }
    let of = archived.of;
    finished(&output, &format!("of {of}"), &format!("Making an image of {of}"), |output| {
        let scratch = Scratch::new()?;
        let tar = scratch.path().join("tar");
        let attributed = (archived.write)(&tar)?;
        script(&format!("{ANY_NAMES}{body}"), &tar, output)?;
        if end == "ext4" { attributes::set(output, &attributed) } else { Ok(()) }
    })
}

/// Returns the content of the archive with the programs that match `glob` in two files each.
pub fn split_archive(archived: &Archived<'_>, glob: &str, in_memory: bool) -> Result<Split> {
    let parts = [&archived.key[..], glob, SPLIT_VERSION].map(str::as_bytes);
    let end = if in_memory { "cpio" } else { "ext4" };
    let name = format!("container-off2f-{}-{}.{end}", archived.key, key(parts));
    make_split(paths::build("images")?.join(name), archived.of, |output, nvm| {
        let scratch = Scratch::new()?;
        let tar = scratch.path().join("tar");
        let attributed = (archived.write)(&tar)?;
        let unpack = format!("{ANY_NAMES}unpack \"$1\" \"$3\"");
        convert_tree(&unpack, &tar, (output, nvm), glob, in_memory)?;
        if in_memory { Ok(()) } else { attributes::set(output, &attributed) }
    })
}

/// A root file system whose programs are in two files.
pub struct Split {
    /// The disk image or the initramfs.
    pub image: PathBuf,
    /// The texts, as the content of non-volatile memory.
    pub nvm: PathBuf,
}

/// Returns the root file system at `path` with its programs and libraries (those that match `glob`)
/// converted: as an initramfs if `in_memory`, otherwise as a disk image.
pub fn split(path: &Path, glob: &str, in_memory: bool) -> Result<Split> {
    let (kind, state, unpack) = match kind(path)? {
        RootKind::Folder => ("folder", folder_key(path)?, "cp -a \"$1/.\" \"$3\""),
        RootKind::Tar => ("tar", file_key(path)?, "unpack \"$1\" \"$3\""),
        RootKind::Disk | RootKind::Initramfs => bail!(
            "{}: --off2f converts the programs of a folder or a tar archive, not of an image",
            path.display()
        ),
    };
    let end = if in_memory { "cpio" } else { "ext4" };
    let state = key([state.as_bytes(), glob.as_bytes(), SPLIT_VERSION.as_bytes()]);
    let image = paths::build("images")?.join(named(&format!("{kind}-off2f"), path, &state, end)?);
    make_split(image, &path.display().to_string(), |output, nvm| {
        convert_tree(unpack, path, (output, nvm), glob, in_memory)
    })
}

/// Unpacks a source into a folder, converts its programs, and packs it.
fn convert_tree(
    unpack: &str,
    source: &Path,
    (output, nvm): (&Path, &Path),
    glob: &str,
    in_memory: bool,
) -> Result<()> {
    let pack = if in_memory { "archive \"$3\" \"$2\"" } else { "disk \"$3\" \"$2\"" };
    let body = format!("{unpack}; split \"$3\" \"$HAYATE_NVM\"; {pack}");
    let as_is = rustix::process::geteuid().is_root() && source.is_dir();
    let scratch = Scratch::new()?;
    let mut command = shell(&body, as_is)?;
    command.env("HAYATE_SELF", std::env::current_exe()?).env("HAYATE_GLOB", glob);
    command.env("HAYATE_NVM", nvm);
    command.arg(source.canonicalize()?).arg(output).arg(scratch.path());
    tool::run(&mut command).map(drop)
}

/// The version of the conversion: a new number makes new images.
pub const SPLIT_VERSION: &str = "3";

/// Makes an image and its texts, unless they are kept. `make` gets the paths of the two; the
/// summary of the conversion is beside the second.
pub fn make_split(
    image: PathBuf,
    of: &str,
    make: impl FnOnce(&Path, &Path) -> Result<()>,
) -> Result<Split> {
    let nvm = image.with_extension("nvm");
    let _alone = paths::lock("images")?;
    if image.exists() && nvm.exists() {
        return Ok(Split { image, nvm });
    }
    remove_former(&image)?;
    remove_former(&nvm)?;
    let summary = image.with_extension("nvm.summary");
    let about = format!("of {of}, programs in two files");
    finished(&image, &about, &format!("Making an image of {of}"), |output| {
        let mut making = output.as_os_str().to_os_string();
        making.push(".nvm");
        let making = PathBuf::from(making);
        let made = make(output, &making);
        let mut told = making.as_os_str().to_os_string();
        told.push(".summary");
        if made.is_err() {
            let _ = std::fs::remove_file(&making);
            let _ = std::fs::remove_file(&told);
        }
        made?;
        std::fs::rename(&making, &nvm)?;
        std::fs::rename(&told, &summary)?;
        Ok(())
    })?;
    eprint!("{}", std::fs::read_to_string(&summary).unwrap_or_default());
    Ok(Split { image, nvm })
}

/// Returns the name of an image: the kind of source, the source, its state.
fn named(kind: &str, path: &Path, state: &str, end: &str) -> Result<String> {
    let source = key([path.canonicalize()?.as_os_str().as_bytes()]);
    Ok(format!("{kind}-{source}-{state}.{end}"))
}

/// Removes images of earlier states of the same source.
pub(crate) fn remove_former(output: &Path) -> Result<()> {
    let name = output.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((source, _)) = name.rsplit_once('-') else { return Ok(()) };
    let end = output.extension();
    for entry in output.parent().context("an image lies in a folder")?.read_dir()? {
        let path = entry?.path();
        let other = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let same = other.starts_with(source) && path.extension() == end && other != name;
        // A machine that is still running keeps its open file.
        if same && std::fs::remove_file(&path).is_ok() {
            let _ = std::fs::remove_file(path.with_extension("about"));
        }
    }
    Ok(())
}

fn kept(output: PathBuf, source: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let _alone = paths::lock("images")?;
    if output.exists() {
        return Ok(output);
    }
    let shown = source.display().to_string();
    remove_former(&output)?;
    finished(&output, &format!("of {shown}"), &format!("Making an image of {shown}"), make)
}

/// Shell functions for making images.
pub const FUNCTIONS: &str = include_str!("functions.sh");

/// Packs an initramfs of files whose names may hold newlines.
const ANY_NAMES: &str = "archive() { (cd \"$1\" && find . -xdev -print0 | LC_ALL=C sort -z | \
                         cpio -o -0 -H newc --quiet --reproducible) >\"$2\"; }\n";

const DISK_OF_FOLDER: &str = "disk \"$1\" \"$2\"";
const DISK_OF_TAR: &str = "unpack \"$1\" \"$3\"; disk \"$3\" \"$2\"";
const ARCHIVE_OF_FOLDER: &str = "archive \"$1\" \"$2\"";
const ARCHIVE_OF_TAR: &str = "unpack \"$1\" \"$3\"; archive \"$3\" \"$2\"";

/// Runs a script with the functions, the source as `$1`, the output as `$2`, an empty folder as
/// `$3`. When root runs the command, a folder keeps its owners; everything else goes through
/// fakeroot, which lets an ordinary user give files to root and create devices.
fn script(body: &str, source: &Path, output: &Path) -> Result<()> {
    let as_is = rustix::process::geteuid().is_root() && source.is_dir();
    let scratch = Scratch::new()?;
    let source = source.canonicalize()?;
    let mut command = shell(body, as_is)?;
    command.arg(&source).arg(output).arg(scratch.path());
    let made = tool::run(&mut command).map(drop);
    made.with_context(|| format!("cannot make an image of {}", source.display()))
}

/// Returns a shell with the functions; arguments follow.
pub fn shell(body: &str, as_is: bool) -> Result<Command> {
    // Checked here so that a missing one is reported clearly.
    for name in ["mke2fs", "tar"] {
        tool::command(name)?;
    }
    ensure!(tool::find("sh").is_some(), "there is no program sh in PATH, which makes images");
    let mut command = if as_is { tool::command("sh")? } else { tool::command("fakeroot")? };
    if !as_is {
        command.args(["--", "sh"]);
    }
    command.arg("-c").arg(format!("set -eu\n{FUNCTIONS}\n{body}\n")).arg("hayate-image");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    command.env("PATH", std::env::join_paths(folders)?);
    Ok(command)
}
