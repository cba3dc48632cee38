//! containerd with Hayate's shim: containers by `ctr`, as a user of containerd starts them.
//!
//! Each check has a containerd of its own, unpacked from Debian's package, with root, state and
//! socket in a folder of its own. The image is that of `containers/`. At its end a check has left
//! nothing: no process of the shim or QEMU, no mount, no socket. Only root can do all that.

use super::command::{Check, Hayate};
use super::containers::{Made, hex, usual};
use super::report::{Case, Verdict};
use super::screen::{self, Screen};
use super::{Report, Trial};
use crate::arguments::{Accel, Profile, Test};
use crate::image::debian;
use crate::{containerd, paths, tool};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const CHECKS: [(&str, Check); 12] = [
    ("a_container_runs_as_by_ctr_run", runs),
    ("streams_pass_unchanged", streams),
    ("a_container_has_a_terminal", on_terminal),
    ("further_programs_run_in_a_container", execs),
    ("signals_and_pauses", signals),
    ("the_specification_counts", specification),
    ("what_cannot_be_had_is_refused", refused),
    ("programs_of_the_host_take_part", helpers),
    ("a_pod_is_one_machine", pod),
    ("memory_that_lacks_is_told", memory),
    ("nothing_is_left_by_what_is_killed", killed),
    ("twenty_containers_run_at_once", twenty),
];

/// The runtime.
const RUNTIME: &str = "io.containerd.hayate.v1";
/// The image, whose program runs as root, and the same with a user.
const IMAGE: &str = "made:1";
const USER: &str = "user:1";
/// How long a step may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    if options.guest_linux {
        return Vec::new();
    }
    CHECKS.into_iter().map(|(name, check)| trial(name, check, options)).collect()
}

fn trial(name: &str, check: Check, options: &Test) -> Trial {
    let hayate = Hayate::new(options);
    let run = move |_: &[String]| {
        let (verdict, output) = match lacking() {
            Some(why) => (Verdict::Skipped(why.into()), String::new()),
            None => match check(&hayate) {
                Ok(()) => (Verdict::Passed, String::new()),
                Err(error) => (Verdict::Failed(String::new()), format!("{error:#}")),
            },
        };
        Ok(Report { cases: vec![Case::new("", verdict)], output })
    };
    Trial::new(format!("containerd/{name}"), run)
}

/// Why containerd cannot run here.
fn lacking() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root runs containerd");
    }
    if tool::find("apt-get").is_none() || tool::find("dpkg-deb").is_none() {
        return Some("no apt, to fetch containerd by");
    }
    let place = tempfile::tempdir().ok()?;
    let mounted = rustix::mount::mount(
        "none",
        place.path(),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None,
    );
    if mounted.is_err() {
        return Some("this root may not mount");
    }
    let _ = rustix::mount::unmount(place.path(), rustix::mount::UnmountFlags::DETACH);
    None
}

/// Where containerd's package and the shim are installed for all checks, once for this command.
fn installed() -> Result<PathBuf> {
    static ONCE: Mutex<Option<PathBuf>> = Mutex::new(None);
    let mut once = ONCE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = &*once {
        return Ok(folder.clone());
    }
    let folder = paths::build("containerd")?;
    let _alone = paths::lock("containerd")?;
    for (package, archive) in debian::fetch(&["containerd"])? {
        if package.name == "containerd" {
            debian::unpack(&archive, &folder.join("package"))?;
        }
    }
    // The tests of its crate have built most of it in this profile.
    containerd::install(&folder.join("prefix"), Accel::Auto, Profile::Dev)?;
    *once = Some(folder.clone());
    Ok(folder)
}

/// A containerd that runs.
struct Daemon {
    folder: tempfile::TempDir,
    made: Made,
    process: Option<Child>,
    tools: PathBuf,
    /// The kind of snapshots: an overlay cannot lie on another one, as in containers.
    snapshots: &'static str,
}

