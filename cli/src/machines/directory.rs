//! The folders of machines: names, locks, states, and what killed supervisors left.
//!
//! Lock order: `.lock` of the folder of all machines, which is held for moments, before `lock` of a
//! machine, which its supervisor holds to its end.

use crate::failure::{FAULT, Failure};
use crate::paths;
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const LOCK: &str = "lock";
const SOCKET: &str = "socket";
const STATE: &str = "state";

/// A process of the host, so that its number cannot be mistaken for that of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// When it started, in ticks since the host's boot.
    pub start: u64,
}

impl Process {
    /// Returns the process with this number, if there is one that has not ended.
    pub fn of(pid: i32) -> Option<Process> {
        // Its parent may be slow to learn of its end.
        Process::seen(pid).filter(|(_, state)| !matches!(state, 'Z' | 'X')).map(|(known, _)| known)
    }

    /// Returns the process with this number and its state, for which nobody need have waited.
    fn seen(pid: i32) -> Option<(Process, char)> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything. What follows begins with field 3, and the
        // start time is field 22 (proc_pid_stat(5)).
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let start = fields.nth(18)?.parse().ok()?;
        Some((Process { pid, start }, state))
    }

    /// Whether it is still there.
    pub fn is_alive(&self) -> bool {
        Process::of(self.pid).as_ref() == Some(self)
    }

    /// Sends it a signal, if it is still there.
    pub fn signal(&self, signal: Signal) {
        if self.is_alive()
            && let Some(pid) = Pid::from_raw(self.pid)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it and waits until it is gone, ten seconds at most, so that its locks and its files
    /// are free. Its first thread may be a zombie while others still hold them: the descriptor
    /// becomes readable when the last one has ended (pidfd_open(2)).
    fn kill(self) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // Asked for when the descriptor is there, so that both are of one process.
        if Process::seen(self.pid).is_none_or(|(known, _)| known != self) {
            return;
        }
        let _ = pidfd_send_signal(&handle, Signal::KILL);
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&limit));
    }

    fn value(self) -> Value {
        json!({ "pid": self.pid, "start": self.start })
    }

    fn of_value(value: &Value) -> Option<Process> {
        let pid = i32::try_from(value.get("pid")?.as_i64()?).ok()?;
        Some(Process { pid, start: value.get("start")?.as_u64()? })
    }
}

/// Why a machine ended, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// In seconds since 1970.
    pub at: u64,
    /// The reason, for people.
    pub why: String,
}

/// What is known of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// When it was started, in seconds since 1970.
    pub started: u64,
    /// Its first program, for people.
    pub command: String,
    /// Its processors.
    pub cpus: u8,
    /// Its memory in MiB.
    pub memory: u64,
    /// Whether it is removed when it ends.
    pub remove: bool,
    /// Its supervisor.
    pub supervisor: Process,
    /// Its QEMU, once that was started.
    pub qemu: Option<Process>,
    /// Whether programs may be started in it.
    pub ready: bool,
    /// How it ended, if it did.
    pub ended: Option<Ended>,
}

impl State {
    fn encode(&self) -> String {
        let value = json!({
            "started": self.started,
            "command": self.command,
            "cpus": self.cpus,
            "memory": self.memory,
            "remove": self.remove,
            "supervisor": self.supervisor.value(),
            "qemu": self.qemu.map(Process::value),
            "ready": self.ready,
            "ended": self.ended.as_ref().map(|end| json!({ "at": end.at, "why": end.why })),
        });
        format!("{value}\n")
    }

    fn decode(text: &str) -> Option<State> {
        let value: Value = serde_json::from_str(text).ok()?;
        let ended = value.get("ended").filter(|ended| !ended.is_null()).map(|ended| {
            let why = ended.get("why").and_then(Value::as_str).unwrap_or_default().to_string();
            Ended { at: ended.get("at").and_then(Value::as_u64).unwrap_or_default(), why }
        });
        Some(State {
            started: value.get("started")?.as_u64()?,
            command: value.get("command")?.as_str()?.to_string(),
            cpus: u8::try_from(value.get("cpus")?.as_u64()?).ok()?,
            memory: value.get("memory")?.as_u64()?,
            remove: value.get("remove")?.as_bool()?,
            supervisor: Process::of_value(value.get("supervisor")?)?,
            qemu: value.get("qemu").and_then(Process::of_value),
            ready: value.get("ready")?.as_bool()?,
            ended,
        })
    }
}

