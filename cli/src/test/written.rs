//! Tests of file systems on disks that the guest writes: what is there afterwards, also after the
//! machine was killed, and what e2fsck finds.

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of, without_progress};
use super::disks::{free, seeded};
use super::file_systems::{DiskFile, PROGRESS};
use crate::arguments::Test;
use crate::{paths, tool};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const CHECKS: [(&str, Check); 10] = [
    ("the_c_programs_pass_on_a_disk", c_programs),
    ("files_outlive_the_machine", outlive),
    ("files_of_each_block_size", block_sizes),
    ("linux_and_hayate_share_a_disk", both_systems),
    ("a_full_disk_is_told_and_emptied", full),
    ("a_disk_is_remounted_and_unmounted", remounted),
    ("many_programs_write_to_one_disk", storm),
    ("a_killed_machine_leaves_what_was_synced", killed),
    ("a_damaged_disk_does_not_end_the_machine", damaged),
    ("a_root_that_is_kept_is_there_again", kept),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("disks", &CHECKS, options)
}

/// A function of `file_systems.py`, as a command.
fn python<'a>(words: &[&'a str]) -> Vec<&'a str> {
    const SCRIPT: &str = concat!(include_str!("disks_shared.py"), include_str!("file_systems.py"));
    [&["python3", "-c", SCRIPT], words].concat()
}

/// Calls a function of `file_systems.py` in a machine that has the disk at `/d`.
fn call(hayate: &Hayate, disk: &DiskFile, options: &[&str], words: &[&str]) -> Result<()> {
    call_at(hayate, &disk.at_d(""), options, words)
}

fn call_at(hayate: &Hayate, at: &str, options: &[&str], words: &[&str]) -> Result<()> {
    let options = [&["--disk", at, "--timeout", "900"], options].concat();
    let output = hayate.run(&options, &python(words))?;
    expect(&output, 0, &format!("{}\n", words[0]), "").with_context(|| words.join(" "))
}

/// Checks that a disk was given up in order.
fn in_order(disk: &DiskFile) -> Result<()> {
    ensure!(!needs_recovery(&disk.path())?, "it was not unmounted");
    disk.is_in_order()
}

fn needs_recovery(path: &Path) -> Result<bool> {
    let mut features = [0; 4];
    File::open(path)?.read_exact_at(&mut features, 1024 + 96)?;
    Ok(features[0] & 4 != 0)
}

const AREAS: [&str; 10] =
    ["file", "dir", "path", "meta", "lock", "mapfile", "copy", "exec", "filecaps", "refusefile"];

fn c_programs(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::of_size(hayate, "256M")?;
    let with = format!("--with={}:/tests", paths::build("tests")?.display());
    for area in AREAS {
        let script = format!("chmod 1777 /d && exec /tests/static/{area}");
        let at = disk.at_d("");
        let options = [&with[..], "--disk", &at, "--env=TMPDIR=/d", "--timeout", "300"];
        let output = hayate.run(&options, &["sh", "-c", &script])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed: Vec<&str> = text.lines().filter(|line| line.contains("... FAILED")).collect();
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        ensure!(text.contains("test result:"), "{area} did not end: {output:?}");
        in_order(&disk).with_context(|| area)?;
    }
    Ok(())
}

fn outlive(hayate: &Hayate) -> Result<()> {
    for cpus in ["1", "2"] {
        let disk = DiskFile::of_size(hayate, "128M")?;
        let options = ["--cpus", cpus];
        call(hayate, &disk, &options, &["make"])?;
        in_order(&disk)?;
        for function in ["verify", "change", "restore", "verify"] {
            call(hayate, &disk, &options, &[function])?;
            in_order(&disk).with_context(|| function)?;
        }
    }
    Ok(())
}

/// File systems that others than `./hayate disk make` make: small blocks, no journal, no extents.
fn block_sizes(hayate: &Hayate) -> Result<()> {
    let kinds: [&[&str]; 4] = [
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "2048", "-O", "^metadata_csum,^64bit"],
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
        &["-t", "ext4", "-b", "4096", "-O", "^flex_bg,^dir_index"],
    ];
    for kind in kinds {
        let disk = DiskFile::new()?;
        File::create(disk.path())?.set_len(128 << 20)?;
        tool::run(tool::command("mke2fs")?.args(["-q", "-F"]).args(kind).arg(disk.path()))?;
        for function in ["make", "verify", "change", "restore", "verify"] {
            call(hayate, &disk, &[], &[function]).with_context(|| kind.join(" "))?;
            in_order(&disk).with_context(|| kind.join(" "))?;
        }
    }
    Ok(())
}

