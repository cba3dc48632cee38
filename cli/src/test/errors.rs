//! Tests of impossible values, of unwritable places, and of what remains when the command ends: one
//! clear line each, and the status that scripts use.

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of};
use crate::arguments::Test;
use crate::paths;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CHECKS: [(&str, Check); 9] = [
    ("a_value_that_cannot_be_meant_is_2", wrong_values),
    ("what_cannot_be_done_is_125_in_one_line", impossible),
    ("what_the_host_makes_as_it_is_read_is_not_copied", not_copied),
    ("a_full_disk_below_the_output_is_told", full_output),
    ("a_log_that_cannot_be_written_is_told", full_log),
    ("the_commands_own_output_is_checked", own_output),
    ("closed_streams_are_empty", closed_streams),
    ("a_place_that_cannot_be_written_is_told_at_once", unwritable),
    ("odd_names_are_names", odd_names),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    let mut trials = trials_of("command", &CHECKS, options);
    trials.extend(trials_of("command", &[("nothing_stays_of_a_run", nothing_stays)], options));
    trials
}

/// Checks the status, and that there is exactly one line of `./hayate` with this text, and no
/// output.
fn one_line(output: &Output, status: i32, text: &str) -> Result<()> {
    expect(output, status, "", text)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.starts_with("hayate: ") && said.lines().count() == 1, "not one line: {said}");
    Ok(())
}

/// Runs `sh -c SCRIPT` with the command as `$0`; the script connects its streams.
fn script(hayate: &Hayate, script: &str, request: &str) -> Result<Output> {
    let command = hayate.any(request)?;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(std::env::current_exe()?);
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell.stdin(Stdio::null());
    Ok(shell.output()?)
}

/// More are in the tests of the command line itself, which need no machine.
fn wrong_values(hayate: &Hayate) -> Result<()> {
    let refused = |options: &[&str], text: &str| -> Result<()> {
        expect(&hayate.run(options, &["true"])?, 2, "", text)
    };
    refused(&["-e", ""], "the variable has no name")?;
    refused(&["-e", "=x"], "the variable has no name")?;
    refused(&["--user", "4294967295"], "the largest is 4294967294")?;
    refused(&["--timeout", "0"], "--timeout")?;
    refused(&["--append", "a\nb"], "one line of text")?;
    refused(&["--off2f="], "--off2f")?;
    refused(&["--net", "tap"], "name the interface: tap:NAME")?;
    refused(&["--net", "socket:listen=9000"], "write it as socket:listen=127.0.0.1:9000")?;
    refused(&["--net", "user", "-p", "80"], "write it as 8080:80")?;
    refused(
        &["--net", "user", "--ip", "10.0.2.16/24"],
        "--ip ADDR/PREFIX goes with --net tap or --net socket",
    )?;
    refused(&["--net", "none", "-p", "8080:80"], "--publish goes with --net user or --net passt")?;
    for size in ["64T", "3M", "0M", "1", "1024G"] {
        one_line(&hayate.run(&["--nvm", size], &["true"])?, 2, &format!("--nvm {size}: "))?;
    }
    one_line(&hayate.run(&["--with", "/etc:/"], &["true"])?, 2, "name a path below /")?;
    let tree = tempfile::tempdir()?;
    std::fs::write(tree.path().join("note"), "no program\n")?;
    let tree = tree.path().to_string_lossy().into_owned();
    let output = hayate.run(&["--rootfs", &tree, "--off2f=[a-"], &["true"])?;
    one_line(&output, 2, "--off2f=[a-: no program or library of the image has a path that matches")
}

