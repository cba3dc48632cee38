//! Finding a virtio-serial port by its name.
//!
//! Hayate has a port at `/dev/vport/NAME`; a Linux with udev at `/dev/virtio-ports/NAME`; a Linux
//! without udev only at `/dev/vportNpM`, with the name in sysfs.

use crate::Failure;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode as Permissions, OFlags, open as open_file};
use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long a port may take to appear: Linux finds them after the driver is loaded.
const PATIENCE: Duration = Duration::from_secs(5);

/// The direction of the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// From the host.
    Read,
    /// To the host.
    Write,
    /// Both ways.
    Both,
}

/// Opens the port, non-blocking.
pub fn open(name: &str, mode: Mode) -> Result<File, Failure> {
    let began = Instant::now();
    let path = loop {
        if let Some(path) = find(name) {
            break path;
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::new(format!("the machine has no port {name}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let access = match mode {
        Mode::Read => OFlags::RDONLY,
        Mode::Write => OFlags::WRONLY,
        Mode::Both => OFlags::RDWR,
    };
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    open_file(&path, flags, Permissions::empty())
        .map(File::from)
        .map_err(|error| Failure::new(format!("cannot open {}: {error}", path.display())))
}

/// Waits until Linux knows that the host's end is connected: an earlier read would look like the
/// end of the input. The host's end is connected from the start, so the wait is short.
pub fn await_host(port: &File) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(100) {
        let mut polled = [PollFd::new(port, PollFlags::IN)];
        let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if poll(&mut polled, Some(&zero)).is_err() || !polled[0].revents().contains(PollFlags::HUP)
        {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn find(name: &str) -> Option<PathBuf> {
    for folder in ["/dev/vport", "/dev/virtio-ports"] {
        let path = PathBuf::from(folder).join(name);
        if path.exists() {
            return Some(path);
        }
    }
    for entry in std::fs::read_dir("/sys/class/virtio-ports").ok()?.flatten() {
        let known = std::fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if known.trim_end() == name {
            return Some(PathBuf::from("/dev").join(entry.file_name()));
        }
    }
    None
}
