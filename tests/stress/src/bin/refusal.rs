//! Refuses the guest suite's cases a request for memory, one after the other.
//!
//! Needs a kernel for tests (`/proc/hayate/refusal`). Each case of the named programs runs
//! repeatedly: first undisturbed, then with its first request refused, then its second, and so on
//! until it ends without a refusal. With `--places` a request is passed over if one was refused
//! before at the same place of the kernel, so that a case runs once for each fresh place. Of a case
//! that takes long, only first visits of places are fresh, and no more than fit into some minutes:
//! otherwise a few cases that wait by the clock, or start hundreds of programs, take most of the
//! time and meet the same places.
//!
//! The case may then fail, or be killed. The requirements are that it ends, that the kernel
//! survives, and that the kernel does not hold more after each sweep through all cases of a
//! program. How the cases ended is counted, and `--odd` shows the failures that name neither a
//! lack of memory nor a signal: each should be the consequence of such a lack.

use hayate_stress::balance::{Memory, memory};
use hayate_stress::{Options, fork, wait};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::time::{Duration, Instant};

const USAGE: &str = "refusal [OPTION...] FOLDER

Runs every case of the programs in FOLDER with its N-th request for memory refused.
  --places N   only at fresh places of the kernel: once at each of the first N visits of a place
               in a run, at most 32
  --each       places are fresh for each case again, not for each program
  --stride N   refuse only every N-th request; each case begins with another one [1]
  --only AREAS only these programs, separated by commas
  --case NAME  only cases with NAME in their names
  --most N     no more than N refusals of each case [1000]
  --sweeps N   sweep a program so often before growth counts as a leak [4]
  --odd        show failures that name neither a lack of memory nor a signal
  --watch      show after which refusals the kernel held more than before
Example: refusal --places 2 --only pipe --case splice /tests/static";

/// The time limit of an undisturbed case, in seconds. Disturbed ones get little more than they took
/// then: many wait for a process that was killed.
const LIMIT: u64 = 10;
/// How long the runner may take to come to its end after that.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a case runs with the same request refused; as many additional objects are a leak.
const LEAKS: u64 = 8;
/// How often it runs with each of its requests refused, to find out whether it leaks.
const FEW: u64 = 3;

/// Programs that are swept only when named with `--only`, and why.
const LEFT_OUT: [(&str, &str); 3] = [
    ("mode", "changes the mode in which the machine's programs run"),
    ("pressure", "needs a machine with less memory; all its cases are skipped"),
    ("rust-std", "its runner does not arm its cases"),
];

/// Programs whose cases make TCP connections. What the kernel holds before their first sweep is
/// read when the connections of the runs that passed are over: they would hide as many leaks.
const CONNECTING: [&str; 9] =
    ["icmp", "inet", "pathmtu", "procnet", "tcp", "tcpdata", "tcpevent", "tcpfilter", "tcpopt"];
/// The lists of TCP connections.
const CONNECTIONS: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// How long connections may last after their case: a minute in FIN-WAIT-2, one in TIME-WAIT
/// (tcp(7)), and some more for segments that are sent again.
const LINGER: Duration = Duration::from_secs(150);

/// The kernel's interface.
const REFUSAL: &str = "/proc/hayate/refusal";

/// A number of the kernel's: how many requests were `refused`, and others.
fn number(name: &str) -> u64 {
    let text = match fs::read_to_string(REFUSAL) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("refusal: {REFUSAL}: {error}: not a kernel for tests");
            exit(2);
        }
    };
    let number = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Writes a command to the kernel's interface.
fn command(text: &str) {
    if let Err(error) = fs::write(REFUSAL, text) {
        eprintln!("refusal: {REFUSAL}: {text}: {error}");
        exit(2);
    }
}

/// The state before the first case: a case that does not finish leaves mounts, files, settings and
/// System V objects behind.
struct Before {
    mounts: String,
    files: Vec<PathBuf>,
    settings: Vec<String>,
    objects: Vec<(usize, i32)>,
}

/// The folders in which cases leave files.
const PLACES: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"];

/// The settings that cases change, as far as later ones depend on them.
const SETTINGS: [&str; 2] = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/core_uses_pid"];