impl Daemon {
    fn start() -> Result<Daemon> {
        let tools = installed()?;
        let (folder, made) = (tempfile::tempdir()?, Made::new()?);
        let mut daemon = Daemon { folder, made, process: None, tools, snapshots: "native" };
        let folder = daemon.folder.path().display().to_string();
        let off = ["grpc.v1.cri", "snapshotter.v1.btrfs", "snapshotter.v1.zfs"]
            .map(|name| format!("\"io.containerd.{name}\""))
            .join(", ");
        let config = format!(
            "version = 2\nroot = \"{folder}/root\"\nstate = \"{folder}/state\"\n\
             disabled_plugins = [{off}]\n[grpc]\n  address = \"{folder}/socket\"\n"
        );
        std::fs::write(daemon.path("config.toml"), config)?;
        daemon.launch()?;
        let plugins = daemon.ctr(&["plugins", "ls"], 0)?;
        let works = |line: &str| line.contains("overlayfs") && line.trim_end().ends_with("ok");
        if plugins.lines().any(works) {
            daemon.snapshots = "overlayfs";
        }
        daemon.import("user", &usual())?;
        let mut config = usual();
        config["User"] = "".into();
        daemon.import("made", &config)?;
        Ok(daemon)
    }

    /// Imports an image with this configuration, as `NAME:1`.
    fn import(&self, name: &str, config: &Value) -> Result<()> {
        let layout = self.made.layout(name, config)?;
        let archive = self.path(&format!("{name}.tar"));
        let mut tar = Command::new("tar");
        tool::run(tar.arg("-C").arg(layout).arg("-cf").arg(&archive).arg("."))?;
        let archive = archive.display().to_string();
        self.ctr(&["image", "import", "--base-name", name, &archive], 0)?;
        self.ctr(&["image", "tag", &format!("{name}:1.2"), &format!("{name}:1")], 0).map(drop)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the daemon, and waits until it answers.
    fn launch(&mut self) -> Result<()> {
        let program = self.tools.join("package/usr/bin/containerd");
        let mut search = OsString::from(self.tools.join("prefix/bin"));
        search.push(":");
        search.push(std::env::var_os("PATH").unwrap_or_default());
        let log = std::fs::File::options();
        let log = log.clone().create(true).append(true).open(self.path("log"))?;
        let mut command = Command::new(program);
        command.arg("--config").arg(self.path("config.toml")).env("PATH", search);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.process = Some(command.spawn().context("cannot start containerd")?);
        let end = Instant::now() + PATIENCE;
        while !self.ctr_output(&["version"])?.status.success() {
            ensure!(Instant::now() < end, "containerd does not answer: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Kills the daemon alone.
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--foreground", "120"]).arg(self.tools.join("package/usr/bin/ctr"));
        command.arg("--address").arg(self.path("socket")).args(words);
        command.env("CONTAINERD_SNAPSHOTTER", self.snapshots);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn ctr_output(&self, words: &[&str]) -> Result<Output> {
        self.command(words).output().context("cannot start ctr")
    }

    /// Runs `ctr`, which ends with this status; returns what it printed.
    fn ctr(&self, words: &[&str], status: i32) -> Result<String> {
        let output = self.ctr_output(words)?;
        self.judge(words, &output, status)
    }

    fn judge(&self, words: &[&str], output: &Output, status: i32) -> Result<String> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(status),
            "ctr {words:?}: {}, not {status}: {text}{said}\n{}",
            output.status,
            self.log()
        );
        Ok(text)
    }

    /// The words of `ctr run` for a container of this name.
    fn words<'a>(options: &[&'a str], name: &'a str, program: &[&'a str]) -> Vec<&'a str> {
        Daemon::of_image(IMAGE, options, name, program)
    }

    fn of_image<'a>(
        image: &'a str,
        options: &[&'a str],
        name: &'a str,
        program: &[&'a str],
    ) -> Vec<&'a str> {
        let first = ["run", "--runtime", RUNTIME, "--memory-limit", "67108864"];
        [&first, options, &[image, name], program].concat()
    }

    /// Runs a shell in a container of its own; returns what it printed.
    fn shell(&self, options: &[&str], text: &str, status: i32) -> Result<String> {
        let options = [&["--rm"], options].concat();
        self.ctr(&Daemon::words(&options, "one", &["/bin/sh", "-c", text]), status)
    }

    /// Starts a container that stays.
    fn keep(&self, options: &[&str], name: &str, text: &str) -> Result<()> {
        let options = [&["--detach"], options].concat();
        self.ctr(&Daemon::words(&options, name, &["/bin/sh", "-c", text]), 0).map(drop)
    }

    /// Runs a shell in a container that is there.
    fn exec(&self, name: &str, text: &str, status: i32) -> Result<String> {
        let words = ["task", "exec", "--exec-id", "e", name, "/bin/sh", "-c", text];
        self.ctr(&words, status)
    }

    /// Waits until a task is in this state; the last column of `ctr task ls`.
    fn await_state(&self, name: &str, state: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = self.ctr(&["task", "ls"], 0)?;
            let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
            if line.is_some_and(|line| line.trim_end().ends_with(state)) {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{name} is not {state}: {text}{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Removes a container whose task has ended; the status of the task.
    fn remove(&self, name: &str) -> Result<()> {
        self.ctr_output(&["task", "delete", name])?;
        self.ctr(&["container", "delete", name], 0).map(drop)
    }

    /// The processes whose command line holds the folder of this daemon, or of its machines.
    fn processes(&self) -> Vec<(u32, String)> {
        let mark = self.folder.path().display().to_string();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut found = Vec::new();
        for number in numbers {
            let line = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.contains(&mark) {
                found.push((number, line));
            }
        }
        found
    }

    /// The process of this daemon's whose command line begins with this program.
    fn process(&self, program: &str) -> Result<u32> {
        let found = self
            .processes()
            .into_iter()
            .find(|(_, line)| line.split(' ').next().is_some_and(|first| first.ends_with(program)));
        found.map(|(number, _)| number).with_context(|| format!("no {program} runs"))
    }

    fn mounts(&self) -> Vec<String> {
        let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mark = self.folder.path().display().to_string();
        text.lines().filter(|line| line.contains(&mark)).map(str::to_string).collect()
    }

    /// The sockets of shims that are there, of pods that the checks name. All shims of a host have
    /// theirs in one folder, by a digest of daemon, namespace and pod.
    fn sockets(&self) -> Vec<PathBuf> {
        let socket = |pod: &str| {
            let named = self.path("socket").join("default").join(pod);
            let digest = hex(named.as_os_str().as_encoded_bytes());
            PathBuf::from("/run/containerd/s").join(digest)
        };
        ["one", "c", "pod", "app", "c0", "c19"]
            .map(socket)
            .into_iter()
            .filter(|path| path.exists())
            .collect()
    }

    /// Whether nothing of containers is left but the daemon.
    fn is_clean(&self) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let own = self.process.as_ref().map(Child::id);
            let left: Vec<_> =
                self.processes().into_iter().filter(|(pid, _)| Some(*pid) != own).collect();
            let mounts = self.mounts();
            let bundles: usize = ["runtime.v2.task", "hayate.v1"]
                .map(|name| self.path(&format!("state/io.containerd.{name}/default")))
                .map(|path| std::fs::read_dir(path).map_or(0, Iterator::count))
                .iter()
                .sum();
            let sockets = self.sockets();
            if left.is_empty() && mounts.is_empty() && bundles == 0 && sockets.is_empty() {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "left: {left:?}, {mounts:?}, {sockets:?}, {bundles} bundles\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // After a failure there may be machines.
        self.kill();
        for (number, _) in self.processes() {
            if let Some(pid) = i32::try_from(number).ok().and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(100));
        let mut places: Vec<String> = self.mounts();
        places.reverse();
        for line in places {
            if let Some(place) = line.split(' ').nth(4) {
                let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
            }
        }
    }
}

fn same(found: &str, wanted: &str) -> Result<()> {
    ensure!(found == wanted, "expected {wanted:?}, got {found:?}");
    Ok(())
}

fn runs(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let text = daemon.shell(&[], "echo out; echo err >&2; uname -s; exit 7", 7)?;
    same(&text, "out\nLinux\n")?;
    // The image's own program, user, environment and directory.
    let output = daemon.ctr(&Daemon::of_image(USER, &["--rm"], "one", &[]), 0)?;
    ensure!(output.starts_with("7 8 ") && output.contains("/made/here /srv blue"), "{output}");
    let words = Daemon::words(&["--rm"], "one", &["/bin/missing"]);
    let output = daemon.ctr_output(&words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && said.contains("/bin/missing"), "{output:?}");
    daemon.is_clean()
}

fn streams(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let bytes: Vec<u8> =
        (0..3_000_000_u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
    let words = Daemon::words(&["--rm"], "one", &["/bin/cat"]);
    let mut child = daemon.command(&words).stdin(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no input")?;
    let sent = bytes.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("the writer has panicked"))??;
    ensure!(output.status.success(), "{:?}", String::from_utf8_lossy(&output.stderr));
    ensure!(output.stdout == bytes, "{} bytes came back", output.stdout.len());
    daemon.is_clean()
}

fn on_terminal(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let (master, path) = screen::terminal(33, 101)?;
    let open = || std::fs::File::options().read(true).write(true).open(&path);
    let words = Daemon::words(&["--rm", "--tty"], "one", &["/bin/sh"]);
    let mut command = daemon.command(&words);
    command.args(["-i"]).stdin(open()?).stdout(open()?).stderr(open()?);
    let mut child = command.spawn()?;
    drop(command);
    let mut screen = Screen::new(master)?;
    screen.until("# ")?;
    screen.keys("test -t 0 && echo terminal $((40+2))\r")?;
    screen.until("terminal 42")?;
    screen.until("# ")?;
    screen.keys("exec cat\r")?;
    screen.until("exec cat\r\n")?;
    // The shell gives the terminal its usual modes back after that.
    std::thread::sleep(Duration::from_secs(1));
    screen.keys("echo\r")?;
    screen.until("echo\r\necho\r\n")?;
    screen.keys("\x03")?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "the interrupt gave {status}");
    daemon.is_clean()
}

fn execs(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    daemon.keep(&[], "c", "echo there >/tmp/file; sleep 1000; true")?;
    let text = "while ! cat /tmp/file 2>/dev/null; do sleep 0.1; done; id -u; exit 5";
    same(&daemon.exec("c", text, 5)?, "there\n0\n")?;
    let words = ["task", "exec", "--exec-id", "u", "--user", "7:8", "--cwd", "/srv", "c"];
    let program = ["/bin/sh", "-c", "id -u; id -g; pwd"];
    same(&daemon.ctr(&[&words[..], &program].concat(), 0)?, "7\n8\n/srv\n")?;
    let one = daemon.exec("c", "readlink /proc/self/ns/mnt", 0)?;
    same(&daemon.exec("c", "readlink /proc/self/ns/mnt", 0)?, &one)?;
    let text = daemon.ctr(&["task", "ps", "c"], 0)?;
    ensure!(text.lines().count() >= 3, "a shell and its sleep: {text}");
    let text = daemon.ctr(&["task", "metrics", "c"], 0)?;
    ensure!(text.contains("memory.usage_in_bytes") && text.contains("pids.current"), "{text}");
    let text = daemon.ctr(&["task", "ls"], 0)?;
    ensure!(text.contains("RUNNING"), "{text}");
    // A container's other programs end with its first one.
    let words = ["task", "exec", "--exec-id", "long", "c", "/bin/sleep", "1000"];
    let long = daemon.command(&words).spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    daemon.ctr(&["task", "kill", "--signal", "SIGKILL", "c"], 0)?;
    daemon.await_state("c", "STOPPED")?;
    ensure!(long.wait_with_output()?.status.code() == Some(137), "it was not killed");
    daemon.remove("c")?;
    daemon.is_clean()
}

fn signals(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let text = "trap 'echo asked; exit 9' TERM; while :; do sleep 0.05; done";
    let words = Daemon::words(&["--rm"], "c", &["/bin/sh", "-c", text]);
    let child = daemon.command(&words).spawn()?;
    daemon.await_state("c", "RUNNING")?;
    daemon.ctr(&["task", "pause", "c"], 0)?;
    daemon.await_state("c", "PAUSED")?;
    daemon.ctr(&["task", "resume", "c"], 0)?;
    daemon.await_state("c", "RUNNING")?;
    // The trap may not be set before.
    std::thread::sleep(Duration::from_millis(500));
    daemon.ctr(&["task", "kill", "--signal", "SIGTERM", "c"], 0)?;
    same(&daemon.judge(&words, &child.wait_with_output()?, 9)?, "asked\n")?;
    // By a signal, and what ctr run says of it.
    let words = Daemon::words(&["--rm"], "c", &["/bin/sleep", "1000"]);
    let child = daemon.command(&words).spawn()?;
    daemon.await_state("c", "RUNNING")?;
    daemon.ctr(&["task", "pause", "c"], 0)?;
    daemon.ctr(&["task", "kill", "--signal", "SIGKILL", "c"], 0)?;
    daemon.judge(&words, &child.wait_with_output()?, 137)?;
    daemon.is_clean()
}

fn specification(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let shared = daemon.path("shared");
    std::fs::create_dir_all(&shared)?;
    std::fs::write(shared.join("in"), "of the host\n")?;
    let bind =
        |more: &str| format!("type=bind,src={},dst=/data,options=rbind:{more}", shared.display());
    let options = ["--env", "COLOUR=red", "--cwd", "/srv"];
    same(&daemon.shell(&options, "echo $COLOUR; pwd", 0)?, "red\n/srv\n")?;
    let text = "cat /data/in; echo of the guest >/data/out; cat /proc/sys/kernel/hostname";
    let found = daemon.shell(&["--mount", &bind("rw")], text, 0)?;
    same(&found, "of the host\none\n")?;
    same(&std::fs::read_to_string(shared.join("out"))?, "of the guest\n")?;
    let text = "(echo x >/data/no) 2>/dev/null || cat /data/in";
    same(&daemon.shell(&["--mount", &bind("ro")], text, 0)?, "of the host\n")?;
    let text = "(echo x >/no) 2>/dev/null || echo read-only; echo y >/dev/null && echo device";
    same(&daemon.shell(&["--read-only"], text, 0)?, "read-only\ndevice\n")?;
    let output = daemon
        .ctr(&Daemon::of_image(USER, &["--rm"], "one", &["/bin/cat", "/proc/self/status"]), 0)?;
    for line in ["Uid:\t7\t", "CapEff:\t0000000000000000\n", "CapBnd:\t00000000a80425fb\n"] {
        ensure!(output.contains(line), "no {line:?} in {output}");
    }
    ensure!(output.contains("NoNewPrivs:\t1\n"), "{output}");
    // The next container of the image has nothing of a file that one wrote.
    same(&daemon.shell(&[], "echo x >/kept; cat /kept", 0)?, "x\n")?;
    same(&daemon.shell(&[], "cat /kept 2>/dev/null; echo $?", 0)?, "1\n")?;
    // ctr's own specification protects it.
    let text = "(echo x >/proc/sys/kernel/hostname) 2>/dev/null || echo refused";
    same(&daemon.shell(&[], text, 0)?, "refused\n")?;
    daemon.is_clean()
}

fn refused(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let device = ["--device", "/dev/zero"];
    let words = Daemon::words(&[&["--rm"], &device[..]].concat(), "one", &["/bin/true"]);
    let output = daemon.ctr_output(&words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && said.contains("/dev/zero is asked for"), "{said}");
    daemon.is_clean()
}

/// A program that takes output, and hooks; the specification names the root file system.
fn helpers(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let logger = daemon.path("logger");
    let text = format!("#!/bin/sh\nexec 5>&-\ncat <&3 >{}\n", daemon.path("logged").display());
    std::fs::write(&logger, text)?;
    std::fs::set_permissions(&logger, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let uri = format!("binary://{}", logger.display());
    daemon.shell(&["--log-uri", &uri], "echo to a program", 0)?;
    let end = Instant::now() + PATIENCE;
    while std::fs::read_to_string(daemon.path("logged")).unwrap_or_default() != "to a program\n" {
        ensure!(Instant::now() < end, "nothing was logged: {}", daemon.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let hook = |text: &str| {
        let text = format!("cd {}; {text}", daemon.folder.path().display());
        json!([{ "path": "/bin/sh", "args": ["sh", "-c", text], "env": ["PATH=/usr/bin:/bin"] }])
    };
    let create = "cat >hooked; pid=$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' hooked); \
                  readlink /proc/$pid/ns/net >net";
    let spec = json!({
        "ociVersion": "1.0.2",
        "process": { "user": { "uid": 0, "gid": 0 }, "cwd": "/", "args": ["/bin/cat", "/etc/group"] },
        "root": { "path": daemon.made.path("lower") },
        "hooks": { "createRuntime": hook(create), "poststop": hook("echo stopped >stopped") },
        "linux": { "namespaces": [{ "type": "mount" }, { "type": "network" }] },
    });
    let config = daemon.path("config.json");
    std::fs::write(&config, spec.to_string())?;
    let config = config.display().to_string();
    let words = ["run", "--rm", "--runtime", RUNTIME, "--config", &config, "one"];
    same(&daemon.ctr(&words, 0)?, &std::fs::read_to_string(daemon.made.path("lower/etc/group"))?)?;
    let state = std::fs::read_to_string(daemon.path("hooked"))?;
    ensure!(state.contains("\"id\":\"one\""), "the state: {state}");
    let own = std::fs::read_link("/proc/self/ns/net")?.display().to_string();
    let net = std::fs::read_to_string(daemon.path("net"))?;
    ensure!(net.starts_with("net:[") && net.trim() != own, "the network of the host: {net}");
    same(&std::fs::read_to_string(daemon.path("stopped"))?, "stopped\n")?;
    daemon.is_clean()
}

fn pod(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let of_pod = |kind: &str| {
        let kind = format!("io.kubernetes.cri.container-type={kind}");
        [kind, "io.kubernetes.cri.sandbox-id=pod".to_string()]
    };
    for (name, kind) in [("pod", "sandbox"), ("app", "container")] {
        let [kind, sandbox] = of_pod(kind);
        let options = ["--annotation", &kind, "--annotation", &sandbox];
        daemon.keep(&options, name, &format!("echo {name} >/name; sleep 1000"))?;
    }
    let machines = daemon.processes();
    let machines = machines.iter().filter(|(_, line)| line.contains("qemu-system")).count();
    ensure!(machines == 1, "{machines} machines");
    for name in ["pod", "app"] {
        let text = "while ! cat /name 2>/dev/null; do sleep 0.1; done; \
                    cat /proc/sys/kernel/random/boot_id";
        let found = daemon.exec(name, text, 0)?;
        ensure!(found.starts_with(&format!("{name}\n")), "{found}");
    }
    let boot = |name| daemon.exec(name, "cat /proc/sys/kernel/random/boot_id", 0);
    same(&boot("pod")?, &boot("app")?)?;
    let space = |name| daemon.exec(name, "readlink /proc/self/ns/mnt", 0);
    ensure!(space("pod")? != space("app")?, "one mount namespace");
    for name in ["app", "pod"] {
        daemon.ctr(&["task", "kill", "--signal", "SIGKILL", name], 0)?;
        daemon.await_state(name, "STOPPED")?;
        daemon.remove(name)?;
    }
    daemon.is_clean()
}

fn memory(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let events = daemon.command(&["events"]).spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    let words = Daemon::words(&["--rm"], "one", &["/bin/busybox", "tail", "/dev/zero"]);
    daemon.ctr(&words, 137)?;
    let pid = i32::try_from(events.id()).ok().and_then(rustix::process::Pid::from_raw);
    let term = rustix::process::Signal::TERM;
    rustix::process::kill_process(pid.context("no process")?, term)?;
    let output = events.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(text.contains("/tasks/oom {\"container_id\":\"one\"}"), "{text}");
    daemon.is_clean()
}

/// Kills a process of the host.
fn kill(number: u32) -> Result<()> {
    let pid = i32::try_from(number).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.context("no process")?, rustix::process::Signal::KILL)?;
    Ok(())
}

fn killed(_: &Hayate) -> Result<()> {
    let mut daemon = Daemon::start()?;
    let words = Daemon::words(&["--rm"], "c", &["/bin/sleep", "1000"]);
    // QEMU.
    let child = daemon.command(&words).spawn()?;
    daemon.await_state("c", "RUNNING")?;
    kill(daemon.process("qemu-system-x86_64")?)?;
    daemon.judge(&words, &child.wait_with_output()?, 137)?;
    daemon.is_clean()?;
    // The daemon: tasks go on, and their shims are found again.
    daemon.keep(&[], "c", "sleep 1000")?;
    let machine = daemon.process("qemu-system-x86_64")?;
    daemon.kill();
    daemon.launch()?;
    daemon.await_state("c", "RUNNING")?;
    ensure!(daemon.process("qemu-system-x86_64")? == machine, "another machine runs");
    same(&daemon.exec("c", "echo still", 0)?, "still\n")?;
    // The shim.
    kill(daemon.process("containerd-shim-hayate-v1")?)?;
    let end = Instant::now() + PATIENCE;
    while !daemon.ctr(&["task", "ls", "-q"], 0)?.is_empty() {
        if Instant::now() > end {
            bail!("the task of a dead shim stays");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.remove("c")?;
    daemon.is_clean()
}

fn twenty(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    let start = |name: &String| -> Result<Child> {
        let words = Daemon::words(&["--rm"], name, &["/bin/sh", "-c", "sleep 5; echo done"]);
        Ok(daemon.command(&words).spawn()?)
    };
    let children = names.iter().map(start).collect::<Result<Vec<_>>>()?;
    for child in children {
        same(&daemon.judge(&["run"], &child.wait_with_output()?, 0)?, "done\n")?;
    }
    daemon.is_clean()
}
