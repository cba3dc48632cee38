//! Starts a program in a child that shares this process's memory until it executes the program, as
//! posix_spawn(3) does.
//!
//! This process stands still meanwhile (`CLONE_VFORK`), so the child may use its memory, on a stack
//! of its own, and leaves the error there if a call fails. It makes system calls and nothing else:
//! it may neither allocate nor call what musl's set of threads is concerned with (its `setuid`
//! makes all threads change). No signal handler can run in the child: this process has none that an
//! ordinary signal calls.
//!
//! A program may begin in another PID namespace: a new one by the flag of clone(2), or that of a
//! process, which this thread's children are sent to before the call, and back after it. So the
//! program is this process's child as any other, and no process stands between.
//!
//! Roads not taken: posix_spawn itself, which knows no limits, users and controlling terminals; and
//! `std::process::Command`, which forks where it is given more to do: page tables are copied, pages
//! of this process are copied when either writes to them, and a pair of sockets carries the error.
//! That was a fifth of all code that a clone of a snapshot has to translate before its program
//! runs.

use hayate_channel::command::PidNamespace;
use libc::{c_char, c_int, c_long, c_void};
use rustix::process::{Pid, Rlimit};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

/// The child's stack, in pieces of 16 bytes.
const STACK: usize = 1024;

/// A program and its surroundings.
pub struct Launch<'a> {
    /// Its file.
    pub file: &'a CStr,
    /// Its arguments, with its name.
    pub arguments: &'a [Vec<u8>],
    /// Its environment.
    pub environment: &'a [Vec<u8>],
    /// Its working directory.
    pub directory: &'a CStr,
    /// Standard input, output and error.
    pub streams: [OwnedFd; 3],
    /// The terminal of its session.
    pub terminal: Option<RawFd>,
    /// How many files it may have open, if that is not what this process may.
    pub files: Option<Rlimit>,
    /// The PID namespace that it begins in, if that is not this process's.
    pub pid_namespace: Option<PidNamespace>,
    /// The user and group that it becomes before its directory is looked for.
    pub user: Option<(u32, u32)>,
    /// The user, group and further groups that it becomes after that.
    pub identity: Option<(u32, u32, &'a [u32])>,
}

/// What the child needs, as numbers and addresses.
struct Child<'a> {
    launch: &'a Launch<'a>,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    streams: [RawFd; 3],
    error: c_int,
}

/// Texts as the kernel takes them: each ends with a zero byte, the list with a null pointer.
struct Texts {
    _bytes: Vec<u8>,
    pointers: Vec<*const c_char>,
}

impl Texts {
    fn new(texts: &[Vec<u8>]) -> Texts {
        let size = texts.iter().map(|text| text.len() + 1).sum();
        // It does not grow, so the texts stay where they are.
        let mut bytes: Vec<u8> = Vec::with_capacity(size);
        let mut pointers = Vec::with_capacity(texts.len() + 1);
        for text in texts {
            pointers.push(bytes.as_ptr().wrapping_add(bytes.len()).cast());
            bytes.extend_from_slice(text);
            bytes.push(0);
        }
        pointers.push(ptr::null());
        Texts { _bytes: bytes, pointers }
    }
}

/// Returns a text for a system call; job and commands have none with a zero byte.
pub fn text(bytes: &[u8]) -> Result<CString, Error> {
    CString::new(bytes).map_err(|_| Error::from_raw_os_error(libc::EINVAL))
}

