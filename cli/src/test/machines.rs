//! Black-box tests of machines that stay: what programs in them print and how they end, many at
//! once and many in a row, and what is left when anything of it is killed.

mod memory;

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of};
use super::screen::Screen;
use crate::arguments::Test;
use crate::machines::directory::{Machine, Machines, Process, State};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const CHECKS: [(&str, Check); 21] = [
    ("a_thousand_in_a_row_leak_nothing", in_a_row),
    ("fifty_at_once_keep_apart", at_once),
    ("one_is_started_used_stopped_and_removed", whole_life),
    ("statuses_are_those_of_run", statuses),
    ("environment_user_and_directory", world),
    ("streams_pass_unchanged_and_wait_for_their_reader", streams),
    ("signals_reach_the_program", signals),
    ("a_terminal_of_its_own", terminal),
    ("files_and_folders_are_copied_both_ways", copies),
    ("the_first_program_is_logged_and_ends_it", first_program),
    ("a_client_that_is_killed_takes_its_program_along", killed_client),
    ("a_start_that_is_killed_leaves_no_machine", killed_start),
    ("a_supervisor_that_is_killed_leaves_no_qemu_and_no_socket", killed_supervisor),
    ("a_qemu_that_is_killed_is_told", killed_qemu),
    ("a_machine_ends_with_its_owner", owner),
    ("the_host_gets_memory_back_two_seconds_after_a_job", memory::given_back),
    ("the_host_gets_memory_back_on_a_microvm", memory::given_back_on_microvm),
    ("machines_without_a_balloon_keep_their_memory", memory::without_balloon),
    ("an_idle_machine_shrinks", memory::shrinks),
    ("the_host_asks_for_memory_and_lets_go_of_it", memory::inflated),
    ("the_host_asks_for_memory_of_a_microvm", memory::inflated_on_microvm),
];

/// How long anything may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    trials_of("machines", &CHECKS, options)
}

/// A machine of a test; it is removed at the end, whatever happened.
pub(super) struct Stay<'a> {
    hayate: &'a Hayate,
    name: String,
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        if let Ok(mut remove) = self.hayate.any("rm") {
            let _ = remove.args(["-f", &self.name]).output();
        }
    }
}

impl<'a> Stay<'a> {
    /// One that is not started.
    fn new(hayate: &'a Hayate) -> Stay<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Stay { hayate, name: format!("test-{}-{number}", std::process::id()) }
    }

    /// `./hayate start`, not executed.
    fn command(&self, options: &[&str], program: &[&str]) -> Result<Command> {
        let mut start = self.hayate.any("start")?;
        start.args(["--name", &self.name]).args(options);
        if self.hayate.linux {
            start.arg("--linux");
        }
        if !program.is_empty() {
            start.arg("--").args(program);
        }
        Ok(start)
    }