fn impossible(hayate: &Hayate) -> Result<()> {
    let failed = |options: &[&str], text: &str| -> Result<()> {
        one_line(&hayate.run(options, &["true"])?, 125, text)
    };
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    File::create(folder.path().join("empty"))?;
    ensure!(Command::new("mkfifo").arg(path("pipe")).status()?.success(), "no pipe");
    for source in [path("empty"), path("pipe"), "/dev/zero".into()] {
        failed(&["--rootfs", &source], "is neither a folder, a tar archive")?;
    }
    // The beginning of an image, and of an archive.
    let image = std::fs::read(crate::image::default::DEFAULT.get()?)?;
    std::fs::write(folder.path().join("cut"), &image[..1 << 20])?;
    failed(&["--rootfs", &path("cut")], "is cut short: the file has 1024 KiB")?;
    std::fs::write(folder.path().join("cut.gz"), b"\x1f\x8bno archive")?;
    let output = hayate.run(&["--rootfs", &path("cut.gz")], &["true"])?;
    expect(&output, 125, "", &format!("hayate: cannot make an image of {}: ", path("cut.gz")))?;
    failed(&["--with", &format!("{}:/x", path("empty"))], "is not a folder")?;
    failed(&["--with", &format!("{}:/x", path("none"))], "cannot find the folder")?;
    failed(&["--log", &path(".")], "Is a directory")?;
    failed(&["--directory", "/no/such"], "no directory /no/such in the guest")?;
    failed(&["--kernel", &path("empty")], "QEMU does not start the machine: ")?;
    failed(&["--qemu", "-no-such-option"], "QEMU does not start the machine: -no-such-option")?;
    failed(&["--nvm", "/dev/null"], "/dev/null cannot be non-volatile memory")?;
    failed(&["--net", "tap:hayate-none"], "the host has no interface hayate-none; make one: ")?;
    failed(&["--net", "tap:lo"], "lo is not a tap interface")?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let place = format!("127.0.0.1:{}", taken.local_addr()?.port());
    let line = format!("cannot use port {} of 127.0.0.1: another program has it", &place[10..]);
    failed(&["--net", "user", "--publish", &format!("{place}:80")], &line)?;
    failed(&["--net", &format!("socket:listen={place}")], &line)?;
    if crate::tool::find("passt").is_none() {
        failed(&["--net", "passt"], "--net passt: passt is not installed")?;
    }
    // Longer than any clock: no limit.
    expect(&hayate.run(&["--timeout", "18446744073709551615"], &["true"])?, 0, "", "")
}

fn not_copied(hayate: &Hayate) -> Result<()> {
    let line = "cannot copy /proc: it is on the file system proc";
    one_line(&hayate.run(&["--with", "/proc:/x"], &["true"])?, 125, line)?;
    one_line(&hayate.run(&["--rootfs", "/proc"], &["true"])?, 125, line)?;
    let line = "it is on the file system sysfs";
    one_line(&hayate.run(&["--with", "/sys/kernel:/x"], &["true"])?, 125, line)
}

/// For root a file mode forbids nothing, but a full device is full for every user.
fn full_output(hayate: &Hayate) -> Result<()> {
    let full = || File::options().write(true).open("/dev/full");
    let mut command = hayate.command(&[], &["ls", "/"])?;
    let output = command.stdout(full()?).output()?;
    one_line(&output, 125, "cannot write standard output: No space left on device")?;
    // It writes more than can be buffered, so the program learns of it, too.
    let mut command = hayate.command(&[], &["sh", "-c", "yes; exit $?"])?;
    let output = command.stdout(full()?).output()?;
    one_line(&output, 125, "; the program ended with status 141")?;
    let mut command = hayate.command(&[], &["sh", "-c", "echo x >&2; echo y"])?;
    let output = command.stderr(full()?).output()?;
    ensure!(output.status.code() == Some(125) && output.stdout == b"y\n", "{output:?}");
    Ok(())
}

fn full_log(hayate: &Hayate) -> Result<()> {
    let output = hayate.run(&["--log", "/dev/full"], &["sh", "-c", "echo out; exit 7"])?;
    let line = "cannot write the log: No space left on device (os error 28); \
                the program ended with status 7\n";
    expect(&output, 125, "out\n", line)
}

fn own_output(hayate: &Hayate) -> Result<()> {
    for request in ["--help", "image list", "test --list"] {
        let output = script(hayate, &format!("\"$0\" {request} >/dev/full"), "run")?;
        one_line(&output, 125, "cannot write standard output: No space left on device")?;
        let output = script(hayate, &format!("\"$0\" {request} | :"), "run")?;
        expect(&output, 0, "", "")?;
    }
    let output = script(hayate, "\"$0\" run --no-such-option 2>/dev/full", "run")?;
    expect(&output, 2, "", "")
}

fn closed_streams(hayate: &Hayate) -> Result<()> {
    let linux = if hayate.linux { " --linux" } else { "" };
    let run = |program: &str, streams: &str| {
        script(hayate, &format!("\"$0\" run --timeout 120{linux} -- {program} {streams}"), "run")
    };
    expect(&run("cat", "<&-")?, 0, "", "")?;
    expect(&run("ls /", ">&-")?, 0, "", "")?;
    expect(&run("sh -c 'echo y; exit 3'", "<&- 2>&-")?, 3, "y\n", "")?;
    // Neither empty nor readable, and opened for writing only, as nohup(1) does it.
    expect(&run("cat", "</")?, 0, "", "hayate: cannot read standard input: Is a directory")?;
    expect(&run("cat", "0>/dev/null")?, 0, "", "")
}

