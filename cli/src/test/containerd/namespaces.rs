//! PID namespaces and devices of containers.

use super::super::command::Hayate;
use super::checks::{pod_options, same};
use super::daemon::Daemon;
use crate::tool;
use anyhow::{Result, ensure};
use serde_json::json;
use std::time::Duration;

pub fn numbers(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    same(&daemon.shell(&[], "echo $$; cd /proc; echo [0-9]*", 0)?, "1\n1\n")?;
    // Number 1 takes no signal from inside, and from outside none that it does not handle.
    daemon.keep(&[], "c", "sleep 1000; true")?;
    same(&daemon.exec("c", "kill -TERM 1; kill -KILL 1; echo $((1 < $$))", 0)?, "1\n")?;
    daemon.ctr(&["task", "kill", "--signal", "SIGTERM", "c"], 0)?;
    let text = "sh -c 'sleep 1001 & echo $! >/tmp/orphan'; sleep 0.5; \
                while read key value; do test $key = PPid: && echo $value; done \
                </proc/$(cat /tmp/orphan)/status; true";
    same(&daemon.exec("c", text, 0)?, "1\n")?;
    // Both programs see one another; the numbers are the namespace's.
    same(&daemon.exec("c", "cat /proc/1/comm", 0)?, "sh\n")?;
    let kinds = "for kind in pid cgroup mnt; do busybox readlink /proc/$n/ns/$kind; done";
    let own = daemon.exec("c", &format!("n=self; {kinds}"), 0)?;
    same(&daemon.exec("c", &format!("n=1; {kinds}"), 0)?, &own)?;
    let words = ["task", "exec", "--exec-id", "long", "c", "/bin/sleep", "1002"];
    let long = daemon.command(&words).spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    daemon.await_state("c", "RUNNING")?;
    daemon.ctr(&["task", "kill", "--signal", "SIGKILL", "c"], 0)?;
    daemon.await_state("c", "STOPPED")?;
    ensure!(long.wait_with_output()?.status.code() == Some(137), "it was not killed");
    daemon.remove("c")?;
    daemon.is_clean()
}

pub fn shared_numbers(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let [kind, sandbox] = pod_options("sandbox");
    daemon.keep(&["--annotation", &kind, "--annotation", &sandbox], "pod", "sleep 1000; true")?;
    let machine = daemon.process("qemu-system-x86_64")?;
    let [kind, sandbox] = pod_options("container");
    let of_pod = ["--annotation", &kind, "--annotation", &sandbox];
    let shares = format!("pid:/proc/{machine}/ns/pid");
    daemon.keep(&[&of_pod[..], &["--with-ns", &shares]].concat(), "app", "sleep 1001; true")?;
    let seen = "for comm in /proc/[0-9]*/cmdline; do busybox tr '\\0' ' ' <$comm; echo; done";
    for name in ["pod", "app"] {
        let text = daemon.exec(name, seen, 0)?;
        ensure!(text.contains("sleep 1000") && text.contains("sleep 1001"), "{name}: {text}");
    }
    same(&daemon.exec("app", "test $$ = 1; echo $?", 0)?, "1\n")?;
    // Processes outside of the pod have none that a container could enter.
    let words = Daemon::words(
        &[&["--rm"], &of_pod[..], &["--with-ns", "pid:/proc/1/ns/pid"]].concat(),
        "one",
        &["/bin/true"],
    );
    let output = daemon.ctr_output(&words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && said.contains("none of the pod's"), "{said}");
    // The end of number 1 is that of all.
    daemon.ctr(&["task", "kill", "--signal", "SIGKILL", "pod"], 0)?;
    for name in ["pod", "app"] {
        daemon.await_state(name, "STOPPED")?;
    }
    for name in ["app", "pod"] {
        daemon.remove(name)?;
    }
    daemon.is_clean()
}

/// Host name, queues and memory of a pod, as CRI's containers have them: by paths to the namespaces
/// of the sandbox's process, and a tmpfs of the host at `/dev/shm`.
pub fn shared(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let memory = daemon.path("memory");
    std::fs::create_dir(&memory)?;
    let mut mount = std::process::Command::new("mount");
    tool::run(mount.args(["-t", "tmpfs", "-o", "size=3m", "none"]).arg(&memory))?;
    let outcome = shared_with(&daemon, &memory.display().to_string());
    tool::run(std::process::Command::new("umount").arg(&memory))?;
    outcome?;
    daemon.is_clean()
}

