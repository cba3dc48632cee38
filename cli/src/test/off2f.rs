//! Black-box tests of executables in two files: whole images, single files, non-volatile memory
//! that outlives its machine, and machines that are killed while they write to it.

use super::Trial;
use super::command::{Check, Hayate, trials_of};
use crate::arguments::Test;
use crate::paths;
use anyhow::{Context, Result, ensure};
use hayate_nvm_store::{Fault, PAGE, Region, Store};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

const CHECKS: [(&str, Check); 12] = [
    ("a_converted_image_shows_and_runs_the_originals", whole_image),
    ("a_text_in_place_has_no_faults", no_faults),
    ("a_text_on_virtio_memory_has_no_faults", no_faults_virtio),
    ("a_missing_or_changed_text_is_refused", missing_text),
    ("a_copy_of_the_text_is_a_way_out", keep_text),
    ("memory_outlives_its_machine", outlives),
    ("virtio_memory_outlives_its_machine", outlives_virtio),
    ("virtio_memory_that_is_no_good_is_left_alone", bad_virtio),
    ("the_guests_programs_work", guest_programs),
    ("a_hundred_programs_run_from_one_text", hundred),
    ("pseudo_memory_outlives_a_reset", reset),
    ("a_machine_killed_while_it_writes_tears_nothing", killed),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    // Linux has no such files.
    if options.guest_linux { Vec::new() } else { trials_of("off2f", &CHECKS, options) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the output of a run, which must succeed.
fn good(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    Ok(text(&output.stdout))
}

/// Every program and library of the default image, converted: their bytes are the same, and they
/// work.
fn whole_image(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "cd /usr; sha256sum bin/bash bin/python3.11 lib/x86_64-linux-gnu/libc.so.6; \
        stat -c '%s %n' bin/p* sbin/* 2>/dev/null | sha256sum; \
        python3 -c 'import json, hashlib; print(json.dumps([6 * 7]))'; perl -e 'print 6 * 7, \"\\n\"'; \
        ls -l bin | awk 'END { print NR }'; cp bin/grep /tmp/g; echo copied | /tmp/g -c copied";
    let run = |options: &[&str]| good(&hayate.run(options, &["/bin/bash", "-c", SCRIPT])?);
    let plain = run(&[])?;
    let converted = run(&["--off2f"])?;
    ensure!(plain.lines().count() == 8, "eight lines were expected: {plain}");
    ensure!(plain == converted, "the two differ:\n{plain}\n{converted}");
    Ok(())
}

/// Once programs and libraries have been opened, starting them has no fault on text.
fn no_faults(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "for i in 1 2 3; do /usr/bin/sort --version; done >/dev/null; \
        head -n 2 /proc/hayate/text_faults; \
        for i in 1 2 3 4 5; do /usr/bin/sort --version; done >/dev/null; \
        head -n 2 /proc/hayate/text_faults";
    let options = ["--append", "recycle=none"];
    let run = |more: &[&str]| -> Result<(String, String)> {
        let output = hayate.run(&[&options[..], more].concat(), &["/bin/bash", "-c", SCRIPT])?;
        let said = good(&output)?;
        let lines: Vec<&str> = said.lines().collect();
        ensure!(lines.len() == 4, "four lines were expected: {said}");
        Ok((lines[..2].join(" "), lines[2..].join(" ")))
    };
    let (before, after) = run(&["--off2f"])?;
    ensure!(before == after, "starts in place had faults on text: {before}, then {after}");
    let (before, after) = run(&[])?;
    ensure!(before != after, "starts from the page cache had none either: the counts do not count");
    Ok(())
}

/// Like [`no_faults`], with the texts on virtio's memory.
fn no_faults_virtio(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "grep -c '^area . virtio-pmem' /proc/hayate/nvm; \
        for i in 1 2 3; do /usr/bin/sort --version; done >/dev/null; \
        head -n 3 /proc/hayate/text_faults; \
        for i in 1 2 3 4 5; do /usr/bin/sort --version; done >/dev/null; \
        head -n 3 /proc/hayate/text_faults";
    let options = ["--off2f", "--nvm", "virtio", "--append", "recycle=none"];
    let said = good(&hayate.run(&options, &["/bin/bash", "-c", SCRIPT])?)?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(lines.len() == 7 && lines[0] == "1", "one area and two counts were expected: {said}");
    ensure!(lines[1..4] == lines[4..], "starts in place had faults on text: {said}");
    ensure!(lines[3] == "text-kib 0", "text was read from storage: {said}");
    Ok(())
}

/// A tree with a converted program, and the memory with its text.
struct Converted {
    folder: tempfile::TempDir,
}

impl Converted {
    fn new(words: &[&str]) -> Result<Converted> {
        let folder = tempfile::tempdir()?;
        let converted = Converted { folder };
        std::fs::create_dir_all(converted.root().join("bin"))?;
        std::fs::copy(paths::build("tests")?.join("runall"), converted.program())?;
        std::fs::File::create(converted.nvm())?.set_len(8 << 20)?;
        converted.tool(&[&["convert"], words].concat())?;
        Ok(converted)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn nvm(&self) -> PathBuf {
        self.folder.path().join("nvm")
    }

    fn program(&self) -> PathBuf {
        self.root().join("bin/runall")
    }

    /// Runs `./hayate off2f WORDS --nvm NVM PROGRAM`.
    fn tool(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env("HAYATE_ROOT", paths::project()).arg("off2f").args(words);
        good(&command.arg("--nvm").arg(self.nvm()).arg(self.program()).output()?)
    }

    fn run(&self, hayate: &Hayate, nvm: bool, more: &[&str]) -> Result<Output> {
        let (root, memory) = (self.root(), self.nvm());
        let mut options = vec!["--rootfs", root.to_str().context("a path")?];
        if nvm {
            options.extend(["--nvm", memory.to_str().context("a path")?]);
        }
        options.extend(more);
        hayate.run(&options, &["/bin/runall", "--list"])
    }
}

/// Whether the program ran: it reports that there are no programs beside it to run.
fn ran(output: &Output) -> bool {
    output.status.code() == Some(2) && text(&output.stderr).contains("no test programs below /bin")
}

fn missing_text(hayate: &Hayate) -> Result<()> {
    let converted = Converted::new(&[])?;
    let output = converted.run(hayate, true, &[])?;
    ensure!(ran(&output), "with its text: {}, {}", output.status, text(&output.stderr));
    let refused = |nvm, more: &[&str], reason: &str| -> Result<()> {
        let log = tempfile::NamedTempFile::new()?;
        let path = log.path().to_str().context("a path")?.to_string();
        let output = converted.run(hayate, nvm, &[more, &["--log", &path]].concat())?;
        let log = std::fs::read_to_string(&path)?;
        ensure!(!ran(&output) && !output.status.success(), "it ran, though {reason}");
        ensure!(log.contains("off2f: text") && log.contains(reason), "the log says: {log}");
        Ok(())
    };
    refused(false, &[], "not on any memory here")?;
    // One bit of the text, in its last page.
    let store = Store::open(Memory::read(&converted.nvm())?)?;
    let range = store.texts().first().context("no text was stored")?.range();
    let file = std::fs::File::options().read(true).write(true).open(converted.nvm())?;
    let mut byte = [0];
    let at = (range.end - 1) * PAGE + 7;
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[byte[0] ^ 1], at)?;
    refused(true, &["--append", "nvm_verify"], "damaged")?;
    ensure!(converted.tool(&["verify"]).is_err(), "the host's verify found nothing");
    Ok(())
}

fn keep_text(hayate: &Hayate) -> Result<()> {
    let converted = Converted::new(&["--keep-text"])?;
    for nvm in [true, false] {
        let output = converted.run(hayate, nvm, &[])?;
        ensure!(ran(&output), "{nvm}: {}, {}", output.status, text(&output.stderr));
    }
    let original = std::fs::read(paths::build("tests")?.join("runall"))?;
    converted.tool(&["verify"])?;
    converted.tool(&["restore"])?;
    ensure!(std::fs::read(converted.program())? == original, "restore gave other bytes");
    Ok(())
}

/// The file of a machine's non-volatile memory.
struct Memory(Vec<u8>);

impl Memory {
    fn read(path: &Path) -> Result<Memory> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.read_to_end(&mut bytes)?;
        Ok(Memory(bytes))
    }
}

impl Region for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Fault> {
        let from = self.0.get(offset as usize..offset as usize + to.len());
        to.copy_from_slice(from.ok_or(Fault::Device)?);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), Fault> {
        let to = self.0.get_mut(offset as usize..offset as usize + from.len());
        to.ok_or(Fault::Device)?.copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self, _: u64, _: u64) -> Result<(), Fault> {
        Ok(())
    }
}

