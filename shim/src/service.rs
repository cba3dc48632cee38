//! The calls of containerd: this program's `start` and `delete`, and the service of tasks.
//!
//! What a call waits for holds no lock, so that `Kill` and `Wait` are served meanwhile. Events are
//! published in the order of what they tell: a task's start before its end.

use crate::folder::{self, Folder};
use crate::hooks::Moment;
use crate::machine::{self, Machine};
use crate::pod::{Exit, GUEST, Numbers, Pod, Program, Stage, Task as Container, now};
use crate::program::{self, KILLED, ask};
use crate::spec::{self, Pids};
use crate::stdio::Stdio;
use crate::{controls, hooks, metrics};
use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use containerd_shim::asynchronous::{self, ExitSignal, spawn};
use containerd_shim::protos::api::{self, Status};
use containerd_shim::protos::events::task as events;
use containerd_shim::protos::protobuf::MessageField;
use containerd_shim::protos::ttrpc;
use containerd_shim::protos::types::task::ProcessInfo;
use containerd_shim::publisher::RemotePublisher;
use containerd_shim::util::write_str_to_file;
use containerd_shim::{Config, Error, Flags, StartOpts, Task, TtrpcContext, TtrpcResult};
use hayate_channel::command::PidNamespace;
use hayate_container_plan::Plan;
use oci_spec::runtime::{LinuxMemory, LinuxResources};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long QEMU may take to end at the pod's end.
const GRACE: Duration = Duration::from_secs(5);

/// In the folder of a container: what its control group is told while it runs.
const UPDATE: &str = "update";

/// This program, as containerd starts it.
pub struct Shim {
    id: String,
    namespace: String,
    /// The address that it serves, if it does.
    socket: String,
    exit: Arc<ExitSignal>,
}

type Result<T> = std::result::Result<T, Error>;

fn failed(error: anyhow::Error) -> Error {
    other(format!("{error:#}"))
}

/// An error that containerd shows as it is.
fn other(text: impl ToString) -> Error {
    Error::Ttrpc(ttrpc::Error::RpcStatus(ttrpc::get_status(ttrpc::Code::UNKNOWN, text)))
}

#[async_trait]
impl asynchronous::Shim for Shim {
    type T = Service;

    async fn new(_runtime: &str, flags: &Flags, _config: &mut Config) -> Shim {
        let (id, namespace) = (flags.id.clone(), flags.namespace.clone());
        Shim { id, namespace, socket: flags.socket.clone(), exit: Arc::default() }
    }

    /// Leaves a shim for the pod, unless there is one: its socket is named after the pod.
    async fn start_shim(&mut self, options: StartOpts) -> Result<String> {
        let spec = spec::read(Path::new(".")).map_err(failed)?;
        let pod = spec::pod(&spec, &self.id);
        let address = spawn(options, &pod, Vec::new()).await?;
        // containerd finds the shim by it when it was started anew.
        write_str_to_file("address", &address).await?;
        Ok(address)
    }

    /// Clears up after a shim that was killed; its machine is gone with it.
    async fn delete_shim(&mut self) -> Result<api::DeleteResponse> {
        let bundle = Path::new(".");
        if let Some(folder) = Folder::of_bundle(bundle) {
            folder.remove().map_err(failed)?;
        }
        remove_dead_socket(bundle);
        if let Ok(hooks) = spec::read(bundle).and_then(|spec| hooks::of(&spec)) {
            let here = std::env::current_dir().unwrap_or_default();
            if let Err(error) = hooks::run(&hooks, Moment::Stopped, &self.id, 0, &here).await {
                eprintln!("{error:#}");
            }
        }
        let mut response = api::DeleteResponse::new();
        response.set_exit_status(KILLED);
        response.set_exited_at(now());
        Ok(response)
    }

    async fn wait(&mut self) {
        self.exit.wait().await;
    }

    async fn create_task_service(&self, publisher: RemotePublisher) -> Service {
        let pod = Pod::new(self.namespace.clone(), publisher);
        Service { pod: Arc::new(pod), socket: self.socket.clone(), exit: self.exit.clone() }
    }
}

