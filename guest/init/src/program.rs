//! Finds the program of the job and starts it.

use crate::Failure;
use crate::agent::Identity;
use crate::children::Children;
use crate::control::{Control, HostMessage};
use crate::launch::{self, Launch};
use crate::pump::{self, Lines, ProgramEnd};
use crate::starter::Starter;
use hayate_channel::command::PidNamespace;
use hayate_job::Job;
use rustix::fs::{Access, FileType, Stat, access, stat};
use rustix::process::{Pid, Rlimit, ioctl_tiocsctty, setsid};
use rustix::termios::{Winsize, tcdrain, tcsetwinsize};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The search path when the environment has none.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Shells, the most comfortable first.
const SHELLS: [&str; 4] = ["/bin/bash", "/bin/sh", "/bin/ash", "/bin/busybox"];

/// Runs the job with its three streams carried separately.
pub fn with_pipes(
    job: &Job,
    identity: Option<Identity>,
    control: &mut Control,
    children: &Children,
    lines: Lines,
) -> Result<ProgramEnd, Failure> {
    let found = Program::of(&Task::of(job))?;
    let (streams, pump) = lines.pipes(job.account.is_some().then_some(job.user))?;
    let program = spawn(found, job, streams, identity, (control, None))?;
    pump.run(program, control, children)
}

/// Runs the job on the one terminal, as the leader of its own session.
pub fn on_terminal(
    job: &Job,
    identity: Option<Identity>,
    control: &mut Control,
    children: &Children,
    (rows, columns): (u16, u16),
) -> Result<ProgramEnd, Failure> {
    let terminal = open_terminal()?;
    resize(&terminal, rows, columns);
    if let Some(identity) = &identity {
        // So that it may be opened again by its name.
        let _ = std::os::unix::fs::fchown(&terminal, Some(identity.user), None);
    }
    let found = Program::of(&Task::of(job))?;
    let copy = || terminal.try_clone().map(OwnedFd::from).map_err(|error| lost("terminal", &error));
    let streams = [copy()?, copy()?, copy()?];
    let program = spawn(found, job, streams, identity, (control, Some(&terminal)))?;
    let status = pump::watch(program, control, children, |message| {
        if let HostMessage::WindowSize(rows, columns) = message {
            resize(&terminal, rows, columns);
        }
    })?;
    // The end of the session may have hung up this descriptor, so the drain uses a new one.
    drop(terminal);
    if let Ok(terminal) = open_terminal() {
        let _ = tcdrain(&terminal);
    }
    Ok(ProgramEnd { status, ..ProgramEnd::default() })
}

fn open_terminal() -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOCTTY);
    options.open("/dev/hvc0").map_err(|error| lost("terminal /dev/hvc0", &error))
}

fn resize(terminal: &File, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // A terminal without a size is inconvenient, but no reason to stop.
    let _ = tcsetwinsize(terminal, size);
}

fn lost(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("cannot open the {what}: {error}"))
}

/// What is to be started: a job's program, or that of a command.
pub struct Task<'a> {
    /// The program and its arguments. Empty: the login shell of the root file system.
    pub arguments: &'a [Vec<u8>],
    /// Its environment.
    pub environment: Cow<'a, [Vec<u8>]>,
    /// Its working directory, if it is not the usual one.
    pub directory: Option<&'a [u8]>,
    /// User and group to run as.
    pub user: (u32, u32),
}

impl<'a> Task<'a> {
    /// The job's program.
    pub fn of(job: &'a Job) -> Task<'a> {
        Task {
            arguments: &job.arguments,
            environment: Cow::Borrowed(&job.environment),
            directory: job.directory.as_deref(),
            user: job.user,
        }
    }
}

/// A program, as it was found.
pub struct Program<'a> {
    file: Vec<u8>,
    arguments: Cow<'a, [Vec<u8>]>,
    directory: Cow<'a, [u8]>,
}

impl<'a> Program<'a> {
    /// Finds the program and its directory.
    ///
    /// # Errors
    /// There is none, or it cannot be run.
    pub fn of(task: &Task<'a>) -> Result<Program<'a>, Failure> {
        let directory = directory(task)?;
        if let Some(name) = task.arguments.first() {
            let mut variables = task.environment.iter();
            let path = variables.find_map(|variable| variable.strip_prefix(b"PATH="));
            let file = find(name, path.unwrap_or(DEFAULT_PATH))?;
            return Ok(Program { file, arguments: Cow::Borrowed(task.arguments), directory });
        }
        let shell = SHELLS.iter().find(|path| access(**path, Access::EXEC_OK).is_ok());
        let shell = shell.ok_or_else(|| Failure {
            text: "there is no shell in the root file system; name a program after --".into(),
            status: 127,
        })?;
        // A leading dash makes a login shell.
        let name = if shell.ends_with("busybox") { "-sh" } else { &shell[5..] };
        let name = if name.starts_with('-') { name.into() } else { format!("-{name}") };
        let arguments = Cow::Owned(vec![name.into_bytes()]);
        Ok(Program { file: shell.as_bytes().to_vec(), arguments, directory })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.file))
    }
}

fn directory<'a>(task: &Task<'a>) -> Result<Cow<'a, [u8]>, Failure> {
    let is_one = |path: &[u8]| Path::new(OsStr::from_bytes(path)).is_dir();
    if let Some(directory) = task.directory {
        if !is_one(directory) {
            let shown = String::from_utf8_lossy(directory);
            return Err(Failure::new(format!("there is no directory {shown} in the guest")));
        }
        return Ok(Cow::Borrowed(directory));
    }
    if task.arguments.is_empty()
        && let mut variables = task.environment.iter()
        && let Some(home) = variables.find_map(|variable| variable.strip_prefix(b"HOME="))
        && is_one(home)
    {
        return Ok(Cow::Owned(home.to_vec()));
    }
    Ok(Cow::Borrowed(b"/"))
}

