//! A containerd of Debian's package, started in a folder of its own with Hayate's shim, and what is
//! asked of it by `ctr`.

use super::super::containers::{Made, hex, usual};
use super::{IMAGE, PATIENCE, RUNTIME, installed};
use crate::tool;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A containerd that runs.
pub struct Daemon {
    /// Its folder.
    pub folder: tempfile::TempDir,
    /// The image.
    pub made: Made,
    process: Option<Child>,
    tools: PathBuf,
    /// The kind of snapshots: an overlay cannot lie on another one, as in containers.
    snapshots: &'static str,
}

impl Daemon {
    pub fn start() -> Result<Daemon> {
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the daemon, and waits until it answers.
    pub fn launch(&mut self) -> Result<()> {
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
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--foreground", "120"]).arg(self.tools.join("package/usr/bin/ctr"));
        command.arg("--address").arg(self.path("socket")).args(words);
        command.env("CONTAINERD_SNAPSHOTTER", self.snapshots);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn ctr_output(&self, words: &[&str]) -> Result<Output> {
        self.command(words).output().context("cannot start ctr")
    }

    /// Runs `ctr`, which ends with this status; returns what it printed.
    pub fn ctr(&self, words: &[&str], status: i32) -> Result<String> {
        let output = self.ctr_output(words)?;
        self.judge(words, &output, status)
    }

    pub fn judge(&self, words: &[&str], output: &Output, status: i32) -> Result<String> {
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
    pub fn words<'a>(options: &[&'a str], name: &'a str, program: &[&'a str]) -> Vec<&'a str> {
        Daemon::of_image(IMAGE, options, name, program)
    }

    pub fn of_image<'a>(
        image: &'a str,
        options: &[&'a str],
        name: &'a str,
        program: &[&'a str],
    ) -> Vec<&'a str> {
        let first = ["run", "--runtime", RUNTIME, "--memory-limit", "67108864"];
        [&first, options, &[image, name], program].concat()
    }

    /// Runs a shell in a container of its own; returns what it printed.
    pub fn shell(&self, options: &[&str], text: &str, status: i32) -> Result<String> {
        let options = [&["--rm"], options].concat();
        self.ctr(&Daemon::words(&options, "one", &["/bin/sh", "-c", text]), status)
    }

    /// Starts a container that stays.
    pub fn keep(&self, options: &[&str], name: &str, text: &str) -> Result<()> {
        let options = [&["--detach"], options].concat();
        self.ctr(&Daemon::words(&options, name, &["/bin/sh", "-c", text]), 0).map(drop)
    }

    /// Runs a shell in a container that is there.
    pub fn exec(&self, name: &str, text: &str, status: i32) -> Result<String> {
        let words = ["task", "exec", "--exec-id", "e", name, "/bin/sh", "-c", text];
        self.ctr(&words, status)
    }

    /// Writes a specification of a container that runs a shell, after this change; returns its
    /// path.
    fn specify(&self, text: &str, change: impl FnOnce(&mut Value)) -> Result<String> {
        let kinds = ["mount", "network", "pid", "ipc", "uts", "cgroup"];
        let mut spec = json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": { "uid": 0, "gid": 0 }, "cwd": "/", "args": ["/bin/sh", "-c", text],
                "env": ["PATH=/bin"],
            },
            "root": { "path": self.made.path("lower") },
            "mounts": [
                { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs" },
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs" },
                { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"] },
                { "destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup",
                  "options": ["ro", "nosuid", "noexec", "nodev", "relatime"] },
            ],
            "linux": { "namespaces": kinds.map(|kind| json!({ "type": kind })) },
        });
        change(&mut spec);
        let path = self.path("config.json");
        std::fs::write(&path, spec.to_string())?;
        Ok(path.display().to_string())
    }

    /// Runs a shell in a container of a specification; returns what it printed.
    pub fn run_specified(
        &self,
        name: &str,
        text: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<String> {
        let config = self.specify(text, change)?;
        self.ctr(&["run", "--rm", "--runtime", RUNTIME, "--config", &config, name], 0)
    }

    /// Starts a container of a specification that stays.
    pub fn keep_specified(
        &self,
        name: &str,
        text: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<()> {
        let config = self.specify(text, change)?;
        let words = ["run", "--detach", "--runtime", RUNTIME, "--config", &config, name];
        self.ctr(&words, 0).map(drop)
    }

    /// The message about a specification that is refused.
    pub fn refused(&self, name: &str, change: impl FnOnce(&mut Value)) -> Result<String> {
        let config = self.specify("true", change)?;
        let words = ["run", "--rm", "--runtime", RUNTIME, "--config", &config, name];
        let output = self.ctr_output(&words)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "it was not refused: {said}");
        self.ctr_output(&["container", "delete", name])?;
        Ok(said)
    }

    /// Listens to the daemon's events.
    pub fn events(&self) -> Result<Events> {
        let path = self.path("events");
        let file = std::fs::File::create(&path)?;
        let process = self.command(&["events"]).stdout(file).spawn()?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(Events { process, path })
    }

    /// Asks the shim of a container for other limits, as containerd does for clients that `ctr` is
    /// none of. Returns what it refuses it with; nothing: it is done.
    pub fn update(&self, name: &str, resources: &Value) -> Result<String> {
        // Protocol buffers: a field of bytes is its key, the length and the bytes.
        fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
            let mut out = vec![number << 3 | 2];
            let mut length = bytes.len();
            while length > 0x7f {
                out.push(length as u8 | 0x80);
                length >>= 7;
            }
            out.push(length as u8);
            out.extend_from_slice(bytes);
            out
        }
        let kind = b"types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";
        let any = [field(1, kind), field(2, resources.to_string().as_bytes())].concat();
        let asked = [field(1, name.as_bytes()), field(2, &any)].concat();
        let service = field(1, b"containerd.task.v2.Task");
        let payload = [service, field(2, b"Update"), field(3, &asked)].concat();
        // TTRPC (github.com/containerd/ttrpc, PROTOCOL.md): length, stream, kind and flags.
        let mut frame = u32::try_from(payload.len())?.to_be_bytes().to_vec();
        frame.extend([0, 0, 0, 1, 1, 0]);
        frame.extend(payload);
        let mut socket = UnixStream::connect(self.socket(name))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(&frame)?;
        let mut header = [0; 10];
        socket.read_exact(&mut header)?;
        let [a, b, c, d, ..] = header;
        let mut answer = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
        socket.read_exact(&mut answer)?;
        // A status other than "well" has a text.
        let printed = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        let text: Vec<u8> = answer.into_iter().filter(printed).collect();
        Ok(String::from_utf8_lossy(&text).trim().to_string())
    }

    /// The socket of a pod's shim. All shims of a host have theirs in one folder, by a digest of
    /// daemon, namespace and pod.
    fn socket(&self, pod: &str) -> PathBuf {
        let named = self.path("socket").join("default").join(pod);
        let digest = hex(named.as_os_str().as_encoded_bytes());
        PathBuf::from("/run/containerd/s").join(digest)
    }

    /// Waits until a task is in this state; the last column of `ctr task ls`.
    pub fn await_state(&self, name: &str, state: &str) -> Result<()> {
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
    pub fn remove(&self, name: &str) -> Result<()> {
        self.ctr_output(&["task", "delete", name])?;
        self.ctr(&["container", "delete", name], 0).map(drop)
    }

    /// The processes whose command line holds the folder of this daemon, or of its machines.
    pub fn processes(&self) -> Vec<(u32, String)> {
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
    pub fn process(&self, program: &str) -> Result<u32> {
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

    /// The sockets of shims that are there, of pods that the checks name.
    fn sockets(&self) -> Vec<PathBuf> {
        ["one", "c", "pod", "app", "c0", "c19"]
            .map(|pod| self.socket(pod))
            .into_iter()
            .filter(|path| path.exists())
            .collect()
    }

    /// Whether nothing of containers is left but the daemon.
    pub fn is_clean(&self) -> Result<()> {
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

/// What the daemon tells of, from a moment on.
pub struct Events {
    process: Child,
    path: PathBuf,
}

impl Events {
    pub fn text(&self) -> Result<String> {
        std::fs::read_to_string(&self.path).context("cannot read the events")
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // It passes the signal on to the client.
        if let Some(pid) =
            i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.process.wait();
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
