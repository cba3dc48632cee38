//! `./hayate disk`: makes, checks and resizes disks that last, which are files with an ext4 file
//! system. The work is that of e2fsprogs; this is how it is asked, and what it says in plain words.
//!
//! A disk is made beside its final name and renamed, so that a command that was interrupted leaves
//! none that looks finished. While a disk is checked or resized, no machine can start with it
//! ([`disk::claim`]).
//!
//! Road not taken: the features that the host's mke2fs.conf names. They differ between
//! distributions, and a machine can only write a volume whose features its kernel knows.

use crate::arguments::disks::{DiskRequest, MakeDisk};
use crate::failure::FAULT;
use crate::guest::disk;
use crate::persist;
use crate::progress::Progress;
use crate::tool;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Bytes of a block. The guest's page cache has pages of this size.
const BLOCK: u64 = 4096;
/// Those of Debian 12's mke2fs.
const FEATURES: &str = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,\
                        flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,\
                        metadata_csum";
/// Exit statuses of e2fsck(8).
const REPAIRED: i32 = 1;
const ERRORS_LEFT: i32 = 4;

/// Handles a request; returns the exit status.
pub fn handle(request: &DiskRequest) -> Result<u8> {
    let (file, done) = match request {
        DiskRequest::List => return persist::list().map(|()| 0),
        DiskRequest::Rm { names } => return persist::remove(names),
        DiskRequest::Make(wanted) => (&wanted.file, make(wanted).map(|()| 0)),
        DiskRequest::Check { repair, file } => (file, check(file, *repair)),
        DiskRequest::Resize { size, file } => (file, resize(file, *size).map(|()| 0)),
    };
    done.with_context(|| format!("disk {}", file.display()))
}

fn shown(size: u64) -> String {
    match size {
        _ if size.is_multiple_of(1 << 30) => format!("{}G", size >> 30),
        _ => format!("{}M", size.div_ceil(1 << 20)),
    }
}