fn settings() -> Vec<String> {
    SETTINGS.iter().map(|name| fs::read_to_string(name).unwrap_or_default()).collect()
}

/// The lists of System V objects; the identifier is the second word of a line (`sysvipc(7)`).
const OBJECTS: [&str; 3] = ["/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"];

/// The System V objects: which list, and the identifier.
fn objects() -> Vec<(usize, i32)> {
    let list = |at: usize| {
        let text = fs::read_to_string(OBJECTS[at]).unwrap_or_default();
        let id = |line: &str| line.split_whitespace().nth(1)?.parse().ok();
        text.lines().skip(1).filter_map(id).map(|id| (at, id)).collect::<Vec<_>>()
    };
    (0..OBJECTS.len()).flat_map(list).collect()
}

/// Removes a System V object.
fn remove_object((list, id): (usize, i32)) {
    // SAFETY: IPC_RMID takes no further argument.
    unsafe {
        match list {
            0 => libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()),
            1 => libc::semctl(id, 0, libc::IPC_RMID),
            _ => libc::msgctl(id, libc::IPC_RMID, std::ptr::null_mut()),
        }
    };
}

fn files() -> Vec<PathBuf> {
    let entries = PLACES.iter().filter_map(|place| fs::read_dir(place).ok());
    entries.flat_map(|entries| entries.flatten().map(|entry| entry.path())).collect()
}

impl Before {
    fn look() -> Before {
        let _ = fs::write(OUTPUT, "");
        Before {
            mounts: fs::read_to_string("/proc/mounts").unwrap_or_default(),
            files: files(),
            settings: settings(),
            objects: objects(),
        }
    }

    /// Unmounts and removes the mounts, files and System V objects that did not exist before, and
    /// makes the settings what they were.
    fn restore(&self) {
        let now = fs::read_to_string("/proc/mounts").unwrap_or_default();
        for line in now.lines().rev().filter(|line| !self.mounts.lines().any(|old| old == *line)) {
            if let Some(place) = line.split(' ').nth(1)
                && let Ok(place) = std::ffi::CString::new(place)
            {
                // SAFETY: a string that ends with a zero.
                unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) };
            }
        }
        let changed =
            |&at: &usize| fs::read_to_string(SETTINGS[at]).unwrap_or_default() != self.settings[at];
        for at in (0..SETTINGS.len()).filter(changed) {
            let _ = fs::write(SETTINGS[at], &self.settings[at]);
        }
        for object in objects().into_iter().filter(|object| !self.objects.contains(object)) {
            remove_object(object);
        }
        for file in files().iter().filter(|file| !self.files.contains(file)) {
            let _ = fs::remove_file(file).or_else(|_| fs::remove_dir_all(file));
        }
    }
}

/// The file for the output of a case.
const OUTPUT: &str = "/tmp/refusal.output";

/// A case that takes at least so long undisturbed is sampled.
const SLOW: Duration = Duration::from_secs(1);
/// How long the disturbed runs of a slow case may take in a sweep.
const SLOW_CASE: Duration = Duration::from_secs(120);

/// A case, and how long its runs take.
struct Case<'a> {
    name: &'a str,
    /// Undisturbed.
    took: Duration,
    /// The time limit, in seconds.
    limit: u64,
}

impl Case<'_> {
    /// Runs the case undisturbed; returns what it says if it does not pass.
    fn passing<'a>(program: &Path, name: &'a str) -> Result<Case<'a>, String> {
        let start = Instant::now();
        let undisturbed = Case { name, took: Duration::ZERO, limit: LIMIT };
        let said = run(program, &undisturbed, None).ok_or("no end")?;
        let took = start.elapsed();
        if said.contains(" ... ok") {
            return Ok(Case { name, took, limit: 1 + 2 * took.as_secs() });
        }
        let line = said.lines().find_map(|line| line.split_once(" ... "));
        Err(line.map_or(said.clone(), |(_, verdict)| verdict.to_string()))
    }

    fn is_slow(&self) -> bool {
        self.took >= SLOW
    }
}

