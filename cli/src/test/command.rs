//! Black-box tests of this command: each starts it as a user does, and compares its output and its
//! end.

use super::report::{Case, Verdict};
use super::screen::{self, Screen};
use super::{Report, Trial};
use crate::arguments::{Accel, Profile, Test};
use crate::guest::accel::settled;
use crate::image::default;
use crate::{compile, paths};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A test that uses the command.
pub(super) type Check = fn(&Hayate) -> Result<()>;

/// The checks: name and function. The first five take a minute, the others seconds.
const CHECKS: [(&str, Check); 28] = [
    ("a_comparison_with_linux_repeats_to_the_digit", comparison),
    ("linux_executes_in_place_from_an_nvdimm", execution_in_place),
    ("a_small_machine_does_the_same_whatever_is_kept", small_machine),
    ("the_suite_agrees_with_the_naive_method", naive_method),
    ("a_comparison_by_time_ends", comparison_by_time),
    ("output_and_status_pass_through", output_and_status),
    ("input_passes_through", input),
    ("python_starts_a_program", python),
    ("standard_error_is_separate", streams_are_separate),
    ("megabytes_pass_unchanged", megabytes),
    ("a_closed_output_reaches_the_program", closed_output),
    ("a_signal_is_128_and_its_number", killed),
    ("a_missing_program_is_127", missing_program),
    ("a_file_that_is_no_program_is_126", no_program),
    ("wrong_options_are_2", wrong_options),
    ("a_missing_root_file_system_is_125", missing_rootfs),
    ("the_time_limit_is_124", time_limit),
    ("an_interrupt_reaches_the_program", interrupt),
    ("environment_user_and_directory", world),
    ("a_folder_is_a_root_file_system", folder_rootfs),
    ("a_tar_is_a_root_file_system", tar_rootfs),
    ("a_machine_without_a_disk", memory_rootfs),
    ("a_folder_of_the_host_is_shown", with_folder),
    ("the_image_is_never_changed", image_unchanged),
    ("a_panic_is_70_and_names_its_place", panic),
    ("an_interactive_shell", interactive),
    ("a_deterministic_run_repeats_to_the_instruction", deterministic),
    ("a_deterministic_run_with_a_disk_repeats_to_the_instruction", deterministic_disk),
];

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("command", &CHECKS, options)
}

/// Checks as trials of a group.
pub(super) fn trials_of(group: &str, checks: &[(&str, Check)], options: &Test) -> Vec<Trial> {
    checks
        .iter()
        .map(|&(name, check)| {
            let name = format!("{group}/{name}");
            let hayate = Hayate { long: options.includes_long(&name), ..Hayate::new(options) };
            Trial::new(name, move |_| {
                let (verdict, output) = match check(&hayate) {
                    Ok(()) => (Verdict::Passed, String::new()),
                    Err(error) => (Verdict::Failed(String::new()), format!("{error:#}")),
                };
                Ok(Report { cases: vec![Case::new("", verdict)], output })
            })
        })
        .collect()
}

/// This program, as the user's command.
#[derive(Clone)]
pub(super) struct Hayate {
    accel: Accel,
    profile: Profile,
    /// Whether to boot Debian's Linux instead.
    pub(super) linux: bool,
    /// Whether to run tests that take minutes.
    pub(super) long: bool,
}

impl Hayate {
    pub(super) fn new(options: &Test) -> Hayate {
        Hayate {
            accel: options.accel,
            profile: options.profile,
            linux: options.guest_linux,
            long: false,
        }
    }

    /// Returns `./hayate REQUEST`, not started.
    pub(super) fn any(&self, request: &str) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        // Build now, so that messages about builds and KVM do not appear in the compared output.
        compile::kernel(self.profile)?;
        compile::init()?;
        compile::programs()?;
        compile::copy()?;
        // Tests that need no image run where none can be made; others say why.
        let _ = default::DEFAULT.get();
        let accel = match settled(self.accel, self.profile)? {
            Accel::Tcg => "tcg",
            // The user's default.
            _ if self.accel == Accel::Auto => "auto",
            _ => "kvm",
        };
        let profile = if self.profile == Profile::Dev { "dev" } else { "release" };
        command.env("HAYATE_ACCEL", accel).env("HAYATE_PROFILE", profile);
        // Tests are about machines that boot, except those of kept starts.
        command.env("HAYATE_ROOT", paths::project()).env("HAYATE_BOOT", "1");
        command.arg(request);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Returns `./hayate run OPTIONS -- PROGRAM`, not started.
    pub(super) fn command(&self, options: &[&str], program: &[&str]) -> Result<Command> {
        let mut command = self.any("run")?;
        if !options.contains(&"--timeout") {
            command.args(["--timeout", "120"]);
        }
        if self.linux {
            command.arg("--linux");
        }
        command.args(options);
        if !program.is_empty() {
            command.arg("--").args(program);
        }
        Ok(command)
    }

