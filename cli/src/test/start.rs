//! Tests of a first start: the behaviour of `./hayate` on a host whose QEMU or KVM fails. A script
//! takes the place of QEMU, found first in `PATH`.

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of};
use crate::arguments::Test;
use crate::image::default;
use crate::{paths, tool};
use anyhow::{Context, Result, ensure};
use rustix::fs::{Access, access};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const CHECKS: [(&str, Check); 8] = [
    ("a_qemu_that_fails_is_one_line_and_125", failures),
    ("a_qemu_that_fails_after_a_word_is_125", later_failures),
    ("a_qemu_that_cannot_be_executed_is_named", no_qemu),
    ("a_refused_option_is_named", refused),
    ("a_kvm_that_fails_is_found_out_once", found_out),
    ("a_kvm_that_fails_later_is_left", left),
    ("a_kernel_that_does_not_boot_says_nothing_of_kvm", not_found_out),
    ("a_debugger_has_its_time", examined),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    // These tests are not about machines, and Linux starts slowly.
    if options.guest_linux { Vec::new() } else { trials_of("start", &CHECKS, options) }
}

/// A host whose QEMU is a script, and with nothing known about KVM yet.
struct FakeHost {
    folder: TempDir,
}

impl FakeHost {
    /// `script` is the program; in it, `tcg "$@"` runs the real QEMU with TCG. A question for the
    /// kinds of networks goes to the real QEMU: it is no start of a machine.
    fn new(script: &str) -> Result<FakeHost> {
        default::DEFAULT.get()?;
        // On the file system of `build/`, for hard links to its files.
        let folder = tempfile::tempdir_in(paths::build(".")?)?;
        let host = FakeHost { folder };
        std::fs::create_dir(host.path("bin"))?;
        std::fs::create_dir(host.path("build"))?;
        std::fs::create_dir(host.path("build/stamps"))?;
        for entry in paths::build(".")?.read_dir()? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("stamps") && path != host.folder.path() {
                let name = path.file_name().context("no name")?;
                std::os::unix::fs::symlink(&path, host.path("build").join(name))?;
            }
        }
        for entry in paths::build("stamps")?.read_dir()? {
            let path = entry?.path();
            let name = path.file_name().context("no name")?;
            if !name.to_string_lossy().starts_with("kvm") {
                // The same file: its lock and its time are needed too.
                std::fs::hard_link(&path, host.path("build/stamps").join(name))?;
            }
        }
        let qemu = tool::command("qemu-system-x86_64")?;
        let qemu = Path::new(qemu.get_program()).display().to_string();
        let text = format!(
            "#!/bin/sh\n\
             greet() {{ echo '{{\"QMP\": {{\"version\": {{\"qemu\": {{\"minor\": 2, \"major\": 5}}}}}}}}' >&4; }}\n\
             up() {{ greet; read -r line <&4; echo '{{\"return\": {{}}, \"id\": \"begin\"}}' >&4; }}\n\
             stop() {{ echo '{{\"event\": \"STOP\"}}' >&4; read -r line <&4\n\
             echo '{{\"return\": {{\"status\": \"'$1'\"}}, \"id\": \"status\"}}' >&4; exec sleep 100; }}\n\
             tcg() {{ left=$#; while [ $left -gt 0 ]; do word=$1; shift; left=$((left - 1))\n\
             [ \"$word\" != kvm ] || word=tcg; set -- \"$@\" \"$word\"; done; exec '{qemu}' \"$@\"; }}\n\
             once() {{ mkdir \"$(dirname \"$0\")/$1\" 2>/dev/null; }}\n\
             [ \"$1\" != -netdev ] || exec '{qemu}' \"$@\"\n\
             {script}\n"
        );
        let program = host.path("bin/qemu-system-x86_64");
        put_program(&program, text.as_bytes())?;
        Ok(host)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Returns `./hayate run OPTIONS -- PROGRAM` on this host, not started.
    fn command(
        &self,
        hayate: &Hayate,
        accel: &str,
        options: &[&str],
        program: &[&str],
    ) -> Result<Command> {
        let mut command = hayate.command(options, program)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.path("bin")).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(folders)?);
        command.env("HAYATE_BUILD_DIR", self.path("build"));
        command.env("HAYATE_ACCEL", accel).env("HAYATE_PATIENCE", "3");
        Ok(command)
    }

    /// Runs `cat` with `hi` as its input.
    fn cat(&self, hayate: &Hayate, accel: &str) -> Result<Output> {
        let input = self.path("input");
        std::fs::write(&input, "hi\n")?;
        let mut command = self.command(hayate, accel, &[], &["cat"])?;
        command.env("HAYATE_PATIENCE", "100");
        Ok(command.stdin(Stdio::from(std::fs::File::open(input)?)).output()?)
    }

    /// Returns what is known about KVM: the first word of each line.
    fn known(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("build/stamps/kvm")).unwrap_or_default();
        text.lines().map(|line| line.split(' ').next().unwrap_or_default().to_string()).collect()
    }
}