/// Runs one case with what `refuse` says refused; returns its output, or `None` if it did not end.
fn run(program: &Path, case: &Case, refuse: Option<&str>) -> Option<String> {
    let mut command = Command::new(program);
    command.arg(case.name).env("TEST_TIMEOUT", case.limit.to_string());
    if let Some(refuse) = refuse {
        command.env("REFUSE_NTH", refuse);
    }
    let file = fs::File::create(OUTPUT).ok()?;
    command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let start = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if start.elapsed() > PATIENCE {
            return None;
        }
        std::thread::sleep(Duration::from_millis(if start.elapsed().as_millis() < 50 {
            1
        } else {
            20
        }));
    }
    fs::read_to_string(OUTPUT).ok()
}

/// Which requests of a case are refused.
#[derive(Clone, Copy)]
enum Plan {
    /// Every so many, no more than this number of them.
    Numbers { stride: u64, most: u64 },
    /// Those at fresh places: so many visits of each; fresh for `each` case or for a program.
    Places { visits: u64, each: bool, most: u64 },
}

/// How the runs of a program's cases ended.
#[derive(Default)]
struct Ends {
    /// As without a refusal.
    same: u64,
    /// The case failed, and named a lack of memory.
    lack: u64,
    killed: u64,
    /// The time limit ended the case.
    late: u64,
    /// All other failures.
    odd: u64,
    /// Sweeps of slow cases that their time ended.
    cut: u64,
    shown: BTreeSet<String>,
    /// Show the odd ones.
    show: bool,
    /// Show the runs after which the kernel held more.
    watch: bool,
}

impl Ends {
    fn count(&mut self, case: &str, said: &str) {
        let line = said.lines().find(|line| line.contains(" ... ")).unwrap_or(said);
        if line.ends_with(" ... ok") {
            self.same += 1;
        } else if ["memory", "ENOMEM"].iter().any(|lack| line.contains(lack)) {
            self.lack += 1;
        } else if line.contains("(killed by signal") {
            self.killed += 1;
        } else if line.contains("(no end within") {
            self.late += 1;
        } else {
            self.odd += 1;
            if self.show && self.shown.insert(line.to_string()) {
                let (call, last) = (number("call") as i64, number("last"));
                println!("    odd: {case}, request {last}, call {call}: {line}");
            }
        }
    }
}

impl std::fmt::Display for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ends { same, lack, killed, late, odd, cut, .. } = self;
        write!(f, "{same} the same, {lack} ENOMEM, {killed} killed, {late} late, {odd} other")?;
        if *cut > 0 { write!(f, "; {cut} times a slow case was cut short") } else { Ok(()) }
    }
}

/// Refuses requests of one case, one after the other; returns the numbers of those refused, or what
/// went wrong.
fn sweep(
    program: &Path,
    case: &Case,
    turn: u64,
    plan: Plan,
    ends: &mut Ends,
) -> Result<Vec<u64>, String> {
    let before = Before::look();
    let (first, stride, most) = match plan {
        Plan::Numbers { stride, most } => (1 + turn % stride, stride, most),
        Plan::Places { most, .. } => (1, 1, most),
    };
    if let Plan::Places { visits, each: true, .. } = plan {
        command(&format!("places {}", if case.is_slow() { 1 } else { visits }));
    }
    let start = Instant::now();
    let mut refused = Vec::new();
    for nth in (first..=most).step_by(usize::try_from(stride).unwrap_or(1)) {
        if case.is_slow() && start.elapsed() > SLOW_CASE {
            ends.cut += 1;
            break;
        }
        let count = number("refused");
        let refuse = match plan {
            Plan::Numbers { .. } => nth.to_string(),
            Plan::Places { .. } => "fresh".to_string(),
        };
        let held_before = ends.watch.then(held);
        let said = run(program, case, Some(&refuse));
        let last = number("last");
        let place = held_before.is_some().then(|| fs::read_to_string(REFUSAL).unwrap_or_default());
        let said = said.ok_or(format!("no end with request {last} refused"))?;
        before.restore();
        if !said.contains("test result:") {
            return Err(format!("request {last}: the runner ended early: {said}"));
        }
        if number("refused") == count {
            break;
        }
        ends.count(case.name, &said);
        if let (Some(before), Some(place)) = (held_before, place) {
            show_growth(&before, &held(), &place);
        }
        refused.push(last);
    }
    Ok(refused)
}

