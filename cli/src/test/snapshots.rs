//! Black-box tests of snapshots: what programs in clones print and how they end, what clones have
//! of their own, what is refused, and what is left when anything of it is killed.

use super::Trial;
use super::command::{Check, Hayate, expect, trials_of};
use crate::arguments::Test;
use crate::machines::manage::resident;
use crate::paths;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CHECKS: [(&str, Check); 12] = [
    ("twenty_clones_run_side_by_side_in_two_gib", twenty),
    ("one_is_made_used_shown_replaced_and_removed", whole_life),
    ("statuses_and_streams_are_those_of_run", streams),
    ("clones_are_no_twins", no_twins),
    ("clocks_are_right_and_do_not_jump", clocks),
    ("what_a_clone_writes_is_its_own", own_files),
    ("a_warm_up_is_in_it_and_its_programs_are_not", warm),
    ("a_machine_that_stays_begins_at_one", stays),
    ("other_options_and_files_are_refused", refused),
    ("a_maker_that_is_killed_leaves_nothing", killed_maker),
    ("a_full_disk_leaves_the_old_one", full_disk),
    ("two_processors_and_a_microvm_are_saved_too", other_machines),
];

/// How long anything may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a clone may have of the host's memory beside the snapshot's file and QEMU's program, in
/// bytes.
const MOST_OF_ONE: u64 = 30 << 20;

/// The trials.
pub fn trials(options: &Test) -> Vec<Trial> {
    // Nothing of this is about Linux.
    if options.guest_linux { Vec::new() } else { trials_of("snapshots", &CHECKS, options) }
}

/// A snapshot of a test; it is removed at the end, whatever happened.
struct Saved<'a> {
    hayate: &'a Hayate,
    name: String,
}

impl Drop for Saved<'_> {
    fn drop(&mut self) {
        if let Ok(mut remove) = self.hayate.any("snapshot") {
            let _ = remove.args(["rm", &self.name]).output();
        }
    }
}

impl<'a> Saved<'a> {
    /// One that is not made.
    fn new(hayate: &'a Hayate) -> Saved<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Saved { hayate, name: format!("test-{}-{number}", std::process::id()) }
    }

    /// `./hayate snapshot make`, not executed.
    fn command(&self, options: &[&str]) -> Result<Command> {
        let mut make = self.hayate.any("snapshot")?;
        make.args(["make", &self.name]).args(options);
        Ok(make)
    }