/// `disk make`.
pub fn make(wanted: &MakeDisk) -> Result<()> {
    let MakeDisk { size, from, label, force, file } = wanted;
    // Of a symbolic link the target is replaced.
    let file = &file.canonicalize().unwrap_or_else(|_| file.clone());
    match file.metadata() {
        Ok(found) if found.file_type().is_block_device() => {
            bail!("is a block device; mkfs.ext4 makes a file system there")
        }
        Ok(found) if found.is_dir() => bail!("is a folder"),
        Ok(_) if !force => bail!("exists; --force replaces it, with all that is in it"),
        Ok(_) => disk::claim(file, false).map(drop)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(folder) = from {
        let found = folder.metadata().with_context(|| format!("--from {}", folder.display()))?;
        ensure!(found.is_dir(), "--from {} is not a folder", folder.display());
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let _step = Progress::new(format!("Making the disk {}", file.display()));
    let usual = Permissions::from_mode(0o666);
    let making = tempfile::Builder::new()
        .prefix(".making-")
        .permissions(usual)
        .tempfile_in(folder)
        .with_context(|| format!("cannot make a file in {}", folder.display()))?;
    making.as_file().set_len(*size).context("cannot give it this size")?;
    format(making.path(), from.as_deref(), label.as_deref())
        .map_err(|error| explained(error, from.as_deref(), *size))?;
    making.as_file().sync_all()?;
    let placed = if *force { making.persist(file) } else { making.persist_noclobber(file) };
    placed.map(drop).map_err(|error| error.error.into())
}

/// Puts a file system on a file of the wanted size.
fn format(file: &Path, from: Option<&Path>, label: Option<&str>) -> Result<()> {
    // As with `--with`: of root's folder the owners are kept, all other files belong to root.
    let program = tool::command("mke2fs")?;
    let mut command = if from.is_some() && !rustix::process::geteuid().is_root() {
        let mut command = tool::command("fakeroot")?;
        command.arg("--").arg(program.get_program());
        command
    } else {
        program
    };
    command.args(["-q", "-F", "-t", "ext4", "-b", &BLOCK.to_string(), "-I", "256"]);
    // The file is new, so it has zeroes wherever a journal would get them.
    command.args(["-O", FEATURES, "-E", "root_owner=0:0,lazy_journal_init=1"]);
    if let Some(label) = label {
        command.args(["-L", label]);
    }
    if let Some(folder) = from {
        command.arg("-d").arg(folder);
    }
    tool::run(command.arg(file)).map(drop)
}

/// The error that the user reads when mke2fs failed.
fn explained(error: anyhow::Error, from: Option<&Path>, size: u64) -> anyhow::Error {
    match from {
        Some(folder) if error.to_string().contains("Could not allocate") => {
            let (folder, size) = (folder.display(), shown(size));
            anyhow::anyhow!("{folder} does not fit on a disk of {size}; give it a larger --size")
        }
        _ => error,
    }
}

/// The facts that a disk's file system tells of itself.
struct Superblock {
    /// Its journal holds what is not at its place yet.
    needs_recovery: bool,
    /// Bytes of a block.
    block: u64,
    blocks: u64,
}

impl Superblock {
    /// Reads it (`struct ext4_super_block`, fs/ext4/ext4.h).
    fn of(file: &File) -> Result<Superblock> {
        const NO_FILE_SYSTEM: &str = "has no ext4 file system";
        let mut raw = [0; 1024];
        file.read_exact_at(&mut raw, 1024).context(NO_FILE_SYSTEM)?;
        ensure!(raw[56..58] == [0x53, 0xef], NO_FILE_SYSTEM);
        let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let incompatible = word(96);
        let high = if incompatible & 0x80 != 0 { word(0x150) } else { 0 };
        Ok(Superblock {
            needs_recovery: incompatible & 4 != 0,
            block: 1024 << word(24).min(6),
            blocks: u64::from(high) << 32 | u64::from(word(4)),
        })
    }
}

/// `disk check`.
fn check(file: &Path, repair: bool) -> Result<u8> {
    let claimed = disk::claim(file, !repair)?;
    let state = Superblock::of(&claimed)?;
    let name = file.display();
    if state.needs_recovery && !repair {
        // Without what the journal holds, a check finds errors that are none.
        println!(
            "{name}: was in use when its machine was killed or the host's power failed. The next \
             machine that mounts it finishes that, or: ./hayate disk check --repair {name}"
        );
        return Ok(ERRORS_LEFT as u8);
    }
    let checked = e2fsck(file, if repair { "-y" } else { "-n" })?;
    match checked.status {
        0 => println!("{name}: in order"),
        // Replaying a journal counts as a change.
        REPAIRED => println!("{}{name}: repaired, in order now", checked.said),
        ERRORS_LEFT if !repair => {
            println!("{}{name}: has errors; --repair mends them", checked.said);
        }
        ERRORS_LEFT => println!("{}{name}: some errors could not be mended", checked.said),
        _ => bail!("e2fsck failed:\n{}", checked.said),
    }
    Ok(u8::try_from(checked.status).unwrap_or(FAULT))
}

struct Checked {
    status: i32,
    said: String,
}

fn e2fsck(file: &Path, mode: &str) -> Result<Checked> {
    let _step = Progress::new(format!("Checking the disk {}", file.display()));
    let mut command = tool::command("e2fsck")?;
    command.args(["-f", mode]).arg(path(file)).env("LC_ALL", "C");
    let output = command.stdin(Stdio::null()).output().context("cannot start e2fsck")?;
    let said = [output.stdout, output.stderr].concat();
    let status = output.status.code().context("e2fsck was killed")?;
    Ok(Checked { status, said: String::from_utf8_lossy(&said).into_owned() })
}

/// A path that no program takes for an option.
fn path(file: &Path) -> PathBuf {
    if file.is_absolute() { file.to_path_buf() } else { Path::new(".").join(file) }
}

/// `disk resize`.
fn resize(file: &Path, size: u64) -> Result<()> {
    let claimed = disk::claim(file, false)?;
    ensure!(
        claimed.metadata()?.is_file(),
        "is a block device; resize the device, then let resize2fs follow"
    );
    let block = Superblock::of(&claimed)?.block;
    // resize2fs wants a journal that is empty and a check that was just made.
    let checked = e2fsck(file, "-p")?;
    if checked.status & !REPAIRED != 0 {
        bail!(
            "has errors; mend them first: ./hayate disk check --repair {}\n{}",
            file.display(),
            checked.said.trim_end()
        );
    }
    let old = claimed.metadata()?.len();
    let least = least(file, block)?;
    if size < least {
        let (size, least) = (shown(size), shown(least));
        bail!("what it holds does not fit in {size}; it needs about {least}");
    }
    let _step = Progress::new(format!("Resizing the disk {}", file.display()));
    if size > old {
        claimed.set_len(size).context("cannot make the file larger")?;
    }
    let mut command = tool::command("resize2fs")?;
    command.arg(path(file)).arg(format!("{}s", size / 512));
    if let Err(error) = tool::run(&mut command) {
        if size > old {
            // The part that resize2fs did not begin to use.
            let Superblock { block, blocks, .. } = Superblock::of(&claimed)?;
            claimed.set_len(old.max(block.saturating_mul(blocks)))?;
        }
        return Err(error);
    }
    claimed.set_len(size).context("cannot set the size of the file")?;
    claimed.sync_all().map_err(Into::into)
}

/// About how many bytes its file system needs at least.
fn least(file: &Path, block: u64) -> Result<u64> {
    let mut command = tool::command("resize2fs")?;
    let output = tool::run(command.arg("-P").arg(path(file)).env("LC_ALL", "C"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let blocks = said.rsplit(':').next().and_then(|number| number.trim().parse::<u64>().ok());
    let blocks = blocks.with_context(|| format!("resize2fs said: {said}"))?;
    Ok(blocks.saturating_mul(block))
}
