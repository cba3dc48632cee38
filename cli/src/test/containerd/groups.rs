//! Control groups of containers: limits, what was used, memory that lacks, pauses.

use super::super::command::Hayate;
use super::PATIENCE;
use super::checks::{end_of, pod_options, same};
use super::daemon::Daemon;
use anyhow::{Result, ensure};
use serde_json::json;
use std::time::{Duration, Instant};

pub fn limits(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let text = "cat /proc/self/cgroup; cd /sys/fs/cgroup; for file in memory.max memory.low \
                memory.high cpu.max cpu.weight pids.max; do read line <$file; echo $line; done; \
                (echo 5 >pids.max) 2>/dev/null || echo read-only";
    let resources = json!({
        "memory": { "limit": 50 << 20, "swap": 50 << 20, "reservation": 8192 },
        "cpu": { "shares": 512, "quota": 50_000, "period": 100_000 },
        "pids": { "limit": 9 },
        "unified": { "memory.high": "40M" },
        "blockIO": { "weight": 100 },
    });
    let found = daemon.run_specified("one", text, |spec| {
        spec["linux"]["resources"] = resources.clone();
    })?;
    let wanted = "0::/\n52428800\n8192\n41943040\n50000 100000\n20\n9\nread-only\n";
    same(&found, wanted)?;
    // A program that starts others without end meets its limit, and nobody else does.
    let text = "sh -c 'while sleep 1000 & do :; done' 2>/dev/null; echo $?; echo full >/tmp/full; \
                while :; do read line </sys/fs/cgroup/pids.events; done";
    daemon.keep_specified("c", text, |spec| {
        spec["linux"]["resources"] = json!({ "pids": { "limit": 12 } });
    })?;
    let text = "until test -e /tmp/full; do :; done; read line </sys/fs/cgroup/pids.events; \
                echo $line; read now </sys/fs/cgroup/pids.current; echo $now";
    let found = daemon.exec("c", text, 0)?;
    let (events, now) = found.trim().split_once('\n').unwrap_or_default();
    ensure!(events.starts_with("max ") && events != "max 0", "{found}");
    // The shell that met the limit has ended.
    ensure!(now.parse().is_ok_and(|now: u64| (10..=12).contains(&now)), "{found}");
    let text = daemon.ctr(&["task", "metrics", "c"], 0)?;
    let number = |key: &str| -> u64 {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(key));
        let value = line.and_then(|line| line.split_whitespace().nth(1));
        value.and_then(|value| value.parse().ok()).unwrap_or_default()
    };
    ensure!(number("pids.current") >= 9 && number("pids.limit") == 12, "{text}");
    ensure!(number("cpu.usage_usec") > 0 && number("memory.usage") > 4096, "{text}");
    end_of(&daemon, "c")?;
    // Amounts that are none.
    let wrong = json!({ "pids": { "limit": -7 } });
    let said = daemon.refused("one", |spec| spec["linux"]["resources"] = wrong.clone())?;
    ensure!(said.contains("the limit of processes is -7"), "{said}");
    let wrong = json!({ "unified": { "cpuset.cpus": "0" } });
    let said = daemon.refused("one", |spec| spec["linux"]["resources"] = wrong.clone())?;
    ensure!(said.contains("cannot set cpuset.cpus to 0"), "{said}");
    daemon.is_clean()
}