/// A blank memory that the guest fills, and finds unchanged at the next boot.
fn outlives(hayate: &Hayate) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(8 << 20)?;
    let path = file.path().to_str().context("a path")?;
    let run = |script: &str| good(&hayate.run(&["--nvm", path], &["/bin/sh", "-c", script])?);
    run("echo 'put - true /usr/bin/true' >/proc/hayate/nvm && \
         echo 'put 3 sort /usr/bin/sort' >/proc/hayate/nvm")?;
    let said = run("grep ^text /proc/hayate/nvm | while read word id rest; do \
         echo verify $id >/proc/hayate/nvm && echo $rest; done")?;
    ensure!(said.contains("true") && said.contains("sort"), "the next boot found: {said}");
    let said = run("grep ^text /proc/hayate/nvm | while read word id rest; do \
         echo rm $id >/proc/hayate/nvm; done; grep -c ^text /proc/hayate/nvm; \
         echo rm 12 >/proc/hayate/nvm || echo refused")?;
    ensure!(said == "0\nrefused\n", "after removing: {said}");
    Ok(())
}

/// Texts that the guest stores on virtio's memory are there at the next boot, on a virtio device or
/// an NVDIMM; a program that the host converted runs from it.
fn outlives_virtio(hayate: &Hayate) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    file.as_file().set_len(8 << 20)?;
    let path = file.path().to_str().context("a path")?;
    let virtio = format!("virtio:{path}");
    let run = |memory: &str, script: &str| {
        good(&hayate.run(&["--nvm", memory, "--cpus", "2"], &["/bin/bash", "-c", script])?)
    };
    let said = run(
        &virtio,
        "nvm put --name sort /usr/bin/sort >/dev/null; \
        echo 'put 3 true /usr/bin/true' >/proc/hayate/nvm; nvm usage",
    )?;
    ensure!(said.starts_with("virtio-pmem at 0x") && said.contains(" 2 texts of "), "{said}");
    let said = run(path, "nvm usage; nvm verify")?;
    ensure!(said.starts_with("nvdimm at 0x"), "{said}");
    ensure!(said.contains(" sort: good\n") && said.contains(" true: good\n"), "{said}");
    let said = run(
        &virtio,
        "nvm verify && nvm rm sort && nvm list | tail -n +2; nvm verify; \
        off2f convert /usr/bin/tr >/dev/null && echo hi | tr h j; nvm rm tr || echo in use",
    )?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(lines.len() == 6, "six lines were expected: {said}");
    ensure!(lines[..2].iter().all(|line| line.ends_with(": good")), "{said}");
    ensure!(lines[2].ends_with("  true") && lines[3].ends_with(" true: good"), "{said}");
    ensure!(lines[4..] == ["ji", "in use"], "{said}");
    let converted = Converted::new(&[])?;
    let memory = format!("virtio:{}", converted.nvm().display());
    for time in 0..2 {
        let output = converted.run(hayate, false, &["--nvm", &memory])?;
        ensure!(ran(&output), "run {time}: {}, {}", output.status, text(&output.stderr));
    }
    Ok(())
}