/// No user, not even root, can create `/proc/hayate`. The script checks before it installs or
/// builds, the command before it makes.
fn unwritable(hayate: &Hayate) -> Result<()> {
    let line = "cannot write in /proc/hayate";
    let mut command = hayate.command(&[], &["true"])?;
    let output = command.env("HAYATE_BUILD_DIR", "/proc/hayate").output()?;
    one_line(&output, 125, line)?;
    ensure!(String::from_utf8_lossy(&output.stderr).contains("set HAYATE_BUILD_DIR"), "{output:?}");
    let script = |build: &str, target: &str| -> Result<Output> {
        let mut command = Command::new(paths::project().join("hayate"));
        command.args(["run", "--", "true"]).stdin(Stdio::null());
        Ok(command.env("HAYATE_BUILD_DIR", build).env("CARGO_TARGET_DIR", target).output()?)
    };
    let both = "cannot write in /proc/hayate and /proc/target; \
                set HAYATE_BUILD_DIR and CARGO_TARGET_DIR to folders";
    one_line(&script("/proc/hayate", "/proc/target")?, 125, both)?;
    let folder = tempfile::tempdir()?;
    let build = folder.path().join("build");
    let output = script(&build.to_string_lossy(), "/proc/target")?;
    one_line(&output, 125, "cannot write in /proc/target; set CARGO_TARGET_DIR to a folder")?;
    let left: Vec<_> = build.read_dir()?.collect();
    ensure!(left.is_empty(), "something was begun: {left:?}");
    Ok(())
}

/// A comma and a colon are special for QEMU, quotes and dollars for a shell; names need not be
/// UTF-8.
fn odd_names(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let odd = folder.path().join(OsStr::from_bytes(b"a,b:c d\"$e'\n\xff"));
    let tree = odd.join("tree,x:y");
    std::fs::create_dir_all(tree.join("bin"))?;
    std::fs::copy(paths::build("tests")?.join("runall"), tree.join("bin/runall"))?;
    std::fs::write(tree.join(OsStr::from_bytes(b"n\n,\xfe")), "odd\n")?;
    let disk = odd.join("nbd:disk,x.ext4");
    std::fs::copy(crate::image::default::DEFAULT.get()?, &disk)?;
    let memory = odd.join("memory,y");
    File::create(&memory)?.set_len(4 << 20)?;
    let log = odd.join("log,z");
    let ran = |options: &[(&str, &Path)], program: &[&str]| -> Result<Output> {
        let mut command = hayate.any("run")?;
        command.current_dir(&odd).args(["--timeout", "120"]);
        if hayate.linux {
            command.arg("--linux");
        }
        for (option, path) in options {
            command.arg(option).arg(path);
        }
        Ok(command.arg("--").args(program).output()?)
    };
    let all = [("--rootfs", &*disk), ("--log", &*log), ("--nvm", &*memory)];
    expect(&ran(&all, &["echo", "here"])?, 0, "here\n", "")?;
    ensure!(log.metadata()?.len() > 0, "the log is empty");
    // The text before a colon is not a protocol.
    let relative = [("--rootfs", Path::new("nbd:disk,x.ext4"))];
    expect(&ran(&relative, &["echo", "here"])?, 0, "here\n", "")?;
    let program = ["/bin/runall", "--list"];
    let in_folder = ran(&[("--rootfs", &tree)], &program)?;
    expect(&in_folder, 2, "", "no test programs below /bin")?;
    let mut with = tree.into_os_string();
    with.push(":/opt/a,b");
    let shown = ran(&[("--with", Path::new(&with))], &["sh", "-c", "cat /opt/a,b/n*"])?;
    expect(&shown, 0, "odd\n", "")
}

/// Nothing remains after the command's end, or when it is killed in the middle.
fn nothing_stays(hayate: &Hayate) -> Result<()> {
    let names = || -> Result<BTreeSet<std::path::PathBuf>> {
        let entries = paths::build("run")?.read_dir()?;
        Ok(entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<_>>()?)
    };
    let before = names()?;
    let mut child = hayate.command(&[], &["sh", "-c", "echo ready; sleep 100"])?.spawn()?;
    let mut ready = [0; 6];
    child.stdout.take().context("no output")?.read_exact(&mut ready)?;
    ensure!(names()?.is_subset(&before), "a run leaves a name while it runs: {:?}", names()?);
    child.kill()?;
    child.wait()?;
    expect(&hayate.run(&[], &["true"])?, 0, "", "")?;
    ensure!(names()?.is_subset(&before), "something stays: {:?}", names()?);
    Ok(())
}
