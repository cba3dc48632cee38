//! Containers as a user of containerd starts them.

use super::super::command::Hayate;
use super::super::screen::{self, Screen};
use super::daemon::Daemon;
use super::{PATIENCE, RUNTIME, USER};
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

pub fn same(found: &str, wanted: &str) -> Result<()> {
    ensure!(found == wanted, "expected {wanted:?}, got {found:?}");
    Ok(())
}

pub fn runs(_: &Hayate) -> Result<()> {
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

pub fn streams(_: &Hayate) -> Result<()> {
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

pub fn on_terminal(_: &Hayate) -> Result<()> {
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
    screen.keys("cat\r")?;
    screen.until("cat\r\n")?;
    // The shell gives the terminal its usual modes back after that.
    std::thread::sleep(Duration::from_secs(1));
    screen.keys("echo\r")?;
    screen.until("echo\r\necho\r\n")?;
    // The shell itself is number 1, which no signal ends without its consent.
    screen.keys("\x03")?;
    screen.until("# ")?;
    screen.keys("exit $?\r")?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "the interrupt gave {status}");
    daemon.is_clean()
}

pub fn execs(_: &Hayate) -> Result<()> {
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
    ensure!(text.contains("memory.usage_limit") && text.contains("pids.current"), "{text}");
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

pub fn signals(_: &Hayate) -> Result<()> {
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

pub fn specification(_: &Hayate) -> Result<()> {
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

pub fn refused(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let said = daemon.refused("one", |spec| {
        let disk = json!({ "path": "/dev/vda", "type": "b", "major": 254, "minor": 0 });
        spec["linux"]["devices"] = json!([disk]);
    })?;
    ensure!(said.contains("/dev/vda is asked for"), "{said}");
    // That no machine has it is known in the guest.
    let said = daemon.refused("one", |spec| {
        let none = json!({ "path": "/dev/lp0", "type": "c", "major": 6, "minor": 0 });
        spec["linux"]["devices"] = json!([none]);
    })?;
    ensure!(said.contains("a machine has no 6:0"), "{said}");
    let said = daemon.refused("one", |spec| {
        spec["mounts"][0]["options"] = json!(["rbind", "rshared"]);
        spec["mounts"][0]["type"] = json!("bind");
        spec["mounts"][0]["source"] = json!("/tmp");
    })?;
    ensure!(said.contains("does not reach the host"), "{said}");
    daemon.is_clean()
}

/// Annotations of a container of the pod `pod`.
pub fn pod_options(kind: &str) -> [String; 2] {
    let kind = format!("io.kubernetes.cri.container-type={kind}");
    [kind, "io.kubernetes.cri.sandbox-id=pod".to_string()]
}

/// Kills a container that runs, and removes it.
pub fn end_of(daemon: &Daemon, name: &str) -> Result<()> {
    daemon.ctr(&["task", "kill", "--signal", "SIGKILL", name], 0)?;
    daemon.await_state(name, "STOPPED")?;
    daemon.remove(name)
}

/// A program that takes output, and hooks; the specification names the root file system.
pub fn helpers(_: &Hayate) -> Result<()> {
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
        "process": {
            "user": { "uid": 0, "gid": 0 },
            "cwd": "/",
            "args": ["/bin/cat", "/etc/group"],
        },
        "root": { "path": daemon.made.path("lower") },
        "annotations": { "colour": "green" },
        "hooks": { "createRuntime": hook(create), "poststop": hook("echo stopped >stopped") },
        "linux": { "namespaces": [{ "type": "mount" }, { "type": "network" }] },
    });
    let config = daemon.path("config.json");
    std::fs::write(&config, spec.to_string())?;
    let config = config.display().to_string();
    let words = ["run", "--rm", "--runtime", RUNTIME, "--config", &config, "one"];
    same(&daemon.ctr(&words, 0)?, &std::fs::read_to_string(daemon.made.path("lower/etc/group"))?)?;
    let state = std::fs::read_to_string(daemon.path("hooked"))?;
    for told in ["\"id\":\"one\"", "\"annotations\":{\"colour\":\"green\"}"] {
        ensure!(state.contains(told), "the state: {state}");
    }
    let own = std::fs::read_link("/proc/self/ns/net")?.display().to_string();
    let net = std::fs::read_to_string(daemon.path("net"))?;
    ensure!(net.starts_with("net:[") && net.trim() != own, "the network of the host: {net}");
    same(&std::fs::read_to_string(daemon.path("stopped"))?, "stopped\n")?;
    daemon.is_clean()
}

pub fn pod(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    for (name, kind) in [("pod", "sandbox"), ("app", "container")] {
        let [kind, sandbox] = pod_options(kind);
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
        end_of(&daemon, name)?;
    }
    daemon.is_clean()
}

pub fn memory(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let events = daemon.events()?;
    let words = Daemon::words(&["--rm"], "one", &["/bin/busybox", "tail", "/dev/zero"]);
    daemon.ctr(&words, 137)?;
    let text = events.text()?;
    let told = text.find("/tasks/oom {\"container_id\":\"one\"}");
    let ended = text.find("/tasks/exit");
    ensure!(told.is_some() && ended > told, "{text}");
    drop(events);
    daemon.is_clean()
}

/// Kills a process of the host.
fn kill(number: u32) -> Result<()> {
    let pid = i32::try_from(number).ok().and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.context("no process")?, rustix::process::Signal::KILL)?;
    Ok(())
}

pub fn killed(_: &Hayate) -> Result<()> {
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

pub fn twenty(_: &Hayate) -> Result<()> {
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