    /// One that runs.
    pub(super) fn started(
        hayate: &'a Hayate,
        options: &[&str],
        program: &[&str],
    ) -> Result<Stay<'a>> {
        let stay = Stay::new(hayate);
        let output = stay.command(options, program)?.output()?;
        expect(&output, 0, &format!("{}\n", stay.name), "")?;
        Ok(stay)
    }

    pub(super) fn exec(&self, options: &[&str], program: &[&str]) -> Result<Command> {
        let mut exec = self.hayate.any("exec")?;
        exec.arg(&self.name).args(options);
        if !program.is_empty() {
            exec.arg("--").args(program);
        }
        Ok(exec)
    }

    pub(super) fn shell(&self, script: &str) -> Result<Output> {
        Ok(self.exec(&[], &["/bin/sh", "-c", script])?.output()?)
    }

    /// What a script prints, as one number.
    fn number(&self, script: &str) -> Result<u64> {
        let output = self.shell(script)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse().with_context(|| format!("no number: {text:?} {output:?}"))
    }

    fn manage(&self, request: &str, options: &[&str]) -> Result<Output> {
        Ok(self.hayate.any(request)?.args(options).arg(&self.name).output()?)
    }

    fn machine(&self) -> Result<Machine> {
        Machines::open()?.find(&self.name)
    }

    fn state(&self) -> Result<State> {
        self.machine()?.state().context("no state")
    }

    /// The line that `ps` prints about it, if any.
    fn listed(&self, options: &[&str]) -> Result<Option<String>> {
        let output = self.hayate.any("ps")?.args(options).output()?;
        ensure!(output.status.success(), "ps: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().find(|line| line.starts_with(&self.name)).map(String::from))
    }

    /// Waits until it has ended, and returns why.
    fn ended(&self) -> Result<String> {
        until("the machine to end", || Ok(!self.machine()?.runs()))?;
        self.listed(&["-a"])?.context("it is not listed")
    }

    /// Kills its QEMU, and waits for its end.
    pub(super) fn kill(&self) -> Result<String> {
        self.state()?.qemu.context("no QEMU")?.signal(Signal::KILL);
        self.ended()
    }

    /// Nothing is left of it but its state and its logs.
    fn is_clean(&self) -> Result<()> {
        let machine = self.machine()?;
        ensure!(!machine.file("socket").exists(), "its socket stays");
        let state = self.state()?;
        let alive = |process: Option<Process>| process.is_some_and(|process| process.is_alive());
        until("QEMU to end", || Ok(!alive(state.qemu)))?;
        ensure!(!alive(Some(state.supervisor)), "its supervisor stays");
        Ok(())
    }
}

/// Waits for a condition.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        ensure!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn kill(child: &Child, signal: Signal) -> Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("no number")?;
    Ok(kill_process(pid, signal)?)
}

fn whole_life(hayate: &Hayate) -> Result<()> {
    let stay = Stay::started(hayate, &["--cpus", "2"], &[])?;
    expect(&stay.shell("echo $((6*7)); hostname")?, 0, &format!("42\n{}\n", stay.name), "")?;
    // What one program leaves the next one finds.
    expect(&stay.shell("echo kept >/root/file")?, 0, "", "")?;
    expect(&stay.shell("cat /root/file")?, 0, "kept\n", "")?;
    let line = stay.listed(&[])?.context("it is not listed")?;
    ensure!(line.contains("runs") && line.contains("1024 MiB"), "{line}");
    expect(&stay.command(&[], &[])?.output()?, 125, "", "runs: stop it")?;
    expect(&stay.manage("rm", &[])?, 125, "", "runs; ./hayate stop")?;
    expect(&stay.manage("stop", &[])?, 0, "", "")?;
    expect(&stay.manage("stop", &[])?, 0, "", "")?;
    stay.is_clean()?;
    ensure!(stay.listed(&[])?.is_none(), "it is listed as running");
    let line = stay.ended()?;
    ensure!(line.contains("ended: it was stopped"), "{line}");
    expect(&stay.shell("true")?, 125, "", "has ended (it was stopped)")?;
    expect(&stay.command(&[], &[])?.output()?, 125, "", "ended: remove it")?;
    expect(&stay.manage("rm", &[])?, 0, "", "")?;
    expect(&stay.shell("true")?, 125, "", "there is no machine")?;
    expect(&stay.manage("rm", &[])?, 125, "", "there is no machine")?;
    // Options that mean nothing here, and a machine that cannot be made.
    for options in [&["--tty"][..], &["--log", "-"], &["--deterministic"], &["--timing"]] {
        expect(&stay.command(options, &[])?.output()?, 2, "", options[0])?;
    }
    let nowhere = ["--rootfs", "/nonexistent"];
    expect(&stay.command(&nowhere, &[])?.output()?, 125, "", "/nonexistent")?;
    ensure!(stay.listed(&["-a"])?.is_none(), "a machine that was not made is listed");
    Ok(())
}

