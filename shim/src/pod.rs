//! The state of a pod: its machine, its containers, their programs, and how each of them is.

use crate::controls::Controls;
use crate::folder::Folder;
use crate::hooks::Hooks;
use crate::machine::{Lack, Machine};
use crate::network::{self, Joined};
use crate::program::{Handle, Running, ask};
use crate::stdio::Stdio;
use anyhow::{Context as _, ensure};
use containerd_shim::event::Event;
use containerd_shim::protos::events::task as events;
use containerd_shim::protos::protobuf::well_known_types::timestamp::Timestamp;
use containerd_shim::protos::protobuf::{MessageDyn, MessageField};
use containerd_shim::publisher::RemotePublisher;
use containerd_shim::{Context, Error};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OnceCell, watch};

/// How long messages about memory that lacks are gathered.
const PAUSE: Duration = Duration::from_millis(50);
/// The guest's program.
pub const GUEST: &str = "/run/hayate/bin/container";

type Result<T> = std::result::Result<T, Error>;

/// Returns the time.
pub fn now() -> Timestamp {
    containerd_shim::util::timestamp().unwrap_or_default()
}

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Exit {
    /// Its status, or 128 and the signal's number.
    pub status: u32,
    /// When.
    pub at: Timestamp,
}

/// How far a program is.
#[derive(Clone)]
pub enum Stage {
    /// It was asked for.
    Created,
    /// It is being started.
    Starting,
    /// It runs, under this number in the guest.
    Running(u32, Handle),
    /// It has ended, or was not started.
    Ended,
}

/// A program of a container.
pub struct Program {
    /// Its name; empty: it is the first.
    pub exec: String,
    /// Its streams.
    pub stdio: Stdio,
    stage: Mutex<Stage>,
    /// The size of its terminal, if it was told before there was one.
    size: Mutex<Option<(u16, u16)>>,
    /// Whether its input was closed, which may be before it runs.
    closed: AtomicBool,
    exit: watch::Sender<Option<Exit>>,
}

impl Program {
    fn new(exec: &str, stdio: Stdio) -> Program {
        Program {
            exec: exec.to_string(),
            stdio,
            stage: Mutex::new(Stage::Created),
            size: Mutex::default(),
            closed: AtomicBool::new(false),
            exit: watch::Sender::new(None),
        }
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        hold(&self.stage).clone()
    }

    /// Notes that it is being started, which happens once.
    pub fn begin(&self) -> Result<()> {
        let mut stage = hold(&self.stage);
        if !matches!(*stage, Stage::Created) {
            return Err(Error::FailedPreconditionError("it was started before".into()));
        }
        *stage = Stage::Starting;
        Ok(())
    }

    /// Notes that it runs.
    pub fn runs(&self, pid: u32, handle: Handle) {
        if let Some((rows, columns)) = hold(&self.size).take() {
            handle.resize(rows, columns);
        }
        *hold(&self.stage) = Stage::Running(pid, handle);
        if self.closed.load(Ordering::SeqCst) {
            self.close_input();
        }
    }

    /// Notes its end.
    pub fn finish(&self, exit: Exit) {
        *hold(&self.stage) = Stage::Ended;
        self.exit.send_replace(Some(exit));
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.borrow().clone()
    }

    /// Waits for its end.
    pub async fn ended(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        let ended = exit.wait_for(Option::is_some).await.ok().and_then(|exit| exit.clone());
        ended.unwrap_or_else(|| Exit { status: crate::program::KILLED, at: now() })
    }

    /// Sets the size of its terminal.
    pub fn resize(&self, rows: u16, columns: u16) {
        match self.stage() {
            Stage::Running(_, handle) => handle.resize(rows, columns),
            _ => *hold(&self.size) = Some((rows, columns)),
        }
    }

    /// Lets its input end.
    pub fn close_input(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if let Stage::Running(_, handle) = self.stage() {
            handle.close_input();
        }
    }
}

/// The PID namespace of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// One of its own.
    Own,
    /// The machine's.
    Machine,
    /// That of another container of the pod.
    Of(String),
}