impl Launch<'_> {
    /// Starts the program, in a session of its own.
    ///
    /// # Errors
    /// That of the system call that failed.
    pub fn start(mut self) -> Result<Pid, Error> {
        for stream in &mut self.streams {
            // The child's dup2 would meet one that is a standard stream already.
            if stream.as_raw_fd() <= libc::STDERR_FILENO {
                *stream = rustix::io::fcntl_dupfd_cloexec(&*stream, libc::STDERR_FILENO + 1)?;
            }
        }
        let (arguments, environment) = (Texts::new(self.arguments), Texts::new(self.environment));
        let mut child = Child {
            launch: &self,
            arguments: arguments.pointers.as_ptr(),
            environment: environment.pointers.as_ptr(),
            streams: self.streams.each_ref().map(AsRawFd::as_raw_fd),
            error: 0,
        };
        let mut stack: Vec<u128> = Vec::with_capacity(STACK);
        let top = stack.as_mut_ptr().wrapping_add(STACK).cast::<c_void>();
        let mut flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let elsewhere = match self.pid_namespace {
            Some(PidNamespace::Of(process)) => Some(Elsewhere::of(process)?),
            Some(PidNamespace::New) => {
                flags |= libc::CLONE_NEWPID;
                None
            }
            None => None,
        };
        // SAFETY: stack and data outlive the child's use of them, because this thread continues
        // only when the child has executed a program or ended.
        let pid = unsafe { libc::clone(run, top, flags, (&raw mut child).cast()) };
        let failed = Error::last_os_error();
        elsewhere.map_or(Ok(()), Elsewhere::leave)?;
        if pid < 0 {
            return Err(failed);
        }
        // SAFETY: it is alive; the child may have written there.
        let error = unsafe { (&raw const child.error).read_volatile() };
        let pid = Pid::from_raw(pid).ok_or_else(|| Error::from_raw_os_error(libc::ESRCH))?;
        if error == 0 {
            return Ok(pid);
        }
        // It has ended already. If another part of this process waits for it first, nothing is lost.
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        Err(Error::from_raw_os_error(error))
    }
}

/// Where this thread's children begin: in the PID namespace of a process.
struct Elsewhere {
    /// This process's own.
    own: File,
}

impl Elsewhere {
    fn of(process: u32) -> Result<Elsewhere, Error> {
        let own = File::open("/proc/self/ns/pid")?;
        let gone = |_| Error::from_raw_os_error(libc::ESRCH);
        let wanted = File::open(format!("/proc/{process}/ns/pid")).map_err(gone)?;
        send_children(&wanted)?;
        Ok(Elsewhere { own })
    }

    /// From now on they begin in this process's own. Linux refuses that to nobody
    /// (`pidns_install`, kernel/pid_namespace.c).
    fn leave(self) -> Result<(), Error> {
        send_children(&self.own)
    }
}