fn statuses(hayate: &Hayate) -> Result<()> {
    let stay = Stay::started(hayate, &[], &[])?;
    let ends = |program: &[&str], status: i32, text: &str| -> Result<()> {
        expect(&stay.exec(&[], program)?.output()?, status, "", text)
    };
    ends(&["/bin/sh", "-c", "exit 7"], 7, "")?;
    ends(&["/bin/sh", "-c", "kill -KILL $$"], 137, "")?;
    ends(&["/bin/sh", "-c", "exit 255"], 255, "")?;
    ends(&["no-such-program"], 127, "there is no program no-such-program")?;
    ends(&["/etc/passwd"], 126, "cannot run /etc/passwd")?;
    ends(&[""], 127, "there is no program")?;
    // A process that is left behind with the streams is not waited for.
    expect(&stay.shell("sleep 1000 & echo left")?, 0, "left\n", "")
}

fn world(hayate: &Hayate) -> Result<()> {
    let options = ["-e", "COLOUR=blue", "-e", "SHAPE=round", "-w", "/usr"];
    let stay = Stay::started(hayate, &options, &[])?;
    let says = |options: &[&str], script: &str, text: &str| -> Result<()> {
        expect(&stay.exec(options, &["/bin/sh", "-c", script])?.output()?, 0, text, "")
    };
    says(&["-e", "COLOUR=red"], "echo $COLOUR $SHAPE $(pwd) $HOME", "red round /usr /root\n")?;
    says(&["-w", "/tmp", "-e", "A=", "-e", "B=x=y"], "echo $(pwd) [$A] $B", "/tmp [] x=y\n")?;
    let who = "echo $(id -u) $(id -g) $(id -G) $USER $HOME";
    says(&["-u", "daemon"], who, "1 1 1 daemon /usr/sbin\n")?;
    says(&["-u", "1:adm"], who, "1 4 4 daemon /usr/sbin\n")?;
    says(&["-u", "4321"], who, "4321 4321 4321 nobody /\n")?;
    says(&["-u", "1000:100"], who, "1000 100 100 user /home/user\n")?;
    // A user's own streams can be opened by name.
    says(&["-u", "daemon"], "echo out >/dev/stdout; cat /dev/stdin", "out\n")?;
    let no = |options: &[&str], text: &str| -> Result<()> {
        expect(&stay.exec(options, &["true"])?.output()?, 125, "", text)
    };
    no(&["-u", "no-such-user"], "there is no such user")?;
    no(&["-u", "0:no-such-group"], "there is no such group")?;
    no(&["-w", "/no/such/place"], "there is no directory /no/such/place")
}