/// Returns the kernel's memory that could leak: the number of small objects, the larger ones, and
/// how many there are of each size.
fn held() -> Held {
    match memory(true) {
        Some(Memory::Frames { count, large, kinds, .. }) => ((count, large), kinds),
        _ => ((0, 0), String::new()),
    }
}

/// Whether a TCP connection is left. True if the kernel has no list of them.
fn are_connections_left() -> bool {
    CONNECTIONS.iter().any(|list| match fs::read_to_string(list) {
        Ok(text) => text.lines().nth(1).is_some(),
        Err(_) => true,
    })
}

/// Waits until no TCP connection is left, or the kernel holds no more than `before`; at most
/// [`LINGER`].
fn outlast_connections(before: Option<(u64, u64)>) -> Held {
    let start = Instant::now();
    loop {
        let now = held();
        let is_level = before.is_some_and(|before| now.0.0 <= before.0 && now.0.1 <= before.1);
        if is_level || !are_connections_left() || start.elapsed() > LINGER {
            return now;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// The result of [`held`].
type Held = ((u64, u64), String);

/// Says what the kernel holds more after a run, if anything, and at which place it was refused. It
/// may be a table that has grown to its final size.
fn show_growth(before: &Held, after: &Held, place: &str) {
    if after.0.0 > before.0.0 || after.0.1 > before.0.1 {
        println!("      more:{}", changed(&before.1, &after.1));
        print!("{}", place.lines().map(|line| format!("        {line}\n")).collect::<String>());
    }
}

/// Returns the sizes of objects whose number changed.
fn changed(before: &str, after: &str) -> String {
    let pairs = before.split(' ').zip(after.split(' '));
    pairs.filter(|(a, b)| a != b).map(|(a, b)| format!(" [{a} -> {b}]")).collect()
}

/// Refuses requests of all cases of a program, one after the other; returns how many there were.
///
/// A sweep may make permanent allocations (a table that grows to its final size). A leak grows with
/// every sweep: so a program after which the kernel holds more is swept again, `sweeps` times at
/// most.
fn sweep_all(
    program: &Path,
    cases: &[Case],
    plan: Plan,
    sweeps: u64,
    ends: &mut Ends,
) -> Result<u64, String> {
    let area = program.file_name().unwrap_or_default().to_string_lossy();
    if CONNECTING.contains(&&*area) {
        outlast_connections(None);
    }
    let (mut last, mut kinds) = held();
    let mut total = 0;
    let mut refused = Vec::new();
    for turn in 0..sweeps {
        if let Plan::Places { visits, each: false, .. } = plan {
            command(&format!("places {visits}"));
        }
        refused.clear();
        for (at, case) in cases.iter().enumerate() {
            let start = Instant::now();
            let numbers = sweep(program, case, at as u64 + turn, plan, ends)
                .map_err(|why| format!("{}: {why}", case.name))?;
            if turn == 0 {
                let seconds = start.elapsed().as_secs_f32();
                println!("    {}: {} refusals in {seconds:.1} s", case.name, numbers.len());
            }
            total += numbers.len() as u64;
            if number("lost") != 0 {
                return Err("the kernel's table of places is too small".into());
            }
            refused.push(numbers);
        }
        let (now, now_kinds) = outlast_connections(Some(last));
        if now.0 <= last.0 && now.1 <= last.1 {
            return Ok(total);
        }
        println!(
            "    after sweep {}: objects {} to {}, large {} to {}:{}",
            turn + 1,
            last.0,
            now.0,
            last.1,
            now.1,
            changed(&kinds, &now_kinds)
        );
        (last, kinds) = (now, now_kinds);
    }
    cases.iter().zip(&refused).for_each(|(case, refused)| name_leaks(program, case, refused));
    Err("the kernel holds more after every sweep".into())
}

/// Says after which runs of a case the kernel holds more: undisturbed (0), or with which request
/// refused.
fn name_leaks(program: &Path, case: &Case, refused: &[u64]) {
    let numbers: Vec<u64> = [0].iter().chain(refused).copied().collect();
    // Only of a case that leaks at all is each number asked for.
    if grows(program, case, &numbers, FEW).is_none() {
        return;
    }
    for nth in numbers {
        if let Some(changed) = grows(program, case, &[nth], LEAKS) {
            println!("    {}, request {nth}, {LEAKS} times:{changed}", case.name);
            let text = fs::read_to_string(REFUSAL).unwrap_or_default();
            print!("{}", text.lines().map(|line| format!("      {line}\n")).collect::<String>());
        }
    }
}

/// Runs a case so many times with each of the requests refused. Returns what the kernel holds more,
/// if that is as much as a leak in each round.
fn grows(program: &Path, case: &Case, numbers: &[u64], rounds: u64) -> Option<String> {
    let (all, before) = (Before::look(), held());
    for _ in 0..rounds {
        for nth in numbers {
            run(program, case, Some(&nth.to_string()));
            all.restore();
        }
    }
    let most = (before.0.0 + rounds - 1, before.0.1 + rounds - 1);
    let after = outlast_connections(Some(most));
    let more = after.0.0 >= before.0.0 + rounds || after.0.1 >= before.0.1 + rounds;
    more.then(|| changed(&before.1, &after.1))
}

/// Lets tables that grow with use, up to a bound, reach their final size before anything is
/// counted: those of process numbers, and the queues of the futex table.
fn fill_tables(options: &Options) {
    for _ in 0..1024 {
        match fork() {
            // SAFETY: ends the child at once.
            Ok(0) => unsafe { libc::_exit(0) },
            Ok(pid) => drop(wait(pid)),
            Err(error) => options.wrong(&format!("fork: {error}")),
        }
    }
    let words = vec![0u32; 4096];
    let soon = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    for word in &words {
        let no = std::ptr::null::<u32>();
        // SAFETY: the word and the time live; the call waits no longer than that time.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, 0, &soon, no, 0) };
    }
}

fn main() {
    let values = ["places", "stride", "only", "case", "most", "sweeps"];
    let options = Options::parse(USAGE, &values, &["each", "odd", "watch"]);
    let (most, sweeps) = (options.get("most", 1000), options.get("sweeps", 4));
    let plan = match options.get("places", 0) {
        0 => Plan::Numbers { stride: options.get("stride", 1).max(1), most },
        visits => Plan::Places { visits, each: options.has("each"), most },
    };
    let only: String = options.get("only", String::new());
    let wanted: String = options.get("case", String::new());
    let Some(folder) = options.plain.clone() else { options.wrong("which folder?") };
    let mut programs: Vec<_> = match fs::read_dir(&folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) => options.wrong(&format!("{folder}: {error}")),
    };
    programs.sort();
    fill_tables(&options);
    let (mut failed, mut total) = (0, 0);
    for program in &programs {
        let area = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let chosen = only.split(',').any(|one| one == area);
        if !chosen && !only.is_empty() {
            continue;
        }
        if !chosen && let Some((_, why)) = LEFT_OUT.iter().find(|(name, _)| *name == area) {
            println!("{area}: left out: {why}");
            continue;
        }
        let Ok(list) = Command::new(program).arg("--list").output() else { continue };
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let mut cases = Vec::new();
        for name in list.lines().filter(|case| case.contains(wanted.as_str())) {
            match Case::passing(program, name) {
                Ok(case) => cases.push(case),
                Err(why) => println!("    {name}: left out, does not pass by itself: {why}"),
            }
        }
        let start = Instant::now();
        let mut ends =
            Ends { show: options.has("odd"), watch: options.has("watch"), ..Ends::default() };
        let outcome = sweep_all(program, &cases, plan, sweeps, &mut ends);
        let seconds = start.elapsed().as_secs();
        match outcome {
            Ok(runs) => {
                total += runs;
                println!("{area}: {} cases, {runs} refusals in {seconds} s: {ends}", cases.len(),);
            }
            Err(why) => {
                failed += 1;
                println!("{area}: FAILED: {why} ({seconds} s: {ends})");
            }
        }
    }
    println!("{total} refusals in all, {failed} programs failed");
    exit(i32::from(failed != 0 || total == 0));
}