fn send_children(namespace: &File) -> Result<(), Error> {
    // SAFETY: the call takes an open descriptor, and changes nothing but where children begin.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWPID) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// The child. Returns only if it has failed, and so ends it.
extern "C" fn run(child: *mut c_void) -> c_int {
    // SAFETY: the parent passed its address and waits.
    let child = unsafe { &mut *child.cast::<Child>() };
    // SAFETY: the child shares the parent's memory, in which all addresses are valid.
    child.error = unsafe { execute(child) };
    127
}

/// Makes a system call without what musl does beside it. Breaks off with the error.
macro_rules! call {
    ($number:ident $(, $argument:expr)*) => {
        if libc::syscall(libc::$number $(, $argument as c_long)*) < 0 {
            return *libc::__errno_location();
        }
    };
}

/// Makes this child what the program needs and executes that. Returns the error.
///
/// # Safety
/// The addresses in `child` are valid.
unsafe fn execute(child: &Child) -> c_int {
    let launch = child.launch;
    // SAFETY: these calls take numbers and the addresses of `child`; `errno` is that of the thread
    // that waits.
    unsafe {
        for (to, from) in (0..).zip(child.streams) {
            call!(SYS_dup2, from, to);
        }
        if let Some((user, group)) = launch.user {
            call!(SYS_setgroups, 0, 0);
            call!(SYS_setgid, group);
            call!(SYS_setuid, user);
        }
        call!(SYS_chdir, launch.directory.as_ptr());
        // `struct kernel_sigaction`: the default of a signal that Rust's runtime ignores. All
        // signals that have a handler get theirs by the exec.
        let default = [0_u64; 4];
        call!(SYS_rt_sigaction, libc::SIGPIPE, default.as_ptr(), 0, size_of::<u64>());
        let none = 0_u64;
        let set = libc::SIG_SETMASK;
        call!(SYS_rt_sigprocmask, set, &raw const none, 0, size_of::<u64>());
        call!(SYS_setsid);
        if let Some(terminal) = launch.terminal {
            call!(SYS_ioctl, terminal, libc::TIOCSCTTY, 0);
        }
        if let Some(files) = &launch.files {
            let value = |limit: Option<u64>| limit.unwrap_or(libc::RLIM_INFINITY);
            let limit = [value(files.current), value(files.maximum)];
            call!(SYS_setrlimit, libc::RLIMIT_NOFILE, limit.as_ptr());
        }
        if let Some((user, group, groups)) = launch.identity {
            call!(SYS_setgroups, groups.len(), groups.as_ptr());
            call!(SYS_setgid, group);
            call!(SYS_setuid, user);
        }
        call!(SYS_execve, launch.file.as_ptr(), child.arguments, child.environment);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::{AsFd, FromRawFd};
    use std::path::Path;

    fn launch(script: &str, file: &CStr, output: OwnedFd) -> Result<Pid, Error> {
        launch_in(None, script, file, output)
    }

    fn launch_in(
        pid_namespace: Option<PidNamespace>,
        script: &str,
        file: &CStr,
        output: OwnedFd,
    ) -> Result<Pid, Error> {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let words = ["sh", "-c", script].map(|word| word.as_bytes().to_vec());
        let launch = Launch {
            file,
            arguments: &words,
            environment: &[b"A=1".to_vec(), b"B=".to_vec()],
            directory: c"/",
            streams: [null(), output, null()],
            terminal: None,
            files: Some(Rlimit { current: Some(100), maximum: Some(200) }),
            pid_namespace,
            user: None,
            identity: None,
        };
        launch.start()
    }

    fn ended(pid: Pid) -> Option<i32> {
        let (_, status) =
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())
                .unwrap()
                .unwrap();
        status.exit_status()
    }

    #[test]
    fn a_program_has_what_it_was_given() {
        let (mut read, write) = std::io::pipe().unwrap();
        let script = "echo $A,$B,$PWD,$(ulimit -n),$(ulimit -Hn); kill -PIPE $$; exit 7";
        let pid = launch(script, c"/bin/sh", write.into()).unwrap();
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "1,,/,100,200\n");
        // By the signal, which this process ignores.
        assert_eq!(ended(pid), None);
    }

    #[test]
    fn a_program_begins_in_a_namespace_of_processes() {
        let (mut read, write) = std::io::pipe().unwrap();
        let script = "echo $$; while read line; do :; done";
        let started = launch_in(Some(PidNamespace::New), script, c"/bin/sh", write.into());
        let first = match started {
            // Only the administrator makes namespaces.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return,
            first => first.unwrap(),
        };
        assert_eq!(ended(first), Some(0));
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "1\n");
        // One that is joined, and the own one afterwards.
        let own = std::process::id();
        for (wanted, namespace) in [(Some(PidNamespace::Of(own)), own), (None, own)] {
            let (mut read, write) = std::io::pipe().unwrap();
            let script = "readlink /proc/self/ns/pid";
            let pid = launch_in(wanted, script, c"/bin/sh", write.into()).unwrap();
            let mut text = String::new();
            read.read_to_string(&mut text).unwrap();
            let named = std::fs::read_link(format!("/proc/{namespace}/ns/pid")).unwrap();
            assert_eq!((Path::new(text.trim()), ended(pid)), (&*named, Some(0)));
        }
        let gone = launch_in(Some(PidNamespace::Of(u32::MAX)), "", c"/bin/sh", null());
        assert_eq!(gone.unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    fn null() -> OwnedFd {
        std::fs::File::create("/dev/null").unwrap().into()
    }

    #[test]
    fn a_stream_that_has_a_low_number_is_moved() {
        let (mut read, write) = std::io::pipe().unwrap();
        // SAFETY: a new descriptor, which this test owns; nothing else here reads input.
        let low = unsafe {
            assert_eq!(libc::dup2(write.as_raw_fd(), 0), 0);
            libc::fcntl(0, libc::F_SETFD, libc::FD_CLOEXEC);
            OwnedFd::from_raw_fd(0)
        };
        drop(write);
        let pid = launch("echo low", c"/bin/sh", low.as_fd().try_clone_to_owned().unwrap());
        drop(low);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), ended(pid.unwrap())), ("low\n", Some(0)));
    }

    #[test]
    fn what_cannot_be_executed_is_an_error() {
        for (file, error) in [(c"/no/such/file", libc::ENOENT), (c"/", libc::EACCES)] {
            let refused = launch("", file, null()).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(error));
        }
    }
}
