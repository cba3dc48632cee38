//! Tests of disks that the guest writes (`--disk`): what is on them afterwards, who may have them,
//! and what the guest hears when the host cannot write.

use super::command::{Check, Hayate, expect, trials_of};
use super::report::{Case, Verdict};
use super::{Report, Trial};
use crate::arguments::Test;
use crate::guest::disk as user_disk;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CHECKS: [(&str, Check); 7] = [
    ("reads_writes_flags_mappings_and_ioctls", everything),
    ("what_is_synced_outlives_the_machine_s_death", synced),
    ("a_machine_that_is_stopped_leaves_all_on_its_disk", stopped),
    ("a_disk_that_is_only_read_stays_as_it_is", read_only),
    ("a_disk_that_is_written_has_one_machine", one_machine),
    ("an_error_of_writing_is_told_once_to_each_open_file", errors),
    ("more_is_written_than_memory_holds", pressure),
];

const PAGE: usize = 4096;
/// How long a machine that was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let mut trials = trials_of("disks", &CHECKS, options);
    let hayate = Hayate::new(options);
    let full = Trial::new("disks/a_full_host_is_an_error_in_the_guest", move |_| full(&hayate));
    trials.push(full);
    trials
}

/// Random numbers below a bound, and their seed.
pub(super) fn seeded() -> (u64, impl FnMut(u64) -> u64) {
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let mut random = hayate_fuzzing::Random::new(seed);
    (seed, move |limit| random.below(limit as usize) as u64)
}

/// A disk named `data`.
struct Disk {
    folder: TempDir,
}

impl Disk {
    fn new(size: u64) -> Result<Disk> {
        let disk = Disk { folder: tempfile::tempdir()? };
        File::create(disk.path())?.set_len(size)?;
        Ok(disk)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data.img")
    }

    fn option(&self, mode: &str) -> String {
        format!("{}{mode}", self.path().display())
    }

    fn read(&self, offset: usize, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        File::open(self.path())?.read_exact_at(&mut bytes, offset as u64)?;
        Ok(bytes)
    }

    /// Checks what lies at an offset.
    fn holds(&self, offset: usize, expected: &[u8]) -> Result<()> {
        let found = self.read(offset, expected.len())?;
        let at = found.iter().zip(expected).position(|(one, other)| one != other);
        ensure!(at.is_none(), "the byte at {:?} differs", at.map(|at| offset + at));
        Ok(())
    }
}

/// As in `disks_shared.py`.
fn pattern(number: usize, count: usize) -> Vec<u8> {
    format!("{number:08} of the disk\n").into_bytes().into_iter().cycle().take(count).collect()
}

fn script<'a>(words: &[&'a str]) -> Vec<&'a str> {
    const SCRIPT: &str = concat!(include_str!("disks_shared.py"), include_str!("disks.py"));
    [&["python3", "-c", SCRIPT], words].concat()
}

fn everything(hayate: &Hayate) -> Result<()> {
    for cpus in ["1", "2"] {
        let disk = Disk::new(16 << 20)?;
        let options = ["--cpus", cpus, "--disk", &disk.option("")];
        expect(&hayate.run(&options, &script(&["everything"]))?, 0, "everything\n", "")?;
        disk.holds(5 * PAGE + 99, b"\0unaligned\0")?;
        disk.holds(7 * PAGE, &pattern(7, 3 * PAGE))?;
        disk.holds((16 << 20) - 512, &pattern(1, 512))?;
        for number in [20, 21, 22, 40, 43, 45, 46, 47] {
            disk.holds(number * PAGE, &pattern(number, PAGE))?;
        }
        disk.holds(30 * PAGE + 10, b"mapped\0\0\0\0again\0\0\0\0\0child\0")?;
        disk.holds(31 * PAGE, b"beside\0")?;
        disk.holds(41 * PAGE, &pattern(41, 512))?;
        disk.holds(41 * PAGE + 512, &[0; PAGE])?;
        disk.holds(42 * PAGE + 512, &pattern(42, PAGE)[512..])?;
        disk.holds(50 * PAGE, b"end\0")?;
    }
    Ok(())
}

