//! The control group of a container, directly below the root of the machine's tree.
//!
//! The machine's init has mounted the tree; it gives all its controllers to the groups of
//! containers. A group is made before the first program and removed after it. All processes of the
//! container are in it or, if the container divides it, in one below: so it says which they are,
//! and ends, freezes and measures them.

use crate::{During, Failure};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the guest has the tree.
const TREE: &str = "/sys/fs/cgroup";
/// The name of a container's group begins so: no file of a group does.
const PREFIX: &str = "container-";
/// Controllers of each container.
const CONTROLLERS: &str = "+cpu +io +memory +pids";
/// How long killed or freezing processes may take.
const GRACE: Duration = Duration::from_secs(10);
/// Files that tell what a container uses.
const MEASURED: [&str; 9] = [
    "cpu.stat",
    "io.stat",
    "memory.current",
    "memory.events",
    "memory.max",
    "memory.peak",
    "memory.stat",
    "pids.current",
    "pids.max",
];

/// The group of a container.
pub struct Group {
    path: PathBuf,
}

impl Group {
    /// The group of a container, whether it is there or not.
    pub fn of(id: &str) -> Group {
        Group { path: Path::new(TREE).join(format!("{PREFIX}{id}")) }
    }

    /// Makes the group of a container, with these settings.
    pub fn make(id: &str, controls: &[(String, Vec<u8>)]) -> Result<Group, Failure> {
        mount_tree()?;
        let group = Group::of(id);
        std::fs::create_dir(&group.path).during("cannot make the control group")?;
        group.set(controls)?;
        Ok(group)
    }

    /// Writes settings, one after the other, to the first that is refused.
    pub fn set(&self, controls: &[(String, Vec<u8>)]) -> Result<(), Failure> {
        for (file, value) in controls {
            let shown = String::from_utf8_lossy(value);
            self.write(file, value).during(format!("cannot set {file} to {shown}"))?;
        }
        Ok(())
    }

    fn write(&self, file: &str, value: &[u8]) -> std::io::Result<()> {
        // Not `fs::write`, which would make a file: that is another error than a missing one.
        let mut file = File::options().write(true).open(self.path.join(file))?;
        std::io::Write::write_all(&mut file, value)
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path.join(file)).unwrap_or_default()
    }

    /// The number behind a word of a file.
    fn number(&self, file: &str, word: &str) -> Option<u64> {
        let text = self.read(file);
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == word)?.1.trim().parse().ok()
    }

    /// Opens the directory.
    pub fn open(&self) -> Result<File, Failure> {
        File::open(&self.path).during("cannot open the control group")
    }

    /// Moves this process into the group. `first`: the container's first program, whose group is
    /// taken if this one was divided and so takes no processes itself, as runc does.
    pub fn enter(&self, first: Option<u32>) -> Result<(), Failure> {
        let tried = "cannot enter the control group";
        match (self.write("cgroup.procs", b"0"), first) {
            (Err(error), Some(first))
                if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) =>
            {
                let text = std::fs::read_to_string(format!("/proc/{first}/cgroup"));
                let text = text.during(tried)?;
                let path = text.trim().strip_prefix("0::/").ok_or(Failure(tried.into()))?;
                let below = Group { path: Path::new(TREE).join(path) };
                below.write("cgroup.procs", b"0").during(tried)
            }
            (result, _) => result.during(tried),
        }
    }

    /// Returns this group and all below, each after those below it.
    fn all(&self) -> Vec<Group> {
        let mut found = Vec::new();
        let mut waiting = vec![self.path.clone()];
        while let Some(path) = waiting.pop() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            waiting.extend(folders.map(|entry| entry.path()));
            found.push(Group { path });
        }
        found.reverse();
        found
    }

    /// Returns the numbers of its processes.
    pub fn members(&self) -> Vec<u32> {
        let texts = self.all().into_iter().map(|group| group.read("cgroup.procs"));
        let numbers =
            texts.map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>());
        numbers.flatten().collect()
    }

    /// Whether a process is in it.
    pub fn has(&self, process: &str) -> bool {
        process.parse().is_ok_and(|process| self.members().contains(&process))
    }

    /// Kills all processes.
    pub fn kill(&self) -> Result<(), Failure> {
        self.write("cgroup.kill", b"1").during("cannot kill the container's processes")
    }

    /// Lets all processes rest, or go on.
    pub fn freeze(&self, rests: bool) -> Result<(), Failure> {
        let set = |value: &[u8]| {
            self.write("cgroup.freeze", value).during("cannot freeze the control group")
        };
        set(if rests { b"1" } else { b"0" })?;
        if rests && !self.becomes("frozen", 1) {
            set(b"0")?;
            return Err(Failure("the container's processes do not come to rest".into()));
        }
        Ok(())
    }

    /// Waits until `cgroup.events` says this of the group. False: it takes too long.
    fn becomes(&self, word: &str, wanted: u64) -> bool {
        let deadline = Instant::now() + GRACE;
        while self.number("cgroup.events", word) != Some(wanted) {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// How many processes were killed because memory lacked.
    pub fn killed(&self) -> u64 {
        self.number("memory.events", "oom_kill").unwrap_or_default()
    }

    /// Prints what it has used: each line begins with the name of a file.
    pub fn measure(&self) {
        for file in MEASURED {
            for line in self.read(file).lines() {
                println!("{file} {line}");
            }
        }
    }

    /// Kills what is in it, and removes it.
    pub fn remove(&self) -> Result<(), Failure> {
        if !self.path.exists() {
            return Ok(());
        }
        self.kill()?;
        if !self.becomes("populated", 0) {
            return Err(Failure(format!("{} processes do not end", self.members().len())));
        }
        for group in self.all() {
            std::fs::remove_dir(&group.path).during("cannot remove the control group")?;
        }
        Ok(())
    }
}

/// Mounts the tree where the machine's init could not, and lets groups have all controllers.
fn mount_tree() -> Result<(), Failure> {
    if !Path::new(TREE).join("cgroup.procs").exists() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        match mount("cgroup2", TREE, "cgroup2", flags, None) {
            // Another container was first.
            Ok(()) | Err(Errno::BUSY) => {}
            Err(error) => return Err(Failure::new("cannot mount the control groups", error)),
        }
    }
    Group { path: TREE.into() }
        .write("cgroup.subtree_control", CONTROLLERS.as_bytes())
        .during("cannot give controllers to the groups of containers")
}

/// Prints how many processes of each container were killed because memory lacked.
pub fn print_killed() -> Result<(), Failure> {
    let entries = match std::fs::read_dir(TREE) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Failure::new("cannot read the control groups", error));
        }
        entries => entries.into_iter().flatten().flatten(),
    };
    for entry in entries {
        let name = entry.file_name();
        if let Some(id) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
            println!("{id} {}", Group::of(id).killed());
        }
    }
    Ok(())
}
