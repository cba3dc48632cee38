//! Hooks of the OCI specification: programs of the host, such as those that make networks.
//!
//! Each gets the container's state on its standard input (runtime-spec, runtime.md, "State"), with
//! the number of QEMU as that of the container, whose network namespace is the pod's. Those that
//! run in the container's namespaces (`createContainer`, `startContainer`) are refused
//! ([`crate::spec`]): they would be programs of the host in a guest.

use anyhow::{Context, Result, bail, ensure};
use oci_spec::runtime::{Hook, Spec};
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How long a hook may take that names no time.
const USUAL: Duration = Duration::from_secs(120);

/// The hooks of a container.
#[derive(Clone, Default)]
pub struct Hooks {
    /// When its machine is there, before it is started.
    pub create: Vec<Hook>,
    /// When it was started.
    pub started: Vec<Hook>,
    /// When it was deleted.
    pub stopped: Vec<Hook>,
    /// The container's annotations, which they are told: nerdctl's find its files by them.
    annotations: HashMap<String, String>,
}

/// When hooks run.
#[derive(Clone, Copy)]
pub enum Moment {
    /// The machine is there.
    Creating,
    /// The container was started.
    Started,
    /// It was deleted.
    Stopped,
}

/// Reads the hooks of a specification.
pub fn of(spec: &Spec) -> Result<Hooks> {
    let Some(hooks) = spec.hooks() else { return Ok(Hooks::default()) };
    for list in [hooks.create_container(), hooks.start_container()] {
        if let Some(hook) = list.iter().flatten().next() {
            bail!("the hook {} is asked for inside of the container", hook.path().display());
        }
    }
    // The older name of the same moment.
    #[allow(deprecated)]
    let before = hooks.prestart();
    let create = before.iter().chain(hooks.create_runtime()).flatten().cloned().collect();
    let list = |list: &Option<Vec<Hook>>| list.iter().flatten().cloned().collect();
    Ok(Hooks {
        create,
        started: list(hooks.poststart()),
        stopped: list(hooks.poststop()),
        annotations: spec.annotations().clone().unwrap_or_default(),
    })
}

/// Runs the hooks of a moment one after the other, to the first that fails. `pid`: QEMU's number.
pub async fn run(hooks: &Hooks, when: Moment, id: &str, pid: u32, bundle: &Path) -> Result<()> {
    let (list, status) = match when {
        Moment::Creating => (&hooks.create, "creating"),
        Moment::Started => (&hooks.started, "running"),
        Moment::Stopped => (&hooks.stopped, "stopped"),
    };
    let state = json!({
        "ociVersion": "1.0.2", "id": id, "status": status, "pid": pid, "bundle": bundle,
        "annotations": hooks.annotations,
    });
    for hook in list {
        let shown = hook.path().display();
        let seconds = hook.timeout().and_then(|seconds| u64::try_from(seconds).ok());
        let limit = seconds.map_or(USUAL, Duration::from_secs);
        let ended = tokio::time::timeout(limit, one(hook, &state.to_string())).await;
        let ended = ended.with_context(|| format!("the hook {shown} takes too long"))?;
        ended.with_context(|| format!("the hook {shown}"))?;
    }
    Ok(())
}

async fn one(hook: &Hook, state: &str) -> Result<()> {
    let mut command = Command::new(hook.path());
    let words = hook.args().iter().flatten();
    if let Some(name) = hook.args().iter().flatten().next() {
        command.arg0(name);
    }
    command.args(words.skip(1)).env_clear();
    for variable in hook.env().iter().flatten() {
        if let Some((name, value)) = variable.split_once('=') {
            command.env(name, value);
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().context("cannot be started")?;
    if let Some(mut input) = child.stdin.take() {
        // It need not read it.
        let _ = input.write_all(state.as_bytes()).await;
    }
    let output = child.wait_with_output().await.context("cannot be awaited")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ended with {}: {}", output.status, said.trim());
    Ok(())
}