    pub(super) fn run(&self, options: &[&str], program: &[&str]) -> Result<Output> {
        Ok(self.command(options, program)?.output()?)
    }

    fn shell(&self, script: &str) -> Result<Output> {
        self.run(&[], &["/bin/sh", "-c", script])
    }

    fn with_input(&self, input: Vec<u8>, program: &[&str]) -> Result<Output> {
        let mut child = self.command(&[], program)?.stdin(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("no input")?;
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output()?;
        let _ = writer.join();
        Ok(output)
    }
}

/// The output without lines of progress of steps with these names: a busy host is slow.
pub(super) fn without_progress(output: &Output, steps: &[&str]) -> Output {
    let said = String::from_utf8_lossy(&output.stderr);
    let is_progress = |line: &&str| {
        let text = line.strip_prefix("hayate: ");
        text.is_some_and(|text| steps.iter().any(|step| text.starts_with(step)))
    };
    let rest: String = said.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
    Output { stderr: rest.into_bytes(), ..output.clone() }
}

/// Compares status, output and error output, which must contain `err`.
pub(super) fn expect(output: &Output, status: i32, out: &str, err: &str) -> Result<()> {
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let good = output.status.code() == Some(status)
        && text == out
        && (if err.is_empty() { said.is_empty() } else { said.contains(err) });
    ensure!(
        good,
        "expected status {status}, output {out:?}, error output with {err:?};\n\
         got {}, {text:?}, {said}",
        output.status
    );
    Ok(())
}

fn output_and_status(hayate: &Hayate) -> Result<()> {
    let output = hayate.shell("ls -l / | wc -l; exit 7")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: u32 = text.trim().parse().with_context(|| format!("no number: {text:?}"))?;
    ensure!(lines > 10, "only {lines} lines");
    expect(&output, 7, &text, "")
}

fn input(hayate: &Hayate) -> Result<()> {
    expect(&hayate.with_input(b"hi\n".to_vec(), &["cat"])?, 0, "hi\n", "")
}

fn python(hayate: &Hayate) -> Result<()> {
    let program = "import os,subprocess; print(subprocess.check_output(['date','-u','+%Y']))";
    let output = hayate.run(&[], &["python3", "-c", program])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(text.starts_with("b'2") && text.ends_with("\\n'\n"), "no year: {text:?}");
    expect(&output, 0, &text, "")
}

fn streams_are_separate(hayate: &Hayate) -> Result<()> {
    let output = hayate.shell("echo out; echo err >&2; echo more >/dev/stderr; echo end")?;
    expect(&output, 0, "out\nend\n", "err\nmore\n")?;
    ensure!(output.stderr == b"err\nmore\n", "something else is on standard error");
    Ok(())
}

fn megabytes(hayate: &Hayate) -> Result<()> {
    // Every byte value, and no period that a lost block would match.
    let bytes: Vec<u8> = (0u64..5_000_000).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
    let output = hayate.with_input(bytes.clone(), &["cat"])?;
    ensure!(output.status.success(), "{}", output.status);
    ensure!(output.stdout.len() == bytes.len(), "{} bytes came back", output.stdout.len());
    ensure!(output.stdout == bytes, "the bytes that came back are others");
    Ok(())
}

fn closed_output(hayate: &Hayate) -> Result<()> {
    let mut child = hayate.command(&[], &["yes"])?.spawn()?;
    let mut some = [0; 100];
    child.stdout.take().context("no output")?.read_exact(&mut some)?;
    let status = ended(&mut child, Duration::from_secs(60))?;
    ensure!(status == Some(128 + 13), "yes without a reader: {status:?}");
    Ok(())
}

fn killed(hayate: &Hayate) -> Result<()> {
    expect(&hayate.shell("kill -KILL $$")?, 137, "", "")
}

fn missing_program(hayate: &Hayate) -> Result<()> {
    expect(&hayate.run(&[], &["no-such-program"])?, 127, "", "no program no-such-program")
}

fn no_program(hayate: &Hayate) -> Result<()> {
    expect(&hayate.run(&[], &["/etc/passwd"])?, 126, "", "cannot run /etc/passwd")
}

fn wrong_options(hayate: &Hayate) -> Result<()> {
    expect(&hayate.run(&["--cpus", "99"], &["true"])?, 2, "", "--cpus")?;
    expect(&hayate.run(&["--deterministic", "--cpus", "2"], &["true"])?, 2, "", "--cpus 1")?;
    expect(&hayate.run(&["--no-such-option"], &["true"])?, 2, "", "--no-such-option")?;
    expect(&hayate.run(&["--with", "nothing"], &["true"])?, 2, "", "DIR:/PATH")
}

fn missing_rootfs(hayate: &Hayate) -> Result<()> {
    let missing = ["--rootfs", "/no/such/path"];
    expect(
        &hayate.run(&missing, &["true"])?,
        125,
        "",
        "cannot find the root file system /no/such/path",
    )?;
    let text = ["--rootfs", "/etc/passwd"];
    expect(&hayate.run(&text, &["true"])?, 125, "", "/etc/passwd is not a root file system")
}

fn time_limit(hayate: &Hayate) -> Result<()> {
    let output = hayate.run(&["--timeout", "6"], &["sleep", "100"])?;
    ensure!(output.status.code() == Some(124), "{}", output.status);
    Ok(())
}

fn interrupt(hayate: &Hayate) -> Result<()> {
    let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = hayate.command(&[], &["/bin/sh", "-c", script])?.spawn()?;
    let mut output = child.stdout.take().context("no output")?;
    let mut ready = [0; 6];
    output.read_exact(&mut ready)?;
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.context("no number")?, rustix::process::Signal::INT)?;
    let mut rest = String::new();
    output.read_to_string(&mut rest)?;
    let status = ended(&mut child, Duration::from_secs(30))?;
    ensure!(rest == "caught\n" && status == Some(3), "{rest:?}, {status:?}");
    Ok(())
}