fn both_systems(hayate: &Hayate) -> Result<()> {
    let mut linux = hayate.clone();
    linux.linux = true;
    // Linux' kernel is fetched here, and that is said.
    linux.run(&[], &["true"])?;
    for (first, second) in [(hayate, &linux), (&linux, hayate)] {
        let disk = DiskFile::of_size(hayate, "128M")?;
        for (who, function) in [
            (first, "make"),
            (second, "verify"),
            (second, "change"),
            (first, "restore"),
            (first, "verify"),
            (second, "verify"),
        ] {
            call(who, &disk, &[], &[function])?;
            disk.is_in_order().with_context(|| function)?;
        }
        // Linux' machine ends without unmounting, and Linux cannot replay a journal here.
        call_at(hayate, &disk.at_d(":ro"), &[], &["verify"])?;
    }
    Ok(())
}

fn full(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::of_size(hayate, "48M")?;
    call(hayate, &disk, &[], &["full"])?;
    in_order(&disk)
}

fn remounted(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::of_size(hayate, "32M")?;
    call(hayate, &disk, &[], &["busy"])?;
    in_order(&disk)
}

fn storm(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::of_size(hayate, "128M")?;
    let seconds = if hayate.long { "300" } else { "8" };
    call(hayate, &disk, &["--cpus", "2"], &["storm", seconds])?;
    in_order(&disk)
}

/// The records that a load said to be safe.
#[derive(Default)]
struct Promised {
    /// The least version of each slot.
    slots: BTreeMap<u32, u64>,
    /// The records of each log.
    logs: BTreeMap<u64, u64>,
}

impl Promised {
    fn note(&mut self, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["slot", slot, version] => self.slots.insert(slot.parse()?, version.parse()?),
            ["log", log, records] => self.logs.insert(log.parse()?, records.parse()?),
            _ => bail!("not understood: {line}"),
        };
        Ok(())
    }

    /// Checks that the folder of the load has it all.
    fn check(&self, folder: &Path) -> Result<()> {
        for (slot, least) in &self.slots {
            let path = folder.join(format!("slot-{slot}"));
            let bytes = std::fs::read(&path).with_context(|| format!("slot {slot}"))?;
            let head = bytes.get(..22).and_then(|head| std::str::from_utf8(head).ok());
            let head = head.with_context(|| format!("slot {slot} has {} bytes", bytes.len()))?;
            let (version, size) = head.trim_end().split_once(' ').context("no head")?;
            let (version, size): (u64, usize) = (version.parse()?, size.parse()?);
            ensure!(version >= *least, "slot {slot} has version {version}, not {least}");
            let line = format!("{:08} of the disk\n", version % 100_000_000).into_bytes();
            let expected: Vec<u8> = line.into_iter().cycle().take(size).collect();
            ensure!(bytes[22..] == expected, "slot {slot}, version {version}: other bytes");
        }
        for (log, records) in &self.logs {
            let bytes = std::fs::read(folder.join(format!("log-{log}")))?;
            for number in 0..*records {
                let at = number as usize * 16;
                let record = bytes.get(at..at + 16);
                let expected = format!("{number:015}\n");
                ensure!(record == Some(expected.as_bytes()), "log {log} lacks record {number}");
            }
        }
        Ok(())
    }
}

/// Checks a disk after its machine was killed: that the journal alone makes it consistent, and what
/// was promised. The file itself stays as it is.
fn recovers(disk: &DiskFile, promised: &Promised) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("copy.img");
    tool::run(Command::new("cp").arg("--sparse=always").arg(disk.path()).arg(&copy))?;
    let output = tool::command("e2fsck")?.args(["-f", "-p"]).arg(&copy).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.code().is_some_and(|code| code <= 1), "e2fsck -p: {said}");
    for line in said.lines() {
        // As a mount does: the journal, files that were open without a name.
        let usual = ["recovering journal", "orphaned inode", "Truncating", " files (", "clean"];
        ensure!(usual.iter().any(|word| line.contains(word)), "e2fsck -p: {said}");
    }
    tool::run(tool::command("e2fsck")?.args(["-f", "-n"]).arg(&copy))?;
    let request = format!("rdump /load {}", folder.path().display());
    tool::run(tool::command("debugfs")?.args(["-R", &request]).arg(&copy))?;
    promised.check(&folder.path().join("load"))
}