fn streams(hayate: &Hayate) -> Result<()> {
    let stay = Stay::started(hayate, &[], &[])?;
    expect(&stay.shell("echo out; echo err >&2")?, 0, "out\n", "err\n")?;
    let bytes: Vec<u8> =
        (0..5_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child = stay.exec(&[], &["cat"])?.stdin(Stdio::piped()).spawn()?;
    let (mut input, sent) = (child.stdin.take().context("no input")?, bytes.clone());
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = child.wait_with_output()?;
    ensure!(writer.join().is_ok_and(|written| written.is_ok()), "the input was not taken");
    ensure!(output.stdout == bytes && output.status.success(), "5 MB came back changed");
    // A reader that stops holds its own program up, and no other.
    let mut slow = stay.exec(&[], &["yes"])?.spawn()?;
    let mut first = [0; 4];
    slow.stdout.as_mut().context("no output")?.read_exact(&mut first)?;
    std::thread::sleep(Duration::from_millis(300));
    expect(&stay.shell("echo quick")?, 0, "quick\n", "")?;
    // One that leaves ends it, as in a pipe.
    drop(slow.stdout.take());
    let status = slow.wait()?.code();
    ensure!(status == Some(128 + 13), "yes without a reader ended with {status:?}");
    let full = File::options().write(true).open("/dev/full")?;
    let output = stay.exec(&[], &["yes"])?.stdout(full).output()?;
    expect(&output, 125, "", "cannot write standard output: No space left")?;
    // A program that reads nothing, and input that has no end.
    let zero = File::open("/dev/zero")?;
    expect(&stay.exec(&[], &["true"])?.stdin(zero).output()?, 0, "", "")
}

fn signals(hayate: &Hayate) -> Result<()> {
    let stay = Stay::started(hayate, &[], &[])?;
    let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = stay.exec(&[], &["/bin/sh", "-c", script])?.spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    let mut beside = stay.exec(&[], &["/bin/sh", "-c", "echo ready; exec sleep 1000"])?.spawn()?;
    let mut out = BufReader::new(beside.stdout.take().context("no output")?);
    out.read_line(&mut line)?;
    kill(&child, Signal::INT)?;
    let mut rest = String::new();
    output.read_to_string(&mut rest)?;
    let status = child.wait()?.code();
    ensure!(rest == "caught\n" && status == Some(3), "{rest:?}, {status:?}");
    ensure!(beside.try_wait()?.is_none(), "the signal reached another program");
    kill(&beside, Signal::TERM)?;
    let status = beside.wait()?.code();
    ensure!(status == Some(128 + 15), "sleep ended with {status:?}");
    Ok(())
}

/// A shell on a terminal, beside another one.
fn terminal(hayate: &Hayate) -> Result<()> {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let stay = Stay::started(hayate, &[], &[])?;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let open =
        || -> Result<File> { Ok(File::options().read(true).write(true).open(name.to_str()?)?) };
    let resize = |rows, columns| {
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size)
    };
    resize(33, 101)?;
    let mut command = stay.exec(&[], &[])?;
    command.stdin(open()?).stdout(open()?).stderr(open()?).env("TERM", "vt100");
    let mut child = command.spawn()?;
    drop(command);
    let mut screen = Screen::new(File::from(master.try_clone()?))?;
    let mut converse = || -> Result<()> {
        screen.until("# ")?;
        screen.keys("stty size; echo $TERM\r")?;
        screen.until("33 101")?;
        screen.until("vt100")?;
        resize(20, 70)?;
        kill(&child, Signal::WINCH)?;
        until("the new size", || {
            screen.keys("stty size\r")?;
            screen.until("size")?;
            Ok(screen.until("20 70").is_ok())
        })?;
        screen.keys("sleep 1000; echo B$?\r")?;
        screen.until("B$?")?;
        std::thread::sleep(Duration::from_millis(700));
        screen.keys("\x03")?;
        screen.until("# ")?;
        screen.keys("exit 5\r")
    };
    if let Err(error) = converse() {
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    let status = child.wait()?.code();
    ensure!(status == Some(5), "the shell ended with {status:?}");
    // A terminal for input that is none: its end is the end of the input.
    let mut child = stay.exec(&["--tty"], &["sh"])?.stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(b"echo A$((40+2)); exit 6\n")?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(text.contains("A42\r\n") && output.status.code() == Some(6), "{text:?} {output:?}");
    let mut child = stay.exec(&["--tty"], &["cat"])?.stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(b"end\n")?;
    let status = child.wait()?.code();
    ensure!(status == Some(0), "cat ended with {status:?}");
    Ok(())
}

fn at_once(hayate: &Hayate) -> Result<()> {
    const MANY: usize = 50;
    let stay = Stay::started(hayate, &["--cpus", "2"], &[])?;
    let start = |number: usize| -> Result<Child> {
        let script = "read word; echo $word-$0; echo e$0 >&2; read end; exit $0";
        let mut exec = stay.exec(&[], &["/bin/sh", "-c", script, &number.to_string()])?;
        Ok(exec.stdin(Stdio::piped()).spawn()?)
    };
    let mut children = (0..MANY).map(start).collect::<Result<Vec<_>>>()?;
    for (number, child) in children.iter_mut().enumerate() {
        writeln!(child.stdin.as_mut().context("no input")?, "in{number}")?;
    }
    // All of them run now, each with its first line read.
    until("all programs", || {
        Ok(stay.number("ps ax | grep -c '[r]ead word; echo'")? == MANY as u64)
    })?;
    for (number, mut child) in children.into_iter().enumerate() {
        writeln!(child.stdin.take().context("no input")?, "end")?;
        let output = child.wait_with_output()?;
        expect(&output, number as i32, &format!("in{number}-{number}\n"), &format!("e{number}\n"))?;
    }
    Ok(())
}

/// What is in use on both sides.
#[derive(Debug)]
struct InUse {
    guest_files: u64,
    guest_processes: u64,
    guest_terminals: u64,
    init_kib: u64,
    files: u64,
    supervisor_kib: u64,
}

impl InUse {
    fn now(stay: &Stay) -> Result<InUse> {
        let supervisor = stay.state()?.supervisor.pid;
        let status = std::fs::read_to_string(format!("/proc/{supervisor}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        // The end of a script's own input may be on the way or not, the hub may not have noticed
        // yet that the last client left, and on a busy host the last program may still be ending.
        let mut files = u64::MAX;
        let [mut guest_files, mut guest_processes, mut guest_terminals] = [u64::MAX; 3];
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(100));
            let open = std::fs::read_dir(format!("/proc/{supervisor}/fd"))?.count();
            files = files.min(open as u64);
            guest_files = guest_files.min(stay.number("sleep 0.1; ls /proc/1/fd | wc -l")?);
            // Counted by the shell itself: the second part of a pipeline may have begun or not.
            guest_processes = guest_processes.min(stay.number("set -- /proc/[0-9]*; echo $#")?);
            guest_terminals = guest_terminals.min(stay.number("ls /dev/pts | wc -l")?);
        }
        Ok(InUse {
            guest_files,
            guest_processes,
            guest_terminals,
            init_kib: stay.number("awk '/^VmRSS/ { print $2 }' /proc/1/status")?,
            files,
            supervisor_kib: resident.context("no VmRSS")?,
        })
    }
}

fn in_a_row(hayate: &Hayate) -> Result<()> {
    let times = if hayate.long { 5000 } else { 1000 };
    let stay = Stay::started(hayate, &[], &[])?;
    let mut best = Duration::MAX;
    let mut run = |count: usize| -> Result<()> {
        for number in 0..count {
            let options: &[&str] = if number % 10 == 9 { &["--tty"] } else { &[] };
            let mut command = stay.exec(options, &["true"])?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let began = Instant::now();
            let status = command.status()?;
            best = best.min(began.elapsed());
            ensure!(status.success(), "number {number}: {status}");
        }
        Ok(())
    };
    run(100)?;
    let before = InUse::now(&stay)?;
    run(times)?;
    let after = InUse::now(&stay)?;
    let no_more = after.guest_files <= before.guest_files
        && after.guest_processes <= before.guest_processes
        && after.guest_terminals <= before.guest_terminals
        && after.files <= before.files;
    let little = after.init_kib <= before.init_kib + 512
        && after.supervisor_kib <= before.supervisor_kib + 1024;
    ensure!(no_more && little, "{times} programs left something:\n{before:?}\n{after:?}");
    // On a host that does nothing else it takes 3 ms with software translation.
    ensure!(best < Duration::from_millis(50), "the quickest program took {best:?}");
    Ok(())
}

fn first_program(hayate: &Hayate) -> Result<()> {
    // Two streams: which arrives first is nobody's promise.
    let script = "echo out; sleep 0.5; echo err >&2; sleep 0.5; read nothing || echo no input; \
                  sleep 1; exit 3";
    let stay = Stay::started(hayate, &[], &["/bin/sh", "-c", script])?;
    let output = stay.manage("logs", &["-f"])?;
    expect(&output, 0, "out\nerr\nno input\n", "")?;
    let line = stay.ended()?;
    ensure!(line.contains("its first program ended with status 3"), "{line}");
    stay.is_clean()?;
    expect(&stay.manage("logs", &["-n", "1"])?, 0, "no input\n", "")?;
    let kernel = stay.manage("logs", &["--kernel"])?;
    ensure!(kernel.stdout.starts_with(b"[") && kernel.status.success(), "{kernel:?}");
    // One that cannot be started is told at once, and one with --rm leaves nothing.
    let other = Stay::new(hayate);
    let output = other.command(&[], &["no-such-program"])?.output()?;
    expect(&output, 127, "", "there is no program no-such-program")?;
    ensure!(other.listed(&["-a"])?.is_none(), "it is listed");
    let other = Stay::started(hayate, &["--rm"], &["sleep", "1"])?;
    until("the machine to go", || Ok(other.listed(&["-a"])?.is_none()))
}

fn copies(hayate: &Hayate) -> Result<()> {
    let stay = Stay::started(hayate, &[], &[])?;
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name).to_string_lossy().into_owned();
    let there = |name: &str| format!("{}:{name}", stay.name);
    let copy = |options: &[&str], from: &str, to: &str| -> Result<Output> {
        Ok(stay.hayate.any("cp")?.args(options).args([from, to]).output()?)
    };
    let large: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(i) >> 13) as u8).collect();
    std::fs::create_dir_all(path("tree/deep"))?;
    std::fs::write(path("tree/deep/large"), &large)?;
    std::fs::write(path("tree/note"), "hello\n")?;
    std::os::unix::fs::symlink("note", path("tree/link"))?;
    expect(&copy(&[], &path("tree"), &there("/root"))?, 0, "", "")?;
    let script = "cd /root/tree && cat link && stat -c '%U %a' note && readlink link";
    expect(&stay.shell(script)?, 0, "hello\nroot 644\nnote\n", "")?;
    expect(&copy(&[], &path("tree/."), &there("/root/other"))?, 0, "", "")?;
    expect(&stay.shell("ls /root/other")?, 0, "deep\nlink\nnote\n", "")?;
    expect(&copy(&[], &there("/root/tree"), &path("back"))?, 0, "", "")?;
    ensure!(std::fs::read(path("back/deep/large"))? == large, "a file came back changed");
    expect(
        &copy(&[], &there("root/tree/link"), place.path().to_str().context("a name")?)?,
        0,
        "",
        "",
    )?;
    ensure!(std::fs::read_link(path("link"))?.as_os_str() == "note", "the link came as a file");
    expect(&copy(&["-L"], &there("/root/tree/link"), &path("followed"))?, 0, "", "")?;
    ensure!(std::fs::read(path("followed"))? == b"hello\n", "the link was not followed");
    // What cannot be copied is told in one line, by the side that knows.
    let no = |from: &str, to: &str, status: i32, text: &str| -> Result<()> {
        expect(&copy(&[], from, to)?, status, "", text)
    };
    no(&path("none"), &there("/root"), 125, "none: No such file")?;
    no(&there("/none"), &path("new"), 125, "/none: No such file")?;
    no(&path("tree/deep/large"), &there("/none/"), 125, "/none/: there is no such folder")?;
    no(&path("tree"), &there("/etc/passwd"), 125, "/etc/passwd: it is no folder")?;
    no(&there("/root/tree"), &path("followed"), 125, "it is no folder")?;
    no(&there("/dev/null"), &path("new"), 125, "it is no file, folder or link")?;
    no(&path("tree"), &path("new"), 2, "NAME:PATH")?;
    no("no-such-machine:/etc/passwd", &path("new"), 125, "there is no machine")
}