/// Returns the time, in seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The folder of all machines of this project.
pub struct Machines {
    folder: PathBuf,
}

/// The folder of a machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name.
    pub name: String,
    folder: PathBuf,
}

/// A machine's folder, in the hands of its supervisor.
pub struct Owned {
    /// The machine.
    pub machine: Machine,
    /// Held as long as the supervisor lives.
    lock: File,
}

impl Machines {
    /// Returns the folder, which is made if missing.
    pub fn open() -> Result<Machines> {
        Ok(Machines { folder: paths::build("machines")? })
    }

    fn machine(&self, name: &str) -> Machine {
        Machine { name: name.to_string(), folder: self.folder.join(name) }
    }

    /// Makes the folder of a machine of this process, under a free name if none is wanted.
    ///
    /// # Errors
    /// The name is taken.
    pub fn create(&self, wanted: Option<&str>, state: &State) -> Result<Owned> {
        let _alone = paths::lock_folder(&self.folder)?;
        let builder = || {
            let mut builder = DirBuilder::new();
            builder.mode(0o700);
            builder
        };
        let mut number = 1;
        let machine = loop {
            let machine = match wanted {
                Some(name) => self.machine(name),
                None => self.machine(&format!("m{number}")),
            };
            match builder().create(&machine.folder) {
                Ok(()) => break machine,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => bail!("cannot make {}: {error}", machine.folder.display()),
            }
            let Some(name) = wanted else {
                number += 1;
                continue;
            };
            machine.settle()?;
            if machine.folder.exists() {
                let how = if machine.runs() { "runs: stop it" } else { "ended: remove it" };
                let command = if machine.runs() { "stop" } else { "rm" };
                let text = format!("a machine {name} {how} (./hayate {command} {name})");
                return Err(Failure::error(FAULT, format!("{text}, or use another name")));
            }
        };
        let path = machine.folder.join(LOCK);
        let lock =
            File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        lock.lock().with_context(|| format!("cannot lock {}", path.display()))?;
        machine.write(state)?;
        Ok(Owned { machine, lock })
    }