/// Devices with unusable memory beside one with usable memory; and one that cannot flush.
fn bad_virtio(hayate: &Hayate) -> Result<()> {
    let device = |number: u32, kind: &str, size: &str, place: &str| {
        [
            "--qemu=-object".into(),
            format!("--qemu=memory-backend-{kind},id=m{number},size={size}"),
            "--qemu=-device".into(),
            format!("--qemu=virtio-pmem-pci,memdev=m{number},id=d{number},memaddr={place}"),
        ]
    };
    let run = |devices: &[[String; 4]], script: &str| -> Result<(String, String)> {
        let log = tempfile::NamedTempFile::new()?;
        let path = log.path().to_str().context("a path")?;
        // The addresses are above 1 GiB of memory, in the range that QEMU reserves for such
        // devices.
        let room = ["--log", path, "--qemu=-m", "--qemu=1024M,slots=8,maxmem=8G"];
        let devices = devices.as_flattened().iter().map(String::as_str);
        let options: Vec<&str> = room.into_iter().chain(devices).collect();
        let output = good(&hayate.run(&options, &["/bin/bash", "-c", script])?)?;
        Ok((output, std::fs::read_to_string(log.path())?))
    };
    let devices = [
        device(1, "memfd", "64M", "0x100001000"),
        device(2, "memfd", "1M", "0x110000000"),
        device(3, "memfd", "6148K", "0x120000000"),
    ];
    let (said, log) =
        run(&devices, "cat /proc/hayate/nvm; nvm put --name sort /usr/bin/sort; nvm verify")?;
    for reason in ["it begins at no large page", "it is smaller than a large page"] {
        ensure!(log.contains(&format!("{reason}; left alone")), "{reason}? the log says: {log}");
    }
    ensure!(said.starts_with("area 0 virtio-pmem 0x120000000 6144 KiB id "), "{said}");
    ensure!(said.matches("area ").count() == 1 && said.ends_with(" sort: good\n"), "{said}");
    // QEMU flushes by fsync(2) of the memory's file, and this memory has none: it is formatted
    // neither at boot nor on request.
    let (said, log) = run(
        &[device(1, "ram", "64M", "0x100000000")],
        "cat /proc/hayate/nvm; nvm format 2>&1; nvm put /usr/bin/sort 2>&1; cat /proc/hayate/nvm",
    )?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(
        lines.len() == 4 && lines[0] == "area 0 virtio-pmem 0x100000000 65536 KiB no store",
        "{said}"
    );
    ensure!(lines[1].contains("os error 5") && lines[3] == lines[0], "{said}");
    ensure!(lines[2].contains("there is no store"), "{said}");
    ensure!(log.contains("nvm: 0x100000000: the memory cannot be read or written"), "{log}");
    Ok(())
}

