//! Control groups for workers: one each, which belongs to the worker's user.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use hayate_stress::c_path;

/// Files of a group that a user is given: those by which groups are delegated (cgroups(7)), and
/// limits, so that users reach what stands behind them.
const GIVEN: &[&str] = &[
    "cgroup.procs",
    "cgroup.subtree_control",
    "cgroup.threads",
    "cgroup.freeze",
    "cgroup.kill",
    "cpu.max",
    "cpu.weight",
    "memory.max",
    "memory.high",
    "memory.low",
    "memory.reclaim",
    "pids.max",
    "io.max",
];

/// The mounted tree, with the groups of this program in it.
pub struct Groups {
    mount: String,
    /// Groups whose workers are gone, but which something still is in.
    left: Vec<String>,
}

impl Groups {
    /// Mounts the tree in a folder, and gives what controllers there are to the groups in it.
    pub fn new(base: &str) -> std::io::Result<Self> {
        let mount = format!("{base}/groups");
        fs::create_dir(&mount)?;
        let (path, kind) = (c_path(&mount), c"cgroup2".as_ptr());
        // SAFETY: live strings, and no data.
        if unsafe { libc::mount(kind, path.as_ptr(), kind, 0, std::ptr::null()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let groups = Groups { mount, left: Vec::new() };
        groups.give(&groups.mount);
        Ok(groups)
    }

    fn give(&self, group: &str) {
        for controller in ["+memory", "+pids", "+cpu", "+io"] {
            let _ = fs::write(format!("{group}/cgroup.subtree_control"), controller);
        }
    }

    /// Makes the group of a worker; `None` if that is not possible.
    pub fn make(&self, number: u64) -> Option<String> {
        let group = format!("{}/sysfuzz.{number}", self.mount);
        fs::create_dir(&group).ok()?;
        Some(group)
    }

    /// Ends what is in a group, and removes it, or does so later.
    pub fn remove(&mut self, group: String) {
        self.left.push(group);
        self.sweep();
    }

    fn sweep(&mut self) {
        self.left.retain(|group| {
            let _ = fs::write(format!("{group}/cgroup.kill"), "1");
            remove(Path::new(group));
            Path::new(group).exists()
        });
    }

    /// How many groups are left although their workers are gone.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// Removes what can be removed, and the mount.
    pub fn end(&mut self) {
        for _ in 0..50 {
            self.sweep();
        }
        let path = c_path(&self.mount);
        // SAFETY: the path is a live string.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Enters a group, and gives it to a user.
pub fn enter(group: &str, user: u32) {
    let _ = fs::write(format!("{group}/cgroup.procs"), "0");
    for file in [""].iter().chain(GIVEN) {
        let _ = chown(format!("{group}/{file}"), Some(user), Some(user));
    }
}

fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}
