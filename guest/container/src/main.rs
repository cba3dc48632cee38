//! Makes containers in a machine, for the shim of containerd (`shim/`), and says what runs in them.
//!
//! | words | does |
//! |---|---|
//! | `join ID` | gives the machine's interface what that of `/pod/ID/interface` has |
//! | `run ID` | makes the container of the plan in `/pod/ID`, and becomes its first program |
//! | `exec ID PLAN` | enters the container, and becomes the program of a further plan |
//! | `signal ID SIGNAL [PID]` | signals the first program, or that one of the container's |
//! | `signal-all ID SIGNAL` | signals all processes of the container |
//! | `pids ID` | prints the numbers of its processes |
//! | `stats ID` | prints what its control group has used |
//! | `update ID PLAN` | sets what a further plan says of its control group |
//! | `freeze ID`, `thaw ID` | lets its processes rest, and go on |
//! | `killed` | prints how many processes of each container were killed because memory lacked |
//! | `end ID` | kills what is left of it, and forgets it; prints that number, too |
//!
//! # What a container is here
//!
//! A mount namespace, UTS and IPC namespaces of its own or of another container of the pod, a
//! control group, a cgroup namespace if it wants one, and its root file system as the root
//! directory. The guest's init has started this program in the
//! PID namespace of the container. A process belongs to the container in whose control group it is,
//! so `end` finds what its first program has left behind, however it was started.
//! `/run/containers/ID` holds the number of the first program and the name of its mount namespace.
//!
//! # Becoming the program
//!
//! Nothing stays between the guest's init and the program: pipes, terminal, signals and status are
//! those of any session of the channel. The first line of its output is this program's, `ok PID` or
//! `failed TEXT`; the shim takes it away, and so knows whether the program was started. What can be
//! known before is found out before that line.
//!
//! Road not taken: a process that stays as the parent of each container, as `runc`'s shim does. The
//! guest's init reaps orphans already, and one process more is a fork more in each start.

mod cgroup;
mod filter;
mod identity;
mod members;
mod network;
mod root;
mod seccomp;