fn killed(hayate: &Hayate) -> Result<()> {
    let rounds = if hayate.long { 1000 } else { 24 };
    let mut disk = DiskFile::of_size(hayate, "96M")?;
    let mut promised = Promised::default();
    let (seed, mut random) = seeded();
    for round in 0..rounds {
        if round % 50 == 49 {
            // The scratch files of so many rounds fill the disk.
            (disk, promised) = (DiskFile::of_size(hayate, "96M")?, Promised::default());
        }
        let number = round.to_string();
        let cpus = if round % 2 == 0 { "1" } else { "2" };
        let at = disk.at_d("");
        let options = ["--disk", &at, "--cpus", cpus, "--timeout", "600"];
        let mut child = hayate.command(&options, &python(&["load", &number]))?.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        if first != "ready" {
            let output = child.wait_with_output()?;
            bail!("round {round}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let reader = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(random(2500)));
        ensure!(child.try_wait()?.is_none(), "round {round}: the load ended");
        child.kill()?;
        child.wait()?;
        free(&at)?;
        let said = reader.join().ok().context("the reader ended")?;
        for line in &said {
            promised.note(line)?;
        }
        let lines = said.len();
        recovers(&disk, &promised)
            .with_context(|| format!("round {round}, {lines} lines, seed {seed}"))?;
    }
    Ok(())
}

/// Metadata that is overwritten at random: any answer will do, but the machine goes on.
fn damaged(hayate: &Hayate) -> Result<()> {
    let disk = DiskFile::of_size(hayate, "64M")?;
    call(hayate, &disk, &[], &["make"])?;
    let whole = std::fs::read(disk.path())?;
    let rounds = if hayate.long { 200 } else { 16 };
    let (seed, mut random) = seeded();
    // Half of them without checksums, which find most of it.
    // A damaged size may be that of a file which takes hours to read.
    let script = "cd /d || exit 0; ls -lR >/dev/null; timeout 15 cat */* >/dev/null; \
                  for i in 1 2 3 4 5 6 7 8; do mkdir new$i; echo $i >new$i/file; \
                  mv many new$i; mv new$i/many .; done; rm -rf a many; echo x >>large; \
                  truncate -s 0 holes; sync; df /d; umount /d; exit 0";
    for round in 0..rounds {
        let mut bytes = whole.clone();
        std::fs::write(disk.path(), &bytes)?;
        if round % 2 == 1 {
            // tune2fs wants to see it checked since it was mounted.
            tool::run(tool::command("e2fsck")?.args(["-f", "-p"]).arg(disk.path()))?;
            tool::run(tool::command("tune2fs")?.args(["-O", "^metadata_csum"]).arg(disk.path()))?;
            bytes = std::fs::read(disk.path())?;
        }
        for _ in 0..1 + random(40) {
            // The superblock is left, so that the volume is mounted; most metadata comes early.
            let range = if random(2) == 0 { 8 << 20 } else { bytes.len() as u64 };
            let at = 4096 + random(range - 8192) as usize;
            let length = 1 + random(64) as usize;
            bytes[at..at + length].iter_mut().for_each(|byte| *byte = random(256) as u8);
        }
        std::fs::write(disk.path(), &bytes)?;
        let output: Output = hayate.run(
            &["--disk", &disk.path().to_string_lossy(), "--timeout", "120"],
            &["sh", "-c", &format!("mkdir /d; mount /dev/vdb /d; {script}")],
        )?;
        ensure!(output.status.code() == Some(0), "round {round}, seed {seed}: {output:?}");
    }
    Ok(())
}

fn kept(hayate: &Hayate) -> Result<()> {
    let name = format!("test-{}", std::process::id());
    let run = |options: &[&str], script: &str| {
        let options = [&["--persist", &name[..]], options].concat();
        let output = hayate.run(&options, &["/bin/sh", "-c", script])?;
        Ok::<_, anyhow::Error>(without_progress(&output, &PROGRESS))
    };
    let disk = |words: &[&str]| -> Result<Output> { Ok(hayate.any("disk")?.args(words).output()?) };
    let outcome = (|| -> Result<()> {
        let script = "rm /etc/motd; mkdir /new; echo kept >/new/file; echo more >>/etc/hosts; \
                      mv /etc/issue /etc/moved; cat /new/file";
        expect(&run(&[], script)?, 0, "kept\n", "")?;
        let script = "cat /new/file; tail -n 1 /etc/hosts; ls /etc/motd /etc/issue; ls /etc/moved";
        let output = run(&["--cpus", "2"], script)?;
        expect(&output, 0, "kept\nmore\n/etc/moved\n", "/etc/motd")?;
        // Another root has nothing to do with it.
        let folder = tempfile::tempdir()?;
        let root = folder.path().to_string_lossy().into_owned();
        let refused = run(&["--rootfs", &root], "true")?;
        expect(&refused, 125, "", "belongs to another root file system")?;
        let listed = disk(&["list"])?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        ensure!(text.lines().any(|line| line.starts_with(&name)), "{text}");
        expect(&hayate.run(&[], &["ls", "/new"])?, 2, "", "/new")
    })();
    let removed = disk(&["rm", &name])?;
    outcome?;
    expect(&removed, 0, "", "")?;
    expect(&disk(&["rm", &name])?, 125, "", "nothing is kept under the name")
}