/// A container.
pub struct Task {
    /// Its identifier.
    pub id: String,
    /// containerd's folder of it.
    pub bundle: PathBuf,
    /// Its folder in that of the pod.
    pub folder: Folder,
    /// Programs of the host to be run.
    pub hooks: Hooks,
    /// Its PID namespace.
    pub numbers: Numbers,
    /// What its control group was told last.
    controls: Mutex<Controls>,
    first: Arc<Program>,
    further: Mutex<HashMap<String, Arc<Program>>>,
    paused: AtomicBool,
    /// How many of its processes were killed because memory lacked, as far as was told.
    killed: AtomicU64,
}

impl Task {
    /// A container whose first program has these streams.
    pub fn new(id: &str, bundle: PathBuf, folder: Folder, stdio: Stdio, hooks: Hooks) -> Task {
        Task {
            id: id.to_string(),
            bundle,
            folder,
            hooks,
            numbers: Numbers::Own,
            controls: Mutex::default(),
            first: Arc::new(Program::new("", stdio)),
            further: Mutex::default(),
            paused: AtomicBool::new(false),
            killed: AtomicU64::new(0),
        }
    }

    /// What its control group was told last.
    pub fn controls(&self) -> Controls {
        hold(&self.controls).clone()
    }

    /// Notes what its control group was told.
    pub fn set_controls(&self, told: Controls) {
        let mut known = hold(&self.controls);
        known.retain(|(file, _)| told.iter().all(|(other, _)| file != other));
        known.extend(told);
    }

    /// Whether its processes rest.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Notes that its processes rest, or go on.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Finds a program of it; the empty name is the first's.
    pub fn program(&self, exec: &str) -> Result<Arc<Program>> {
        if exec.is_empty() {
            return Ok(self.first.clone());
        }
        let found = hold(&self.further).get(exec).cloned();
        found.ok_or_else(|| Error::NotFoundError(format!("there is no process {exec}")))
    }

    /// Adds a program.
    pub fn exec(&self, exec: &str, stdio: Stdio) -> Result<()> {
        let mut further = hold(&self.further);
        if further.contains_key(exec) {
            return Err(Error::InvalidArgument(format!("the process {exec} is there already")));
        }
        further.insert(exec.to_string(), Arc::new(Program::new(exec, stdio)));
        Ok(())
    }

    /// Forgets a program.
    pub fn forget(&self, exec: &str) {
        hold(&self.further).remove(exec);
    }

    /// The number of its first program in the guest, while that runs.
    pub fn runs_as(&self) -> Option<u32> {
        match self.first.stage() {
            Stage::Running(pid, _) => Some(pid),
            _ => None,
        }
    }
}

/// A pod.
pub struct Pod {
    /// Its machine, once there was a container.
    pub machine: OnceCell<Arc<Machine>>,
    /// The pod's interface, once there was one. The lock is held while it is looked for.
    joined: tokio::sync::Mutex<Option<Joined>>,
    /// containerd's namespace.
    pub namespace: String,
    publisher: RemotePublisher,
    tasks: Mutex<HashMap<String, Arc<Task>>>,
}

impl Pod {
    /// A pod without containers.
    pub fn new(namespace: String, publisher: RemotePublisher) -> Pod {
        Pod {
            machine: OnceCell::new(),
            joined: tokio::sync::Mutex::default(),
            namespace,
            publisher,
            tasks: Mutex::default(),
        }
    }

    /// QEMU's number, which stands for the number of every program: those of the guest's are not
    /// the host's.
    pub fn pid(&self) -> u32 {
        self.machine.get().map_or(0, |machine| machine.pid)
    }

    /// Joins the machine with the pod's interface, if there is one and it was not yet done.
    pub async fn join(&self, machine: &Machine, task: &Task) -> anyhow::Result<()> {
        let mut joined = self.joined.lock().await;
        if joined.is_some() || !machine.has_tap {
            return Ok(());
        }
        let pid = machine.pid;
        let found = tokio::task::spawn_blocking(move || network::join(pid)).await??;
        let Some((pod, interface)) = found else { return Ok(()) };
        // From here on the namespace itself gets no frame: it is left again at the pod's end.
        *joined = Some(pod);
        task.folder.interface(&interface)?;
        let told = ask(&machine.link, &[GUEST, "join", &task.id]).await;
        told.map(drop).map_err(anyhow::Error::msg)
    }

    /// Gives the interface back, at the end.
    pub async fn leave(&self) {
        if let Some(joined) = self.joined.lock().await.take() {
            let _ = tokio::task::spawn_blocking(move || joined.leave()).await;
        }
    }