use cgroup::Group;
use hayate_container_plan::interface::Interface;
use hayate_container_plan::{INTERFACE, PLAN, POD, Plan};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{chroot, fchdir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// One line that says what is wrong.
pub struct Failure(String);

impl Failure {
    /// A failure of `tried`, and the reason.
    pub fn new(tried: impl Display, error: impl Display) -> Failure {
        Failure(format!("{tried}: {error}"))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure(text)
    }
}

/// Gives an error the step that failed.
pub trait During<T> {
    /// The same, with the step.
    fn during(self, tried: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> During<T> for Result<T, E> {
    fn during(self, tried: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(tried, error))
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (becomes, result) = match words[..] {
        ["join", id] => (false, join(id)),
        ["run", id] => (true, run(id)),
        ["exec", id, plan] => (true, exec(id, plan)),
        ["signal", id, signal] => (false, members::signal(id, signal, None)),
        ["signal", id, signal, pid] => (false, members::signal(id, signal, Some(pid))),
        ["signal-all", id, signal] => (false, members::signal_all(id, signal)),
        ["pids", id] => (false, members::pids(id)),
        ["stats", id] => (false, members::first(id).map(|_| Group::of(id).measure())),
        ["update", id, plan] => (false, update(id, plan)),
        ["freeze", id] => (false, Group::of(id).freeze(true)),
        ["thaw", id] => (false, Group::of(id).freeze(false)),
        ["killed"] => (false, cgroup::print_killed()),
        ["end", id] => (false, members::end(id)),
        _ => (false, Err(Failure("only the shim of containerd calls this program".into()))),
    };
    let Err(Failure(text)) = result else { return ExitCode::SUCCESS };
    if becomes {
        let text = text.replace('\n', " ");
        let _ = writeln!(std::io::stdout(), "failed {text}");
    } else {
        eprintln!("{text}");
    }
    ExitCode::from(125)
}

fn note(id: &str, name: &str) -> Result<Vec<u8>, Failure> {
    let path = Path::new(POD).join(id).join(name);
    std::fs::read(&path).during(format!("cannot read {}", path.display()))
}

fn plan(id: &str, name: &str) -> Result<Plan, Failure> {
    Ok(Plan::decode(&note(id, name)?)?)
}

/// Takes the machine's place in the network of its pod.
fn join(id: &str) -> Result<(), Failure> {
    network::take(&Interface::decode(&note(id, INTERFACE)?)?)
}

/// Makes a container and becomes its first program.
fn run(id: &str) -> Result<(), Failure> {
    let plan = plan(id, PLAN)?;
    let number = members::own_number()?;
    let group = Group::make(id, &plan.controls)?;
    let folder = group.open()?;
    group.enter(None)?;
    root::make_shared(&plan)?;
    root::unshare(&plan)?;
    members::note(id, number)?;
    root::make(id, &plan)?;
    if !plan.rules.is_empty() {
        // Not before the nodes of the container are made.
        filter::attach(&folder, &plan.rules)?;
    }
    drop(folder);
    begin(&plan, number)
}

/// Sets what a plan says of the control group.
fn update(id: &str, name: &str) -> Result<(), Failure> {
    let plan = plan(id, name)?;
    members::first(id)?;
    Group::of(id).set(&plan.controls)
}

/// Becomes a further program of a container.
fn exec(id: &str, name: &str) -> Result<(), Failure> {
    let plan = plan(id, name)?;
    let first = members::first(id)?;
    let folder = format!("/proc/{first}");
    let hold = |name: &str, flags| {
        let path = format!("{folder}/{name}");
        open(&path, flags | OFlags::CLOEXEC, Mode::empty()).during(format!("cannot open {path}"))
    };
    let number = members::own_number()?;
    // Init has looked for it by its number, which may be another's since.
    let same = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    if same("self") != same(&first.to_string()) {
        return Err(Failure(format!("the container {id} has ended: process not found")));
    }
    Group::of(id).enter(Some(first))?;
    let root = hold("root", OFlags::PATH | OFlags::DIRECTORY)?;
    let kinds = [
        ("ns/uts", LinkNameSpaceType::HostNameAndNISDomainName),
        ("ns/ipc", LinkNameSpaceType::InterProcessCommunication),
        ("ns/cgroup", LinkNameSpaceType::ControlGroup),
        ("ns/mnt", LinkNameSpaceType::Mount),
    ];
    // All of them, before one changes what paths mean.
    let held = kinds.map(|(name, kind)| (hold(name, OFlags::RDONLY), kind));
    for (fd, kind) in held {
        let fd = fd?;
        move_into_link_name_space(fd.as_fd(), Some(kind)).during("cannot enter the container")?;
    }
    fchdir(&root).during("cannot enter the container's root")?;
    chroot(".").during("cannot enter the container's root")?;
    begin(&plan, number)
}

/// Lets the terminal pass on line ends as they are: that of containerd's client turns them into
/// what a screen needs, and runc's terminals leave it to that one, too.
fn leave_line_ends() {
    use rustix::termios::{OptionalActions, OutputModes, tcgetattr, tcsetattr};
    let terminal = rustix::stdio::stdout();
    if let Ok(mut modes) = tcgetattr(terminal) {
        modes.output_modes.remove(OutputModes::ONLCR);
        let _ = tcsetattr(terminal, OptionalActions::Now, &modes);
    }
}

/// Becomes the program of the plan. `number`: that of this process in the machine.
fn begin(plan: &Plan, number: u32) -> Result<(), Failure> {
    if plan.terminal {
        leave_line_ends();
    }
    let home = identity::become_user(plan)?;
    let directory = Path::new(OsStr::from_bytes(&plan.directory));
    let shown = directory.display();
    std::env::set_current_dir(directory).during(format!("cannot enter the directory {shown}"))?;
    let (first, rest) = plan.arguments.split_first().ok_or(Failure("no program".into()))?;
    let file = find(first, &plan.environment)?;
    let mut command = Command::new(OsStr::from_bytes(&file));
    command.arg0(OsStr::from_bytes(first)).args(rest.iter().map(|word| OsStr::from_bytes(word)));
    command.env_clear();
    for variable in &plan.environment {
        let at = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
        let value = variable.get(at + 1..).unwrap_or_default();
        command.env(OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(value));
    }
    if !plan.environment.iter().any(|variable| variable.starts_with(b"HOME=")) {
        command.env("HOME", OsStr::from_bytes(&home));
    }
    let mut output = std::io::stdout();
    let _ = writeln!(output, "ok {number}");
    let _ = output.flush();
    if let Some(filter) = plan.filter.as_ref().filter(|_| plan.no_new_privileges)
        && let Err(Failure(text)) = seccomp::install(filter)
    {
        eprintln!("{text}");
        std::process::exit(125);
    }
    let error = command.exec();
    // The shim has heard that it was started; it is the program's own end from here on.
    eprintln!("cannot run {}: {error}", String::from_utf8_lossy(&file));
    std::process::exit(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

/// Finds the file of a program's name as execvp(3) does.
fn find(name: &[u8], environment: &[Vec<u8>]) -> Result<Vec<u8>, Failure> {
    const USUAL: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let shown = String::from_utf8_lossy(name).into_owned();
    if name.contains(&b'/') {
        return runnable(name).map(|()| name.to_vec()).during(format!("exec: {shown:?}"));
    }
    let path = environment.iter().find_map(|variable| variable.strip_prefix(b"PATH="));
    let mut refused = None;
    for folder in path.unwrap_or(USUAL).split(|&byte| byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let file = [folder, b"/", name].concat();
        match runnable(&file) {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let tried = format!("exec: {shown:?}");
    Err(match refused {
        Some(error) => Failure::new(tried, error),
        None => Failure::new(tried, "executable file not found in $PATH"),
    })
}

/// Whether a file can be run by this process.
fn runnable(file: &[u8]) -> std::io::Result<()> {
    use std::io::{Error, ErrorKind};
    let found = std::fs::metadata(OsStr::from_bytes(file))?;
    if found.is_dir() {
        return Err(Error::new(ErrorKind::IsADirectory, "is a directory"));
    }
    let flags = rustix::fs::AtFlags::EACCESS;
    let access = rustix::fs::Access::EXEC_OK;
    let here = rustix::fs::CWD;
    rustix::fs::accessat(here, file, access, flags)
        .map_err(|_| Error::new(ErrorKind::PermissionDenied, "permission denied"))
}