/// Writes a program by a child process. If the file were open for writing in this process, a child
/// that another thread starts at this moment would have it open too, and executing it would fail
/// (ETXTBSY).
pub fn put_program(path: &Path, content: &[u8]) -> Result<()> {
    let script = "cat >\"$0\" && chmod 755 \"$0\"";
    let mut command = Command::new("/bin/sh");
    let mut child = command.args(["-c", script]).arg(path).stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(content)?;
    let status = child.wait()?;
    ensure!(status.success(), "cannot write {}: {status}", path.display());
    Ok(())
}

/// Whether this host has a KVM to be tried.
fn has_kvm() -> bool {
    access("/dev/kvm", Access::READ_OK | Access::WRITE_OK).is_ok()
}

/// Checks output and status, and that standard error has this line and no other, if there is a KVM.
fn about_kvm(output: &Output, out: &str, line: &str) -> Result<()> {
    let said =
        if has_kvm() && !line.is_empty() { format!("hayate: {line}\n") } else { String::new() };
    expect(output, 0, out, &said)?;
    ensure!(output.stderr == said.as_bytes(), "more was said: {output:?}");
    Ok(())
}

/// The failures of the script, and the resulting lines.
fn failures(hayate: &Hayate) -> Result<()> {
    let error = "echo 'KVM internal error. Suberror: 1\nRAX=0' >&2";
    for (script, line) in [
        ("exec sleep 100", "QEMU did not start the machine within 3 s"),
        ("up; exec sleep 100", "the kernel printed nothing for 3 s"),
        ("up; stop paused", "QEMU stopped the machine (paused)"),
        (
            &format!("{error}; up; stop internal-error"),
            "QEMU stopped the machine (internal-error): KVM internal error. Suberror: 1",
        ),
        ("exit 1", "QEMU ended (status 1) before the guest printed anything"),
        ("greet; exit 1", "QEMU ended (status 1) before the guest printed anything"),
        ("up; kill -KILL $$", "QEMU ended (signal 9) before the guest printed anything"),
        (
            "greet; echo 'no such device' >&2; exit 1",
            "QEMU does not start the machine: no such device (QEMU is version 5.2; Hayate is tested with 7.2 and newer)",
        ),
    ] {
        let host = FakeHost::new(script)?;
        let output = host.command(hayate, "kvm", &[], &["true"])?.output()?;
        let line = format!("hayate: {line}\n");
        expect(&output, 125, "", &line)?;
        ensure!(output.stderr == line.as_bytes(), "more was said: {output:?}");
    }
    Ok(())
}

/// The kernel's messages come first then.
fn later_failures(hayate: &Hayate) -> Result<()> {
    const LOG: &str = "up; echo '[    0.000001] some' >&3";
    const END: &str = "hayate: the machine ended (QEMU's exit status: 1) and the guest gave no reason; \
                       its messages are above\n";
    for (script, line) in [
        ("exit 1", END),
        ("echo 'timing exec 5' >&8; exit 1", END),
        ("stop io-error", "hayate: QEMU stopped the machine (io-error)\n"),
    ] {
        let host = FakeHost::new(&format!("{LOG}; {script}"))?;
        let output = host.command(hayate, "kvm", &[], &["true"])?.output()?;
        let all = format!("[    0.000001] some\n{line}");
        expect(&output, 125, "", &all)?;
        ensure!(output.stderr == all.as_bytes(), "more was said: {output:?}");
    }
    Ok(())
}