fn killed_client(hayate: &Hayate) -> Result<()> {
    let stay = Stay::started(hayate, &[], &[])?;
    let mut beside = stay.exec(&[], &["/bin/sh", "-c", "read x; echo $x"])?;
    let mut beside = beside.stdin(Stdio::piped()).spawn()?;
    let start = |script: &str, options: &[&str]| -> Result<Child> {
        let mut child = stay.exec(options, &["/bin/sh", "-c", script])?.spawn()?;
        let mut ready = [0; 5];
        child.stdout.as_mut().context("no output")?.read_exact(&mut ready)?;
        Ok(child)
    };
    let mut children = [
        start("echo ready; exec sleep 7001", &[])?,
        start("trap '' HUP TERM INT; echo ready; sleep 7002; sleep 7002", &[])?,
        start("echo ready; exec sleep 7003", &["--tty"])?,
    ];
    for child in &mut children {
        child.kill()?;
        child.wait()?;
    }
    until("their programs to end", || {
        Ok(stay.number("ps ax | grep -c '[s]leep 700' || true")? == 0)
    })?;
    writeln!(beside.stdin.take().context("no input")?, "undisturbed")?;
    expect(&beside.wait_with_output()?, 0, "undisturbed\n", "")
}

fn killed_start(hayate: &Hayate) -> Result<()> {
    let stay = Stay::new(hayate);
    let mut start = stay.command(&[], &[])?.spawn()?;
    // As soon as there is a supervisor.
    until("the machine's state", || {
        Ok(start.try_wait()?.is_some() || stay.machine().is_ok_and(|m| m.state().is_some()))
    })?;
    ensure!(start.try_wait()?.is_none(), "the machine was ready before it could be killed");
    let supervisor = stay.state()?.supervisor;
    start.kill()?;
    start.wait()?;
    until("the supervisor to end", || Ok(!supervisor.is_alive()))?;
    if let Some(line) = stay.listed(&["-a"])? {
        ensure!(line.contains("its start was given up"), "{line}");
        stay.is_clean()?;
    }
    Ok(())
}

