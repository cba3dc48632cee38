//! Tests of disks with a file system: `./hayate disk`, and `--disk FILE:PATH`.

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of, without_progress};
use super::machines::Stay;
use crate::arguments::Test;
use crate::tool;
use anyhow::{Result, ensure};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const CHECKS: [(&str, Check); 5] = [
    ("a_disk_is_made_checked_and_resized", life),
    ("a_disk_is_made_of_a_folder", folder),
    ("a_disk_with_errors_is_repaired", repair),
    ("a_disk_in_use_is_not_touched", in_use),
    ("what_cannot_be_done_is_one_line", errors),
];

/// The steps of the command that a slow host sees.
pub(super) const PROGRESS: [&str; 3] =
    ["Making the disk ", "Checking the disk ", "Resizing the disk "];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("disks", &CHECKS, options)
}

/// A folder with the file of a disk.
pub(super) struct DiskFile {
    folder: TempDir,
}

impl DiskFile {
    /// A name, for a file that is not there yet.
    pub(super) fn new() -> Result<DiskFile> {
        Ok(DiskFile { folder: tempfile::tempdir()? })
    }

    /// A disk of this size.
    pub(super) fn of_size(hayate: &Hayate, size: &str) -> Result<DiskFile> {
        let disk = DiskFile::new()?;
        expect(&disk.command(hayate, "make", &["--size", size])?, 0, "", "")?;
        Ok(disk)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("data.img")
    }

    /// The value of `--disk` that mounts it at `/d`.
    pub(super) fn at_d(&self, mode: &str) -> String {
        format!("{}:/d{mode}", self.path().display())
    }

    /// `./hayate disk REQUEST FILE WORDS`.
    pub(super) fn command(&self, hayate: &Hayate, request: &str, words: &[&str]) -> Result<Output> {
        let mut command = hayate.any("disk")?;
        let output = command.arg(request).arg(self.path()).args(words).output()?;
        Ok(without_progress(&output, &PROGRESS))
    }

    /// Runs a script in a machine that has it at `/d`.
    pub(super) fn run(&self, hayate: &Hayate, mode: &str, script: &str) -> Result<Output> {
        hayate.run(&["--disk", &self.at_d(mode)], &["/bin/sh", "-c", script])
    }

    /// Checks that e2fsck finds nothing wrong.
    pub(super) fn is_in_order(&self) -> Result<()> {
        let output = tool::command("e2fsck")?.args(["-f", "-n"]).arg(self.path()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "e2fsck -f -n, {}: {said}", output.status);
        Ok(())
    }
}