/// `off2f` and `nvm` in the guest: conversion and back, on the writable layer and in memory, and
/// the messages for incorrect input.
fn guest_programs(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = r#"
fail() { echo "$*"; exit 1; }
refused() { "$@" >/tmp/said 2>&1 && fail "not refused: $*"; }
cp /usr/bin/sort /tmp/s; cp /usr/bin/sort /tmp/original
for file in /tmp/s /usr/bin/sort; do
    off2f convert $file || fail "convert $file"
    cmp $file /tmp/original || fail "$file shows as something else"
    [ "$(printf 'b\na\n' | $file | head -n 1)" = a ] || fail "$file does not sort"
    off2f verify $file | grep -q ': good: ' || fail "verify $file"
    off2f info $file | grep -q '^  now  *at page [0-9]' || fail "info $file"
    off2f info --json $file | grep -q '"marked": true' || fail "info --json $file"
done
[ "$(nvm list | grep -c '[0-9] *s$')" = 1 ] || fail "two files of one text are not one: $(nvm list)"
refused off2f convert /tmp/s; grep -q 'already converted' /tmp/said || fail "twice: $(cat /tmp/said)"
refused off2f convert /etc/passwd; grep -q 'not an ELF' /tmp/said || fail "$(cat /tmp/said)"
refused off2f info /tmp/original; grep -q 'not converted' /tmp/said || fail "$(cat /tmp/said)"
refused setpriv --reuid 12345 --clear-groups off2f convert /tmp/original
grep -q 'only root' /tmp/said || fail "$(cat /tmp/said)"
refused setpriv --reuid 12345 --clear-groups nvm rm s; grep -q 'only root' /tmp/said || fail "$(cat /tmp/said)"
echo words >/tmp/words
identity=$(nvm put --name words /tmp/words | cut -d' ' -f1)
nvm list --json | grep -q '"identity": "'$identity'"' || fail "put: $identity, $(nvm list)"
[ "$(nvm verify | grep -c ': good$')" = 2 ] || fail "verify: $(nvm verify)"
nvm usage --json | grep -q '"texts": 2' || fail "usage: $(nvm usage)"
# Somebody runs it.
/tmp/s /dev/zero >/dev/null 2>&1 & sleep 1
refused nvm rm s; grep -q 'in use' /tmp/said || fail "removed what runs: $(cat /tmp/said)"
kill $!; wait $! 2>/dev/null
nvm rm words || fail "rm"; refused nvm verify words
off2f restore /tmp/s /usr/bin/sort || fail restore
for file in /tmp/s /usr/bin/sort; do
    cmp $file /tmp/original && [ ! -k $file ] || fail "restored $file is another"
    refused off2f info $file
done
echo drop >/proc/hayate/pools; echo 3 >/proc/sys/vm/drop_caches
nvm rm s || fail "nobody uses it: $(nvm list)"
nvm compact && nvm format || fail "compact, format"
# A file whose text is gone says what it lacks; with a copy of the text it goes on.
cp /usr/bin/sort /tmp/t; off2f convert /tmp/t; cp /usr/bin/tr /tmp/k; off2f convert --keep-text /tmp/k
chmod -t /tmp/t /tmp/k; cp /tmp/t /tmp/t2; cp /tmp/k /tmp/k2; rm /tmp/t /tmp/k
echo drop >/proc/hayate/pools
nvm rm t && nvm rm k || fail "no longer used: $(nvm list)"
off2f info /tmp/t2 | grep -q 'not marked' || fail "the mark is gone: $(off2f info /tmp/t2)"
chmod +t /tmp/t2 /tmp/k2
off2f info /tmp/t2 | grep -q 'no memory of this machine' || fail "info without a text"
refused off2f verify /tmp/t2; grep -q 'no memory of this machine' /tmp/said || fail "$(cat /tmp/said)"
off2f verify /tmp/k2 | grep -q good || fail "a copy of the text does not do"
refused nvm lst; [ "$(nvm lst 2>/dev/null; echo $?)" = 2 ] || fail "status of nonsense"
off2f --help | grep -q Examples && nvm --help | grep -q Examples || fail help
echo good
"#;
    let output = hayate.run(&["--nvm", "64M"], &["/bin/bash", "-c", SCRIPT])?;
    let said = text(&output.stdout);
    ensure!(said.ends_with("\ngood\n"), "{}: {said}{}", output.status, text(&output.stderr));
    let none = hayate.run(&[], &["/bin/sh", "-c", "nvm usage; off2f convert /usr/bin/sort"])?;
    let (output, error) = (text(&none.stdout), text(&none.stderr));
    ensure!(output.contains("start the machine with --nvm"), "without memory: {output}");
    ensure!(error.contains("there is no store"), "without memory: {error}");
    Ok(())
}

