//! Processes: helpers that run a closure in a child, and the bare fork/vfork/exec sequences
//! that the experiments time.

use super::raw::syscall;
use std::arch::asm;
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::AsRawFd;

/// A forked child; killed and reaped when dropped.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    reaped: bool,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By exit(2) with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl Child {
    /// Forks; the child runs `work` and exits with its result, never returning.
    ///
    /// Only a process with a single thread may call this; every experiment has only one.
    pub fn start(work: impl FnOnce() -> i32) -> io::Result<Self> {
        // SAFETY: the process has one thread, so the child may use everything it inherits.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let status = work();
                // SAFETY: ends the child at once, without running the parent's exit handlers.
                unsafe { libc::_exit(status) }
            }
            pid => Ok(Self { pid, reaped: false }),
        }
    }

    /// Returns the process ID.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until it ends.
    pub fn wait(mut self) -> Ended {
        self.reap()
    }

    fn reap(&mut self) -> Ended {
        let status = wait_for(self.pid);
        self.reaped = true;
        if libc::WIFSIGNALED(status) {
            Ended::Signal(libc::WTERMSIG(status))
        } else {
            Ended::Exit(libc::WEXITSTATUS(status))
        }
    }

    /// Kills the child, with its process group if it has one of its own, and reaps it.
    pub fn kill_group(mut self) -> Ended {
        // SAFETY: kill(2) takes numbers; the group is that of a child not yet reaped.
        unsafe {
            libc::kill(-self.pid, libc::SIGKILL);
            libc::kill(self.pid, libc::SIGKILL);
        }
        self.reap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: kill(2) takes numbers; the pid is that of a child not yet reaped.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.reap();
        }
    }
}

/// Puts the calling process into a group of its own and makes it die with its parent. Neither is
/// essential: a kernel without them only loses these two effects.
pub fn become_group() {
    // SAFETY: both calls take numbers only.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

/// Connects standard input, output and error of this process to /dev/null.
pub fn silence_streams() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for stream in 0..3 {
        // SAFETY: dup2 takes numbers; the previous standard streams are not used any more.
        if unsafe { libc::dup2(null.as_raw_fd(), stream) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Waits for the child `pid` and returns its wait status.
#[inline(always)]
pub fn wait_for(pid: i32) -> i32 {
    let mut status = 0i32;
    loop {
        let a = [pid as usize, &raw mut status as usize, 0, 0, 0, 0];
        // SAFETY: wait4 writes one int to `status`.
        let got = unsafe { syscall(libc::SYS_wait4 as usize, a) };
        if got != -(libc::EINTR as isize) {
            return status;
        }
    }
}

/// fork(2); the child does nothing but exit(0). Returns the child's pid or a negated errno.
#[inline(never)]
pub fn fork_exit() -> isize {
    // SAFETY: the child runs only the instructions below.
    unsafe { split_and_exit(libc::SYS_fork) }
}

/// vfork(2); the child does nothing but exit(0).
#[inline(never)]
pub fn vfork_exit() -> isize {
    // SAFETY: the child shares the stack, and only uses registers.
    unsafe { split_and_exit(libc::SYS_vfork) }
}

/// # Safety
/// `call` must be fork or vfork.
#[inline(always)]
unsafe fn split_and_exit(call: i64) -> isize {
    let pid;
    // SAFETY: after the first `syscall` the child (rax = 0) exits without touching memory; the
    // parent continues with the pid in rax.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor edi, edi",
            "mov eax, 60",
            "syscall",
            "2:",
            inlateout("rax") call as isize => pid,
            lateout("rcx") _, lateout("r11") _, lateout("rdi") _,
        );
    }
    pid
}

/// The call that makes a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// fork(2)
    Fork,
    /// vfork(2)
    Vfork,
}

/// The arguments of execve(2) for a program.
#[derive(Debug)]
pub struct Program<'a> {
    path: &'a CStr,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
}

impl<'a> Program<'a> {
    /// `path` with `arguments` (the first being the program's name).
    pub fn new(path: &'a CStr, arguments: &[&'a CStr]) -> Self {
        let ended = arguments.iter().map(|a| a.as_ptr()).chain([std::ptr::null()]);
        Self { path, arguments: ended.collect(), environment: vec![std::ptr::null()] }
    }

    /// Adds variables, each NAME=VALUE, to an environment that is empty at first.
    pub fn environment(mut self, variables: &'a [CString]) -> Self {
        let variables = variables.iter().map(|variable| variable.as_ptr());
        self.environment.splice(..0, variables);
        self
    }

    /// Forks a child that executes the program; returns its pid or a negated errno.
    #[inline(never)]
    pub fn start(&self, how: Split) -> isize {
        let call = match how {
            Split::Fork => libc::SYS_fork,
            Split::Vfork => libc::SYS_vfork,
        };
        // SAFETY: the call is one of the two.
        unsafe { self.split_and_exec(call) }
    }

    /// # Safety
    /// `call` must be fork or vfork.
    #[inline(always)]
    unsafe fn split_and_exec(&self, call: i64) -> isize {
        let pid;
        // SAFETY: the child (rax = 0) calls execve with registers set before, and exits with
        // 127 if that fails; it touches no memory. The arrays end in null pointers.
        unsafe {
            asm!(
                "syscall",
                "test rax, rax",
                "jnz 2f",
                "mov rdi, r12",
                "mov rsi, r13",
                "mov rdx, r14",
                "mov eax, 59",
                "syscall",
                "mov edi, 127",
                "mov eax, 60",
                "syscall",
                "2:",
                inlateout("rax") call as isize => pid,
                in("r12") self.path.as_ptr(),
                in("r13") self.arguments.as_ptr(),
                in("r14") self.environment.as_ptr(),
                lateout("rcx") _, lateout("r11") _,
                lateout("rdi") _, lateout("rsi") _, lateout("rdx") _,
            );
        }
        pid
    }

    /// posix_spawn(3) of the program; the child's pid.
    pub fn spawn(&self) -> io::Result<i32> {
        let mut pid = 0;
        // SAFETY: path and arrays live as long as the call and end as C requires; null attributes
        // and actions mean the default ones.
        let error = unsafe {
            libc::posix_spawn(
                &mut pid,
                self.path.as_ptr(),
                std::ptr::null(),
                std::ptr::null(),
                self.arguments.as_ptr().cast::<*mut c_char>(),
                self.environment.as_ptr().cast::<*mut c_char>(),
            )
        };
        if error == 0 { Ok(pid) } else { Err(io::Error::from_raw_os_error(error)) }
    }
}