/// Starts a machine with a script that says `ready` and waits.
fn ready(hayate: &Hayate, disk: &str, script: &str) -> Result<Child> {
    let script = format!("{script} && echo ready && sleep 1000");
    let mut child = hayate.command(&["--disk", disk], &["sh", "-c", &script])?.spawn()?;
    let mut said = [0; 6];
    if let Err(error) = child.stdout.take().context("no output")?.read_exact(&mut said) {
        let output = child.wait_with_output()?;
        return Err(error).context(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    ensure!(&said == b"ready\n", "{said:?}");
    Ok(child)
}

/// Ends the machine as a power failure would, and waits until its disk is free.
fn cut(mut child: Child, disk: &Disk) -> Result<()> {
    child.kill()?;
    child.wait()?;
    free(&disk.option(""))
}

/// Waits until no machine has a disk: QEMU is killed by the end of its parent, some time later.
pub(super) fn free(option: &str) -> Result<()> {
    let began = Instant::now();
    loop {
        match user_disk::given(&[option.into()]) {
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
            Ok(_) => return Ok(()),
        }
    }
}

fn synced(hayate: &Hayate) -> Result<()> {
    let disk = Disk::new(64 << 20)?;
    let write = "yes '00000009 of the disk' | head -c 8388608 | \
                 dd of=/dev/disk/by-id/virtio-data bs=64k seek=16 iflag=fullblock conv=fsync 2>&1 \
                 | grep -q 8388608";
    cut(ready(hayate, &disk.option(""), write)?, &disk)?;
    disk.holds(0, &[0; PAGE])?;
    disk.holds(16 << 16, &pattern(9, 8 << 20))?;
    // The writer needs no fsync, only time; sync(1) needs none.
    let later = "printf later >/dev/disk/by-id/virtio-data && sleep 12";
    cut(ready(hayate, &disk.option(""), later)?, &disk)?;
    disk.holds(0, b"later\0")?;
    let sync = "printf synced >/dev/disk/by-id/virtio-data && sync";
    cut(ready(hayate, &disk.option(""), sync)?, &disk)?;
    disk.holds(0, b"synced\0")
}

fn stopped(hayate: &Hayate) -> Result<()> {
    let disk = Disk::new(1 << 20)?;
    let name = format!("test-disk-{}", std::process::id());
    let any = |request: &str, words: &[&str]| -> Result<Output> {
        Ok(hayate.any(request)?.args(words).output()?)
    };
    let outcome = (|| -> Result<()> {
        let started = any("start", &["--name", &name, "--disk", &disk.option("")])?;
        ensure!(started.status.success(), "{started:?}");
        let script = "printf stopped >/dev/disk/by-id/virtio-data";
        expect(&any("exec", &[&name, "--", "sh", "-c", script])?, 0, "", "")?;
        let stopped = any("stop", &[&name])?;
        ensure!(stopped.status.success(), "{stopped:?}");
        disk.holds(0, b"stopped\0")
    })();
    let _ = any("rm", &["-f", &name]);
    outcome
}

fn read_only(hayate: &Hayate) -> Result<()> {
    let disk = Disk::new(1 << 20)?;
    std::fs::write(disk.path(), pattern(3, 1 << 20))?;
    let mut permissions = disk.path().metadata()?.permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(disk.path(), permissions)?;
    let script = "d=/dev/disk/by-id/virtio-data; head -c 8 $d; \
                  cat /sys/block/$(basename $(readlink -f $d))/ro; echo x >$d";
    let output = hayate.run(&["--disk", &disk.option(":ro")], &["sh", "-c", script])?;
    expect(&output, 2, "000000031\n", "Permission denied")?;
    disk.holds(0, &pattern(3, 1 << 20))
}

fn one_machine(hayate: &Hayate) -> Result<()> {
    let disk = Disk::new(1 << 20)?;
    let refused = |mode: &str, text: &str| -> Result<()> {
        let output = hayate.run(&["--disk", &disk.option(mode)], &["true"])?;
        expect(&output, 125, "", text)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(said.lines().count() == 1, "not one line: {said}");
        Ok(())
    };
    let first = ready(hayate, &disk.option(""), "true")?;
    let outcome = refused("", "another machine uses it")
        .and_then(|()| refused(":ro", "another machine writes to it"));
    cut(first, &disk)?;
    outcome?;
    let first = ready(hayate, &disk.option(":ro"), "true")?;
    let outcome = refused("", "another machine uses it").and_then(|()| {
        expect(&hayate.run(&["--disk", &disk.option(":ro")], &["true"])?, 0, "", "")
    });
    cut(first, &disk)?;
    outcome?;
    // Free again.
    expect(&hayate.run(&["--disk", &disk.option("")], &["true"])?, 0, "", "")
}

/// QEMU's blkdebug fails every write to one sector.
fn errors(hayate: &Hayate) -> Result<()> {
    let disk = Disk::new(16 << 20)?;
    let path = disk.path();
    let node = serde_json::json!({
        "driver": "raw",
        "node-name": "faulty",
        "file": {
            "driver": "blkdebug",
            "image": { "driver": "file", "filename": path.to_string_lossy() },
            "inject-error": [{ "event": "none", "iotype": "write", "errno": 5, "sector": 2048 }],
        },
    })
    .to_string();
    let device = "virtio-blk-pci,drive=faulty,serial=faulty,werror=report";
    let options = ["--qemu=-blockdev", "--qemu", &node, "--qemu=-device", "--qemu", device];
    let program = script(&["errors", "/dev/disk/by-id/virtio-faulty"]);
    expect(&hayate.run(&options, &program)?, 0, "errors\n", "")?;
    disk.holds(0, &pattern(1, PAGE))?;
    disk.holds(2 * PAGE, &pattern(5, PAGE))
}

fn pressure(hayate: &Hayate) -> Result<()> {
    let disk = Disk::new(256 << 20)?;
    let options = ["--memory", "128M", "--timeout", "300", "--disk", &disk.option("")];
    expect(&hayate.run(&options, &script(&["pressure"]))?, 0, "pressure\n", "")?;
    for number in 0..256 {
        let mut expected = pattern(number, 1 << 20);
        if number < 128 {
            expected.chunks_mut(PAGE).for_each(|page| page[..6].copy_from_slice(b"mapped"));
        }
        disk.holds(number << 20, &expected)?;
    }
    Ok(())
}

/// A disk on a file system of the host that has no room for it: the writes fail, and the machine
/// goes on.
fn full(hayate: &Hayate) -> Result<Report> {
    let case = |verdict| Report { cases: vec![Case::new("", verdict)], output: String::new() };
    let folder = tempfile::tempdir()?;
    let place = folder.path().to_string_lossy().into_owned();
    let mount = "mount -t tmpfs -o size=4m tmpfs \"$0\"";
    let alone = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, &place]);
        command
    };
    if !alone(mount).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        let why = "this host lets nobody mount a file system of his own";
        return Ok(case(Verdict::Skipped(why.into())));
    }
    // Its environment, and that everything is built.
    let run = hayate.any("run")?;
    let script = format!(
        "{mount} && truncate -s 64M \"$0/data.img\" && exec \"$1\" run --timeout 120{} \
         --disk \"$0/data.img\" -- sh -c \"$2\"",
        if hayate.linux { " --linux" } else { "" }
    );
    let in_guest = "d=/dev/disk/by-id/virtio-data; \
                    dd if=/dev/zero of=$d bs=1M count=16 conv=fsync 2>/tmp/said; s=$?; \
                    grep -q 'fsync failed.*Input/output error' /tmp/said || cat /tmp/said; \
                    echo $s; dd if=$d of=/dev/null bs=1M 2>/dev/null; echo $?";
    let mut command = alone(&script);
    command.arg(std::env::current_exe()?).arg(in_guest);
    for (name, value) in run.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let output = command.stdin(Stdio::null()).output()?;
    expect(&output, 0, "1\n0\n", "")?;
    ensure!(!Path::new(&place).join("data.img").exists(), "the mount was seen outside");
    Ok(case(Verdict::Passed))
}