/// A hundred processes of one converted program: one text in memory, none of it in the page cache.
fn hundred(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = r#"
fail() { echo "$*"; exit 1; }
cp /usr/bin/python3.11 /tmp/p; off2f convert /tmp/p >/dev/null || fail convert
text=$(nvm list --json | sed -n 's/.*"kib": \([0-9]*\),/\1/p')
: >/tmp/up
pids=
for i in $(seq 100); do
    /tmp/p -S -c 'import time; print("up", flush=True); time.sleep(600)' >>/tmp/up & pids="$pids $!"
done
while [ "$(wc -l </tmp/up)" -lt 100 ]; do sleep 0.2; done
at=/proc/hayate/resources
for pid in $pids; do
    grep -q 'r-xp .*/tmp/p$' /proc/$pid/maps || fail "$pid does not run it"
done
[ "$(nvm list | grep -c 'KiB')" = 1 ] || fail "more than one text: $(nvm list)"
[ "$(resource list program --name /tmp/p | grep -c /tmp/p)" = 1 ] || fail "$(resource list program)"
plate=$(grep -lx 'name: /tmp/p' $at/plate/*)
resident=$(sed -n 's/^resident-pages: //p' $plate)
[ $((resident * 4)) -lt $((text / 2)) ] || fail "$resident pages in memory of $plate, text $text KiB"
kill $pids
echo good
"#;
    let options = ["--nvm", "64M", "--memory", "2048"];
    let output = hayate.run(&options, &["/bin/bash", "-c", SCRIPT])?;
    let said = text(&output.stdout);
    ensure!(said.ends_with("good\n"), "{}: {said}{}", output.status, text(&output.stderr));
    Ok(())
}

/// Memory that nothing clears: the guest resets its machine, boots again, and finds the text.
fn reset(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "if nvm list | grep -q marker; then nvm verify; \
        else nvm put --name marker /usr/bin/sort >/dev/null; echo stored; sleep 1; \
        busybox reboot -f; sleep 60; fi";
    // Otherwise a reset ends the machine.
    let options = ["--nvm", "pseudo:64M", "--qemu=-action", "--qemu=reboot=reset"];
    let said = good(&hayate.run(&options, &["/bin/sh", "-c", SCRIPT])?)?;
    let lines: Vec<&str> = said.lines().collect();
    ensure!(lines.len() == 2 && lines[0] == "stored", "two boots were expected: {said}");
    ensure!(lines[1].ends_with(" marker: good"), "the second boot found: {}", lines[1]);
    Ok(())
}

/// Stores and removes texts without end, and moves the remaining ones.
const WRITER: &str = "cd /tmp; n=0; echo ready; while :; do n=$((n + 1)); \
    { echo $n; head -c $((n % 7 * 9000 + 5000)) /usr/bin/bash; } >t; \
    echo \"put - text$n /tmp/t\" >/proc/hayate/nvm; \
    if [ $((n % 3)) = 0 ]; then echo rm $(grep ' text[0-9]*$' /proc/hayate/nvm | head -1 | cut -d' ' -f2) \
    >/proc/hayate/nvm; fi; if [ $((n % 10)) = 0 ]; then echo compact >/proc/hayate/nvm; fi; done";

/// After each kill everything on the memory is whole, and a program whose text was stored earlier
/// starts.
fn killed(hayate: &Hayate) -> Result<()> {
    let converted = Converted::new(&[])?;
    let file = converted.nvm();
    let path = file.to_str().context("a path")?;
    let times = if hayate.long { 200 } else { 4 };
    let mut random = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos() | 1;
    let mut most = 0;
    for time in 0..times {
        let mut child = hayate.command(&["--nvm", path], &["/bin/bash", "-c", WRITER])?.spawn()?;
        let mut output = child.stdout.take().context("no output")?;
        let began = output.read(&mut [0; 16])? != 0;
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::thread::sleep(Duration::from_micros(u64::from(random >> 12)));
        // The machine dies with its command.
        child.kill()?;
        let said = child.wait_with_output()?;
        ensure!(began, "the writer did not begin: {}", text(&said.stderr));
        // Its memory consists of the file's pages in this host: its writes, in their order.
        std::thread::sleep(Duration::from_millis(50));
        let store = Store::open(Memory::read(&file)?)?;
        ensure!(store.damaged() == 0, "kill {time}: {} damaged entries", store.damaged());
        for text in store.texts() {
            store.verify(text).with_context(|| format!("kill {time}, delay from {random}"))?;
        }
        most = most.max(store.texts().len());
        let output = converted.run(hayate, true, &["--append", "nvm_verify"])?;
        ensure!(ran(&output), "after kill {time}: {}, {}", output.status, text(&output.stderr));
    }
    ensure!(most > 1, "nothing was ever stored");
    Ok(())
}
