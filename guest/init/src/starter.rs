//! Starts a program several times, traced by the kernel (`./hayate explain`).
//!
//! A process that does nothing else makes the starts: the child that would otherwise have executed
//! the program keeps running, starts the program, waits, does so again, and ends with the program's
//! status. Two starts are without images; then the kernel may record the program, until a start
//! begins at an image or it is known that none will. Process 1 carries the streams meanwhile, as
//! always. At the end it sends the kernel's record to the host.

use crate::control::Control;
use crate::{Failure, program};
use hayate_job::{Explain, Job};
use std::ffi::CString;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;

/// The file of the kernel's record.
const RECORD: &str = "/proc/hayate/starts";

/// How often the program is started without images.
const STARTS: usize = 2;
/// How often it is started at most until a start begins at an image.
const MORE: usize = 8;

/// Everything that starting the program needs, prepared before the fork.
pub struct Starter {
    how: Explain,
    file: PathBuf,
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    record: File,
    job: Job,
}

impl Starter {
    /// Returns a starter of the job's program, whose file is `file`.
    pub fn new(how: Explain, file: &Path, job: &Job) -> Result<Starter, Failure> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| Failure::new("the command contains a zero byte"))
        };
        let texts =
            |all: &[Vec<u8>]| all.iter().map(|bytes| text(bytes)).collect::<Result<Vec<_>, _>>();
        let record = File::options().read(true).write(true).open(RECORD).map_err(|error| {
            Failure::new(format!("{RECORD}: {error}; explain needs Hayate's own kernel"))
        })?;
        Ok(Starter {
            how,
            file: file.to_path_buf(),
            path: text(file.as_os_str().as_bytes())?,
            arguments: texts(&job.arguments)?,
            environment: texts(&job.environment)?,
            record,
            job: job.clone(),
        })
    }

    /// Makes `command` start the program several times instead of becoming it.
    pub fn replace(self, command: &mut Command) {
        // SAFETY: the child is a copy of a single-threaded process, so it may allocate and call any
        // function. `run` returns only with an error, before it has consumed anything.
        unsafe { command.pre_exec(move || self.run()) };
    }

    /// Runs in the child, with the program's streams, user and directory. Returns only with an
    /// error.
    fn run(&self) -> Result<(), Error> {
        (&self.record).write_all(b"watch")?;
        let record = self.close_others()?;
        let pointers = |texts: &[CString]| -> Vec<*mut libc::c_char> {
            let each = texts.iter().map(|text| text.as_ptr().cast_mut());
            each.chain([ptr::null_mut()]).collect()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        let start = || {
            let child = match self.how {
                Explain::Spawn => self.spawn(&arguments, &environment),
                Explain::Fork => self.fork(&arguments, &environment),
            };
            child.and_then(wait).unwrap_or_else(|error| self.refuse(&error))
        };
        let mut status = 0;
        for _ in 0..STARTS {
            status = start();
        }
        // Refused where nothing is to be kept.
        if (&record).write_all(b"images").is_ok() {
            for _ in 0..MORE {
                status = start();
                if is_over(&record)? {
                    break;
                }
            }
        }
        if libc::WIFSIGNALED(status) {
            self.end(128 + libc::WTERMSIG(status));
        }
        self.end(libc::WEXITSTATUS(status))
    }

    /// Closes all descriptors but the program's and that of the record, which is returned: the pipe
    /// by which the parent waits for an exec, too, so that the parent continues. The record closes
    /// when a program is executed, like every file that was opened here.
    fn close_others(&self) -> Result<File, Error> {
        const KEPT: libc::c_int = 3;
        let from = self.record.as_raw_fd();
        // SAFETY: nothing in this process uses the descriptors any more that are replaced and
        // closed, and nothing else owns the new one.
        unsafe {
            if from != KEPT && libc::dup3(from, KEPT, libc::O_CLOEXEC) < 0 {
                return Err(Error::last_os_error());
            }
            libc::syscall(libc::SYS_close_range, KEPT + 1, libc::c_uint::MAX, 0);
            Ok(File::from_raw_fd(KEPT))
        }
    }

    fn spawn(
        &self,
        arguments: &[*mut libc::c_char],
        environment: &[*mut libc::c_char],
    ) -> Result<libc::pid_t, Error> {
        let mut child = 0;
        // SAFETY: path and vectors consist of strings that end in zero, the vectors end in null,
        // and both live in `self` and the caller.
        let error = unsafe {
            libc::posix_spawn(
                &mut child,
                self.path.as_ptr(),
                ptr::null(),
                ptr::null(),
                arguments.as_ptr(),
                environment.as_ptr(),
            )
        };
        if error == 0 { Ok(child) } else { Err(Error::from_raw_os_error(error)) }
    }

    fn fork(
        &self,
        arguments: &[*mut libc::c_char],
        environment: &[*mut libc::c_char],
    ) -> Result<libc::pid_t, Error> {
        // SAFETY: this process has one thread.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Err(Error::last_os_error());
        }
        if child == 0 {
            // SAFETY: as in `spawn`.
            unsafe {
                libc::execve(
                    self.path.as_ptr(),
                    arguments.as_ptr().cast(),
                    environment.as_ptr().cast(),
                );
            }
            self.refuse(&Error::last_os_error());
        }
        Ok(child)
    }

    /// Reports why the program does not run, and ends the process.
    fn refuse(&self, error: &Error) -> ! {
        let failure = program::refusal(&self.file, self.job.user.0, error);
        eprintln!("hayate: {}", failure.text);
        self.end(failure.status)
    }

    fn end(&self, status: i32) -> ! {
        // SAFETY: this process needs nothing any more.
        unsafe { libc::_exit(status) }
    }
}

/// Whether the last start of a record began at an image, or no other start will.
fn is_over(mut record: &File) -> Result<bool, Error> {
    let mut text = String::new();
    record.rewind()?;
    record.read_to_string(&mut text)?;
    let last = |word| text.lines().rev().find_map(|line| line.strip_prefix(word)).unwrap_or("");
    Ok(last("began ") == "image" || last("image ").starts_with("refused "))
}

/// Waits for a child; returns its status in the form of `wait4(2)`.
fn wait(child: libc::pid_t) -> Result<i32, Error> {
    loop {
        let mut status = 0;
        // SAFETY: the status is this function's own.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            return Ok(status);
        }
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Sends the kernel's record to the host.
pub fn send_record(control: &mut Control) {
    match std::fs::read_to_string(RECORD) {
        Ok(text) => text.lines().for_each(|line| control.send(&format!("explained {line}"))),
        Err(error) => control.send(&format!("error {RECORD}: {error}")),
    }
}
