//! Black-box tests of shared folders: what one side writes the other reads, and what happens when
//! both do something at once.

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of};
use super::machines::Stay;
use crate::arguments::Test;
use crate::paths;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const CHECKS: [(&str, Check); 20] = [
    ("the_c_programs_pass_on_a_volume", c_programs),
    ("large_files_pass_both_ways", large_files),
    ("a_thousand_files", many_files),
    ("each_side_sees_what_the_other_changes", both_sides),
    ("a_shared_mapping_is_written_to_the_host", mapped),
    ("what_a_mapping_changed_is_there_when_its_program_ended", mapped_and_ended),
    ("sqlite_has_its_log_and_index_there", sqlite),
    ("names_are_changed", names),
    ("the_host_removes_what_the_guest_uses", removed),
    ("an_open_file_outlives_its_name", unlinked),
    ("a_program_that_was_edited_is_the_new_one", edited),
    ("a_folder_that_is_only_read", read_only),
    ("owners_and_permissions", owners),
    ("a_build_script_works_there", build),
    ("two_machines_append_to_one_file", two_machines),
    ("a_machine_that_is_killed_leaves_the_folder_whole", killed),
    ("a_killed_program_leaves_its_volume_usable", killed_program),
    ("a_microvm_has_volumes", microvm),
    ("with_other_root_file_systems", other_roots),
    ("each_error_is_one_line", errors),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("volumes", &CHECKS, options)
}

/// The option that shares a folder at `/v`.
fn at_v(folder: &TempDir) -> String {
    format!("--volume={}:/v", folder.path().display())
}

/// Runs a script in a machine that has the folder at `/v`.
fn run(hayate: &Hayate, folder: &TempDir, script: &str) -> Result<Output> {
    hayate.run(&[&at_v(folder)], &["/bin/sh", "-c", script])
}

/// Runs a script in a machine that stays; it must print this and nothing else.
fn says(stay: &Stay<'_>, script: &str, text: &str) -> Result<()> {
    expect(&stay.shell(script)?, 0, text, "").with_context(|| script.to_string())
}

fn read(folder: &TempDir, name: &str) -> Result<String> {
    let path = folder.path().join(name);
    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
}

fn both_sides(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = folder.path();
    let stay = Stay::started(hayate, &[&at_v(&folder)], &[])?;
    says(&stay, "cat /v/a 2>/dev/null || echo none", "none\n")?;
    fs::write(host.join("a"), "one\n")?;
    says(&stay, "cat /v/a; echo two >>/v/a", "one\n")?;
    ensure!(read(&folder, "a")? == "one\ntwo\n", "the host does not see what the guest appended");
    fs::write(host.join("a"), "TWO\nONE\n")?;
    says(&stay, "cat /v/a; echo guest >/v/b; mkdir /v/d; echo deep >/v/d/e", "TWO\nONE\n")?;
    ensure!(read(&folder, "b")? == "guest\n" && read(&folder, "d/e")? == "deep\n");
    // A name that was there is gone, one that was not is there, and another file has an old name.
    fs::rename(host.join("a"), host.join("c"))?;
    fs::write(host.join("new"), "replaced\n")?;
    fs::rename(host.join("new"), host.join("b"))?;
    says(&stay, "ls /v; cat /v/b; test -e /v/a || echo gone", "b\nc\nd\nreplaced\ngone\n")?;
    fs::rename(host.join("d"), host.join("moved"))?;
    says(&stay, "ls /v; cat /v/moved/e; stat -c %s /v/c", "b\nc\nmoved\ndeep\n8\n")?;
    // Through a descriptor that stays open, and through a mapping that is made anew.
    let script = "exec 3</v/c; read line <&3; echo $line; echo x >/v/go; \
                  while test -e /v/go; do sleep 0.1; done; cat <&3";
    let waiting = stay.exec(&[], &["/bin/sh", "-c", script])?.spawn()?;
    super::machines::until("the guest to read", || Ok(host.join("go").exists()))?;
    fs::write(host.join("c"), "TWO\nlater\n")?;
    fs::remove_file(host.join("go"))?;
    expect(&waiting.wait_with_output()?, 0, "TWO\nlater\n", "")?;
    let mapped = "import mmap,os\nf=os.open('/v/c',os.O_RDONLY)\nm=mmap.mmap(f,0,prot=1)\n\
                  print(m[:].decode(),end='')\nopen('/v/c','w').write('again\\n')\n\
                  m=mmap.mmap(f,0,prot=1)\nprint(m[:].decode(),end='')";
    expect(&stay.exec(&[], &["python3", "-c", mapped])?.output()?, 0, "TWO\nlater\nagain\n", "")
}