/// Finds the file of a name as a shell does: 127 if there is none, 126 if it cannot be run.
fn find(name: &[u8], path: &[u8]) -> Result<Vec<u8>, Failure> {
    let missing = || Failure {
        text: format!(
            "there is no program {} in the root file system",
            String::from_utf8_lossy(name)
        ),
        status: 127,
    };
    if name.is_empty() {
        return Err(missing());
    }
    if name.contains(&b'/') {
        let found = stat(name).map_err(|_| missing())?;
        return runnable(name, &found).map(|()| name.to_vec());
    }
    let mut refused = None;
    for folder in path.split(|&byte| byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let file = [folder, b"/", name].concat();
        if let Ok(found) = stat(&file[..]) {
            match runnable(&file, &found) {
                Ok(()) => return Ok(file),
                Err(failure) => refused = refused.or(Some(failure)),
            }
        }
    }
    Err(refused.unwrap_or_else(missing))
}

/// Whether the file can be run. This process is root's, to whom any right to execute is one
/// (access(2)).
fn runnable(file: &[u8], found: &Stat) -> Result<(), Failure> {
    let why = match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => "it is a directory",
        FileType::RegularFile if found.st_mode & 0o111 != 0 => return Ok(()),
        FileType::RegularFile => "its mode does not allow execution",
        _ => "it is not a regular file",
    };
    let shown = String::from_utf8_lossy(file);
    Err(Failure { text: format!("cannot run {shown}: {why}"), status: 126 })
}

/// What a program gets beside its job.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Its user instead of the job's.
    pub identity: Option<Identity>,
    /// How many files it may have open, if that is not what this process may.
    pub files: Option<Rlimit>,
    /// The PID namespace, if it is not this process's.
    pub pid_namespace: Option<PidNamespace>,
}

/// Starts the job's program, and tells the host when.
fn spawn(
    program: Program,
    job: &Job,
    streams: [OwnedFd; 3],
    identity: Option<Identity>,
    (control, terminal): (&mut Control, Option<&File>),
) -> Result<Pid, Failure> {
    control.tell_time("exec");
    let terminal = terminal.map(AsRawFd::as_raw_fd);
    if let Some(how) = job.explain {
        let starter = Starter::new(how, program.path(), job)?;
        let traced = traced(&program, job, streams, terminal, starter);
        return traced.map_err(|error| refusal(program.path(), job.user.0, &error));
    }
    let surroundings = Surroundings { identity, ..Surroundings::default() };
    launch(program, &Task::of(job), streams, terminal, &surroundings)
}

/// Starts the program in a session of its own; a terminal becomes the session's terminal.
pub fn launch(
    program: Program,
    task: &Task,
    streams: [OwnedFd; 3],
    terminal: Option<RawFd>,
    surroundings: &Surroundings,
) -> Result<Pid, Failure> {
    let identity = surroundings.identity.as_ref();
    let user = identity.map_or(task.user.0, |identity| identity.user);
    let failed = |error: std::io::Error| refusal(program.path(), user, &error);
    let launch = Launch {
        file: &launch::text(&program.file).map_err(failed)?,
        arguments: &program.arguments,
        environment: &task.environment,
        directory: &launch::text(&program.directory).map_err(failed)?,
        streams,
        terminal,
        files: surroundings.files,
        pid_namespace: surroundings.pid_namespace,
        user: (identity.is_none() && task.user != (0, 0)).then_some(task.user),
        identity: identity.map(|who| (who.user, who.group, who.groups.as_slice())),
    };
    launch.start().map_err(failed)
}

/// Starts a process that starts the program, traced by the kernel. It is a copy of this process.
fn traced(
    program: &Program,
    job: &Job,
    streams: [OwnedFd; 3],
    terminal: Option<RawFd>,
    starter: Starter,
) -> std::io::Result<Pid> {
    let mut command = Command::new(program.path());
    let [input, output, error] = streams;
    command.stdin(input).stdout(output).stderr(error);
    command.current_dir(OsStr::from_bytes(&program.directory));
    if job.user != (0, 0) {
        command.gid(job.user.1).uid(job.user.0);
    }
    // SAFETY: between fork and exec the closure makes system calls and allocates nothing; the
    // descriptor stays open in this process, and so in the child, until exec.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            if let Some(terminal) = terminal {
                ioctl_tiocsctty(BorrowedFd::borrow_raw(terminal))?;
            }
            Ok(())
        });
    }
    starter.replace(&mut command);
    // The process is waited for by number: process 1 reaps all orphans in the same loop.
    let pid = i32::try_from(command.spawn()?.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| std::io::Error::from_raw_os_error(libc::ESRCH))
}

/// Returns why the kernel did not run a file that exists and is executable.
pub fn refusal(file: &Path, user: u32, error: &std::io::Error) -> Failure {
    let shown = file.display();
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::NotFound, _) => Failure {
            text: format!("cannot run {shown}: its interpreter is not in the root file system"),
            status: 127,
        },
        (_, Some(libc::ENOEXEC)) => Failure {
            text: format!("cannot run {shown}: it is not a program for x86-64 Linux"),
            status: 126,
        },
        (ErrorKind::PermissionDenied, _) => {
            Failure { text: format!("cannot run {shown} as user {user}: {error}"), status: 126 }
        }
        _ => Failure { text: format!("cannot run {shown}: {error}"), status: 126 },
    }
}