fn world(hayate: &Hayate) -> Result<()> {
    let options = ["--env", "COLOUR=blue", "--user", "1000:100", "--directory", "/usr"];
    let script = "echo $COLOUR $(id -u) $(id -g) $(pwd) $HOME; echo no >/etc/no; exit 0";
    let output = hayate.run(&options, &["/bin/sh", "-c", script])?;
    expect(&output, 0, "blue 1000 100 /usr /home/user\n", "Permission denied")
}

/// A folder with a static program in it.
fn tree() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("bin"))?;
    std::fs::copy(paths::build("tests")?.join("runall"), folder.path().join("bin/runall"))?;
    std::fs::write(folder.path().join("note"), "hello\n")?;
    Ok(folder)
}

/// A static program that ends with 2, because there are no programs beside it to run.
const STATIC_PROGRAM: [&str; 2] = ["/bin/runall", "--list"];

fn static_program_ran(output: &Output) -> Result<()> {
    expect(output, 2, "", "no test programs below /bin")
}

fn folder_rootfs(hayate: &Hayate) -> Result<()> {
    let tree = tree()?;
    let path = tree.path().to_string_lossy().into_owned();
    static_program_ran(&hayate.run(&["--rootfs", &path], &STATIC_PROGRAM)?)?;
    let output = hayate.run(&["--rootfs", &path], &["/bin/sh"])?;
    expect(&output, 127, "", "no program /bin/sh")
}

fn tar_rootfs(hayate: &Hayate) -> Result<()> {
    let tree = tree()?;
    let tar = tempfile::Builder::new().suffix(".tar").tempfile()?;
    let made = Command::new("tar")
        .arg("-C")
        .arg(tree.path())
        .arg("-cf")
        .arg(tar.path())
        .arg(".")
        .status()?;
    ensure!(made.success(), "tar: {made}");
    let path = tar.path().to_string_lossy().into_owned();
    static_program_ran(&hayate.run(&["--rootfs", &path], &STATIC_PROGRAM)?)
}

fn memory_rootfs(hayate: &Hayate) -> Result<()> {
    let tree = tree()?;
    let path = tree.path().to_string_lossy().into_owned();
    static_program_ran(&hayate.run(&["--rootfs", &path, "--in-memory"], &STATIC_PROGRAM)?)
}