fn no_qemu(hayate: &Hayate) -> Result<()> {
    let host = FakeHost::new("")?;
    let program = host.path("bin/qemu-system-x86_64");
    put_program(&program, b"#!/no/such/interpreter\n")?;
    for accel in ["tcg", "auto"] {
        let output = host.command(hayate, accel, &[], &["true"])?.output()?;
        let why = "No such file or directory";
        let line = format!("hayate: {} cannot be executed: {why}\n", program.display());
        expect(&output, 125, "", &line)?;
        ensure!(output.stderr == line.as_bytes(), "more was said: {output:?}");
    }
    Ok(())
}

fn refused(hayate: &Hayate) -> Result<()> {
    let output = hayate.run(&["--qemu=-no-such-option"], &["true"])?;
    expect(
        &output,
        125,
        "",
        "hayate: QEMU does not start the machine: -no-such-option: invalid option",
    )?;
    let output = hayate.run(&["--qemu=-device", "--qemu=no-such-device"], &["true"])?;
    expect(&output, 125, "", "hayate: QEMU does not start the machine: -device no-such-device: ")?;
    let mut command = hayate.command(&[], &["true"])?;
    let output = command.env("HAYATE_PATIENCE", "soon").output()?;
    expect(
        &output,
        2,
        "",
        "hayate: HAYATE_PATIENCE=soon: write a number of seconds, from 1 to 86400",
    )
}

/// The first command reports it; those that start at the same time or later do not.
fn found_out(hayate: &Hayate) -> Result<()> {
    let script = "case \"$*\" in *'-accel kvm'*) up; stop internal-error ;; esac; tcg \"$@\"";
    let host = FakeHost::new(script)?;
    let both = std::thread::scope(|scope| -> Result<[Output; 2]> {
        let one = scope.spawn(|| host.cat(hayate, "auto"));
        let two = host.cat(hayate, "auto")?;
        Ok([one.join().ok().context("a thread panicked")??, two])
    })?;
    let line = "Hayate does not run with KVM here (QEMU stopped the machine (internal-error)); \
                using tcg";
    let [first, second] = &both;
    let (first, second) = if first.stderr.is_empty() { (second, first) } else { (first, second) };
    about_kvm(first, "hi\n", line)?;
    about_kvm(second, "hi\n", "")?;
    about_kvm(&host.cat(hayate, "auto")?, "hi\n", "")?;
    ensure!(!has_kvm() || host.known() == ["fails"], "{:?}", host.known());
    // Another program at the same path is tried anew.
    let program = host.path("bin/qemu-system-x86_64");
    let text = std::fs::read_to_string(&program)? + "\n";
    put_program(&program, text.as_bytes())?;
    about_kvm(&host.cat(hayate, "auto")?, "hi\n", line)
}

/// KVM passes the trial and fails with the machine. No input is lost.
fn left(hayate: &Hayate) -> Result<()> {
    let script = "case \"$*\" in *'-accel kvm'*) once tried || { up; stop internal-error; } ;; esac
        tcg \"$@\"";
    let host = FakeHost::new(script)?;
    let line =
        "with KVM QEMU stopped the machine (internal-error); starting the machine again with tcg";
    about_kvm(&host.cat(hayate, "auto")?, "hi\n", line)?;
    // The old verdict is not trusted any more: KVM is tried again.
    ensure!(host.known().is_empty(), "{:?}", host.known());
    Ok(())
}

/// If nothing boots, the kernel may be the reason.
fn not_found_out(hayate: &Hayate) -> Result<()> {
    let host = FakeHost::new("up; stop internal-error")?;
    let output = host.cat(hayate, "auto")?;
    let last = "hayate: QEMU stopped the machine (internal-error)\n";
    let why = "QEMU stopped the machine (internal-error)";
    let first = format!(
        "hayate: Hayate does not run with KVM here ({why}), and not with tcg either ({why}); using tcg\n"
    );
    let all = if has_kvm() { first + last } else { last.into() };
    expect(&output, 125, "", &all)?;
    ensure!(output.stderr == all.as_bytes(), "more was said: {output:?}");
    ensure!(host.known().is_empty(), "{:?}", host.known());
    Ok(())
}

/// A machine that waits for a debugger is not ended because of its silence.
fn examined(hayate: &Hayate) -> Result<()> {
    let host = FakeHost::new("tcg \"$@\"")?;
    let options = ["--qemu=-S", "--timeout", "5"];
    let output = host.command(hayate, "tcg", &options, &["true"])?.output()?;
    expect(&output, 124, "", "hayate: the time limit passed")
}