    /// Returns the machine of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str) -> Result<Machine> {
        let machine = self.machine(name);
        if !machine.folder.exists() {
            let text = format!("there is no machine {name}; ./hayate ps -a lists them");
            return Err(Failure::error(FAULT, text));
        }
        Ok(machine)
    }

    /// Returns all machines by name, those that ended included, after clearing up.
    pub fn all(&self) -> Result<Vec<Machine>> {
        let _alone = paths::lock_folder(&self.folder)?;
        let mut found = Vec::new();
        let list = self.folder.read_dir();
        for entry in list.with_context(|| format!("cannot list {}", self.folder.display()))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !name.starts_with('.') {
                let machine = self.machine(&name);
                machine.settle()?;
                if machine.folder.exists() {
                    found.push(machine);
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Clears up after the machine's supervisor, if it was killed.
    pub fn settle(&self, machine: &Machine) -> Result<()> {
        let _alone = paths::lock_folder(&self.folder)?;
        machine.settle()
    }

    /// Removes a machine that has ended.
    ///
    /// # Errors
    /// It runs.
    pub fn remove(&self, machine: &Machine) -> Result<()> {
        let _alone = paths::lock_folder(&self.folder)?;
        if machine.runs() {
            let name = &machine.name;
            let text = format!("the machine {name} runs; ./hayate stop {name}, or rm -f {name}");
            return Err(Failure::error(FAULT, text));
        }
        machine.settle()?;
        machine.delete()
    }
}

impl Machine {
    /// Returns the path of a file of the machine.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether its supervisor lives.
    pub fn runs(&self) -> bool {
        let Ok(lock) = File::open(self.folder.join(LOCK)) else { return false };
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Waits until its supervisor has ended.
    pub fn wait(&self) -> Result<()> {
        match File::open(self.folder.join(LOCK)) {
            Ok(lock) => lock.lock_shared().context("cannot wait for the machine's end"),
            // It was removed when it ended.
            Err(_) => Ok(()),
        }
    }

    /// Returns its state, if it has one that can be read.
    pub fn state(&self) -> Option<State> {
        State::decode(&std::fs::read_to_string(self.folder.join(STATE)).ok()?)
    }

    /// Writes its state; a reader sees the old one or this one.
    pub fn write(&self, state: &State) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let mut next = tempfile::NamedTempFile::with_prefix_in(".state-", &self.folder)?;
            next.write_all(state.encode().as_bytes())?;
            next.persist(self.folder.join(STATE))?;
            Ok(())
        };
        write().with_context(|| format!("cannot write the state of the machine {}", self.name))
    }

    /// Clears up after a supervisor that ended without doing so: no socket stays, and no QEMU,
    /// which would still have the disks. The caller holds the lock of all machines.
    fn settle(&self) -> Result<()> {
        if self.runs() {
            return Ok(());
        }
        match self.state() {
            // It was never more than begun.
            None => self.delete(),
            Some(state) if state.ended.is_some() => Ok(()),
            Some(state) => {
                if let Some(qemu) = state.qemu {
                    qemu.kill();
                }
                // Nobody was told of a machine that was never ready.
                if !state.ready {
                    return self.delete();
                }
                self.conclude(state, "its supervisor was killed, or the host was restarted")
            }
        }
    }

    /// Notes the end of the machine. Nothing of it but its state and logs stays.
    pub fn conclude(&self, state: State, why: &str) -> Result<()> {
        let _ = std::fs::remove_file(self.folder.join(SOCKET));
        if state.remove {
            return self.delete();
        }
        let ended = Some(Ended { at: now(), why: why.to_string() });
        self.write(&State { ended, ready: false, ..state })
    }

    /// Removes the folder.
    pub fn delete(&self) -> Result<()> {
        // The lock last: as long as it is there the machine can be found, and removed again.
        for entry in self.folder.read_dir().into_iter().flatten().flatten() {
            if entry.file_name() != LOCK {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                bail!("cannot remove {}: {error}", self.folder.display())
            }
            _ => Ok(()),
        }
    }

    /// Makes the machine's socket.
    pub fn listen(&self) -> Result<UnixListener> {
        self.by_short_path(|path| UnixListener::bind(path))
            .with_context(|| format!("cannot make a socket in {}", self.folder.display()))
    }

    /// Connects to the machine.
    ///
    /// # Errors
    /// It has ended, or is still being started.
    pub fn connect(&self) -> Result<UnixStream> {
        let error = match self.by_short_path(|path| UnixStream::connect(path)) {
            Ok(socket) => return Ok(socket),
            Err(error) => error,
        };
        let name = &self.name;
        let text = if self.runs() {
            match error.kind() {
                ErrorKind::NotFound => format!("the machine {name} is still being started"),
                _ => format!("cannot connect to the machine {name}: {error}"),
            }
        } else {
            let why = self.state().and_then(|state| state.ended);
            let why = why.map_or(String::new(), |ended| format!(" ({})", ended.why));
            format!("the machine {name} has ended{why}; ./hayate rm {name}, and start it again")
        };
        Err(Failure::error(FAULT, text))
    }

    /// Calls `with` with a path of the socket that is always short: the address of a socket has
    /// 108 bytes at most (unix(7)), and the project may lie deep.
    fn by_short_path<T>(&self, with: impl Fn(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
        let folder = File::open(&self.folder)?;
        with(Path::new(&format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd())))
    }
}

impl Owned {
    /// Whether the folder is still there: it may have been removed by hand.
    pub fn is_there(&self) -> bool {
        let ours = self.lock.metadata().map(|found| found.ino());
        let there = self.machine.folder.join(LOCK).metadata().map(|found| found.ino());
        ours.ok() == there.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            started: 7,
            command: "sh -c 'a\nb'".into(),
            cpus: 2,
            memory: 512,
            remove: false,
            supervisor: Process { pid: 1, start: 2 },
            qemu: None,
            ready: true,
            ended: Some(Ended { at: 9, why: "it was stopped".into() }),
        }
    }

    fn machines(folder: &tempfile::TempDir) -> Machines {
        Machines { folder: folder.path().to_path_buf() }
    }

    #[test]
    fn a_state_is_read_as_written() {
        let running = State { qemu: Some(Process { pid: 3, start: 4 }), ended: None, ..state() };
        for state in [state(), running] {
            assert_eq!(State::decode(&state.encode()), Some(state));
        }
        assert_eq!(State::decode("{}"), None);
        assert_eq!(State::decode("\0"), None);
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = Process::of(std::process::id() as i32).unwrap();
        assert!(own.is_alive());
        assert!(!Process { start: own.start + 1, ..own }.is_alive());
        assert_eq!(Process::of(i32::MAX), None);
    }

    #[test]
    fn a_name_has_one_machine() {
        let folder = tempfile::tempdir().unwrap();
        let machines = machines(&folder);
        let running = State { ended: None, ..state() };
        let owned = machines.create(Some("a"), &running).unwrap();
        assert!(owned.machine.runs() && owned.is_there());
        let told = |error: Option<anyhow::Error>| error.map(|error| error.to_string()).unwrap();
        let taken = told(machines.create(Some("a"), &running).err());
        assert!(taken.contains("./hayate stop a"), "{taken}");
        assert!(told(machines.remove(&owned.machine).err()).contains("runs"));
        assert!(told(machines.find("b").err()).contains("there is no machine b"));
        let first = machines.create(None, &running).unwrap();
        let second = machines.create(None, &running).unwrap();
        assert_eq!([&first.machine.name, &second.machine.name], ["m1", "m2"]);
        std::fs::remove_dir_all(&second.machine.folder).unwrap();
        assert!(!second.is_there());
    }

    /// When `kill` returns, the process has no files: the lock that it had is free.
    #[test]
    fn a_killed_process_has_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        for _ in 0..20 {
            let lock = File::create(&path).unwrap();
            lock.lock().unwrap();
            let mut child =
                std::process::Command::new("sleep").arg("60").stdin(lock).spawn().unwrap();
            let known = Process::of(child.id().cast_signed()).unwrap();
            Process { start: known.start + 1, ..known }.kill();
            assert!(known.is_alive(), "another one was killed");
            known.kill();
            assert!(!known.is_alive());
            File::open(&path).unwrap().try_lock().unwrap();
            // Nobody waited for it, and it is not killed twice.
            known.kill();
            child.wait().unwrap();
            known.kill();
        }
    }

    /// A supervisor that was killed leaves a socket and a state that says it runs.
    #[test]
    fn what_a_killed_supervisor_left_is_cleared_up() {
        let folder = tempfile::tempdir().unwrap();
        let machines = machines(&folder);
        let running = State { ended: None, ..state() };
        let owned = machines.create(Some("a"), &running).unwrap();
        let socket = owned.machine.listen().unwrap();
        assert!(owned.machine.connect().is_ok());
        let machine = owned.machine.clone();
        drop((owned, socket));
        let told = machine.connect().unwrap_err().to_string();
        assert!(told.contains("has ended"), "{told}");
        assert_eq!(machines.all().unwrap().len(), 1);
        assert!(!machine.file(SOCKET).exists());
        assert!(machine.state().unwrap().ended.unwrap().why.contains("killed"));
        let told = machines.create(Some("a"), &running).err().unwrap().to_string();
        assert!(told.contains("./hayate rm a"), "{told}");
        machines.remove(&machine).unwrap();
        // One that is removed when it ends, and one that was only begun.
        drop(machines.create(Some("a"), &State { remove: true, ..running }).unwrap());
        std::fs::create_dir(folder.path().join("begun")).unwrap();
        assert!(machines.all().unwrap().is_empty());
        assert_eq!(folder.path().read_dir().unwrap().count(), 1, "more than the lock stays");
    }
}