fn shared_with(daemon: &Daemon, memory: &str) -> Result<()> {
    let annotations = |kind: &str| {
        let (sort, sandbox) = ("io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-id");
        json!({ sort: kind, sandbox: "pod" })
    };
    let bound = json!({ "destination": "/dev/shm", "type": "bind", "source": memory,
                        "options": ["rbind", "nosuid", "nodev"] });
    let add = |spec: &mut serde_json::Value, kind: &str, namespaces: serde_json::Value| {
        spec["annotations"] = annotations(kind);
        spec["linux"]["namespaces"] = namespaces;
        let mounts = spec["mounts"].as_array_mut();
        mounts.into_iter().for_each(|mounts| {
            mounts.retain(|mount| mount["destination"] != "/dev/shm");
            mounts.push(bound.clone());
        });
    };
    let text = "echo of the pod >/dev/shm/note; sleep 1000; true";
    daemon.keep_specified("pod", text, |spec| {
        spec["hostname"] = json!("of-the-pod");
        add(spec, "sandbox", json!([{ "type": "pid" }, { "type": "uts" }, { "type": "ipc" }]));
    })?;
    let machine = daemon.process("qemu-system-x86_64")?;
    let path = |kind: &str| json!({ "type": kind, "path": format!("/proc/{machine}/ns/{kind}") });
    for name in ["app", "web"] {
        daemon.keep_specified(name, "sleep 1000; true", |spec| {
            add(spec, "container", json!([{ "type": "pid" }, path("uts"), path("ipc")]));
        })?;
    }
    let text = "cat /proc/sys/kernel/hostname; busybox readlink /proc/self/ns/ipc; cat /dev/shm/*; \
                busybox df -k /dev/shm | busybox awk 'END { print $2 }'";
    let of_pod = daemon.exec("pod", text, 0)?;
    ensure!(
        of_pod.starts_with("of-the-pod\n") && of_pod.ends_with("of the pod\n3072\n"),
        "{of_pod}"
    );
    daemon.exec("app", "echo of app >>/dev/shm/note", 0)?;
    let of_pod = daemon.exec("pod", text, 0)?;
    same(&daemon.exec("web", text, 0)?, &of_pod)?;
    ensure!(of_pod.contains("of app"), "{of_pod}");
    ensure!(std::fs::read_dir(memory)?.next().is_none(), "it is memory of the host");
    // A container of its own has nothing of it.
    same(&daemon.shell(&[], "test -e /dev/shm/note; echo $?", 0)?, "1\n")?;
    for name in ["app", "web", "pod"] {
        daemon.ctr(&["task", "kill", "--signal", "SIGKILL", name], 0)?;
        daemon.await_state(name, "STOPPED")?;
        daemon.remove(name)?;
    }
    Ok(())
}

pub fn devices(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let text = "busybox head -c 3 /dev/zero | busybox wc -c";
    same(&daemon.shell(&["--device", "/dev/zero"], text, 0)?, "3\n")?;
    // A device of the machine, whose node anybody makes, is opened if a rule allows it.
    let text = "busybox mknod /dev/own c 1 11; (: </dev/own) 2>/dev/null && echo opened; \
                stat -c '%a %t:%T' /dev/made; (: </dev/made) && echo made";
    let node = json!([{ "path": "/dev/made", "type": "c", "major": 1, "minor": 3,
                        "fileMode": 0o640, "gid": 7 }]);
    for (allow, wanted) in [(true, "opened\n640 1:3\nmade\n"), (false, "640 1:3\nmade\n")] {
        let found = daemon.run_specified("one", text, |spec| {
            spec["linux"]["devices"] = node.clone();
            spec["linux"]["resources"] =
                json!({ "devices": [{ "allow": allow, "access": "rwm" }] });
        })?;
        same(&found, wanted)?;
    }
    // Mounts spread as the specification says.
    let text = "while read line; do case $line in *' / /spread '*|*' / / '*) echo ${line##* - } \
                ${line%% - *};; esac; done </proc/self/mountinfo";
    let found = daemon.run_specified("one", text, |spec| {
        spec["linux"]["rootfsPropagation"] = json!("rslave");
        let mounts = spec["mounts"].as_array_mut();
        mounts.into_iter().for_each(|mounts| {
            mounts.push(json!({ "destination": "/spread", "type": "tmpfs", "source": "none",
                                "options": ["shared"] }));
        });
    })?;
    ensure!(
        found.lines().any(|line| line.contains("/spread") && line.contains("shared:")),
        "{found}"
    );
    daemon.is_clean()
}