/// A program that maps a file, changes it, and waits for the host at each line that it prints.
const MAPPED: &str = r"
import mmap, os, time
PAGE = 4096
def turn(text):
    print(text, flush=True)
    os.mkdir('/v/' + text)
    while not os.path.exists('/v/go-' + text):
        time.sleep(0.02)
f = os.open('/v/m', os.O_RDWR | os.O_CREAT)
os.ftruncate(f, 5 * PAGE + 100)
m = mmap.mmap(f, 5 * PAGE + 100)
m[0:5] = b'first'
m[5 * PAGE:5 * PAGE + 4] = b'last'
# Reads find what the mapping changed, and the mapping what was written, beside its own changes.
print(os.pread(f, 5, 0).decode(), os.pread(f, 100, 5 * PAGE)[:4].decode())
m[PAGE - 2:PAGE + 2] = b'abcd'
os.pwrite(f, b'XY', PAGE - 1)
print(m[PAGE - 2:PAGE + 2].decode())
m.flush()
turn('flushed')
# What the host wrote, beside a page that was changed here.
m[2 * PAGE:2 * PAGE + 4] = b'here'
os.stat('/v/m')
print(m[3 * PAGE:3 * PAGE + 4].decode(), m[2 * PAGE:2 * PAGE + 4].decode())
m.flush()
turn('merged')
# Changed pages behind a new end do not make the file long again; it grows with zeroes.
m[4 * PAGE:4 * PAGE + 4] = b'gone'
m[PAGE:PAGE + 9] = b'remaining'
os.ftruncate(f, PAGE + 4)
os.fsync(f)
turn('cut')
os.ftruncate(f, 5 * PAGE)
print(m[PAGE:PAGE + 9], m[4 * PAGE:4 * PAGE + 4])
m[PAGE:PAGE + 5] = b'again'
m.flush()
# A file without a name goes on.
os.unlink('/v/m')
m[0:4] = b'lost'
m.flush()
print(os.pread(f, 4, 0).decode(), os.fstat(f).st_nlink)
";

fn mapped(hayate: &Hayate) -> Result<()> {
    const PAGE: usize = 4096;
    let folder = tempfile::tempdir()?;
    let host = folder.path();
    let stay = Stay::started(hayate, &["--cpus=2", &at_v(&folder)], &[])?;
    let program = stay.exec(&[], &["python3", "-c", MAPPED])?.spawn()?;
    let turn = |text: &str| {
        super::machines::until(text, || Ok(host.join(text).exists()))?;
        fs::read(host.join("m")).context("the file of the mapping")
    };
    let go_on = |text: &str| fs::write(host.join(format!("go-{text}")), "").context("the answer");
    let content = turn("flushed")?;
    ensure!(content.len() == 5 * PAGE + 100 && content.starts_with(b"first"), "not flushed");
    ensure!(&content[PAGE - 2..PAGE + 2] == b"aXYd" && &content[5 * PAGE..][..4] == b"last");
    fs::OpenOptions::new().write(true).open(host.join("m"))?.write_all_at(b"host", 3 * 4096)?;
    go_on("flushed")?;
    let content = turn("merged")?;
    ensure!(&content[3 * PAGE..][..4] == b"host" && &content[2 * PAGE..][..4] == b"here");
    go_on("merged")?;
    let content = turn("cut")?;
    ensure!(content.len() == PAGE + 4 && content.ends_with(b"rema"), "{} bytes", content.len());
    go_on("cut")?;
    let text = "first last\naXYd\nflushed\nhost here\nmerged\ncut\n\
                b'rema\\x00\\x00\\x00\\x00\\x00' b'\\x00\\x00\\x00\\x00'\nlost 0\n";
    expect(&program.wait_with_output()?, 0, text, "")?;
    ensure!(!host.join("m").exists(), "the file has a name again");
    Ok(())
}