/// The path of a socket's address.
fn path_of(address: &str) -> &Path {
    Path::new(address.trim().trim_start_matches("unix://"))
}

/// Removes the socket of a shim that no longer answers. Another container of the pod may have one
/// that does.
fn remove_dead_socket(bundle: &Path) {
    let Ok(address) = std::fs::read_to_string(bundle.join("address")) else { return };
    let path = path_of(&address);
    if std::os::unix::net::UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

/// The service of tasks.
pub struct Service {
    pod: Arc<Pod>,
    socket: String,
    exit: Arc<ExitSignal>,
}

impl Service {
    /// Makes a container's folder and mounts, and the machine if it is the pod's first.
    async fn make(&self, request: &api::CreateTaskRequest) -> anyhow::Result<Arc<Container>> {
        let bundle = PathBuf::from(&request.bundle);
        let spec = spec::read(&bundle)?;
        let mut wanted = spec::wanted(&spec, &bundle)?;
        wanted.plan.terminal = request.terminal;
        let id = &request.id;
        let pod = spec::pod(&spec, id);
        let numbers = match wanted.pids {
            Pids::New => Numbers::Own,
            Pids::Machine => Numbers::Machine,
            Pids::Of(pid) => Numbers::Of(self.pod.meant(pid, &pod)?),
        };
        let meant = |pid: Option<u32>| pid.map(|pid| self.pod.meant(pid, &pod)).transpose();
        wanted.plan.names_of = meant(wanted.names_of)?;
        wanted.plan.ipc_of = meant(wanted.ipc_of)?;
        let place = folder::place(&bundle, &pod)?;
        let folder = Folder::make(&place, id, &bundle)?;
        let mut made = self.fill(&folder, &request.rootfs, &mut wanted, id, &place).await;
        if made.is_ok() {
            made = hooks::run(&wanted.hooks, Moment::Creating, id, self.pod.pid(), &bundle).await;
        }
        if let Err(error) = made {
            if let Err(more) = folder.remove() {
                log::warn!("{more:#}");
            }
            return Err(error);
        }
        let stdio = Stdio {
            input: request.stdin.clone(),
            output: request.stdout.clone(),
            error: request.stderr.clone(),
            terminal: request.terminal,
        };
        let mut container = Container::new(id, bundle, folder, stdio, wanted.hooks);
        container.numbers = numbers;
        container.set_controls(wanted.plan.controls);
        Ok(Arc::new(container))
    }

    async fn fill(
        &self,
        folder: &Folder,
        mounts: &[api::Mount],
        wanted: &mut spec::Wanted,
        id: &str,
        place: &Path,
    ) -> anyhow::Result<()> {
        folder.mount_root(mounts, wanted.root.as_deref())?;
        for source in &wanted.sources {
            let name = folder.show(source)?;
            wanted.plan.mounts[source.number].source = name.into_bytes();
        }
        folder.plan(hayate_container_plan::PLAN, &wanted.plan)?;
        let (size, network) = (wanted.size, &wanted.network);
        let start = || async {
            let wanted = machine::Wanted { size, folder: place, name: id, network };
            let (machine, lacks) = Machine::start(wanted).await?;
            let machine = Arc::new(machine);
            tokio::spawn(self.pod.clone().tell_lacks(lacks));
            Ok::<_, anyhow::Error>(machine)
        };
        self.pod.machine.get_or_try_init(start).await.map(drop)
    }

    fn machine(&self) -> Result<Arc<Machine>> {
        let gone = || Error::FailedPreconditionError("the pod has no machine".into());
        let machine = self.pod.machine.get().cloned().ok_or_else(gone)?;
        if machine.is_over() { Err(gone()) } else { Ok(machine) }
    }

    async fn ask(&self, words: &[&str]) -> Result<String> {
        let words = [&[GUEST], words].concat();
        let answer = ask(&self.machine()?.link, &words).await;
        answer.map_err(|text| {
            // containerd knows this case by its words and by the code.
            let missing = text.contains("process not found") || text.contains("os error 3");
            if missing { Error::NotFoundError(text) } else { other(text) }
        })
    }

    /// The PID namespace in which a program of a container begins.
    fn numbers(&self, container: &Container, program: &Program) -> Result<Option<PidNamespace>> {
        let first = |container: &Container| {
            let gone = || Error::FailedPreconditionError(format!("{} does not run", container.id));
            container.runs_as().map(PidNamespace::Of).ok_or_else(gone)
        };
        match &container.numbers {
            Numbers::Machine => Ok(None),
            _ if !program.exec.is_empty() => first(container).map(Some),
            Numbers::Own => Ok(Some(PidNamespace::New)),
            Numbers::Of(other) => {
                let other = self.pod.find(other)?;
                if other.numbers == Numbers::Machine { Ok(None) } else { first(&other).map(Some) }
            }
        }
    }

    /// Starts a program, and watches over it.
    async fn run(&self, container: Arc<Container>, program: Arc<Program>) -> Result<u32> {
        if container.is_paused() {
            let text = format!("{} is paused, and starts no program", container.id);
            return Err(Error::FailedPreconditionError(text));
        }
        program.begin()?;
        let machine = self.machine()?;
        let numbers = match self.numbers(&container, &program) {
            Ok(numbers) => numbers,
            Err(error) => {
                program.finish(Exit { status: 127, at: now() });
                return Err(error);
            }
        };
        if program.exec.is_empty()
            && let Err(error) = self.pod.join(&machine, &container).await
        {
            program.finish(Exit { status: 127, at: now() });
            return Err(failed(error.context("cannot join the network of the pod")));
        }
        let plan = Folder::plan_of(&program.exec);
        let words = match &program.exec[..] {
            "" => vec![GUEST, "run", &container.id],
            _ => vec![GUEST, "exec", &container.id, &plan],
        };
        let running = match program::start(
            &machine.link,
            &words,
            numbers,
            &program.stdio,
            (&self.pod.namespace, &container.id),
        )
        .await
        {
            Ok(running) => running,
            Err(text) => {
                if program.exec.is_empty() {
                    // It may have a control group already.
                    let _ = ask(&machine.link, &[GUEST, "end", &container.id]).await;
                }
                program.finish(Exit { status: 127, at: now() });
                return Err(other(text));
            }
        };
        program.runs(running.pid, running.handle());
        let pid = machine.pid;
        let id = container.id.clone();
        if program.exec.is_empty() {
            let event = events::TaskStart { container_id: id, pid, ..Default::default() };
            self.pod.publish(event).await;
            self.tell_hooks(&container, Moment::Started).await;
        } else {
            let exec_id = program.exec.clone();
            let event =
                events::TaskExecStarted { container_id: id, exec_id, pid, ..Default::default() };
            self.pod.publish(event).await;
        }
        tokio::spawn(self.pod.clone().watch(machine, container, program, running));
        Ok(pid)
    }

    /// Runs hooks whose failure changes nothing (runtime-spec, runtime.md, "Lifecycle").
    async fn tell_hooks(&self, container: &Container, when: Moment) {
        let (id, bundle) = (&container.id, &container.bundle);
        if let Err(error) = hooks::run(&container.hooks, when, id, self.pod.pid(), bundle).await {
            log::warn!("{error:#}");
        }
    }

    async fn signal(&self, request: &api::KillRequest) -> Result<()> {
        let container = self.pod.find(&request.id)?;
        let program = container.program(&request.exec_id)?;
        let gone = || Error::NotFoundError("process already finished".into());
        match program.stage() {
            Stage::Ended => return Err(gone()),
            Stage::Created => {
                // It never ran; nothing has to end for it.
                let exit = Exit { status: 128 + request.signal, at: now() };
                self.pod.conclude(&container, &program, exit).await;
                return Ok(());
            }
            Stage::Running(_, handle) if request.signal == 9 && !request.all => {
                handle.kill();
                return Ok(());
            }
            Stage::Starting | Stage::Running(..) => {}
        }
        let signal = request.signal.to_string();
        let id = &request.id[..];
        if request.all {
            return self.ask(&["signal-all", id, &signal]).await.map(drop);
        }
        let Stage::Running(pid, _) = program.stage() else { return Err(gone()) };
        let pid = pid.to_string();
        let words = ["signal", id, &signal, &pid];
        let count = if request.exec_id.is_empty() { 3 } else { 4 };
        self.ask(&words[..count]).await.map(drop)
    }

    /// Tells the control group of a container what a further specification asks for.
    async fn set(&self, request: &api::UpdateTaskRequest) -> anyhow::Result<()> {
        let container = self.pod.find(&request.id)?;
        let resources: LinuxResources = serde_json::from_slice(&request.resources().value)
            .context("cannot read the resources")?;
        let wanted = controls::of(&resources)?;
        let machine = self.machine()?;
        let known = container.controls();
        // containerd says again what stays; a container may have had it from the beginning.
        for control in wanted.iter().filter(|control| !known.contains(control)) {
            machine.size.check(control)?;
        }
        let ask = async |words: &[&str]| {
            let answer = ask(&machine.link, &[&[GUEST], words].concat()).await;
            answer.map_err(anyhow::Error::msg)
        };
        let memory = resources.memory().as_ref();
        if let Some(limit) = memory.and_then(LinuxMemory::limit).filter(|&limit| limit > 0)
            && memory.and_then(LinuxMemory::check_before_update).unwrap_or_default()
        {
            let text = ask(&["stats", &request.id]).await?;
            let used = metrics::find(&text, "memory.current", "").unwrap_or_default();
            ensure!(used <= limit.unsigned_abs(), "{used} bytes of memory are in use");
        }
        match container.program("")?.stage() {
            Stage::Created => container.folder.amend(&wanted)?,
            _ => {
                let plan = Plan { controls: wanted.clone(), ..Plan::default() };
                container.folder.plan(UPDATE, &plan)?;
                ask(&["update", &request.id, UPDATE]).await?;
            }
        }
        container.set_controls(wanted);
        Ok(())
    }

    /// Lets the processes of a container rest, or go on.
    async fn freeze(&self, id: &str, rests: bool) -> Result<()> {
        let container = self.pod.find(id)?;
        if container.runs_as().is_none() {
            return Err(Error::FailedPreconditionError(format!("{id} does not run")));
        }
        self.ask(&[if rests { "freeze" } else { "thaw" }, id]).await?;
        container.pause(rests);
        Ok(())
    }
}

fn field<T>(value: T) -> MessageField<T> {
    MessageField::some(value)
}

#[async_trait]
impl Task for Service {
    async fn state(
        &self,
        _: &TtrpcContext,
        request: api::StateRequest,
    ) -> TtrpcResult<api::StateResponse> {
        let container = self.pod.find(&request.id)?;
        let program = container.program(&request.exec_id)?;
        let status = match program.stage() {
            Stage::Created | Stage::Starting => Status::CREATED,
            Stage::Running(..) if container.is_paused() => Status::PAUSED,
            Stage::Running(..) => Status::RUNNING,
            Stage::Ended => Status::STOPPED,
        };
        let stdio = program.stdio.clone();
        let mut response = api::StateResponse {
            id: request.id,
            exec_id: request.exec_id,
            bundle: container.bundle.display().to_string(),
            pid: self.pod.pid(),
            status: status.into(),
            stdin: stdio.input,
            stdout: stdio.output,
            stderr: stdio.error,
            terminal: stdio.terminal,
            ..Default::default()
        };
        if let Some(exit) = program.exit() {
            response.exit_status = exit.status;
            response.set_exited_at(exit.at);
        }
        Ok(response)
    }

    async fn create(
        &self,
        _: &TtrpcContext,
        request: api::CreateTaskRequest,
    ) -> TtrpcResult<api::CreateTaskResponse> {
        if !request.checkpoint.is_empty() {
            return Err(Error::Unimplemented("a machine begins at no checkpoint".into()).into());
        }
        if self.pod.find(&request.id).is_ok() {
            let text = format!("the container {} is there already", request.id);
            return Err(Error::InvalidArgument(text).into());
        }
        let container = self.make(&request).await.map_err(failed)?;
        let pid = self.pod.pid();
        self.pod.add(container);
        let io = events::TaskIO {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            terminal: request.terminal,
            ..Default::default()
        };
        let event = events::TaskCreate {
            container_id: request.id,
            bundle: request.bundle,
            rootfs: request.rootfs,
            io: field(io),
            pid,
            ..Default::default()
        };
        self.pod.publish(event).await;
        Ok(api::CreateTaskResponse { pid, ..Default::default() })
    }

    async fn start(
        &self,
        _: &TtrpcContext,
        request: api::StartRequest,
    ) -> TtrpcResult<api::StartResponse> {
        let container = self.pod.find(&request.id)?;
        let program = container.program(&request.exec_id)?;
        let pid = self.run(container, program).await?;
        Ok(api::StartResponse { pid, ..Default::default() })
    }

    async fn delete(
        &self,
        _: &TtrpcContext,
        request: api::DeleteRequest,
    ) -> TtrpcResult<api::DeleteResponse> {
        let container = self.pod.find(&request.id)?;
        let program = container.program(&request.exec_id)?;
        if matches!(program.stage(), Stage::Starting | Stage::Running(..)) {
            return Err(Error::FailedPreconditionError("the process runs".into()).into());
        }
        let exit = program.exit().unwrap_or(Exit { status: 0, at: now() });
        let pid = self.pod.pid();
        if program.exec.is_empty() {
            let folder = container.folder.clone();
            let removed = tokio::task::spawn_blocking(move || folder.remove()).await;
            removed.map_err(other)?.map_err(failed)?;
            self.pod.remove(&request.id);
            self.tell_hooks(&container, Moment::Stopped).await;
            let event = events::TaskDelete {
                container_id: request.id.clone(),
                id: request.id,
                pid,
                exit_status: exit.status,
                exited_at: field(exit.at.clone()),
                ..Default::default()
            };
            self.pod.publish(event).await;
        } else {
            container.folder.forget_plan(&program.exec);
            container.forget(&program.exec);
        }
        let (exit_status, exited_at) = (exit.status, field(exit.at));
        Ok(api::DeleteResponse { pid, exit_status, exited_at, ..Default::default() })
    }

    async fn pids(
        &self,
        _: &TtrpcContext,
        request: api::PidsRequest,
    ) -> TtrpcResult<api::PidsResponse> {
        self.pod.find(&request.id)?;
        let text = self.ask(&["pids", &request.id]).await?;
        let numbers = text.lines().filter_map(|line| line.parse().ok());
        let processes = numbers.map(|pid| ProcessInfo { pid, ..Default::default() }).collect();
        Ok(api::PidsResponse { processes, ..Default::default() })
    }

    async fn pause(&self, _: &TtrpcContext, request: api::PauseRequest) -> TtrpcResult<api::Empty> {
        self.freeze(&request.id, true).await?;
        let container_id = request.id;
        self.pod.publish(events::TaskPaused { container_id, ..Default::default() }).await;
        Ok(api::Empty::new())
    }

    async fn resume(
        &self,
        _: &TtrpcContext,
        request: api::ResumeRequest,
    ) -> TtrpcResult<api::Empty> {
        self.freeze(&request.id, false).await?;
        let container_id = request.id;
        self.pod.publish(events::TaskResumed { container_id, ..Default::default() }).await;
        Ok(api::Empty::new())
    }

    async fn kill(&self, _: &TtrpcContext, request: api::KillRequest) -> TtrpcResult<api::Empty> {
        self.signal(&request).await?;
        Ok(api::Empty::new())
    }

    async fn exec(
        &self,
        _: &TtrpcContext,
        request: api::ExecProcessRequest,
    ) -> TtrpcResult<api::Empty> {
        let container = self.pod.find(&request.id)?;
        let wanted = serde_json::from_slice(&request.spec().value)
            .map_err(|error| Error::InvalidArgument(format!("cannot read the process: {error}")))?;
        let mut plan = spec::program(&wanted).map_err(failed)?;
        plan.terminal = request.terminal;
        let spec = spec::read(&container.bundle).map_err(failed)?;
        plan.filter = spec::filter(&spec).map_err(failed)?;
        let stdio = Stdio {
            input: request.stdin,
            output: request.stdout,
            error: request.stderr,
            terminal: request.terminal,
        };
        let name = &request.exec_id;
        if name.is_empty() || name.contains('/') {
            return Err(Error::InvalidArgument(format!("no name of a process: {name}")).into());
        }
        container.exec(name, stdio)?;
        container.folder.plan(&Folder::plan_of(name), &plan).map_err(failed)?;
        let (container_id, exec_id) = (request.id, request.exec_id);
        let event = events::TaskExecAdded { container_id, exec_id, ..Default::default() };
        self.pod.publish(event).await;
        Ok(api::Empty::new())
    }

    async fn resize_pty(
        &self,
        _: &TtrpcContext,
        request: api::ResizePtyRequest,
    ) -> TtrpcResult<api::Empty> {
        let program = self.pod.find(&request.id)?.program(&request.exec_id)?;
        let side = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        program.resize(side(request.height), side(request.width));
        Ok(api::Empty::new())
    }

    async fn close_io(
        &self,
        _: &TtrpcContext,
        request: api::CloseIORequest,
    ) -> TtrpcResult<api::Empty> {
        let program = self.pod.find(&request.id)?.program(&request.exec_id)?;
        if request.stdin {
            program.close_input();
        }
        Ok(api::Empty::new())
    }

    async fn wait(
        &self,
        _: &TtrpcContext,
        request: api::WaitRequest,
    ) -> TtrpcResult<api::WaitResponse> {
        let program = self.pod.find(&request.id)?.program(&request.exec_id)?;
        let exit = program.ended().await;
        let (exit_status, exited_at) = (exit.status, field(exit.at));
        Ok(api::WaitResponse { exit_status, exited_at, ..Default::default() })
    }

    async fn stats(
        &self,
        _: &TtrpcContext,
        request: api::StatsRequest,
    ) -> TtrpcResult<api::StatsResponse> {
        self.pod.find(&request.id)?;
        let text = self.ask(&["stats", &request.id]).await?;
        let stats = field(metrics::message(&text).map_err(other)?);
        Ok(api::StatsResponse { stats, ..Default::default() })
    }

    async fn update(
        &self,
        _: &TtrpcContext,
        request: api::UpdateTaskRequest,
    ) -> TtrpcResult<api::Empty> {
        self.set(&request).await.map_err(failed)?;
        Ok(api::Empty::new())
    }

    async fn connect(
        &self,
        _: &TtrpcContext,
        _: api::ConnectRequest,
    ) -> TtrpcResult<api::ConnectResponse> {
        let (shim_pid, task_pid) = (std::process::id(), self.pod.pid());
        Ok(api::ConnectResponse { shim_pid, task_pid, ..Default::default() })
    }

    /// Ends the pod, if no container is left.
    async fn shutdown(&self, _: &TtrpcContext, _: api::ShutdownRequest) -> TtrpcResult<api::Empty> {
        if self.pod.is_empty() {
            if let Some(machine) = self.pod.machine.get() {
                machine.end();
                let _ = tokio::time::timeout(GRACE, machine.ended()).await;
            }
            self.pod.leave().await;
            // By its address: the bundle, where it is written, may be gone before this process is.
            let _ = std::fs::remove_file(path_of(&self.socket));
            self.exit.signal();
        }
        Ok(api::Empty::new())
    }
}