/// Runs debugfs(8) on a disk.
fn debugfs(path: &Path, request: &str) -> Result<String> {
    let output = tool::run(tool::command("debugfs")?.args(["-w", "-R", request]).arg(path))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn life(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::new()?;
    let (path, name) = (disk.path(), disk.path().display().to_string());
    let make = ["--size", "64M", "--label", "my data"];
    expect(&disk.command(hayate, "make", &make)?, 0, "", "")?;
    let found = path.metadata()?;
    ensure!(found.len() == 64 << 20, "{} bytes", found.len());
    ensure!(found.blocks() * 512 < 16 << 20, "not sparse: {} sectors", found.blocks());
    ensure!(debugfs(&path, "show_super_stats -h")?.contains("my data"), "no label");
    expect(&disk.command(hayate, "make", &make)?, 125, "", "exists; --force replaces it")?;
    let in_order = format!("{name}: in order\n");
    expect(&disk.command(hayate, "check", &[])?, 0, &in_order, "")?;
    for (size, bytes) in [("128M", 128 << 20), ("48M", 48 << 20), ("48M", 48 << 20)] {
        expect(&disk.command(hayate, "resize", &["--size", size])?, 0, "", "")?;
        ensure!(path.metadata()?.len() == bytes, "not of {size}");
        expect(&disk.command(hayate, "check", &[])?, 0, &in_order, "")?;
    }
    fs::write(disk.folder.path().join("large"), vec![7; 24 << 20])?;
    debugfs(&path, &format!("write {}/large large", disk.folder.path().display()))?;
    let said = "what it holds does not fit in 16M; it needs about";
    expect(&disk.command(hayate, "resize", &["--size", "16M"])?, 125, "", said)?;
    ensure!(path.metadata()?.len() == 48 << 20, "its size changed");
    expect(&disk.command(hayate, "check", &[])?, 0, &in_order, "")?;
    expect(&disk.command(hayate, "make", &["--size", "32M", "--force"])?, 0, "", "")?;
    ensure!(path.metadata()?.len() == 32 << 20, "not replaced");
    disk.is_in_order()
}

fn folder(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::new()?;
    let source = tempfile::tempdir()?;
    fs::create_dir(source.path().join("sub"))?;
    fs::write(source.path().join("sub/file"), "from the host\n")?;
    let from = source.path().to_string_lossy().into_owned();
    let make = ["--size", "32M", "--from", &from];
    expect(&disk.command(hayate, "make", &make)?, 0, "", "")?;
    let script = "cat /d/sub/file; grep -c ' /d ext4 ro ' /proc/mounts; \
                  stat -c '%u %g' /d /d/sub; echo x >/d/new";
    let output = disk.run(hayate, ":ro", script)?;
    expect(&output, 2, "from the host\n1\n0 0\n0 0\n", "Read-only file system")?;
    fs::write(source.path().join("large"), vec![7; 40 << 20])?;
    let make = [&make[..], &["--force"]].concat();
    let said = "does not fit on a disk of 32M; give it a larger --size";
    expect(&disk.command(hayate, "make", &make)?, 125, "", said)?;
    // The disk that was there is as it was, and nothing lies beside it.
    disk.is_in_order()?;
    let left: Vec<_> = disk.folder.path().read_dir()?.flatten().map(|e| e.file_name()).collect();
    ensure!(left == [OsStr::new("data.img")], "{left:?}");
    Ok(())
}

fn repair(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::of_size(hayate, "32M")?;
    let name = disk.path().display().to_string();
    debugfs(&disk.path(), "mkdir lost")?;
    // A directory without a name is nothing that e2fsck mends without being told to.
    debugfs(&disk.path(), "unlink lost")?;
    let checked = disk.command(hayate, "check", &[])?;
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(text.ends_with(&format!("{name}: has errors; --repair mends them\n")), "{text}");
    expect(&checked, 4, &text, "")?;
    let refused = disk.command(hayate, "resize", &["--size", "64M"])?;
    expect(&refused, 125, "", "mend them first: ./hayate disk check --repair")?;
    let repaired = disk.command(hayate, "check", &["--repair"])?;
    let text = String::from_utf8_lossy(&repaired.stdout).into_owned();
    ensure!(text.ends_with(&format!("{name}: repaired, in order now\n")), "{text}");
    expect(&repaired, 1, &text, "")?;
    expect(&disk.command(hayate, "check", &[])?, 0, &format!("{name}: in order\n"), "")
}

fn in_use(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::of_size(hayate, "32M")?;
    let refused = |request: &str, words: &[&str]| {
        expect(&disk.command(hayate, request, words)?, 125, "", "a machine uses it")
    };
    let stay = Stay::started(hayate, &["--disk", &disk.at_d(":ro")], &[])?;
    refused("resize", &["--size", "64M"])?;
    refused("check", &["--repair"])?;
    refused("make", &["--size", "64M", "--force"])?;
    // Those who only read do not disturb each other.
    let in_order = format!("{}: in order\n", disk.path().display());
    expect(&disk.command(hayate, "check", &[])?, 0, &in_order, "")?;
    expect(&stay.shell("ls /d")?, 0, "lost+found\n", "")?;
    drop(stay);
    expect(&disk.command(hayate, "check", &["--repair"])?, 0, &in_order, "")
}

fn errors(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::new()?;
    let one_line = |output: &Output, status: i32, text: &str| -> Result<()> {
        expect(output, status, "", text)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(said.lines().count() == 1, "not one line: {said}");
        Ok(())
    };
    let run = |option: &str| hayate.run(&["--disk", option], &["true"]);
    one_line(&run(&disk.at_d(""))?, 125, "make a disk with: ./hayate disk make")?;
    one_line(&disk.command(hayate, "check", &[])?, 125, "No such file")?;
    one_line(&disk.command(hayate, "resize", &["--size", "1G"])?, 125, "No such file")?;
    File::create(disk.path())?.set_len(32 << 20)?;
    one_line(&run(&disk.at_d(":ro"))?, 125, "has no ext4 file system to mount")?;
    one_line(&disk.command(hayate, "check", &[])?, 125, "has no ext4 file system")?;
    one_line(&disk.command(hayate, "resize", &["--size", "1G"])?, 125, "has no ext4 file system")?;
    let name = disk.path().display().to_string();
    one_line(&run(&format!("{name}:/:ro"))?, 2, "name a path below /")?;
    one_line(&run(&format!("{name}:/a/../b"))?, 2, "has a .. in it")?;
    let missing = disk.folder.path().join("missing/x.img");
    let mut command: Command = hayate.any("disk")?;
    let output = command.args(["make", "--size", "1G"]).arg(&missing).output()?;
    one_line(&output, 125, "cannot make a file in")?;
    // A superblock that says ext4, and nothing else that does.
    File::options().write(true).open(disk.path())?.write_all_at(&[0x53, 0xef], 1024 + 56)?;
    let output = run(&disk.at_d(":ro"))?;
    expect(&output, 125, "", "cannot mount the disk /dev/vdb on /d")
}