pub fn updates(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    daemon.keep_specified("c", "sleep 1000; true", |spec| {
        spec["linux"]["resources"] = json!({ "memory": { "limit": 64 << 20 } });
    })?;
    let read = "cd /sys/fs/cgroup; for file in memory.max cpu.max pids.max; do read line <$file; \
                echo $line; done";
    same(&daemon.exec("c", read, 0)?, "67108864\nmax 100000\nmax\n")?;
    let said = daemon.update(
        "c",
        &json!({
            "memory": { "limit": 48 << 20 }, "cpu": { "quota": 20_000 }, "pids": { "limit": 99 },
        }),
    )?;
    same(&said, "")?;
    same(&daemon.exec("c", read, 0)?, "50331648\n20000 100000\n99\n")?;
    for (resources, why) in [
        (json!({ "memory": { "limit": 1_u64 << 40 } }), "more than the memory of the machine"),
        (json!({ "cpu": { "quota": 900_000, "period": 100_000 } }), "processors of the machine"),
        (json!({ "memory": { "limit": -9 } }), "the limit of memory is -9"),
        (json!({ "cpu": { "quota": 1 } }), "cannot set cpu.max"),
        (json!({ "memory": { "limit": 4096, "checkBeforeUpdate": true } }), "are in use"),
        (json!("a word"), "cannot read the resources"),
    ] {
        let said = daemon.update("c", &resources)?;
        ensure!(said.contains(why), "{resources}: {said:?}");
    }
    same(&daemon.exec("c", read, 0)?, "50331648\n20000 100000\n99\n")?;
    end_of(&daemon, "c")?;
    daemon.is_clean()
}

pub fn lacks(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    let events = daemon.events()?;
    let [kind, sandbox] = pod_options("sandbox");
    daemon.keep(&["--annotation", &kind, "--annotation", &sandbox], "pod", "sleep 1000; true")?;
    let [kind, sandbox] = pod_options("container");
    let of_pod = ["--annotation", &kind, "--annotation", &sandbox];
    let less = ["--memory-limit", "25165824"];
    let program = "busybox tail /dev/zero; echo $? >/tmp/status; sleep 1000; true";
    daemon.keep(&[&of_pod[..], &less].concat(), "app", program)?;
    let text = "until test -s /tmp/status; do sleep 0.1; done; cat /tmp/status";
    same(&daemon.exec("app", text, 0)?, "137\n")?;
    let end = Instant::now() + PATIENCE;
    while !events.text()?.contains("/tasks/oom {\"container_id\":\"app\"}") {
        ensure!(Instant::now() < end, "nothing was told: {}", events.text()?);
        std::thread::sleep(Duration::from_millis(50));
    }
    for name in ["app", "pod"] {
        daemon.await_state(name, "RUNNING")?;
        end_of(&daemon, name)?;
    }
    let told = events.text()?;
    ensure!(told.matches("/tasks/oom").count() == 1, "{told}");
    drop(events);
    daemon.is_clean()
}

pub fn pauses(_: &Hayate) -> Result<()> {
    let daemon = Daemon::start()?;
    for (name, kind) in [("pod", "sandbox"), ("app", "container")] {
        let [kind, sandbox] = pod_options(kind);
        let options = ["--annotation", &kind, "--annotation", &sandbox];
        let text = "while :; do echo >>/dev/shm/count; sleep 0.02; done";
        daemon.keep(&options, name, text)?;
    }
    let counted = "until test -s /dev/shm/count; do :; done; stat -c %s /dev/shm/count";
    let count = |name: &str| daemon.exec(name, counted, 0);
    count("app")?;
    daemon.ctr(&["task", "pause", "app"], 0)?;
    daemon.await_state("app", "PAUSED")?;
    daemon.await_state("pod", "RUNNING")?;
    let before = count("pod")?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(count("pod")? != before, "the other container rests, too");
    let words = ["task", "exec", "--exec-id", "e", "app", "/bin/true"];
    let output = daemon.ctr_output(&words)?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && said.contains("is paused"), "{said}");
    let used = || daemon.ctr(&["task", "metrics", "app"], 0);
    let usage = |text: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with("cpu.usage_usec"))?;
        Some(line.to_string())
    };
    let first = usage(&used()?);
    std::thread::sleep(Duration::from_millis(300));
    ensure!(first.is_some() && usage(&used()?) == first, "it goes on");
    daemon.ctr(&["task", "resume", "app"], 0)?;
    daemon.await_state("app", "RUNNING")?;
    let before = count("app")?;
    std::thread::sleep(Duration::from_millis(300));
    ensure!(count("app")? != before, "it does not go on");
    // One that rests can be killed.
    daemon.ctr(&["task", "pause", "app"], 0)?;
    daemon.await_state("app", "PAUSED")?;
    for name in ["app", "pod"] {
        end_of(&daemon, name)?;
    }
    daemon.is_clean()
}
