//! The ends of children, as a descriptor that becomes readable.
//!
//! `SIGCHLD` is blocked and read by signalfd(2), so that no end is missed between a check and a
//! wait. It must be blocked before another thread is started: one that does not block it would take
//! the signal and ignore it.
//!
//! Road not taken: a handler, with `ppoll` or with a pipe. The kernel would build a frame for it and
//! read that back, which is much more code for the same news.

use crate::Failure;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The descriptor.
pub struct Children(OwnedFd);

impl Children {
    /// Blocks the signal in this thread and in those that it starts.
    pub fn watch() -> Result<Children, Failure> {
        // SAFETY: the set is zeroed, which is a valid value of it, and outlives the calls.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            let error = std::io::Error::last_os_error();
            return Err(Failure::new(format!("cannot watch children: {error}")));
        }
        // SAFETY: a new descriptor, which nothing else owns.
        Ok(Children(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// What to wait for.
    pub fn interest(&self) -> libc::pollfd {
        libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 }
    }

    /// Takes the news that children have ended.
    pub fn clear(&self) {
        // Several ends are one signal.
        let mut news = [0; size_of::<libc::signalfd_siginfo>()];
        while let Ok(1..) | Err(Errno::INTR) = rustix::io::read(&self.0, &mut news) {}
    }

    /// Waits until one of the entries is ready or a child ends.
    pub fn poll<const N: usize>(&self, entries: &mut [libc::pollfd; N]) {
        let mut all = [self.interest(); 8];
        assert!(N < all.len(), "too many streams");
        all[1..=N].copy_from_slice(entries);
        // SAFETY: the entries are valid for their number.
        let count = unsafe { libc::poll(all.as_mut_ptr(), N as libc::nfds_t + 1, -1) };
        for (entry, polled) in entries.iter_mut().zip(&all[1..]) {
            entry.revents = if count > 0 { polled.revents } else { 0 };
        }
        if count > 0 && all[0].revents != 0 {
            self.clear();
        }
    }
}