/// Neither `msync` nor `munmap`: the program ends, or is killed.
fn mapped_and_ended(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stay = Stay::started(hayate, &[&at_v(&folder)], &[])?;
    let script = |name: &str, end: &str| {
        format!(
            "import mmap,os,signal\nf=os.open('/v/{name}',os.O_RDWR|os.O_CREAT)\n\
             os.ftruncate(f,1<<22)\nm=mmap.mmap(f,1<<22)\nos.close(f)\n\
             for n in range(0,1<<22,4096): m[n:n+4]=b'%04d'%(n>>12)\n{end}"
        )
    };
    for (name, end, status) in [
        ("unmapped", "m.close()\nprint(open('/proc/self/stat').read(4)[:0])", 0),
        ("ended", "os._exit(0)", 0),
        ("killed", "os.kill(os.getpid(),signal.SIGKILL)", 137),
    ] {
        let output = stay.exec(&[], &["python3", "-c", &script(name, end)])?.output()?;
        let content = fs::read(folder.path().join(name))?;
        ensure!(output.status.code() == Some(status), "{name}: {output:?}");
        ensure!(content.len() == 1 << 22, "{name}: {} bytes", content.len());
        for (number, page) in content.chunks(4096).enumerate() {
            ensure!(page.starts_with(format!("{number:04}").as_bytes()), "{name}: page {number}");
        }
    }
    // With the machine, too.
    let script = script("machine", "os._exit(0)");
    expect(&hayate.run(&[&at_v(&folder)], &["python3", "-c", &script])?, 0, "", "")?;
    let content = fs::read(folder.path().join("machine"))?;
    ensure!(content.chunks(4096).all(|page| page.starts_with(b"0") || page.starts_with(b"1")));
    Ok(())
}

/// Four writers at once, which share the index of the log by a mapping.
const SQLITE: &str = r"
import os, sqlite3, sys
def base():
    b = sqlite3.connect('/v/base', isolation_level=None, timeout=60)
    return b
b = base()
print(b.execute('pragma journal_mode=wal').fetchone()[0])
b.execute('create table if not exists t (n integer primary key, w, filler blob)')
b.close()
for w in range(4):
    if os.fork() == 0:
        b = base()
        for n in range(50):
            b.execute('insert into t (w, filler) values (?, randomblob(?))', (w, n * 40))
        b.close()
        os._exit(0)
print(sum(os.wait()[1] for w in range(4)))
";
/// Prints the rows that are there afterwards.
const SQLITE_CHECK: &str = r"
import sqlite3
b = sqlite3.connect('/v/base')
print(b.execute('pragma integrity_check').fetchone()[0])
print(b.execute('select w, count(*) from t group by w').fetchall())
";

fn sqlite(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = ["--cpus=2", &at_v(&folder)];
    expect(&hayate.run(&options, &["python3", "-c", SQLITE])?, 0, "wal\n0\n", "")?;
    let counts = "ok\n[(0, 50), (1, 50), (2, 50), (3, 50)]\n";
    expect(&hayate.run(&options, &["python3", "-c", SQLITE_CHECK])?, 0, counts, "")
}