fn with_folder(hayate: &Hayate) -> Result<()> {
    let tree = tree()?;
    let with = format!("{}:/opt/tree", tree.path().display());
    let script = "cat /opt/tree/note; echo changed >/opt/tree/note; cat /opt/tree/note";
    let output = hayate.run(&["--with", &with], &["/bin/sh", "-c", script])?;
    expect(&output, 0, "hello\nchanged\n", "")?;
    ensure!(std::fs::read(tree.path().join("note"))? == b"hello\n", "the host's file changed");
    Ok(())
}

fn image_unchanged(hayate: &Hayate) -> Result<()> {
    let image = crate::image::default::DEFAULT.get()?;
    let sum = |path: &std::path::Path| -> Result<String> {
        let output = crate::tool::run(Command::new("cksum").arg(path))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let before = sum(&image)?;
    let script = "rm -rf /usr/share /etc/passwd; echo x >/etc/hostname; ls /etc/passwd; ls /usr";
    let output = hayate.shell(script)?;
    ensure!(!String::from_utf8_lossy(&output.stdout).contains("passwd"), "a file survived its rm");
    ensure!(!String::from_utf8_lossy(&output.stdout).contains("share"), "a folder survived its rm");
    ensure!(sum(&image)? == before, "the image changed");
    let output = hayate.run(&[], &["grep", "-c", "^root:", "/etc/passwd"])?;
    expect(&output, 0, "1\n", "")
}

/// Sorts 40 MB, packs a library and compiles it where memory is barely enough, after processes
/// whose end left an eighth of memory to deferred frees. The lines to sort have a hundred bytes of
/// zeroes and a number, so that sorting is quick.
const SMALL: &str = r#"
mount -t tmpfs -o size=54m none /mnt && cd /mnt || exit 9
user=1000
while [ $user -lt 1020 ]; do
    perl -e '($(, $)) = ($ARGV[0], $ARGV[0]); ($<, $>) = ($ARGV[0], $ARGV[0]);
        exec "python3", "-c", "import json, re"' $user || exit 8
    user=$((user + 1))
done
awk '$1 == "attachment" && '$KEPT' && $7 < 3000000 { print "little is kept: " $7; exit 1 }' \
    /proc/hayate/pools || exit 7
seq -f %0100.0f 1 400000 | sort -r -S 4M -T /mnt | tail -n 1 || exit 6
tar -cf library.tar -C /usr/lib/python3.11 . && tar -tf library.tar | wc -l || exit 5
rm library.tar
mkdir library && cp /usr/lib/python3.11/*.py library && python3 -m compileall -q library || exit 4
ls library/__pycache__ | wc -l
"#;

fn small_machine(hayate: &Hayate) -> Result<()> {
    let run = |policy: &str, kept: &str| {
        let kept = format!("KEPT={kept}");
        let options = ["--memory", "64M", "--recycle", policy, "--env", &kept, "--timeout", "300"];
        hayate.run(&options, &["/bin/sh", "-c", SMALL])
    };
    let (plain, full) = (run("none", "0")?, run("full", "1")?);
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let [last, packed, compiled] = lines[..] else {
        anyhow::bail!("without recycling: {}, {text:?}, {:?}", plain.status, plain.stderr);
    };
    ensure!(last.len() == 100 && last.trim_start_matches('0') == "1", "sorted: {last}");
    let number = |text: &str| text.trim().parse::<u32>().context("a number");
    ensure!(number(packed)? > 500 && number(compiled)? > 100, "packed and compiled: {text}");
    expect(&plain, 0, &text, "")?;
    expect(&full, 0, &text, "")
}

/// Garbage instead of an initramfs: the kernel cannot continue, and reports where it stopped.
fn panic(hayate: &Hayate) -> Result<()> {
    let mut garbage = tempfile::NamedTempFile::new()?;
    garbage.write_all(b"no archive")?;
    let path = garbage.path().to_string_lossy().into_owned();
    let options = ["--qemu", "-initrd", "--qemu", &path];
    let output = hayate.run(&options, &["true"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(70), "{}: {said}", output.status);
    ensure!(said.contains("the kernel panicked"), "{said}");
    // Debian's kernel has no symbols for its addresses.
    ensure!(hayate.linux || said.contains(" at kernel/src/main.rs:"), "no line: {said}");
    Ok(())
}

/// A shell on a pseudo-terminal: line editing, job control, the size of the window.
fn interactive(hayate: &Hayate) -> Result<()> {
    let (master, path) = screen::terminal(33, 101)?;
    let open = || -> Result<File> { Ok(File::options().read(true).write(true).open(&path)?) };
    let mut command = hayate.command(&[], &[])?;
    let terminal = open()?;
    let before = rustix::termios::tcgetattr(&terminal)?;
    command.stdin(open()?).stdout(open()?).stderr(open()?).env("TERM", "vt100");
    let mut child = command.spawn()?;
    drop(command);
    let mut screen = Screen::new(master)?;
    let result = converse(&mut screen);
    let status = match result {
        Ok(()) => ended(&mut child, Duration::from_secs(30))?,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
    };
    ensure!(status == Some(5), "the shell ended with {status:?}");
    let after = rustix::termios::tcgetattr(&terminal)?;
    ensure!(before.local_modes == after.local_modes, "the terminal stays raw");
    Ok(())
}

fn converse(screen: &mut Screen) -> Result<()> {
    screen.until("# ")?;
    screen.keys("stty size\r")?;
    screen.until("33 101")?;
    screen.until("# ")?;
    // The echo of the input must not look like its result: hence the arithmetic.
    screen.keys("echo A$((40+2)\x7f\x7f3))\r")?;
    screen.until("A43")?;
    screen.until("# ")?;
    screen.keys("sleep 1000; echo B$?\r")?;
    screen.until("B$?")?;
    std::thread::sleep(Duration::from_millis(700));
    screen.keys("\x03")?;
    screen.until("# ")?;
    screen.keys("sleep 1000\r")?;
    screen.until("1000")?;
    std::thread::sleep(Duration::from_millis(700));
    screen.keys("\x1a")?;
    screen.until("Stopped")?;
    screen.until("# ")?;
    screen.keys("bg; jobs; kill %1; wait; echo C$((1+1))\r")?;
    screen.until("Running")?;
    screen.until("C2")?;
    screen.until("# ")?;
    screen.keys("exit 5\r")
}

/// Programs from the default image that print the time, random numbers and their addresses.
fn deterministic_disk(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "date +%s.%N; sha256sum /usr/bin/p* | sha256sum; sha256sum; \
        od -An -tx8 -N16 /dev/urandom; grep stack /proc/self/maps; cat /proc/uptime; date +%s.%N";
    let run = |input: Stdio| -> Result<String> {
        let mut command = hayate.command(&["--deterministic"], &["sh", "-c", SCRIPT])?;
        let output = command.stdin(input).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{}: {said}", output.status);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(text.lines().count() == 7, "seven lines were expected: {text}");
        Ok(text)
    };
    let repeats = |input: &dyn Fn() -> Result<Stdio>| -> Result<String> {
        let (first, second, third) = (run(input()?)?, run(input()?)?, run(input()?)?);
        ensure!(first == second && second == third, "runs differ:\n{first}\n{second}\n{third}");
        Ok(first)
    };
    repeats(&|| Ok(Stdio::null()))?;
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all("input\n".repeat(50_000).as_bytes())?;
    let text = repeats(&|| Ok(std::fs::File::open(file.path())?.into()))?;
    // The output of sha256sum on Linux for it.
    let sum = "8383d74c1bac7327339ae8327fc967280f86550ace9b08a6905d50378164f348";
    ensure!(text.contains(sum), "the input is not what the file holds: {text}");
    Ok(())
}

/// Two runs must be indistinguishable.
fn deterministic(hayate: &Hayate) -> Result<()> {
    let tree = tree()?;
    let path = tree.path().to_string_lossy().into_owned();
    let options = ["--deterministic", "--timing", "--in-memory", "--rootfs", &path];
    let run = || -> Result<String> {
        let output = hayate.run(&options, &STATIC_PROGRAM)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(2), "{}: {said}", output.status);
        let at = said.find("guest clock: ").with_context(|| format!("no guest time: {said}"))?;
        Ok(said[at..].lines().next().unwrap_or_default().to_string())
    };
    let (first, second, third) = (run()?, run()?, run()?);
    ensure!(first == second && second == third, "runs differ: {first}, {second}, {third}");
    Ok(())
}

/// Two comparisons must print the same numbers, whatever else this machine does.
fn comparison(hayate: &Hayate) -> Result<()> {
    let compared = || -> Result<String> {
        let mut command = hayate.any("compare")?;
        command.args(["cpu/syscall/getpid", "cpu/syscall/open-close", "cpu/process/fork-exit"]);
        let output = command.args(["--only-best", "--passes", "3", "--timeout", "600"]).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // This test does not check whether Hayate is better.
        ensure!(matches!(output.status.code(), Some(0 | 1 | 3)), "{}: {said}", output.status);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(text.contains("cpu/process/fork-exit"), "no result: {text}");
        Ok(text)
    };
    let (first, second) = (compared()?, compared()?);
    ensure!(first == second, "two comparisons differ:\n{first}\n{second}");
    Ok(())
}

/// A comparison by time must finish, however slow the host is, and keep the measurements of each
/// boot.
fn comparison_by_time(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = hayate.any("compare")?;
    command.args(["--wall", "--only-best", "--boots", "2", "--passes", "2", "--iterations", "5"]);
    command.arg("--runs").arg(folder.path());
    let output = command.args(["--timeout", "300", "cpu/syscall/getpid"]).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(matches!(output.status.code(), Some(0 | 1 | 3)), "{}: {said}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(text.contains("cpu/syscall/getpid"), "no result: {text}");
    ensure!(text.contains("time by the guest's clock"), "it does not say what it shows: {text}");
    for name in
        ["hayate", "linux-best"].map(|name| [format!("{name}-1"), format!("{name}-2")]).concat()
    {
        let run = std::fs::read_to_string(folder.path().join(format!("{name}.json")))?;
        let run = measure_data::read_run(&run).with_context(|| name)?;
        ensure!(run.result("cpu/syscall/getpid").is_some_and(|found| found.rounds.len() == 2));
    }
    Ok(())
}

/// The comparison for programs in two files is Linux' execution in place, in small and in large
/// pages.
fn execution_in_place(hayate: &Hayate) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = hayate.any("experiment")?;
    let output = command.args(["off2f-linux", "-o"]).arg(folder.path()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{}: {said}", output.status);
    let text = std::fs::read_to_string(folder.path().join("off2f-linux.json"))?;
    let found: serde_json::Value = serde_json::from_str(&text)?;
    let values = |line: &str| -> Result<[f64; 5]> {
        let lines = found["lines"].as_array().into_iter().flatten();
        let line = lines.into_iter().find(|found| found["name"] == line).context("no such line")?;
        let of = |at: usize| line["values"][at]["median"].as_f64();
        let all: Option<Vec<f64>> = (0..5).map(of).collect();
        let all = all.with_context(|| format!("not every system was measured: {line}"))?;
        all.try_into().ok().context("five systems")
    };
    let [_, plain, large, _, disk] = values("program/warm")?;
    // A page fault for each of 400 pages, and for each of 20; from a disk's page cache, for several
    // pages at a time.
    ensure!(large * 3.0 < plain && plain < disk, "warm: {large}, {plain}, {disk}");
    let [ours, plain_cold, large_cold, elf, disk] = values("program/cold")?;
    // In place nothing but names is read again.
    ensure!(plain_cold < plain * 1.2 && large_cold < large * 1.2, "{plain_cold}, {large_cold}");
    ensure!(elf > plain_cold && disk > 2.0 * plain_cold, "cold: {elf}, {disk}, {plain_cold}");
    ensure!(ours <= plain_cold / 10.0, "{ours} is over a tenth of {plain_cold}");
    Ok(())
}

/// If each instruction counts the same, `rdtsc` around a loop and the suite must agree.
fn naive_method(hayate: &Hayate) -> Result<()> {
    let measure = crate::compile::measure()?;
    let image = crate::image::small::get(&measure)?.to_string_lossy().into_owned();
    let options = ["--deterministic", "--in-memory", "--rootfs", &image, "--timeout", "300"];
    let program = ["/usr/bin/measure", "oracle", "--turns", "3", "--dir", "/tmp"];
    let output = hayate.run(&options, &program)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {text}{said}", output.status);
    ensure!(text.contains("memory/fault/anonymous"), "nothing was held against it: {text}");
    Ok(())
}

/// Waits for a child, with a time limit.
fn ended(child: &mut Child, limit: Duration) -> Result<Option<i32>> {
    let began = Instant::now();
    while began.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    bail!("it did not end within {} s", limit.as_secs())
}