    fn made(hayate: &'a Hayate, options: &[&str]) -> Result<Saved<'a>> {
        let saved = Saved::new(hayate);
        expect(&saved.command(options)?.output()?, 0, "", "")?;
        Ok(saved)
    }

    /// `./hayate run --from`, not executed.
    fn clone(&self, options: &[&str], program: &[&str]) -> Result<Command> {
        let mut run = self.hayate.any("run")?;
        run.args(["--from", &self.name]).args(options);
        if !options.contains(&"--timeout") {
            run.args(["--timeout", "120"]);
        }
        if !program.is_empty() {
            run.arg("--").args(program);
        }
        Ok(run)
    }

    fn shell(&self, script: &str) -> Result<Output> {
        Ok(self.clone(&[], &["/bin/sh", "-c", script])?.output()?)
    }

    /// What a script prints; it must end well.
    fn says(&self, script: &str) -> Result<String> {
        let output = self.shell(script)?;
        ensure!(output.status.success() && output.stderr.is_empty(), "{script}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn manage(&self, request: &str) -> Result<Output> {
        Ok(self.hayate.any("snapshot")?.args([request, &self.name]).output()?)
    }

    fn file(&self, name: &str) -> Result<PathBuf> {
        Ok(paths::build("snapshots")?.join(&self.name).join(name))
    }
}

/// Waits for a condition.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        ensure!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the children of a process.
fn children(pid: u32) -> Vec<i32> {
    let lists = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let read = |list: std::fs::DirEntry| std::fs::read_to_string(list.path().join("children")).ok();
    let texts: Vec<_> = lists.filter_map(read).collect();
    texts
        .iter()
        .flat_map(|text| text.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Folders of makers that are at work or were killed.
fn unfinished() -> Result<usize> {
    let list = paths::build("snapshots")?.read_dir()?.flatten();
    Ok(list.filter(|entry| entry.file_name().to_string_lossy().starts_with(".making-")).count())
}

fn whole_life(hayate: &Hayate) -> Result<()> {
    // What warm-ups print is on standard error.
    let loud = Saved::new(hayate);
    let options = ["--memory", "128M", "--warm", "sh -c 'echo out; echo err >&2'"];
    expect(&loud.command(&options)?.output()?, 0, "", "out\nerr\n")?;
    let saved = Saved::made(hayate, &["--memory", "256M", "--warm", "/bin/true"])?;
    expect(&saved.shell("echo $((6*7))")?, 0, "42\n", "")?;
    let shown = saved.manage("show")?;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let command = format!("command: ./hayate snapshot make {} --memory 256M", saved.name);
    ensure!(shown.status.success() && text.contains(&command), "{shown:?}");
    ensure!(text.contains("warm-up: /bin/true\n") && text.contains("usable: yes\n"), "{text}");
    let list = hayate.any("snapshot")?.arg("list").output()?;
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    let line = text.lines().find(|line| line.starts_with(&saved.name)).context("not listed")?;
    ensure!(line.contains("256 MiB") && line.ends_with("ready"), "{line}");
    // A warm-up that fails makes nothing and replaces nothing.
    let failing = saved.command(&["--memory", "128M", "--warm", "sh -c 'exit 3'"])?.output()?;
    expect(&failing, 125, "", "ended with status 3: no snapshot is made")?;
    let missing = saved.command(&["--warm", "no-such-program"])?.output()?;
    expect(&missing, 125, "", "there is no program no-such-program")?;
    expect(&saved.command(&["--warm", "'"])?.output()?, 2, "", "a quote is not closed")?;
    expect(&saved.shell("grep -c ^MemTotal /proc/meminfo")?, 0, "1\n", "")?;
    // Another one takes its place, also while a clone runs.
    let mut clone = saved.clone(&[], &["sh", "-c", "echo begun; read line; echo $line"])?;
    let mut clone = clone.stdin(Stdio::piped()).spawn()?;
    let mut begun = [0; 6];
    clone.stdout.as_mut().context("no output")?.read_exact(&mut begun)?;
    expect(&saved.command(&["--memory", "128M"])?.output()?, 0, "", "")?;
    let kib: u64 = saved.says("awk '/^MemTotal/ { print $2 }' /proc/meminfo")?.trim().parse()?;
    ensure!(kib < 128 << 10, "the new one has {kib} KiB");
    expect(&saved.manage("rm")?, 0, "", "")?;
    writeln!(clone.stdin.take().context("no input")?, "still there")?;
    expect(&clone.wait_with_output()?, 0, "still there\n", "")?;
    expect(&saved.shell("true")?, 125, "", "there is no snapshot")?;
    expect(&saved.manage("rm")?, 125, "", "there is no snapshot")
}

fn streams(hayate: &Hayate) -> Result<()> {
    let saved = Saved::made(hayate, &["-e", "COLOUR=blue", "-w", "/usr"])?;
    let ends = |program: &[&str], status: i32, out: &str, err: &str| -> Result<()> {
        expect(&saved.clone(&[], program)?.output()?, status, out, err)
    };
    ends(&["sh", "-c", "echo out; echo err >&2; exit 7"], 7, "out\n", "err\n")?;
    ends(&["sh", "-c", "kill -KILL $$"], 137, "", "")?;
    ends(&["no-such-program"], 127, "", "there is no program no-such-program")?;
    ends(&["/etc/passwd"], 126, "", "cannot run /etc/passwd")?;
    ends(&["sh", "-c", "echo $COLOUR $(pwd) $(id -u)"], 0, "blue /usr 0\n", "")?;
    let others = ["-e", "COLOUR=red", "-w", "/tmp", "-u", "1000"];
    let script = "echo $COLOUR $(pwd) $(id -u)";
    expect(&saved.clone(&others, &["sh", "-c", script])?.output()?, 0, "red /tmp 1000\n", "")?;
    let bytes: Vec<u8> =
        (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child = saved.clone(&[], &["cat"])?.stdin(Stdio::piped()).spawn()?;
    let (mut input, sent) = (child.stdin.take().context("no input")?, bytes.clone());
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = child.wait_with_output()?;
    ensure!(writer.join().is_ok_and(|written| written.is_ok()), "the input was not taken");
    ensure!(output.stdout == bytes && output.status.success(), "3 MB came back changed");
    let limit = saved.clone(&["--timeout", "2"], &["sleep", "100"])?.output()?;
    ensure!(limit.status.code() == Some(124), "the time limit: {limit:?}");
    // A signal is passed on.
    let script = "trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = saved.clone(&[], &["sh", "-c", script])?.spawn()?;
    let mut output = child.stdout.take().context("no output")?;
    let mut ready = [0; 6];
    output.read_exact(&mut ready)?;
    let pid = Pid::from_raw(child.id().cast_signed()).context("no number")?;
    kill_process(pid, Signal::INT)?;
    let mut rest = String::new();
    output.read_to_string(&mut rest)?;
    ensure!(rest == "caught\n" && child.wait()?.code() == Some(3), "{rest:?}");
    // A reader that leaves ends the program, as in a pipe.
    let mut child = saved.clone(&[], &["yes"])?.spawn()?;
    drop(child.stdout.take());
    let status = child.wait()?.code();
    ensure!(status == Some(128 + 13), "yes without a reader ended with {status:?}");
    Ok(())
}

/// Prints the address of the network device.
const ADDRESS: &str = "ip link show eth0 | awk '/ether/ { print $2 }'";
/// Prints what identifies a machine, one word a line, but for [`ADDRESS`].
const IDENTITY: &str = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; \
    od -An -tx8 -N8 /dev/urandom | tr -d ' '; cat /proc/sys/kernel/random/uuid; \
    cat /proc/hayate/fresh; grep -c $(hostname) /etc/hosts; ";

fn no_twins(hayate: &Hayate) -> Result<()> {
    // The maker has used all of them.
    let used = "sh -c 'cat /proc/sys/kernel/random/boot_id; od -N8 /dev/urandom >/dev/null' ";
    let saved = Saved::new(hayate);
    let made = saved.command(&["--warm", used])?.output()?;
    ensure!(made.status.success(), "{made:?}");
    let script = format!("{IDENTITY}{ADDRESS}");
    let lines = |text: String| text.lines().map(String::from).collect::<Vec<_>>();
    let machines = [lines(saved.says(&script)?), lines(saved.says(&script)?)];
    let names = [
        (0, "host name"),
        (1, "machine-id"),
        (2, "boot_id"),
        (3, "random number"),
        (4, "uuid"),
        (7, "address"),
    ];
    for (index, name) in names {
        let [one, other] = [&machines[0], &machines[1]].map(|machine| machine.get(index));
        ensure!(one.is_some() && one != other, "two clones have the {name} {one:?}");
    }
    let maker = String::from_utf8_lossy(&made.stderr).into_owned();
    ensure!(!maker.contains(&machines[0][2]), "the boot_id is that of the snapshot: {maker}");
    for machine in &machines {
        ensure!(machine[0].starts_with(&saved.name[..20.min(saved.name.len())]), "{machine:?}");
        ensure!(machine[1].len() == 32, "no machine-id: {machine:?}");
        ensure!(machine[5..7] == ["1", "1"], "fresh, or not in /etc/hosts: {machine:?}");
    }
    let given = saved.clone(&["--mac", "02:00:00:00:00:07"], &["sh", "-c", ADDRESS])?.output()?;
    expect(&given, 0, "02:00:00:00:00:07\n", "")?;
    // Only root may make a machine another one, and only by enough bytes.
    let script = "echo 00 >/proc/hayate/fresh 2>/dev/null || echo few; \
        printf '%064d' 0 >/proc/hayate/fresh && cat /proc/hayate/fresh";
    expect(&saved.shell(script)?, 0, "few\n2\n", "")?;
    // The network is that of any machine.
    let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    let port = server.local_addr()?.port();
    let answer = std::thread::spawn(move || -> std::io::Result<()> {
        server.accept()?.0.write_all(b"reached\n")
    });
    let script = format!("exec 3<>/dev/tcp/10.0.2.2/{port}; cat <&3");
    let reached = saved.clone(&[], &["bash", "-c", &script])?.output()?;
    expect(&reached, 0, "reached\n", "")?;
    answer.join().ok().context("the server panicked")?.context("nobody came")?;
    let ip = "ip -o addr show dev eth0 | wc -l; ip route | grep -c default";
    ensure!(saved.says(ip)? == "2\n1\n", "addresses: {}", saved.says("ip addr; ip route")?);
    Ok(())
}

fn clocks(hayate: &Hayate) -> Result<()> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let saved = Saved::made(hayate, &[])?;
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs(3));
    let before = now();
    let text = saved.says("date +%s.%N; cut -d' ' -f1 /proc/uptime")?;
    let after = now();
    let mut lines = text.lines().map(str::parse::<f64>);
    let (wall, uptime) = (lines.next().context("no time")??, lines.next().context("no uptime")??);
    ensure!((before - 0.2..after + 0.2).contains(&wall), "{wall} is not {before} to {after}");
    // The time between is not the machine's.
    let most = uptime < began.elapsed().as_secs_f64() + 60.0;
    ensure!(uptime > 0.0 && most, "the machine runs since {uptime} s");
    // A sleep in a clone is as long as anywhere.
    let began = Instant::now();
    saved.says("sleep 1")?;
    ensure!(began.elapsed() >= Duration::from_secs(1), "a second has {:?}", began.elapsed());
    Ok(())
}

fn own_files(hayate: &Hayate) -> Result<()> {
    let saved = Saved::made(hayate, &["--warm", "sh -c 'echo saved >/root/file'"])?;
    let checksum = || -> Result<Vec<u8>> {
        let output = Command::new("cksum").arg(saved.file("memory")?).output()?;
        Ok(output.stdout)
    };
    let before = checksum()?;
    let script = "cat /root/file; echo mine >>/root/file; dd if=/dev/urandom of=/tmp/large bs=1M \
        count=20 2>/dev/null; ls /tmp | wc -l";
    for _ in 0..2 {
        expect(&saved.shell(script)?, 0, "saved\n1\n", "")?;
    }
    ensure!(checksum()? == before, "the snapshot's memory has changed");
    Ok(())
}

fn warm(hayate: &Hayate) -> Result<()> {
    let options = ["--recycle", "full+image", "--times", "4", "--warm", "/usr/bin/true"];
    let saved = Saved::made(hayate, &options)?;
    // The first start in a clone begins at the image of the warm-up.
    let name = format!("{}-machine", saved.name);
    let any = |request: &str, words: &[&str]| -> Result<Output> {
        Ok(hayate.any(request)?.args(words).output()?)
    };
    let started = any("start", &["--from", &saved.name, "--name", &name])?;
    let result = (|| {
        expect(&started, 0, &format!("{name}\n"), "")?;
        let script = "resource show image/$(resource list image | awk '/bin.true/ { print $2 }') | \
            awk '$1 == \"starts\" { print $2 }'";
        let starts = || -> Result<u64> {
            let output = any("exec", &[&name, "--", "sh", "-c", script])?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.trim().parse().with_context(|| format!("no image: {output:?}"))
        };
        let before = starts()?;
        expect(&any("exec", &[&name, "--", "/usr/bin/true"])?, 0, "", "")?;
        let after = starts()?;
        ensure!(after == before + 1, "{before} starts from the image, then {after}");
        Ok(())
    })();
    let _ = any("rm", &["-f", &name]);
    result?;
    // What a warm-up leaves running is ended, and its files stay.
    let left = "sh -c 'echo there >/tmp/file; setsid sleep 1000 >/dev/null 2>&1 </dev/null &'";
    let saved = Saved::made(hayate, &["--warm", left])?;
    let text = saved.says("cat /tmp/file; ps ax | grep -c '[s]leep 1000'; true")?;
    ensure!(text == "there\n0\n", "{text:?}");
    // A program that said that it is ready is kept by the kernel.
    let saved = Saved::new(hayate);
    let made = saved.command(&["--warm", "template make py --python=json"])?.output()?;
    ensure!(made.status.success(), "{made:?}");
    let start = ["template", "start", "py", "--", "-c", "import json; print(json.dumps([7]))"];
    expect(&saved.clone(&[], &start)?.output()?, 0, "[7]\n", "")
}

fn stays(hayate: &Hayate) -> Result<()> {
    let saved = Saved::made(hayate, &["--memory", "256M"])?;
    let name = format!("{}-machine", saved.name);
    let any = |request: &str, words: &[&str]| -> Result<Output> {
        Ok(hayate.any(request)?.args(words).output()?)
    };
    let started = any("start", &["--from", &saved.name, "--name", &name, "-e", "A=b"])?;
    let result = (|| {
        expect(&started, 0, &format!("{name}\n"), "")?;
        let script = "hostname; echo $A; echo kept >/root/file";
        let output = any("exec", &[&name, "--", "sh", "-c", script])?;
        expect(&output, 0, &format!("{name}\nb\n"), "")?;
        expect(&any("exec", &[&name, "--", "cat", "/root/file"])?, 0, "kept\n", "")?;
        let listed = any("ps", &[])?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with(&name)).context("not listed")?;
        ensure!(line.contains("256 MiB"), "{line}");
        expect(&any("stop", &[&name])?, 0, "", "")
    })();
    let _ = any("rm", &["-f", &name]);
    result?;
    // With a program of its own.
    let first = ["--from", &saved.name, "--name", &name, "--", "sh", "-c", "echo first; exit 3"];
    let result = (|| {
        expect(&any("start", &first)?, 0, &format!("{name}\n"), "")?;
        until("the output of the first program", || Ok(any("logs", &[&name])?.stdout == b"first\n"))
    })();
    let _ = any("rm", &["-f", &name]);
    result
}

fn refused(hayate: &Hayate) -> Result<()> {
    let saved = Saved::made(hayate, &["--memory", "128M"])?;
    let told = |options: &[&str], status: i32, text: &str| -> Result<()> {
        let output = saved.clone(options, &["true"])?.output()?;
        let lines = output.stderr.iter().filter(|&&byte| byte == b'\n').count();
        ensure!(lines == 1, "{options:?}: {lines} lines: {output:?}");
        expect(&output, status, "", text)
    };
    told(&["--memory", "1G"], 2, "was made with another --memory (128M)")?;
    told(&["--cpus", "2"], 2, "another --cpus (1)")?;
    told(&["--machine", "microvm"], 2, "another --machine (q35)")?;
    told(&["--cpu", "Haswell"], 2, "another --cpu (max)")?;
    told(&["--deterministic"], 2, "another --deterministic (no)")?;
    told(&["--rootfs", "/usr"], 2, "another --rootfs (none)")?;
    told(&["--net", "none"], 2, "has a network device")?;
    expect(&saved.clone(&["--memory", "128M"], &["true"])?.output()?, 0, "", "")?;
    let make = |options: &[&str], text: &str| -> Result<()> {
        let other = Saved::new(hayate);
        expect(&other.command(options)?.output()?, 2, "", text)
    };
    make(&["--deterministic"], "--deterministic counts")?;
    make(&["--linux"], "leave --linux out")?;
    make(&["--nvm", "64M"], "non-volatile")?;
    make(&["--", "true"], "--warm")?;
    // Files that are not those that were made.
    let other = Saved::made(hayate, &["--memory", "128M"])?;
    let own = std::fs::read(saved.file("manifest")?)?;
    std::fs::copy(other.file("memory")?, saved.file("memory")?)?;
    told(&[], 125, "memory is of another one")?;
    std::fs::copy(other.file("manifest")?, saved.file("manifest")?)?;
    told(&[], 125, "devices is cut short or was changed")?;
    File::options().write(true).open(saved.file("memory")?)?.set_len(100 << 20)?;
    std::fs::copy(other.file("devices")?, saved.file("devices")?)?;
    told(&[], 125, "memory is cut short")?;
    std::fs::write(saved.file("manifest")?, &own[..own.len() / 2])?;
    told(&[], 125, "manifest is cut short")?;
    let shown = saved.manage("show")?;
    ensure!(shown.status.code() == Some(125), "{shown:?}");
    Ok(())
}

fn killed_maker(hayate: &Hayate) -> Result<()> {
    // Not one that is asked for its version.
    let machines = |maker: u32| {
        let is_machine = |pid: &i32| {
            let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split('\0').any(|word| word == "-nodefaults")
        };
        children(maker).into_iter().filter(is_machine).collect::<Vec<_>>()
    };
    let saved = Saved::new(hayate);
    let before = unfinished()?;
    let mut maker = saved.command(&["--warm", "sleep 1000"])?.spawn()?;
    until("QEMU", || Ok(!machines(maker.id()).is_empty()))?;
    let qemu = machines(maker.id());
    maker.kill()?;
    maker.wait()?;
    until("QEMU to end", || {
        Ok(qemu.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}/exe")).exists()))
    })?;
    let list = hayate.any("snapshot")?.args(["list", "-q"]).output()?;
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    ensure!(!text.contains(&saved.name), "{text}");
    until("the folder to go", || {
        hayate.any("snapshot")?.args(["list", "-q"]).output()?;
        Ok(unfinished()? <= before)
    })?;
    // QEMU alone.
    let mut maker = saved.command(&["--warm", "sleep 1000"])?.spawn()?;
    until("QEMU", || Ok(!machines(maker.id()).is_empty()))?;
    std::thread::sleep(Duration::from_millis(500));
    for pid in machines(maker.id()) {
        kill_process(Pid::from_raw(pid).context("no number")?, Signal::KILL)?;
    }
    let output = maker.wait()?;
    ensure!(output.code() == Some(125), "{output:?}");
    Ok(())
}

/// In a mount namespace of its own the folder of all snapshots is a disk with room for one.
fn full_disk(hayate: &Hayate) -> Result<()> {
    const SCRIPT: &str = "mount -t tmpfs -o size=32m none \"$1\" || exit 77
        \"$0\" snapshot make old --memory 128M --warm \"sh -c 'echo old >/root/file'\" || exit 1
        \"$0\" snapshot make old --memory 128M \\
            --warm \"dd status=none if=/dev/urandom of=/root/file bs=1M count=24\" && exit 2
        ls \"$1\"; \"$0\" run --from old -- cat /root/file";
    let command = hayate.any("snapshot")?;
    let folder = paths::build("snapshots")?;
    let mut apart = Command::new("unshare");
    apart.args(["-r", "-m", "sh", "-c", SCRIPT]).arg(command.get_program()).arg(folder);
    for (name, value) in command.get_envs() {
        apart.env(name, value.unwrap_or_default());
    }
    let output = apart.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // A host that gives its users no namespaces.
    if output.status.code() == Some(77) || said.starts_with("unshare:") {
        return Ok(());
    }
    expect(&output, 0, "old\nold\n", "cannot write the snapshot old: No space left")
}

fn other_machines(hayate: &Hayate) -> Result<()> {
    let both = "sh -c 'nproc; sh -c \"exit 0\" & wait'";
    for options in [&["--cpus", "2", "--warm", both][..], &["--machine", "microvm"]] {
        let saved = Saved::new(hayate);
        let made = saved.command(options)?.output()?;
        ensure!(made.status.success(), "{options:?}: {made:?}");
        let cpus = if options.contains(&"2") { "2\n" } else { "1\n" };
        for _ in 0..2 {
            expect(&saved.shell("nproc")?, 0, cpus, "")?;
        }
    }
    let saved = Saved::made(hayate, &["--net", "none"])?;
    expect(&saved.shell("ip -o link | wc -l")?, 0, "1\n", "")
}

/// Bytes that only this process has.
fn private(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    let kib = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Some(kib.sum::<u64>() << 10)
}

fn twenty(hayate: &Hayate) -> Result<()> {
    const MANY: usize = 20;
    let saved = Saved::made(hayate, &["--warm", "/bin/true"])?;
    let start = |number: usize| -> Result<Child> {
        let script = "true; read word; echo $word-$0; echo begun >&2; read end; hostname; exit $0";
        let mut clone = saved.clone(&[], &["/bin/sh", "-c", script, &number.to_string()])?;
        Ok(clone.stdin(Stdio::piped()).spawn()?)
    };
    let mut clones = (0..MANY).map(start).collect::<Result<Vec<_>>>()?;
    for (number, clone) in clones.iter_mut().enumerate() {
        writeln!(clone.stdin.as_mut().context("no input")?, "in{number}")?;
    }
    for clone in &mut clones {
        let mut begun = [0; 6];
        clone.stderr.as_mut().context("no error output")?.read_exact(&mut begun)?;
    }
    let machines: Vec<i32> = clones.iter().flat_map(|clone| children(clone.id())).collect();
    ensure!(machines.len() == MANY, "{} machines for {MANY} clones", machines.len());
    let sum: u64 = machines.iter().filter_map(|&pid| resident(pid)).sum();
    let most = machines.iter().filter_map(|&pid| private(pid)).max().unwrap_or_default();
    ensure!(sum < 2 << 30, "{MANY} clones have {} MiB", sum >> 20);
    ensure!(most < MOST_OF_ONE, "a clone has {} KiB for itself", most >> 10);
    // Half of them are killed: the command or QEMU.
    let mut names = BTreeSet::new();
    for (number, mut clone) in clones.into_iter().enumerate() {
        let machine = children(clone.id());
        match number % 4 {
            0 => {
                clone.kill()?;
                clone.wait()?;
            }
            1 => {
                for pid in &machine {
                    kill_process(Pid::from_raw(*pid).context("no number")?, Signal::KILL)?;
                }
                let status = clone.wait()?.code();
                ensure!(status == Some(125), "QEMU was killed: {status:?}");
            }
            _ => {
                writeln!(clone.stdin.take().context("no input")?, "end")?;
                let output = clone.wait_with_output()?;
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let own = format!("in{number}-{number}\n");
                ensure!(text.starts_with(&own), "{text:?} {output:?}");
                ensure!(output.status.code() == Some(number as i32), "{output:?}");
                names.insert(text);
            }
        }
        until("QEMU to end", || {
            let there = |pid: &i32| std::path::Path::new(&format!("/proc/{pid}/exe")).exists();
            Ok(!machine.iter().any(there))
        })?;
    }
    ensure!(names.len() == MANY / 2, "clones have a name in common");
    // A clone that is started now is undisturbed, and nothing is left.
    expect(&saved.shell("echo there")?, 0, "there\n", "")?;
    let folder = saved.file("")?;
    ensure!(folder.read_dir()?.count() == 3, "something is left in {}", folder.display());
    Ok(())
}