    /// Finds a container.
    pub fn find(&self, id: &str) -> Result<Arc<Task>> {
        let found = hold(&self.tasks).get(id).cloned();
        found.ok_or_else(|| Error::NotFoundError(format!("there is no container {id}")))
    }

    /// Adds a container.
    pub fn add(&self, task: Arc<Task>) {
        hold(&self.tasks).insert(task.id.clone(), task);
    }

    /// Forgets a container.
    pub fn remove(&self, id: &str) {
        hold(&self.tasks).remove(id);
    }

    /// Whether it has no container.
    pub fn is_empty(&self) -> bool {
        hold(&self.tasks).is_empty()
    }

    /// The container that a process of the host stands for, in a pod of this name. All containers
    /// have QEMU's number, so it is the pod's sandbox, or the only one that there is.
    pub fn meant(&self, pid: u32, name: &str) -> anyhow::Result<String> {
        ensure!(
            pid != 0 && pid == self.pid(),
            "a namespace of process {pid} is asked for, which is none of the pod's"
        );
        let tasks = hold(&self.tasks);
        let mut names = tasks.keys();
        let only = names.next().filter(|_| names.next().is_none());
        let found = tasks.get_key_value(name).map(|(name, _)| name).or(only);
        found.cloned().context("which container's namespace is asked for cannot be told")
    }

    /// Tells containerd of an event.
    pub async fn publish<E: Event + MessageDyn>(&self, event: E) {
        let topic = event.topic();
        let told =
            self.publisher.publish(Context::default(), &topic, &self.namespace, Box::new(event));
        if let Err(error) = told.await {
            log::warn!("cannot publish {topic}: {error}");
        }
    }

    /// Notes and tells the end of a program.
    pub async fn conclude(&self, task: &Task, program: &Program, exit: Exit) {
        program.finish(exit.clone());
        let id = if program.exec.is_empty() { &task.id } else { &program.exec };
        let event = events::TaskExit {
            container_id: task.id.clone(),
            id: id.clone(),
            pid: self.pid(),
            exit_status: exit.status,
            exited_at: MessageField::some(exit.at),
            ..Default::default()
        };
        self.publish(event).await;
    }

    /// Carries a program's streams to its end. With the first one the container ends: what it has
    /// left behind is killed before anybody hears of it, as with a namespace of processes.
    pub async fn watch(
        self: Arc<Self>,
        machine: Arc<Machine>,
        task: Arc<Task>,
        program: Arc<Program>,
        running: Running,
    ) {
        let status = running.finish().await;
        let at = now();
        if program.exec.is_empty() {
            match ask(&machine.link, &[GUEST, "end", &task.id]).await {
                // Who hears of the end shall know the reason.
                Ok(count) => self.tell_killed(&task, count.trim().parse().unwrap_or(0)).await,
                Err(_) if machine.is_over() => {}
                Err(text) => log::warn!("the end of {}: {text}", task.id),
            }
        }
        self.conclude(&task, &program, Exit { status, at }).await;
    }

    /// Tells of processes of a container that were killed because memory lacked, if there are more
    /// than was told before.
    async fn tell_killed(&self, task: &Task, count: u64) {
        if task.killed.fetch_max(count, Ordering::Relaxed) < count {
            let container_id = task.id.clone();
            self.publish(events::TaskOOM { container_id, ..Default::default() }).await;
        }
    }

    /// Finds out what the kernel's messages about memory that lacks mean for containers: a control
    /// group counts its processes that were killed for that, whether its own memory lacked or the
    /// machine's.
    pub async fn tell_lacks(self: Arc<Self>, mut lacks: UnboundedReceiver<Lack>) {
        while lacks.recv().await.is_some() {
            // Each question is a program in the guest: one for all messages of a while. A message
            // that comes after the question is another one's.
            tokio::time::sleep(PAUSE).await;
            while lacks.try_recv().is_ok() {}
            self.ask_killed().await;
        }
    }

    async fn ask_killed(&self) {
        let Some(machine) = self.machine.get() else { return };
        // What cannot be asked now is told at the end of the container.
        let Ok(text) = ask(&machine.link, &[GUEST, "killed"]).await else { return };
        for (id, count) in text.lines().filter_map(|line| line.rsplit_once(' ')) {
            if let (Ok(task), Ok(count)) = (self.find(id), count.parse()) {
                self.tell_killed(&task, count).await;
            }
        }
    }
}