fn killed_supervisor(hayate: &Hayate) -> Result<()> {
    let (stay, other) = (Stay::started(hayate, &[], &[])?, Stay::started(hayate, &[], &[])?);
    let mut client = stay.exec(&[], &["/bin/sh", "-c", "echo ready; exec sleep 1000"])?.spawn()?;
    let mut ready = [0; 5];
    client.stdout.as_mut().context("no output")?.read_exact(&mut ready)?;
    let state = stay.state()?;
    state.supervisor.signal(Signal::KILL);
    let output = client.wait_with_output()?;
    ensure!(output.status.code() == Some(125), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.contains("ended while the program ran"), "{said}");
    let line = stay.ended()?;
    ensure!(line.contains("its supervisor was killed"), "{line}");
    stay.is_clean()?;
    expect(&other.shell("echo there")?, 0, "there\n", "")
}

fn killed_qemu(hayate: &Hayate) -> Result<()> {
    let (stay, other) = (Stay::started(hayate, &[], &[])?, Stay::started(hayate, &[], &[])?);
    let line = stay.kill()?;
    ensure!(line.contains("QEMU"), "{line}");
    stay.is_clean()?;
    expect(&stay.shell("true")?, 125, "", "has ended")?;
    expect(&other.shell("echo there")?, 0, "there\n", "")
}

fn owner(hayate: &Hayate) -> Result<()> {
    let mut owner = Command::new("sleep").arg("1000").spawn()?;
    let started = Stay::started(hayate, &["--owner", &owner.id().to_string()], &[]);
    let result = started.and_then(|stay| {
        expect(&stay.shell("echo there")?, 0, "there\n", "")?;
        owner.kill()?;
        owner.wait()?;
        let line = stay.ended()?;
        ensure!(line.contains("its owner ended"), "{line}");
        stay.is_clean()
    });
    let _ = owner.kill();
    let _ = owner.wait();
    result?;
    let stay = Stay::new(hayate);
    let output = stay.command(&["--owner", "2147483647"], &[])?.output()?;
    if output.status.code() != Some(125) {
        bail!("an owner that is not there: {output:?}");
    }
    Ok(())
}
