//! Finds the program of the job and starts it.

use crate::Failure;
use crate::agent::Identity;
use crate::control::{Control, HostMessage};
use crate::pump::{self, Lines, ProgramEnd};
use crate::starter::Starter;
use hayate_job::Job;
use rustix::fs::{Access, FileType, access, stat};
use rustix::process::{Pid, Resource, Rlimit, ioctl_tiocsctty, setrlimit, setsid};
use rustix::termios::{Winsize, tcdrain, tcsetwinsize};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The search path when the environment has none.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Shells, the most comfortable first.
const SHELLS: [&str; 4] = ["/bin/bash", "/bin/sh", "/bin/ash", "/bin/busybox"];

/// Runs the job with its three streams carried separately.
pub fn with_pipes(job: &Job, control: &mut Control, lines: Lines) -> Result<ProgramEnd, Failure> {
    let mut command = command(job)?;
    let (stdin, stdout, stderr, pump) = lines.pipes()?;
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let program = spawn(command, job, control, None)?;
    pump.run(program, control)
}

/// Runs the job on the one terminal, as the leader of its own session.
pub fn on_terminal(
    job: &Job,
    control: &mut Control,
    rows: u16,
    columns: u16,
) -> Result<ProgramEnd, Failure> {
    let terminal = open_terminal()?;
    resize(&terminal, rows, columns);
    let mut command = command(job)?;
    let copy = || terminal.try_clone().map(Stdio::from).map_err(|error| lost("terminal", &error));
    command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
    let program = spawn(command, job, control, Some(&terminal))?;
    let status = pump::watch(program, control, |message| {
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

/// Returns the job's command, with environment and directory, without streams.
pub fn command(job: &Job) -> Result<Command, Failure> {
    let path = job
        .environment
        .iter()
        .find_map(|variable| variable.strip_prefix(b"PATH="))
        .unwrap_or(DEFAULT_PATH);
    let mut command;
    match job.arguments.split_first() {
        Some((name, arguments)) => {
            command = Command::new(find(OsStr::from_bytes(name), path)?);
            command.arg0(OsStr::from_bytes(name));
            command.args(arguments.iter().map(|argument| OsStr::from_bytes(argument)));
        }
        None => {
            let shell = SHELLS.iter().find(|path| access(**path, Access::EXEC_OK).is_ok());
            let shell = shell.ok_or_else(|| Failure {
                text: "there is no shell in the root file system; name a program after --".into(),
                status: 127,
            })?;
            command = Command::new(shell);
            // A leading dash makes a login shell.
            let name = if shell.ends_with("busybox") { "-sh" } else { &shell[5..] };
            command.arg0(if name.starts_with('-') { name.into() } else { format!("-{name}") });
        }
    }
    command.env_clear();
    for variable in &job.environment {
        let at = variable.iter().position(|&byte| byte == b'=').unwrap_or(variable.len());
        let value = variable.get(at + 1..).unwrap_or_default();
        command.env(OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(value));
    }
    command.current_dir(directory(job)?);
    Ok(command)
}

fn directory(job: &Job) -> Result<PathBuf, Failure> {
    if let Some(directory) = &job.directory {
        let path = PathBuf::from(OsString::from_vec(directory.clone()));
        if !path.is_dir() {
            return Err(Failure::new(format!(
                "there is no directory {} in the guest",
                path.display()
            )));
        }
        return Ok(path);
    }
    let home = job.environment.iter().find_map(|variable| variable.strip_prefix(b"HOME="));
    let home = home.map(|home| PathBuf::from(OsStr::from_bytes(home)));
    match home {
        Some(home) if job.arguments.is_empty() && home.is_dir() => Ok(home),
        _ => Ok("/".into()),
    }
}

/// Finds the file of a name as a shell does: 127 if there is none, 126 if it cannot be run.
fn find(name: &OsStr, path: &[u8]) -> Result<PathBuf, Failure> {
    let shown = name.to_string_lossy();
    let missing = || Failure {
        text: format!("there is no program {shown} in the root file system"),
        status: 127,
    };
    if name.is_empty() {
        return Err(missing());
    }
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return if stat(&file).is_err() { Err(missing()) } else { runnable(&file).map(|()| file) };
    }
    let mut refused = None;
    for folder in path.split(|&byte| byte == b':') {
        let folder =
            if folder.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(folder)) };
        let file = folder.join(name);
        if stat(&file).is_ok() {
            match runnable(&file) {
                Ok(()) => return Ok(file),
                Err(failure) => refused = refused.or(Some(failure)),
            }
        }
    }
    Err(refused.unwrap_or_else(missing))
}

fn runnable(file: &Path) -> Result<(), Failure> {
    let kind = stat(file).map(|found| FileType::from_raw_mode(found.st_mode));
    let why = match kind {
        Ok(FileType::Directory) => "it is a directory",
        Ok(FileType::RegularFile) if access(file, Access::EXEC_OK).is_ok() => return Ok(()),
        Ok(FileType::RegularFile) => "its mode does not allow execution",
        _ => "it is not a regular file",
    };
    Err(Failure { text: format!("cannot run {}: {why}", file.display()), status: 126 })
}

/// What a program gets beside its job.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Its user instead of the job's.
    pub identity: Option<Identity>,
    /// How many files it may have open, if that is not what this process may.
    pub files: Option<Rlimit>,
}

/// Starts the job's program, and tells the host when.
fn spawn(
    command: Command,
    job: &Job,
    control: &mut Control,
    terminal: Option<&File>,
) -> Result<Pid, Failure> {
    control.tell_time("exec");
    let terminal = terminal.map(|file| as_raw(file.as_fd()));
    launch(command, job, terminal, &Surroundings::default())
}

/// Starts the program in a session of its own; a terminal becomes the session's terminal.
pub fn launch(
    mut command: Command,
    job: &Job,
    terminal: Option<RawFd>,
    surroundings: &Surroundings,
) -> Result<Pid, Failure> {
    let Surroundings { identity, files } = surroundings.clone();
    if identity.is_none() && job.user != (0, 0) {
        command.gid(job.user.1).uid(job.user.0);
    }
    let user = identity.as_ref().map_or(job.user.0, |identity| identity.user);
    // SAFETY: between fork and exec the closure makes system calls and allocates nothing; the
    // descriptor stays open in this process, and so in the child, until exec.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            if let Some(terminal) = terminal {
                ioctl_tiocsctty(BorrowedFd::borrow_raw(terminal))?;
            }
            if let Some(files) = &files {
                setrlimit(Resource::Nofile, *files)?;
            }
            if let Some(identity) = &identity {
                become_user(identity)?;
            }
            Ok(())
        });
    }
    let file = PathBuf::from(command.get_program());
    if let Some(how) = job.explain {
        Starter::new(how, &file, job)?.replace(&mut command);
    }
    let child = command.spawn().map_err(|error| refusal(&file, user, &error))?;
    // The process is waited for by number: process 1 reaps all orphans in the same loop.
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| Failure::new("the program has no process number"))
}

/// Makes this process one of the user. Called between fork and exec.
fn become_user(identity: &Identity) -> std::io::Result<()> {
    let done = |result: libc::c_int| match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: the list is valid for its length; the process has one thread.
    unsafe {
        done(libc::setgroups(identity.groups.len(), identity.groups.as_ptr()))?;
        done(libc::setgid(identity.group))?;
        done(libc::setuid(identity.user))
    }
}

fn as_raw(fd: BorrowedFd<'_>) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&fd)
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