/// Bytes without a period that a lost block would match.
fn noise(count: u64) -> Vec<u8> {
    (0..count).map(|n| (n.wrapping_mul(n).wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

fn large_files(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let bytes = noise(64 << 20);
    fs::write(folder.path().join("from-host"), &bytes)?;
    let sum = |name: &str| -> Result<String> {
        let output = crate::tool::run(Command::new("sha256sum").arg(folder.path().join(name)))?;
        Ok(String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or("").to_string())
    };
    let script = "sha256sum </v/from-host; cp /v/from-host /v/from-guest; \
                  dd if=/v/from-host of=/v/odd bs=100001 2>/dev/null; stat -c %s /v/odd";
    let output = run(hayate, &folder, script)?;
    expect(&output, 0, &format!("{}  -\n{}\n", sum("from-host")?, 64 << 20), "")?;
    for name in ["from-guest", "odd"] {
        ensure!(fs::read(folder.path().join(name))? == bytes, "{name} is another file");
    }
    Ok(())
}

fn many_files(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = folder.path();
    fs::create_dir(host.join("host"))?;
    for number in 0..1000 {
        fs::write(host.join(format!("host/file-{number:04}")), format!("{number}\n"))?;
    }
    let script = "ls /v/host | wc -l; cat /v/host/* | sort -n | tail -1; mkdir /v/guest; \
                  for n in $(seq 1000); do echo $n >/v/guest/$n; done; rm -r /v/host; ls /v";
    expect(&run(hayate, &folder, script)?, 0, "1000\n999\nguest\n", "")?;
    let names = fs::read_dir(host.join("guest"))?.count();
    ensure!(names == 1000, "the guest made {names} files");
    ensure!(read(&folder, "guest/777")? == "777\n" && !host.join("host").exists());
    Ok(())
}

fn names(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = folder.path();
    let script = "cd /v && echo a >a && ln a hard && ln -s a soft && cat hard soft && \
                  stat -c %h a && mv a b && cat hard && readlink soft && mkdir -p d/e && \
                  mv b d/e/f && mv d g && cat g/e/f && rmdir g 2>/dev/null; \
                  truncate -s 1M sparse && stat -c '%s %b' sparse && rm hard && \
                  cp -p /bin/true t && test -x t && pwd && cd g && mv ../g ../h && pwd -P";
    let output = run(hayate, &folder, script)?;
    expect(&output, 0, "a\na\n2\na\na\na\n1048576 0\n/v\n/v/h\n", "")?;
    ensure!(read(&folder, "h/e/f")? == "a\n" && !host.join("hard").exists());
    ensure!(fs::read_link(host.join("soft"))? == Path::new("a"));
    symlink("h/e/f", host.join("from-host"))?;
    expect(&run(hayate, &folder, "cat /v/from-host")?, 0, "a\n", "")
}

fn removed(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = folder.path();
    fs::create_dir_all(host.join("d/e"))?;
    fs::write(host.join("d/f"), "text\n")?;
    let script = "cd /v/d/e; exec 3</v/d/f; echo >/v/go; while test -e /v/go; do sleep 0.1; done; \
                  cat <&3; ls /v; echo >new || echo refused; cd /v && echo back";
    let stay = Stay::started(hayate, &[&at_v(&folder)], &[])?;
    let waiting = stay.exec(&[], &["/bin/sh", "-c", script])?.spawn()?;
    super::machines::until("the guest to open", || Ok(host.join("go").exists()))?;
    fs::remove_dir_all(host.join("d"))?;
    fs::remove_file(host.join("go"))?;
    expect(&waiting.wait_with_output()?, 0, "text\nrefused\nback\n", "new")?;
    says(&stay, "ls /v; echo alive", "alive\n")
}

fn unlinked(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = "import os\nf=os.open('/v/f',os.O_RDWR|os.O_CREAT)\nos.write(f,b'before ')\n\
                   os.unlink('/v/f')\nos.write(f,b'after')\nprint(os.pread(f,100,0).decode())\n\
                   s=os.fstat(f)\nprint(s.st_nlink,s.st_size,os.listdir('/v'))\n\
                   print(os.readlink('/proc/self/fd/%d'%f))";
    let output = hayate.run(&[&at_v(&folder)], &["python3", "-c", program])?;
    expect(&output, 0, "before after\n0 12 []\n/v/f (deleted)\n", "")?;
    ensure!(fs::read_dir(folder.path())?.count() == 0, "the file has a name on the host");
    Ok(())
}

/// The same length each time, so that only the content tells one version from the next.
fn edited(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stay = Stay::started(hayate, &[&at_v(&folder)], &[])?;
    let script = folder.path().join("script");
    for version in 10..22 {
        fs::write(&script, format!("#!/bin/sh\necho {version}\n"))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        says(&stay, "/v/script", &format!("{version}\n"))?;
    }
    // Programs: written in place by the host, and put there by a rename.
    let tests = paths::build("tests")?;
    let program = folder.path().join("program");
    for (round, name) in ["runall", "stress/tiny", "runall", "stress/tiny"].iter().enumerate() {
        if round < 2 {
            fs::copy(tests.join(name), &program)?;
        } else {
            fs::copy(tests.join(name), folder.path().join("new"))?;
            fs::rename(folder.path().join("new"), &program)?;
        }
        let output = stay.exec(&[], &["/v/program", "--list"])?.output()?;
        let runner = String::from_utf8_lossy(&output.stderr).contains("no test programs");
        ensure!(runner == (*name == "runall"), "round {round}: not {name}, but {output:?}");
    }
    // A write by the guest, in place, is seen by the next start, too.
    let script = "for n in 31 32 33; do printf '#!/bin/sh\\necho %s\\n' $n >/v/script; \
                  /v/script; done";
    says(&stay, script, "31\n32\n33\n")
}

fn read_only(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a"), "kept\n")?;
    let script = "cat /v/a; touch /v/b; echo x >/v/a; rm /v/a; mkdir /v/d; chmod 777 /v/a; \
                  mount -o remount,rw /v; echo y >>/v/a; rm -f /v/a; cat /v/a";
    let option = format!("{}:ro", at_v(&folder));
    let output = hayate.run(&[&option], &["/bin/sh", "-c", script])?;
    expect(&output, 0, "kept\nkept\n", "Read-only file system")?;
    ensure!(read(&folder, "a")? == "kept\n" && !folder.path().join("b").exists());
    Ok(())
}

fn owners(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let host = folder.path();
    fs::write(host.join("closed"), "closed\n")?;
    fs::set_permissions(host.join("closed"), fs::Permissions::from_mode(0o640))?;
    fs::set_permissions(host, fs::Permissions::from_mode(0o755))?;
    let (mine, group) = (fs::metadata(host)?.uid(), fs::metadata(host)?.gid());
    let script = "umask 022; echo x >/v/made; mkdir -m 750 /v/dir; chmod 4711 /v/made; \
                  stat -c '%a %u %g' /v/closed /v/made /v/dir";
    let expected = format!("640 {mine} {group}\n4711 {mine} {group}\n750 {mine} {group}\n");
    expect(&run(hayate, &folder, script)?, 0, &expected, "")?;
    let made = fs::metadata(host.join("made"))?;
    ensure!(made.mode() & 0o7777 == 0o4711 && made.uid() == mine, "{:o}", made.mode());
    // Another user of the guest: its rights are those that the host's owner and mode give it.
    let user = ["--user", "1234:1234", &at_v(&folder)];
    let script = "cat /v/closed; echo x >/v/other; rm -f /v/made; ls /v | wc -l";
    let output = hayate.run(&user, &["/bin/sh", "-c", script])?;
    expect(&output, 0, "3\n", "Permission denied")?;
    fs::set_permissions(host, fs::Permissions::from_mode(0o777))?;
    let output = hayate.run(&user, &["/bin/sh", "-c", "echo x >/v/other; stat -c %u /v/other"])?;
    // Root on the host can give files away, others cannot.
    let owner = if rustix::process::geteuid().is_root() { 1234 } else { mine };
    expect(&output, 0, &format!("{owner}\n"), "")?;
    ensure!(fs::metadata(host.join("other"))?.uid() == owner);
    Ok(())
}

/// What a version control system and a build do: many small files, renames over others, locks by
/// `O_EXCL`, times that are compared, a program that is made and executed.
const BUILD: &str = r#"
cd /v && mkdir -p objects src out || exit 1
for n in $(seq 40); do
    printf '#!/bin/sh\necho part %s\n' $n >src/$n
    sum=$(sha256sum src/$n | cut -c1-16)
    mkdir -p objects/${sum%%??????????????}
    (set -C; echo $$ >objects/lock) || exit 2
    gzip -c src/$n >objects/tmp && mv objects/tmp objects/${sum%%??????????????}/$sum || exit 3
    rm objects/lock
done
find objects -type f | wc -l
for n in $(seq 40); do
    sed 's/part/made/' src/$n >out/$n && chmod +x out/$n || exit 5
done
touch -d '2001-02-03 04:05:06' out/7
test src/7 -nt out/7 && echo old
out/8 && tar cf all.tar src out && rm -r src && tar xf all.tar src && sh src/9
flock all.tar -c 'echo locked'
"#;

fn build(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    expect(&run(hayate, &folder, BUILD)?, 0, "40\nold\nmade 8\npart 9\nlocked\n", "")?;
    let old = fs::metadata(folder.path().join("out/7"))?;
    ensure!(old.mtime() == 981_173_106, "the time is {}", old.mtime());
    Ok(())
}

fn two_machines(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = |name: &str| {
        format!(
            "echo >/v/{name}; until test -e /v/one -a -e /v/two; do sleep 0.1; done; \
             for n in $(seq 300); do echo {name} $n >>/v/log; done"
        )
    };
    let start = |name: &str| {
        let words = ["/bin/sh", "-c", &script(name)];
        hayate.command(&[&at_v(&folder)], &words)?.spawn().context("cannot start")
    };
    let (one, two) = (start("one")?, start("two")?);
    expect(&one.wait_with_output()?, 0, "", "")?;
    expect(&two.wait_with_output()?, 0, "", "")?;
    let text = read(&folder, "log")?;
    for name in ["one", "two"] {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let numbers: Vec<u32> = lines.filter_map(|line| line.trim().parse().ok()).collect();
        ensure!(numbers == (1..=300).collect::<Vec<_>>(), "{name}: {} lines", numbers.len());
    }
    ensure!(text.lines().count() == 600, "{} lines", text.lines().count());
    Ok(())
}

fn killed(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let stay = Stay::started(hayate, &[&at_v(&folder)], &[])?;
    let script = "n=0; while :; do n=$((n+1)); echo $n >/v/$n; done";
    let mut writing = stay.exec(&[], &["/bin/sh", "-c", script])?.spawn()?;
    let host = folder.path();
    super::machines::until("the guest to write", || Ok(host.join("51").exists()))?;
    stay.kill()?;
    writing.wait()?;
    for number in 1..=50 {
        ensure!(read(&folder, &number.to_string())? == format!("{number}\n"), "{number} is lost");
    }
    expect(&run(hayate, &folder, "cat /v/50; echo 51 >/v/next; cat /v/next")?, 0, "50\n51\n", "")
}

fn killed_program(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = "for n in 1 2 3 4 5 6 7 8; do \
                  dd if=/dev/zero of=/v/$n bs=1M count=400 2>/dev/null & done; sleep 0.5; \
                  kill -9 %1 %2 %3 %4 %5 %6 %7 %8; wait 2>/dev/null; \
                  for n in $(seq 60); do (cat /v/* >/dev/null) & sleep 0.01; kill -9 $!; done; \
                  wait 2>/dev/null; rm /v/*; echo left >/v/a; cat /v/a; ls /v";
    let output = hayate.run(&["--cpus=2", &at_v(&folder)], &["/bin/bash", "-c", script])?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && text == "left\na\n", "{output:?}");
    Ok(())
}

fn microvm(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("a"), "here\n")?;
    let script = "cat /v/a; echo there >/v/b";
    let options = ["--machine=microvm", &at_v(&folder)];
    expect(&hayate.run(&options, &["/bin/sh", "-c", script])?, 0, "here\n", "")?;
    ensure!(read(&folder, "b")? == "there\n");
    Ok(())
}

/// A root file system of the user's own, in memory and on a disk, with a mount point that it lacks;
/// two folders, one below the other; a comma in a name.
fn other_roots(hayate: &Hayate) -> Result<()> {
    let (tree, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
    fs::create_dir(tree.path().join("bin"))?;
    fs::copy(paths::build("tests")?.join("runall"), tree.path().join("bin/runall"))?;
    let (outer, inner) = (folder.path().join("outer,readonly=on"), folder.path().join("inner"));
    fs::create_dir_all(outer.join("below"))?;
    fs::create_dir(&inner)?;
    fs::copy(paths::build("tests")?.join("runall"), inner.join("program"))?;
    let outer = format!("--volume={}:/x/y/z", outer.display());
    let inner = format!("--volume={}:/x/y/z/below", inner.display());
    let root = format!("--rootfs={}", tree.path().display());
    let program = ["/x/y/z/below/program", "--list"];
    for options in [&[&root[..], &outer, &inner][..], &[&root, "--in-memory", &outer, &inner]] {
        expect(&hayate.run(options, &program)?, 2, "", "no test programs below /x/y/z/below")?;
    }
    Ok(())
}

fn errors(hayate: &Hayate) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    let file = file.path().display();
    for (options, status, text) in [
        (vec!["--volume=/no/such:/v".to_string()], 125, "cannot find /no/such"),
        (vec![format!("--volume={file}:/v")], 125, "is not a folder"),
        (vec!["--volume=/tmp:v".to_string()], 2, "the path in the guest begins with /"),
        (vec!["--volume=/tmp".to_string()], 2, "write it as DIR:/PATH"),
        (vec!["--volume=/tmp:/".to_string()], 2, "name a path below /"),
        (vec!["--volume=/tmp:/a".to_string(), "--volume=/var:/a".into()], 2, "both be shown at /a"),
        (vec!["--volume=/tmp:/a".to_string(), "--deterministic".into()], 2, "--with"),
        (vec!["--volume=/tmp:/a".to_string(), "--vmm=firecracker".into()], 2, "--with"),
    ] {
        let words: Vec<&str> = options.iter().map(String::as_str).collect();
        let output = hayate.run(&words, &["true"])?;
        expect(&output, status, "", text)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(said.trim_end().lines().count() == 1, "more than a line: {said}");
    }
    let mut make = hayate.any("snapshot")?;
    let output = make.args(["make", "volumes-are-refused", "--volume=/tmp:/a"]).output()?;
    expect(&output, 2, "", "leave --volume out")
}

/// The areas of the C programs that are about files, and their cases that no 9P mount passes, on
/// Linux neither.
const AREAS: [&str; 6] = ["file", "mapfile", "dir", "path", "meta", "lock"];

fn c_programs(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    let with = format!("--with={}:/tests", paths::build("tests")?.display());
    for area in AREAS {
        let program = format!("/tests/static/{area}");
        let options = [&with[..], &at_v(&folder), "--env=TMPDIR=/v", "--timeout", "300"];
        let output = hayate.run(&options, &[&program])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let failed: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("... FAILED"))
            .filter(|line| !LACKING.iter().any(|case| line.contains(&format!("test {case} ..."))))
            .collect();
        ensure!(failed.is_empty(), "{}", failed.join("\n"));
        ensure!(text.contains("test result:"), "{area} did not end: {output:?}");
    }
    Ok(())
}

/// Cases that a 9P mount does not pass, on Linux neither: the protocol has no holes, no flags of
/// renames; QEMU 7.2 of Debian makes no FIFOs; times are the host's. Those
/// of locks count how often a process sleeps, and each question to the host is a sleep.
const LACKING: [&str; 10] = [
    "lock::a_record_lock_goes_from_one_to_the_next",
    "lock::a_whole_file_lock_goes_from_one_to_the_next",
    "file::seek_hole_and_data",
    "file::punched_hole_reads_zero",
    "dir::getdents_types",
    "dir::renameat2_noreplace",
    "dir::renameat2_exchange",
    "dir::mknod_kinds_and_errors",
    "meta::stat_of_a_regular_file",
    "meta::stat_of_other_kinds",
];
